//! Whether the program waits, at a post, for the speculator to be in step.
//!
//! While the program's read is under way it has nothing to do; a speculator that copies its pages in
//! that time copies a consistent state, one that copies later copies torn pages. Holding took python
//! from 95.4 to 99.7% foretold and GNU ld from 0.4 to 35 (in the prototype). But on a fast disk a sync can
//! last longer than the stall. Two rules:
//!
//! - where a sync fits into a stall, hold: it costs nothing;
//! - where it does not, holding is an *investment*: paid from *credit*, a twentieth of the time that the program
//!   has stalled anyway, so that holds lengthen its stalls by no more than that taken together. One consistent
//!   start can be followed for thousands of reads (python reading 3000 files on a disk of 50 us: 21 posts and
//!   0.14 s when it came about by luck, else 100 posts, all torn, and 0.28 s). An investment that came back twofold
//!   in stalls that did not happen is refunded; one that did not makes the next wait longer. A quarter of what any
//!   speculation has saved becomes credit as well: a program that gains may restart well.

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

/// The part of stalls that becomes credit: one in so many.
pub const CREDIT_PART: u64 = 20;

/// Credit to begin with, and the most that is saved up, in ns. The first is enough for one hold of a small
/// program, soon after its start, when most is to be gained.
pub const CREDIT_FIRST: u64 = 1_000_000;
pub const CREDIT_MOST: u64 = 4_000_000;

/// The part of the time that speculation saved which becomes credit: one in so many.
pub const SAVED_PART: u64 = 4;

/// An investment is given so much of the latest sync's cost, in percent, and so many ns for the speculation to
/// settle, before it is broken off: one that is broken off has cost most and brings nothing, and syncs of one program
/// differ threefold (python's took 0.3 to 1.0 ms; with half of this patience it took 263 ms in the median of 36 runs,
/// with this 221). Its price is what it usually takes. Settling is to fill some fifty pages, at 4 us, and to run for
/// some operations. (Let go after the sync, python went on while the speculator still filled its pages, and more than
/// half of these starts were torn.)
const PATIENCE_PERCENT: u64 = 300;
const SETTLING_NS: u64 = 600_000;

/// So many times its cost must an investment bring to be called good.
const RETURN: u64 = 2;

/// After that many bad investments in a row the price does not rise any more: 32 times the hold (or all that
/// can be saved up), that is 320 times its length in stalls.
const CAUTION_MOST: u32 = 5;

/// Running estimates, in ns. Zeros are its start.
#[derive(Clone, Copy, Default, Debug)]
pub struct Hold {
    stall: u64,
    distrust: u32,
    /// Earned and spent so far; credit is [`CREDIT_FIRST`] and the difference.
    earned: u64,
    spent: u64,
    /// What the present investment has cost; 0: there is none.
    invested: u64,
    /// Stalls that did not happen since the latest post.
    saved: u32,
    /// Bad investments in a row.
    caution: u32,
}

/// How the program is to wait at a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    Not,
    /// At most so many ns, within the stall.
    Within(u64),
    /// At most so many ns, beyond the stall's end if need be.
    Invest(u64),
}

