//! What the disk takes of the program for requests of ours, and what it was spared: in its own time.
//!
//! Where a volume's requests are capped, or a disk serves few at once, whatever was asked for in vain is served before the program's
//! next read. No figure of a disk says how dear that is, and no latency tells a cap from none. So waits are compared with each
//! other: those with requests of ours before them, and those with none, *clean* ones. What a wait is longer than a clean one
//! is a loss, what it is shorter, or a read that need not wait at all, a gain. Both are booked as they happen; a purse holds what may be
//! lost, a small part of what the program waits and what was gained of late. When it is empty there is a question, which
//! [`crate::worth`] tries out: not all that is gained is seen (what an earlier speculation has fetched is no wait any more).
//!
//! What others ask for (the host: names, companions, what is remembered) stands in line as well and is not known here: a
//! wait behind it is taken for a clean one.
//!
//! Rule, of waits as they are counted ([`LONGEST`]): before the question is asked no more was lost, net, than [`FIRST`]
//! clean waits, one part in [`PART`] of what was waited, and the one wait that was too much.

/// A part of what is waited that may be lost: one in so many. 1% is what "never slower" is measured to.
const PART: i64 = 96;

/// The purse at first and at most, and the most that it may owe, in clean waits. At most what some rounds of speculation gain, or a program
/// that gained once would lose all of it again.
const FIRST: i64 = 4;
const MOST: i64 = 64;

/// A wait counts for so many clean ones at most: what is longer may be the disk's own trouble, or the program's computing, and
/// one such wait does not empty the purse. (With 64 a volume that fetches what nobody had touched from afar, 40 ms, was taken for one
/// with a line: `tar` and `sqlite3` took 1.3 and 1.6 times as long on `hydrating`.)
const LONGEST: u64 = FIRST as u64 + 1;

/// Waits behind requests are longer by so much, in percent of clean ones, where they stand in line.
const CROWDED: u64 = 140;

/// Means of waits, clean and behind requests of ours, move by one part in so many.
const WEIGHT: u64 = 8;

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Toll {
    /// Means, ns; 0: none was seen yet.
    clean: u64,
    behind: u64,
    /// Gained and not lost, ns.
    purse: i64,
    /// What speculation had done when the latest wait began.
    done: u64,
    /// It has done something since a request of the program's own was answered last: what it has asked for may stand before the next.
    is_behind: bool,
    /// So it was when the request before that was made.
    was_behind: bool,
    /// More was lost once than may be.
    was_dear: bool,
}

impl Toll {
    pub const fn new() -> Toll {
        Toll { clean: 0, behind: 0, purse: 0, done: 0, is_behind: false, was_behind: false, was_dear: false }
    }

    /// The program is going to wait. Speculation has `done` so much until now: asked for so many pages.
    pub fn waits(&mut self, done: u64) {
        self.is_behind |= done != self.done;
        self.done = done;
    }

    /// That took `ns`. `is_whole`: nobody had asked for it ahead. `done`: as above. A wait while which requests of ours were made is no
    /// clean one: on a disk that does not serve in turn they may have gone before it.
    pub fn waited(&mut self, ns: u64, is_whole: bool, done: u64) {
        if is_whole && !self.is_behind && !self.was_behind && done == self.done {
            let is_first = self.clean == 0;
            self.clean = mean(self.clean, ns);
            if is_first {
                self.answered(false);
            }
        }
        if self.clean == 0 {
            self.drained(is_whole);
            return;
        }
        if is_whole && self.is_behind && ns < self.clean / 2 {
            // So long a clean one does not take, whatever it took at first: behind a line of others', or with the program's
            // computing in it.
            self.clean = mean(self.clean, ns);
        }
        let ns = ns.min(self.clean.saturating_mul(LONGEST));
        if is_whole && self.is_behind {
            // From a clean one on: a few that are somewhat longer prove nothing.
            let behind = if self.behind == 0 { self.clean } else { self.behind };
            self.behind = mean(behind, ns);
        }
        let gain = match signed(self.clean) - signed(ns) {
            gain if is_whole => {
                if self.is_behind {
                    gain
                } else {
                    0
                }
            }
            // Longer than a clean one: it may have been at a farther place. What stood in vain before it stands before others as well.
            gain => gain.max(0),
        };
        self.book(gain.saturating_add(signed(ns) / PART));
        self.drained(is_whole);
    }

    fn drained(&mut self, is_whole: bool) {
        if is_whole {
            // What stood before it has been served. (What was asked for ahead stood further in front.)
            self.was_behind = core::mem::take(&mut self.is_behind);
        }
    }

    /// A read would have waited, had it not been asked for ahead.
    pub fn spared(&mut self) {
        self.book(signed(self.clean));
    }

    /// What a wait with no requests of ours before it takes, ns, if one was seen.
    pub fn clean(&self) -> Option<u64> {
        Some(self.clean).filter(|&ns| ns > 0)
    }

    /// More was lost than may be.
    pub fn is_too_dear(&self) -> bool {
        self.purse < 0
    }

    /// What is asked for in vain stands in line here.
    pub fn is_crowded(&self) -> bool {
        self.was_dear && self.behind > self.clean.saturating_mul(CROWDED) / 100
    }

