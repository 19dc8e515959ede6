# about: busybox' own tests, of a dynamically linked build
# source: busybox
# command: cc gcc
# command: make make
# command: bzip2 bzip2
# user: nobody
# limit: 120
TREE=$SOURCES/busybox

build() {
  cd "$TREE" || return
  [ -f .config ] || make defconfig >/dev/null || return
  make -s -j"$(nproc)" && [ -x busybox ]
}

cases() { (cd "$TREE/testsuite" && { ls -d */ | tr -d / ; ls *.tests | sed 's/\.tests$//'; } | sort -u); }

# It makes its links and folders beside itself.
run() {
  mkdir tree && cd tree && ln -s "$TREE"/{busybox,.config,scripts} . || exit 99
  cp -r "$TREE/testsuite" testsuite && cd testsuite && exec ./runtest -v "$1"
}

verdicts() { sed -n 's/^\(PASS\|FAIL\|SKIPPED\|UNTESTED\): \(.*\)/\1\t\2/p' "$1"; }

cold() { program_files; files_below "$TREE/busybox" "$TREE/testsuite"; }
