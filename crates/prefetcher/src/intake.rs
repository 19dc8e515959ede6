//! The intake: takes hints from any thread of the program, without waiting.
//!
//! Hints come in batches; a batch is one element of a bounded lock-free queue, its paths copied into one
//! buffer. What does not fit (in number or in bytes) is dropped and counted: the giver is then further ahead
//! than anything could use.
//!
//! A hint that repeats one of the last seconds is dropped on the spot, since its data are cached or under
//! way: a table of hashes, without locks, in which a newer hint replaces an older one. Only paths are
//! remembered so: descriptor numbers and addresses are used again for other things at once.
//!
//! Cancelling overtakes: each batch carries the number under which it came in, and a cancellation concerns
//! everything that came before it.

use crate::doorbell::Doorbell;
use crossbeam_queue::ArrayQueue;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;

/// Batches that may wait.
const BATCHES: usize = 4096;

/// Bytes that waiting batches may take: some 50,000 hints with paths. Our whole memory is a few times this.
const BYTES: usize = 8 << 20;

/// Longest path that is taken: the kernel's own limit, its final zero included.
const LONGEST: usize = 4096;

/// Places in the table of recent hints.
const RECENT: usize = 4096;

/// How long a hint counts as recent: less than any cache keeps what has just been read. (The machine that
/// we measure on gives up idle cache after some 10 s.)
const RECENT_SECONDS: u64 = 4;

/// Which thing is disclosed.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// A file by its path, relative to the working directory at the time when the hint is taken up.
    Path(&'a [u8]),
    /// A file by a descriptor of this process.
    Descriptor(i32),
    /// A range of this process's memory that is mapped from a file or swapped; `offset` is the address.
    Memory,
    /// A name to look up; offset and length have no meaning.
    Name(&'a [u8], Lookup),
}

/// What will be done with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// `stat`, `open`, `access`: the name leads to its inode.
    Stat,
    /// `readlink`.
    Link,
    /// The directory will be listed.
    List,
    /// It will be listed, and each entry looked up.
    Entries,
}

/// One disclosure: bytes `offset..offset + length` of the place (length 0: to its end). `token` is the
/// giver's own mark, to cancel by; 0 is as good as any.
#[derive(Clone, Copy, Debug)]
pub struct Hint<'a> {
    pub place: Place<'a>,
    pub offset: u64,
    pub length: u64,
    pub token: u64,
}

/// What is done at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Path,
    Descriptor(i32),
    Memory,
    Name(Lookup),
    /// The page cache may drop it.
    ReleasePath,
    ReleaseDescriptor(i32),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub action: Action,
    pub offset: u64,
    pub length: u64,
    pub token: u64,
    /// Where the path ends in the batch's buffer; it begins where the item's before ends.
    path_end: u32,
}

/// Hints that came in together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub number: u64,
    pub items: Vec<Item>,
    paths: Vec<u8>,
}

impl Batch {
    pub fn path(&self, index: usize) -> &[u8] {
        let begin = index.checked_sub(1).map_or(0, |before| self.items[before].path_end as usize);
        &self.paths[begin..self.items[index].path_end as usize]
    }

    /// Makes room for one more item with a path of this length, and for `more` like it at the first. False: there is
    /// no memory, which must not end the program.
    #[inline]
    fn has_room(&mut self, length: usize, more: usize) -> bool {
        let fits = self.paths.capacity() - self.paths.len() >= length;
        (fits && self.items.capacity() > self.items.len()) || self.grows(length, more)
    }

    #[cold]
    fn grows(&mut self, length: usize, more: usize) -> bool {
        let first = self.paths.capacity() == 0 && length > 0;
        let wanted = if first { length + length * more.min(1024) } else { length };
        self.items.try_reserve(1).is_ok() && self.paths.try_reserve(wanted).is_ok()
    }

    fn bytes(&self) -> usize {
        size_of::<Batch>() + self.items.len() * size_of::<Item>() + self.paths.len()
    }
}

/// What is to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cancel {
    All,
    Token(u64),
    Path(Vec<u8>),
}

