# about: Go's tests of files, processes, signals and its run-time, without C and its loader
# command: go golang-go
# user: nobody
# limit: 240
PACKAGES="os os/exec os/signal io/fs path/filepath syscall net runtime time internal/poll"

build() {
  local package
  export CGO_ENABLED=0 GOCACHE=$CONFORMANCE/go-cache GOPATH=$CONFORMANCE/go GOTOOLCHAIN=local
  for package in $PACKAGES; do
    go test -c -o "$BUILT/${package//\//_}" "$package" || echo "not $package"
  done
  [ -n "$(go_cases $PACKAGES)" ]
}

cases() { go_cases $PACKAGES; }

run() { go_run "$1"; }

verdicts() { go_verdicts "$1"; }

cold() { program_files; files_below "$BUILT" "$(go env GOROOT)"/src/os; }
