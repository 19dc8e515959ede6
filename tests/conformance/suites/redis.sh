# about: Redis's own tests of its protocol, of some values and of what it saves, with the server that is installed
# source: redis
# command: redis-server redis-server
# command: redis-cli redis-tools
# command: tclsh8.6 tcl8.6
# user: nobody
# limit: 240
# programs: redis-server redis-cli tclsh8.6
TREE=$SOURCES/redis

cases() { printf '%s\n' unit/{protocol,keyspace} unit/type/{incr,hash} integration/{rdb,aof,logging}; }

# Ports are the same in all of them: one at a time.
run() {
  ln -s "$TREE"/{tests,utils,redis.conf,sentinel.conf} . && rm tests && mkdir -p tests/tmp src || exit 99
  ln -s -t tests $(find "$TREE/tests" -mindepth 1 -maxdepth 1 ! -name tmp)
  local program
  for program in server cli benchmark check-aof check-rdb; do ln -s "$(command -v redis-$program)" src/; done
  exec flock -o "$TREE/runtest" tclsh8.6 tests/test_helper.tcl --clients 1 --single "$1" --tags '-slow -needs:debug'
}

verdicts() {
  sed 's/\x1b\[[0-9;]*m//g' "$1" | sed -n -e 's/^\[ok\]: \(.*\) ([0-9]* ms)$/ok\t\1/p' -e 's/^\[err\]: \(.*\) in tests.*/failed\t\1/p' \
    -e 's/^\[\(ignore\|skip\)\]: \(.*\)$/skipped\t\2/p' | tr ' ' '_'
}

cold() { program_files; files_below "$TREE/tests"; }
