# about: PHP's own tests of files, streams, processes and its engine, with the interpreter that is installed
# source: php8.2
# command: php php8.2-cli
# user: nobody
# limit: 240
# programs: php
TREE=$SOURCES/php8.2
PROGRAMS=php

# Folders; the one of files is divided by the first letters of the tests' names.
cases() {
  cd "$TREE" || exit
  ls -d Zend/tests/{generators,try,gc} ext/standard/tests/file/userstreams \
    ext/standard/tests/{dir,streams,general_functions,network,filters,assert,serialize,php_ini,http,misc,directory} \
    ext/{pcntl,posix,zlib,spl,sockets,ffi,ftp,readline,pcre,json,opcache,fileinfo,openssl,tokenizer,session}/tests \
    ext/{shmop,sysvshm,sysvsem,sysvmsg,phar}/tests
  ls ext/standard/tests/file/*.phpt | sed 's|\(file/...\).*|\1|' | sort -u
}

# Tests write beside themselves: each case has a copy of the folder that its tests belong to.
run() {
  local what=$1 folder
  folder=${1%%/tests*}/tests
  mkdir -p "$folder" && cp -r "$TREE/$folder/." "$folder/" && cp "$TREE/run-tests.php" . || exit 99
  [ -d "$what" ] || what=$(echo "$1"*.phpt)
  export TEST_PHP_EXECUTABLE=$(command -v php) NO_INTERACTION=1 SKIP_ONLINE_TESTS=1
  exec php run-tests.php -q --no-color $what
}

verdicts() { sed -n 's/^.*\r*\(PASS\|FAIL\|SKIP\|XFAIL\|WARN\|BORK\|LEAK\)[^ ]* .*\[\(.*\.phpt\)\].*$/\1\t\2/p' "$1"; }

cold() { program_files; files_below "$TREE"/ext/standard/tests; }