impl Cancel {
    /// Hints for this path. None: no hint can have had it. Without memory for it, all are forgotten.
    pub fn path(path: &[u8]) -> Option<Cancel> {
        if path.len() >= LONGEST {
            return None;
        }
        let mut own = Vec::new();
        if own.try_reserve_exact(path.len()).is_err() {
            return Some(Cancel::All);
        }
        own.extend_from_slice(path);
        Some(Cancel::Path(own))
    }
}

/// What became of the hints, in hints unless said otherwise.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What became of the hints, in hints unless said otherwise. All are totals of this process.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Debug, Default)]
        pub(crate) struct AtomicCounts { $(pub $name: AtomicU64,)* }

        impl AtomicCounts {
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Given, all in all.
    hints,
    /// Repeated ones of the last seconds, dropped without a system call.
    repeated,
    /// Dropped because too much waited.
    overflowed,
    /// Dropped because they make no sense: absurd offsets, empty or overlong paths, places behind the end, memory that is
    /// not there. (Of memory that is there in part only the rest is dropped: see `unmapped_pages`.)
    absurd,
    /// Dropped because there is no such file, or we may not read it.
    unreadable,
    /// Dropped because it is no regular file: a directory, FIFO, device, socket, or made up by the kernel, as in `/proc`.
    not_a_file,
    /// Taken back before they were carried out.
    cancelled,
    /// Pages found in the page cache.
    cached_pages,
    /// Pages asked for.
    asked_pages,
    /// Pages of long sequential runs, left to the kernel's read-ahead.
    left_pages,
    /// Pages that the program is thought to have read after they were fetched.
    used_pages,
    /// Pages that were fetched and that nobody seems to have read.
    unused_pages,
    /// Names looked up.
    names,
    /// Pages released.
    released_pages,
    /// Most requests in flight at once.
    most_in_flight,
    /// Jobs carried out.
    jobs,
    /// Pages of hints for memory where nothing is mapped.
    unmapped_pages,
}

/// Adds, async-signal-safe.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

pub(crate) struct Intake {
    batches: ArrayQueue<Batch>,
    bytes: AtomicUsize,
    number: AtomicU64,
    cancels: ArrayQueue<(u64, Cancel)>,
    recent: Box<[AtomicU64]>,
    /// Mixed into the hashes; a cancellation changes it, so that what was cancelled can be hinted again.
    salt: AtomicU64,
    pub counts: AtomicCounts,
    bell: Doorbell,
    manager: OnceLock<Thread>,
    closed: AtomicBool,
}

