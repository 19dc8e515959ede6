#!/usr/bin/env bash
# nas/sweep.sh BUILD DIRECTORY [LIMIT-MB [PLOT.svg]]: BUK (is.c) with more and more keys, from
# a quarter of the memory limit to four times as much, its static arrays on a file in
# DIRECTORY, without and with the pass: does anything jump where memory ends? Prints
# "megabytes plain ours" (seconds of the timed part, the median of SWEEP_RUNS alternating
# runs, five unless told; result compared), and draws them; a JSON line each goes to SWEEP_RESULTS.
# Needs root, for the memory cgroup.
set -euo pipefail
here="$(dirname "$(readlink -f "$0")")"
[ $# -ge 2 ] || { sed -n '2,7s/^# //p' "$0" >&2; exit 2; }
build="$1" directory="$2" limit="${3:-64}" plot="${4:-}" runs="${SWEEP_RUNS:-5}"
work="$(mktemp -d)"
if [ -d /sys/fs/cgroup/memory ]; then
  group="/sys/fs/cgroup/memory/runahead-sweep-$$" limit_file=memory.limit_in_bytes
else
  group="/sys/fs/cgroup/runahead-sweep-$$" limit_file=memory.max
fi
mkdir "$group"
# A swap that somebody has set up is not what is measured.
for file in memory.swappiness memory.swap.max; do
  [ ! -e "$group/$file" ] || echo 0 > "$group/$file"
done
# A run in the group may outlive a signal to this script by a moment.
tidy() {
  trap - EXIT
  local tries pid
  for ((tries = 0; tries < 100; tries++)); do
    while read -r pid; do kill -KILL "$pid" 2>/dev/null || true; done < "$group/cgroup.procs"
    rm -rf "$work"
    rmdir "$group" 2>/dev/null && return
    sleep 0.1
  done
}
trap tidy EXIT
trap 'tidy; exit 130' INT TERM HUP
echo $((limit << 20)) > "$group/$limit_file"
list() { sed 's/^-/null/' "$work/$1.times" | paste -sd ,; }
# The keys are made in the group, and many of them are still to be written when the timed part begins: the program
# stops itself there (kernels/stall.h), and goes on when they are. All of it together has SWEEP_TIMEOUT seconds.
one_run() {
  local variant="$1" pid armed=1 state=R end=$((SECONDS + ${SWEEP_TIMEOUT:-120}))
  [ "$variant" = ours ] || armed=0
  (
    echo "$BASHPID" > "$group/cgroup.procs"
    RUNAHEAD_OOC="$armed" RUNAHEAD_OOC_DIR="$directory" STALL_PAUSE=1 exec "$work/$variant" \
      > "$work/$variant.out" 2> "$work/$variant.err"
  ) &
  pid=$!
  until [ "$state" = T ] || [ "$state" = Z ] || ((SECONDS >= end)); do
    sleep 0.05
    state="$(awk '/^State:/ { print $2 }' "/proc/$pid/status")" || state=Z
  done
  sync -f "$directory"
  kill -CONT "$pid" 2>/dev/null || true
  { ((SECONDS < end)) && timeout $((end - SECONDS)) tail -s 0.1 --pid="$pid" -f /dev/null; } ||
    kill -KILL "$pid" 2>/dev/null || true
  wait "$pid" || true
}
for quarters in ${SWEEP_QUARTERS:-1 2 3 4 5 6 8 12 16}; do
  # The timed part goes over the keys: four bytes each.
  megabytes=$((limit * quarters / 4))
  flags=(-O2 -mcmodel=medium -DCLASS=NAS_B "-DSWEEP_KEYS=(${megabytes}L << 18)" "$here/is.c" -lm)
  "$build/bin/runahead-cc" --runahead-off "${flags[@]}" "$build/runahead_static.o" \
    "$build/librunahead_ooc.a" -o "$work/plain"
  "$build/bin/runahead-cc" --runahead-static "${flags[@]}" -o "$work/ours"
  : > "$work/plain.times"; : > "$work/ours.times"
  for ((run = 0; run < runs; run++)); do
    for variant in plain ours; do
      one_run "$variant" || true
      awk '/seconds/ { print $3; found = 1 } END { if (!found) print "-" }' "$work/$variant.err" \
        >> "$work/$variant.times"
    done
  done
  times=()
  for variant in plain ours; do
    times+=("$(sort -g "$work/$variant.times" | sed -n "$(((runs + 1) / 2))p")")
  done
  result=same
  grep -q successful "$work/plain.out" && cmp -s "$work/plain.out" "$work/ours.out" || result=DIFFERENT
  printf '%s %s %s %s\n' "$megabytes" "${times[@]}" "$result" | tee -a "$work/table"
  [ -z "${SWEEP_RESULTS:-}" ] || printf '%s\n' "{\"code\": \"buk\", \"keys_mb\": $megabytes, \"limit_mb\": $limit, \
\"runs\": $runs, \"plain\": ${times[0]/#-/null}, \"ours\": ${times[1]/#-/null}, \
\"plain_runs\": [$(list plain)], \"ours_runs\": [$(list ours)], \"result\": \"$result\"}" >> "$SWEEP_RESULTS"
done
[ -z "$plot" ] || python3 "$here/plot.py" "$limit" < "$work/table" > "$plot"
