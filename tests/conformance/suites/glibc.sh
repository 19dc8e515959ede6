# about: glibc's own tests of threads, processes, signals, files and timers, against the C library that is installed
# source: glibc
# command: cc gcc
# user: nobody
# limit: 60
# left out: nptl.tst-cancelx7: it looks whether a process that it has just had ended is gone yet
# left out: malloc.tst-mallocfork2: longer than that alone
# left out: malloc.tst-mallocfork3: longer than that alone
TREE=$SOURCES/glibc
FOLDERS="nptl posix io rt dirent misc signal setjmp malloc debug dlfcn termios sysdeps/pthread sysdeps/unix/sysv/linux"

# Their support library is built for the tests alone; what needs more of the library's inside is no case.
build() {
  rm -rf "$BUILT" && mkdir -p "$BUILT"/{shim,support,tests} || return
  local header folder
  for header in include/{array_length,libc-diag,intprops,libc-pointer-arith}.h sysdeps/x86_64/stackinfo.h test-skeleton.c support; do
    ln -s "$TREE/$header" "$BUILT/shim/"
  done
  printf '#define %s\n' attribute_hidden 'IS_IN(x) 0' 'TIMEOUTFACTOR 1' \
    {SRCDIR,OBJDIR,OBJDIR_ELF_LDSO,SLIBDIR,INSTDIR,LIBDIR,BINDIR,SBINDIR,ROOTSBINDIR,SYSCONFDIR,ROOTLIBDIR,COMPLOCALEDIR}'_PATH ""' > "$BUILT/shim/config.h"
  FLAGS="-O1 -w -std=gnu11 -D_GNU_SOURCE -include $BUILT/shim/config.h -include limits.h -I$BUILT/shim -I$TREE/support"
  export BUILT TREE FLAGS
  compile() { cc $FLAGS -c "$1" -o "$BUILT/support/${1%.c}.o" 2>/dev/null || rm -f "$BUILT/support/${1%.c}.o"; }
  link() {
    cc $FLAGS -I. "$1" -o "$BUILT/tests/${PWD##*/}.${1%.c}" "$BUILT/libsupport.a" -lrt -ldl -lm -lcrypt -pthread 2>/dev/null ||
      rm -f "$BUILT/tests/${PWD##*/}.${1%.c}"
  }
  export -f compile link
  (cd "$TREE/support" && ls *.c | grep -v '^tst-' | xargs -P "$(nproc)" -I{} bash -c 'compile {}')
  ar rcs "$BUILT/libsupport.a" "$BUILT"/support/*.o
  for folder in $FOLDERS; do
    (cd "$TREE/$folder" && ls | grep -E '^(tst|test|bug)-.*\.c$' | xargs -P "$(nproc)" -I{} bash -c 'link {}')
  done
  [ -n "$(ls "$BUILT/tests")" ]
}

cases() { ls "$BUILT/tests"; }

run() { exec "$BUILT/tests/$1"; }

cold() { program_files; files_below "$BUILT/tests"; }
