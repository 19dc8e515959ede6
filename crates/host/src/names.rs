//! Notes of the agents, taken to the threads that look names up ahead.
//!
//! The programs of a run share one pool: what one looks up is what the next will find. A note's path is
//! resolved as its program would resolve it, through the program's own entries in /proc.

use crate::session::Shared;
use crate::supervise::wake;
use runahead_abi::names::{NOTES, Note};
use runahead_abi::session::{Slot, names_ahead};
use runahead_names::Lookahead;
use runahead_names::pool::Done;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long stopping may take: some look-ups of a slow network.
const STOP_LONGEST: Duration = Duration::from_millis(100);

/// The pool, and what programs that have ended had done.
pub struct Names {
    lookahead: Lookahead,
    ended: Arc<[AtomicU64; 2]>,
}

impl Names {
    pub fn new(session: Shared) -> Names {
        let ended = Arc::new([const { AtomicU64::new(0) }; 2]);
        let before = ended.clone();
        let done = move || {
            let mut done = Done {
                looked_up: before[0].load(Ordering::Relaxed),
                listed: before[1].load(Ordering::Relaxed),
            };
            for slot in session.owned_slots() {
                let counts = &slot.agent.counts;
                done.looked_up = done.looked_up.wrapping_add(counts.names.load(Ordering::Relaxed));
                done.listed = done.listed.wrapping_add(counts.listings.load(Ordering::Relaxed));
            }
            done
        };
        Names { lookahead: Lookahead::new(done), ended }
    }

    /// Takes the notes that the agent in `slot` has left since `read` of them were read; returns how many
    /// were left so far.
    pub fn take(&mut self, process: u32, slot: &Slot, read: u32) -> u32 {
        let ring = &slot.agent.names;
        let written = ring.written();
        // Of more notes than the ring holds only the last are there.
        let first =
            if written.wrapping_sub(read) > NOTES as u32 { written.wrapping_sub(NOTES as u32) } else { read };
        let mut at = first;
        while at != written {
            if let Some(note) = ring.read(at) {
                self.lookahead.note(path(process, &note));
            }
            at = at.wrapping_add(1);
        }
        if written != 0 && slot.speculator.names_ahead.load(Ordering::Relaxed) != names_ahead::GONE {
            if self.lookahead.is_pointless() {
                self.retire(slot);
            } else {
                let busy = written != read || self.lookahead.is_busy();
                let ahead = if busy { names_ahead::BUSY } else { names_ahead::IDLE };
                slot.speculator.names_ahead.store(ahead, Ordering::Relaxed);
            }
        }
        written
    }

    /// The program in `slot` is about to end, or cannot bear that its directories are open: stops. Programs of
    /// the same run that go on will leave notes again.
    pub fn retire(&self, slot: &Slot) {
        let ahead = &slot.speculator.names_ahead;
        if slot.agent.names.written() != 0
            && ahead.load(Ordering::Relaxed) != names_ahead::GONE
            && self.lookahead.stop(STOP_LONGEST)
        {
            ahead.store(names_ahead::GONE, Ordering::Release);
            wake(ahead);
        }
    }

    /// A program has ended; its slot is about to be cleared.
    pub fn part(&self, slot: &Slot) {
        self.ended[0].fetch_add(slot.agent.counts.names.load(Ordering::Relaxed), Ordering::Relaxed);
        self.ended[1].fetch_add(slot.agent.counts.listings.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Names looked up and directories listed ahead so far.
    pub fn looked_up(&self) -> u64 {
        self.lookahead.looked_up()
    }
}

/// Where a note's directory is to be found from here.
fn path(process: u32, note: &Note) -> PathBuf {
    let name = note.path.split(|&byte| byte == 0).next().unwrap_or_default();
    let name = OsStr::from_bytes(name);
    let base = PathBuf::from(format!("/proc/{process}"));
    if let Some(b'/') = name.as_bytes().first() {
        let mut whole = base.join("root").into_os_string();
        whole.push(name);
        return whole.into();
    }
    let base =
        if note.directory < 0 { base.join("cwd") } else { base.join(format!("fd/{}", note.directory)) };
    // With a slash at the end the link itself is followed.
    base.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_abi::names::{PATH_BYTES, kind};

    fn note(directory: i32, text: &[u8]) -> Note {
        let mut path = [0; PATH_BYTES];
        path[..text.len()].copy_from_slice(text);
        Note { kind: kind::LOOKED_UP, directory, path }
    }

    #[test]
    fn paths_are_the_programs() {
        assert_eq!(path(7, &note(3, b"")), PathBuf::from("/proc/7/fd/3/"));
        assert_eq!(path(7, &note(3, b"a/b")), PathBuf::from("/proc/7/fd/3/a/b"));
        assert_eq!(path(7, &note(-100, b"a")), PathBuf::from("/proc/7/cwd/a"));
        assert_eq!(path(7, &note(3, b"/usr/lib")), PathBuf::from("/proc/7/root/usr/lib"));
    }
}
