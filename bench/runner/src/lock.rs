//! One measurement at a time on a machine, and none while another drops caches.
//!
//! The lock is a file that other tools may take with flock(1) too. Whoever was started by
//! `flock LOCK ./x bench …` holds it already, through an inherited descriptor, and must not wait for
//! itself.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Once;

use anyhow::{Context, Result};

/// Held while caches are dropped and times are taken.
pub const PATH: &str = "/tmp/runahead-bench.lock";

/// Ends the hold with the value.
pub struct Hold(#[expect(dead_code, reason = "the lock is the open file")] Option<File>);

/// Said once, not at every run.
static WAITING: Once = Once::new();

/// A file to lock, made if it is not there. Another user's will do: one may lock what one may only read,
/// but not open it in a way that could make it, in a directory where everybody may.
pub fn open(path: &Path) -> Result<File> {
    let made = || fs::OpenOptions::new().create_new(true).write(true).open(path);
    // Twice reading: somebody may have made it between the first and ours.
    File::open(path)
        .or_else(|_| made())
        .or_else(|_| File::open(path))
        .with_context(|| format!("cannot open {}", path.display()))
}

/// Waits for the lock, saying so if that takes time.
pub fn hold() -> Result<Hold> {
    let file = open(Path::new(PATH))?;
    if inherited(&file)? {
        return Ok(Hold(None));
    }
    if file.try_lock().is_err() {
        WAITING.call_once(|| {
            let holders = holders(Path::new(PATH));
            let whose = if holders.is_empty() { "another measurement".into() } else { holders.join(", ") };
            eprintln!("bench: waits for {PATH} whenever somebody else holds it; now: {whose}");
        });
        file.lock().with_context(|| format!("cannot lock {PATH}"))?;
    }
    Ok(Hold(Some(file)))
}

/// The processes that have the file open and do not wait for it themselves: whoever locked it, and whoever
/// inherited the locked descriptor, which keeps the lock after its maker's end.
fn holders(path: &Path) -> Vec<String> {
    let Ok(inode) = fs::metadata(path).map(|found| found.ino().to_string()) else {
        return Vec::new();
    };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    // "3: -> FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"
    let waiter = |line: &str| -> Option<String> {
        let fields: Vec<&str> = line.split_once("->")?.1.split_whitespace().collect();
        fields.get(4)?.ends_with(&format!(":{inode}")).then(|| fields[3].to_string())
    };
    let mut others: Vec<String> = locks.lines().filter_map(waiter).collect();
    others.push(std::process::id().to_string());
    let opened = |process: &Path| {
        let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target == path)
    };
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.to_string(), entry.path())))
        .filter(|(id, process)| id.parse::<u32>().is_ok() && !others.contains(id) && opened(process))
        .map(|(id, process)| {
            let words = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
            format!("process {id} ({})", words.replace('\0', " ").trim().chars().take(60).collect::<String>())
        })
        .collect()
}

/// Whether a descriptor of the same file was open before we opened ours.
fn inherited(ours: &File) -> Result<bool> {
    let ours_is = ours.metadata()?;
    let number = std::os::fd::AsRawFd::as_raw_fd(ours).to_string();
    let descriptors = fs::read_dir("/proc/self/fd").context("cannot read /proc/self/fd")?.flatten();
    Ok(descriptors
        .filter(|entry| entry.file_name().to_string_lossy() != number.as_str())
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .any(|other| (other.dev(), other.ino()) == (ours_is.dev(), ours_is.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn who_holds_a_lock_is_named_and_who_waits_is_not() {
        let path = std::env::temp_dir().join(format!("runahead-bench-lock-{}", std::process::id()));
        drop(open(&path).unwrap());
        // cat ends when its input does.
        let start = || {
            Command::new("flock")
                .arg(&path)
                .arg("cat")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        let wait_for = |wanted: &dyn Fn(&[String]) -> bool| {
            let deadline = Instant::now() + Duration::from_secs(10);
            while !wanted(&holders(&path)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            let found = holders(&path);
            assert!(wanted(&found), "{found:?}");
        };
        let mut first = start();
        let named =
            |found: &[String], id: u32| found.iter().any(|one| one.contains(&format!("process {id} ")));
        wait_for(&|found| found.iter().any(|one| one.ends_with("(cat)")));
        let mut second = start();
        let waits = |id: u32| {
            let locks = fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|line| line.contains("->") && line.contains(&format!(" {id} ")))
        };
        wait_for(&|found| waits(second.id()) && named(found, first.id()) && !named(found, second.id()));
        drop(first.stdin.take());
        first.wait().unwrap();
        wait_for(&|found| named(found, second.id()));
        drop(second.stdin.take());
        second.wait().unwrap();
        assert_eq!(holders(&path), Vec::<String>::new());
        fs::remove_file(path).unwrap();
    }
}
