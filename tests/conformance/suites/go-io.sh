# about: the tests of Go's packages for input and output, linked dynamically with cgo
# command: go golang-go
# command: cc gcc
# user: nobody
# limit: 120
# quick: 10
PACKAGES="io io/fs bufio bytes archive/tar archive/zip compress/gzip encoding/binary os/exec"

build() { go_build $PACKAGES; }

cases() { go_cases $PACKAGES; }

run() { go_run "$1"; }

verdicts() { go_verdicts "$1"; }

cold() { program_files; files_below "$BUILT" "$(go env GOROOT)"/src/{io,archive,compress/testdata}; }
