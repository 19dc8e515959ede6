//! Takes down what a session leaves when it is killed.
//!
//! A session starts a second process of this program, which reads a pipe that only the session and the
//! commands that help it (swapon, losetup, cp) have open for writing. When the session ends, however it ends, its
//! helpers are killed and the pipe ends: the guard then ends the runs' processes, turns off their swap, takes down the
//! bench's disks (which gives the machine's own disk its read-ahead back) and removes the scratch directory. After an
//! orderly end it finds nothing to do. If the guard is killed as well, the next session begins with the same clean-up.
//!
//! A helper that went on would undo what the guard does: a swapon that was in the kernel when its session was
//! interrupted turned swap on when the guard had found none; the disk below it then went, and its loop device stayed
//! for as long as that swap, which nobody could turn off any more.

use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use slowdisk::control::{self, Ask};
use slowdisk::read_ahead::Ledger;
use slowdisk::system::Process;

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
        let input = child.stdin.take();
        if let Some(input) = &input {
            // SAFETY: a request about a descriptor of our own. From now on whatever we start inherits it, but for runs
            // and daemons, which see to that themselves.
            unsafe { libc::fcntl(input.as_raw_fd(), libc::F_SETFD, 0) };
        }
        Ok(Guard { input, child })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// How long the helpers of a session that has ended may go on. They are killed with it, but one may wait in the kernel for
/// a disk that has to be taken down first.
const HELPERS: Duration = Duration::from_secs(30);

/// The guard's own life.
pub fn guard() -> Result<()> {
    slowdisk::system::ignore_requests_to_end();
    wait_for_end();
    let left = clean_up();
    for line in &left {
        eprintln!("bench: still there: {line}");
    }
    anyhow::ensure!(left.is_empty(), "not everything could be taken down");
    Ok(())
}

/// Until the pipe ends, or the session alone has been gone for long.
fn wait_for_end() {
    // SAFETY: getppid has no preconditions and cannot fail.
    let session = Process::find(unsafe { libc::getppid() });
    let mut gone: Option<Instant> = None;
    let mut pipe = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, in a value of our own.
    while unsafe { libc::poll(&mut pipe, 1, 1000) } <= 0 {
        if session.is_some_and(|session| !session.lives())
            && gone.get_or_insert_with(Instant::now).elapsed() > HELPERS
        {
            return;
        }
    }
    // Any end of the pipe will do, an error too.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// The bench's disks that are set up.
fn disks() -> impl Iterator<Item = String> {
    slowdisk::state::names().into_iter().filter(|name| name.starts_with(DISK_PREFIX))
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
    for name in disks() {
        // Pages come back from swap one after another: minutes, were the disk as slow as it says.
        let _ = control::ask(&slowdisk::state::directory(&name).join("socket"), Ask::Paced(false));
    }
    let mut left = memory::clean_up(&instance());
    if !left.is_empty() {
        // A disk that goes while there is swap on it takes away the way to turn that off.
        return left;
    }
    for name in disks() {
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
