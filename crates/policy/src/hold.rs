//! Whether the program waits, at a post, for the speculator to be in step.
//!
//! While the program's read is under way it has nothing to do; a speculator that copies its pages in
//! that time copies a consistent state, one that copies later copies torn pages. Holding took python
//! from 95.4 to 99.7% foretold and GNU ld from 0.4 to 35 (FACTS.md). But on a fast disk a sync can
//! last longer than the stall: hold only where it is expected to fit.

/// The part of the expected stall that an expected sync may fill, in percent: the rest is the slack
/// for waking up twice (some 3 us each) and for the estimate's error.
pub const WORTH_PERCENT: u64 = 60;

/// The longest hold, as a part of the expected stall, in percent. The wait begins when the read has
/// been started, so a hold of the full length still costs nothing on average; beyond it would.
pub const LONGEST_PERCENT: u64 = 90;

/// Stalls shorter than this, in ns, are not worth two wake-ups.
pub const SHORTEST_STALL: u64 = 30_000;

/// No disk makes a program wait longer than this, in ns: what seems to is the program's own computing, or
/// its sleep. It bounds what a program loses that holds for a speculator which has just been killed.
pub const LONGEST_STALL: u64 = 1_000_000_000;

/// Stalls for which the estimate does not rise after a hold that outlasted its stall: what seemed a long stall
/// was the program's own computing.
pub const DISTRUST: u32 = 64;

/// Running estimates, in ns.
#[derive(Clone, Copy, Default, Debug)]
pub struct Hold {
    stall: u64,
    distrust: u32,
}

impl Hold {
    /// A stall took `ns`. The estimate moves an eighth of the way: a device's latency is stable, and
    /// single outliers (a neighbour, a merge with read-ahead) are not.
    pub fn stalled(&mut self, ns: u64) {
        // A stall measured to the program's next call includes its computing: distrust long ones.
        let ns = ns.min(LONGEST_STALL);
        let most = if self.distrust > 0 { self.stall } else { self.stall.saturating_mul(4) };
        self.distrust = self.distrust.saturating_sub(1);
        let ns = if self.stall == 0 { ns } else { ns.min(most) };
        self.stall = if self.stall == 0 { ns } else { self.stall - self.stall / 8 + ns / 8 };
    }

    /// The program was held for `ns`, and then its data was there already: so long is no stall here.
    pub fn outlasted(&mut self, ns: u64) {
        self.stall = self.stall.min(ns);
        self.distrust = DISTRUST;
    }

    pub fn expected_stall(&self) -> u64 {
        self.stall
    }

    /// How long to hold at most, in ns; 0: not at all. `sync` is the latest sync's cost, 0 if there
    /// was none yet (the first sync builds the mirror; nobody waits for that).
    pub fn longest(&self, sync: u64) -> u64 {
        if sync == 0 || self.stall < SHORTEST_STALL || sync > self.stall / 100 * WORTH_PERCENT {
            return 0;
        }
        self.stall / 100 * LONGEST_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_where_a_sync_fits_into_a_stall() {
        let mut hold = Hold::default();
        assert_eq!(hold.longest(10_000), 0);
        hold.stalled(1_000_000);
        assert_eq!(hold.longest(0), 0);
        assert_eq!(hold.longest(200_000), 900_000);
        assert_eq!(hold.longest(700_000), 0);
        let mut fast = Hold::default();
        fast.stalled(20_000);
        assert_eq!(fast.longest(1_000), 0);
    }

    #[test]
    fn computing_is_not_taken_for_a_stall_for_long() {
        let mut hold = Hold::default();
        let mut held = 0;
        // 60 us of disk and 10 ms of computing, a sync of 80 us.
        for _ in 0..1000 {
            if hold.longest(80_000) > 0 {
                held += 1;
                hold.outlasted(80_000);
            }
            hold.stalled(10_060_000);
        }
        assert!(held < 30, "{held}");
    }

    #[test]
    fn one_outlier_moves_the_estimate_little() {
        let mut hold = Hold::default();
        hold.stalled(1_000_000);
        hold.stalled(1_000_000_000);
        assert!(hold.expected_stall() < 1_500_000);
        for _ in 0..100 {
            hold.stalled(60_000);
        }
        assert!(hold.expected_stall() < 70_000);
    }
}
