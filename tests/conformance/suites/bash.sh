# about: bash's own tests, with the shell that is installed
# source: bash
# command: cc gcc
# user: nobody
# limit: 120
# quick: 12
TREE=$SOURCES/bash

build() {
  local program
  : > "$BUILT/config.h"
  for program in recho zecho printenv xcase; do
    gcc -w -O1 -DHAVE_UNISTD_H -DHAVE_STRING_H -DHAVE_STDLIB_H -DPROTOTYPES \
      -I"$BUILT" -I"$TREE/include" -I"$TREE" -o "$BUILT/$program" "$TREE/support/$program.c" || return
  done
}

cases() { (cd "$TREE/tests" && ls run-* | grep -v -x -e run-all -e run-minimal); }

run() {
  export THIS_SH=/bin/bash BUILD_DIR=$TREE BASH_TSTOUT=$TMPDIR/output PATH=$BUILT:$PATH
  cd "$TREE/tests" && exec /bin/sh "./$1"
}

cold() { program_files; files_below "$TREE/tests"; }
