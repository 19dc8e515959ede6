//! How far ahead of the program names are looked up, and how many at a time.
//!
//! *Far*: a listing is a guess that the program will look its names up, and go down. It is tested by
//! counting: as many names may be open as the window says, and it grows while the program follows. A
//! program that only lists (`ls -R`) shows by that how little it looks up.
//!
//! *Wide*: a look-up that waits 1 ms wants 64 beside it; one that waits 40 us is hardly worth a thread, and
//! with two processors a crowd of threads would take the program's time. How long the disk takes is told by look-ups
//! that begin with no other under way: in a crowd they wait for each other and for a processor, which would call for a
//! greater crowd.

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
/// disk of 35 us (45 us a look-up) tar took 0.15 s without them and 0.22 s with, find 0.32 and 0.36. (Of look-ups that
/// begin alone. While those of a crowd counted too, which take several times as long, the bound was 100 us; with that du on a local disk
/// gained nothing in two runs of three, 0.37 and 0.40 s for 0.23; with this it took 0.24 to 0.25.)
const WORTH_NS: u64 = 60_000;
const ENOUGH_TO_TELL: u32 = 16;

/// The disk's time for a look-up is the middle one of so many of the latest: one may have found its block on its way in
/// already, or have lost the processor. Before there are five one is made at a time, and on what looks like a
/// quick disk before there are enough to tell whether it is worth it. (Told by all look-ups, in a crowd too, a disk of
/// 100 us was taken for one of 600 to 900, which calls 40 threads: numpy and pandas imported in 0.61 s for 0.59 alone, `git
/// status` 80 ms for 66.)
const LATEST: usize = 15;
const LATEST_LEAST: u32 = 5;

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
    /// Times of the latest cold look-ups that began alone, ns.
    latest: [u64; LATEST],
    /// All of them so far, ns, and how many.
    cold_total: u64,
    cold_seen: u32,
    warm: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            window: WINDOW_FIRST,
            issued: 0,
            seen: 0,
            latest: [0; LATEST],
            cold_total: 0,
            cold_seen: 0,
            warm: 0,
        }
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

    /// A look-up took `ns`; no other was under way when it began, if it was `alone`.
    pub fn took(&mut self, ns: u64, alone: bool) {
        if ns < WAITED_NS {
            self.warm = self.warm.saturating_add(1);
            return;
        }
        self.warm = 0;
        if alone {
            self.latest[self.cold_seen as usize % LATEST] = ns;
            self.cold_seen = self.cold_seen.saturating_add(1);
            self.cold_total = self.cold_total.saturating_add(ns);
        }
    }

    /// What a look-up waits for the disk, ns: 0 if that is not known yet.
    pub fn cold(&self) -> u64 {
        if self.cold_seen < LATEST_LEAST {
            return 0;
        }
        let mut latest = self.latest;
        let latest = &mut latest[..LATEST.min(self.cold_seen as usize)];
        latest.sort_unstable();
        latest[latest.len() / 2]
    }

    /// All is cached here: nothing to do.
    pub fn is_warm(&self) -> bool {
        self.warm >= WARM_MOST
    }

    /// The disk is too fast for this to be of use. Judged by all look-ups that began alone: the latest may just have lacked a processor
    /// for a moment, and this is for good. (By the latest, du on a cloud disk was left alone in two runs of five.)
    pub fn is_pointless(&self) -> bool {
        self.cold_seen >= ENOUGH_TO_TELL && self.cold_total / u64::from(self.cold_seen) < WORTH_NS
    }

    /// How many look-ups may be under way.
    pub fn threads(&self) -> usize {
        match self.cold() {
            0 => 1,
            cold if cold < 2 * WORTH_NS && self.cold_seen < ENOUGH_TO_TELL => 1,
            cold => ((cold / WAIT_FOR_ONE) as usize).clamp(THREADS_LEAST, THREADS_MOST),
        }
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
        (0..50).for_each(|_| pace.took(1_000_000, true));
        (0..100).for_each(|_| pace.took(30_000, true));
        assert!(!pace.is_pointless());
        (0..3000).for_each(|_| pace.took(30_000, true));
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
        assert_eq!(pace.threads(), 1);
        (1..ENOUGH_TO_TELL).for_each(|_| pace.took(40_000, true));
        assert_eq!(pace.threads(), 1);
        pace.took(40_000, true);
        assert_eq!(pace.threads(), THREADS_LEAST);
        for _ in 0..100 {
            pace.took(1_050_000, true);
        }
        assert_eq!(pace.threads(), THREADS_MOST);
    }

    #[test]
    fn a_crowd_does_not_call_a_greater_one() {
        let mut pace = Pace::default();
        (0..ENOUGH_TO_TELL).for_each(|_| pace.took(100_000, true));
        let threads = pace.threads();
        assert!((THREADS_LEAST..10).contains(&threads), "{threads}");
        (0..1000).for_each(|_| pace.took(1_000_000, false));
        assert_eq!(pace.threads(), threads);
    }

    #[test]
    fn a_single_answer_is_not_the_disk() {
        let mut pace = Pace::default();
        pace.took(50_000_000, true);
        assert_eq!(pace.threads(), 1);
        (1..LATEST_LEAST).for_each(|_| pace.took(1_050_000, true));
        assert_eq!(pace.threads(), THREADS_MOST);
        (0..20).for_each(|_| pace.took(1_050_000, true));
        pace.took(30_000, true);
        assert_eq!(pace.threads(), THREADS_MOST);
    }

    #[test]
    fn a_fast_disk_is_left_to_the_program() {
        let mut pace = Pace::default();
        for _ in 0..ENOUGH_TO_TELL {
            assert!(!pace.is_pointless());
            pace.took(45_000, true);
        }
        assert!(pace.is_pointless());
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.took(300_000, true));
        assert!(!pace.is_pointless());
    }

    #[test]
    fn a_warm_tree_is_left_alone() {
        let mut pace = Pace::default();
        for _ in 0..WARM_MOST {
            assert!(!pace.is_warm());
            pace.took(2_000, true);
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
