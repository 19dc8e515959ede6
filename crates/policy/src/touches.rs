//! Is speculation on track, judged by page faults alone.
//!
//! Speculation from a page fault leaves a log of the pages it touched first, in order. The program faults on some
//! of them: the kernel maps several at a time, others are mapped already. So a fault is looked for in the whole
//! log, not compared with the next entry:
//!
//! - at or beyond the position reached so far: the program has come so far;
//! - an earlier one, or a page that is in memory: says nothing;
//! - a page that is neither in the log nor in memory: off track, and speculation is restarted from this very
//!   fault. (Taking pages in memory for mismatches made storms of restarts.)
//!
//! Unless speculation is merely late: it has written nothing beyond the program's position. And restarts that
//! lead nowhere get rarer; the ones that serve one page each are kept, as with reads. How far ahead it may be
//! follows from what it was good for since the last restart: a chain of pages, each found through the one before, is
//! run ahead on nothing but wrong pages.

/// What a fault's page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// In the log, at this position; it had to be asked for.
    Foretold { position: u32, fetched: bool },
    /// In memory, and not in the log.
    Cached,
    /// The program waits for it.
    Missing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    Nothing,
    /// The program has reached a new position ([`Touches::passed`]).
    Passed,
    /// Restart speculation from this fault.
    Post,
}

/// Faults that wait before the first restart: time for a constant stride to show, or for three scans at once, each of which
/// wants three waits.
const FIRST: u32 = 12;

/// Faults that wait while speculation is late; and while it has not touched anything yet: the first time that takes
/// 20 ms, and a later post would only make it begin again. (Reads allow 6. On a machine with six runnable processes
/// for two processors 6 made a restart of every second fault.)
const LATE: u32 = 16;
const NOT_BEGUN: u32 = 64;

/// Touches that are left to the program while speculation that was full begins anew: that takes 1.5 ms, and so many pages
/// a disk of 1 ms brings in meanwhile.
const BEFORE_THE_END: u32 = 64;

/// So long after a restart, ns, another one is not worth it: until speculation is under way again takes 0.1 to 0.2 ms, in which a
/// local disk answers two or three waits. Where what is read says what is read next, a wait that was not foretold is usual, and
/// what counts is how much each run asks for before the next one goes a layer deeper. (1500 look-ups by an index in a mapped
/// sqlite, local disk, 0.38 s alone: 0.24 s at once, 0.22 after 0.3 ms, 0.18 after 0.6 and after 1.2. A disk of 1 ms answers later than that.)
const YOUNG_NS: u64 = 600_000;

/// Restarts over which their use is judged: each must have led to one useful page on the average.
const JUDGED: u32 = 16;
/// Restarts over which it is tried again once they were found to lead nowhere.
const JUDGED_AGAIN: u32 = 2;

/// Processor time that speculation may take for each page that was of use, ns, and what it may take besides since it was judged
/// last: it is another processor's, but one that others want, the program's own kernel work among them. A wait that it removes is
/// 0.1 to 1 ms. (NAS FT on a file: 0.5 s for 32 restarts, each of which led to one page.)
const WORTH_NS: u64 = 1_000_000;
const TO_SPARE_NS: u64 = 50_000_000;
const TO_SPARE_AGAIN_NS: u64 = 10_000_000;

/// Missing pages of which speculation may be ahead. A cloud disk answers 64 at a time, and 256 keep it busy between
/// two looks. Doubles with each so many useful ones, halves with a restart after none.
const AHEAD_FIRST: u32 = 64;
const AHEAD_LEAST: u32 = 4;
pub const AHEAD_MOST: u32 = 256;
const AHEAD_DOUBLES: u32 = 16;

/// Useful pages of a run are few if they are less than one in so many of those that it may be ahead.
const FEW: u32 = 8;

