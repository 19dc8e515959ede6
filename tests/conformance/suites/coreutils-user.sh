# about: the same as an ordinary user
# source: coreutils
# command: cc gcc
# command: make make
# command: perl perl
# user: nobody
# limit: 60
TREE=$SOURCES/coreutils

build() {
  (configure_and_make coreutils)
  [ -x "$TREE/src/ls" ] && automake_tests "$TREE/."
}

cases() { automake_cases "$TREE/."; }

run() { automake_run "$TREE" . "$1"; }

cold() { program_files; files_below "$TREE/src" "$TREE/tests"; }
