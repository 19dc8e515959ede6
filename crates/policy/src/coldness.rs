//! Are names cold here: do look-ups wait for the disk?
//!
//! Nobody can ask the kernel whether a look-up would wait, so the time that it took has to tell. One slow
//! look-up proves little, since its thread may as well have lost the processor to somebody else; two close
//! together do, if the thread has given its processor away by itself between them ([`Sleeps`]). From then on
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

    /// A look-up took so many ns. True if it is thought to have waited for the disk.
    pub fn passed(&mut self, took: u64) -> bool {
        let slow = took >= WAITED_NS;
        let waited = slow && (self.suspect > 0 || self.cold > 0);
        self.suspect = if slow { SUSPECT_FOR } else { self.suspect.saturating_sub(1) };
        self.cold = if waited { COLD_FOR } else { self.cold.saturating_sub(1) };
        waited
    }

    pub fn is_cold(&self) -> bool {
        self.cold > 0
    }
}

/// How often a thread had given its processor away, as who waits does, when it was asked last. Where there are
/// more runnable threads than processors look-ups are slow that have waited for nothing. Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sleeps {
    thread: u32,
    count: u64,
}

impl Sleeps {
    /// Whether the thread may have waited since it was asked last, now that it has given its processor away
    /// `count` times; 0: that cannot be told.
    pub fn since(&mut self, thread: u32, count: u64) -> bool {
        let now = Sleeps { thread, count };
        let before = core::mem::replace(self, now);
        count == 0 || (before.thread, before.count) != (thread, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_kept_its_processor_has_not_waited() {
        let mut sleeps = Sleeps::default();
        assert!(sleeps.since(7, 3), "nobody knows about before");
        assert!(!sleeps.since(7, 3) && !sleeps.since(7, 3));
        assert!(sleeps.since(7, 4) && !sleeps.since(7, 4));
        assert!(sleeps.since(8, 4), "another thread");
        assert!(sleeps.since(8, 0) && sleeps.since(8, 0), "it cannot be told");
    }

    const QUICK: u64 = 2_000;

    fn pass_quick(coldness: &mut Coldness, times: u32) {
        (0..times).for_each(|_| assert!(!coldness.passed(QUICK)));
    }

    #[test]
    fn one_slow_look_up_alone_proves_nothing() {
        let mut coldness = Coldness::default();
        for _ in 0..10 {
            assert!(!coldness.passed(WAITED_NS));
            assert!(!coldness.is_cold());
            pass_quick(&mut coldness, SUSPECT_FOR);
        }
    }

    #[test]
    fn two_close_together_do() {
        let mut coldness = Coldness::default();
        assert!(!coldness.passed(WAITED_NS));
        pass_quick(&mut coldness, SUSPECT_FOR - 1);
        assert!(coldness.passed(WAITED_NS));
        assert!(coldness.is_cold());
    }

    #[test]
    fn cold_lasts_over_what_was_read_ahead_and_then_ends() {
        let mut coldness = Coldness::default();
        coldness.passed(WAITED_NS);
        assert!(coldness.passed(WAITED_NS));
        pass_quick(&mut coldness, COLD_FOR - 1);
        assert!(coldness.is_cold());
        // One more slow one prolongs it, without a second.
        assert!(coldness.passed(WAITED_NS));
        pass_quick(&mut coldness, COLD_FOR);
        assert!(!coldness.is_cold());
    }

    #[test]
    fn just_below_is_quick() {
        let mut coldness = Coldness::default();
        (0..100).for_each(|_| assert!(!coldness.passed(WAITED_NS - 1)));
        assert!(!coldness.is_cold());
    }
}
