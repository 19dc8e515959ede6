//! A control group around each run: its processor time holds every process of the run, waited for or
//! not, and none of the machine's others; and nothing of a run can stay behind.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What the names of all groups of one owner begin with.
pub fn prefix(owner: &str) -> String {
    format!("runahead-bench-{owner}-")
}

/// Makes the names of one process's groups differ.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// One run's group (cgroup v2). Removed with the value.
pub struct Group {
    path: PathBuf,
    /// Open before the fork, so that the child only has to write.
    processes: File,
}

/// Where version 2 of control groups is mounted, if it is.
pub fn mount_point() -> Option<PathBuf> {
    slowdisk::system::mounts().into_iter().find(|(_, kind)| kind == "cgroup2").map(|(point, _)| point)
}

impl Group {
    /// `owner` tells whose it is, for whoever cleans up after a kill. `None` where groups are not to be had; then only the waited-for processes' time is known.
    pub fn new(owner: &str) -> Option<Group> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = mount_point()?.join(format!("{}{}-{number}", prefix(owner), std::process::id()));
        fs::create_dir(&path).ok()?;
        let processes = fs::OpenOptions::new().write(true).open(path.join("cgroup.procs")).ok()?;
        Some(Group { path, processes })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What a child writes to join: "0" to this descriptor. Valid as long as the group.
    pub fn entrance(&self) -> i32 {
        self.processes.as_raw_fd()
    }

    /// Processor time of everything that ran in it, in seconds.
    pub fn processor_seconds(&self) -> Result<f64> {
        let text =
            fs::read_to_string(self.path.join("cpu.stat")).context("cannot read the run's processor time")?;
        let microseconds =
            text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<f64>().ok());
        Ok(microseconds.context("the run's control group has no usage_usec")? / 1e6)
    }

    /// Ends whoever is in it.
    pub fn kill(&self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
    }

    /// Waits until nobody is left, at most `patience`. `false`: somebody is.
    pub fn wait_until_empty(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let text = fs::read_to_string(self.path.join("cgroup.events")).unwrap_or_default();
            if text.contains("populated 0") {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        dissolve(&self.path);
    }
}

/// Ends whoever is in the group and removes it.
pub fn dissolve(path: &Path) {
    let _ = fs::write(path.join("cgroup.kill"), "1");
    let deadline = Instant::now() + Duration::from_secs(2);
    // A group goes when its last process is reaped, a moment after it was killed.
    while fs::remove_dir(path).is_err() && path.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_counts_processor_time_and_goes() {
        let Some(group) = Group::new("unit-test") else {
            eprintln!("SKIPPED: no version 2 control groups for this user");
            return;
        };
        assert_eq!(group.processor_seconds().unwrap(), 0.0);
        assert!(group.wait_until_empty(Duration::ZERO));
        let path = group.path.clone();
        assert!(path.exists());
        drop(group);
        assert!(!path.exists());
    }
}
