# about: GNU awk's own tests
# source: gawk
# command: cc gcc
# command: make make
# user: nobody
# limit: 60
TREE=$SOURCES/gawk

build() {
  # Its manual's sources are not in the package; nothing that is tested needs them.
  (configure_and_make gawk)
  [ -x "$TREE/gawk" ]
  (cd "$TREE/extension" && $MAKE_AS_SHIPPED -k)
  [ -e "$TREE/extension/.libs/fork.so" ]
}

cases() {
  cd "$TREE/test" || exit
  cat > .conformance.mk <<'END'
.PHONY: .conformance
.conformance:
	@echo $(BASIC_TESTS) $(UNIX_TESTS) $(GAWK_EXT_TESTS) $(ARRAYDEBUG_TESTS) $(LOCALE_CHARSET_TESTS) $(SHLIB_TESTS)
END
  $MAKE_AS_SHIPPED -f Makefile -f .conformance.mk .conformance 2>/dev/null | tr ' ' '\n'
}

# A test that failed leaves its output.
run() {
  ln -s "$TREE"/{gawk,extension,pc,build-aux,config.status} . && mkdir test && cd test || exit 99
  $MAKE_AS_SHIPPED -f "$TREE/test/Makefile" srcdir="$TREE/test" "$1" || exit
  ! ls _* >/dev/null 2>&1
}

cold() { program_files; files_below "$TREE/gawk" "$TREE/test" "$TREE/extension/.libs"; }
