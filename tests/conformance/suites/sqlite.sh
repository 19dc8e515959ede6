# about: SQLite's own tests
# source: sqlite3
# command: cc gcc
# command: make make
# package: tcl8.6-dev
# user: nobody
# limit: 240
TREE=$SOURCES/sqlite3

build() {
  cd "$TREE" || return
  [ -f Makefile ] || ./configure -q --with-tcl=/usr/lib/tcl8.6 || return
  make -s -j"$(nproc)" testfixture
}

cases() {
  (cd "$TREE/test" && ls *.test | grep -v -x -e all.test -e veryquick.test -e full.test -e quick.test \
    -e extraquick.test -e permutations.test -e releasetest.test -e async.test -e memleak.test)
}

run() { exec "$TREE/testfixture" "$TREE/test/$1" --verbose=1; }

verdicts() {
  sed -n -e 's/^\([^ ]*\)\.\.\. Ok$/ok\t\1/p' -e 's/^! \([^ ]*\) expected: .*/failed\t\1/p' \
    -e 's/^\([^ ]*\)\.\.\. \(Omitted\|Skipped\).*/skipped\t\1/p' "$1"
}

cold() { program_files; files_below "$TREE/testfixture" "$TREE/.libs" "$TREE/test"; }
