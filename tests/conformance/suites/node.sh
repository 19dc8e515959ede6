# about: Node's own tests of files, processes, signals, workers and pipes, with the program that is installed
# source: nodejs
# command: node nodejs
# user: nobody
# limit: 60
# programs: node
# left out: parallel/test-cluster-primary-kill.js: it waits until somebody takes an orphan's end
TREE=$SOURCES/nodejs/test
PROGRAMS=node

cases() {
  (cd "$TREE" && ls parallel sequential | awk -F: '/:$/ { folder = $1 } /\.js$/ { print folder "/" $0 }') |
    grep -E '/test-(fs|child-process|worker|process|signal|cluster|stdin|stdio|stdout|pipe|net-pipe|readline|vm|atomics|async-hooks)'
}

run() {
  mkdir -p test/parallel test/sequential && cp -r "$TREE/common" test/ && cp "$TREE/$1" "test/$1" || exit 99
  ln -s "$TREE/fixtures" test/fixtures
  export NODE_TEST_DIR=$TMPDIR
  local flags
  flags=$(sed -n 's|^// Flags: ||p' "test/$1" | head -n 1)
  exec node $flags "test/$1"
}

cold() { program_files; files_below "$TREE/common" "$TREE/parallel"; }
