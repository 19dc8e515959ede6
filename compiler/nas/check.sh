#!/usr/bin/env bash
# nas/check.sh BUILD [CLASS...]: every NAS code, plainly and with the pass, in memory and
# out of core: all verify, and agree to the last bit. Unless told, class S of all, and W of
# those that take less than a second there (BT, LU and SP take 1 to 4, six times over).
set -euo pipefail
here="$(dirname "$(readlink -f "$0")")"
build="${1:?usage: check.sh BUILD [CLASS...]}"
shift
quick=""
[ $# -gt 0 ] || { set -- S W; quick=1; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
for class in "$@"; do
  for source in "$here"/*.c; do
    name="$(basename "$source" .c)"
    if [ -n "$quick" ] && [ "$class" = W ]; then
      case "$name" in bt | lu | sp) continue ;; esac
    fi
    flags=(-O2 -mcmodel=medium "-DCLASS=NAS_$class" "$source")
    "$build/bin/runahead-cc" --runahead-off "${flags[@]}" -lm -o "$work/plain"
    "$build/bin/runahead-cc" --runahead-static "${flags[@]}" -lm -o "$work/ours"
    "$work/plain" > "$work/1" 2>/dev/null || true
    RUNAHEAD_OOC=0 "$work/ours" > "$work/2" 2>/dev/null || true
    RUNAHEAD_OOC_DIR="$work" RUNAHEAD_OOC_MEMORY=2000000 "$work/ours" > "$work/3" 2>/dev/null || true
    if grep -q successful "$work/1" && cmp -s "$work/1" "$work/2" && cmp -s "$work/1" "$work/3"; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      printf '%s class %s: not verified, or results differ\n' "$name" "$class"
    fi
  done
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
