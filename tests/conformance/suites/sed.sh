# about: GNU sed's own tests
# source: sed
# command: cc gcc
# command: make make
# command: perl perl
# user: root
# limit: 60
TREE=$SOURCES/sed

build() {
  (configure_and_make sed)
  [ -x "$TREE/sed/sed" ] && automake_tests "$TREE/."
}

cases() { automake_cases "$TREE/."; }

run() { automake_run "$TREE" . "$1"; }

cold() { program_files; files_below "$TREE/sed" "$TREE/testsuite"; }
