# about: liburing's own tests: io_uring's rings, files, sockets, timeouts, cancellation
# source: liburing
# command: cc gcc
# command: make make
# user: root
# limit: 60
# left out: io_uring_register.t: longer than that alone
# left out: multicqes_drain.t: longer than that alone
TREE=$SOURCES/liburing

build() {
  cd "$TREE" && ./configure >/dev/null && make -s -C src && make -s -k -C test -j"$(nproc)"
  [ -x "$TREE/test/nop.t" ]
}

cases() { (cd "$TREE/test" && ls *.t); }

# Ports are the same in many of them: one at a time.
run() { exec flock -o "$TREE/test" "$TREE/test/$1"; }

cold() { program_files; files_below "$TREE/test" "$TREE/src"; }
