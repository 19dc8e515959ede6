//! What is left to the program where the disk is quick.
//!
//! A look-up ahead costs a processor some tens of microseconds. On a disk of 1 ms that is nothing beside what it saves. On one of
//! 100 us it pays where the program will surely make the look-up and would wait for it alone, and takes the
//! program's processors otherwise. So there:
//!
//! - Nothing is looked up while the program waits in several threads or processes at once: it helps itself.
//! - From a directory that the program lists the walk goes down, but only so far ahead as the program has gone itself: who lists one
//!   directory need not list those below it.
//! - The program's arguments, which it is likely to look up, are looked up as if it had listed them.
//! - From a directory in which it looked some name up, an import or a search of a path as likely as a walk, a
//!   look-up ahead must serve several of the program's, as one does that brings a block of inodes along; and
//!   what all of them take of the processors is held to a part of what the program has waited
//!   (`policy::regret`).
//! - Where names turn out to be cached directories alone are listed ahead.
//!
//! Pure: times and counts come from outside.

use crate::pool::Done;
use runahead_policy::regret::may_spend;

/// A disk whose look-ups take less, ns, is quick. (On the local disk on which the figures below were measured the
/// middle one of the look-ups that began alone took 110 to 610 us where other work went on.)
const QUICK_NS: u64 = 500_000;

/// Waits at once, on the average of a stretch, from which on the program helps itself. (The agent, which knows the threads of one
/// process, leaves no notes of names then; this holds back what was begun before.)
const AT_ONCE: u64 = 2;
/// Length of such a stretch, ns. A wait is counted when it ends: one that is as long as this would count for more than it was, and none on a
/// quick disk is.
const STRETCH_NS: u64 = 5_000_000;

/// Look-ups ahead, beyond the first few, for each four names that the program looks up, where it does not list. A block of inodes of
/// ext4 holds 16 of them. (`du` of 48,000 files takes 9000 look-ups ahead; importing numpy and pandas, which looks 2500
/// names up, took 3200.)
const FIRST: u64 = 64;
const SERVED_BY_ONE: u64 = 4;

/// Look-ups in a row from the cache after which only one name of so many is tried: `git status` has looked all names up when
/// it lists the directories. (Where a block of inodes brings 31 others along, as on ext4, `du` finds one in five cold.)
const CACHED_MOST: u32 = 128;
const TRIED: u32 = 16;

/// Directories listed ahead, beyond the first few, for each that the program lists. (Python lists the directory in which it is
/// started; the walk went down into all that lay below: 1152 directories ahead of 89.)
const DIRECTORIES_FIRST: u64 = 8;
const DIRECTORIES_FOR_ONE: u64 = 2;

/// Whether to look names up ahead on a quick disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restraint {
    /// The walk goes on from where a name was looked up.
    guessed: bool,
    /// Look-ups and listings ahead made so, of all the run, and what they took of the processors, ns.
    issued: u64,
    spent: u64,
    /// Directories listed ahead since the walk began at one that the program lists, and how many it had listed then.
    ahead: u64,
    listed_before: u64,
    /// When the stretch began, ns, and what the program had waited by then.
    began: u64,
    waited_before: u64,
    at_once: bool,
    /// Look-ups in a row from the cache, and names passed over since.
    cached: u32,
    passed_over: u32,
}

impl Restraint {
    /// The walk begins at a directory that the program lists, or at its arguments, or in which it looked a name up, when it has `listed` so many in all.
    pub fn begins(&mut self, lists: bool, listed: u64) {
        self.guessed = !lists;
        if lists {
            self.ahead = 0;
            self.listed_before = listed;
        }
    }

    /// At `now` ns the program has waited `waited` ns for names in all, in all its threads.
    pub fn waits(&mut self, now: u64, waited: u64) {
        let took = now.saturating_sub(self.began);
        if took >= STRETCH_NS {
            self.at_once = waited.saturating_sub(self.waited_before) >= AT_ONCE * took;
            self.began = now;
            self.waited_before = waited;
        }
    }

    /// Whether anything may be looked up or listed ahead on a disk whose look-ups take `cold` ns (0: not
    /// known), when the program has done so much.
    pub fn may_issue(&self, cold: u64, done: Done) -> bool {
        if !is_quick(cold) {
            return true;
        }
        let since = done.listed.saturating_sub(self.listed_before);
        let followed = self.guessed || self.ahead < DIRECTORIES_FIRST + DIRECTORIES_FOR_ONE * since;
        followed && !self.at_once && !self.is_spent(cold, done)
    }

    /// Whether the walk has served the program too little to go on: it is to be given up, and then nobody need know how far the
    /// program is. (While a walk waits for its program the agent looks at each of its calls.)
    pub fn is_spent(&self, cold: u64, done: Done) -> bool {
        let has_served = self.issued < FIRST + done.looked_up / SERVED_BY_ONE;
        is_quick(cold) && self.guessed && !(has_served && may_spend(self.spent, done.waited, 0))
    }

