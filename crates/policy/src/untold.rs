//! Do reads wait of which the kernel does not tell beforehand?
//!
//! Overlays (a container's root), FUSE, squashfs, erofs and networks refuse `RWF_NOWAIT`: whether a read will wait shows when it has. So one
//! is taken for a read that waits if those before it did: one of the latest two, and two of the latest eight.
//!
//! That a read has waited is seen by what the kernel counts for its thread. Blocks that the thread has had brought in prove it. Where a
//! server on the other side brings them (FUSE) nothing is counted; there the thread has slept, as it may have for a lock, a client or a
//! pipe as well, and what it has read must be in the page cache since. (Sleeps alone made a server that reads warm files, and waits for
//! a client each time, look like one that waits for its disk.)
//!
//! Each thread is asked for itself, as the kernel counts for each: of threads that take turns nearly every
//! read is begun before another thread's has ended. One of which nothing is known yet begins with what was
//! found of all.
//!
//! A program that has only hit for a while is looked at by samples (`attention`), and what was counted between two of them tells that some
//! read went by that waited: then the next few are all looked at.
//!
//! Rule: nothing is ever lost by a wrong answer but a post in vain, or a stall that goes by.

use crate::per_thread::PerThread;

/// Reads that are looked back at.
const LATEST: u8 = 2;
const LEAST: u32 = 2;

/// Reads in a row that were cached, behind which no wait is expected any more: what the kernel's read-ahead of 128 KB brings with one
/// wait, in pieces of 4 KB.
const CACHED_MOST: u8 = 32;

/// What the kernel counts for a thread, so far. It is compared only, so the lower half of each does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// How often it has given its processor away by itself.
    pub sleeps: u32,
    /// Blocks that were brought in for it.
    pub blocks: u32,
}

/// Looking at what is cached by other means than a read's own (a mapping of the file) costs as much as some fifty reads of 4 KB. It is
/// worth that where something has waited, or where the reads before would have this one taken for one that waits; and else may take so
/// much of the time: one part in so many.
const SHARE: u64 = 50;

/// When the dear way of asking was gone last. Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asking {
    asked_at: u64,
    cost: u64,
}

impl Asking {
    pub const fn new() -> Asking {
        Asking { asked_at: 0, cost: 0 }
    }

    /// Whether to ask at `now`, ns, before [`Untold::begins`]; `expects`: what [`Untold::expects`] says of the
    /// thread.
    pub fn may(&self, expects: bool, since: Since, now: u64) -> bool {
        since == Since::Waited
            || expects
            || now.saturating_sub(self.asked_at) >= self.cost.saturating_mul(SHARE)
    }

    /// It was asked from one time to the other, ns.
    pub fn asked(&mut self, from: u64, to: u64) {
        (self.asked_at, self.cost) = (to, to.saturating_sub(from));
    }
}

/// A read, so that it can be asked later whether its data have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub fd: i32,
    /// The lower half of the file's inode.
    pub inode: u32,
    /// In the file, bytes.
    pub place: i64,
}

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untold {
    threads: PerThread<Thread>,
    /// What [`Thread::waits`] is of the reads of all threads.
    waits: u8,
}

/// What is known of one thread. Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// Its latest such read has not been judged yet.
    is_open: bool,
    read: Read,
    /// What was counted when it was looked at last: before that read.
    looked: Counted,
    /// Which of the latest eight reads waited, the latest in the lowest bit.
    waits: u8,
    /// How many in a row are known to have been cached.
    cached: u8,
}

impl Thread {
    const fn new() -> Thread {
        let (looked, read) = (Counted { sleeps: 0, blocks: 0 }, Read { fd: 0, inode: 0, place: 0 });
        Thread { is_open: false, read, looked, waits: 0, cached: 0 }
    }
}

/// What a thread has done since the latest look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// It has not slept, or is not known.
    Nothing,
    /// For whatever reason; or it is looked at for the first time.
    Slept,
    /// Something was brought in for it.
    Waited,
}

/// Whether a read behind these is taken for one that waits.
fn expects(waits: u8) -> bool {
    waits & ((1 << LATEST) - 1) != 0 && waits.count_ones() >= LEAST
}

impl Untold {
    pub const fn new() -> Untold {
        Untold { threads: PerThread::new(Thread::new()), waits: 0 }
    }

    /// A thread (never 0) for which so much was counted is looked at, whether what it reads is cached or not.
    /// Comes behind [`Untold::ends`].
    pub fn looks(&mut self, thread: usize, counted: Counted) -> Since {
        let waits = self.waits;
        let Some(known) = self.threads.get_mut(thread) else {
            let known = Thread { looked: counted, waits, ..Thread::new() };
            let is_met = self.threads.meets(thread, known) || expects(waits);
            return if is_met { Since::Slept } else { Since::Nothing };
        };
        let before = core::mem::replace(&mut known.looked, counted);
        if before == counted {
            Since::Nothing
        } else if before.blocks != counted.blocks {
            Since::Waited
        } else {
            Since::Slept
        }
    }

