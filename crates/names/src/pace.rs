//! How far ahead of the program names are looked up, and how many at a time.
//!
//! *Far*: a listing is a guess that the program will look its names up, and go down. It is tested by
//! counting: as many names may be open as the window says, and it grows while the program follows. A
//! program that only lists (`ls -R`) shows by that how little it looks up.
//!
//! *Wide*: a look-up that waits 1 ms wants 64 beside it; one that waits 40 us is hardly worth a thread, and
//! with two processors a crowd of threads would take the program's time.

use runahead_policy::coldness::WAITED_NS;

/// Names that may be looked up before the program has looked up any: one directory, about.
const WINDOW_FIRST: u64 = 512;
/// A program that finds all its names cached takes some 2 us for each: in the 2 ms that a directory and its
/// first inode take on a cloud disk it passes a thousand. Several times that keeps the pool ahead of it.
const WINDOW_MOST: u64 = 8192;

/// Look-ups in a row from the cache after which the walk ends: what ext4 reads ahead of inodes makes 512 warm,
/// so twice that.
const WARM_MOST: u32 = 1024;

/// A disk on which cold look-ups take less than this on the average, ns, is left to the program, after so many
/// of them: threads that look names up cost the program more processor time than they save it waiting. On a
/// disk of 35 us (45 us a look-up) tar took 0.15 s without them and 0.22 s with, find 0.32 and 0.36.
const WORTH_NS: u64 = 100_000;
const ENOUGH_TO_TELL: u32 = 16;

/// Waiting time for each look-up that is worth another thread beside, ns: with 64 for a cloud disk's 1 ms.
const WAIT_FOR_ONE: u64 = 16_000;
pub const THREADS_LEAST: usize = 2;
pub const THREADS_MOST: usize = 64;

/// Of four names in listings one must be looked up by the program, or listings alone are wanted.
const LISTED_TO_LOOKED_UP: u64 = 4;

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    window: u64,
    /// Names looked up or listed by us.
    issued: u64,
    /// What the program had looked up when the window last grew.
    seen: u64,
    /// Mean time of the latest cold look-ups, ns.
    cold: u64,
    /// All of them so far, ns, and how many.
    cold_total: u64,
    cold_seen: u32,
    warm: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { window: WINDOW_FIRST, issued: 0, seen: 0, cold: 0, cold_total: 0, cold_seen: 0, warm: 0 }
    }
}

impl Pace {
    /// The program is somewhere else than expected and has looked up `done` names in all: what was looked up
    /// elsewhere is forgotten.
    pub fn restart(&mut self, done: u64) {
        self.issued = self.issued.min(done);
        self.seen = done;
        self.warm = 0;
    }

    /// Whether another name may be looked up, when the program has looked up `done` in all.
    pub fn may_issue(&mut self, done: u64) -> bool {
        // The program looks up names that nobody looked up for it, too.
        self.issued = self.issued.max(done);
        if done >= self.seen + self.window {
            self.window = (self.window * 2).min(WINDOW_MOST);
            self.seen = done;
        }
        self.issued < done + self.window
    }

    /// So many names are done: looked up, or found to need no look-up.
    pub fn issued(&mut self, names: u64) {
        self.issued += names;
    }

    /// A look-up took `ns`.
    pub fn took(&mut self, ns: u64) {
        if ns < WAITED_NS {
            self.warm = self.warm.saturating_add(1);
        } else {
            self.warm = 0;
            self.cold_seen = self.cold_seen.saturating_add(1);
            self.cold_total = self.cold_total.saturating_add(ns);
            self.cold = if self.cold == 0 { ns } else { self.cold - self.cold / 8 + ns / 8 };
        }
    }

    /// All is cached here: nothing to do.
    pub fn is_warm(&self) -> bool {
        self.warm >= WARM_MOST
    }

    /// The disk is too fast for this to be of use. Judged by all look-ups: the latest may just have lacked a processor
    /// for a moment, and this is for good. (By the latest, du on a cloud disk was left alone in two runs of five.)
    pub fn is_pointless(&self) -> bool {
        self.cold_seen >= ENOUGH_TO_TELL && self.cold_total / u64::from(self.cold_seen) < WORTH_NS
    }

