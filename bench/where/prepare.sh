#!/bin/bash
# prepare.sh FOLDER BUSYBOX: makes what the rows of where.py run that no package of this machine has: roots of
# other releases, a Python with libraries, and programs built in several ways. BUSYBOX: its source. What is
# there stays. Needs debootstrap, clang, musl-gcc, go, cargo; says what it could not make. As root.
set -u
folder=$1 busybox=$2 programs=$(dirname "$(readlink -f "$0")")/programs
mkdir -p "$folder/roots" "$folder/bin"
failed() { echo "where: without $1" >&2; }

mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
  awk -v release="$(. /etc/os-release && echo "$VERSION_CODENAME")" '$2 == release && $3 == "main" { print $1; exit }')
for release in bullseye bookworm trixie; do
  [ -e "$folder/roots/$release/done" ] ||
    { debootstrap --variant=minbase --include=python3,nodejs "$release" "$folder/roots/$release" "$mirror" > /dev/null &&
      touch "$folder/roots/$release/done"; } || failed "a root of $release"
done

[ -x "$folder/python/bin/python3" ] ||
  { /usr/bin/python3 -m venv "$folder/python" &&
    "$folder/python/bin/pip" -q install numpy safetensors faiss-cpu lmdb; } || failed "a Python with libraries"

clang -O3 -mavx2 -mtune=skylake "$programs/gather.c" -o "$folder/bin/gather" || failed "a gather by AVX2"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/go" && cp "$programs/read.go" "$scratch/go" && printf 'module read\ngo 1.20\n' > "$scratch/go/go.mod"
(cd "$scratch/go" && CGO_ENABLED=0 go build -o "$folder/bin/read-static" . &&
  CGO_ENABLED=0 go build -buildmode=pie -o "$folder/bin/read-pie" . && cp "$programs/cgo.go" . &&
  CGO_ENABLED=1 go build -o "$folder/bin/read-cgo" .) || failed "programs in Go"

[ -x "$folder/bin/rg" ] ||
  { cargo install --quiet ripgrep --target x86_64-unknown-linux-musl --root "$scratch/rg" &&
    cp "$scratch/rg/bin/rg" "$folder/bin"; } || failed "a static rg"

# The kernel's headers are no part of musl.
[ -x "$folder/bin/busybox" ] || (
  mkdir "$scratch/include" && cp -r "$busybox" "$scratch/busybox" && cd "$scratch/busybox" || exit 1
  for name in linux mtd asm-generic; do ln -s "/usr/include/$name" "$scratch/include/$name"; done
  ln -s /usr/include/x86_64-linux-gnu/asm "$scratch/include/asm"
  make -s defconfig > /dev/null &&
    sed -i 's/# CONFIG_STATIC is not set/CONFIG_STATIC=y/; s/^CONFIG_TC=y/# CONFIG_TC is not set/' .config &&
    { yes '' | make -s oldconfig > /dev/null; } &&
    make -s -j2 CC="musl-gcc -idirafter $scratch/include" busybox > /dev/null 2>&1 && cp busybox "$folder/bin"
) || failed "a static busybox with musl"
