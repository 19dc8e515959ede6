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
  make -s -j"$(nproc)" && [ -x busybox ] || return
  rm -rf "$BUILT/links" && mkdir "$BUILT/links" || return
  local applet
  for applet in $(./busybox --list); do ln -s "$TREE/busybox" "$BUILT/links/$applet"; done
  sed -e 's/^rm -rf "$LINKSDIR".*//' -e 's/^\tln -s .*/\t:/' testsuite/runtest > "$BUILT/runtest"
}

cases() { (cd "$TREE/testsuite" && { ls -d */ | tr -d / ; ls *.tests | sed 's/\.tests$//'; } | sort -u); }

# Its script makes a link for each applet each time; those of the build will do.
run() {
  ln -s "$TREE"/{busybox,.config,scripts} . && ln -s "$BUILT/links" runtest-tempdir-links || exit 99
  export tsdir=$TREE/testsuite
  mkdir testsuite && cd testsuite || exit 99
  ln -s "$tsdir"/{testing.sh,"$1"*} . && find "$tsdir" -maxdepth 1 -type f ! -name '*.tests' ! -name 'bc_*' ! -name '*_results.txt' \
    -exec ln -s -t . {} + 2>/dev/null
  exec "$BASH" "$BUILT/runtest" -v "$1"
}

verdicts() { sed -n 's/^\(PASS\|FAIL\|SKIPPED\|UNTESTED\): \(.*\)/\1\t\2/p' "$1"; }

cold() { program_files; files_below "$TREE/busybox" "$TREE/testsuite"; }
