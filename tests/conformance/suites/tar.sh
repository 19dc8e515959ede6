# about: GNU tar's own tests
# source: tar
# command: cc gcc
# command: make make
# user: nobody
# limit: 120
TREE=$SOURCES/tar

build() {
  (configure_and_make tar)
  [ -x "$TREE/src/tar" ]
  (cd "$TREE/tests" && $MAKE_AS_SHIPPED genfile ckmtime checkseekhole)
  [ -x "$TREE/tests/genfile" ]
}

cases() { "$TREE/tests/testsuite" --list | sed -n 's/^ *\([0-9]*\): .*/\1/p'; }

run() {
  ln -s "$TREE"/{src,config.h,scripts,config.status} . && mkdir tests && cd tests || exit 99
  ln -s "$TREE"/tests/{testsuite,atconfig,atlocal,package.m4,genfile,ckmtime,checkseekhole} .
  "$BASH" ./testsuite "$1"
}

# A line such as ` 12: extracting sparse files   ok`.
verdicts() {
  sed -n 's/^ *\([0-9][0-9]*\): .* \(ok\|FAILED\|skipped\|expected failure\|UNEXPECTED PASS\) *\((.*)\)\{0,1\}$/\2\t\1/p' "$1"
}

cold() { program_files; files_below "$TREE/src/tar" "$TREE/tests"; }
