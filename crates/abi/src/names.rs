//! Notes about names: which directories the program has met with a cold name cache.
//!
//! A program that walks a tree waits for each directory and for each file's inode, one after another. No
//! speculation helps against that, as it would look the names up one after another too; but a directory
//! says what its names are. So where look-ups turn out to be slow the agent leaves a note, of a directory that is listed or
//! of a name, and the host looks up many at a time: the program's arguments behind that name if it is one of them, else
//! the names in its directory.
//!
//! Files are noted here too where the program waits for the first bytes of one: the host may ask for those beside it
//! (`runahead-companions`).
//!
//! The speculator looks names up before its program does, so where it runs ahead the agent sees nothing that waits. It
//! leaves notes of its own.
//!
//! A ring has one writer, the agent or the speculator: entries, then their number. A reader that is too slow loses notes,
//! and finds that out by [`Ring::read`].

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Notes that the ring holds. The host takes a note within a fraction of a look-up's time; a program's
/// threads leave one at a time.
#[cfg(not(loom))]
pub const NOTES: usize = 32;
/// Few and short enough for loom, which tries every order.
#[cfg(loom)]
pub const NOTES: usize = 2;

/// Bytes of the longest path in a note, terminating zero included.
#[cfg(not(loom))]
pub const PATH_BYTES: usize = 232;
#[cfg(loom)]
pub const PATH_BYTES: usize = 16;

/// What a note says.
pub mod kind {
    /// The program has listed the directory behind a descriptor.
    pub const LISTED: u32 = 1;
    /// The program, or the speculator ahead of it, has waited for a name: a path from a descriptor of the program's or
    /// AT_FDCWD.
    pub const LOOKED_UP: u32 = 2;
    /// The program waits for the first bytes of the file behind a descriptor, which nobody foretold; with its path as the
    /// kernel names it (absolute), if that is known.
    pub const READ: u32 = 3;
    /// The program looks names up in many threads at once. Said now and then; in place of a path [`Note::device`].
    pub const HELPS_ITSELF: u32 = 4;
}

/// The directory part of a path.
pub fn directory_of(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        None => &[],
        Some(0) => b"/",
        Some(end) => path.get(..end).unwrap_or(&[]),
    }
}

/// Whether a name that is looked up from `directory` may be one that the program was given: no other is relative to an open
/// directory.
pub fn may_be_argument(directory: i32, path: &[u8]) -> bool {
    directory < 0 || path.first() == Some(&b'/')
}

/// Tells one directory from another, nearly always; never 0.
pub fn directory_mark(directory: i32, path: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    path.iter().fold(mix(1, directory as u32 as u64), |hash, &byte| mix(hash, u64::from(byte))) | 1
}

/// One note, in memory that the program can write: nothing of it is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// One of [`kind`].
    pub kind: u32,
    /// A descriptor of the program, or AT_FDCWD.
    pub directory: i32,
    /// What [`crate::release::Releasing::generation`] was as it was left.
    pub generation: u32,
    /// Relative to `directory` unless absolute; ends before the first zero, which is always there. Empty:
    /// the directory itself.
    pub path: [u8; PATH_BYTES],
}