/// Who waits for less than so many percent of its time is not run ahead of: speculation goes the same way, and is hardly quicker than
/// a program that hardly waits. (A gather of which 98% are cached waits in a fifth of its time on a local disk, and took 5 to 27%
/// longer with speculation, which led to no page or a few; with 90% cached in two fifths.) What is gained shows by
/// itself, and then the program does not wait either.
const LITTLE_PERCENT: u64 = 30;

/// Faults that wait and are let be after restarts that led nowhere, or after speculation ran into a scan.
const PAUSE_FIRST: u32 = 64;
const PAUSE_MOST: u32 = 8192;

/// So many faults one after the other that all were foreseen: the next ones most likely are, too. Few, as a record
/// with registers takes 0.7 us more; more than a few, as it takes some 5 us to have them in the records again.
const SETTLED: u32 = 64;
/// Before a restart for which so many waits have to come, registers are to be in the records: as many as may come in one look.
const SOON: u32 = 4;

#[derive(Clone, Copy, Debug)]
pub struct Touches {
    on: bool,
    passed: u32,
    late: u32,
    /// Faults to be let be.
    skip: u32,
    pause: u32,
    /// Restarts until they are judged, those since the last judgement, and useful pages since then.
    judged_after: u32,
    restarts: u32,
    useful: u32,
    /// Processor time that speculation had taken then, ns (None: nobody has looked), and what it may take from then on for
    /// nothing.
    spent: Option<u64>,
    to_spare: u64,
    /// Useful pages since the latest restart.
    since_restart: u32,
    ahead: u32,
    /// Useful pages since it last changed, over restarts: two levels of indices have a dozen from one to the next.
    credit: u32,
    /// Faults that were foreseen since the latest that waited unforeseen.
    settled: u32,
}

/// Whether who has waited for so much of a span of its time, ns, has too little to gain.
pub fn is_little(whole: u64, waited: u64) -> bool {
    waited.saturating_mul(100) < whole.saturating_mul(LITTLE_PERCENT)
}

impl Default for Touches {
    fn default() -> Touches {
        Touches {
            on: false,
            passed: 0,
            late: 0,
            skip: FIRST,
            pause: PAUSE_FIRST,
            judged_after: JUDGED,
            restarts: 0,
            useful: 0,
            spent: None,
            to_spare: TO_SPARE_NS,
            since_restart: 0,
            ahead: AHEAD_FIRST,
            credit: 0,
            settled: 0,
        }
    }
}

impl Touches {
    /// Positions of the log that the program has passed.
    pub fn passed(&self) -> u32 {
        self.passed
    }

    /// Missing pages of which speculation may be ahead.
    pub fn ahead(&self) -> u32 {
        self.ahead
    }

    /// Whether speculation was restarted, and has not been ended since for what it costs or met.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Whether speculation that was restarted so many ns ago is not to be restarted yet, whatever the program waits for.
    pub fn is_young(&self, age: u64) -> bool {
        self.on && age < YOUNG_NS
    }

    /// The program has faulted on a page that was foreseen without speculation, by a stride.
    pub fn served(&mut self) {
        self.settled = self.settled.saturating_add(1);
    }

    /// Whether one of the next few faults may restart speculation. While it is on and the program waits now and then, any of them:
    /// without registers at the very fault a restart is a wait late, and 1500 look-ups by an index, with 300 restarts, took
    /// 0.385 s for 0.335.
    pub fn may_restart(&self) -> bool {
        self.settled < SETTLED && (self.on || self.skip <= SOON)
    }