    /// How many look-ups may be under way.
    pub fn threads(&self) -> usize {
        ((self.cold / WAIT_FOR_ONE) as usize).clamp(THREADS_LEAST, THREADS_MOST)
    }

    /// Whether names are worth looking up, or listings alone: of a program that has listed `listings` directories and
    /// looked up `looked_up` names, where `directories` that were listed ahead of it held `names` in all.
    ///
    /// The walk may be many directories ahead, whose names the program cannot have looked up yet. They are not held
    /// against it: it is judged by as many directories as it has listed itself. (Judged by all, du of 48,000 files on a
    /// network of 5 ms was left alone with 8700 names, 44 s of waiting.) A program that lists none of them is judged by all.
    pub fn wants_names(names: u64, directories: u64, listings: u64, looked_up: u64) -> bool {
        let reached = if listings == 0 { directories } else { listings.min(directories) };
        let seen = names.checked_mul(reached).map_or(names, |product| product / directories.max(1));
        seen < WINDOW_FIRST || looked_up >= seen / LISTED_TO_LOOKED_UP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_disk_is_not_given_up_for_a_few_quick_answers() {
        let mut pace = Pace::default();
        (0..50).for_each(|_| pace.took(1_000_000));
        (0..100).for_each(|_| pace.took(30_000));
        assert!(!pace.is_pointless());
        (0..1000).for_each(|_| pace.took(30_000));
        assert!(pace.is_pointless());
    }

    #[test]
    fn no_further_than_the_program_follows() {
        let mut pace = Pace::default();
        let mut issued = 0;
        while pace.may_issue(0) {
            pace.issued(1);
            issued += 1;
        }
        assert_eq!(issued, WINDOW_FIRST);
        for done in 1..100_000 {
            while pace.may_issue(done) {
                pace.issued(1);
                issued += 1;
            }
            assert!(issued <= done + WINDOW_MOST);
        }
        assert_eq!(issued, 99_999 + WINDOW_MOST);
    }

    #[test]
    fn a_program_that_goes_elsewhere_is_followed_anew() {
        let mut pace = Pace::default();
        while pace.may_issue(0) {
            pace.issued(1);
        }
        pace.restart(0);
        assert!(pace.may_issue(0));
    }

    #[test]
    fn wide_on_slow_devices_only() {
        let mut pace = Pace::default();
        assert_eq!(pace.threads(), THREADS_LEAST);
        pace.took(40_000);
        assert_eq!(pace.threads(), THREADS_LEAST);
        for _ in 0..100 {
            pace.took(1_050_000);
        }
        assert_eq!(pace.threads(), THREADS_MOST);
    }

    #[test]
    fn a_fast_disk_is_left_to_the_program() {
        let mut pace = Pace::default();
        for _ in 0..ENOUGH_TO_TELL {
            assert!(!pace.is_pointless());
            pace.took(45_000);
        }
        assert!(pace.is_pointless());
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.took(300_000));
        assert!(!pace.is_pointless());
    }

    #[test]
    fn a_warm_tree_is_left_alone() {
        let mut pace = Pace::default();
        for _ in 0..WARM_MOST {
            assert!(!pace.is_warm());
            pace.took(2_000);
        }
        assert!(pace.is_warm());
        pace.restart(0);
        assert!(!pace.is_warm());
    }

    #[test]
    fn a_program_that_lists_only_gets_listings_only() {
        assert!(Pace::wants_names(10, 1, 1, 0));
        assert!(Pace::wants_names(10_000, 100, 100, 9_000));
        assert!(!Pace::wants_names(10_000, 100, 100, 100));
        // One that lists nothing either, and opens files here and there.
        assert!(!Pace::wants_names(10_000, 100, 0, 100));
    }

    #[test]
    fn what_the_program_has_not_reached_is_not_held_against_it() {
        assert!(Pace::wants_names(10_000, 100, 10, 900));
        assert!(!Pace::wants_names(10_000, 100, 10, 100));
        // It lists elsewhere too.
        assert!(!Pace::wants_names(10_000, 100, 1_000, 2_000));
        assert!(Pace::wants_names(0, 0, 5, 0));
    }
}
