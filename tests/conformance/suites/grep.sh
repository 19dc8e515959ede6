# about: GNU grep's own tests
# source: grep
# command: cc gcc
# command: make make
# command: perl perl
# user: root
# limit: 60
TREE=$SOURCES/grep

build() {
  (configure_and_make grep)
  [ -x "$TREE/src/grep" ] && automake_tests "$TREE/tests"
}

cases() { automake_cases "$TREE/tests"; }

run() { automake_run "$TREE" tests "$1"; }

cold() { program_files; files_below "$TREE/src" "$TREE/tests"; }
