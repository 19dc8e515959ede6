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

/// Waits for the lock, saying so if that takes time.
pub fn hold() -> Result<Hold> {
    let path = Path::new(PATH);
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open {PATH}"))?;
    if inherited(&file)? {
        return Ok(Hold(None));
    }
    if file.try_lock().is_err() {
        WAITING.call_once(|| eprintln!("bench: waits for {PATH} when another measurement holds it"));
        file.lock().with_context(|| format!("cannot lock {PATH}"))?;
    }
    Ok(Hold(Some(file)))
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
