//! Whole sessions with a stand-in for Runahead, on small data of their own.
//!
//! They need root, FUSE and loop devices; without them they say so and do nothing. They drop caches, and
//! so wait for whoever measures on the machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
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
                    echo '{\"stand\": \"in\"}' > \"$3\"; shift 4\n";
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
        let groups = runahead_bench::group::mount_point().and_then(|point| fs::read_dir(point).ok());
        let groups = groups.into_iter().flatten().flatten().map(|entry| entry.path().display().to_string());
        found.extend(groups.filter(|group| inside(group)));
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
        let deadline = Instant::now() + Duration::from_secs(20);
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
    let all = "alone,runahead,ignored,prefetched,readahead-0,alone-one-core,runahead-one-core,alone-warm,runahead-warm";
    // The stand-in knows --no-speculate as little as any other option.
    sandbox.subject("[ \"$1\" = -- ] && shift; exec \"$@\"");
    let arguments = [&["smoke", "--profile", "cloud", "--configurations", all], &QUICK[..]].concat();
    let output = sandbox.bench(&arguments);
    assert!(output.status.success(), "{}", said(&output));
    sandbox.wait_until_nothing_is_left();
    let records = sandbox.records();
    assert_eq!(records.len(), 2);
    let grep = &records[0];
    assert_eq!((grep.workload.as_str(), grep.subject.as_str()), ("smoke-grep", "stand-in 1"));
    assert_eq!(grep.runs.len(), 9);
    assert!(grep.runs.iter().all(|run| run.measured.same), "{grep:?}");
    let of = |name: &str| grep.runs.iter().find(|run| run.configuration == name).unwrap();
    assert_eq!(of("runahead").report, Some(serde_json::json!({ "stand": "in" })));
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

#[test]
fn a_killed_session_leaves_nothing_behind() {
    let Some(sandbox) = Sandbox::new("killed") else {
        return;
    };
    // The command under the subject never ends by itself.
    sandbox.subject("sleep 1000");
    let before = system::read_ahead_file(&sandbox.path).and_then(|file| system::read_number(&file)).ok();
    for profile in ["cloud", "native"] {
        let arguments = ["smoke-grep", "--profile", profile, "--configurations", "runahead", "--runs", "1"];
        let mut session: Child =
            sandbox.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let running = |sandbox: &Sandbox| sandbox.leftovers().iter().any(|left| left.contains("sleep 1000"));
        // The lock may be held for long by whoever measures on this machine; alone, it takes a second.
        let deadline = Instant::now() + Duration::from_secs(900);
        while !running(&sandbox) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(running(&sandbox), "{profile}: the run never began");
        session.kill().unwrap();
        session.wait().unwrap();
        sandbox.wait_until_nothing_is_left();
        let after = system::read_ahead_file(&sandbox.path).and_then(|file| system::read_number(&file)).ok();
        assert_eq!(before, after, "{profile}: the disk has its read-ahead back");
    }
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
