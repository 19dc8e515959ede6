# about: libevent's own tests: loops, signals, buffers, files sent, servers of HTTP and DNS
# source: libevent
# command: cc gcc
# command: autoreconf autoconf
# package: libtool
# package: automake
# package: libssl-dev
# user: nobody
# limit: 240
TREE=$SOURCES/libevent
REGRESS=$TREE/test/.libs/regress

build() { (cd "$TREE" && autoreconf -fi && ./configure -q && make -s -j"$(nproc)" && make -s check TESTS=); [ -x "$REGRESS" ]; }

# One for each of the ways to wait that it is built with, and each group of tests.
cases() {
  export LD_LIBRARY_PATH=$TREE/.libs
  local group
  for group in $("$REGRESS" --list-tests | sed -n 's|^ *\([a-z0-9_]*\)/.*|\1|p' | sort -u); do
    printf '%s\n' "epoll:$group" "poll:$group" "select:$group"
  done
}

# Ports are the same in all of them: one at a time.
run() {
  export LD_LIBRARY_PATH=$TREE/.libs method
  for method in EPOLL POLL SELECT; do
    [ "${1%%:*}" = "${method,,}" ] || export EVENT_NO$method=yes
  done
  exec flock -o "$TREE/test" "$REGRESS" "${1#*:}/.."
}

verdicts() {
  sed -n 's/^ *\([a-z0-9_]*\/[a-z0-9_]*\): .*\(OK\|FAILED\|SKIPPED\).*$/\2\t\1/p; s/^ *\[\([a-z0-9_]*\) FAILED\]$/FAILED\t\1/p' "$1"
}

cold() { program_files; echo "$REGRESS"; readlink -f "$TREE"/.libs/*.so; }
