//! Garbage in the memory that Runahead's processes share, written while they work.
//!
//! The session is a memfd that the host holds; whoever may look into the host's `/proc/PID/fd` may map it
//! too. A [`Scribbler`] finds it below a run's supervisor and writes all over the header and the first
//! slots: all ones, zeros, numbers that are nearly right, single bits turned, whole pages of noise.

use nix::unistd::Pid;
use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// What is scribbled over, bytes from the start of the session: the header and several slots, more than
/// the victims have processes at a time.
const REACH: usize = 1 << 20;

/// Words written at each visit.
const WORDS: usize = 4000;

/// The session's memory, mapped.
pub struct Scribbler {
    memory: *mut u64,
    words: usize,
}

impl Scribbler {
    /// The session of the host `process`, if it is one and has it open.
    pub fn find(process: Pid) -> Option<Scribbler> {
        let path = session_of(process)?;
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let length = REACH.min(file.metadata().ok()?.len() as usize);
        if length == 0 {
            return None;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that is at least as long.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        (memory != libc::MAP_FAILED).then(|| Scribbler { memory: memory.cast(), words: length / 8 })
    }

    /// Scribbles for some ten microseconds. `dice` gives evenly distributed numbers.
    pub fn scribble(&self, mut dice: impl FnMut() -> u64) {
        let everywhere = dice().is_multiple_of(4);
        // Most of it where it matters: a slot's log is far larger than all the rest.
        let first = if everywhere { 0 } else { dice() as usize % self.words / 512 * 512 };
        let range = if everywhere { self.words } else { 1536.min(self.words - first) };
        for _ in 0..WORDS {
            let at = first + dice() as usize % range;
            // SAFETY: inside the mapping; others write there at the same time, which is the point.
            let word = unsafe { self.memory.add(at) };
            // SAFETY: as above.
            let old = unsafe { word.read_volatile() };
            let new = match dice() % 8 {
                0 => 0,
                1 => u64::MAX,
                2 => dice(),
                3 => old ^ (1 << (dice() % 64)),
                4 => old.wrapping_add(1),
                5 => dice() % 64,
                6 => old.rotate_left(32),
                _ => dice() | 0x7fff_0000_0000_0000,
            };
            // SAFETY: as above.
            unsafe { word.write_volatile(new) };
        }
    }
}

impl Drop for Scribbler {
    fn drop(&mut self) {
        // SAFETY: mapped by `find` with this length, used by nobody else.
        unsafe { libc::munmap(self.memory.cast(), self.words * 8) };
    }
}

/// The descriptor through which a process holds the session.
fn session_of(process: Pid) -> Option<PathBuf> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    descriptors.flatten().map(|entry| entry.path()).find(|path| {
        fs::read_link(path)
            .is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:runahead-session"))
    })
}