impl Intake {
    pub fn new() -> Self {
        Self {
            batches: ArrayQueue::new(BATCHES),
            bytes: AtomicUsize::new(0),
            number: AtomicU64::new(0),
            cancels: ArrayQueue::new(64),
            recent: (0..RECENT).map(|_| AtomicU64::new(0)).collect(),
            salt: AtomicU64::new(0),
            counts: AtomicCounts::default(),
            bell: Doorbell::new(),
            manager: OnceLock::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Takes hints in; never waits.
    pub fn hint(&self, hints: &[Hint]) {
        let now = coarse_seconds();
        self.take_in(hints.len(), |index| {
            let Hint { place, offset, length, token } = hints[index];
            let (action, path) = match place {
                Place::Path(path) => (Action::Path, path),
                Place::Descriptor(number) => (Action::Descriptor(number), [].as_slice()),
                Place::Memory => (Action::Memory, [].as_slice()),
                Place::Name(path, lookup) => (Action::Name(lookup), path),
            };
            let named = matches!(action, Action::Path | Action::Name(_));
            let sane = match named {
                true => !path.is_empty() && path.len() < LONGEST && !path.contains(&0),
                false => !matches!(action, Action::Descriptor(number) if number < 0),
            };
            if !sane || offset > i64::MAX as u64 || length > i64::MAX as u64 {
                add(&self.counts.absurd, 1);
                return None;
            }
            if named && self.is_recent(path, action, offset, length, now) {
                add(&self.counts.repeated, 1);
                return None;
            }
            Some((action, path, offset, length, token))
        });
    }

    /// What is not needed any more.
    pub fn release(&self, place: Place, offset: u64, length: u64) {
        let (action, path) = match place {
            Place::Path(path) => (Action::ReleasePath, path),
            Place::Descriptor(number) => (Action::ReleaseDescriptor(number), [].as_slice()),
            Place::Memory | Place::Name(..) => return add(&self.counts.absurd, 1),
        };
        // What is released may be hinted again at once.
        self.forget_recent();
        let sane = path.len() < LONGEST && !path.contains(&0);
        self.take_in(1, |_| sane.then_some((action, path, offset, length, 0)));
    }

    fn take_in<'a>(&self, count: usize, item: impl Fn(usize) -> Option<(Action, &'a [u8], u64, u64, u64)>) {
        add(&self.counts.hints, count as u64);
        if self.bytes.load(Ordering::Relaxed) > BYTES || self.batches.is_full() {
            return add(&self.counts.overflowed, count as u64);
        }
        let mut batch = Batch { number: 0, items: Vec::new(), paths: Vec::new() };
        if batch.items.try_reserve_exact(count.min(1024)).is_err() {
            return add(&self.counts.overflowed, count as u64);
        }
        for index in 0..count {
            if let Some((action, path, offset, length, token)) = item(index) {
                // A giver of one huge batch is bounded like a giver of many.
                if batch.items.len() * size_of::<Item>() + batch.paths.len() > BYTES / 4 {
                    add(&self.counts.overflowed, 1);
                    continue;
                }
                if !batch.has_room(path.len(), count - index - 1) {
                    add(&self.counts.overflowed, 1);
                    continue;
                }
                batch.paths.extend_from_slice(path);
                let path_end = batch.paths.len() as u32;
                batch.items.push(Item { action, offset, length, token, path_end });
            }
        }
        if batch.items.is_empty() {
            return;
        }
        batch.number = self.number.fetch_add(1, Ordering::Relaxed);
        let (bytes, items) = (batch.bytes(), batch.items.len() as u64);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.batches.push(batch).is_err() {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return add(&self.counts.overflowed, items);
        }
        self.wake();
    }

    /// Forgets hints that came before.
    pub fn cancel(&self, cancel: Cancel) {
        self.forget_recent();
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        // Too many at once: the oldest gives way, and the manager then forgets everything before it.
        if self.cancels.force_push((number, cancel)).is_some() {
            self.cancels.force_push((number, Cancel::All));
        }
        self.wake();
    }

    fn forget_recent(&self) {
        self.salt.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    }

    fn wake(&self) {
        if self.bell.ring()
            && let Some(manager) = self.manager.get()
        {
            manager.unpark();
        }
    }

    fn is_recent(&self, path: &[u8], action: Action, offset: u64, length: u64, now: u64) -> bool {
        let kind = match action {
            Action::Name(lookup) => 1 + lookup as u64,
            _ => 0,
        };
        let salt = self.salt.load(Ordering::Relaxed);
        let hash = hash(path, &[kind, offset, length, salt]);
        // The upper bits are the hint, the lower ones the second in which it came.
        let entry = hash & !0xffff | now & 0xffff;
        let place = &self.recent[hash as usize % RECENT];
        let before = place.load(Ordering::Relaxed);
        if before & !0xffff == entry & !0xffff && (now.wrapping_sub(before) & 0xffff) < RECENT_SECONDS {
            return true;
        }
        place.store(entry, Ordering::Relaxed);
        false
    }

    /// The next batch. Manager only.
    pub fn next(&self) -> Option<Batch> {
        let batch = self.batches.pop()?;
        self.bytes.fetch_sub(batch.bytes(), Ordering::Relaxed);
        Some(batch)
    }

    pub fn next_cancel(&self) -> Option<(u64, Cancel)> {
        self.cancels.pop()
    }

    pub fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.cancels.is_empty()
    }

    /// The manager is to end.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.cancel(Cancel::All);
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The calling thread is the manager: it is woken from now on.
    pub fn serve(&self) {
        let _ = self.manager.set(std::thread::current());
    }

    /// Sleeps until something comes in, if nothing has.
    pub fn sleep(&self, most: Option<std::time::Duration>) {
        self.bell.doze();
        if self.is_empty() {
            match most {
                Some(most) => std::thread::park_timeout(most),
                None => std::thread::park(),
            }
        }
        self.bell.awake();
    }
}

