//! Is speculation worth the memory that it takes?
//!
//! What is prefetched, and the speculator itself, push other pages out. Stalls that prefetching has *removed* are set
//! against those that it has *added*: on pages that the program had in memory not long ago. Fraser and Chang (2003)
//! weigh both over intervals, forget slowly, stop speculation when it has cost more than it gained, and let it try
//! again after a pause over which the loss is so spread that it does not matter. So here:
//!
//! - while speculation is *on*, what it costs on balance is summed up and forgotten by and by; more than
//!   [`ALLOWED`] stops it. Gains count, but not without end: a program changes.
//! - while it is *off*, what it had cost is averaged over the pause, and below a [`PAUSE_TIMES`]th it may begin again.
//! - a program whose data do not fit loses pages without us, too. How much of that there is shows while speculation is
//!   off, or brings nothing in, and is no cost of ours from then on. Where a pause shows that it is as much as what led to the pause,
//!   the pause is over.
//!
//! - a speculator for which nothing is to be done while the program waits for pages that were evicted takes memory for nothing:
//!   after [`IDLE_MOST`] of that it stops too, for longer each time until it has removed a stall.
//!
//! And whatever it gains: where a program has all but used its memory up, so that it might be killed for want of what a speculator
//! holds, the speculator goes ([`Memory::give_way`]). Where that lasts, so does everybody else ([`Edge`]).
//!
//! On balance it costs 20 ms, one interval, and 3% of the time at most, by the estimates that it is given
//! (property-tested). Times are of stalls, in ns.

/// What speculation may cost on balance.
const ALLOWED: i64 = 20_000_000;

/// Gains that are remembered, to be set against later costs: those of some intervals in which it does well.
const CREDIT: i64 = 5 * ALLOWED;

/// The balance, good or bad, is forgotten at the rate of itself in so long: 1% of the time in which it costs as much
/// as it may.
const FORGOTTEN_IN: u64 = 2_000_000_000;

/// A pause is so many times as long as what it pays for (2% of it), and not shorter than a second: starting
/// a speculator is not for free.
const PAUSE_TIMES: u64 = 50;
const PAUSE_LEAST: u64 = 1_000_000_000;

/// How long a speculator may sleep through what a short memory costs its program. Longer than a program computes between two
/// parts of its work, in which speculation is of use again.
const IDLE_MOST: u64 = 1_000_000_000;

/// The same for one that has stopped for that already, and has not been of use since.
const IDLE_AGAIN: u64 = 250_000_000;

/// How long it stops for then, first and most: each time costs the time for which it is there again.
const REST_FIRST: u64 = 2_000_000_000;
const REST_MOST: u64 = 256_000_000_000;

/// Pages without which there is no speculation (4 MB): copies of the program's memory, and what speculation writes itself.
const OWN_LEAST: u64 = 1024;

/// How long memory is all but used up until there is to be nobody beside the program. The host alone takes half a MB, its code that
/// is looked at every 50 ms included: of a speech recogniser of 99.7 MB in 101 MB that is a quarter of what is left for its code, and
/// it took 12 and 16 s with the host beside it, 5 s without, 4 and 5 s alone.
const LEAVES_AFTER: u64 = 1_000_000_000;

/// How long a program's memory has been all but used up.
#[derive(Clone, Copy, Default, Debug)]
pub struct Edge {
    lasted: u64,
}

impl Edge {
    /// So many ns were over since the look before; `reached`: even without what a speculator would hold. True: the program
    /// is to be left alone, for good.
    pub fn look(&mut self, reached: bool, elapsed: u64) -> bool {
        self.lasted = if reached { self.lasted.saturating_add(elapsed) } else { 0 };
        self.lasted >= LEAVES_AFTER
    }
}

/// Stalls in an interval.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Interval {
    pub elapsed: u64,
    /// What the program would have waited without prefetches.
    pub removed: u64,
    /// What it waited for pages that were taken from it.
    pub added: u64,
    /// Other speculators ran meanwhile: what was added may be theirs.
    pub others: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    AsBefore,
    /// Stop, and give the memory back.
    Stop,
    Resume,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Memory {
    off: bool,
    /// While on: what it costs, less what it gained. While off: what it had cost.
    balance: i64,
    paused: u64,
    /// What is added while it is off or idle, in all such intervals together, and how long they were.
    usual: u64,
    usual_in: u64,
    /// How long it has been idle while pages came back.
    idle_for: u64,
    /// How long it stopped the last time that it was so for too long.
    rest: u64,
    /// How long the present pause is at least.
    pause_least: u64,
    /// What made it stop; none where that was something else than stalls. And what the present pause has added so far.
    charge: Option<Charge>,
    without: u64,
}

