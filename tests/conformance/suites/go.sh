# about: Go's standard library's tests, linked dynamically with cgo
# command: go golang-go
# command: cc gcc
# user: nobody
# limit: 240
# quick: os io bufio archive/zip compress/gzip encoding/binary
PACKAGES="os os/exec os/signal os/user io io/fs io/ioutil bufio bytes path/filepath archive/tar archive/zip
  compress/bzip2 compress/flate compress/gzip compress/lzw compress/zlib
  encoding/ascii85 encoding/asn1 encoding/base32 encoding/base64 encoding/binary encoding/csv encoding/gob
  encoding/hex encoding/json encoding/pem encoding/xml
  sync sync/atomic time syscall net net/http runtime/debug runtime/pprof runtime/cgo plugin embed
  hash/crc32 log mime/multipart text/template database/sql debug/elf debug/dwarf go/parser"

build() {
  local package
  export CGO_ENABLED=1 GOCACHE=$CONFORMANCE/go-cache GOFLAGS=-mod=mod GOPATH=$CONFORMANCE/go GOTOOLCHAIN=local
  for package in $PACKAGES; do
    go test -c -buildmode=pie -ldflags=-linkmode=external -o "$BUILT/${package//\//_}" "$package" || echo "no $package"
  done
  ls "$BUILT" >/dev/null 2>&1
}

cases() { local package; for package in $PACKAGES; do [ ! -x "$BUILT/${package//\//_}" ] || echo "$package"; done; }

# A package's tests find their data in its folder.
run() {
  export GOCACHE=$TMPDIR/go-cache
  cd "$(go env GOROOT)/src/$1" && exec "$BUILT/${1//\//_}" -test.v -test.short -test.timeout 230s
}

verdicts() { sed -n 's/^ *--- \(PASS\|FAIL\|SKIP\): \([^ ]*\) (.*)$/\1\t\2/p' "$1"; }

cold() { program_files; files_below "$BUILT"; files_below "$(go env GOROOT)"/src/{os,io,archive,compress,encoding,debug}/; }
