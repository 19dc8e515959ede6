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
}

impl Coldness {
    pub const fn new() -> Coldness {
        Coldness { cold: 0, suspect: 0 }
    }

    /// A look-up took so many ns; `slept` is asked if that is long. True if it is thought to have waited for
    /// the disk.
    pub fn passed(&mut self, took: u64, slept: impl FnOnce() -> Slept) -> bool {
        let slept = if took >= WAITED_NS { slept() } else { Slept::No };
        let slow = slept != Slept::No;
        let waited = slept == Slept::Yes && (self.suspect > 0 || self.cold > 0);
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
    /// It did, or nobody can say of any call.
    Yes,
}

/// How often a thread had given its processor away by itself, as who waits does, when it was asked last. Where
/// there are more runnable threads than processors look-ups are slow that have waited for nothing. Zeros are
/// its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sleeps {
    thread: u32,
    count: u64,
}

impl Sleeps {
    /// Whether the thread has slept in a call, now that it has given its processor away `count` times; 0 where
    /// it was not asked before: that cannot be told. `before`: the count when the call began, if it was asked.
    pub fn since(&mut self, thread: u32, before: Option<u64>, count: u64) -> Slept {
        let last = core::mem::replace(self, Sleeps { thread, count });
        match before {
            Some(before) if before == count => Slept::No,
            Some(_) => Slept::Yes,
            None if count == 0 => Slept::Yes,
            None if (last.thread, last.count) == (thread, count) => Slept::No,
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
        let mut since = |thread, count| sleeps.since(thread, None, count);
        assert_eq!(since(7, 3), Perhaps, "nobody knows about before");
        assert_eq!([since(7, 3), since(7, 3)], [No, No]);
        assert_eq!([since(7, 4), since(7, 4)], [Perhaps, No]);
        assert_eq!(since(8, 4), Perhaps, "another thread");
        assert_eq!([since(8, 0), since(8, 0)], [Yes, Yes], "it cannot be told");
    }

    #[test]
    fn what_was_slept_between_calls_does_not_count_where_the_call_was_asked_about() {
        use Slept::{No, Perhaps, Yes};
        let mut sleeps = Sleeps::default();
        assert_eq!(sleeps.since(7, Some(5), 5), No);
        assert_eq!([sleeps.since(7, Some(9), 9), sleeps.since(7, Some(9), 10)], [No, Yes]);
        assert_eq!(sleeps.since(8, Some(2), 2), No, "another thread");
        assert_eq!([sleeps.since(8, None, 3), sleeps.since(8, None, 3)], [Perhaps, No]);
        assert_eq!(sleeps.since(9, Some(0), 0), No, "one that never slept");
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
