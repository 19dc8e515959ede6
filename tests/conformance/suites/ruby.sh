# about: Ruby's own tests, with the interpreter that is installed
# source: ruby3.1
# command: ruby ruby
# user: nobody
# limit: 120
# programs: ruby
TREE=$SOURCES/ruby3.1
PROGRAMS=ruby

cases() {
  cd "$TREE/test" || exit
  ls ruby/test_*.rb socket/test_*.rb fiber/test_*.rb etc/test_*.rb fiddle/test_*.rb drb/test_*.rb zlib/test_*.rb \
    test_{pty,open3,tempfile,timeout,find,pstore,tmpdir}.rb | grep -v -e bignum -e transcode -e _comb -e jit
}

run() {
  ln -s "$TREE"/{test,tool,lib,common.mk,template,sample,ext} . || exit 99
  exec ruby "$TREE/test/runner.rb" --ruby="$(command -v ruby)" --excludes-dir="$TREE/test/excludes" -v "$TREE/test/$1"
}

# What has failed, has ended by an exception or was left out stands in a list at the end.
verdicts() { sed -n 's/^\(Test[A-Za-z0-9_:]*#test_[^ ]*\) \[.*/failed\t\1/p; s/^\(Test[A-Za-z0-9_:]*#test_[^ ]*\):$/error\t\1/p; s/^[0-9]* tests, .*/&\tall/p' "$1"; }

cold() { program_files; files_below /usr/lib/x86_64-linux-gnu/ruby "$TREE/test/ruby" "$TREE/tool/lib"; }
