#!/usr/bin/env bash
# Removes, moves and unmounts what has just been read cold, under Runahead, and counts what fails:
#
#   unshare --mount --propagation private tests/given_back.sh RUNAHEAD FOLDER KIND ROUNDS
#
# KIND: ext4, overlay, bindfs or sshfs. FOLDER: an empty one on a disk. Alone (RUNAHEAD: env) nothing fails.
set -u
runahead=$1 folder=$2 kind=$3 rounds=$4
if [ "$(basename "$runahead")" = env ]; then under=(env); else under=("$runahead" run --); fi
store=$folder/store top=$folder/top elsewhere=$folder/elsewhere
failures=0 tried=0
export HOME=$folder GIT_CONFIG_GLOBAL=$folder/gitconfig

die() { printf 'given_back: %s\n' "$*" >&2; exit 2; }

server() {
  mkdir -p /run/sshd
  ssh-keygen -q -t ed25519 -N '' -f "$folder/key" || die "no key"
  ssh-keygen -q -t ed25519 -N '' -f "$folder/host" || die "no key"
  port=$((20000 + $$ % 20000))
  printf '%s\n' "Port $port" "ListenAddress 127.0.0.1" "HostKey $folder/host" "AuthorizedKeysFile $folder/key.pub" \
    "StrictModes no" "PermitRootLogin yes" "UsePAM no" "PidFile none" "Subsystem sftp internal-sftp" > "$folder/sshd.conf"
  /usr/sbin/sshd -D -f "$folder/sshd.conf" &
  sshd=$!
  sleep 0.5
}

# The file system under test appears at $top, with nothing of it in a cache.
appear() {
  dd if="$folder/disk.img" iflag=nocache count=0 status=none
  mount -o loop "$folder/disk.img" "$store" || die "no loop device"
  case $kind in
    ext4) mount --bind "$store" "$top" ;;
    overlay) mount -t overlay overlay -o "lowerdir=$store/lower,upperdir=$store/upper,workdir=$store/work" "$top" ;;
    bindfs) bindfs "$store" "$top" ;;
    sshfs) sshfs -p "$port" -o "IdentityFile=$folder/key,StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null" \
      "127.0.0.1:$store" "$top" ;;
  esac || die "cannot mount $kind"
}

# A server is told of its unmounting, and lets go of the store below by and by.
vanish_store() {
  for _ in $(seq 200); do umount "$store" 2>/dev/null && return; sleep 0.02; done
  die "the store stays busy"
}

fill() {
  local tree directory
  for tree in read rm mv tar rmtree; do
    for directory in 1 2 3 4; do
      mkdir -p "$1/$tree/$directory"
      for file in 1 2 3 4 5 6 7 8; do head -c 20000 "$folder/noise" > "$1/$tree/$directory/$file"; done
    done
  done
  git init -q "$1/git"
  cp -r "$1/read" "$1/git/read"
}

# check NAME TREE COMMAND...: it succeeds, and leaves nothing of the tree.
check() {
  local name=$1 tree=$2 said
  shift 2
  tried=$((tried + 1))
  said=$("${under[@]}" "$@" 2>&1 >/dev/null)
  local status=$?
  if [ "$status" != 0 ] || [ -e "$tree" ]; then
    failures=$((failures + 1))
    printf '%s, round %s, %s: status %s, %s: %s\n' "$kind" "$round" "$name" "$status" \
      "$([ -e "$tree" ] && echo there || echo gone)" "$(printf '%s' "$said" | head -n 2 | tr '\n' ' ')"
  fi
}

mkdir -p "$store" "$top" "$elsewhere"
head -c 20000 /dev/urandom > "$folder/noise"
truncate -s 64M "$folder/disk.img"
mkfs.ext4 -q -F "$folder/disk.img" || die "no ext4"
printf '[safe]\n\tdirectory = *\n' > "$folder/gitconfig"
sshd=
[ "$kind" != sshfs ] || server

for round in $(seq "$rounds"); do
  if [ "$kind" = overlay ]; then
    # What is below, so that it is removed by what hides it.
    mount -o loop "$folder/disk.img" "$store" || die "no loop device"
    rm -rf "$store"/{lower,upper,work}
    mkdir "$store"/{lower,upper,work}
    fill "$store/lower"
  else
    appear
    fill "$top"
    umount "$top"
  fi
  vanish_store
  appear
  cd "$top" || die "gone"
  check "cat and rm -r" rm bash -c 'cat rm/*/* | cksum; exec rm -r rm'
  check "mv" mv mv mv "$elsewhere"
  check "tar --remove-files" tar tar --remove-files -cf "$elsewhere/tar" tar
  check "rmtree" rmtree python3 -c '
import os, shutil
for folder, _, files in os.walk("rmtree"):
    for name in files: open(os.path.join(folder, name), "rb").read()
shutil.rmtree("rmtree")'
  cd git || die "gone"
  check "git clean" read bash -c 'git status --short -uall; exec git clean -fdq'
  cd "$folder" || die "gone"
  check "cat and umount" "$top/read" bash -c 'cat "$1"/read/*/* | cksum; exec umount "$1"' - "$top"
  mountpoint -q "$top" && umount -l "$top"
  rm -rf "${elsewhere:?}"/*
  vanish_store
done
[ -z "$sshd" ] || kill "$sshd"
printf '%s: %s of %s failed\n' "$kind" "$failures" "$tried"
[ "$failures" = 0 ]
