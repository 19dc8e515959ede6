#!/bin/bash
# The first process of a kernel under test (kernels.sh makes the disk that it lies on): runs each program alone and
# under Runahead, cold, as root and as an ordinary user, from a disk of 1 ms that the kernel itself emulates.
#
# Prints lines that begin with "@", for kernels.sh; hands reports over on the third disk.
export PATH=/usr/bin:/bin LC_ALL=C

say() { printf '@ %s\n' "$*"; }
off() { sync; poweroff -f; sleep 60; }
die() { say "failed $*"; off; }

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mkdir -p /var/tmp && chmod 1777 /var/tmp
mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm
mkdir -m 700 /tmp/home-0 /tmp/home-1000 && chown 1000:1000 /tmp/home-1000
mkdir -m 777 /tmp/out
rounds=3 only= delay=1000000 script=
for word in $(cat /proc/cmdline); do
  case "$word" in rounds=*) rounds=${word#*=} ;; only=*) only=${word#*=} ;; delay=*) delay=${word#*=} ;; script=*) script=${word#*=} ;; esac
done

# A disk in memory whose requests take a millisecond each, 64 of them at a time.
modprobe configfs && mount -t configfs config /sys/kernel/config || die "no configfs"
modprobe null_blk nr_devices=0 || die "no null_blk"
data=$(findfs LABEL=data) reports=$(findfs LABEL=reports)
disk=/sys/kernel/config/nullb/nullb0
mkdir "$disk"
for setting in memory_backed=1 "size=$(($(cat "/sys/block/${data##*/}/size") / 2048))" blocksize=4096 irqmode=2 \
  "completion_nsec=$delay" hw_queue_depth=64 submit_queues=1; do
  echo "${setting#*=}" > "$disk/${setting%%=*}" || die "null_blk has no $setting"
done
echo 1 > "$disk/power" || die "null_blk cannot be switched on"
slow=/dev/nullb0
dd if="$data" of="$slow" bs=1M 2>/dev/null || die "the data cannot be copied"
mkdir -p /data
mount "$slow" /data || die "the data cannot be mounted"
chown -R 1000:1000 /data

cold() {
  cd /
  umount /data
  sync
  echo 3 > /proc/sys/vm/drop_caches
  mount "$slow" /data || die "the data cannot be mounted again"
  cd /data || die "no data"
}

# as USER COMMAND...: with that user's home.
as() {
  local user=$1
  shift
  if [ "$user" = 0 ]; then HOME=/tmp/home-0 "$@"; else HOME=/tmp/home-$user setpriv --reuid "$user" --regid "$user" --clear-groups "$@"; fi
}

# once FILE USER COMMAND...: its seconds into `seconds`, its status into `status`.
once() {
  local began=$EPOCHREALTIME ended out=$1
  shift
  as "$@" > "$out" 2> "$out.error" < /dev/null
  status=$?
  ended=$EPOCHREALTIME
  seconds=$(((${ended/./} - ${began/./})))
}

# measure NAME USER COMMAND...: `rounds` times alone and under Runahead in alternation.
measure() {
  local name=$1 user=$2 round model same
  shift 2
  [ -z "$only" ] || [[ ",$only," = *",$name,"* ]] || return 0
  # Programs are looked through when they are first started.
  once /tmp/out/first "$user" runahead run -- "$@"
  for ((round = 0; round < rounds; round++)); do
    cold
    once /tmp/out/alone "$user" "$@"
    model=$status
    say "time $name $user alone $round $seconds $status"
    cold
    once /tmp/out/ahead "$user" runahead run --report "/tmp/out/report-$name-$user-$round.json" -- "$@"
    same=same
    cmp -s /tmp/out/alone /tmp/out/ahead && cmp -s /tmp/out/alone.error /tmp/out/ahead.error && [ "$status" = "$model" ] ||
      same=different
    say "time $name $user ahead $round $seconds $status $same"
    [ $same = same ] || head -c 300 /tmp/out/*.error
  done
}

for cpu in /sys/devices/system/cpu/cpu[1-9]/online; do [ ! -e "$cpu" ] || echo 1 > "$cpu"; done
say "kernel $(uname -r)"
say "processors $(nproc)"
if [ -n "$script" ]; then . "/$script"; only=none; fi
for user in 0 1000; do
  measure grep $user grep -r -f /data/pattern /data/tree
  measure gather $user bench-mapped /data/gather.bin computed 1000
  measure random $user bench-mapped --random /data/gather.bin computed 1500
  measure slices $user bench-slices /data/volume.bin --edge 192 --slices 6 --out /tmp/home-$user
  measure sqlite $user sqlite3 -init /dev/null -batch -readonly /data/rows.db ".read /data/look-ups.sql"
done
cd /
mkdir -p /tmp/reports && mount "$reports" /tmp/reports && cp /tmp/out/report-* /tmp/reports/ && umount /tmp/reports
say "done"
off
