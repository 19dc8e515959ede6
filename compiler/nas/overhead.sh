#!/usr/bin/env bash
# nas/overhead.sh BUILD [CLASS [RUNS]]: what the pass costs where it can do no good: processor
# time in core (others' work shows less in it than in the time), compile time and code size, for
# each NAS code, medians of alternating runs; a JSON line each goes to OVERHEAD_RESULTS. Loops are aligned
# to cache lines in both: where a hot loop happens to fall is worth 5% either way (CG's
# inner loop, the same instructions at another address), and is not the pass's doing.
set -euo pipefail
here="$(dirname "$(readlink -f "$0")")"
build="${1:?usage: overhead.sh BUILD [CLASS [RUNS]]}" class="${2:-W}" runs="${3:-7}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
median() { sort -g | sed -n "$((($1 + 1) / 2))p"; }
processor() { { TIMEFORMAT='%U %S'; time "$@" >/dev/null 2>&1; } 2>&1 | awk '{ print $1 + $2 }'; }

printf '%-4s %9s %9s %7s  %9s %7s  %8s %8s %6s\n' code plain ours ratio "compile s" ratio text ours ratio
for source in "$here"/*.c; do
  name="$(basename "$source" .c)"
  flags=(-O2 -mcmodel=medium -falign-loops=64 "-DCLASS=NAS_$class" "$source")
  for variant in plain ours; do
    off=(); [ $variant = plain ] && off=(--runahead-off)
    "$build/bin/runahead-cc" ${off[@]+"${off[@]}"} "${flags[@]}" -c -o "$work/$variant.o"
    # Both on the run-time library, so that the two differ by the pass alone.
    "$build/bin/runahead-cc" --runahead-off "$work/$variant.o" "$build/librunahead_ooc.a" -lm -o "$work/$variant"
    size "$work/$variant.o" | awk 'NR == 2 { print $1 }' > "$work/$variant.size"
  done
  for file in plain.times ours.times plain.compiles ours.compiles; do : > "$work/$file"; done
  # One takes a twentieth of a second, and its kernel part is as good as its own: three times as many runs,
  # and both parts. (User time alone, of five compiles: IS 1.37 times as long; of fifteen 1.09, both parts 1.13.)
  for ((i = 0; i < 3 * runs; i++)); do
    processor "$build/bin/runahead-cc" --runahead-off "${flags[@]}" -c -o "$work/unused.o" >> "$work/plain.compiles"
    processor "$build/bin/runahead-cc" "${flags[@]}" -c -o "$work/unused.o" >> "$work/ours.compiles"
  done
  for variant in plain ours; do median $((3 * runs)) < "$work/$variant.compiles" > "$work/$variant.compile"; done
  for ((i = 0; i < runs; i++)); do
    for variant in plain ours; do
      processor "$work/$variant" >> "$work/$variant.times"
    done
  done
  for variant in plain ours; do median "$runs" < "$work/$variant.times" > "$work/$variant.median"; done
  read -r p < "$work/plain.median"; read -r o < "$work/ours.median"
  read -r pc < "$work/plain.compile"; read -r oc < "$work/ours.compile"
  read -r ps < "$work/plain.size"; read -r os < "$work/ours.size"
  awk -v n="$name" -v p="$p" -v o="$o" -v pc="$pc" -v oc="$oc" -v ps="$ps" -v os="$os" 'BEGIN {
    printf "%-4s %9.3f %9.3f %7.3f  %9.3f %7.2f  %8d %8d %6.2f\n", n, p, o, p ? o / p : 0, oc, oc / pc, ps, os, os / ps }'
  [ -z "${OVERHEAD_RESULTS:-}" ] || printf '%s\n' "{\"code\": \"$name\", \"class\": \"$class\", \"runs\": $runs, \
\"in_core\": {\"plain\": $p, \"ours\": $o}, \"compile\": {\"plain\": $pc, \"ours\": $oc}, \
\"text\": {\"plain\": $ps, \"ours\": $os}}" >> "$OVERHEAD_RESULTS"
done