    /// A look-up ahead of a name has found it in the cache, or has not.
    pub fn looked_up(&mut self, cached: bool) {
        self.cached = if cached { self.cached.saturating_add(1) } else { 0 };
    }

    /// Whether the next name is worth a look-up.
    pub fn wants_name(&mut self, cold: u64) -> bool {
        if !is_quick(cold) || self.cached < CACHED_MOST {
            return true;
        }
        self.passed_over = (self.passed_over + 1) % TRIED;
        self.passed_over == 0
    }

    /// A look-up or a listing ahead has taken so much of a processor, ns.
    pub fn took(&mut self, processor_ns: u64) {
        self.spent += if self.guessed { processor_ns } else { 0 };
    }

    /// A name is looked up ahead, or a directory listed.
    pub fn issued(&mut self, is_listing: bool) {
        self.issued += u64::from(self.guessed);
        self.ahead += u64::from(is_listing);
    }
}

/// Look-ups for which the program must have waited, at the least: its first ones are the slowest.
const SERVED_LEAST: u64 = 64;

/// Whether look-ups ahead are worth it where each takes the time of somebody who serves it: of a program that
/// has looked `looked_up` names up and waited `waited` ns for them. A server at hand answers within some 100
/// us on the average, whatever disk is beneath; ahead it would be asked for the same, or for what nobody
/// keeps, and the program's own requests stand behind that. One that is far away is asked many at a time.
pub fn is_far(waited: u64, looked_up: u64) -> bool {
    waited >= QUICK_NS.saturating_mul(looked_up.max(SERVED_LEAST))
}

/// Answers of a disk that tell whether it is quick, and stretches of so many that must agree: others read there, too.
const ANSWERS: u64 = 16;
const AGREE: u32 = 2;

/// What a disk did longer ago, ns, is not the program's.
const LONGEST: u64 = 1_000_000_000;

/// Whether a disk is quick, by what the kernel counts of it. A look-up's own time does not tell where a crowd of threads looks
/// names up: the pool's took 460 us beside 20 threads of `git status`, on a disk that answers in 70 to 100.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk {
    /// When, ns, and the answers and their time, ns, so far: where the present stretch began.
    began: Option<(u64, u64, u64)>,
    quick: u32,
}

impl Disk {
    /// At `now` ns it has answered so many requests, in so many ns taken together.
    pub fn is_quick(&mut self, now: u64, answers: u64, ns: u64) -> bool {
        let Some((then, answers_before, ns_before)) = self.began else {
            self.began = Some((now, answers, ns));
            return false;
        };
        let answered = answers.saturating_sub(answers_before);
        if now.saturating_sub(then) > LONGEST || answers < answers_before {
            *self = Disk { began: Some((now, answers, ns)), quick: 0 };
        } else if answered >= ANSWERS {
            // No time at all: one that counts none, or whose counter has begun anew.
            let took = ns.saturating_sub(ns_before) / answered;
            self.quick = if is_quick(took) { self.quick + 1 } else { 0 };
            self.began = Some((now, answers, ns));
        }
        self.quick >= AGREE
    }
}

