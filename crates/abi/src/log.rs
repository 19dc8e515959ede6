//! The hint log: what the speculator passed, in order.
//!
//! A ring in shared memory, written by one speculator, read by one agent. Each entry names one
//! operation that the program is expected to do next, the way the program itself will name it:
//! descriptor and length, not file and block, so that comparing costs some tens of nanoseconds and
//! no system call.
//!
//! An entry is valid for (epoch, position) only if its tag says so. The tag is stored last (release),
//! so a reader that finds it finds the rest as well. Tags of earlier epochs are simply wrong and need
//! no clearing.
//!
//! Each thread that is run ahead of has a part of the ring to itself, its *lane*.
//!
//! The agent takes everything here as untrusted: the worst that a wrong entry can do is a wrong
//! decision about when to sync.

use crate::sync::{AtomicU64, Ordering, fence};

/// Threads of a process that may be run ahead of at a time. Each costs a post's memory in the slot and a part
/// of the log.
pub const LANES: usize = 4;

/// Entries in the ring, a power of two.
#[cfg(not(loom))]
pub const LOG_ENTRIES: usize = 4096;
/// Few enough for loom, which tries every order: here the writer does lap the reader.
#[cfg(loom)]
pub const LOG_ENTRIES: usize = 2 * LANES;

/// Entries of each lane, a power of two: above the greatest depth (see `policy::depth`), so the writer never
/// laps the reader.
pub const LANE_ENTRIES: usize = LOG_ENTRIES / LANES;

/// What kind of operation an entry predicts.
pub mod kind {
    /// A read at the descriptor's own position: `subject` is the descriptor, `detail` the bytes that are asked for. In the
    /// log `place` is how many of them came.
    pub const READ: u8 = 1;
    /// A read at a given offset: `subject` is the descriptor, `detail` the bytes, `place` the offset.
    pub const READ_AT: u8 = 2;
    /// A name looked up: `subject` is the call's number, `detail` a hash of the path.
    pub const NAME: u8 = 3;
    /// The first touch of a page of a mapped file: `place` is its address. Only in the log of touches.
    pub const TOUCH: u8 = 4;
}

/// Bits that say what the speculator did for the operation.
pub mod mark {
    /// Some of it was not in the page cache: a prefetch was issued.
    pub const PREFETCHED: u8 = 1;
    /// It is memory of the program's own that is on swap: somebody else has to bring it in.
    pub const ON_SWAP: u8 = 2;
    /// Beside the first: alone the program would have waited here.
    pub const SPARES: u8 = 4;
}

/// One predicted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    pub kind: u8,
    pub marks: u8,
    /// In the log: which file is read, see [`file_mark`]; 0: not known.
    pub file: u16,
    pub subject: i32,
    pub detail: u64,
    pub place: u64,
}

impl Prediction {
    /// Whether the program's operation `self` is the one that `predicted` foretold (marks aside).
    ///
    /// A read at the descriptor's own position goes on where the last one ended, whatever its length; and
    /// the length that a program asks for often follows from data that speculation did not have (how much
    /// of a line is left in a buffer: grep, ripgrep). So there the descriptor alone decides.
    pub fn same_operation(&self, predicted: &Prediction) -> bool {
        let at_own_position = self.kind == kind::READ;
        self.kind == predicted.kind
            && self.subject == predicted.subject
            && (at_own_position || (self.detail == predicted.detail && self.place == predicted.place))
    }

    /// The same where both say which file it is. Threads that share work open each other's files, under
    /// whichever number.
    pub fn same_read(&self, predicted: &Prediction) -> bool {
        if self.file == 0 || predicted.file == 0 {
            return self.same_operation(predicted);
        }
        let at_own_position = self.kind == kind::READ;
        self.kind == predicted.kind
            && self.file == predicted.file
            && (at_own_position || (self.detail == predicted.detail && self.place == predicted.place))
    }

    /// How many bytes of the program's read `self` come, if `predicted` foretold it and tells.
    pub fn bytes_foretold(&self, predicted: &Prediction) -> Option<u64> {
        let ends = predicted.place < predicted.detail;
        let bytes = if ends { self.detail.min(predicted.place) } else { self.detail };
        (predicted.kind == kind::READ).then_some(bytes)
    }
}

#[repr(C)]
#[derive(Debug, Default)]
pub struct Entry {
    tag: AtomicU64,
    what: AtomicU64,
    detail: AtomicU64,
    place: AtomicU64,
}

#[repr(C)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub struct Log {
    entries: [Entry; LOG_ENTRIES],
}

impl Log {
    fn tag(epoch: u32, position: u32) -> u64 {
        // Position + 1, so that a fresh (zero) ring is valid for no epoch, 0 included.
        (u64::from(epoch) << 32) | u64::from(position.wrapping_add(1))
    }

    /// Writes the prediction for `position` of `epoch`. Speculator only; async-signal-safe.
    pub fn write(&self, epoch: u32, position: u32, prediction: &Prediction) {
        Self::write_entry(&self.entries[position as usize % LOG_ENTRIES], epoch, position, prediction);
    }

    /// The same, in lane `lane`.
    pub fn write_lane(&self, lane: usize, epoch: u32, position: u32, prediction: &Prediction) {
        Self::write_entry(&self.entries[Self::in_lane(lane, position)], epoch, position, prediction);
    }

