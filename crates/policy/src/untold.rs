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
//! A program that has only hit for a while is looked at by samples (`attention`), and what was counted between two of them tells that some
//! read went by that waited: then the next few are all looked at.
//!
//! Rule: nothing is ever lost by a wrong answer but a post in vain, or a stall that goes by.

/// Reads that are looked back at.
const LATEST: u8 = 2;
const LEAST: u32 = 2;

/// What the kernel counts for a thread, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// How often it has given its processor away by itself.
    pub sleeps: u64,
    /// Blocks that were brought in for it.
    pub blocks: u64,
}

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untold {
    /// Whose latest such read has not been judged yet, and what was counted before it; 0: nobody's.
    thread: usize,
    before: Counted,
    /// Which of the latest eight reads waited, the latest in the lowest bit.
    waits: u8,
    /// Who was looked at last, and the blocks that were counted for it by then; 0: nobody.
    looked_at: usize,
    blocks: u64,
}

impl Untold {
    pub const fn new() -> Untold {
        Untold { thread: 0, before: Counted { sleeps: 0, blocks: 0 }, waits: 0, looked_at: 0, blocks: 0 }
    }

    /// A thread (never 0) for which so many blocks were brought in is looked at, cached or not. True if some of them were since the
    /// latest look at it: something has waited for a disk meanwhile.
    pub fn looks(&mut self, thread: usize, blocks: u64) -> bool {
        let has_waited = self.looked_at == thread && self.blocks != blocks;
        (self.looked_at, self.blocks) = (thread, blocks);
        has_waited
    }

    /// A thread (never 0) for which so much was counted is about to make such a read. True if that is taken for one that waits.
    pub fn begins(&mut self, thread: usize, counted: Counted) -> bool {
        (self.thread, self.before) = (thread, counted);
        self.waits & ((1 << LATEST) - 1) != 0 && self.waits.count_ones() >= LEAST
    }

    /// Whether a read is to be judged.
    pub fn is_open(&self) -> bool {
        self.thread != 0
    }

    /// A thread for which so much was counted is back with another read, of whatever kind. `came`: whether what the one before it read
    /// is known to be cached now; asked only where that decides.
    pub fn ends(&mut self, thread: usize, counted: Counted, came: impl FnOnce() -> bool) {
        if core::mem::take(&mut self.thread) == thread {
            let slept = counted.sleeps != self.before.sleeps;
            let waited = counted.blocks != self.before.blocks || (slept && came());
            self.waits = self.waits << 1 | u8::from(waited);
        }
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
            untold.ends(1, counted, || came);
            let said = untold.begins(1, counted);
            counted.sleeps += u64::from(waits);
            counted.blocks += u64::from(waits && blocks) * 8;
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
    fn what_has_waited_between_two_looks_is_seen() {
        let mut untold = Untold::new();
        let looks = [(1, 100), (1, 100), (1, 108), (1, 108), (2, 300), (2, 308), (1, 116), (1, 124)];
        let said = looks.map(|(thread, blocks)| untold.looks(thread, blocks));
        assert_eq!(said, [false, false, true, false, false, true, false, true]);
    }

    #[test]
    fn threads_are_not_taken_for_one_another() {
        let mut untold = Untold::new();
        for number in 0..100 {
            let (thread, counted) = (1 + number as usize % 2, Counted { sleeps: number, blocks: number });
            untold.ends(thread, counted, || true);
            assert!(!untold.begins(thread, counted));
        }
    }
}
