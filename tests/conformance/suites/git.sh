# about: git's own tests, with the git that is installed
# source: git
# command: git git
# command: cc gcc
# command: make make
# package: zlib1g-dev
# user: nobody
# limit: 240
# programs: git perl
TREE=$SOURCES/git

build() {
  cd "$TREE" || return
  make -s -j"$(nproc)" NO_GETTEXT=1 NO_TCLTK=1 NO_CURL=1 NO_EXPAT=1 all || return
  rm -rf "$BUILT/bin" && mkdir -p "$BUILT/bin"
  ln -s /usr/bin/git* "$BUILT/bin/"
}

cases() { (cd "$TREE/t" && ls t[0-9]*.sh); }

run() {
  ln -s "$TREE"/{GIT-BUILD-OPTIONS,git,git-sh-setup,templates,contrib,bin-wrappers,mergetools,perl,Documentation} .
  mkdir t && cd t && find "$TREE/t" -maxdepth 1 ! -name 't[0-9]*.sh' ! -name 't' ! -name 'test-results' ! -name 'trash*' \
    -exec ln -s -t . {} + && ln -s "$TREE/t/$1" . || exit 99
  export GIT_TEST_INSTALLED=$BUILT/bin GIT_TEST_CMP='diff -u'
  exec "$BASH" "./$1" --root="$TMPDIR"
}

verdicts() { tap_verdicts "$1"; }

cold() { program_files; files_below "$TREE/t/helper" /usr/lib/git-core; find "$TREE/t" -maxdepth 1 -name '*.sh'; }