    /// The program has faulted; the log holds so many entries, or speculation has not begun yet.
    pub fn fault(&mut self, seen: Seen, written: Option<u32>) -> Then {
        self.settled = match seen {
            Seen::Foretold { .. } => self.settled.saturating_add(1),
            Seen::Cached => self.settled,
            Seen::Missing => 0,
        };
        match seen {
            Seen::Foretold { position, fetched } if self.on && position >= self.passed => {
                self.passed = position.saturating_add(1);
                self.late = 0;
                if fetched {
                    self.useful = self.useful.saturating_add(1);
                    self.since_restart = self.since_restart.saturating_add(1);
                    self.credit += 1;
                    if self.credit >= AHEAD_DOUBLES {
                        self.credit = 0;
                        self.ahead = (self.ahead * 2).min(AHEAD_MOST);
                    }
                }
                Then::Passed
            }
            Seen::Foretold { .. } | Seen::Cached => Then::Nothing,
            Seen::Missing if self.skip > 0 => {
                self.skip -= 1;
                Then::Nothing
            }
            Seen::Missing => {
                let patience = match written {
                    None | Some(0) => NOT_BEGUN,
                    Some(written) if written <= self.passed => LATE,
                    Some(_) => 0,
                };
                if self.on && self.late < patience {
                    self.late += 1;
                    return Then::Nothing;
                }
                Then::Post
            }
        }
    }

    /// The program has come so far in the log of a speculation that has ended, and was right so far: it is to begin anew
    /// before the log is used up.
    pub fn passed_of(&self, written: u32) -> Then {
        if written.saturating_sub(self.passed) <= BEFORE_THE_END { Then::Post } else { Then::Passed }
    }

    /// Speculation was restarted, and has taken so many ns of processor time so far. (A new speculator begins to count anew;
    /// what it runs ahead of reads counts as well.)
    pub fn posted(&mut self, spent: u64) {
        self.restarts += 1;
        if self.on && self.since_restart == 0 {
            self.ahead = (self.ahead / 2).max(AHEAD_LEAST);
            self.credit = 0;
        }
        self.since_restart = 0;
        let is_dear = self.costs_more_than_it_is_worth(spent);
        if is_dear || self.restarts >= self.judged_after {
            self.judge(is_dear || self.useful < self.restarts, spent);
        }
        (self.on, self.passed, self.late) = (true, 0, 0);
    }

    /// Speculation has taken so many ns of processor time so far: whether it is to end, as that is more than it is worth. (Looked
    /// at when it was restarted only, a run through NAS FT's columns took up to 0.4 s, for 10 to 80 pages in all.)
    pub fn is_dear(&mut self, spent: u64) -> bool {
        let is_dear = self.on && self.costs_more_than_it_is_worth(spent);
        if is_dear {
            self.on = false;
            self.judge(true, spent);
        }
        is_dear
    }

    fn costs_more_than_it_is_worth(&mut self, spent: u64) -> bool {
        let worth = u64::from(self.useful).saturating_mul(WORTH_NS);
        let before = *self.spent.get_or_insert(spent);
        if spent < before {
            self.spent = Some(spent);
        }
        spent.saturating_sub(before) > worth.saturating_add(self.to_spare)
    }

    /// The program has waited for so much of a span of its time, ns, and speculation would be restarted. True if it is not to be, and to
    /// end where it runs.
    pub fn waits_little(&mut self, whole: u64, waited: u64) -> bool {
        // Nor is it where speculation was of use lately, and has taken the waits away.
        let little = self.since_restart == 0 && self.useful == 0 && is_little(whole, waited);
        if little {
            (self.on, self.skip) = (false, PAUSE_FIRST);
        }
        little
    }

    fn judge(&mut self, useless: bool, spent: u64) {
        if useless {
            self.be_quiet();
            (self.judged_after, self.to_spare) = (JUDGED_AGAIN, TO_SPARE_AGAIN_NS);
        } else {
            self.pause = PAUSE_FIRST;
            (self.judged_after, self.to_spare) = (JUDGED, TO_SPARE_NS);
        }
        (self.restarts, self.useful, self.spent) = (0, 0, Some(spent));
    }

    /// Speculation is about to be restarted from the same place: if it has led to fewer useful pages than
    /// one in eight that it may be ahead, that counts as none. (Where each place is found in the one before
    /// there is one for each restart, and 64 in vain.)
    pub fn counts_few_as_none(&mut self) {
        if self.since_restart < self.ahead / FEW {
            self.since_restart = 0;
        }
    }

