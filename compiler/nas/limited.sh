#!/usr/bin/env bash
# nas/limited.sh BUILD CLASS SHARE DIRECTORY [CODE...]: the NAS codes with their static
# arrays on a file in DIRECTORY, under a memory limit of 1/SHARE of their footprint:
# without and with the pass. Needs root, for the memory cgroup.
set -euo pipefail
here="$(dirname "$(readlink -f "$0")")"
[ $# -ge 4 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
build="$1" class="$2" share="$3" directory="$4"
shift 4
[ $# -gt 0 ] || set -- is cg mg ft
if [ -d /sys/fs/cgroup/memory ]; then
  group="/sys/fs/cgroup/memory/runahead-nas-$$" limit_file=memory.limit_in_bytes
else
  group="/sys/fs/cgroup/runahead-nas-$$" limit_file=memory.max
fi
work="$(mktemp -d)"
mkdir "$group"
trap 'rm -rf "$work"; rmdir "$group" 2>/dev/null || { sleep 1; rmdir "$group"; }' EXIT
printf '%-4s %8s %9s %9s %7s %12s %12s  %s\n' code limit plain ours gain faults 'faults ours' result
for name in "$@"; do
  flags=(-O2 -mcmodel=medium "-DCLASS=NAS_$class" "$here/$name.c")
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
    ) || true
    awk '/seconds/ { print $3; found = 1 } END { if (!found) print "none" }' "$work/$variant.err" > "$work/$variant.time"
    sed -n 's/.*faults that read the disk \([0-9]*\).*/\1/p' "$work/$variant.err" > "$work/$variant.faults"
  done
  result="verified, bit-equal"
  cmp -s "$work/plain.out" "$work/ours.out" || result="DIFFERENT"
  grep -q successful "$work/ours.out" || result="not finished or not verified"
  p="$(cat "$work/plain.time")" o="$(cat "$work/ours.time")"
  printf '%-4s %6dMB %9s %9s %6.2fx %12s %12s  %s\n' "$name" $((limit >> 20)) "$p" "$o" \
    "$(awk -v p="$p" -v o="$o" 'BEGIN { print (o + 0 ? p / o : 0) }')" \
    "$(cat "$work/plain.faults")" "$(cat "$work/ours.faults")" "$result"
  [ -z "${LIMITED_VERBOSE:-}" ] || grep runahead: "$work/ours.err" || true
done