/// Seconds of a clock that does not run backwards; a few nanoseconds, no system call.
fn coarse_seconds() -> u64 {
    rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse).tv_sec as u64
}

/// Eight bytes at a time: some ten nanoseconds for a path.
fn hash(path: &[u8], numbers: &[u64; 4]) -> u64 {
    let mix = |sum: u64, word: u64| {
        let product = u128::from(sum ^ word) * 0x9e37_79b9_7f4a_7c15;
        (product >> 64) as u64 ^ product as u64
    };
    let mut sum =
        numbers.iter().fold(path.len() as u64 ^ 0xcbf2_9ce4_8422_2325, |sum, &number| mix(sum, number));
    let mut words = path.chunks_exact(8);
    for word in &mut words {
        sum = mix(
            sum,
            u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]),
        );
    }
    let rest = words.remainder().iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    mix(mix(sum, rest), 0x2545_f491_4f6c_dd1d)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &[u8], offset: u64, length: u64) -> Hint<'_> {
        Hint { place: Place::Path(path), offset, length, token: 0 }
    }

    #[test]
    fn what_came_in_comes_out_with_its_path() {
        let intake = Intake::new();
        intake.hint(&[path(b"/a", 1, 2), path(b"/bcd", 3, 4)]);
        let batch = intake.next().unwrap();
        assert_eq!((batch.path(0), batch.path(1)), (&b"/a"[..], &b"/bcd"[..]));
        assert_eq!((batch.items[1].offset, batch.items[1].length), (3, 4));
        assert!(intake.next().is_none());
        assert_eq!(intake.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn repeated_hints_are_dropped_until_they_are_cancelled_or_released() {
        let intake = Intake::new();
        let hint = path(b"/some/where/else", 0, 0);
        intake.hint(&[hint, hint, path(b"/some/where/else", 4096, 0)]);
        assert_eq!(intake.next().unwrap().items.len(), 2);
        intake.cancel(Cancel::All);
        intake.hint(&[hint]);
        assert!(intake.next().is_some());
        intake.release(Place::Path(b"/x"), 0, 0);
        intake.hint(&[hint]);
        intake.next();
        assert!(intake.next().is_some());
        let counts = intake.counts.read();
        assert_eq!((counts.hints, counts.repeated), (6, 1));
    }

    #[test]
    fn no_path_is_kept_that_no_hint_can_have() {
        assert_eq!(Cancel::path(b"/a"), Some(Cancel::Path(b"/a".to_vec())));
        assert_eq!(Cancel::path(&vec![b'a'; LONGEST]), None);
    }

    #[test]
    fn nonsense_is_counted() {
        let intake = Intake::new();
        let long = vec![b'a'; LONGEST];
        intake.hint(&[path(b"", 0, 0), path(&long, 0, 0), path(b"a\0b", 0, 0), path(b"/a", u64::MAX, 1)]);
        intake.hint(&[Hint { place: Place::Descriptor(-1), offset: 0, length: 0, token: 0 }]);
        intake.hint(&[path(b"/a", 0, u64::MAX)]);
        assert_eq!(intake.counts.read().absurd, 6);
        assert!(intake.is_empty());
    }

    #[test]
    fn a_million_hints_that_nobody_takes_are_bounded() {
        let intake = Intake::new();
        let name = b"/a/path/of/usual/length/with/a/few/parts/file".repeat(4);
        for offset in 0..1_000_000 {
            intake.hint(&[path(&name, offset, 1)]);
        }
        let counts = intake.counts.read();
        assert!(counts.overflowed > 900_000, "{counts:?}");
        assert!(intake.bytes.load(Ordering::Relaxed) < BYTES + 100_000);
        let hints: Vec<Hint> = (0..1_000_000).map(|offset| path(&name, offset, 2)).collect();
        while intake.next().is_some() {}
        intake.hint(&hints);
        assert!(intake.bytes.load(Ordering::Relaxed) < BYTES);
        // Large batches are bounded by their bytes long before their number.
        for hints in hints.chunks(1000) {
            intake.hint(hints);
        }
        assert!(intake.bytes.load(Ordering::Relaxed) < BYTES + BYTES / 2);
    }
}
