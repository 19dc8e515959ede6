# about: the kernel's own tests of its system calls (the nearest to LTP that a registry has)
# package: linux-source-6.1
# command: cc gcc
# command: make make
# package: libcap-dev
# command: xz xz-utils
# user: root
# limit: 60
# quick: 16
# left out: timers/rtcpie: the machine's clock is not ours
# left out: timers/raw_skew: two minutes long
# left out: timers/inconsistency-check: minutes long
TESTS=$BUILT/linux-source-6.1/tools/testing/selftests
# Those that leave the machine's clock, devices, control groups and settings alone.
GROUPS_TESTED="capabilities clone3 core exec futex/functional kcmp landlock membarrier memfd mincore
  nsfs openat2 pid_namespace pidfd proc ptrace rlimits rseq seccomp sigaltstack
  syscall_user_dispatch timens timers tmpfs vDSO x86"

build() {
  rm -rf "$BUILT" && mkdir -p "$BUILT" && cd "$BUILT" || return
  tar -xf /usr/src/linux-source-6.1.tar.xz linux-source-6.1/tools/{testing/selftests,include,scripts,build} \
    linux-source-6.1/scripts/subarch.include
  local group
  for group in $GROUPS_TESTED; do
    # The headers are those of the machine. What cannot be built is no case.
    make -s -k -C "$TESTS/$group" KHDR_INCLUDES= CAN_BUILD_I386= || echo "not all of $group"
  done
  [ -x "$TESTS/openat2/openat2_test" ]
}

# What a group itself runs when it is asked to: what is merely built may set the clock or put the machine to sleep.
cases() {
  local group
  for group in $GROUPS_TESTED; do
    make -s -C "$TESTS/$group" -f Makefile -f - .conformance 2>/dev/null <<'END' | sed "s|.*/|$group/|"
.PHONY: .conformance
.conformance:
	@printf '%s\n' $(foreach one,$(TEST_GEN_PROGS) $(BINARIES_64),$(if $(wildcard $(one)),/$(notdir $(one))))
END
  done | grep '/.' | sort -u
}

run() { cp -r "$TESTS/$(dirname "$1")" tests && cd tests && exec "./$(basename "$1")"; }

verdicts() { tap_verdicts "$1"; }

cold() { program_files; files_below "$TESTS"; }