    /// Those of a thread since the latest look have not waited, as nothing was counted; none of them is to be
    /// judged, and the read at hand is not asked about.
    pub fn passes(&mut self, thread: usize) {
        if let Some(known) = self.threads.get_mut(thread) {
            known.waits <<= 1;
            self.waits <<= 1;
        }
    }

    /// The read at hand is known to be cached.
    pub fn hits(&mut self, thread: usize) {
        let Some(known) = self.threads.get_mut(thread) else { return };
        known.cached = known.cached.saturating_add(1);
        if known.cached >= CACHED_MOST {
            (known.waits, self.waits) = (0, 0);
        }
    }

    /// Whether those before would have a read of a thread's taken for one that waits.
    pub fn expects(&self, thread: usize) -> bool {
        expects(self.threads.get(thread).map_or(self.waits, |known| known.waits))
    }

    /// A thread (never 0) that has just been looked at is about to make such a read. True if that is taken for
    /// one that waits.
    pub fn begins(&mut self, thread: usize, read: Read) -> bool {
        if let Some(known) = self.threads.get_mut(thread) {
            (known.is_open, known.read) = (true, read);
        }
        self.expects(thread)
    }

    /// Whether a read of a thread's is to be judged.
    pub fn is_open(&self, thread: usize) -> bool {
        self.threads.get(thread).is_some_and(|known| known.is_open)
    }