    fn in_lane(lane: usize, position: u32) -> usize {
        (lane % LANES) * LANE_ENTRIES + position as usize % LANE_ENTRIES
    }

    fn write_entry(entry: &Entry, epoch: u32, position: u32, prediction: &Prediction) {
        // Invalid while it changes: a reader that still wants the old position must not see a mixture.
        entry.tag.store(0, Ordering::Release);
        fence(Ordering::Release);
        let what = u64::from(prediction.kind)
            | (u64::from(prediction.marks) << 8)
            | (u64::from(prediction.file) << 16)
            | (u64::from(prediction.subject as u32) << 32);
        entry.what.store(what, Ordering::Relaxed);
        entry.detail.store(prediction.detail, Ordering::Relaxed);
        entry.place.store(prediction.place, Ordering::Relaxed);
        entry.tag.store(Self::tag(epoch, position), Ordering::Release);
    }

    /// The prediction for `position` of `epoch`; None if it is not there (yet).
    pub fn read(&self, epoch: u32, position: u32) -> Option<Prediction> {
        Self::read_entry(&self.entries[position as usize % LOG_ENTRIES], epoch, position)
    }

    /// The same, in lane `lane`.
    pub fn read_lane(&self, lane: usize, epoch: u32, position: u32) -> Option<Prediction> {
        Self::read_entry(&self.entries[Self::in_lane(lane, position)], epoch, position)
    }

    fn read_entry(entry: &Entry, epoch: u32, position: u32) -> Option<Prediction> {
        let wanted = Self::tag(epoch, position);
        if entry.tag.load(Ordering::Acquire) != wanted {
            return None;
        }
        let what = entry.what.load(Ordering::Relaxed);
        let prediction = Prediction {
            kind: what as u8,
            marks: (what >> 8) as u8,
            file: (what >> 16) as u16,
            subject: (what >> 32) as i32,
            detail: entry.detail.load(Ordering::Relaxed),
            place: entry.place.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (entry.tag.load(Ordering::Relaxed) == wanted).then_some(prediction)
    }
}

/// Tells files apart, mostly.
pub fn file_mark(device: u64, inode: u64) -> u16 {
    let mixed = (inode ^ device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 48) as u16).max(1)
}

/// The hash of a path as the program gave it, for [`kind::NAME`] predictions.
pub fn name_hash(directory: i32, path: &[u8]) -> u64 {
    let seed = 0xcbf2_9ce4_8422_2325u64 ^ u64::from(directory as u32);
    path.iter().fold(seed, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ring() -> Box<Log> {
        // SAFETY: all zeros is a valid ring: every entry's tag is 0.
        unsafe { Box::<Log>::new_zeroed().assume_init() }
    }

    #[test]
    fn what_was_written_is_read_for_its_epoch_and_position_only() {
        let log = ring();
        let p = Prediction { kind: kind::READ, marks: 1, file: 0, subject: -1, detail: u64::MAX, place: 7 };
        assert_eq!(log.read(0, 0), None);
        log.write(3, 5, &p);
        assert_eq!(log.read(3, 5), Some(p));
        assert_eq!(log.read(2, 5), None);
        assert_eq!(log.read(3, 5 + LOG_ENTRIES as u32), None);
        assert_eq!(log.read(3, 4), None);
    }

    #[test]
    fn a_known_file_counts_and_not_its_number() {
        let read =
            |file, subject| Prediction { kind: kind::READ, marks: 0, file, subject, detail: 1, place: 0 };
        assert!(read(7, 3).same_read(&read(7, 4)) && !read(7, 3).same_read(&read(8, 3)));
        assert!(read(0, 3).same_read(&read(8, 3)) && !read(7, 3).same_read(&read(0, 4)));
        let at = |file, place| Prediction { kind: kind::READ_AT, place, ..read(file, 3) };
        assert!(
            at(7, 1).same_read(&at(7, 1))
                && !at(7, 1).same_read(&at(7, 2))
                && !at(7, 0).same_read(&read(7, 3))
        );
    }

    #[test]
    fn lanes_are_kept_apart() {
        let log = ring();
        let p = Prediction { kind: kind::READ, marks: 1, file: 9, subject: 3, detail: 5, place: 7 };
        log.write_lane(1, 3, 5, &p);
        assert_eq!(log.read_lane(1, 3, 5), Some(p));
        assert_eq!(log.read_lane(0, 3, 5), None);
        assert_eq!(log.read_lane(1, 3, 5 + LANE_ENTRIES as u32), None);
        assert_eq!(log.read_lane(1 + LANES, 3, 5), Some(p), "any number is one of a lane");
    }

    #[test]
    fn a_read_gives_no_more_than_the_file_had_when_it_was_foretold() {
        let read =
            |detail, place| Prediction { kind: kind::READ, marks: 0, file: 0, subject: 3, detail, place };
        assert_eq!(read(131_072, 0).bytes_foretold(&read(131_072, 5000)), Some(5000));
        assert_eq!(read(100, 0).bytes_foretold(&read(131_072, 5000)), Some(100));
        // Speculation has not met the end: more may come than it asked for.
        assert_eq!(read(4096, 0).bytes_foretold(&read(100, 100)), Some(4096));
        let at = Prediction { kind: kind::READ_AT, ..read(4096, 8192) };
        assert_eq!(at.bytes_foretold(&at), None, "`place` is the offset there");
    }
}
