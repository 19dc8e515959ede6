#!/bin/bash
# common.sh SUITE FUNCTION [ARGUMENTS]: calls a function of a suite, with what all suites share.
#   build         makes what the cases need, below $BUILT or in the source's own folder; run once
#   cases         prints the names of all cases, one a line
#   run CASE      runs one, in an empty folder; this alone goes under Runahead
#   verdicts FILE prints VERDICT<tab>NAME lines for what a case printed; the exit status is a verdict anyway
#   cold          prints the files that leave the page cache before a cold run
# $CONFORMANCE is target/conformance.
set -u
suite=$1 function=$2
shift 2
SOURCES=$CONFORMANCE/source
BUILT=$CONFORMANCE/built/$suite
FOLDER=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SUITES=${CONFORMANCE_SUITES:-$FOLDER/suites}
export LC_ALL=C.UTF-8

build() { :; }
verdicts() { :; }
cold() { program_files; }

# The files of the suite's programs, and the libraries that they need.
program_files() {
  local program
  for program in bash ${PROGRAMS:-}; do
    program=$(command -v "$program") || continue
    readlink -f "$program"
    ldd "$program" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | xargs -r readlink -f
  done | sort -u
}

files_below() { find "$@" -type f ! -name '*.o' ! -name '*.a' ! -path '*/.git/*' 2>/dev/null; }

# Autotools' sources carry what is made, older than what it is made from once they are unpacked.
MAKE_AS_SHIPPED="make -s ACLOCAL=: AUTOMAKE=: AUTOCONF=: AUTOHEADER=: MAKEINFO=: HELP2MAN=:"

configure_and_make() {
  cd "$SOURCES/$1" || return
  [ -f config.status ] || FORCE_UNSAFE_CONFIGURE=1 ./configure -q --disable-nls --disable-dependency-tracking || return
  $MAKE_AS_SHIPPED -k -j"$(nproc)"
}

# automake_tests FOLDER: leaves there what its Makefile runs each test with, and the list of them.
automake_tests() {
  cd "$1" || return
  cat > .conformance.mk <<'END'
.PHONY: .conformance
.conformance:
	$(file >.environment,$(AM_TESTS_ENVIRONMENT) $(TESTS_ENVIRONMENT))
	$(file >.compiler,$(if $(SH_LOG_COMPILER),$(SH_LOG_COMPILER),$(LOG_COMPILER)))
	$(file >.compiler.pl,$(PL_LOG_COMPILER))
	$(file >.tests,$(TESTS))
	@:
END
  $MAKE_AS_SHIPPED -f Makefile -f .conformance.mk .conformance >/dev/null
}

automake_cases() { tr ' ' '\n' < "$1/.tests" | sed '/^$/d'; }

# automake_run TREE SUBFOLDER TEST: the test in a folder of links to what the build left, so that each run
# finds it as new and leaves nothing in it.
automake_run() {
  local tree=$1 sub=$2 tst=$3 f kind
  ln -s "$tree"/* .
  if [ "$sub" != . ]; then
    rm "$sub" && mkdir "$sub" && ln -s "$tree/$sub"/* "$sub/" && cd "$sub" || return 99
  fi
  f=$(basename "$tst")
  kind=.compiler
  case "$tst" in *.pl) kind=.compiler.pl ;; esac
  export tst f
  exec "$BASH" -c "$(cat "$tree/$sub/.environment") $(cat "$tree/$sub/$kind") ./$tst"
}

# go_build PACKAGE...: the tests of each, linked by the C compiler, so that the loader brings the agent in.
go_build() {
  local package
  export CGO_ENABLED=1 GOCACHE=$CONFORMANCE/go-cache GOPATH=$CONFORMANCE/go GOTOOLCHAIN=local
  for package in "$@"; do
    go test -c -buildmode=pie -ldflags=-linkmode=external -o "$BUILT/${package//\//_}" "$package" || echo "not $package"
  done
  [ -n "$(go_cases "$@")" ]
}

go_cases() {
  local package
  for package in "$@"; do [ ! -x "$BUILT/${package//\//_}" ] || echo "$package"; done
}

# A package's tests find their data in its folder.
go_run() {
  export GOCACHE=$TMPDIR/go-cache
  cd "$(go env GOROOT)/src/$1" && exec "$BUILT/${1//\//_}" -test.v -test.short
}

go_verdicts() { sed -n 's/^ *--- \(PASS\|FAIL\|SKIP\): \([^ ]*\) (.*)$/\1\t\2/p' "$1"; }

# What the Test Anything Protocol says.
tap_verdicts() {
  awk '/^(not )?ok / {
    verdict = /^not/ ? "failed" : "ok"
    sub(/^(not )?ok /, "")
    if (/# *[Ss][Kk][Ii][Pp]/) verdict = "skipped"
    else if (/# *[Tt][Oo][Dd][Oo]/) verdict = verdict " (todo)"
    print verdict "\t" $1
  }' "$1"
}

case "$function" in
  build-if-new)
    . "$SUITES/$suite.sh"
    stamp=$CONFORMANCE/built/$suite.stamp
    wanted=$(declare -f build configure_and_make automake_tests | cksum)
    [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || exit 0
    mkdir -p "$BUILT"
    build || exit 1
    echo "$wanted" > "$stamp"
    ;;
  build | cases | run | verdicts | cold)
    . "$SUITES/$suite.sh"
    "$function" "$@"
    ;;
  *) exit 2 ;;
esac
