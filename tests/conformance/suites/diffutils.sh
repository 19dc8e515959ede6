# about: GNU diffutils' own tests
# source: diffutils
# command: cc gcc
# command: make make
# command: perl perl
# user: nobody
# limit: 60
TREE=$SOURCES/diffutils

build() {
  (configure_and_make diffutils)
  [ -x "$TREE/src/diff" ] && automake_tests "$TREE/tests"
}

cases() { automake_cases "$TREE/tests"; }

run() { automake_run "$TREE" tests "$1"; }

cold() { program_files; files_below "$TREE/src" "$TREE/tests"; }
