//! The ways a command can be started: streams closed, numbers of descriptors taken, no `/proc`, a mask
//! that forbids everything, under Runahead twice. What the program sees of itself is compared.

use crate::programs::files;
use crate::slow_disk::{self, Disk};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{COLD, Scenario, WARM, bytes};
use std::fs;
use std::path::{Path, PathBuf};

/// A bash line that ends in `exec "$@"`, and what it needs.
const STARTS: &[(&str, &[&str], &str)] = &[
    ("standard input closed", &[], "exec \"$@\" <&-"),
    ("standard error closed", &[], "exec \"$@\" 2>&-"),
    ("only standard output open", &[], "exec \"$@\" <&- 2>&-"),
    (
        "descriptors taken",
        &[],
        "exec \"$@\" 3<cold.bin 4<&3 5>log 6<>log 9<. 10</dev/null 100<cold.bin 255<&0 1023<&0",
    ),
    ("standard input is a directory", &[], "exec \"$@\" < ."),
    ("output to a file, in append mode", &[], "echo before > log; exec \"$@\" >> log"),
    ("output to a full device", &[], "exec \"$@\" 2> /dev/full"),
    ("a mask that forbids everything", &[], "umask 777; exec \"$@\""),
    ("a mask that forbids nothing", &[], "umask 0; exec \"$@\""),
    ("signals ignored", &[], "trap '' HUP INT QUIT PIPE TERM CHLD CONT USR1 USR2 ALRM XFSZ; exec \"$@\""),
    ("a child that nobody waits for", &[], "sleep 0 & sleep 0.02; exec \"$@\""),
    ("a group of its own", &["command setsid"], "exec setsid -w \"$@\""),
    (
        "changed name and environment",
        &[],
        "export A='' B=$'new\\nline' LC_ALL=C.UTF-8 POSIXLY_CORRECT=1 LD_BIND_NOW=1; unset HOME; exec \"$@\"",
    ),
    ("own preloaded library", &[], "export LD_PRELOAD=libm.so.6; exec \"$@\""),
    ("own library path", &[], "export LD_LIBRARY_PATH=/nonexistent:.; exec \"$@\""),
    (
        "checking allocator",
        &[],
        "export MALLOC_PERTURB_=85 MALLOC_CHECK_=3 GLIBC_TUNABLES=glibc.malloc.check=3; exec \"$@\"",
    ),
    (
        "no /proc",
        &["root", "command unshare"],
        "exec unshare --mount bash -c 'umount -l /proc; exec \"$@\"' bash \"$@\"",
    ),
    (
        "nothing to write temporary files to",
        &["root", "command unshare"],
        "exec unshare --mount bash -c 'mount -t tmpfs -o ro tmpfs /dev/shm; mount --rbind /tmp /tmp; mount -o remount,ro,bind /tmp; mount --bind /dev/shm $TMPDIR; mount --bind /dev/shm $XDG_RUNTIME_DIR; exec \"$@\"' bash \"$@\"",
    ),
    (
        "priority and affinity set",
        &["root", "command taskset", "command ionice"],
        "exec nice -n -3 ionice -c 2 -n 1 taskset -c 1 \"$@\"",
    ),
    ("no descriptors to spare", &[], "ulimit -n 5; exec \"$@\""),
    ("no file may grow", &[], "ulimit -f 0; exec \"$@\""),
    ("no pending signals", &[], "ulimit -i 0; exec \"$@\""),
];

pub fn add(suite: &mut Suite) {
    for (name, needs, line) in STARTS.iter().copied() {
        suite.add(format!("start::{name}"), needs.iter().copied(), move || {
            started(name, line, &Runahead::built()?)
        });
    }
    suite.add_plain("start::under Runahead twice", twice);
    suite.add_plain("start::filters that end whoever makes a call", filters);
    for way in ["waits", "orphans", "executes"] {
        let name = format!("start::the first process of its namespace {way}");
        suite.add(name, ["root", "command unshare"], move || first_process(way));
    }
    suite.add_plain("start::eight at once", || {
        let line = "for at in 0 1 2 3 4 5 6 7; do $UNDER bash -c 'md5sum tree/*/*.txt' > sums-$at & done; wait; md5sum sums-*";
        shell("eight at once", line)
    });
    suite.add_plain("start::two hundred children", || {
        let line = "$UNDER bash -c 'for at in $(seq 25); do for folder in tree/folder-*; do cat $folder/file-1.txt; done; done' | cksum";
        shell("two hundred children", line)
    });
    suite.add("start::short programs have no other rights", slow_disk::WANTS, short_programs);
    suite.add("start::real-time", ["root", "command chrt"], real_time);
    suite.add("start::few processes in the control group", ["root", "command python3"], few_processes);
    suite.add_plain("start::in a deleted directory", || {
        let line = "mkdir gone; cd gone; rmdir ../gone; exec $UNDER bash -c 'md5sum '$OLDPWD'/tree/*/*.txt; ls; pwd'";
        shell("deleted directory", line)
    });
}

