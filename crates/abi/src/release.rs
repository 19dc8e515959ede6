//! Giving back: what the program has closed, removed or unmounted is nobody's of ours either.
//!
//! Whoever of ours opens a file of a program's (a speculator, a thread of the host's) first says so in a word of
//! its own and then looks whether somebody is giving back. Whoever gives back says so first and then looks at
//! those words. With a fence between, at least one sees the other: so a call that gives back is made only when
//! nobody holds anything, and nobody opens anything until it has been made.
//!
//! - [`Releasing`], in the session's header: the calls under way, of all the session's programs. An agent that is
//!   killed in the middle of one leaves its count, so a count is believed up to a time only.
//! - [`Holding`]: how much somebody holds. One for each speculator, two for the host.
//! - [`Numbers`]: the program's descriptors behind which its speculator holds the same file. A program that
//!   closes one counts that ([`Closings`]) and then looks here; the speculator says so here and then looks at that
//!   count, which must be what it was when it read which descriptors there are.
//!
//! The fences are what makes it exact: loom tries every order (`tests/loom.rs`).

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// What a call gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A file or a name: whoever has the file open keeps its space, and on some file systems its name.
    Files,
    /// A whole file system: who holds a directory, or is looking a name up, keeps it busy.
    All,
    /// A mapping, perhaps the last of a file that has no name any more.
    Mapping,
}

/// How long is waited for those who hold something before a program that does not ask
/// ([`Releasing::begins_unasked`]), ns.
pub const UNASKED_LONGEST_NS: u64 = 20_000_000;

/// How long past its end a call that gives back is believed in, ns: past the next time that anybody looks at
/// it.
pub const BELIEVED_NS: u64 = 1_000_000_000;

/// What opening and reading files ahead does to them, as inotify(7) tells it: IN_ACCESS, IN_CLOSE_NOWRITE,
/// IN_OPEN. (Most programs watch for changes only.)
pub const SEEN_BY_INOTIFY: u32 = 0x1 | 0x10 | 0x20;

/// The same for fanotify(7), by linux/fanotify.h: FAN_ACCESS, FAN_CLOSE_NOWRITE, FAN_OPEN, FAN_OPEN_EXEC, and
/// those that ask for permission, or before data are read (FAN_PRE_ACCESS).
pub const SEEN_BY_FANOTIFY: u64 = 0x1 | 0x10 | 0x20 | 0x1000 | 0x10000 | 0x20000 | 0x40000 | 0x10_0000;

/// In the count of those who notice: one of them watches, and is told of code as well, on which nobody has a
/// lease that readers break.
const WATCHED: u32 = 1 << 31;

/// The calls under way that give something back.
#[repr(C)]
#[derive(Debug)]
#[cfg_attr(any(loom, test), derive(Default))]
pub struct Releasing {
    files: AtomicU32,
    all: AtomicU32,
    mappings: AtomicU32,
    /// How often programs have begun to notice who opens files for reading, and [`WATCHED`].
    noticing: AtomicU32,
    /// How often a program has begun that gives back without asking ([`Releasing::begins_unasked`]).
    unasked: AtomicU32,
    /// Up to when the counts are believed (monotonic ns).
    until: AtomicU64,
}

impl Releasing {
    fn count(&self, what: What) -> &AtomicU32 {
        match what {
            What::Files => &self.files,
            What::All => &self.all,
            What::Mapping => &self.mappings,
        }
    }