    /// Speculation was ended: it had gone another way, or nobody looks any more.
    pub fn ended(&mut self) {
        self.on = false;
    }

    /// Speculation met a scan, which read-ahead serves.
    pub fn met_scan(&mut self) {
        self.on = false;
        self.be_quiet();
    }

    fn be_quiet(&mut self) {
        self.skip = self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on() -> Touches {
        let mut touches = Touches { skip: 0, ..Touches::default() };
        touches.posted(0);
        touches
    }

    fn foretold(position: u32) -> Seen {
        Seen::Foretold { position, fetched: true }
    }

    #[test]
    fn who_hardly_waits_is_let_be() {
        let mut touches = on();
        assert!(!touches.waits_little(3000, 900));
        assert!(touches.waits_little(3000, 899));
        assert!(!touches.is_on());
        let before = (0..).find(|_| touches.fault(Seen::Missing, None) == Then::Post);
        assert_eq!(before, Some(PAUSE_FIRST));
        touches.posted(0);
        touches.fault(foretold(3), Some(10));
        assert!(!touches.waits_little(3000, 0), "it waits no more since speculation is of use");
    }

    #[test]
    fn registers_are_wanted_before_restarts_only() {
        let mut touches = Touches::default();
        let wanted = (0..FIRST).filter(|_| {
            let soon = touches.may_restart();
            assert_eq!(touches.fault(Seen::Missing, None), Then::Nothing);
            soon
        });
        assert_eq!(wanted.count() as u32, SOON);
        assert!(touches.may_restart());
        touches.posted(0);
        let wanted = (0..2 * SETTLED).filter(|position| {
            touches.fault(foretold(*position), Some(1000));
            touches.may_restart()
        });
        assert_eq!(wanted.count() as u32, SETTLED - 1);
        touches.fault(Seen::Cached, Some(1000));
        assert!(!touches.may_restart());
        touches.fault(Seen::Missing, Some(1000));
        assert!(touches.may_restart());
        (0..SETTLED).for_each(|_| touches.served());
        assert!(!touches.may_restart(), "a stride serves it");
    }

    #[test]
    fn a_run_that_takes_more_than_it_is_worth_is_ended_and_one_that_serves_is_not() {
        let mut touches = on();
        assert!(!touches.is_dear(TO_SPARE_NS));
        assert!(touches.is_dear(TO_SPARE_NS + 1));
        assert!(!touches.is_dear(10 * TO_SPARE_NS), "it has ended");
        for _ in 0..PAUSE_FIRST {
            assert_eq!(touches.fault(Seen::Missing, Some(50)), Then::Nothing);
        }
        assert_eq!(touches.fault(Seen::Missing, Some(50)), Then::Post);
        let mut touches = on();
        for position in 0..1000 {
            touches.fault(foretold(position), Some(5000));
            assert!(!touches.is_dear(u64::from(position) * WORTH_NS));
        }
    }

    #[test]
    fn the_first_faults_are_left_to_strides() {
        let mut touches = Touches::default();
        for _ in 0..FIRST {
            assert_eq!(touches.fault(Seen::Missing, Some(0)), Then::Nothing);
        }
        assert_eq!(touches.fault(Seen::Missing, Some(0)), Then::Post);
    }

    #[test]
    fn positions_advance_over_gaps_and_never_back() {
        let mut touches = on();
        assert_eq!(touches.fault(foretold(0), Some(50)), Then::Passed);
        assert_eq!(touches.fault(foretold(7), Some(50)), Then::Passed);
        assert_eq!(touches.fault(foretold(3), Some(50)), Then::Nothing);
        assert_eq!(touches.fault(Seen::Cached, Some(50)), Then::Nothing);
        assert_eq!(touches.passed(), 8);
    }

    #[test]
    fn a_page_that_was_not_foretold_restarts_at_once() {
        let mut touches = on();
        touches.fault(foretold(0), Some(50));
        assert_eq!(touches.fault(Seen::Missing, Some(50)), Then::Post);
    }

    #[test]
    fn it_is_young_for_a_while_after_a_restart() {
        let mut touches = Touches::default();
        assert!(!touches.is_young(0), "before the first");
        touches.posted(0);
        assert!(touches.is_young(YOUNG_NS - 1) && !touches.is_young(YOUNG_NS));
    }

    #[test]
    fn what_was_spent_before_the_first_restart_is_not_held_against_it() {
        let mut touches = Touches { skip: 0, ..Touches::default() };
        touches.posted(1_000_000_000);
        assert_eq!(touches.skip, 0);
        // Nor what another speculator had spent.
        touches.posted(1_000_000);
        touches.posted(2_000_000);
        assert_eq!(touches.skip, 0);
        touches.posted(1_000_000_000);
        assert!(touches.skip > 0);
    }

    #[test]
    fn lateness_is_tolerated_for_some_faults() {
        let mut touches = on();
        touches.fault(foretold(4), Some(5));
        for _ in 0..LATE {
            assert_eq!(touches.fault(Seen::Missing, Some(5)), Then::Nothing);
        }
        assert_eq!(touches.fault(Seen::Missing, Some(5)), Then::Post);
    }

    #[test]
    fn a_beginning_is_waited_for() {
        let mut touches = on();
        for _ in 0..NOT_BEGUN {
            assert_eq!(touches.fault(Seen::Missing, None), Then::Nothing);
        }
        assert_eq!(touches.fault(Seen::Missing, None), Then::Post);
    }

    #[test]
    fn it_runs_as_far_ahead_as_it_is_of_use() {
        let mut touches = on();
        (0..100).for_each(|position| assert_eq!(touches.fault(foretold(position), Some(500)), Then::Passed));
        assert_eq!(touches.ahead(), AHEAD_MOST);
        (0..20).for_each(|_| touches.posted(0));
        assert_eq!(touches.ahead(), AHEAD_LEAST);
    }

    #[test]
    fn few_useful_pages_count_as_none_where_that_is_asked_for() {
        let mut touches = on();
        for _ in 0..20 {
            touches.fault(foretold(0), Some(50));
            touches.counts_few_as_none();
            touches.posted(0);
        }
        assert_eq!(touches.ahead(), FEW);
        let mut touches = on();
        for _ in 0..20 {
            for position in 0..FEW {
                touches.fault(foretold(position), Some(50));
            }
            touches.counts_few_as_none();
            touches.posted(0);
        }
        assert!(touches.ahead() >= AHEAD_FIRST);
    }

    #[test]
    fn restarts_that_cost_more_than_they_are_worth_get_rare() {
        let restarts = |cost: u64| {
            let mut touches = on();
            let mut restarts = 0;
            for _ in 0..20_000 {
                touches.fault(foretold(0), Some(50));
                if touches.fault(Seen::Missing, Some(50)) == Then::Post {
                    restarts += 1;
                    touches.posted(restarts * cost);
                }
            }
            restarts
        };
        assert!(restarts(20 * WORTH_NS) < 50, "{}", restarts(20 * WORTH_NS));
        assert!(restarts(WORTH_NS / 2) > 19_000, "{}", restarts(WORTH_NS / 2));
    }

    #[test]
    fn restarts_that_lead_nowhere_get_rare_and_useful_ones_stay() {
        let restarts = |useful: u32| {
            let mut touches = on();
            let mut restarts = 0;
            for _ in 0..20_000 {
                for position in 0..useful {
                    touches.fault(foretold(position), Some(50));
                }
                if touches.fault(Seen::Missing, Some(50)) == Then::Post {
                    restarts += 1;
                    touches.posted(0);
                }
            }
            restarts
        };
        assert!(restarts(0) < 50, "{}", restarts(0));
        assert!(restarts(1) > 19_000, "{}", restarts(1));
    }
}
