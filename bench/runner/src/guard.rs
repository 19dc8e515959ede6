//! Takes down what a session leaves when it is killed.
//!
//! A session starts a second process of this program, which reads a pipe that only the session can
//! write to. When the session ends, however it ends, the pipe does: the guard then takes down the
//! bench's disks (which gives the machine's own disk its read-ahead back), ends the runs' processes and
//! removes the scratch directory. After an orderly end it finds nothing to do. If the guard is killed as
//! well, the next session begins with the same clean-up.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result};
use slowdisk::read_ahead::Ledger;

use crate::{group, memory};

/// The bench's disks begin with this; others' are left alone.
pub const DISK_PREFIX: &str = "bench-";

/// The first argument with which this program becomes a guard.
pub const COMMAND: &str = "guard-until-end-of-input";

/// Tells the things of one session at a time from those of tests: `$RUNAHEAD_BENCH_INSTANCE`.
pub fn instance() -> String {
    std::env::var("RUNAHEAD_BENCH_INSTANCE").unwrap_or_else(|_| "session".into())
}

/// Where runs write what they must: in memory, so that no disk is in the way.
pub fn scratch() -> PathBuf {
    PathBuf::from(format!("/dev/shm/runahead-bench-{}", instance()))
}

/// A session's guard; its pipe ends with the value, or with the process.
pub struct Guard {
    input: Option<ChildStdin>,
    child: Child,
}

impl Guard {
    pub fn start() -> Result<Guard> {
        let program = std::env::current_exe().context("cannot find our own program")?;
        let mut command = Command::new(program);
        command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::null()).current_dir("/");
        // SAFETY: detach is async-signal-safe and touches no memory. In a session of its own, the guard is
        // not reached by an interrupt from the terminal.
        unsafe { command.pre_exec(slowdisk::system::detach) };
        let mut child = command.spawn().context("cannot start the guard")?;
        Ok(Guard { input: child.stdin.take(), child })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// The guard's own life.
pub fn guard() -> Result<()> {
    // Any end of the pipe will do, an error too.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let left = clean_up();
    for line in &left {
        eprintln!("bench: still there: {line}");
    }
    anyhow::ensure!(left.is_empty(), "not everything could be taken down");
    Ok(())
}

/// Takes down whatever sessions of the bench have left. Returns what is still there.
pub fn clean_up() -> Vec<String> {
    // Processes first: they may hold files of the disks. Then swap on a disk, then the disk.
    for entry in
        group::mount_point().and_then(|point| fs::read_dir(point).ok()).into_iter().flatten().flatten()
    {
        if entry.file_name().to_string_lossy().starts_with(&group::prefix(&instance())) {
            group::dissolve(&entry.path());
        }
    }
    let mut left = memory::clean_up(&instance());
    if !left.is_empty() {
        // A disk that goes while there is swap on it takes away the way to turn that off.
        return left;
    }
    for name in slowdisk::state::names().into_iter().filter(|name| name.starts_with(DISK_PREFIX)) {
        match slowdisk::teardown::down(&name) {
            Ok(undone) => left.extend(undone.left),
            // A killed session's guard may be at it as well, and be done before us.
            Err(_) if !slowdisk::state::names().contains(&name) => {}
            Err(error) => left.push(format!("the disk '{name}': {error:#}")),
        }
    }
    if slowdisk::system::is_root() {
        left.extend(Ledger::of_machine().restore_abandoned());
    }
    empty(&scratch());
    let _ = fs::remove_dir(scratch());
    left
}

/// Removes what is in the directory, not the directory.
pub fn empty(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let _ = if entry.path().is_dir() {
            fs::remove_dir_all(entry.path())
        } else {
            fs::remove_file(entry.path())
        };
    }
}
