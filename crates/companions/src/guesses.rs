//! How many guesses may be made.
//!
//! What holds: at most `first + PER_USED * used + waits / PER_WAITS` files are asked for that were not in the
//! cache, so that a guess that is wrong costs a few small files. While most guesses are wrong only a few are
//! made at a time: the first directory that a program reads from says little of the next (eight at once were
//! all wrong in every other start of Python, whose own modules are mostly not wanted, and nothing was left for
//! those that are).
//!
//! A program that comes to its files in no order (a store by hashes) uses what was asked for late, and the
//! later the more there is: use alone would prove it when all is over. So who has waited for a part of all that
//! there is ([`is_covered`]) is taken to want the rest as well, and guesses may then cost a part of what was
//! waited ([`unproved`]).

/// For each guess that came true so many more may be made.
const PER_USED: u64 = 3;

/// One wrong guess for so many files that the program has waited for costs little.
const PER_WAITS: u64 = 8;

/// Guesses at a time while fewer than half have come true.
const FEW: u64 = 2;

/// Who has waited for one in so many of all files there is likely to want another: what has gone on for long goes
/// on.
const COVERED: u64 = 8;

/// What a guess takes, ns, on two processors (see [`crate::disks`]).
const GUESS_NS: u64 = 110_000;

/// Guesses that nothing has proved may take one part in so many of the time that the program waits.
const SHARE: u64 = 5;

/// Whether a program that has waited for so many of all files of a kind is taken to want the rest.
pub fn is_covered(waited: u64, all: u64) -> bool {
    waited > 0 && waited * COVERED >= all
}

/// Guesses that may be made of such a program's files that it has not proved, on a disk that takes so long (ns).
pub fn unproved(waits: u64, disk_ns: u64) -> u64 {
    waits.saturating_mul(disk_ns) / (SHARE * GUESS_NS)
}

/// The guesses of one kind, or of all.
#[derive(Clone, Copy, Debug)]
pub struct Guesses {
    first: u64,
    waits: u64,
    asked: u64,
    used: u64,
}

impl Guesses {
    /// `first`: so many may be made before one of them has come true.
    pub const fn new(first: u64) -> Guesses {
        Guesses { first, waits: 0, asked: 0, used: 0 }
    }

    /// The program has waited for a file by itself.
    pub fn counts_wait(&mut self) {
        self.waits += 1;
    }

    /// So many files are asked for.
    pub fn ask(&mut self, count: u64) {
        self.asked += count;
    }

    /// One of them was in the cache, or is not asked for after all.
    pub fn not_asked(&mut self) {
        self.asked = self.asked.saturating_sub(1);
    }

    /// One of them has come true.
    pub fn use_one(&mut self) {
        self.used += 1;
    }

    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// Files asked for, and those of them that were used.
    pub fn counts(&self) -> (u64, u64) {
        (self.asked, self.used)
    }

    /// Files that may be asked for.
    pub fn room(&self) -> u64 {
        self.room_and(self.waits / PER_WAITS)
    }

    /// The same at a time.
    pub fn room_at_a_time(&self) -> u64 {
        let few = if 2 * self.used < self.asked { FEW } else { u64::MAX };
        self.room().min(few)
    }

    /// Files that may be asked for with so many `more` that need no proof.
    pub fn room_and(&self, more: u64) -> u64 {
        let most = self.first.saturating_add(PER_USED * self.used).saturating_add(more);
        most.saturating_sub(self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_and_waits_make_room() {
        let mut guesses = Guesses::new(8);
        assert_eq!((guesses.room(), guesses.room_at_a_time()), (8, 8));
        guesses.ask(6);
        assert_eq!((guesses.room(), guesses.room_at_a_time()), (2, 2));
        (0..16).for_each(|_| guesses.counts_wait());
        guesses.use_one();
        assert_eq!((guesses.room(), guesses.room_at_a_time()), (7, FEW));
        (0..2).for_each(|_| guesses.use_one());
        assert_eq!(guesses.room_at_a_time(), 13);
        guesses.not_asked();
        assert_eq!((guesses.room(), guesses.counts()), (14, (5, 3)));
    }

    #[test]
    fn what_is_not_proved_costs_a_part_of_what_was_waited() {
        for (waits, disk_ns) in [(1, 250_000), (7, 1_000_000), (1000, 300_000), (3, 14_000_000)] {
            assert!(unproved(waits, disk_ns) * GUESS_NS * SHARE <= waits * disk_ns);
        }
        assert_eq!((unproved(1, 250_000), unproved(1, 1_100_000), unproved(u64::MAX, 0)), (0, 2, 0));
        assert!(is_covered(1, 8) && !is_covered(1, 9) && !is_covered(0, 0));
    }
}