/// The kernel does not tell the rights of an exiting process. The report must not take them for
/// other rights.
fn short_programs() -> Verdict {
    let fill = |folder: &Path| {
        (0..80).try_for_each(|file| fs::write(folder.join(file.to_string()), bytes(file, 3000)))
    };
    let disk = Disk::new("short", "cloud", fill)?;
    let line = "for file in $0/*[0-9]; do cat $file; basename $file; done | cksum";
    let words =
        |mount: &Path| -> Vec<PathBuf> { vec!["bash".into(), "-c".into(), line.into(), mount.into()] };
    for _ in 0..5 {
        let Some((_, outcome)) = disk.counts_and_outcome(&words)? else { return Ok(()) };
        let report = outcome.tree.get(Path::new("report.json")).ok_or("no report was written")?;
        let report: serde_json::Value =
            serde_json::from_slice(&report.contents).map_err(|error| format!("not JSON: {error}"))?;
        if let Some(reason) = report["left_because"].as_str() {
            return Err(format!("left alone: {reason}"));
        }
    }
    Ok(())
}

fn observer(start: &str) -> Result<Scenario, String> {
    for guest in Guest::all()? {
        for run in guest.runs() {
            if run.name == "guest::observe::streams" {
                let mut scenario = guest.scenario(&run)?;
                scenario.name = format!("start {start}");
                return Ok(scenario);
            }
        }
    }
    Err("the guest 'observe' has gone".to_owned())
}

/// Filters of system calls that end whoever makes one call, for each call that there is: where the command alone is not ended,
/// it is not under Runahead. Without the few that the launcher has to take for granted (`host::filter`).
fn filters() -> Verdict {
    let guests = Guest::all()?;
    let guest =
        guests.iter().find(|guest| guest.name() == "filtered").ok_or("the guest 'filtered' has gone")?;
    let program = guest.build()?;
    let line = format!(
        "for call in $(seq 0 334) $(seq 424 462); do case $call in 13|14|56|61|127|247) continue;; esac; \
         said=$({} kill $call $UNDER cat tree/folder-1/file-1.txt 2> /dev/null | cksum; echo ${{PIPESTATUS[0]}}); \
         echo $call: $said; done 2> /dev/null",
        program.display()
    );
    Scenario::shell("start filters", &line).prepare(files).modes([WARM]).check(&Runahead::built()?)
}

/// A container's first process, to which the orphans of its namespace come back.
fn first_process(way: &str) -> Verdict {
    let guests = Guest::all()?;
    let guest = guests.iter().find(|guest| guest.name() == "reaper").ok_or("the guest 'reaper' has gone")?;
    let mut scenario = guest.scenario(&guest.run_with(&[way]))?;
    scenario.name = format!("start first process {way}");
    scenario
        .around(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .modes([COLD, WARM])
        .check(&Runahead::built()?)
}

/// Nobody of ours is of the real-time class that the command is in: prints those who are.
fn real_time() -> Verdict {
    let look = "cat tree/*/*.txt | cksum; hosts=' '; for at in 1 2; do for process in /proc/[0-9]*; do \
        { read -r line < $process/stat; } 2> /dev/null; \
        case $line in *'(runahead'*) ;; *) continue ;; esac; \
        set -- ${line##*) }; \
        if grep -qzx TMPDIR=$TMPDIR $process/environ 2> /dev/null; then hosts=\"$hosts${process#/proc/} \"; \
        else case $hosts in *\" $2 \"*) ;; *) continue ;; esac; fi; \
        [ ${39} = 0 ] || echo one is of class ${39}; done; done";
    shell("real-time", &format!("chrt -f 1 $UNDER bash -c '{}'", look.replace('\'', "'\\''")))
}

/// A control group that may have 20 processes: the command has all of them. (Where no group can be made there
/// is no limit, and the command makes as many threads as it wants.)
fn few_processes() -> Verdict {
    let line = r#"for groups in /sys/fs/cgroup/pids /sys/fs/cgroup; do
            group=$groups/runahead-few-$$
            mkdir $group 2> /dev/null || continue
            { echo 20 > $group/pids.max; } 2> /dev/null && echo $$ > $group/cgroup.procs && break
            rmdir $group
        done
        $UNDER python3 -c '
import glob, threading
read = sum(len(open(name, "rb").read()) for name in glob.glob("tree/*/*.txt"))
over, made = threading.Event(), 0
try:
    while made < 40:
        threading.Thread(target=over.wait).start()
        made += 1
except RuntimeError:
    pass
over.set()
print(made, read)'
        echo $$ > $groups/cgroup.procs
        for at in 1 2 3 4 5 6 7 8 9; do rmdir $group 2> /dev/null && break; sleep 0.2; done"#;
    shell("few processes", line)
}

pub fn started(name: &str, line: &str, runahead: &Runahead) -> Verdict {
    let scenario = observer(name)?.around(["bash", "-c", line, "bash"]).modes([COLD, WARM]);
    // Some starts make the guest itself fail (no /proc): then it has to fail in the same way.
    scenario.expect(None).check(runahead)
}

fn twice() -> Verdict {
    let runahead = Runahead::built()?;
    let inner = [runahead.command.as_str(), "run", "--"];
    let outer = observer("twice")?.modes([COLD]);
    // Alone it is under Runahead once: the model here.
    outer.around(inner).check(&runahead)
}

fn shell(name: &str, line: &str) -> Verdict {
    Scenario::shell(format!("start {name}"), line)
        .prepare(files)
        .modes([COLD, WARM])
        .expect(None)
        .check(&Runahead::built()?)
}
