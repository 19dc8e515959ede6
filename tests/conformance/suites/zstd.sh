# about: zstd's own tests of its command: files, links, rights, pipes, dictionaries
# source: libzstd
# command: cc gcc
# user: nobody
# limit: 240
# programs: zstd
TREE=$SOURCES/libzstd

build() { make -s -j"$(nproc)" -C "$TREE/programs" zstd && make -s -C "$TREE/tests" datagen; }

cases() { echo playTests; (cd "$TREE/tests/cli-tests" && ls */*.sh); }

run() {
  cp -r "$TREE/tests/." . 2>/dev/null || exit 99
  export ZSTD_BIN=$TREE/programs/zstd DATAGEN_BIN=$TREE/tests/datagen
  case $1 in
    playTests) exec bash ./playTests.sh ;;
    *) exec python3 cli-tests/run.py --zstd "$ZSTD_BIN" --zstdgrep "$TREE/programs/zstdgrep" --zstdless "$TREE/programs/zstdless" --datagen "$DATAGEN_BIN" "$1" ;;
  esac
}

cold() { program_files; echo "$TREE/programs/zstd"; files_below "$TREE"/tests/golden-*; }