/// What an interval of so many ns added: what was usual, and what was charged to the speculator.
#[derive(Clone, Copy, Debug)]
struct Charge {
    usual: u64,
    excess: u64,
    elapsed: u64,
}

impl Charge {
    /// What is added in so long without the speculator if at least three quarters of what it was charged with are not its.
    fn refuted_by(self, time: u64) -> u64 {
        part(self.usual.saturating_add(self.excess / 4 * 3), time, self.elapsed)
    }
}

impl Memory {
    pub fn is_off(&self) -> bool {
        self.off
    }

    pub fn interval(&mut self, seen: Interval) -> Then {
        if self.off { self.wait(seen) } else { self.weigh(seen) }
    }

    /// An interval in which memory was abundant, and would have been with what a pause has given back: nothing that was
    /// evicted then is our fault, and nothing has to be paid off any more.
    pub fn abundant(&mut self, elapsed: u64) -> Then {
        let paused = self.paused.saturating_add(elapsed);
        if self.off && paused < PAUSE_LEAST {
            self.paused = paused;
            return Then::AsBefore;
        }
        match core::mem::take(self).off {
            true => Then::Resume,
            false => Then::AsBefore,
        }
    }

    /// An interval while it is on in which nothing was brought in: it shows what goes on without us. (NAS FT on a file, 1 ms disk:
    /// 117 pages came back while nothing was asked for, which ended prefetching for 3.5 of 4.9 s.)
    pub fn idle(&mut self, seen: Interval) -> Then {
        self.forget(seen.elapsed);
        self.learn(seen);
        if seen.removed > 0 || seen.added == 0 {
            self.gained(seen);
            return Then::AsBefore;
        }
        self.idle_for = self.idle_for.saturating_add(seen.elapsed);
        if self.idle_for < if self.rest > 0 { IDLE_AGAIN } else { IDLE_MOST } {
            return Then::AsBefore;
        }
        self.rest = self.rest.saturating_mul(2).clamp(REST_FIRST, REST_MOST);
        (self.idle_for, self.balance) = (0, 0);
        self.stop(self.rest)
    }

    /// An interval at whose end the program's memory is all but used up: it stops, and stays away until a second after the last such one.
    pub fn give_way(&mut self) -> Then {
        if self.off {
            (self.paused, self.charge, self.without) = (0, None, 0);
            return Then::AsBefore;
        }
        (self.idle_for, self.balance) = (0, 0);
        self.stop(PAUSE_LEAST)
    }

    fn gained(&mut self, seen: Interval) {
        self.idle_for = 0;
        if seen.removed > 0 {
            self.rest = 0;
        }
    }

    fn stop(&mut self, least: u64) -> Then {
        (self.off, self.paused, self.pause_least) = (true, 0, least);
        (self.charge, self.without) = (None, 0);
        Then::Stop
    }

    /// Whether it is as bad without it as in the interval that made it stop: on the average of the pause, and now, when what had
    /// been pushed out has come back. Then that was the program's own.
    fn is_acquitted(&self, seen: Interval) -> bool {
        let refutes =
            |added: u64, time: u64| self.charge.is_some_and(|charge| added >= charge.refuted_by(time));
        !seen.others && refutes(self.without, self.paused) && refutes(seen.added, seen.elapsed)
    }

    fn forget(&mut self, elapsed: u64) {
        let forgotten = part(self.balance.unsigned_abs(), elapsed, FORGOTTEN_IN);
        self.balance -= signed(forgotten).min(self.balance.abs()) * self.balance.signum();
    }

    fn learn(&mut self, seen: Interval) {
        self.usual = self.usual.saturating_add(seen.added);
        self.usual_in = self.usual_in.saturating_add(seen.elapsed);
    }

