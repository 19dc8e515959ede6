//! What may be spent on a program that may gain nothing by it: *regret*, as online algorithms call what is
//! lost against having done nothing.
//!
//! Processor time of ours takes the program's, where processors are wanted, and disks answer us in place of
//! it. At most what the program waits can be saved. So what is sure to be spent is held to a part of that,
//! and to what was saved so far: on a slow disk a millisecond is nothing beside the waiting, on a quick one
//! it is all that there is to gain.
//!
//! Rule: whatever happens, no more is spent than [`FIRST`], a part of the time waited, what was saved, and
//! the one thing that was begun last.

/// Spent on any program, ns: nobody knows anything yet.
pub const FIRST: u64 = 1_000_000;

/// One part in so many of what the program has waited.
pub const SHARE: u64 = 4;

/// Whether more may be begun, of what has taken `spent` ns of processors' time so far: for a program that has
/// `waited` so long for what nobody had asked for ahead, and that was spared waits of `saved` ns in all.
pub fn may_spend(spent: u64, waited: u64, saved: u64) -> bool {
    spent < FIRST.saturating_add(waited / SHARE).saturating_add(saved)
}

/// What it takes to start somebody whose files are not cached, ns: some twenty requests at the disk, behind
/// which the program's own wait in line.
pub const COLD_START: u64 = 8_000_000;

/// Whether somebody is to be called, who has to be started first, for a run that has `waited` so many ns in
/// all; `is_cold`: his files have to be read. Who buys when he has paid as much in rent never pays twice the
/// least (ski rental; Karlin and others, Algorithmica 3, 1988): a run that waits less has nobody started. And
/// the start is paid for like all else, out of its part of what was waited.
pub fn is_worth_a_start(waited: u64, is_cold: bool) -> bool {
    let cost = if is_cold { COLD_START } else { FIRST };
    waited >= FIRST && cost <= FIRST.saturating_add(waited / SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the events, and however dear each thing that is begun.
        #[test]
        fn no_more_is_spent_than_said(events in prop::collection::vec((0..5_000_000u64, 0..2_000_000u64, 0..100_000u64), 0..400)) {
            let (mut spent, mut waited, mut saved, mut dearest) = (0, 0, 0, 0);
            for (wait, cost, gain) in events {
                waited += wait;
                saved += gain;
                if may_spend(spent, waited, saved) {
                    spent += cost;
                    dearest = dearest.max(cost);
                }
                prop_assert!(spent <= FIRST + waited / SHARE + saved + dearest);
            }
        }
    }

    #[test]
    fn who_has_waited_for_little_has_nobody_started() {
        assert!(!is_worth_a_start(0, false) && !is_worth_a_start(FIRST - 1, false));
        assert!(is_worth_a_start(FIRST, false) && is_worth_a_start(u64::MAX, false));
        let cold = SHARE * (COLD_START - FIRST);
        assert!(!is_worth_a_start(cold - 1, true) && is_worth_a_start(cold, true));
        assert!(is_worth_a_start(u64::MAX, true));
    }

    #[test]
    fn who_waits_long_or_gains_is_helped_on() {
        assert!(may_spend(0, 0, 0) && !may_spend(FIRST, 0, 0));
        assert!(may_spend(100_000_000, 1_000_000_000, 0));
        assert!(may_spend(100_000_000, 0, 200_000_000));
        assert!(may_spend(u64::MAX - 1, u64::MAX, u64::MAX));
    }
}
