//! How closely the agent watches: a program that only hits must hardly pay.
//!
//! Asking whether a read would wait costs some 0.3 us, a 4 KiB hit 0.25 us. So the agent looks at each
//! read only while there were stalls lately (*active*), and else at a sample (*calm*): the stub that
//! each intercepted call passes counts down, in 2 ns, and enters the agent when the count runs out.

/// Reads without a stall after which an active agent calms down: long enough to span a program's
/// computing between two cold files, short enough (0.1 ms) to be nothing for a warm one.
pub const CALM_AFTER: u32 = 256;

/// The first reads of a process, all looked at: a cold program stalls on one of these.
pub const FIRST_LOOK: u32 = 32;

/// Calls skipped between two looks when calm; doubles from the first to the second with each calm
/// look. At 64 a look costs a 4 KiB read 2%; a stalling program is noticed within 64 reads.
pub const SKIP_FIRST: u32 = 7;
pub const SKIP_MOST: u32 = 63;

#[derive(Clone, Copy, Debug)]
pub struct Attention {
    quiet: u32,
    limit: u32,
    skip: u32,
}

impl Default for Attention {
    fn default() -> Self {
        Self { quiet: 0, limit: FIRST_LOOK, skip: SKIP_FIRST }
    }
}

impl Attention {
    /// True while every read is looked at.
    pub fn active(&self) -> bool {
        self.quiet < self.limit
    }

    /// A read was looked at and had all it wanted. Returns how many calls may pass unseen.
    pub fn hit(&mut self) -> u32 {
        self.quiet = self.quiet.saturating_add(1);
        if self.active() {
            return 0;
        }
        let skip = self.skip;
        self.skip = (skip * 2 + 1).min(SKIP_MOST);
        skip
    }

    /// A read had to wait, or would have had without its prefetch.
    pub fn stall(&mut self) {
        *self = Self { quiet: 0, limit: CALM_AFTER, skip: SKIP_FIRST };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calms_down_by_and_by_and_wakes_at_once() {
        let mut attention = Attention::default();
        for _ in 1..FIRST_LOOK {
            assert_eq!(attention.hit(), 0);
        }
        assert_eq!(attention.hit(), SKIP_FIRST);
        assert_eq!(attention.hit(), 15);
        for _ in 0..10 {
            attention.hit();
        }
        assert_eq!(attention.hit(), SKIP_MOST);
        attention.stall();
        assert!(attention.active());
        for _ in 1..CALM_AFTER {
            assert_eq!(attention.hit(), 0);
        }
        assert!(attention.hit() > 0);
    }
}