    fn weigh(&mut self, seen: Interval) -> Then {
        let usual = part(self.usual, seen.elapsed, self.usual_in);
        let added = signed(seen.added.saturating_sub(usual));
        self.forget(seen.elapsed);
        self.gained(seen);
        self.balance = self.balance.saturating_add(added).saturating_sub(signed(seen.removed)).max(-CREDIT);
        if self.balance <= ALLOWED {
            return Then::AsBefore;
        }
        let then = self.stop(PAUSE_LEAST);
        self.charge = Some(Charge { usual, excess: seen.added.saturating_sub(usual), elapsed: seen.elapsed });
        then
    }

    fn wait(&mut self, seen: Interval) -> Then {
        self.paused = self.paused.saturating_add(seen.elapsed);
        self.learn(seen);
        self.without = self.without.saturating_add(seen.added);
        let paid_off = self.balance.unsigned_abs().saturating_mul(PAUSE_TIMES);
        let is_over = self.paused >= paid_off || self.is_acquitted(seen);
        if !is_over || self.paused < self.pause_least {
            return Then::AsBefore;
        }
        (self.off, self.balance) = (false, 0);
        Then::Resume
    }
}

/// Pages of memory that a speculator may have of its own where so many may be brought in ahead of the program, which is a
/// quarter of what is left; all that it likes where there is no limit.
pub fn own_most(pages: u32) -> u64 {
    match pages {
        u32::MAX => u64::MAX,
        pages => u64::from(pages).max(OWN_LEAST),
    }
}

/// The share of one of several speculators in what they have added together, by the memory that they use.
pub fn share(added: u64, memory: u64, of: u64) -> u64 {
    part(added, memory.min(of), of)
}

