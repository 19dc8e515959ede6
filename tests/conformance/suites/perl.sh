# about: perl's core tests, with the interpreter that is installed
# source: perl
# command: perl perl
# user: nobody
# limit: 120
# programs: perl
# quick: 24
TREE=$SOURCES/perl

# The tests look for perl and its library in the folder above them.
build() {
  rm -rf "$BUILT" && mkdir -p "$BUILT/lib" || return
  local folder
  for folder in $(perl -e 'print join " ", grep { m{^/usr/(share|lib)/} && !m{perl5} && -d } @INC'); do
    cp -rL "$folder"/. "$BUILT/lib/" 2>/dev/null
  done
  cp -r "$TREE/t" "$BUILT/t"
  cp "$(command -v perl)" "$BUILT/t/perl"
  ln -s t/perl "$BUILT/perl"
  [ -e "$BUILT/lib/Config.pm" ]
}

cases() { (cd "$BUILT/t" && ls {base,cmd,comp,io,re,uni,mro,op,opbasic,lib}/*.t); }

run() {
  ln -s "$BUILT"/lib "$BUILT"/perl . && mkdir t && ln -s "$BUILT/t"/* t/ && cd t && exec ./perl "$1"
}

verdicts() { tap_verdicts "$1"; }

cold() { program_files; files_below "$BUILT/lib/unicore" "$BUILT/t"; find "$BUILT/lib" -maxdepth 1 -name '*.p[ml]'; }
