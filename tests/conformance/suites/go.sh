# about: more of Go's standard library's tests, linked dynamically with cgo
# command: go golang-go
# command: cc gcc
# user: nobody
# limit: 240
PACKAGES="os os/signal os/user io/ioutil path/filepath compress/bzip2 compress/flate compress/lzw compress/zlib
  encoding/ascii85 encoding/asn1 encoding/base32 encoding/base64 encoding/csv encoding/gob encoding/hex
  encoding/json encoding/pem encoding/xml sync sync/atomic time syscall net net/http runtime/debug runtime/pprof
  plugin embed hash/crc32 log mime/multipart text/template database/sql debug/elf debug/dwarf go/parser"

build() { go_build $PACKAGES; }

cases() { go_cases $PACKAGES; }

run() { go_run "$1"; }

verdicts() { go_verdicts "$1"; }

cold() { program_files; files_below "$BUILT" "$(go env GOROOT)"/src/{os,compress,encoding,debug}; }