    /// A thread for which so much was counted is back with another read, of whatever kind. `came`: whether what the one before it read
    /// is known to be cached now; asked only where that decides. True if that one is taken for one that has waited.
    pub fn ends(&mut self, thread: usize, counted: Counted, came: impl FnOnce(Read) -> bool) -> bool {
        let Some(known) = self.threads.get_mut(thread) else { return false };
        if !core::mem::take(&mut known.is_open) {
            return false;
        }
        let slept = counted.sleeps != known.looked.sleeps;
        let waited = counted.blocks != known.looked.blocks || (slept && came(known.read));
        known.waits = known.waits << 1 | u8::from(waited);
        self.waits = self.waits << 1 | u8::from(waited);
        if waited {
            known.cached = 0;
        }
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of reads of one thread, which sleeps behind those of which `waits` says so; with `blocks` brought in, or the
    /// data cached afterwards as `came` says.
    fn said(untold: &mut Untold, waits: &[bool], blocks: bool, came: bool) -> Vec<bool> {
        let mut counted = Counted { sleeps: 7, blocks: 100 };
        let say = |&waits: &bool| {
            untold.ends(1, counted, |_| came);
            untold.looks(1, counted);
            let said = untold.begins(1, Read::default());
            counted.sleeps += u32::from(waits);
            counted.blocks += u32::from(waits && blocks) * 8;
            said
        };
        waits.iter().map(say).collect()
    }

    #[test]
    fn reads_that_wait_are_followed_by_reads_that_wait() {
        for (blocks, came) in [(true, false), (false, true)] {
            let said = said(&mut Untold::new(), &[true; 8], blocks, came);
            assert_eq!(said, [false, false, true, true, true, true, true, true]);
        }
    }

    #[test]
    fn who_sleeps_for_another_reason_does_not_wait_for_reads() {
        assert_eq!(said(&mut Untold::new(), &[true; 50], false, false), [false; 50]);
    }

    #[test]
    fn a_read_of_the_end_between_them_changes_nothing() {
        let waits: Vec<bool> = (0..20).map(|number| number % 2 == 0).collect();
        assert!(said(&mut Untold::new(), &waits, true, false)[4..].iter().all(|&said| said));
    }

    #[test]
    fn who_waits_seldom_is_left_alone() {
        let waits: Vec<bool> = (0..100).map(|number| number % 9 == 0).collect();
        assert!(said(&mut Untold::new(), &waits, true, true).iter().all(|&said| !said));
    }

    #[test]
    fn once_the_reads_are_foretold_it_is_over() {
        let mut untold = Untold::new();
        said(&mut untold, &[true; 8], true, false);
        assert_eq!(said(&mut untold, &[false; 5], true, false)[2..], [false; 3]);
    }

    #[test]
    fn asking_takes_a_small_part_of_the_time() {
        let (mut asking, mut asked, mut now) = (Asking::new(), 0, 1_000_000_000);
        for _ in 0..100_000 {
            now += 300;
            if asking.may(false, Since::Nothing, now) {
                asking.asked(now, now + 20_000);
                (asked, now) = (asked + 1, now + 20_000);
            }
        }
        assert!((28..=32).contains(&asked), "{asked}");
        assert!(asking.may(false, Since::Waited, now));
    }

    /// What is made of reads that are all looked at, of which some wait for 1 ms and bring something in, where to ask takes 15 us: how
    /// many of those that wait go by, how many others are taken for such, and how often it is asked.
    fn mistaken(reads: impl Iterator<Item = bool>) -> (u32, u32, u32) {
        let (mut untold, mut asking) = (Untold::new(), Asking::new());
        let (mut counted, mut now) = (Counted::default(), 1_000_000_000);
        let (mut missed, mut wrong, mut asked) = (0, 0, 0);
        for waits in reads {
            untold.ends(1, counted, |_| false);
            let since = untold.looks(1, counted);
            now += 1000;
            let told_cached = asking.may(untold.expects(1), since, now) && {
                asking.asked(now, now + 15_000);
                now += 15_000;
                asked += 1;
                !waits
            };
            if told_cached {
                untold.hits(1);
            }
            match !told_cached && untold.begins(1, Read::default()) {
                true => wrong += u32::from(!waits),
                false => missed += u32::from(waits),
            }
            if waits {
                now += 1_000_000;
                counted.sleeps += 1;
                counted.blocks += 8;
            }
        }
        (missed, wrong, asked)
    }

    /// A file of several pieces waits for the first.
    #[test]
    fn where_it_may_be_asked_no_cached_read_is_taken_for_one_that_waits() {
        for period in 1..=8 {
            let (missed, wrong, _) = mistaken((0..10_000).map(|number| number % period == 0));
            assert!(missed <= 2 && wrong == 0, "each {period}th: {missed} missed, {wrong} taken for waits");
        }
    }

    /// A program that has waited, and from then on finds all that it reads.
    #[test]
    fn who_waits_no_more_is_not_asked_about_for_ever() {
        let (_, wrong, asked) = mistaken((0..100_000).map(|number| number < 100));
        assert!(wrong == 0 && asked < 100 + 32 + 150, "{wrong} taken for waits, asked {asked} times");
    }

    #[test]
    fn reads_that_pass_are_reads_that_have_not_waited() {
        let mut untold = Untold::new();
        said(&mut untold, &[true; 3], true, false);
        assert!(untold.expects(1));
        untold.passes(1);
        untold.passes(1);
        assert!(!untold.expects(1));
    }

    #[test]
    fn what_has_waited_between_two_looks_is_seen() {
        let mut untold = Untold::new();
        let looks =
            [(1, 7, 100), (1, 7, 100), (1, 8, 108), (1, 9, 108), (2, 3, 300), (2, 4, 308), (1, 10, 116)];
        let said = looks.map(|(thread, sleeps, blocks)| untold.looks(thread, Counted { sleeps, blocks }));
        let (none, slept, waited) = (Since::Nothing, Since::Slept, Since::Waited);
        assert_eq!(said, [slept, none, waited, slept, slept, waited, waited]);
    }

    /// What is said of threads that take turns: each begins its read before those of the others have ended.
    /// `waits`: whether a thread's do.
    fn of_threads(threads: usize, rounds: u32, waits: impl Fn(usize) -> bool) -> Vec<Vec<bool>> {
        let mut untold = Untold::new();
        let mut said = vec![Vec::new(); threads];
        for round in 0..rounds {
            for thread in 1..=threads {
                let counted =
                    Counted { sleeps: if waits(thread) { round } else { 0 }, blocks: thread as u32 };
                let read = Read { place: round.into(), inode: thread as u32, ..Read::default() };
                untold.ends(thread, counted, |asked| {
                    assert_eq!(asked, Read { place: i64::from(round) - 1, ..read });
                    true
                });
                untold.looks(thread, counted);
                said[thread - 1].push(untold.begins(thread, read));
            }
        }
        said
    }

    #[test]
    fn threads_that_take_turns_are_each_seen_to_wait() {
        for said in of_threads(4, 10, |_| true) {
            assert!(said[3..].iter().all(|&said| said), "{said:?}");
        }
        let many = of_threads(40, 100, |_| true);
        assert!(many.iter().flatten().filter(|&&said| said).count() > 3000);
    }

    #[test]
    fn threads_are_not_taken_for_one_another() {
        let said = of_threads(3, 100, |thread| thread == 2);
        assert!(said[1][3..].iter().all(|&said| said));
        assert!(!said[0].contains(&true) && !said[2].contains(&true));
    }

    /// Which does not live long enough to be known by itself.
    #[test]
    fn a_new_thread_begins_with_what_was_found_of_all() {
        let mut untold = Untold::new();
        for thread in 1..100 {
            let (before, after) = (Counted { sleeps: 5, blocks: 0 }, Counted { sleeps: 6, blocks: 8 });
            assert!(thread < 3 || untold.looks(thread, before) == Since::Slept);
            untold.looks(thread, before);
            let said = untold.begins(thread, Read::default());
            assert_eq!(said, thread > 2, "{thread}");
            untold.ends(thread, after, |_| false);
        }
    }
}
