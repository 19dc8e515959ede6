//! Whole disks: set up, used, measured, killed at bad moments, taken down, nothing left.
//!
//! These need root, FUSE and loop devices; without them they say so and do nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use slowdisk::system;

/// A run directory of the test's own, emptied at the end even if the test fails.
struct Sandbox(PathBuf);

impl Sandbox {
    /// `None`, loudly, where disks cannot be emulated.
    fn new(name: &str) -> Option<Sandbox> {
        if let Some(reason) = system::missing() {
            eprintln!("SKIPPED {name}: {reason}");
            return None;
        }
        let path = std::env::temp_dir().join(format!("slowdisk-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Some(Sandbox(path.canonicalize().unwrap()))
    }

    fn slowdisk(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_slowdisk"))
            .args(arguments)
            .env("SLOWDISK_RUN", self.0.join("run"))
            .output()
            .unwrap()
    }

    fn succeeds(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.slowdisk(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "slowdisk {arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn daemon(&self, disk: &str) -> i32 {
        let text = fs::read(self.0.join("run").join(disk).join("pid")).unwrap();
        serde_json::from_slice::<system::Process>(&text).unwrap().id
    }

    /// Mounts below the sandbox, loop devices over its files, run directories of disks.
    fn leftovers(&self) -> Vec<String> {
        let mounts = system::mounts().into_iter().map(|(point, _)| point);
        let mut found: Vec<String> = mounts
            .filter(|point| point.starts_with(&self.0))
            .map(|point| point.display().to_string())
            .collect();
        let loops = system::run("losetup", &["--list", "--noheadings", "--output", "BACK-FILE"]).unwrap();
        found
            .extend(loops.lines().filter(|line| line.contains(&*self.0.to_string_lossy())).map(String::from));
        let run = fs::read_dir(self.0.join("run")).into_iter().flatten().flatten();
        found.extend(
            run.filter(|entry| entry.path().is_dir()).map(|entry| entry.path().display().to_string()),
        );
        found
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.slowdisk(&["down", "--all"]);
        if self.leftovers().is_empty() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

fn kill(id: i32, signal: i32) {
    // SAFETY: a signal to the daemon that this test started.
    assert_eq!(unsafe { libc::kill(id, signal) }, 0);
}

#[test]
fn data_survives_the_page_cache_and_nothing_is_left() {
    let Some(sandbox) = Sandbox::new("data") else {
        return;
    };
    let mount = sandbox.0.join("a new/mount point");
    let state = sandbox.succeeds(&["up", "cloud", "--size", "64M", "--dir", mount.to_str().unwrap()]);
    assert_eq!(state["read_ahead_kb"], 128);
    let data: Vec<u8> = (0..3_000_000u32).flat_map(|number| (number * 2_654_435_761).to_le_bytes()).collect();
    fs::write(mount.join("file"), &data).unwrap();
    // Unmounting and mounting again drops this file system's caches, and no other's.
    let device = state["loop_device"].as_str().unwrap();
    system::run("umount", &[&mount]).unwrap();
    system::run("mount", &[Path::new(device), &mount]).unwrap();
    assert!(fs::read(mount.join("file")).unwrap() == data, "the disk gave back other bytes");
    sandbox.succeeds(&["down", "cloud"]);
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
    assert!(!sandbox.0.join("a new").exists(), "directories that we made go too");
}

/// `flock LOCK slowdisk up` keeps LOCK for the set-up, not for as long as the disk's daemon lives.
#[test]
fn a_disk_does_not_keep_the_lock_it_was_set_up_under() {
    let Some(sandbox) = Sandbox::new("lock") else {
        return;
    };
    let lock = sandbox.0.join("lock");
    let status = Command::new("flock")
        .arg(&lock)
        .args([env!("CARGO_BIN_EXE_slowdisk"), "up", "cloud", "--size", "64M"])
        .env("SLOWDISK_RUN", sandbox.0.join("run"))
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    fs::File::open(&lock).unwrap().try_lock().expect("the daemon holds the lock");
    sandbox.succeeds(&["down", "cloud"]);
}

/// The share of processor time that others take from a thread on each processor that wants all of it.
fn share_withheld() -> f64 {
    const WHOLE: std::time::Duration = std::time::Duration::from_millis(500);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let spin = || {
        let began = std::time::Instant::now();
        while began.elapsed() < WHOLE {}
        // SAFETY: the structure is ours, and the clock is the calling thread's.
        let used = unsafe {
            let mut used: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut used);
            used
        };
        let used = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        1.0 - used / began.elapsed().as_secs_f64()
    };
    let spinning: Vec<_> = (0..threads).map(|_| std::thread::spawn(spin)).collect();
    spinning.into_iter().map(|thread| thread.join().unwrap()).fold(0.0, f64::max)
}

#[test]
fn the_cloud_disk_is_as_slow_as_it_says() {
    let Some(sandbox) = Sandbox::new("check") else {
        return;
    };
    sandbox.succeeds(&["up", "cloud", "--size", "64M"]);
    // On a machine that others use one measurement may be disturbed; three in a row are not, unless it is busy all
    // the time: then the latency is the scheduler's, and there is nothing to judge.
    let mut last = String::new();
    for _ in 0..3 {
        let output = sandbox.slowdisk(&["check", "cloud"]);
        last = String::from_utf8_lossy(&output.stdout).into_owned();
        let verdict: serde_json::Value = serde_json::from_str(&last).unwrap();
        assert_eq!(output.status.success(), verdict["ok"], "exit status and verdict agree");
        if verdict["ok"] == true {
            return;
        }
    }
    let busy = share_withheld();
    if busy > 0.05 {
        eprintln!("NOT JUDGED: this machine withholds {:.0}% of its processors; {last}", 100.0 * busy);
        return;
    }
    panic!("three self-checks failed: {last}");
}

#[test]
fn a_check_of_a_disk_that_lies_fails() {
    let Some(sandbox) = Sandbox::new("liar") else {
        return;
    };
    sandbox.succeeds(&["up", "cloud", "--size", "64M"]);
    let path = sandbox.0.join("run/cloud/state.json");
    let state = fs::read_to_string(&path).unwrap();
    assert!(state.contains("1000000"));
    fs::write(&path, state.replace("1000000", "2000000")).unwrap();
    let output = sandbox.slowdisk(&["check", "cloud"]);
    assert_eq!(output.status.code(), Some(1));
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(verdict["failures"][0].as_str().unwrap().contains("mean latency"), "{verdict}");
}

#[test]
fn a_killed_or_stopped_daemon_leaves_nothing_behind() {
    let Some(sandbox) = Sandbox::new("killed") else {
        return;
    };
    for signal in [libc::SIGKILL, libc::SIGSTOP] {
        for profile in ["cloud", "net"] {
            let state = sandbox.succeeds(&["up", profile, "--size", "64M"]);
            let mount = PathBuf::from(state["mount"].as_str().unwrap());
            if profile == "cloud" {
                fs::write(mount.join("dirty"), vec![7; 5_000_000]).unwrap();
            }
            kill(sandbox.daemon(profile), signal);
            let output = sandbox.slowdisk(&["down", profile]);
            assert!(output.status.success(), "{output:?}");
            assert_eq!(sandbox.leftovers(), Vec::<String>::new(), "{profile}, signal {signal}");
        }
    }
}

/// There may be swap on it, and then a daemon that has to be paged in waits for itself.
#[test]
fn nothing_of_a_daemon_can_be_paged_out() {
    let Some(sandbox) = Sandbox::new("locked") else {
        return;
    };
    sandbox.succeeds(&["up", "cloud", "--size", "64M"]);
    let maps = fs::read_to_string(format!("/proc/{}/smaps", sandbox.daemon("cloud"))).unwrap();
    let (mut area, mut seen) = ("", 0);
    for line in maps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let can_be_paged_out = area.contains(" rw-p ") && !flags.contains(" lo");
            assert!(!can_be_paged_out, "{area}: {flags}");
            seen += 1;
        } else if line.split(' ').next().is_some_and(|word| word.contains('-')) {
            area = line;
        }
    }
    assert!(seen > 10, "{maps}");
    sandbox.succeeds(&["down", "cloud"]);
}

#[test]
fn a_set_up_killed_at_any_moment_can_be_taken_down() {
    let Some(sandbox) = Sandbox::new("halfway") else {
        return;
    };
    for milliseconds in [1, 5, 15, 40, 80, 150, 300] {
        let mut up = Command::new(env!("CARGO_BIN_EXE_slowdisk"))
            .args(["up", "cloud", "--size", "64M"])
            .env("SLOWDISK_RUN", sandbox.0.join("run"))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        up.kill().unwrap();
        up.wait().unwrap();
        let output = sandbox.slowdisk(&["down", "--all"]);
        assert!(output.status.success(), "after {milliseconds} ms: {output:?}");
        // A directory made a moment before its state was written holds nothing and is no disk.
        let left: Vec<_> =
            sandbox.leftovers().into_iter().filter(|left| !left.ends_with("run/cloud")).collect();
        assert_eq!(left, Vec::<String>::new(), "after {milliseconds} ms");
    }
}

#[test]
fn a_network_disk_shows_the_source_read_only() {
    let Some(sandbox) = Sandbox::new("net") else {
        return;
    };
    let source = sandbox.0.join("source");
    fs::create_dir_all(source.join("deep/er")).unwrap();
    fs::write(source.join("deep/er/file"), "over the wire").unwrap();
    std::os::unix::fs::symlink("deep/er/file", source.join("link")).unwrap();
    for number in 0..500 {
        fs::write(source.join(format!("deep/{number}")), number.to_string()).unwrap();
    }
    let arguments = ["up", "net", "--latency-us", "500", "--source", source.to_str().unwrap()];
    let state = sandbox.succeeds(&arguments);
    let mount = PathBuf::from(state["mount"].as_str().unwrap());
    assert_eq!(fs::read_to_string(mount.join("link")).unwrap(), "over the wire");
    assert_eq!(fs::read_dir(mount.join("deep")).unwrap().count(), 501);
    for number in 0..500 {
        assert_eq!(fs::read_to_string(mount.join(format!("deep/{number}"))).unwrap(), number.to_string());
    }
    assert_eq!(fs::write(mount.join("new"), "x").unwrap_err().raw_os_error(), Some(libc::EROFS));
    assert!(mount.join("nothing").symlink_metadata().is_err());
    sandbox.succeeds(&["down", "net"]);
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
    assert!(source.join("deep/er/file").exists(), "the source is the user's");
}

#[test]
fn nothing_of_the_users_is_mounted_over() {
    let Some(sandbox) = Sandbox::new("over") else {
        return;
    };
    let used = sandbox.0.join("used");
    fs::create_dir_all(&used).unwrap();
    fs::write(used.join("thesis"), "years of work").unwrap();
    for directory in [used.to_str().unwrap(), "/proc"] {
        let output = sandbox.slowdisk(&["up", "cloud", "--size", "64M", "--dir", directory]);
        assert_eq!(output.status.code(), Some(2), "{directory}");
    }
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
    assert_eq!(fs::read_to_string(used.join("thesis")).unwrap(), "years of work");
}

#[test]
fn the_native_disk_gets_its_read_ahead_back() {
    let Some(sandbox) = Sandbox::new("native") else {
        return;
    };
    let before = system::read_ahead_file(&sandbox.0).and_then(|file| system::read_number(&file));
    let Ok(before) = before else {
        eprintln!("SKIPPED native: the disk of {} has no read-ahead setting", sandbox.0.display());
        return;
    };
    let directory = sandbox.0.join("native");
    sandbox.succeeds(&["up", "native", "--read-ahead-kb", "64", "--dir", directory.to_str().unwrap()]);
    let file = system::read_ahead_file(&sandbox.0).unwrap();
    assert_eq!(system::read_number(&file).unwrap(), 64);
    sandbox.succeeds(&["down", "native"]);
    assert_eq!(system::read_number(&file).unwrap(), before);
}
