# about: CPython's own tests, with the interpreter that is installed
# command: python3 python3
# package: libpython3.11-testsuite
# user: nobody
# limit: 200
# programs: python3
# quick: test_bufio test_fileio test_mmap test_shutil test_tempfile test_largefile
# left out: test_multiprocessing_spawn: minutes long
# left out: test_multiprocessing_fork: minutes long
# left out: test_multiprocessing_forkserver: minutes long
# left out: test_concurrent_futures: minutes long
PYTHON=/usr/bin/python3

cases() { "$PYTHON" -m test --list-tests; }

run() { exec "$PYTHON" -m test --tempdir "$TMPDIR" --junit-xml "$TMPDIR/results.xml" --timeout 190 "$1"; }

# The attributes stand in any order; a failure, an error or a skip lies within its test's element.
verdicts() {
  "$PYTHON" - <<'END'
import os, sys, xml.etree.ElementTree as tree
try:
    results = tree.parse(os.path.join("..", "tmp", "results.xml"))
except (OSError, tree.ParseError):
    sys.exit()
for case in results.iter("testcase"):
    inside = {child.tag for child in case}
    verdict = next((tag for tag in ("error", "failure", "skipped") if tag in inside), case.get("result", "ok"))
    print(verdict, (case.get("name") or "").replace("\n", " "), sep="\t")
END
}

cold() { program_files; files_below /usr/lib/python3.*/lib-dynload; find /usr/lib/python3.* -maxdepth 3 -name '*.py*' -path '*[a-z]*'; }
