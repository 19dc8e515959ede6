# about: systemd's unit tests, as Debian packs them: descriptors, mounts, namespaces, processes, filters
# package: systemd-tests
# command: unshare util-linux
# user: root
# limit: 60
# left out: test-execute: it wants a machine that systemd runs
# left out: test-engine: it wants a machine that systemd runs
# left out: test-loop-block: it takes the machine's loop devices
# left out: test-hostname-setup: it sets the machine's name
# left out: test-id128: it looks at what the machine was started with
TESTS=/usr/lib/systemd/tests

# What touches the machine's control groups, devices, networks and programs in the kernel is none.
cases() { (cd "$TESTS" && ls -d test-* | grep -v -e benchmark -e cgroup -e bpf -e network -e udev -e sd-device -e watchdog); }

# What they mount goes with them.
run() { exec unshare -m "$TESTS/$1"; }

cold() { program_files; files_below "$TESTS"; find /usr/lib/x86_64-linux-gnu/systemd /usr/lib/systemd -name 'libsystemd*'; }