impl Note {
    /// `st_dev` of what the program has looked up last, in a note that it helps itself.
    pub fn device(&self) -> u64 {
        self.path.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// The `st_dev` of a device of these numbers (`new_encode_dev` in the kernel's include/linux/kdev_t.h).
pub const fn device_number(major: u32, minor: u32) -> u64 {
    ((minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12) as u64
}

#[repr(C)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
struct Entry {
    /// Number of the note that the entry holds, from 1; 0 while it is being written.
    number: AtomicU32,
    kind: AtomicU32,
    directory: AtomicU32,
    generation: AtomicU32,
    path: [AtomicU64; PATH_BYTES / 8],
}

#[repr(C)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub struct Ring {
    /// Notes written so far.
    written: AtomicU32,
    _gap: [u32; 15],
    entries: [Entry; NOTES],
}

impl Ring {
    /// Notes written so far, modulo 2^32. The number of the next to be read is for the reader to keep.
    pub fn written(&self) -> u32 {
        self.written.load(Ordering::Acquire)
    }

    /// Leaves a note; `generation`: as in [`Note`]. One writer at a time. Async-signal-safe.
    pub fn write(&self, kind: u32, directory: i32, path: &[u8], generation: u32) {
        let number = self.written.load(Ordering::Relaxed).wrapping_add(1);
        let entry = &self.entries[number as usize % NOTES];
        entry.number.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        entry.kind.store(kind, Ordering::Relaxed);
        entry.directory.store(directory as u32, Ordering::Relaxed);
        entry.generation.store(generation, Ordering::Relaxed);
        for (index, word) in entry.path.iter().enumerate() {
            let mut bytes = [0u8; 8];
            for (to, from) in bytes.iter_mut().zip(path.iter().take(PATH_BYTES - 1).skip(8 * index)) {
                *to = *from;
            }
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        entry.number.store(number, Ordering::Release);
        self.written.store(number, Ordering::Release);
    }

    /// The note that was written after `before` others; `None` if it is gone, or not there yet.
    pub fn read(&self, before: u32) -> Option<Note> {
        let number = before.wrapping_add(1);
        let entry = &self.entries[number as usize % NOTES];
        if entry.number.load(Ordering::Acquire) != number {
            return None;
        }
        let mut path = [0u8; PATH_BYTES];
        for (to, word) in path.chunks_exact_mut(8).zip(&entry.path) {
            to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        path[PATH_BYTES - 1] = 0;
        let kind = entry.kind.load(Ordering::Relaxed);
        let directory = entry.directory.load(Ordering::Relaxed) as i32;
        let generation = entry.generation.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (entry.number.load(Ordering::Relaxed) == number).then_some(Note { kind, directory, generation, path })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ring() -> Box<Ring> {
        // SAFETY: zeros are the ring's start.
        unsafe { Box::<Ring>::new_zeroed().assume_init() }
    }

    fn path(note: &Note) -> &[u8] {
        note.path.split(|&byte| byte == 0).next().unwrap()
    }

    #[test]
    fn what_is_written_is_read_once_in_order() {
        let ring = ring();
        assert_eq!(ring.read(0), None);
        ring.write(kind::LISTED, 7, b"", 0);
        ring.write(kind::LOOKED_UP, -100, b"a/rather/long/path", 5);
        assert_eq!(ring.written(), 2);
        let note = ring.read(0).unwrap();
        assert_eq!((note.kind, note.directory, path(&note)), (kind::LISTED, 7, &b""[..]));
        let note = ring.read(1).unwrap();
        assert_eq!(
            (note.kind, note.directory, note.generation, path(&note)),
            (kind::LOOKED_UP, -100, 5, &b"a/rather/long/path"[..])
        );
        assert_eq!(ring.read(2), None);
    }

    #[test]
    fn directories_of_paths() {
        assert_eq!(directory_of(b"a"), b"");
        assert_eq!(directory_of(b"a/b"), b"a");
        assert_eq!(directory_of(b"/a"), b"/");
        assert_eq!(directory_of(b"/a/b/c"), b"/a/b");
        assert_ne!(directory_mark(3, b"a"), directory_mark(4, b"a"));
        assert_ne!(directory_mark(3, b"a"), directory_mark(3, b"b"));
    }

    #[test]
    fn a_slow_reader_finds_out() {
        let ring = ring();
        for fd in 0..NOTES as i32 + 1 {
            ring.write(kind::LISTED, fd, b"", 0);
        }
        assert_eq!(ring.read(0), None);
        assert_eq!(ring.read(1).unwrap().directory, 1);
    }

    #[test]
    fn a_path_that_is_too_long_is_cut_and_ends() {
        let ring = ring();
        ring.write(kind::LOOKED_UP, 3, &[b'x'; 500], 0);
        assert_eq!(path(&ring.read(0).unwrap()).len(), PATH_BYTES - 1);
    }
}