/// `whole * numerator / denominator`; 0 of nothing.
fn part(whole: u64, numerator: u64, denominator: u64) -> u64 {
    let product = u128::from(whole) * u128::from(numerator);
    u64::try_from(product.checked_div(u128::from(denominator)).unwrap_or(0)).unwrap_or(u64::MAX)
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_at_the_edge_for_a_second_is_left_alone() {
        let mut edge = Edge::default();
        let looks = |edge: &mut Edge, reached| (1..=4).position(|_| edge.look(reached, LEAVES_AFTER / 4));
        assert_eq!(looks(&mut edge, true), Some(3));
        let mut edge = Edge::default();
        assert!(!edge.look(true, LEAVES_AFTER - 1));
        assert!(!edge.look(false, LEAVES_AFTER), "it was over");
        assert!(!edge.look(true, LEAVES_AFTER - 1));
    }
    use proptest::prelude::*;

    const LOOK: u64 = 250_000_000;

    fn interval(removed: u64, added: u64) -> Interval {
        Interval { elapsed: LOOK, removed, added, others: false }
    }

    #[test]
    fn a_program_that_loses_pages_by_itself_is_not_our_fault() {
        let mut memory = Memory::default();
        let mut stops = 0;
        for _ in 0..4000 {
            stops += u32::from(memory.interval(interval(0, LOOK / 2)) == Then::Stop);
        }
        assert_eq!(stops, 1, "the first time nobody knows");
        assert!(!memory.is_off());
    }

    #[test]
    fn a_pause_that_shows_as_much_is_over_after_a_second() {
        // NAS MG begins to go through its arrays before anything is foreseen, and waits for 80 of 250 ms.
        let pause = |without: &dyn Fn(u32) -> u64| {
            let mut memory = Memory::default();
            assert_eq!(memory.interval(interval(0, 80_000_000)), Then::Stop);
            (1u32..).find(|&at| memory.interval(interval(0, without(at))) == Then::Resume).unwrap_or(0)
        };
        assert_eq!(pause(&|_| 80_000_000), 4);
        let all_of_it = (80_000_000 * PAUSE_TIMES).div_ceil(LOOK) as u32;
        assert_eq!(pause(&|_| 20_000_000), all_of_it);
        let comes_back = |at: u32| if at < 3 { LOOK } else { 0 };
        assert_eq!(pause(&comes_back), all_of_it, "what had been pushed out");

        // What was usual before says nothing.
        let mut memory = Memory::default();
        (0..100).for_each(|_| assert_eq!(memory.idle(interval(1, 180_000_000)), Then::AsBefore));
        assert_eq!(memory.interval(interval(0, LOOK)), Then::Stop);
        let over = (1u32..).find(|_| memory.interval(interval(0, 180_000_000)) == Then::Resume).unwrap_or(0);
        assert!(over > 8, "{over}");
    }

    #[test]
    fn who_rests_for_idleness_is_not_acquitted() {
        let mut memory = Memory::default();
        while memory.idle(interval(0, LOOK)) != Then::Stop {}
        let resumed = (1..).find(|_| memory.interval(interval(0, LOOK)) == Then::Resume).unwrap_or(0);
        assert_eq!(resumed * LOOK, REST_FIRST);
    }

    #[test]
    fn what_goes_on_while_nothing_is_brought_in_is_not_our_fault() {
        let mut memory = Memory::default();
        for _ in 0..100 {
            assert_eq!(memory.idle(interval(0, LOOK / 2)), Then::AsBefore);
            assert_eq!(memory.interval(interval(0, LOOK / 2)), Then::AsBefore);
        }
        assert_eq!(memory.interval(interval(0, LOOK)), Then::Stop, "what is more is ours");
    }

    #[test]
    fn who_sleeps_while_pages_come_back_goes_for_longer_each_time() {
        let mut memory = Memory::default();
        let pause = |memory: &mut Memory, idle_for: u64| {
            let stop = (0..20).position(|_| memory.idle(interval(0, LOOK)) == Then::Stop);
            assert_eq!(stop, Some((idle_for / LOOK) as usize - 1));
            (1..).find(|_| memory.interval(interval(0, LOOK)) == Then::Resume).unwrap_or(0) * LOOK
        };
        let mut idle_for = IDLE_MOST;
        let pauses = [(); 9].map(|()| pause(&mut memory, std::mem::replace(&mut idle_for, IDLE_AGAIN)));
        assert_eq!(pauses[..3], [REST_FIRST, 2 * REST_FIRST, 4 * REST_FIRST]);
        assert_eq!(pauses[7..], [REST_MOST, REST_MOST]);
        assert_eq!(memory.interval(interval(1, 0)), Then::AsBefore);
        assert_eq!(pause(&mut memory, IDLE_MOST), REST_FIRST, "it was of use meanwhile");
    }

    #[test]
    fn who_sleeps_while_nothing_comes_back_or_has_been_of_use_stays() {
        let mut memory = Memory::default();
        for _ in 0..100 {
            for _ in 0..3 {
                assert_eq!(memory.idle(interval(0, LOOK)), Then::AsBefore);
            }
            assert_eq!(memory.idle(interval(0, 0)), Then::AsBefore);
            for _ in 0..3 {
                assert_eq!(memory.idle(interval(0, LOOK)), Then::AsBefore);
            }
            assert_eq!(memory.idle(interval(1, LOOK)), Then::AsBefore);
        }
    }

    #[test]
    fn at_the_edge_it_stops_whatever_it_gains_and_stays_away() {
        let mut memory = Memory::default();
        assert_eq!(memory.interval(interval(LOOK, 0)), Then::AsBefore);
        assert_eq!(memory.give_way(), Then::Stop);
        (0..100).for_each(|_| assert_eq!(memory.give_way(), Then::AsBefore));
        let until = (1..).find(|_| memory.interval(interval(0, 0)) == Then::Resume);
        assert_eq!(until, Some(PAUSE_LEAST / LOOK), "a pause after it was there last");
    }

    #[test]
    fn what_pays_by_and_large_goes_on() {
        let mut memory = Memory::default();
        for _ in 0..100 {
            assert_eq!(memory.interval(interval(100_000_000, 0)), Then::AsBefore);
            assert_eq!(memory.interval(interval(0, 60_000_000)), Then::AsBefore);
        }
    }

    #[test]
    fn gains_of_long_ago_do_not_excuse_it() {
        let mut memory = Memory::default();
        for _ in 0..1000 {
            memory.interval(interval(LOOK, 0));
        }
        let stop = (0..20).position(|_| memory.interval(interval(0, LOOK / 10)) == Then::Stop);
        assert!(stop.is_some_and(|after| after <= 5), "{stop:?}");
    }

    #[test]
    fn memory_that_is_abundant_again_ends_a_pause_after_a_second() {
        let mut memory = Memory::default();
        assert_eq!(memory.abundant(LOOK), Then::AsBefore);
        assert_eq!(memory.interval(interval(0, LOOK)), Then::Stop);
        let pauses = (0..20).position(|_| memory.abundant(LOOK) == Then::Resume);
        assert_eq!(pauses, Some((PAUSE_LEAST / LOOK) as usize - 1));
        assert!(!memory.is_off());
    }

    #[test]
    fn what_a_speculator_may_have_is_what_may_be_brought_in_and_never_too_little_to_begin() {
        assert_eq!(own_most(u32::MAX), u64::MAX);
        assert_eq!([1, OWN_LEAST as u32, 5000].map(own_most), [OWN_LEAST, OWN_LEAST, 5000]);
    }

    #[test]
    fn shares_are_by_memory() {
        assert_eq!([1, 3, 0].map(|memory| share(100, memory, 4)), [25, 75, 0]);
        assert_eq!(share(100, 7, 0), 0);
    }

    prop_compose! {
        fn intervals()(elapsed in 1_000_000u64..500_000_000, removed: u64, added: u64) -> Interval {
            Interval { elapsed, removed: removed % elapsed, added: added % elapsed, others: false }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever happens: what it costs on balance while it is on is bounded. (Off, nothing is added here, so that
        /// all counts.)
        #[test]
        fn the_loss_is_bounded(seen in prop::collection::vec(intervals(), 0..2000)) {
            let mut memory = Memory::default();
            let (mut loss, mut time, mut longest) = (0i64, 0u64, 0u64);
            for interval in seen {
                (time, longest) = (time + interval.elapsed, longest.max(interval.elapsed));
                if memory.is_off() {
                    memory.interval(Interval { added: 0, ..interval });
                } else {
                    loss += interval.added as i64 - interval.removed as i64;
                    memory.interval(interval);
                }
                let most = ALLOWED + longest as i64 + (time / 100 * 3) as i64;
                prop_assert!(loss <= most, "{loss} of {most}");
            }
        }

        /// So it is beside a program that loses pages all the time by itself, once that is known.
        #[test]
        fn the_loss_is_bounded_beside_others(
            seen in prop::collection::vec(intervals(), 0..2000),
            percent in 0u64..90,
        ) {
            let mut memory = Memory::default();
            let (mut loss, mut time, mut longest) = (0i64, 0u64, 0u64);
            for interval in seen {
                (time, longest) = (time + interval.elapsed, longest.max(interval.elapsed));
                let own = interval.elapsed * percent / 100;
                if memory.is_off() {
                    memory.interval(Interval { added: own, removed: 0, ..interval });
                } else {
                    loss += interval.added as i64 - interval.removed as i64;
                    memory.interval(Interval { added: own + interval.added, ..interval });
                }
                let most = 2 * (ALLOWED + longest as i64) + (time / 100 * 3) as i64;
                prop_assert!(loss <= most, "{loss} of {most}");
            }
        }

        #[test]
        fn what_never_costs_is_never_stopped(seen in prop::collection::vec(intervals(), 0..500)) {
            let mut memory = Memory::default();
            for Interval { elapsed, removed, added, others } in seen {
                let interval = Interval { elapsed, removed: removed.max(added), added: removed.min(added), others };
                prop_assert_eq!(memory.interval(interval), Then::AsBefore);
            }
        }

        /// It begins again, and not before the loss is spread thin.
        #[test]
        fn a_pause_ends_in_time(added in ALLOWED as u64 + 1..10_000_000_000, elapsed in 1_000_000u64..500_000_000) {
            let mut memory = Memory::default();
            prop_assert_eq!(memory.interval(Interval { elapsed, removed: 0, added, others: false }), Then::Stop);
            let mut paused = 0;
            loop {
                paused += elapsed;
                match memory.interval(Interval { elapsed, ..Interval::default() }) {
                    Then::AsBefore => prop_assert!(paused < (added * PAUSE_TIMES).max(PAUSE_LEAST)),
                    then => {
                        prop_assert_eq!(then, Then::Resume);
                        prop_assert!(paused >= added * PAUSE_TIMES && paused >= PAUSE_LEAST);
                        break;
                    }
                }
            }
        }

        #[test]
        fn shares_never_exceed_the_whole(added: u64, memory in prop::collection::vec(0u64..1 << 40, 1..9)) {
            let of = memory.iter().sum();
            let sum: u128 = memory.iter().map(|&one| u128::from(share(added, one, of))).sum();
            prop_assert!(sum <= u128::from(added));
        }
    }
}
