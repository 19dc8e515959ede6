//! Speculation from a snapshot, where faults are not seen: when it begins, and how far the program has come.
//!
//! A snapshot is of a thread at a call at which the agent has seen it (`agent::snapshots`). Speculation
//! from there goes through all that the program has done since, which is in memory by now, and overtakes it
//! (`speculator::late`). The program has passed all pages of the log up to the first that is not present in
//! it. One that has gone another way than the program, for want of pages that were on their way, begins
//! anew at the same place or at a later call's, as long as that is worth its processor time.

use crate::pursuit::Link;
use runahead_policy::touches::{Seen, Then, Touches};

/// Positions that are looked at in one look, at most.
const PASSED_MOST: u64 = 1024;

/// Looks in which the program waits for something else than what is next, and that is cached, before
/// speculation is off track: in one or two it may be just about to touch that.
const ELSEWHERE: u32 = 3;

/// Waits of one look that count: walks and scans, which want a few looks to show, come first.
const WAITS_MOST: u64 = 4;

/// What one look came to.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Came {
    /// Positions of the log that the program has passed.
    pub passed: u64,
    /// Of these, pages that speculation had asked for.
    pub used: u64,
}

/// What a process has done between two looks.
#[derive(Clone, Copy, Default)]
pub(crate) struct Done {
    /// Faults that have waited.
    pub waits: u64,
    /// How long it was, and for how much of that no thread has run, ns.
    pub whole: u64,
    pub waited: u64,
    /// What is asked for without speculation is of use at present.
    pub served: bool,
}

#[derive(Default)]
pub(crate) struct FromCall {
    touches: Touches,
    elsewhere: u32,
    /// Since the latest post the program has come to a page that speculation had asked for.
    overtaken: bool,
}

/// What is known of the page at an address.
pub(crate) trait Pages {
    /// Whether the process has it.
    fn is_present(&mut self, address: u64) -> bool;
    /// Whether it is not in memory, or on its way.
    fn is_missing(&mut self, address: u64) -> bool;
}

impl FromCall {
    /// Missing pages of which speculation may be ahead.
    pub fn ahead(&self) -> u64 {
        self.touches.ahead().into()
    }

    /// Nobody looks any more.
    pub fn rest(&mut self, link: &dyn Link) {
        if self.touches.is_on() {
            link.cancel();
        }
        self.touches.ended();
    }

    /// One look, at what the process has done since the one before.
    pub fn look(&mut self, link: &mut dyn Link, done: Done, pages: &mut impl Pages) -> Came {
        let Done { waits, served, .. } = done;
        let mut came = Came::default();
        let are_reads_foretold = link.are_reads_foretold();
        if self.touches.is_on() {
            came = self.advance(link, pages);
            if link.met_scan() {
                self.touches.met_scan();
            }
            if self.touches.is_dear(link.spent()) {
                link.cancel();
            }
            link.nudge();
        }
        if came.passed > 0 {
            self.elsewhere = 0;
        } else if waits > 0 && !are_reads_foretold && (self.touches.is_on() || !served) {
            self.waits(link, done, pages);
        }
        came
    }

    fn advance(&mut self, link: &dyn Link, pages: &mut impl Pages) -> Came {
        let mut came = Came::default();
        while came.passed < PASSED_MOST
            && let position = self.touches.passed()
            && let Some(touch) = link.touch(position)
            && pages.is_present(touch.address)
        {
            // The first is the one for which the program waits as speculation comes to it.
            let fetched = touch.fetched && self.overtaken;
            self.overtaken |= touch.fetched;
            self.touches.fault(Seen::Foretold { position, fetched }, None);
            came.passed += 1;
            came.used += u64::from(fetched);
        }
        if came.passed > 0 {
            link.passed(self.touches.passed(), came.used as u32, self.touches.ahead());
        }
        came
    }

