# about: GNU findutils' own tests
# source: findutils
# command: cc gcc
# command: make make
# command: perl perl
# user: nobody
# limit: 60
TREE=$SOURCES/findutils

build() {
  (configure_and_make findutils)
  [ -x "$TREE/find/find" ] && automake_tests "$TREE/."
}

cases() { automake_cases "$TREE/."; }

run() { automake_run "$TREE" . "$1"; }

cold() { program_files; files_below "$TREE/find" "$TREE/tests"; }