fn is_quick(cold: u64) -> bool {
    (1..QUICK_NS).contains(&cold)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: u64 = 100_000;
    const SLOW: u64 = 1_000_000;

    fn done(looked_up: u64, listed: u64) -> Done {
        Done { looked_up, listed, waited: 0 }
    }

    fn issue(restraint: &mut Restraint, cold: u64, looked_up: u64) -> u64 {
        let mut issued = 0;
        while issued < 10_000 && restraint.may_issue(cold, done(looked_up, 0)) {
            restraint.issued(false);
            issued += 1;
        }
        issued
    }

    #[test]
    fn who_lists_is_followed_down() {
        let mut restraint = Restraint::default();
        restraint.begins(true, 0);
        assert_eq!(issue(&mut restraint, QUICK, 0), 10_000);
        (0..20).for_each(|_| restraint.issued(true));
        assert!(!restraint.may_issue(QUICK, done(0, 1)));
        assert!(restraint.may_issue(QUICK, done(0, 10)));
        assert!(restraint.may_issue(SLOW, done(0, 1)));
        // What was listed ahead elsewhere is not held against it.
        restraint.begins(true, 1);
        assert!(restraint.may_issue(QUICK, done(0, 1)));
        (0..DIRECTORIES_FIRST).for_each(|_| restraint.issued(true));
        assert!(!restraint.may_issue(QUICK, done(0, 1)));
        assert!(restraint.may_issue(QUICK, done(0, 2)));
    }

    #[test]
    fn on_a_quick_disk_a_guess_must_serve_several() {
        let mut restraint = Restraint::default();
        restraint.begins(false, 0);
        assert_eq!(issue(&mut restraint, QUICK, 0), FIRST);
        assert!(
            restraint.is_spent(QUICK, done(0, 0))
                && !restraint.is_spent(QUICK, done(4, 0))
                && !restraint.is_spent(SLOW, done(0, 0))
        );
        assert_eq!(issue(&mut restraint, QUICK, 400), 100);
        // A listing in between does not forgive what was looked up for nothing.
        restraint.begins(true, 0);
        assert_eq!(issue(&mut restraint, QUICK, 400), 10_000);
        restraint.begins(false, 0);
        assert_eq!(issue(&mut restraint, QUICK, 400), 0);
    }

    #[test]
    fn on_a_quick_disk_a_guess_takes_a_part_of_what_is_waited() {
        let issue = |cold, waited| {
            let mut restraint = Restraint::default();
            restraint.begins(false, 0);
            let done = Done { looked_up: 1_000_000, listed: 0, waited };
            let took = |_: &usize| {
                let may = restraint.may_issue(cold, done);
                restraint.took(100_000);
                may
            };
            (0..100).take_while(took).count()
        };
        assert_eq!((issue(QUICK, 0), issue(QUICK, 8_000_000), issue(SLOW, 0)), (10, 30, 100));
        // What is no guess is not counted.
        let mut restraint = Restraint::default();
        restraint.begins(true, 0);
        restraint.took(u64::MAX);
        restraint.begins(false, 0);
        assert!(restraint.may_issue(QUICK, done(0, 0)));
    }

    #[test]
    fn on_a_slow_disk_and_on_one_not_known_yet_everything_is_looked_up() {
        let mut restraint = Restraint::default();
        restraint.begins(false, 0);
        assert_eq!(issue(&mut restraint, 0, 0), 10_000);
        assert_eq!(issue(&mut restraint, SLOW, 0), 10_000);
        restraint.waits(STRETCH_NS, 20 * STRETCH_NS);
        assert!(restraint.may_issue(SLOW, done(0, 0)));
    }

    #[test]
    fn names_that_are_cached_are_only_tried() {
        let mut restraint = Restraint::default();
        for _ in 0..CACHED_MOST {
            assert!(restraint.wants_name(QUICK));
            restraint.looked_up(true);
        }
        assert_eq!((0..10 * TRIED).filter(|_| restraint.wants_name(QUICK)).count(), 10);
        assert!((0..10).all(|_| restraint.wants_name(SLOW)));
        restraint.looked_up(false);
        assert!((0..10).all(|_| restraint.wants_name(QUICK)));
    }

    #[test]
    fn a_server_is_far_away_where_the_program_waits_long_for_each_name() {
        assert!(!is_far(0, 0));
        // The first directory of a server at hand, from a cold disk.
        assert!(!is_far(5_000_000, 3));
        assert!(!is_far(2000 * QUICK, 2000));
        assert!(is_far(64 * SLOW, 64) && is_far(2000 * SLOW, 2000));
    }

    #[test]
    fn a_disk_is_told_by_its_answers() {
        let after = |steps: &[(u64, u64, u64)]| {
            let (mut disk, mut at) = (Disk::default(), (0, 0, 1_000_000));
            disk.is_quick(at.0, at.1, at.2);
            steps.iter().any(|step| {
                at = (at.0 + step.0, at.1 + step.1, at.2 + step.2);
                disk.is_quick(at.0, at.1, at.2)
            })
        };
        let quick = (1_000_000, ANSWERS, ANSWERS * QUICK);
        assert!(after(&[quick, quick]));
        assert!(!after(&[quick]), "once");
        assert!(!after(&[quick, (1_000_000, ANSWERS, ANSWERS * SLOW), quick]), "now and then");
        assert!(!after(&[(1_000_000, ANSWERS, 0); 100]), "one that counts no time");
        assert!(!after(&[(2 * LONGEST, ANSWERS, ANSWERS * QUICK); 100]), "somebody else's");
        // Few answers from one note to the next are kept until they are enough.
        assert!(after(&[(1_000_000, 1, QUICK); 2 * ANSWERS as usize]));
        assert!(!after(&[(1_000_000, 1, QUICK); 2 * ANSWERS as usize - 1]));
    }

    #[test]
    fn who_waits_in_many_threads_helps_himself() {
        let mut restraint = Restraint::default();
        restraint.begins(true, 0);
        restraint.waits(10 * STRETCH_NS, 9 * STRETCH_NS);
        assert!(restraint.may_issue(QUICK, done(0, 0)));
        restraint.waits(12 * STRETCH_NS, 20 * STRETCH_NS);
        assert!(!restraint.may_issue(QUICK, done(0, 0)));
        // Not told anew within a stretch.
        restraint.waits(12 * STRETCH_NS + 10, 20 * STRETCH_NS);
        assert!(!restraint.may_issue(QUICK, done(0, 0)));
        restraint.waits(14 * STRETCH_NS, 21 * STRETCH_NS);
        assert!(restraint.may_issue(QUICK, done(0, 0)));
    }
}
