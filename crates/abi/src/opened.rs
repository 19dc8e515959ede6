//! Files that the program opens, by name, for the host to remember (`runahead-remembered`).
//!
//! A ring of words with one writer, the agent. An entry is a word that says its kind, its length and the
//! descriptor that the path is relative to, then the path. The writer says how far it is about to write
//! ([`Ring::reserved`]) before it does, and how far it has written ([`Ring::written`]) afterwards: what a
//! reader has copied is what was written, if by then nobody is about to write over it. A reader that is too
//! slow loses entries, which costs speed alone.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Words that the ring holds, a power of two: some hundred paths, and the host comes by 20 times a second, or
/// is rung for a quarter of them.
#[cfg(not(loom))]
pub const WORDS: usize = 2048;
/// Few enough for loom, which tries every order.
#[cfg(loom)]
pub const WORDS: usize = 4;

/// Bytes of the longest path that is entered, without an end; longer ones are none.
#[cfg(not(loom))]
pub const PATH_MOST: usize = 512;
#[cfg(loom)]
pub const PATH_MOST: usize = 8;

/// What the program wants of a name.
pub mod kind {
    /// It opens a file to read it.
    pub const OPENED: u32 = 1;
    /// It opens a directory.
    pub const LISTED: u32 = 2;
    /// It has waited for the look-up.
    pub const LOOKED_UP: u32 = 3;
}

/// What a header word has in its upper byte, so that most garbage is known as such.
const MARK: u64 = 0xa5;

const WORD: usize = size_of::<u64>();

/// One entry, in memory that the program can write: nothing of it is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// One of [`kind`], or garbage.
    pub kind: u32,
    /// A descriptor of the program, or AT_FDCWD.
    pub directory: i32,
    length: usize,
    path: [u8; PATH_MOST],
}

impl Entry {
    /// Relative to `directory` unless absolute. Holds no zero.
    pub fn path(&self) -> &[u8] {
        let path = self.path.get(..self.length).unwrap_or_default();
        path.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

#[repr(C)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub struct Ring {
    /// Words, modulo 2^32, up to which something may be being written over.
    reserved: AtomicU32,
    /// Words written so far, modulo 2^32.
    written: AtomicU32,
    _gap: [u32; 14],
    words: [AtomicU64; WORDS],
}

/// Words of an entry with a path of so many bytes.
const fn words_of(length: usize) -> u32 {
    1 + length.div_ceil(WORD) as u32
}

impl Ring {
    /// Words written so far, modulo 2^32; how far it has read is for the reader to keep.
    pub fn written(&self) -> u32 {
        self.written.load(Ordering::Acquire)
    }

