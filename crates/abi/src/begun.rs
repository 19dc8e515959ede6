//! Files that the program begins to read, by inode number: so that the host knows whether what it asked for on a guess
//! is wanted.
//!
//! A ring that only the agent writes, and only while the host wants to know. A reader that is too slow loses entries, which
//! makes it think less of its guesses.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries that the ring holds. The host comes by at each wait of the program, and is called each
/// [`CALLED_EVERY`] entries.
pub const FILES: usize = 128;

/// Entries after which the agent calls the host.
pub const CALLED_EVERY: u32 = FILES as u32 / 4;

/// A file: device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    pub device: u64,
    pub inode: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct Ring {
    /// Entries written so far, modulo 2^32.
    written: AtomicU32,
    generation: AtomicU32,
    entries: [[AtomicU64; 2]; FILES],
}

impl Ring {
    /// Enters a file; `generation`: as [`crate::release::Releasing::generation`] is. One writer at a time.
    /// Async-signal-safe.
    pub fn write(&self, file: File, generation: u32) {
        let written = self.written.load(Ordering::Relaxed);
        let [device, inode] = &self.entries[written as usize % FILES];
        device.store(file.device, Ordering::Relaxed);
        inode.store(file.inode, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
        self.written.store(written.wrapping_add(1), Ordering::Release);
    }

    /// The generation as of the last entry, or of the one before it.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    pub fn written(&self) -> u32 {
        self.written.load(Ordering::Acquire)
    }

    /// The files entered since `read` were, and how many were in all. One that is overwritten meanwhile may come out as
    /// two halves of different files, which are no file.
    pub fn since(&self, read: u32) -> (impl Iterator<Item = File>, u32) {
        let written = self.written();
        let first =
            if written.wrapping_sub(read) > FILES as u32 { written.wrapping_sub(FILES as u32) } else { read };
        let files = (0..written.wrapping_sub(first)).map(move |index| {
            let [device, inode] = &self.entries[first.wrapping_add(index) as usize % FILES];
            File { device: device.load(Ordering::Relaxed), inode: inode.load(Ordering::Relaxed) }
        });
        (files, written)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_entered_comes_out_once_and_the_oldest_are_lost() {
        // SAFETY: zeros are the ring's start.
        let ring: Box<Ring> = unsafe { Box::new_zeroed().assume_init() };
        let file = |inode| File { device: 7, inode };
        ring.write(file(1), 0);
        ring.write(file(2), 3);
        let (files, read) = ring.since(0);
        assert_eq!((files.collect::<Vec<_>>(), ring.generation()), (vec![file(1), file(2)], 3));
        assert_eq!(ring.since(read).0.count(), 0);
        (0..FILES as u64 + 5).for_each(|inode| ring.write(file(inode), 3));
        let (files, read) = ring.since(read);
        let files: Vec<_> = files.collect();
        assert_eq!((files.len(), files[0]), (FILES, file(5)));
        assert_eq!(read, FILES as u32 + 7);
        // Nothing that a program scribbles there makes it endless.
        assert!(ring.since(u32::MAX).0.count() <= FILES);
    }
}
