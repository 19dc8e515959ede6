# about: libuv's own tests: loops, threads, signals, processes, files, sockets
# source: libuv1
# command: cc gcc
# command: cmake cmake
# command: ninja ninja-build
# command: setpriv util-linux
# user: nobody
# limit: 60
# left out: tcp_connect6_link_local: as the machine's network has it
TREE=$SOURCES/libuv1
TESTS=$TREE/built/uv_run_tests

build() {
  cmake -G Ninja -S "$TREE" -B "$TREE/built" -DLIBUV_BUILD_TESTS=ON && ninja -C "$TREE/built" uv_run_tests
}

# They refuse root, even to be listed.
cases() {
  local as_nobody=()
  [ "$(id -u)" != 0 ] || as_nobody=(setpriv --reuid 65534 --clear-groups)
  "${as_nobody[@]}" "$TESTS" --list | awk '{ print $1 }' | sort -u
}

# Ports and names of sockets are the same in all of them: one at a time.
run() {
  mkdir test && cp -a "$TREE/test/fixtures" test/ && cp -a "$TREE"/test/fixtures/* "$TREE/LICENSE" "$TREE/README.md" . &&
    exec flock -o "$TREE/built" "$TESTS" "$1"
}

verdicts() { tap_verdicts "$1"; }

cold() { program_files; echo "$TESTS"; readlink -f "$TREE/built/libuv.so"; }