impl Wait {
    /// Longest wait in ns.
    pub fn longest(self) -> u64 {
        match self {
            Wait::Not => 0,
            Wait::Within(ns) | Wait::Invest(ns) => ns,
        }
    }
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
        self.earned =
            self.earned.saturating_add(ns / CREDIT_PART).min(self.spent.saturating_add(CREDIT_MOST));
    }

    fn credit(&self) -> u64 {
        CREDIT_FIRST.saturating_add(self.earned).saturating_sub(self.spent)
    }

    /// The program was held for `ns` as an investment; what the stall took anyway was free.
    pub fn invested(&mut self, ns: u64) {
        self.invested = ns.saturating_sub(self.stall).max(1);
        self.spent = self.spent.saturating_add(self.invested);
    }

    /// A read would have stalled, had it not been foretold.
    pub fn saved(&mut self) {
        self.saved = self.saved.saturating_add(1);
    }

    /// The next post comes: what has the latest investment brought?
    pub fn posts(&mut self) {
        let brought = self.stall.saturating_mul(u64::from(self.saved));
        self.saved = 0;
        self.earned =
            self.earned.saturating_add(brought / SAVED_PART).min(self.spent.saturating_add(CREDIT_MOST));
        if self.invested == 0 {
            if brought >= CREDIT_FIRST {
                self.caution = 0;
            }
            return;
        }
        if brought >= RETURN.saturating_mul(self.invested) {
            self.earned = self.earned.saturating_add(self.invested);
            self.caution = 0;
        } else {
            // All savings are gone. (With the hold alone to pay for, sqlite lost 4% to one bad hold after another.)
            self.spent = self.spent.max(CREDIT_FIRST.saturating_add(self.earned));
            self.caution = (self.caution + 1).min(CAUTION_MOST);
        }
        self.invested = 0;
    }

    /// The program was held for `ns`, and then its data was there already: so long is no stall here.
    pub fn outlasted(&mut self, ns: u64) {
        self.stall = self.stall.min(ns);
        self.distrust = DISTRUST;
    }

    pub fn expected_stall(&self) -> u64 {
        self.stall
    }

    /// Whether and how long to hold. `sync` is the latest sync's cost in ns, 0 if there was none yet (the first
    /// sync builds the mirror; nobody waits for that).
    pub fn wait(&self, sync: u64) -> Wait {
        if sync == 0 || self.stall < SHORTEST_STALL {
            return Wait::Not;
        }
        if sync <= self.stall / 100 * WORTH_PERCENT {
            return Wait::Within(self.stall / 100 * LONGEST_PERCENT);
        }
        let usual = sync.saturating_add(SETTLING_NS / 2);
        let cost = usual.saturating_sub(self.stall);
        let price = cost.max(cost.saturating_mul(1 << self.caution).min(CREDIT_MOST));
        let patience = sync.saturating_mul(PATIENCE_PERCENT) / 100 + SETTLING_NS;
        if price <= self.credit() {
            Wait::Invest(patience.min(self.stall + self.credit()).max(usual))
        } else {
            Wait::Not
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_where_a_sync_fits_into_a_stall() {
        let mut hold = Hold::default();
        assert_eq!(hold.wait(10_000), Wait::Not);
        hold.stalled(1_000_000);
        assert_eq!(hold.wait(0), Wait::Not);
        assert_eq!(hold.wait(200_000), Wait::Within(900_000));
        assert_eq!(hold.wait(10_000_000), Wait::Not);
        let mut fast = Hold::default();
        fast.stalled(20_000);
        assert_eq!(fast.wait(1_000), Wait::Not);
    }

    /// Stalls of 50 us and syncs of 200 us; returns the excess of all holds over their stalls, and the stalls.
    fn run(saved: u32, posts: u32) -> (u64, u64, u32) {
        let (stall, sync) = (50_000, 200_000);
        let mut hold = Hold::default();
        let (mut excess, mut stalls, mut holds) = (0, 0, 0);
        for _ in 0..posts {
            (0..saved).for_each(|_| hold.saved());
            hold.posts();
            if let Wait::Invest(longest) = hold.wait(sync) {
                assert!(longest >= sync);
                hold.invested(sync);
                excess += sync - stall;
                holds += 1;
            }
            hold.stalled(stall);
            stalls += stall;
        }
        (excess, stalls, holds)
    }

    #[test]
    fn bad_investments_stay_within_their_credit_and_become_rare() {
        let (excess, stalls, holds) = run(0, 10_000);
        assert!(excess <= CREDIT_FIRST + stalls / CREDIT_PART, "{excess} of {stalls}");
        assert!(excess <= stalls / 200, "{excess} of {stalls}");
        // Rare, and not never: programs change.
        assert!(holds >= 6, "{holds}");
    }

    #[test]
    fn good_investments_are_made_at_every_post() {
        let (_, _, holds) = run(10, 1000);
        assert!(holds > 990, "{holds}");
    }

    #[test]
    fn what_speculation_saved_pays_for_the_next_hold() {
        let (stall, sync) = (50_000, 500_000);
        let mut hold = Hold::default();
        hold.stalled(stall);
        // One that brings nothing takes all savings.
        assert!(matches!(hold.wait(sync), Wait::Invest(_)));
        hold.invested(sync);
        hold.posts();
        assert_eq!(hold.wait(sync), Wait::Not);
        // 20 ms saved, by a start that nobody was held for.
        (0..400).for_each(|_| hold.saved());
        hold.posts();
        assert!(matches!(hold.wait(sync), Wait::Invest(_)));
    }

    #[test]
    fn a_hold_that_costs_more_than_it_brings_is_a_bad_one() {
        // 150 us beyond the stall, for 5 stalls of 50 us.
        let (_, _, holds) = run(5, 1000);
        assert!(holds < 20, "{holds}");
    }

    #[test]
    fn computing_is_not_taken_for_a_stall_for_long() {
        let mut hold = Hold::default();
        let mut held = 0;
        // 60 us of disk and 10 ms of computing, a sync of 80 us.
        for _ in 0..1000 {
            if matches!(hold.wait(80_000), Wait::Within(_)) {
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
