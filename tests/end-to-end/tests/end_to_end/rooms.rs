//! Rooms that a command makes and goes into: other roots, sandboxes, other rights. There the agent's file may
//! be nowhere to be found, and a loader that is told of it complains: all is compared with the command alone.

use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{COLD, Mode, Scenario, WARM, bytes};
use std::path::Path;

/// Makes a root in which there are some programs and nothing of ours.
const ROOT: &str = "mkdir -p root/proc root/dev root/tmp; for file in /bin/sh /bin/cat /usr/bin/env /usr/bin/python3; \
    do for each in $file $(ldd $file | grep -o '/[^ ]*'); do mkdir -p root/${each%/*}; \
    [ -e root/$each ] || cp -L $each root/$each; done; done; echo inside > root/file; : > root/dev/null; ";

/// Lines in which `root` is such a root.
const ROOMS: &[(&str, &[&str], &str)] = &[
    (
        "chroot",
        &[],
        "$UNDER chroot root /bin/sh -c 'cat file; /bin/cat file; exec cat file'; \
         $UNDER chroot root /usr/bin/env -u _ cat file; $UNDER chroot root nothing; echo $?; \
         $UNDER chroot nothing cat; echo $?; (cd root; $UNDER chroot . cat file); $UNDER chroot / cat root/file",
    ),
    (
        "the environment inside",
        &[],
        "export LD_PRELOAD=; $UNDER chroot root /usr/bin/env -u UNDER -u _ -u RUNAHEAD_SESSION",
    ),
    (
        "something else preloaded",
        &[],
        "cp -L --parents $(ldd /usr/bin/python3 | grep -o '/[^ ]*libm.so[^ ]*') root; export LD_PRELOAD=libm.so.6; \
         $UNDER chroot root /usr/bin/env -u UNDER -u _ -u RUNAHEAD_SESSION; $UNDER chroot root /bin/cat file",
    ),
    (
        "a large environment",
        &[],
        "for n in $(seq 700); do export V$n=$n; done; $UNDER chroot root /bin/cat file; $UNDER chroot root /bin/sh -c 'echo $V650'",
    ),
    (
        "a search along the path",
        &[],
        "PATH=/none:/no/such:/bin:/usr/bin:/sbin:/usr/sbin $UNDER chroot root cat file",
    ),
    ("unshare -R", &["command unshare"], "$UNDER unshare -R root /bin/sh -c 'cat file'"),
    ("a user namespace", &["command unshare"], "$UNDER unshare -r sh -c 'chroot root /bin/cat file'"),
    (
        "pivot_root",
        &["command unshare"],
        "$UNDER unshare -m python3 -S -c 'import ctypes, os
libc = ctypes.CDLL(None)
flags = 4096
assert libc.mount(b\"root\", b\"root\", None, flags, None) == 0
os.chdir(\"root\")
assert libc.syscall(155, b\".\", b\".\") == 0 and libc.umount2(b\".\", 2) == 0
os.execv(\"/bin/cat\", [\"cat\", \"file\"])'",
    ),
    (
        "another mount namespace",
        &["command unshare", "command nsenter"],
        "unshare -m sh -c 'mount --bind root root; cd root; mkdir old; pivot_root . old; exec /bin/cat' < /dev/zero > /dev/null & \
         sleep 0.3; $UNDER nsenter -m -r -w -t $! /bin/cat file; kill $!; rmdir root/old",
    ),
    (
        "another mount namespace whose kind is not said",
        &["command unshare"],
        "unshare -m sh -c 'mount --bind root root; cd root; mkdir old; pivot_root . old; exec /bin/cat' < /dev/zero > /dev/null & \
         sleep 0.3; $UNDER python3 -S -c 'import ctypes, os, sys
assert ctypes.CDLL(None).setns(os.open(sys.argv[1], os.O_RDONLY), 0) == 0
os.execv(\"/bin/cat\", [\"cat\", \"file\"])' /proc/$!/ns/mnt; kill $!; rmdir root/old",
    ),
    (
        "no new privileges",
        &["command setpriv"],
        "$UNDER setpriv --no-new-privs sh -c 'cat root/file; chroot root /bin/cat file'",
    ),
    (
        "a sandbox",
        &["command bwrap"],
        "$UNDER bwrap --bind root / --proc /proc --dev /dev --unshare-all /bin/sh -c 'cat file; /bin/cat file'; \
         $UNDER bwrap --ro-bind / / --dev /dev cat root/file; \
         $UNDER bwrap --bind root / --dev /dev --clearenv --setenv A b /usr/bin/env",
    ),
    (
        "a sandbox with a filter",
        &["command bwrap"],
        r"printf '\x06\x00\x00\x00\x00\x00\xff\x7f' > filter; \
         $UNDER bwrap --bind root / --dev /dev --seccomp 9 /bin/sh -c 'cat file; /bin/cat file' 9< filter",
    ),
    (
        "a root that a tracer makes",
        &["command proot"],
        "$UNDER proot -r root -w / /bin/sh -c 'cat file; /bin/cat file; exec cat file'",
    ),
    (
        "whoever asks to be traced is not told of us, nor is what it executes",
        &[],
        "$UNDER python3 -S -c 'import ctypes, os
libc = ctypes.CDLL(None)
child = os.fork()
if child == 0:
    libc.ptrace(0, 0, None, None)
    os.execv(\"/bin/sh\", [\"sh\", \"-c\", \"case $LD_PRELOAD in *agent*) echo named; esac; sh -c \\\"cat root/file\\\"\"])
while True:
    _, status = os.waitpid(child, 0)
    if not os.WIFSTOPPED(status):
        break
    number = os.WSTOPSIG(status)
    libc.ptrace(7, child, None, ctypes.c_long(0 if number == 5 else number))
print(status)'",
    ),
    (
        "whoever is traced from its start is not told of us, nor is what it executes",
        &[],
        "$UNDER python3 -S -c 'import ctypes, os
libc = ctypes.CDLL(None)
child = os.fork()
if child == 0:
    os.kill(os.getpid(), 19)
    os.execv(\"/bin/sh\", [\"sh\", \"-c\", \"case $LD_PRELOAD in *agent*) echo named; esac; sh -c \\\"cat root/file\\\"\"])
os.waitpid(child, os.WUNTRACED)
assert libc.ptrace(16902, child, None, None) == 0
os.kill(child, 18)
while True:
    _, status = os.waitpid(child, 0)
    if not os.WIFSTOPPED(status):
        break
    number = os.WSTOPSIG(status)
    libc.ptrace(7, child, None, ctypes.c_long(0 if number in (5, 19) else number))
print(status)'",
    ),
    (
        "another machine's program is not told of us by its emulator",
        &[],
        r#"printf '\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0\267\0' > foreign; chmod +x foreign; \
         ln -s "$(command -v python3)" qemu-any; $UNDER ./qemu-any -S -c 'import os
print("agent" in os.environ.get("LD_PRELOAD", ""))' -x ./foreign; rm foreign qemu-any"#,
    ),
    (
        "whoever has the loader tell what it loads does not find us",
        &[],
        r#"plain() { sed 's/ (0x.*//; s/^ *[0-9]*://'; }; $UNDER ldd /bin/cat | plain; \
         $UNDER dash -c 'LD_TRACE_LOADED_OBJECTS=1 /bin/cat; exec env LD_TRACE_LOADED_OBJECTS=1 /bin/cat' | \
         plain; \
         LD_TRACE_LOADED_OBJECTS=1 $UNDER /bin/cat | plain; \
         $UNDER python3 -S -c 'import os, subprocess
for variable in ("LD_TRACE_LOADED_OBJECTS", "LD_DEBUG"):
    subprocess.run(["/bin/cat", "root/file"], env={**os.environ, variable: "files"})' 2>&1 | \
         plain | grep -c agent; \
         LD_DEBUG=files $UNDER /bin/cat root/file 2>&1 | grep -c agent"#,
    ),
    (
        "many children in a root",
        &[],
        "$UNDER python3 -S -c 'import os, subprocess
data = os.open(\"data\", 0)
os.chroot(\"root\")
os.chdir(\"/\")
for _ in range(20):
    print(subprocess.run([\"/bin/cat\", \"file\"], capture_output=True))
print(len(os.pread(data, 1 << 20, 0)))
os.execv(\"/bin/cat\", [\"cat\", \"file\"])'",
    ),
];

const REPORTED: Mode = Mode { name: "reported", options: Some(&["--report", "report.json"]), cold: true };
const REPORTED_WARM: Mode = Mode { name: "reported, warm", cold: false, ..REPORTED };

pub fn add(suite: &mut Suite) {
    for (name, needs, line) in ROOMS.iter().copied() {
        let needs = ["root", "command python3"].into_iter().chain(needs.iter().copied());
        suite.add(format!("rooms::{name}"), needs, move || {
            room(name, line).modes([COLD, WARM]).check(&Runahead::built()?)
        });
    }
    suite.add(
        "rooms::without /dev there is speculation, and it is told of",
        ["root", "command unshare"],
        no_null,
    );
    suite.add_plain("rooms::a command with as many arguments as there may be", many_arguments);
    suite.add_plain("rooms::a command that is killed is told of at once", told_at_once);
}

fn room(name: &str, line: &str) -> Scenario {
    let line = format!("{ROOT}{line}; rm -rf root filter");
    Scenario::shell(format!("rooms {name}"), &line)
        .expect(None)
        .prepare(|directory| std::fs::write(directory.join("data"), bytes(9, 1 << 20)))
}

/// Nothing is there that nothing comes from.
fn no_null() -> Verdict {
    let reads = "import os, random\nrandom.seed(3)\ndata = os.open('data', os.O_RDONLY)\n\
        print(sum(os.pread(data, 100, random.randrange(16 << 20))[0] for _ in range(400)))\n";
    let line = "exec unshare -m bash -c 'mount -t tmpfs none /dev; exec $UNDER python3 -S reads.py'";
    let scenario = Scenario::shell("rooms no null", line).prepare(move |directory| {
        std::fs::write(directory.join("reads.py"), reads)?;
        std::fs::write(directory.join("data"), bytes(5, 17 << 20))
    });
    let runahead = Runahead::built()?;
    let told = scenario.run(&TOLD_COLD, &runahead).map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    if said.contains("cannot tell more") || !said.contains("runahead: took") {
        return Err(format!("not told of: {said}"));
    }
    let told = scenario.run(&REPORTED, &runahead).map_err(|error| error.to_string())?;
    let report = told.tree.get(Path::new("report.json")).ok_or("there is no report")?;
    let report = String::from_utf8_lossy(&report.contents).into_owned();
    match report.contains("\"sync_ns\": 0,") {
        false => Ok(()),
        true => Err(format!("nobody ran ahead: {report}")),
    }
}

/// With the host's own words these would be too many.
fn many_arguments() -> Verdict {
    let runahead = Runahead::built()?;
    // The most that the launcher itself is started with, and some less.
    let line = "ulimit -s 512; most() { low=60000; high=131072; while [ $((high - low)) -gt 8 ]; do \
        mid=$(((low + high) / 2)); if /bin/true $(printf '%*s' $mid '' | tr ' ' x) 2> /dev/null; \
        then low=$mid; else high=$mid; fi; done; echo $low; }; most=$(most); \
        for less in 200 260 320 380 440 500 600 700; do \
        python3 -S -c 'import os, sys; os.execvp(sys.argv[2], sys.argv[2:] + [\"x\" * int(sys.argv[1])])' \
        $((most - less)) $UNDER true; done";
    let told = Scenario::shell("rooms many arguments", line).run(&TOLD, &runahead);
    let told = told.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    match said.contains("cannot be executed") || !said.contains("runahead: took") {
        false => Ok(()),
        true => Err(format!("not told of: {said}")),
    }
}

/// Nobody of ours sees its end.
fn told_at_once() -> Verdict {
    let line = "$UNDER sh -c 'kill -9 $$'; sleep 0.6";
    let (scenario, runahead) = (Scenario::shell("rooms told at once", line), Runahead::built()?);
    // What is not known yet has a host, which hears of every end.
    scenario.run(&REPORTED_WARM, &runahead).map_err(|error| error.to_string())?;
    let told = scenario.run(&REPORTED_WARM, &runahead).map_err(|error| error.to_string())?;
    let report = told.tree.get(Path::new("report.json")).ok_or("there is no report")?;
    let report = String::from_utf8_lossy(&report.contents).into_owned();
    let elapsed = report.lines().find_map(|line| line.trim().strip_prefix("\"elapsed_ns\": "));
    let elapsed: u64 = elapsed.and_then(|ns| ns.trim_end_matches(',').parse().ok()).unwrap_or(u64::MAX);
    match elapsed {
        0..150_000_000 => Ok(()),
        _ => Err(format!("it is said to have taken {elapsed} ns: {report}")),
    }
}

const TOLD_COLD: Mode = Mode { name: "told, cold", options: Some(&["--stats"]), cold: true };
const TOLD: Mode = Mode { name: "told", options: Some(&["--stats"]), cold: false };
