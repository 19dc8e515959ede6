//! Programs that watch who opens files (inotify(7), fanotify(7)) and whose calls nobody sees.
//!
//! A program that is helped says itself that it begins to watch, before it does (`agent::attach::watches`). One that
//! is left alone does not, so it is looked at: whoever was left alone in the run ([`Unseen`]), and whoever has
//! started, at whatever distance, the process that something is to be opened for. (A watch that begins between the
//! look and the opening is missed.)

use crate::futex::wake;
use runahead_abi::release::{SEEN_BY_FANOTIFY, SEEN_BY_INOTIFY};
use runahead_abi::session::Header;
use runahead_gate::Gate;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Processes above one that are looked at, at most: a build has ten.
const ABOVE_MOST: usize = 32;

/// Who is looked for.
#[derive(Clone, Copy)]
pub(crate) struct Watchers {
    header: &'static Header,
    gate: Gate,
    counts: bool,
}

impl Watchers {
    /// `is_lasting`: where all of a user's programs are served nobody goes without for one that watches.
    pub(crate) fn new(header: &'static Header, gate: Gate, is_lasting: bool) -> Watchers {
        Watchers { header, gate, counts: !is_lasting }
    }

    /// Looks at those that were left alone, and at those above `process`, before something is opened for that. If
    /// one watches nothing is opened from now on.
    pub(crate) fn look_above(self, process: u32) {
        self.look_at_unseen();
        let mut next = process;
        for _ in 0..ABOVE_MOST {
            // Beyond the command it is nobody's of the run's.
            if !self.looks() || next == self.header.main_process.load(Ordering::Relaxed) {
                return;
            }
            next = match parent(next) {
                Some(above) if above > 1 && above != std::process::id() => above,
                _ => return,
            };
            self.look_at(next);
        }
    }

    /// Looks at those that were left alone.
    pub(crate) fn look_at_unseen(self) {
        for place in &self.header.unseen.0 {
            let process = place.load(Ordering::Relaxed);
            if process != 0 && self.looks() && !self.look_at(process) {
                let _ = place.compare_exchange(process, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    fn looks(self) -> bool {
        self.counts && !self.gate.is_watched()
    }

    /// False: there is no such process any more.
    fn look_at(self, process: u32) -> bool {
        match watches(process) {
            Ok(true) => {
                self.header.releasing.begins_to_watch();
                self.header.doorbell.fetch_add(1, Ordering::Release);
                wake(&self.header.doorbell);
                true
            }
            Ok(false) => true,
            // One that we may not look at is there.
            Err(error) => error.kind() == ErrorKind::PermissionDenied,
        }
    }
}

/// Who has started the process, or has it now.
fn parent(process: u32) -> Option<u32> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may hold anything: it ends at the last parenthesis.
    line.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Whether the process has a descriptor by which it is told who opens files.
fn watches(process: u32) -> std::io::Result<bool> {
    let directory = Path::new("/proc").join(process.to_string());
    for entry in fs::read_dir(directory.join("fd"))? {
        let entry = entry?;
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let target = target.as_os_str().as_encoded_bytes();
        if target.starts_with(b"anon_inode:") && target.ends_with(b"notify") || target.ends_with(b"notify]") {
            let told =
                fs::read_to_string(directory.join("fdinfo").join(entry.file_name())).unwrap_or_default();
            if told.lines().any(is_seen_by) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether a line of `/proc/<pid>/fdinfo/<fd>` is a mark of one who is told of openings (the kernel's
/// Documentation/filesystems/proc.rst).
fn is_seen_by(line: &str) -> bool {
    let Some((kind, _)) = line.split_once(' ') else { return false };
    let seen = match kind {
        "inotify" => u64::from(SEEN_BY_INOTIFY),
        "fanotify" => SEEN_BY_FANOTIFY,
        _ => return false,
    };
    let mask = line.split(' ').find_map(|field| field.strip_prefix("mask:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & seen != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn lines_of_marks_tell_who_watches() {
        let inotify = "inotify wd:3 ino:9e7e sdev:800013 mask:800afce ignored_mask:0 fhandle-bytes:8";
        assert!(is_seen_by("inotify wd:1 ino:2 sdev:3 mask:20 ignored_mask:0"));
        assert!(!is_seen_by("inotify wd:1 ino:2 sdev:3 mask:2 ignored_mask:20"));
        assert!(is_seen_by("fanotify mnt_id:12 mflags:0 mask:10000 ignored_mask:0"));
        assert!(!is_seen_by("fanotify flags:10 event-flags:20") && !is_seen_by("pos:\t0") && !is_seen_by(""));
        assert!(!is_seen_by(inotify), "only changes");
    }

    #[test]
    fn who_watches_is_found() {
        let us = std::process::id();
        assert!(!watches(us).unwrap());
        // SAFETY: takes no pointer.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_CLOEXEC) };
        assert!(descriptor >= 0 && !watches(us).unwrap(), "it watches nothing yet");
        let place = CString::new("/").unwrap();
        // SAFETY: a string that lives as long as the call.
        assert!(unsafe { libc::inotify_add_watch(descriptor, place.as_ptr(), libc::IN_OPEN) } > 0);
        assert!(watches(us).unwrap());
        // SAFETY: ours.
        unsafe { libc::close(descriptor) };
        assert!(watches(u32::MAX >> 1).is_err());
        assert_eq!(parent(us), Some(std::os::unix::process::parent_id()));
    }
}
