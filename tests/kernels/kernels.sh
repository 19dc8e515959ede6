#!/usr/bin/env bash
# kernels.sh FOLDER KERNEL...: boots each kernel (a distribution's package, unpacked) in an emulated machine and runs
# guest.sh there. What the programs read is made below FOLDER once.
#
# The machine is emulated by instructions (icount): its clock goes by what was executed, so that its processors and its
# disk of 1 ms keep to each other, whatever else the real machine does.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
here=$repository/tests/kernels
folder=$1
shift
rounds=${KERNELS_ROUNDS:-3}
processors=${KERNELS_PROCESSORS:-2}
# Nanoseconds an instruction takes, as a power of two; "none" emulates as fast as it goes.
pace=${KERNELS_PACE:-0}
accelerator=(-accel tcg,thread=single -icount "shift=$pace,sleep=on")
[ "$pace" != none ] || accelerator=(-accel tcg,thread=multi)

say() { printf '%s\n' "$*" >&2; }

# copy ROOT PROGRAM...: programs with the libraries that they need.
copy() {
  local root=$1 program file
  shift
  for program in "$@"; do
    program=$(PATH=/usr/bin:/bin command -v "$program") || { say "no $program here"; return 1; }
    install -D "$(readlink -f "$program")" "$root/usr/bin/$(basename "$program")"
    for file in $(ldd "$program" 2>/dev/null | grep -o '/[^ ]*'); do
      [ -e "$root$file" ] || install -D "$(readlink -f "$file")" "$root$file"
    done
  done
}

# What each kernel's root has: programs, Runahead, the kernel's modules.
make_root() {
  local root=$1 kernel=$2 release=$3 modules program
  rm -rf "$root"
  mkdir -p "$root"/{proc,sys,dev,tmp,data,etc,usr/bin,usr/lib/runahead,lib/modules}
  ln -s usr/bin "$root/bin"
  copy "$root" bash grep sqlite3 setpriv cmp tar du find ${KERNELS_PROGRAMS:-}
  install -m 755 "$(command -v busybox)" "$root/usr/bin/busybox"
  for program in $(busybox --list); do
    [ -e "$root/usr/bin/$program" ] || ln -s busybox "$root/usr/bin/$program"
  done
  install -m 755 "$repository"/target/release/{runahead,bench-mapped,bench-slices} "$root/usr/bin/"
  copy "$root" "$repository"/target/release/{bench-mapped,bench-slices}
  install -m 755 "$repository"/target/release/{runahead-host,runahead-tools,runahead-speculator,librunahead_agent.so} "$root/usr/lib/runahead/"
  printf 'root:x:0:0::/tmp/home-0:/bin/bash\nuser:x:1000:1000::/tmp/home-1000:/bin/bash\n' > "$root/etc/passwd"
  printf 'root:x:0:\nuser:x:1000:\n' > "$root/etc/group"
  install -m 755 "$here/guest.sh" "$root/init"
  for file in ${KERNELS_SCRIPTS:-}; do install -m 755 "$file" "$root/"; done
  modules=$(echo "$kernel"/{usr/,}lib/modules/"$release"/kernel)
  for program in configfs null_blk ${KERNELS_MODULES:-}; do
    for file in $(find $modules -name "$program.ko*" 2>/dev/null); do
      install -D -m 644 "$file" "$root/lib/modules/$release/$(basename "$file")"
    done
  done
  ! ls "$root/lib/modules/$release"/*.xz >/dev/null 2>&1 || unxz "$root/lib/modules/$release"/*.xz
  busybox depmod -b "$root" "$release"
}

# image LABEL FOLDER FILE MEGABYTES
image() {
  rm -f "$3"
  truncate -s "$4M" "$3"
  mke2fs -q -F -t ext4 -b 4096 -L "$1" -d "$2" -E lazy_itable_init=0,root_owner=0:0 "$3"
}

# The kernel numbers disks in the order in which they answer: the root is found by its label.
make_start() {
  local start=$1/start
  rm -rf "$start" && mkdir -p "$start"/{bin,dev,root}
  install -m 755 "$(command -v busybox)" "$start/bin/busybox"
  cat > "$start/init" <<'START'
#!/bin/busybox sh
busybox mount -t devtmpfs dev /dev
until disk=$(busybox findfs LABEL=root 2>/dev/null); do busybox usleep 10000; done
busybox mount -t ext4 "$disk" /root && busybox mount -t devtmpfs dev /root/dev && exec busybox switch_root /root /init
START
  chmod 755 "$start/init"
  (cd "$start" && find . | busybox cpio -o -H newc 2>/dev/null) > "$1/start.cpio"
}

[ -e "$folder/data.img" ] || {
  say "making what is read"
  rm -rf "$folder/data" && mkdir -p "$folder/data"
  python3 "$here/data.py" "$folder/data"
  image data "$folder/data" "$folder/data.new" 240
  mv "$folder/data.new" "$folder/data.img"
}

make_start "$folder"
[ -n "${KERNELS_KEEP:-}" ] || rm -rf "$folder/runs"
for kernel in "$@"; do
  release=$(basename "$kernel"/boot/vmlinuz-*)
  release=${release#vmlinuz-}
  at=$folder/runs/$release
  mkdir -p "$at"
  make_root "$at/root" "$kernel" "$release"
  image root "$at/root" "$at/root.img" 160
  rm -rf "$at/reports" && mkdir "$at/reports"
  image reports "$at/reports" "$at/reports.img" 16
  say "Linux $release"
  timeout "${KERNELS_PATIENCE:-1200}" qemu-system-x86_64 -M q35 -cpu max,-erms,-fsrm -smp "$processors" -m "${KERNELS_MEMORY:-1024}" \
    "${accelerator[@]}" -nographic -no-reboot -nic none -monitor none \
    -kernel "$kernel"/boot/vmlinuz-* -initrd "$folder/start.cpio" \
    -append "console=ttyS0 panic=-1 maxcpus=1 ${KERNELS_QUIET-quiet} mitigations=off rounds=$rounds ${KERNELS_ARGUMENTS:-}" \
    -device nvme,id=disks,serial=disks \
    -drive "file=$at/root.img,format=raw,if=none,id=root" -device nvme-ns,drive=root,bus=disks,nsid=1 \
    -drive "file=$folder/data.img,format=raw,if=none,id=data,snapshot=on" -device nvme-ns,drive=data,bus=disks,nsid=2 \
    -drive "file=$at/reports.img,format=raw,if=none,id=reports" -device nvme-ns,drive=reports,bus=disks,nsid=3 \
    < /dev/null > "$at/console" 2>&1 || say "the emulator: $?"
  grep -a '^@' "$at/console" | tr -d '\r' > "$at/lines" || true
  debugfs -R "rdump / $at/reports" "$at/reports.img" 2>/dev/null || true
done
python3 "$here/table.py" "$folder/runs"