    /// The question was asked, and answered: speculation pays, or not.
    pub fn answered(&mut self, pays: bool) {
        let purse = if pays { MOST } else { FIRST };
        self.was_dear &= !pays || self.is_crowded();
        self.purse = purse.saturating_mul(signed(self.clean));
    }

    fn book(&mut self, ns: i64) {
        let most = MOST.saturating_mul(signed(self.clean));
        self.purse = self.purse.saturating_add(ns).min(most).max(-most);
        self.was_dear |= self.purse < 0;
    }
}

fn signed(ns: u64) -> i64 {
    // Far beyond any wait, and far from where sums of a few would run over.
    ns.min(1 << 50) as i64
}

fn mean(mean: u64, ns: u64) -> u64 {
    if mean == 0 { ns } else { mean - mean / WEIGHT + ns / WEIGHT }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLEAN: u64 = 700_000;

    fn known() -> Toll {
        let mut toll = Toll::new();
        toll.waits(0);
        toll.waited(CLEAN, true, 0);
        toll
    }

    /// A wait with requests of ours before it.
    fn behind(toll: &mut Toll, ns: u64) {
        toll.waits(toll.done + 1);
        toll.waited(ns, true, toll.done);
    }

    proptest! {
        /// Whatever the waits: until it is said to be too dear no more was lost than the rule says.
        #[test]
        fn no_more_is_lost_than_said(waits in prop::collection::vec((0..40 * CLEAN, any::<bool>()), 1..400)) {
            let mut toll = known();
            let (mut lost, mut waited) = (0i64, CLEAN + PART as u64);
            for (ns, is_spared) in waits {
                // (A gain is kept only to some part.)
                prop_assert!(lost <= FIRST * CLEAN as i64 + (waited / PART as u64) as i64);
                if is_spared {
                    lost -= toll.clean as i64;
                    toll.spared();
                } else {
                    behind(&mut toll, ns);
                    // As it is counted, by what a clean one is known to take from then on.
                    let ns = ns.min(LONGEST * toll.clean);
                    (lost, waited) = (lost + ns as i64 - toll.clean as i64, waited + ns + PART as u64);
                }
                if toll.is_too_dear() {
                    break;
                }
            }
        }
    }

    #[test]
    fn where_nothing_stands_in_line_nothing_is_asked() {
        let mut toll = known();
        for _ in 0..10_000 {
            behind(&mut toll, CLEAN);
            assert!(!toll.is_too_dear() && !toll.is_crowded());
        }
    }

    #[test]
    fn what_is_spared_pays_for_what_stands_in_line() {
        let mut toll = known();
        for _ in 0..1000 {
            toll.spared();
            behind(&mut toll, CLEAN * 2 - CLEAN / 10);
            assert!(!toll.is_too_dear());
        }
        assert!(!toll.is_crowded(), "nothing was too dear");
        for _ in 0..3 * MOST {
            behind(&mut toll, CLEAN * 2);
        }
        assert!(toll.is_too_dear() && toll.is_crowded());
    }

    /// Two reads that were asked for ahead are answered before what was asked for in vain behind them, and nothing is asked meanwhile.
    #[test]
    fn a_line_is_not_taken_for_the_disk() {
        let mut toll = known();
        for asked in [512, 1024] {
            assert!(!toll.is_too_dear(), "one may be the disk's own trouble");
            toll.waits(asked);
            for _ in 0..3 {
                toll.waited(CLEAN / 2, false, asked);
                toll.waits(asked);
            }
            toll.waited(170 * CLEAN, true, asked);
            assert_eq!(toll.clean(), Some(CLEAN));
        }
        assert!(toll.is_too_dear() && toll.is_crowded());
    }

    #[test]
    fn a_wait_meanwhile_something_was_asked_for_is_no_clean_one() {
        let mut toll = known();
        for _ in 0..64 {
            let done = toll.done;
            toll.waits(done);
            toll.waited(CLEAN, true, done);
            toll.waits(done);
            toll.waited(5 * CLEAN, true, done + 1);
            assert_eq!(toll.clean(), Some(CLEAN));
            behind(&mut toll, CLEAN);
        }
    }

    #[test]
    fn a_first_wait_that_was_long_is_no_clean_one_for_ever() {
        let mut toll = Toll::new();
        toll.waits(0);
        toll.waited(10 * CLEAN, true, 0);
        for _ in 0..32 {
            behind(&mut toll, CLEAN * 3 / 2);
        }
        assert!(toll.clean().is_some_and(|clean| clean < 4 * CLEAN), "{:?}", toll.clean());
        (0..2 * MOST).for_each(|_| behind(&mut toll, 5 * CLEAN));
        assert!(toll.is_too_dear());
    }

    #[test]
    fn a_disk_that_has_become_slow_is_learnt_where_nothing_of_ours_is_about() {
        let mut toll = known();
        (0..2).for_each(|_| behind(&mut toll, 9 * CLEAN));
        assert!(toll.is_too_dear());
        for _ in 0..64 {
            toll.waits(toll.done);
            toll.waited(9 * CLEAN, true, toll.done);
        }
        toll.answered(false);
        behind(&mut toll, 9 * CLEAN);
        assert!(!toll.is_too_dear() && !toll.is_crowded());
    }
}
