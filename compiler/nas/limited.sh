#!/usr/bin/env bash
# nas/limited.sh BUILD CLASS SHARE DIRECTORY [CODE...]: the NAS codes with their static
# arrays on a file in DIRECTORY, under a memory limit of 1/SHARE of their footprint:
# without and with the pass. LIMITED_STEPS=n: n steps of each code instead of all (then the
# two are only compared). Needs root, for the memory cgroup.
set -euo pipefail
here="$(dirname "$(readlink -f "$0")")"
[ $# -ge 4 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
build="$1" class="$2" share="$3" directory="$4"
shift 4
[ $# -gt 0 ] || set -- is cg mg ft bt sp lu
if [ -d /sys/fs/cgroup/memory ]; then
  group="/sys/fs/cgroup/memory/runahead-nas-$$" limit_file=memory.limit_in_bytes
else
  group="/sys/fs/cgroup/runahead-nas-$$" limit_file=memory.max
fi
work="$(mktemp -d)"
mkdir "$group"
running=""
# However this ends, nothing is left behind: what runs in the group is ended with it
# (the group's own list says what that is: `timeout` alone would leave its child), and
# the group goes as soon as it is empty. bash runs a trap only between commands, hence
# the code in the background and `wait`, which a signal does interrupt.
tidy() {
  trap - EXIT INT TERM HUP
  local tries pid
  for ((tries = 0; tries < 100; tries++)); do
    while read -r pid; do kill -KILL "$pid" 2>/dev/null || true; done < "$group/cgroup.procs"
    [ -z "$running" ] || wait "$running" 2>/dev/null || true
    running=""
    rm -rf "$work"
    rmdir "$group" 2>/dev/null && return
    sleep 0.1
  done
  printf 'limited.sh: %s could not be removed: something still runs in it\n' "$group" >&2
}
trap tidy EXIT
trap 'tidy; exit 130' INT
trap 'tidy; exit 143' TERM
trap 'tidy; exit 129' HUP
printf '%-4s %8s %9s %9s %7s %12s %12s  %s\n' code limit plain ours gain faults 'faults ours' result
for name in "$@"; do
  flags=(-O2 -mcmodel=medium "-DCLASS=NAS_$class" "$here/$name.c")
  [ -z "${LIMITED_STEPS:-}" ] || flags+=("-DNAS_STEPS=$LIMITED_STEPS")
  "$build/bin/runahead-cc" --runahead-off "${flags[@]}" "$build/runahead_static.o" \
    "$build/librunahead_ooc.a" -lm -o "$work/plain"
  "$build/bin/runahead-cc" --runahead-static "${flags[@]}" -lm -o "$work/ours"
  bytes="$(size "$work/plain" | awk 'NR == 2 { print $2 + $3 }')"
  limit=$((bytes / share))
  for variant in plain ours; do
    echo "$limit" > "$group/$limit_file"
    (
      echo "$BASHPID" > "$group/cgroup.procs"
      [ "$variant" = ours ] || export RUNAHEAD_OOC=0
      RUNAHEAD_OOC_DIR="$directory" RUNAHEAD_OOC_STATS=1 exec timeout "${LIMITED_TIMEOUT:-120}" \
        "$work/$variant" > "$work/$variant.out" 2> "$work/$variant.err"
    ) &
    running=$!
    wait "$running" || true
    running=""
    awk '/seconds/ { print $3; found = 1 } END { if (!found) print "none" }' "$work/$variant.err" > "$work/$variant.time"
    sed -n 's/.*faults that read the disk \([0-9]*\).*/\1/p' "$work/$variant.err" > "$work/$variant.faults"
  done
  result="verified, bit-equal"
  [ -z "${LIMITED_STEPS:-}" ] || result="bit-equal"
  cmp -s "$work/plain.out" "$work/ours.out" || result="DIFFERENT"
  grep -q "successful\|steps only" "$work/ours.out" || result="not finished or not verified"
  p="$(cat "$work/plain.time")" o="$(cat "$work/ours.time")"
  printf '%-4s %6dMB %9s %9s %6.2fx %12s %12s  %s\n' "$name" $((limit >> 20)) "$p" "$o" \
    "$(awk -v p="$p" -v o="$o" 'BEGIN { print (o + 0 ? p / o : 0) }')" \
    "$(cat "$work/plain.faults")" "$(cat "$work/ours.faults")" "$result"
  [ -z "${LIMITED_VERBOSE:-}" ] || grep runahead: "$work/ours.err" || true
done
