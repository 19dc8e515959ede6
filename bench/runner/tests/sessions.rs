//! Whole sessions with a stand-in for Runahead, on small data of their own.
//!
//! They need root, FUSE and loop devices; without them they say so and do nothing. They drop caches, and
//! so wait for whoever measures on the machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use runahead_bench::results::{self, Record};
use slowdisk::system;

/// A session's world: data, run directory, results; gone at the end.
struct Sandbox {
    path: PathBuf,
    instance: String,
}

impl Sandbox {
    fn new(name: &str) -> Option<Sandbox> {
        if let Some(reason) = system::missing() {
            eprintln!("SKIPPED {name}: {reason}");
            return None;
        }
        let instance = format!("test-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(format!("runahead-bench-{instance}"));
        let set = path.join("data/small");
        fs::create_dir_all(&set).unwrap();
        let mut list = String::new();
        for number in 0..200 {
            let file = format!("file-{number:03}");
            let text = format!("line\nspin_lock_irqsave {number}\n").repeat(100 + number);
            fs::write(set.join(&file), text).unwrap();
            list += &format!("small/{file}\n");
        }
        fs::write(path.join("data/small.files"), list).unwrap();
        fs::write(path.join("data/small.stamp"), "small 1\n").unwrap();
        let sandbox = Sandbox { path, instance };
        sandbox.subject("exec \"$@\"");
        Some(sandbox)
    }

    /// A Runahead that reports itself and then does as `script` says with the command.
    fn subject(&self, script: &str) {
        let head = "#!/bin/sh\n[ \"$1\" = --version ] && echo stand-in 1 && exit\n\
                    [ \"$1 $2\" = 'run --report' ] || exit 99\n\
                    echo \"{\\\"stand\\\": \\\"in\\\", \\\"at\\\": \\\"$0 $PWD $3\\\"}\" > \"$3\"; shift 4\n";
        let path = self.path.join("subject");
        fs::write(&path, format!("{head}{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runahead-bench"));
        command
            .args(arguments)
            .arg("--subject")
            .arg(self.path.join("subject"))
            .arg("--results")
            .arg(self.path.join("results.jsonl"))
            .env("RUNAHEAD_DATA", self.path.join("data"))
            .env("RUNAHEAD_BENCH_INSTANCE", &self.instance)
            .env("SLOWDISK_RUN", self.path.join("run"));
        command
    }

    fn bench(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn records(&self) -> Vec<Record> {
        results::read(&self.path.join("results.jsonl")).unwrap()
    }

    /// Everything of ours that is still on the machine.
    fn leftovers(&self) -> Vec<String> {
        let inside = |path: &str| path.contains(&self.instance);
        let mounts = system::mounts().into_iter().map(|(point, _)| point.display().to_string());
        let mut found: Vec<String> = mounts.filter(|point| inside(point)).collect();
        let loops = system::run("losetup", &["--list", "--noheadings", "--output", "BACK-FILE"]).unwrap();
        found.extend(loops.lines().filter(|line| inside(line)).map(String::from));
        let disks = fs::read_dir(self.path.join("run")).into_iter().flatten().flatten();
        found.extend(
            disks.filter(|entry| entry.path().is_dir()).map(|entry| entry.path().display().to_string()),
        );
        let limits = [PathBuf::from("/sys/fs/cgroup/memory")];
        for point in runahead_bench::group::mount_point().into_iter().chain(limits) {
            let groups = fs::read_dir(point).into_iter().flatten().flatten();
            let groups = groups.map(|entry| entry.path().display().to_string());
            found.extend(groups.filter(|group| inside(group)));
        }
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        found.extend(swaps.lines().filter(|line| inside(line)).map(String::from));
        let scratch = format!("/dev/shm/runahead-bench-{}", self.instance);
        found.extend(fs::exists(&scratch).unwrap().then_some(scratch));
        for process in fs::read_dir("/proc").unwrap().flatten() {
            // Everything that a session starts inherits the variable.
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            if String::from_utf8_lossy(&environment).contains(&self.instance) {
                let words = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
                found.push(format!("process {:?}: {}", process.file_name(), words.replace('\0', " ")));
            }
        }
        found
    }

    fn wait_until_nothing_is_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !self.leftovers().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(self.leftovers(), Vec::<String>::new());
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.command(&["clean"]).output();
        if self.leftovers().is_empty() {
            let _ = fs::remove_dir_all(&self.path);
            let _ = fs::remove_file(format!("/tmp/runahead-bench-{}.lock", self.instance));
        }
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

const QUICK: [&str; 4] = ["--runs", "1", "--replays", "1"];

#[test]
fn a_session_measures_every_configuration_and_leaves_nothing() {
    let Some(sandbox) = Sandbox::new("whole") else {
        return;
    };
    let all = "alone,runahead,forked,ignored,prefetched,readahead-0,alone-one-core,runahead-one-core,alone-warm,runahead-warm";
    // The stand-in knows --no-speculate as little as any other option.
    sandbox.subject("[ \"$1\" = -- ] && shift; exec \"$@\"");
    let arguments = [&["smoke", "--profile", "cloud", "--configurations", all], &QUICK[..]].concat();
    let forked = sandbox.path.join("forked");
    fs::copy(sandbox.path.join("subject"), &forked).unwrap();
    let output = sandbox.command(&arguments).arg("--forked").arg(&forked).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    sandbox.wait_until_nothing_is_left();
    let records = sandbox.records();
    assert_eq!(records.len(), 2);
    let grep = &records[0];
    assert_eq!((grep.workload.as_str(), grep.subject.as_str()), ("smoke-grep", "stand-in 1"));
    assert_eq!(grep.runs.len(), 10);
    assert!(grep.runs.iter().all(|run| run.measured.same), "{grep:?}");
    let of = |name: &str| grep.runs.iter().find(|run| run.configuration == name).unwrap();
    let report = serde_json::json!({ "stand": "in", "at": "subject . report.json" });
    assert_eq!(of("runahead").report, Some(report), "places of this machine are left out");
    assert_eq!(of("forked").report.as_ref().unwrap()["at"], "forked . report.json");
    let text = fs::read_to_string(sandbox.path.join("results.jsonl")).unwrap();
    let checkout = env!("CARGO_MANIFEST_DIR").trim_end_matches("/bench/runner");
    for place in [checkout, &sandbox.path.to_string_lossy()] {
        assert!(!text.contains(place), "{place} stands in the results: {text}");
    }
    assert_eq!(of("alone").report, None);
    // 200 files, one request each at least, a millisecond each; warm there are none.
    assert!(of("alone").measured.wall > 0.2, "{grep:?}");
    assert!(of("alone").measured.device_reads.unwrap() >= 200, "{grep:?}");
    assert_eq!(of("alone-warm").measured.device_reads, Some(0));
    assert!(of("prefetched").prefetch.unwrap() > 0.0);
    assert!(of("prefetched").measured.device_reads.unwrap() < 50, "{grep:?}");
    let limit = grep.summary.limit.unwrap();
    assert!(limit > 0.0 && limit < of("alone").measured.wall / 3.0, "{grep:?}");
    assert!(said(&output).contains("smoke-find"), "the table is printed: {}", said(&output));
}

#[test]
fn a_subject_that_changes_the_output_is_caught() {
    let Some(sandbox) = Sandbox::new("liar") else {
        return;
    };
    sandbox.subject("\"$@\" | sed 's/file-150:/file-15O:/'");
    let output = sandbox.bench(&[&["smoke-grep", "--configurations", "alone,runahead"], &QUICK[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("OUTPUTS DIFFER"), "{}", said(&output));
    let marks = &sandbox.records()[0].marks;
    assert!(marks.iter().any(|mark| mark.contains("stdout differs at byte")), "{marks:?}");
}

/// Two sessions on one machine exclude each other, but not whoever drops caches by hand.
#[test]
fn a_run_during_which_others_drop_the_caches_is_made_again() {
    let Some(sandbox) = Sandbox::new("spoilt") else {
        return;
    };
    let once = sandbox.path.join("once").display().to_string();
    let drop = "echo 2 > /proc/sys/vm/drop_caches";
    sandbox.subject(&format!("[ -e {once} ] || {{ touch {once}; {drop}; }}; exec \"$@\""));
    let measure = || {
        let output =
            sandbox.bench(&[&["smoke-grep", "--configurations", "alone,runahead"], &QUICK[..]].concat());
        assert!(output.status.success(), "{}", said(&output));
        let said = said(&output);
        (said.matches("runahead: thrown away and measured again").count(), said, sandbox.records())
    };
    let (thrown_away, said, records) = measure();
    // Others on this machine may add to it.
    assert!(thrown_away >= 1 && records[0].runs.len() == 2, "{said}");
    assert!(records[0].runs.iter().all(|run| run.spoilt == 0), "{records:?}");
    assert!(!records[0].marks.iter().any(|mark| mark.contains("dropped")), "{records:?}");
    // Who does it each time is not waited for.
    sandbox.subject(&format!("{drop}; exec \"$@\""));
    let (thrown_away, said, records) = measure();
    assert_eq!(thrown_away, runahead_bench::drops::AGAIN, "{said}");
    let marks = &records[1].marks;
    assert!(
        marks.iter().any(|mark| mark.starts_with("runahead round 1: somebody else dropped")),
        "{marks:?}"
    );
}

/// Starts a session whose command never ends by itself, looks around, and kills it while that runs. False:
/// it could not get there, and said so.
fn killed_while_running(sandbox: &Sandbox, workload: &str, profile: &str, look: impl FnOnce()) -> bool {
    sandbox.subject("sleep 1000");
    let arguments = [workload, "--profile", profile, "--configurations", "runahead", "--runs", "1"];
    let mut command = sandbox.command(&arguments);
    let mut session: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let running = || sandbox.leftovers().iter().any(|left| left.contains("sleep 1000"));
    // The lock may be held for long by whoever measures on this machine; alone, it takes a second.
    let deadline = Instant::now() + Duration::from_secs(900);
    while !running() && Instant::now() < deadline {
        if session.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(running(), "{workload} on {profile}: the run never began");
    look();
    session.kill().unwrap();
    session.wait().unwrap();
    true
}

/// What `killall -INT` or a service manager would end: everything with our name. Returns how many got the signal.
fn signal_everything_of_ours(sandbox: &Sandbox, signal: i32) -> usize {
    let ours = |left: &String| left.starts_with("process") && left.contains("/runahead-bench ");
    let found: Vec<String> = sandbox.leftovers().into_iter().filter(ours).collect();
    for process in &found {
        let id = process.split('"').nth(1).unwrap().parse().unwrap();
        // SAFETY: a signal to a process that this test's session started, or to the session.
        unsafe { libc::kill(id, signal) };
    }
    found.len()
}

#[test]
fn a_signal_to_all_of_a_session_leaves_nothing_behind() {
    let Some(sandbox) = Sandbox::new("signals") else {
        return;
    };
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let look = || {
            // The session, its guard, and its disk's daemon.
            assert_eq!(signal_everything_of_ours(&sandbox, signal), 3, "{:?}", sandbox.leftovers());
        };
        assert!(killed_while_running(&sandbox, "smoke-grep", "cloud", look), "the session failed");
        sandbox.wait_until_nothing_is_left();
    }
}

/// Ctrl-C while swap is being turned on: the helper is in the kernel and goes on. Here it, or rather its child, only
/// keeps the swap file open for longer than the guard would wait for a disk's last user.
#[test]
fn the_guard_waits_for_what_helped_an_interrupted_session() {
    let Some(sandbox) = Sandbox::new("helper") else {
        return;
    };
    let tools = sandbox.path.join("bin");
    fs::create_dir_all(&tools).unwrap();
    let script = "#!/bin/sh\ntrap '' INT\nexec 9<\"$1\"\nsleep 15\n";
    fs::write(tools.join("swapon"), script).unwrap();
    fs::set_permissions(tools.join("swapon"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let arguments = ["gather-swap", "--profile", "cloud", "--configurations", "runahead", "--runs", "1"];
    let mut command = sandbox.command(&arguments);
    command.env("PATH", path).process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    let mut session = command.spawn().unwrap();
    let shows = |what: &str| sandbox.leftovers().iter().any(|left| left.contains(what));
    let deadline = Instant::now() + Duration::from_secs(900);
    while !shows("sleep 15") && Instant::now() < deadline {
        assert_eq!(session.try_wait().unwrap(), None, "the session failed");
        std::thread::sleep(Duration::from_millis(20));
    }
    // SAFETY: a signal to the group of the session that this test started.
    assert_eq!(unsafe { libc::kill(-(session.id() as i32), libc::SIGINT) }, 0);
    session.wait().unwrap();
    while shows("guard-until") {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(sandbox.leftovers(), Vec::<String>::new(), "the guard's work is done");
}

#[test]
fn a_killed_session_leaves_nothing_behind() {
    let Some(sandbox) = Sandbox::new("killed") else {
        return;
    };
    assert!(killed_while_running(&sandbox, "smoke-grep", "cloud", || ()), "the session failed");
    sandbox.wait_until_nothing_is_left();
    let mut held = PathBuf::new();
    let look = || {
        held = sandbox.path.join("run/bench-native");
        assert!(holds_read_ahead(&held), "the session holds the disk's read-ahead");
    };
    assert!(killed_while_running(&sandbox, "smoke-grep", "native", look), "the session failed");
    sandbox.wait_until_nothing_is_left();
    assert!(!holds_read_ahead(&held), "the guard gave the disk its read-ahead back");
}

/// Whether the machine's ledger says that a device has its read-ahead for the sake of this disk. (What the
/// setting is proves nothing: others on this machine may hold it too. That the last to let go puts back what
/// was before is tested where the ledger is.)
fn holds_read_ahead(disk: &Path) -> bool {
    let ledger = fs::read_dir("/run/runahead-read-ahead").into_iter().flatten().flatten();
    let entries = ledger.filter(|entry| entry.file_name().to_string_lossy().ends_with(".json"));
    let text: String = entries.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default()).collect();
    text.contains(&*disk.to_string_lossy())
}

#[test]
fn whoever_comes_next_gives_the_disk_its_read_ahead_back() {
    let Some(sandbox) = Sandbox::new("next") else {
        return;
    };
    let held = sandbox.path.join("run/bench-native");
    let kill_the_guard = || {
        assert!(holds_read_ahead(&held));
        let guard = sandbox.leftovers().into_iter().find(|left| left.contains("guard-until")).unwrap();
        let id = guard.split('"').nth(1).unwrap().parse().unwrap();
        // SAFETY: a signal to the guard of the session that this test started.
        assert_eq!(unsafe { libc::kill(id, libc::SIGKILL) }, 0);
    };
    assert!(killed_while_running(&sandbox, "smoke-grep", "native", kill_the_guard), "the session failed");
    assert!(holds_read_ahead(&held), "nobody was there to put it back");
    // Somebody else, with disks elsewhere: theirs stay, but the read-ahead is the machine's.
    let elsewhere = sandbox.path.join("elsewhere");
    let mut next = sandbox.command(&["clean"]);
    let next = next.env("SLOWDISK_RUN", &elsewhere).env("RUNAHEAD_BENCH_INSTANCE", "test-somebody-else");
    let output = next.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(!holds_read_ahead(&held), "whoever came next put it back");
    assert!(sandbox.bench(&["clean"]).status.success());
    sandbox.wait_until_nothing_is_left();
}

#[test]
fn a_killed_session_leaves_no_swap_and_no_memory_limit() {
    let Some(sandbox) = Sandbox::new("swapping") else {
        return;
    };
    if !killed_while_running(&sandbox, "matvec-swap", "cloud", || ()) {
        eprintln!("SKIPPED swapping: no limits on memory, no swap or no bench-matvec here");
        return;
    }
    sandbox.wait_until_nothing_is_left();
}

#[test]
fn an_interrupted_session_goes_on_where_it_was() {
    let Some(sandbox) = Sandbox::new("resume") else {
        return;
    };
    let quick = ["--runs", "1", "--replays", "0", "--configurations", "alone", "--resume"];
    for (names, records) in [("smoke-find", 1), ("smoke", 2), ("smoke", 2)] {
        let output = sandbox.bench(&[&[names], &quick[..]].concat());
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(sandbox.records().len(), records, "after {names}");
    }
}

/// A row for each workload, marked, and the batch goes on; resumed, nobody waits for them again.
#[test]
fn what_takes_too_long_is_stored_and_left_at_that() {
    let Some(sandbox) = Sandbox::new("late") else {
        return;
    };
    sandbox.subject("sleep 1000");
    let measure = |patience: &str| {
        let ways = ["--configurations", "alone,runahead", "--runs", "2", "--replays", "1", "--resume"];
        let output = sandbox.bench(&[&["smoke", "--patience", patience], &ways[..]].concat());
        assert!(output.status.success(), "{}", said(&output));
        (said(&output), sandbox.records())
    };
    // Not even alone.
    let (said, records) = measure("0");
    assert!(records.len() == 2 && records.iter().all(|record| record.hopeless), "{records:?}");
    assert!(
        said.contains("not measured") && records[0].marks[0].contains("was not over after 0 s"),
        "{said}"
    );
    assert_eq!(measure("0").1.len(), 2);
    // Under Runahead only, and there once.
    let (said, records) = measure("2");
    assert_eq!(records.len(), 4, "there was more patience: {said}");
    let figures = &records[3].summary.configurations;
    assert_eq!((figures["alone"].runs, figures["runahead"].runs), (2, 1), "{said}");
    assert!(figures["runahead"].late && figures["runahead"].ratio.is_none(), "{said}");
    assert!(said.contains("ENDED AFTER 2 s"), "{said}");
    assert!(records[3].marks.iter().any(|mark| mark == "runahead round 1: ended after 2 s"), "{said}");
    assert_eq!(measure("2").1.len(), 4);
    sandbox.wait_until_nothing_is_left();
}

/// Who may not drop caches, mount or set read-ahead can still measure on the machine's own disk.
#[test]
fn an_ordinary_user_measures_cold_files_on_the_native_disk() {
    let Some(sandbox) = Sandbox::new("ordinary") else {
        return;
    };
    system::run("chown", &["-R".as_ref(), "nobody:nogroup".as_ref(), sandbox.path.as_os_str()]).unwrap();
    let as_nobody = |arguments: &[&str]| {
        let wanted = sandbox.command(arguments);
        let mut command = Command::new("setpriv");
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]).arg(wanted.get_program());
        command.args(wanted.get_args());
        command.envs(wanted.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("HOME", &sandbox.path).env_remove("XDG_RUNTIME_DIR").output().unwrap()
    };
    let configurations = ["--configurations", "alone,runahead"];
    let output = as_nobody(&[&["smoke-grep"], &configurations[..], &QUICK[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let record = &sandbox.records()[0];
    for run in &record.runs {
        let sample = run.cold.unwrap();
        assert!(run.measured.same && sample.pages >= 200 && sample.resident == 0, "{run:?}");
        // Really cold: each of 200 files takes one request at least.
        assert!(run.measured.device_reads.is_none_or(|reads| reads >= 200), "{run:?}");
    }
    assert!(record.marks.iter().any(|mark| mark.contains("names were not cold")), "{:?}", record.marks);
    let output =
        as_nobody(&[&["smoke-grep", "--profile", "cloud"], &configurations[..], &QUICK[..]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("not root") && said(&output).contains("native"), "{}", said(&output));
    sandbox.wait_until_nothing_is_left();
}

#[test]
fn a_workload_that_fails_does_not_take_the_others_along() {
    let Some(sandbox) = Sandbox::new("failing") else {
        return;
    };
    // Nor does one whose program is not installed.
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let without = sandbox.path.join("bin");
    fs::create_dir_all(&without).unwrap();
    for tool in ["grep", "find", "cp", "mount", "umount", "ldd", "sh", "sync", "blockdev", "gcc", "cat"] {
        let found = path.split(':').map(|folder| Path::new(folder).join(tool)).find(|file| file.is_file());
        found.into_iter().for_each(|file| std::os::unix::fs::symlink(file, without.join(tool)).unwrap());
    }
    let arguments = [&["smoke-find", "agrep", "--configurations", "alone"], &QUICK[..]].concat();
    let output = sandbox.command(&arguments).env("PATH", &without).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("the workload 'agrep' cannot be measured"), "{}", said(&output));
    assert_eq!(sandbox.records().len(), 1, "{}", said(&output));
    fs::remove_file(sandbox.path.join("results.jsonl")).unwrap();
    // The first workload's list names a file that the disk does not have.
    let list = sandbox.path.join("data/small.files");
    let names = fs::read_to_string(&list).unwrap();
    fs::write(&list, names + "small/missing\n").unwrap();
    let output = sandbox.bench(&[&["smoke", "--configurations", "alone"], &QUICK[..]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("the workload 'smoke-grep' failed"), "{}", said(&output));
    let records = sandbox.records();
    assert_eq!((records.len(), records[0].workload.as_str()), (1, "smoke-find"));
    sandbox.wait_until_nothing_is_left();
}

#[test]
fn an_experiment_is_shown_from_what_is_stored() {
    let show = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_runahead-bench")).arg("show").args(arguments).output().unwrap()
    };
    let path = std::env::temp_dir().join(format!("runahead-bench-show-{}.jsonl", std::process::id()));
    fs::write(&path, "").unwrap();
    let output = show(&["table4", &path.to_string_lossy()]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("13037") && said(&output).contains("not measured yet"),
        "{}",
        said(&output)
    );
    fs::remove_file(path).unwrap();
    let output = show(&["table99"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("fig6"), "{}", said(&output));
}

#[test]
fn unknown_names_list_what_exists() {
    let cases: [(&[&str], &str); 4] = [
        (&["solitaire"], "agrep"),
        (&["smoke", "--profile", "floppy"], "array4"),
        (&["smoke", "--configurations", "turbo"], "prefetched"),
        (&["data", "attic"], "kernel"),
    ];
    for (arguments, listed) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_runahead-bench")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(listed), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn the_build_that_copies_the_program_is_asked_for_where_it_is_run() {
    let wanted = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_runahead-bench"))
            .arg("builds")
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    assert_eq!(wanted(&["table3"]), "forked\n");
    assert_eq!(wanted(&["smoke", "--configurations", "alone,forked", "--runs", "1"]), "forked\n");
    assert_eq!(wanted(&["table3", "--configurations", "alone,runahead"]), "");
    assert_eq!(wanted(&["smoke", "--configurations", "forked", "--forked", "/elsewhere"]), "");
}

/// Data sets take minutes to make, and a measurement longer.
#[test]
fn what_cannot_be_is_said_before_any_data_are_made() {
    let Some(sandbox) = Sandbox::new("early") else {
        return;
    };
    let data = sandbox.path.join("no data");
    let refused = |arguments: &[&str], why: &str| {
        let mut command = sandbox.command(&[&["smoke-grep"], arguments].concat());
        let output = command.env("RUNAHEAD_DATA", &data).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
        assert!(!data.exists() && !said(&output).contains("making the data set"), "{}", said(&output));
    };
    refused(&["--fs", "floppyfs", "--profile", "cloud"], "not one of ext4");
    fs::create_dir(sandbox.path.join("results.jsonl")).unwrap();
    refused(&[], "cannot write results to");
    fs::remove_dir(sandbox.path.join("results.jsonl")).unwrap();
}

#[test]
fn a_build_that_is_not_there_is_named() {
    let way = ["smoke-grep", "--configurations", "forked", "--forked", "/nowhere/runahead"];
    let output = Command::new(env!("CARGO_BIN_EXE_runahead-bench")).args(way).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("there is no /nowhere/runahead; ./x bench builds it"),
        "{}",
        said(&output)
    );
}
