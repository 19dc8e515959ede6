# about: Tcl's own tests, with the interpreter that is installed
# source: tcl8.6
# command: tclsh8.6 tcl8.6
# user: nobody
# limit: 120
# programs: tclsh8.6
# quick: io.test ioCmd.test chan.test fCmd.test fileName.test exec.test zlib.test encoding.test
TREE=$SOURCES/tcl8.6

cases() { (cd "$TREE/tests" && ls *.test); }

run() { exec tclsh8.6 "$TREE/tests/all.tcl" -file "$1" -singleproc 1 -verbose 'pass skip' -tmpdir "$TMPDIR"; }

verdicts() {
  sed -n -e 's/^++++ \(.*\) PASSED$/ok\t\1/p' -e 's/^==== \([^ ]*\) .* FAILED$/failed\t\1/p' \
    -e 's/^++++ \([^ ]*\) SKIPPED: .*/skipped\t\1/p' "$1"
}

cold() { program_files; files_below "$TREE/tests" "$TREE/library"; }
