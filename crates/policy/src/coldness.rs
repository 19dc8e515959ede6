//! Are names cold here: do look-ups wait for the disk?
//!
//! Nobody can ask the kernel whether a look-up would wait, so the time that it took has to tell. One slow
//! look-up proves little, since its thread may as well have lost the processor to somebody else; two close
//! together do, if the thread has given its processor away by itself in the second ([`Sleeps`]). From then on
//! names count as cold for a while, since a block of inodes that is read ahead makes the look-ups after a slow
//! one quick.

/// A look-up that takes longer, in ns, has waited for a disk: the fastest answer in 30 us, a cached look-up
/// takes 1 us, and 5 where the processor's caches are cold.
pub const WAITED_NS: u64 = 20_000;

/// Who sleeps for a shorter time, in ns, and has asked no disk for anything, may have waited for another thread: for
/// the memory's lock, where the other maps something, some 30 us were seen. A server at a network takes longer.
pub const BLOCKED_NS: u64 = 100_000;

/// Such sleeps, less the look-ups without one, from which on they are a slow file system's (FUSE, virtiofs,
/// 9p). Threads that meet do so now and then.
pub const BRIEF_MOST: u32 = 8;

/// Look-ups within which a second slow one proves the first. (On a busy machine, with a single one taken for
/// proof, a warm `du` took half as much processor time again, from being watched and helped for nothing.)
pub const SUSPECT_FOR: u32 = 64;

/// Look-ups after a slow one for which names stay cold: ext4 reads ahead 512 inodes in a block's
/// neighbourhood, so twice that.
pub const COLD_FOR: u32 = 1024;

/// A look-up ahead of the program that takes longer, in ns, is worth helping. It is not the program that waits, and on a
/// quicker disk the helpers take its processors (`names::restraint`).
pub const WORTH_HELPING_NS: u64 = 250_000;

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coldness {
    cold: u32,
    suspect: u32,
    brief: u32,
}

impl Coldness {
    pub const fn new() -> Coldness {
        Coldness { cold: 0, suspect: 0, brief: 0 }
    }

    /// A look-up took so many ns; `slept` is asked if that is long. True if it is thought to have waited for the
    /// disk.
    pub fn passed(&mut self, took: u64, slept: impl FnOnce() -> Slept) -> bool {
        let slept = if took >= WAITED_NS { slept() } else { Slept::No };
        let slow = slept != Slept::No;
        self.brief = match slept {
            Slept::Briefly => (self.brief + 1).min(2 * BRIEF_MOST),
            _ => self.brief.saturating_sub(1),
        };
        let sure = slept == Slept::Yes || slept == Slept::Briefly && self.brief >= BRIEF_MOST;
        let waited = sure && (self.suspect > 0 || self.cold > 0);
        self.suspect = if slow { SUSPECT_FOR } else { self.suspect.saturating_sub(1) };
        self.cold = if waited { COLD_FOR } else { self.cold.saturating_sub(1) };
        waited
    }

    pub fn is_cold(&self) -> bool {
        self.cold > 0
    }

    /// Look-ups for which names stay cold, or suspected.
    pub fn lasts(&self) -> u32 {
        self.cold.max(self.suspect)
    }
}

/// Whether a thread slept in a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slept {
    No,
    /// In the call or before it: threads that wait for each other between their calls always have.
    Perhaps,
    /// In the call, for less than [`BLOCKED_NS`], and no disk was asked.
    Briefly,
    /// It did, or nobody can say of any call.
    Yes,
}

/// What a thread has done so far: how often it has given its processor away by itself, as who waits does (where it
/// was not asked before, 0 means that it cannot be told), and blocks that disks were asked for by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub sleeps: u64,
    pub blocks: u64,
}

/// What a thread had done when it was asked last. Where there are more runnable threads than processors look-ups
/// are slow that have waited for nothing. Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sleeps {
    thread: u32,
    count: u64,
}