    /// A call begins, and is over by `until` (monotonic ns), or nobody waits for it any more. Whoever calls this
    /// then looks at every [`Holding`] that matters.
    pub fn begins(&self, what: What, until: u64) {
        self.until.fetch_max(until, Ordering::Relaxed);
        self.count(what).fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// A call that has begun is waited for until `until` (monotonic ns).
    pub fn lasts(&self, until: u64) {
        self.until.fetch_max(until, Ordering::Relaxed);
    }

    /// The call has been made.
    pub fn ends(&self, what: What) {
        let less = |count: u32| count.checked_sub(1);
        let _ = self.count(what).fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
    }

    /// Whether a holder of such things may hold none at present; `now`: monotonic ns.
    pub fn forbids(&self, what: What, now: impl FnOnce() -> u64) -> bool {
        let count = |one: What| self.count(one).load(Ordering::Acquire);
        let counts = match what {
            What::All => count(What::All),
            What::Files => count(What::All) | count(What::Files),
            What::Mapping => count(What::All) | count(What::Files) | count(What::Mapping),
        };
        counts != 0 && now() < self.until.load(Ordering::Relaxed)
    }

    /// A program is about to begin that gives back without asking. What was to be opened for whoever was there
    /// before is to be dropped: it is not opened when that is over and nobody holds anything. Whoever calls
    /// this then begins to give back all ([`Releasing::begins`]).
    pub fn begins_unasked(&self) {
        self.unasked.fetch_add(1, Ordering::AcqRel);
    }

    /// How often that has been so. Whoever takes hold of something, and then finds what it was as that was
    /// to be opened, is waited for.
    pub fn generation(&self) -> u32 {
        self.unasked.load(Ordering::Acquire)
    }

    /// A program is about to notice who opens files for reading: it takes a lease that is broken so, or watches.
    /// Whoever calls this then looks at every [`Holding`].
    pub fn begins_to_notice(&self) {
        self.noticing.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// The same of who watches: that is so until nobody notices any more.
    pub fn begins_to_watch(&self) {
        let next = |noticing: u32| Some(noticing.wrapping_add(1) | WATCHED);
        let _ = self.noticing.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        fence(Ordering::SeqCst);
    }

    /// Whether even code may not be opened, since somebody watches.
    pub fn is_watched(&self) -> bool {
        self.noticing() & WATCHED != 0
    }

    /// How often programs have begun to notice, since none did. While that is not 0 nothing is opened.
    pub fn noticing(&self) -> u32 {
        self.noticing.load(Ordering::Acquire)
    }

    /// Nobody notices any more, unless more than `seen` have begun to.
    pub fn forget_noticing(&self, seen: u32) {
        let _ = self.noticing.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether files may not be opened at present, be it for a call under way or for who notices.
    pub fn forbids_opening(&self, now: impl FnOnce() -> u64) -> bool {
        self.noticing() != 0 || self.forbids(What::Files, now)
    }

    /// Forgets what is not believed any more. For the host: whoever gives back sets the time before it counts, so a
    /// count that was found with an old time is not a new one's.
    pub fn forget_overdue(&self, now: u64) {
        for count in [&self.files, &self.all, &self.mappings] {
            let found = count.load(Ordering::Acquire);
            if found != 0 && self.until.load(Ordering::Relaxed) <= now {
                let _ = count.compare_exchange(found, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

/// How many things somebody holds, or is about to open. A futex for whoever waits for the end of that.
#[repr(C)]
#[derive(Debug)]
#[cfg_attr(any(loom, test), derive(Default))]
pub struct Holding(pub AtomicU32);

impl Holding {
    /// One more is about to be opened. True if it may be; else it is to be let go at once.
    pub fn begins(&self, releasing: &Releasing, what: What, now: impl FnOnce() -> u64) -> bool {
        self.0.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        !releasing.forbids(what, now)
    }

    /// One is closed. (What was taken for gone by the host is not counted down again.)
    pub fn ends(&self) {
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| count.checked_sub(1));
    }

    /// For who holds all or nothing: something is about to be opened, or still held. True if it may be.
    pub fn begins_again(&self, releasing: &Releasing, what: What, now: impl FnOnce() -> u64) -> bool {
        self.0.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        releasing.noticing() == 0 && !releasing.forbids(what, now)
    }

    /// For who holds all or nothing: nothing is open any more.
    pub fn ends_all(&self) {
        self.0.store(0, Ordering::Release);
    }

    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}

/// Descriptors of the program's, from 0 on, that may be told apart here.
pub const NUMBERS: usize = 1024;

const WORDS: usize = NUMBERS / 64;

/// A set of descriptors. Written by one side, read by the other.
#[repr(C)]
#[derive(Debug)]
#[cfg_attr(any(loom, test), derive(Default))]
pub struct Numbers([AtomicU64; WORDS]);

impl Numbers {
    pub fn add(&self, number: usize) {
        if let Some(word) = self.0.get(number / 64) {
            word.fetch_or(1 << (number % 64), Ordering::AcqRel);
        }
    }

    pub fn remove(&self, number: usize) {
        if let Some(word) = self.0.get(number / 64) {
            word.fetch_and(!(1 << (number % 64)), Ordering::AcqRel);
        }
    }

    pub fn has(&self, number: usize) -> bool {
        self.has_any(number, number)
    }

    /// Whether one from `first` to `last`, both included, is there.
    pub fn has_any(&self, first: usize, last: usize) -> bool {
        self.0.iter().enumerate().any(|(index, word)| {
            let (low, high) = (first.max(64 * index), last.min(64 * index + 63));
            low <= high && word.load(Ordering::Acquire) & bits(low % 64, high % 64) != 0
        })
    }

    /// Empties the set; true if there was something in it.
    pub fn clear(&self) -> bool {
        let mut any = false;
        for word in &self.0 {
            any |= word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0;
        }
        any
    }
}

/// The bits from `low` to `high`, both included and below 64.
fn bits(low: usize, high: usize) -> u64 {
    (u64::MAX << low) & (u64::MAX >> (63 - high))
}

/// Counts of closings that were begun: descriptor numbers share them, so that those of other threads seldom matter.
pub const COUNTS: usize = if cfg!(loom) { 2 } else { 64 };

#[repr(C)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub struct Closings([AtomicU32; COUNTS]);

/// What the counts were, before it was read which descriptors there are.
pub type Seen = [u32; COUNTS];

impl Closings {
    pub fn see(&self, seen: &mut Seen) {
        for (seen, count) in seen.iter_mut().zip(&self.0) {
            *seen = count.load(Ordering::Acquire);
        }
    }

    /// The program is about to close its descriptors from `first` to `last`. True if its speculator holds one of
    /// them; else it will hold none of them before it has read anew which descriptors there are.
    pub fn closes(&self, held: &Numbers, first: usize, last: usize) -> bool {
        for number in (first..=last).take(COUNTS) {
            if let Some(count) = self.0.get(number % COUNTS) {
                count.fetch_add(1, Ordering::AcqRel);
            }
        }
        fence(Ordering::SeqCst);
        held.has_any(first, last)
    }

    /// The speculator is about to open what is behind the program's descriptor `number`. False if it may not: it
    /// may have been closed since the counts were seen.
    pub fn may_hold(&self, seen: &Seen, held: &Numbers, number: usize) -> bool {
        held.add(number);
        fence(Ordering::SeqCst);
        let count = self.0.get(number % COUNTS).map(|count| count.load(Ordering::Acquire));
        if count.is_some_and(|count| seen.get(number % COUNTS) == Some(&count)) {
            return true;
        }
        held.remove(number);
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sets_of_numbers() {
        let set = Numbers::default();
        assert!(!set.has_any(0, NUMBERS) && !set.clear());
        for number in [0, 63, 64, 700, NUMBERS - 1, NUMBERS, usize::MAX] {
            set.add(number);
            assert_eq!(set.has(number), number < NUMBERS, "{number}");
        }
        assert!(set.has_any(1, 63) && !set.has_any(1, 62) && !set.has_any(65, 699) && set.has_any(65, 700));
        assert!(set.has_any(3, usize::MAX) && !set.has_any(NUMBERS, usize::MAX));
        set.remove(700);
        assert!(!set.has(700) && !set.has_any(65, NUMBERS - 2));
        assert!(set.clear() && !set.has_any(0, NUMBERS - 1));
    }

    #[test]
    fn a_call_forbids_until_it_is_made_or_overdue() {
        let releasing = Releasing::default();
        let forbids = |what, now| releasing.forbids(what, || now);
        assert!(!forbids(What::Files, 0));
        releasing.begins(What::Files, 10);
        assert!(forbids(What::Files, 9) && !forbids(What::All, 9) && !forbids(What::Files, 10));
        releasing.begins(What::All, 5);
        assert!(forbids(What::All, 9), "the later time holds");
        releasing.ends(What::Files);
        assert!(forbids(What::Files, 9), "who unmounts wants files as well");
        releasing.ends(What::All);
        assert!(!forbids(What::Files, 9) && !forbids(What::All, 9));
        releasing.begins(What::Mapping, 10);
        assert!(forbids(What::Mapping, 9) && !forbids(What::Files, 9) && !forbids(What::All, 9));
        releasing.ends(What::Mapping);
        // One too many does no harm.
        releasing.ends(What::All);
        releasing.begins(What::All, 20);
        releasing.forget_overdue(19);
        assert!(forbids(What::All, 19));
        releasing.forget_overdue(20);
        releasing.begins(What::Files, 30);
        assert!(!forbids(What::All, 25) && forbids(What::Files, 25));
    }

    #[test]
    fn whoever_holds_is_counted_whether_it_may_or_not() {
        let (releasing, holding) = (Releasing::default(), Holding::default());
        assert!(holding.begins(&releasing, What::Files, || 0) && holding.is_any());
        releasing.begins(What::Files, 10);
        assert!(!holding.begins(&releasing, What::Files, || 0));
        holding.ends();
        assert!(holding.is_any());
        holding.ends();
        holding.ends();
        assert!(!holding.is_any());
    }

    #[test]
    fn a_descriptor_that_may_be_closed_is_not_held() {
        let counts = core::array::from_fn(|_| AtomicU32::new(7));
        let (closings, held, mut seen) = (Closings(counts), Numbers::default(), [0; COUNTS]);
        assert!(!closings.may_hold(&seen, &held, 3) && !held.has(3));
        closings.see(&mut seen);
        assert!(closings.may_hold(&seen, &held, 3) && held.has(3));
        assert!(closings.closes(&held, 3, 3) && !closings.closes(&held, 4, 60));
        assert!(!closings.may_hold(&seen, &held, 5) && !held.has(5));
        assert!(closings.may_hold(&seen, &held, 2) && closings.may_hold(&seen, &held, 61));
        assert!(closings.closes(&held, 0, u32::MAX as usize));
        assert!((0..NUMBERS).all(|number| !closings.may_hold(&seen, &held, number)));
    }
}