    /// Enters a path; true if the reader had better be told, as another quarter of the ring is full. One
    /// writer at a time. Async-signal-safe.
    pub fn write(&self, kind: u32, directory: i32, path: &[u8]) -> bool {
        if path.len() > PATH_MOST {
            return false;
        }
        let start = self.written.load(Ordering::Relaxed);
        let end = start.wrapping_add(words_of(path.len()));
        self.reserved.store(end, Ordering::Relaxed);
        fence(Ordering::Release);
        let head = MARK << 56
            | u64::from(kind & 0xff) << 48
            | (path.len() as u64) << 32
            | u64::from(directory.cast_unsigned());
        self.word(start).store(head, Ordering::Relaxed);
        for (index, chunk) in path.chunks(WORD).enumerate() {
            let mut bytes = [0u8; WORD];
            for (to, from) in bytes.iter_mut().zip(chunk) {
                *to = *from;
            }
            let at = start.wrapping_add(1 + index as u32);
            self.word(at).store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        self.written.store(end, Ordering::Release);
        const QUARTER: u32 = WORDS as u32 / 4;
        start / QUARTER != end / QUARTER
    }

    /// The entry behind so many words, which are then more; `None` if there is none. Nothing that a program
    /// scribbles there makes it endless: each call reads on, up to where the ring was written.
    pub fn read(&self, read: &mut u32) -> Option<Entry> {
        let written = self.written();
        let ahead = written.wrapping_sub(*read);
        if ahead == 0 {
            return None;
        }
        // Whoever has lost his place begins anew at the end.
        let start = core::mem::replace(read, written);
        if ahead as usize > WORDS {
            return None;
        }
        let head = self.word(start).load(Ordering::Relaxed);
        let length = (head >> 32 & 0xffff) as usize;
        if head >> 56 != MARK || length > PATH_MOST || words_of(length) > ahead {
            return None;
        }
        let mut path = [0u8; PATH_MOST];
        for (index, bytes) in path.chunks_mut(WORD).take(length.div_ceil(WORD)).enumerate() {
            let at = start.wrapping_add(1 + index as u32);
            let word = self.word(at).load(Ordering::Relaxed).to_le_bytes();
            for (to, from) in bytes.iter_mut().zip(word) {
                *to = from;
            }
        }
        fence(Ordering::Acquire);
        if self.reserved.load(Ordering::Relaxed).wrapping_sub(start) as usize > WORDS {
            return None;
        }
        *read = start.wrapping_add(words_of(length));
        Some(Entry { kind: (head >> 48 & 0xff) as u32, directory: head as u32 as i32, length, path })
    }

    fn word(&self, at: u32) -> &AtomicU64 {
        &self.words[at as usize % WORDS]
    }
}

/// Where in the agent's state page (`agent::state::Fixed`) the count stands of openings that may pass unseen.
pub const OPENINGS_AT: usize = 60;

/// As `session::remembering` says it.
pub const OVER: u32 = 3;

/// The host is about to open a file that was opened in an earlier run. True if it may; in any case it counts
/// itself out of `replaying` afterwards.
pub fn begins_to_replay(remembering: &AtomicU32, replaying: &AtomicU32) -> bool {
    replaying.fetch_add(1, Ordering::AcqRel);
    fence(Ordering::SeqCst);
    remembering.load(Ordering::Relaxed) != OVER
}

/// So long after that was said to be over first nobody waits any more for what is still being opened, ns: a
/// host that is stopped or gone never counts itself out, and a program may watch a thousand files.
pub const REPLAY_LONGEST_NS: u64 = 1_000_000_000;

/// From now on nothing is opened but what is counted already, which whoever calls this waits for.
pub fn ends_replay(remembering: &AtomicU32) {
    remembering.store(OVER, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ring() -> Box<Ring> {
        // SAFETY: zeros are the ring's start.
        unsafe { Box::<Ring>::new_zeroed().assume_init() }
    }

    fn all(ring: &Ring, read: &mut u32) -> Vec<(u32, i32, Vec<u8>)> {
        let mut found = Vec::new();
        while ring.written() != *read {
            found.extend(ring.read(read).map(|entry| (entry.kind, entry.directory, entry.path().to_vec())));
        }
        found
    }

    #[test]
    fn what_is_entered_comes_out_once_in_order() {
        let (ring, mut read) = (ring(), 0);
        assert_eq!(ring.read(&mut read), None);
        let longest = vec![b'x'; PATH_MOST];
        let written =
            [(kind::OPENED, -100, b"/a/b".to_vec()), (kind::LISTED, 7, Vec::new()), (3, 4, longest)];
        for (kind, directory, path) in &written {
            ring.write(*kind, *directory, path);
        }
        assert!(!ring.write(kind::OPENED, 1, &[b'x'; PATH_MOST + 1]));
        assert_eq!(all(&ring, &mut read), written);
        assert_eq!(ring.read(&mut read), None);
        ring.write(kind::OPENED, 1, b"/later");
        assert_eq!(all(&ring, &mut read), [(kind::OPENED, 1, b"/later".to_vec())]);
    }

    #[test]
    fn a_reader_that_is_lapped_goes_on_at_the_end() {
        let (ring, mut read) = (ring(), 0);
        let told = (0..3 * WORDS).filter(|_| ring.write(kind::OPENED, 1, b"/a")).count();
        assert!((23..=25).contains(&told), "{told}");
        assert_eq!(all(&ring, &mut read), []);
        ring.write(kind::OPENED, 1, b"/b");
        assert_eq!(all(&ring, &mut read), [(kind::OPENED, 1, b"/b".to_vec())]);
    }

    #[test]
    fn a_path_ends_at_its_first_zero() {
        let (ring, mut read) = (ring(), 0);
        ring.write(kind::OPENED, 1, b"/a\0b");
        assert_eq!(all(&ring, &mut read), [(kind::OPENED, 1, b"/a".to_vec())]);
    }

    #[test]
    fn garbage_is_bounded_and_no_longer_than_a_path() {
        let mut state = 1u64;
        let mut noise = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if state >> 62 == 0 { MARK << 56 | (state >> 20 & 0xff) << 32 | state >> 40 } else { state }
        };
        for _ in 0..200 {
            let (ring, mut read) = (ring(), noise() as u32);
            ring.words.iter().for_each(|word| word.store(noise(), Ordering::Relaxed));
            ring.written.store(noise() as u32, Ordering::Relaxed);
            ring.reserved.store(noise() as u32, Ordering::Relaxed);
            let mut turns = 0;
            while ring.written() != read {
                turns += 1;
                if let Some(entry) = ring.read(&mut read) {
                    assert!(entry.path().len() <= PATH_MOST);
                }
            }
            assert!(turns <= WORDS + 1, "{turns}");
        }
    }
}