impl Sleeps {
    /// Whether the thread has waited in a call that took so many ns; `before`: when the call began, if that was
    /// asked.
    pub fn since(&mut self, thread: u32, before: Option<Usage>, now: Usage, took: u64) -> Slept {
        let last = core::mem::replace(self, Sleeps { thread, count: now.sleeps });
        match before {
            None if now.sleeps == 0 => Slept::Yes,
            Some(before) if before.sleeps == now.sleeps => Slept::No,
            Some(before) if before.blocks != now.blocks || took >= BLOCKED_NS => Slept::Yes,
            Some(_) => Slept::Briefly,
            None if (last.thread, last.count) == (thread, now.sleeps) => Slept::No,
            None => Slept::Perhaps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_kept_its_processor_has_not_waited() {
        use Slept::{No, Perhaps, Yes};
        let mut sleeps = Sleeps::default();
        let mut since = |thread, sleeps_now| {
            sleeps.since(thread, None, Usage { sleeps: sleeps_now, blocks: 9 }, WAITED_NS)
        };
        assert_eq!(since(7, 3), Perhaps, "nobody knows about before");
        assert_eq!([since(7, 3), since(7, 3)], [No, No]);
        assert_eq!([since(7, 4), since(7, 4)], [Perhaps, No]);
        assert_eq!(since(8, 4), Perhaps, "another thread");
        assert_eq!([since(8, 0), since(8, 0)], [Yes, Yes], "it cannot be told");
    }

    #[test]
    fn what_was_slept_between_calls_does_not_count_where_the_call_was_asked_about() {
        use Slept::{Briefly, No, Yes};
        let mut sleeps = Sleeps::default();
        let mut since = |before: [u64; 2], now: [u64; 2], took| {
            let [before, now] = [before, now].map(|[sleeps, blocks]| Usage { sleeps, blocks });
            sleeps.since(7, Some(before), now, took)
        };
        assert_eq!([since([5, 0], [5, 0], 1 << 40), since([9, 1], [9, 1], WAITED_NS)], [No, No]);
        assert_eq!(since([9, 1], [10, 9], WAITED_NS), Yes, "it has asked a disk");
        assert_eq!(since([10, 9], [11, 9], BLOCKED_NS - 1), Briefly, "it may have been another thread");
        assert_eq!(since([11, 9], [12, 9], BLOCKED_NS), Yes);
        assert_eq!(since([0, 0], [0, 0], 1 << 40), No);
    }

    #[test]
    fn brief_sleeps_are_a_file_systems_where_most_look_ups_have_one() {
        let mut coldness = Coldness::default();
        let mut brief = || coldness.passed(WAITED_NS, || Slept::Briefly);
        assert!((1..BRIEF_MOST).all(|_| !brief()));
        assert!(brief() && brief());
        let mut coldness = Coldness::default();
        for _ in 0..100 {
            assert!(!coldness.passed(WAITED_NS, || Slept::Briefly), "threads that meet");
            pass_quick(&mut coldness, 1);
        }
    }

    #[test]
    fn who_may_have_slept_before_is_suspected_and_no_more() {
        let mut coldness = Coldness::default();
        for _ in 0..10 {
            assert!(!coldness.passed(WAITED_NS, || Slept::Perhaps));
            assert!(!coldness.is_cold() && coldness.lasts() == SUSPECT_FOR);
        }
        assert!(!coldness.passed(WAITED_NS, || Slept::No) && coldness.lasts() == SUSPECT_FOR - 1);
        assert!(coldness.passed(WAITED_NS, || Slept::Yes) && coldness.lasts() == COLD_FOR);
        assert!(!coldness.passed(WAITED_NS, || Slept::No) && coldness.is_cold());
    }

    const QUICK: u64 = 2_000;

    fn pass_quick(coldness: &mut Coldness, times: u32) {
        (0..times).for_each(|_| assert!(!coldness.passed(QUICK, || Slept::Yes)));
    }

    #[test]
    fn one_slow_look_up_alone_proves_nothing() {
        let mut coldness = Coldness::default();
        for _ in 0..10 {
            assert!(!coldness.passed(WAITED_NS, || Slept::Yes));
            assert!(!coldness.is_cold());
            pass_quick(&mut coldness, SUSPECT_FOR);
        }
    }

    #[test]
    fn two_close_together_do() {
        let mut coldness = Coldness::default();
        assert!(!coldness.passed(WAITED_NS, || Slept::Yes));
        pass_quick(&mut coldness, SUSPECT_FOR - 1);
        assert!(coldness.passed(WAITED_NS, || Slept::Yes));
        assert!(coldness.is_cold());
    }

    #[test]
    fn cold_lasts_over_what_was_read_ahead_and_then_ends() {
        let mut coldness = Coldness::default();
        coldness.passed(WAITED_NS, || Slept::Yes);
        assert!(coldness.passed(WAITED_NS, || Slept::Yes));
        pass_quick(&mut coldness, COLD_FOR - 1);
        assert!(coldness.is_cold());
        // One more slow one prolongs it, without a second.
        assert!(coldness.passed(WAITED_NS, || Slept::Yes));
        pass_quick(&mut coldness, COLD_FOR);
        assert!(!coldness.is_cold());
    }

    #[test]
    fn just_below_is_quick() {
        let mut coldness = Coldness::default();
        (0..100).for_each(|_| assert!(!coldness.passed(WAITED_NS - 1, || Slept::Yes)));
        assert!(!coldness.is_cold());
    }
}
