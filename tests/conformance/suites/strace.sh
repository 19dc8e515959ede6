# about: the programs of strace's own tests, without strace: each makes a system call in all of its odd forms
# source: strace
# command: cc gcc
# command: make make
# command: file file
# user: nobody
# limit: 20
# left out: clone_parent: its child outlives it
# left out: print-ppid-tracerpid: it wants a parent's number
TREE=$SOURCES/strace

# strace itself may not agree with newer headers of the kernel; its programs are wanted.
build() {
  (cd "$TREE" && { [ -f config.status ] || ./configure -q --enable-mpers=no --disable-gcc-Werror; } &&
    $MAKE_AS_SHIPPED -k -j"$(nproc)" -C src; $MAKE_AS_SHIPPED -k -j"$(nproc)" -C tests check TESTS=)
  [ -x "$TREE/tests/chdir" ]
}

cases() { (cd "$TREE/tests" && file -N * | sed -n 's/^\([^ ]*\): ELF .* executable.*/\1/p'); }

run() { exec "$TREE/tests/$1"; }

# What it printed, without numbers and bytes by chance: addresses, processes, times.
verdicts() {
  sed 's/\\x[0-9a-f][0-9a-f]/B/g; s/0x[0-9a-f]*/N/g; s/[0-9][0-9]*/N/g; s/  */ /g' "$1" | cksum | sed 's/$/\tprinted/'
}

cold() { program_files; find "$TREE/tests" -maxdepth 1 -type f -executable; }
