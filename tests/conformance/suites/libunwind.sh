# about: libunwind's own tests: backtraces through signal handlers, frames resumed, traced processes
# source: libunwind
# command: cc gcc
# command: g++ g++
# command: make make
# user: nobody
# limit: 60
TREE=$SOURCES/libunwind

build() {
  (configure_and_make libunwind)
  (cd "$TREE/tests" && $MAKE_AS_SHIPPED -k -j"$(nproc)" check TESTS=)
  automake_tests "$TREE/tests"
  [ -s "$TREE/tests/.tests" ]
}

cases() { automake_cases "$TREE/tests"; }

run() { automake_run "$TREE" tests "$1"; }

cold() { program_files; files_below "$TREE/tests" "$TREE/src/.libs"; }