    /// The program has waited, and for nothing that is known to have been foretold.
    fn waits(&mut self, link: &mut dyn Link, done: Done, pages: &mut impl Pages) {
        let Done { waits, whole, waited, .. } = done;
        let next = link.touch(self.touches.passed()).filter(|_| self.touches.is_on());
        if let Some(touch) = next {
            self.elsewhere = if pages.is_missing(touch.address) { 0 } else { self.elsewhere + 1 };
            if self.elsewhere < ELSEWHERE {
                return;
            }
        }
        // By the time that speculation is to begin, or to begin anew, there may be a later one; not while the
        // one that was posted is still wanted.
        if self.touches.may_restart() && (!self.touches.is_on() || link.has_begun()) {
            link.want_snapshot();
        }
        let written = self.touches.passed() + u32::from(next.is_some());
        let written = link.has_begun().then_some(written);
        let posts =
            (0..waits.min(WAITS_MOST)).any(|_| self.touches.fault(Seen::Missing, written) == Then::Post);
        if posts {
            self.elsewhere = 0;
            let was_on = self.touches.is_on();
            if self.touches.waits_little(whole, waited) {
                if was_on {
                    link.cancel();
                }
            } else if link.post_snapshot(self.touches.ahead()) {
                self.touches.counts_few_as_none();
                self.overtaken = false;
                self.touches.posted(link.spent());
            } else {
                self.rest(link);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;
    use crate::pursuit::Touch;
    use crate::pursuit::tests::Made;
    use std::collections::HashSet;

    /// It has waited once, for nearly all of the time.
    const WAITING: Done = Done { waits: 1, whole: 2_000_000, waited: 1_900_000, served: false };

    /// Pages that the process has, and those that are on their way.
    #[derive(Default)]
    struct Memory {
        present: HashSet<u64>,
        missing: HashSet<u64>,
    }

    impl Pages for Memory {
        fn is_present(&mut self, address: u64) -> bool {
            self.present.contains(&(address / PAGE))
        }
        fn is_missing(&mut self, address: u64) -> bool {
            self.missing.contains(&(address / PAGE))
        }
    }

    fn touch(at: u64) -> Touch {
        Touch { address: at * PAGE, fetched: true, on_swap: false }
    }

    /// So many looks, in each of which the program has waited.
    fn waits(looks: u32, from_call: &mut FromCall, made: &mut Made, memory: &mut Memory) {
        for _ in 0..looks {
            from_call.look(made, WAITING, memory);
        }
    }

    /// One that runs from a snapshot, and has written the first pages.
    fn running() -> (FromCall, Made, Memory) {
        let (mut from_call, mut made, mut memory) = (FromCall::default(), Made::default(), Memory::default());
        made.has_snapshot = true;
        waits(20, &mut from_call, &mut made, &mut memory);
        assert!(from_call.touches.is_on());
        made.log = (0..100).map(touch).collect();
        (from_call, made, memory)
    }

    #[test]
    fn it_begins_when_the_program_has_waited_for_a_while_and_nothing_else_is_of_use() {
        for (waits, served, has_snapshot) in
            [(1, false, true), (1, false, false), (0, false, true), (1, true, true)]
        {
            let (mut from_call, mut made, mut memory) =
                (FromCall::default(), Made::default(), Memory::default());
            made.has_snapshot = has_snapshot;
            from_call.look(&mut made, Done { waits, served, ..WAITING }, &mut memory);
            assert_eq!(made.posts, 0, "not at once");
            for _ in 0..50 {
                from_call.look(&mut made, Done { waits, served, ..WAITING }, &mut memory);
            }
            assert_eq!(from_call.touches.is_on(), waits > 0 && !served && has_snapshot);
        }
    }

    #[test]
    fn the_program_has_passed_what_is_present_up_to_the_first_that_is_not() {
        let (mut from_call, mut made, mut memory) = running();
        memory.present.extend([0, 1, 2, 4, 5]);
        let came = from_call.look(&mut made, Done { waits: 0, ..WAITING }, &mut memory);
        assert_eq!((came, made.passed.get()), (Came { passed: 3, used: 2 }, 3));
        memory.present.insert(3);
        assert_eq!(from_call.look(&mut made, Done { waits: 9, ..WAITING }, &mut memory).passed, 3);
        assert!(from_call.touches.is_on());
    }

    #[test]
    fn who_waits_for_the_next_page_is_on_track_and_who_waits_elsewhere_is_not() {
        let (mut from_call, mut made, mut memory) = running();
        memory.present.insert(0);
        memory.missing.insert(1);
        waits(100, &mut from_call, &mut made, &mut memory);
        assert!(from_call.touches.is_on() && !made.cancelled.get());
        memory.missing.clear();
        made.has_snapshot = false;
        waits(ELSEWHERE, &mut from_call, &mut made, &mut memory);
        assert!(!from_call.touches.is_on() && made.cancelled.get());
        // A later call's snapshot begins it again.
        made.has_snapshot = true;
        waits(10, &mut from_call, &mut made, &mut memory);
        assert!(from_call.touches.is_on());
    }

    #[test]
    fn one_that_costs_more_than_it_is_worth_is_ended() {
        let (mut from_call, mut made, mut memory) = running();
        made.spent = 1_000_000_000;
        from_call.look(&mut made, WAITING, &mut memory);
        assert!(!from_call.touches.is_on() && made.cancelled.get());
    }

    #[test]
    fn who_follows_what_was_foretold_of_reads_is_left_to_that() {
        let (mut from_call, mut made, mut memory) = (FromCall::default(), Made::default(), Memory::default());
        (made.has_snapshot, made.reads) = (true, true);
        waits(50, &mut from_call, &mut made, &mut memory);
        assert_eq!(made.posts, 0);
    }

    #[test]
    fn who_hardly_waits_is_not_run_ahead_of() {
        let (mut from_call, mut made, mut memory) = (FromCall::default(), Made::default(), Memory::default());
        made.has_snapshot = true;
        for _ in 0..50 {
            from_call.look(&mut made, Done { waited: 100_000, ..WAITING }, &mut memory);
        }
        assert_eq!(made.posts, 0);
    }

    #[test]
    fn a_later_snapshot_is_asked_for_and_not_before_the_one_that_was_posted_has_been_taken() {
        let (mut from_call, mut made, mut memory) = running();
        assert!(made.wanted > 0);
        (made.begun, made.wanted) = (false, 0);
        memory.missing.clear();
        waits(2 * ELSEWHERE, &mut from_call, &mut made, &mut memory);
        assert_eq!(made.wanted, 0);
        made.begun = true;
        waits(2 * ELSEWHERE, &mut from_call, &mut made, &mut memory);
        assert!(made.wanted > 0);
    }
}
