//! What earlier processes of the same executable tell of a new one.
//!
//! A build starts a hundred short processes. Each is a program of its own, for which a speculator is started at its first stall;
//! where it ends after five reads that nobody could foretell, that cost 3 ms of processor time for nothing, a hundred times
//! over (make on a disk of 0.1 ms took 4.7 s for 4.2). No single process lives long enough to find that out; its kin together do.
//! So what a process has gained is remembered when it exits, for the run, and after several that gained
//! nothing the next one waits with speculating until it has stalled more often than any of them.

/// Processes in a row that gained nothing, from which on the next one waits. (The first compiler of a build may have met other
/// files than the others will.)
const FRUITLESS: u16 = 3;

/// How many times as many stalls as any of its kin had a process lets pass before it speculates: it is another kind of run then.
const LONGER: u32 = 2;

/// Processes that wait after which one may speculate at once again: what it costs then is a sixteenth.
const LOOK_AGAIN: u16 = 16;

/// A process lets no more stalls pass than so many. (One executable may be many programs: an interpreter. One script of 5000 stalls
/// would keep all others from it for good.)
const PATIENCE_MOST: u32 = 256;

/// What speculation costs a process at least, ns: its start. And each post. (The speculators of make's 70 processes took 0.2 to 0.3 s of a
/// processor with two posts each, 3 to 4 ms a process; a program that has a processor to spare does not feel all of it.)
const START_NS: u64 = 2_000_000;
const POST_NS: u64 = 100_000;

/// What is known of an executable. Zeros: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Processes in a row that speculated and gained nothing.
    pub fruitless: u16,
    /// Processes since then that did not speculate.
    pub waited: u16,
    /// The most stalls that one of them had.
    pub stalls: u32,
}

/// What a process has been through, when it exits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Life {
    pub stalls: u64,
    /// The time of these, ns.
    pub stalled_ns: u64,
    /// Of these, stalls that a prefetch had made short.
    pub partial: u64,
    pub posts: u64,
    /// Reads that speculation had foretold.
    pub foretold: u64,
}

impl Life {
    /// Whether the reads that were foretold can have spared it more than speculating costs.
    fn gained(&self) -> bool {
        // The whole ones say how long a stall is.
        let stall = self.stalled_ns / self.stalls.saturating_sub(self.partial).max(1);
        self.foretold.saturating_mul(stall) > START_NS.saturating_add(self.posts.saturating_mul(POST_NS))
    }
}

impl Known {
    /// A process of this executable exits.
    #[must_use]
    pub fn after(self, life: Life) -> Known {
        if life.stalls == 0 {
            return self;
        }
        let stalls = u32::try_from(life.stalls).unwrap_or(u32::MAX);
        let known = Known { stalls: self.stalls.max(stalls), ..self };
        match life.posts {
            0 => Known { waited: known.waited.saturating_add(1), ..known },
            _ if life.gained() => Known::default(),
            _ => Known { fruitless: known.fruitless.saturating_add(1), waited: 0, ..known },
        }
    }

    /// As a word of shared memory.
    pub fn word(self) -> u64 {
        u64::from(self.stalls) << 32 | u64::from(self.waited) << 16 | u64::from(self.fruitless)
    }

    /// What such a word says; any word says something.
    pub fn of(word: u64) -> Known {
        Known { fruitless: word as u16, waited: (word >> 16) as u16, stalls: (word >> 32) as u32 }
    }

    /// How many stalls a new process lets pass before it speculates.
    pub fn patience(self) -> u32 {
        if self.fruitless < FRUITLESS || self.waited >= LOOK_AGAIN {
            return 0;
        }
        self.stalls.saturating_mul(LONGER).min(PATIENCE_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUTILE: Life = Life { stalls: 5, stalled_ns: 500_000, partial: 0, posts: 4, foretold: 1 };

    fn after(lives: &[Life]) -> Known {
        lives.iter().fold(Known::default(), |known, &life| known.after(life))
    }

    #[test]
    fn after_some_that_gained_nothing_the_next_waits() {
        assert_eq!(after(&[]).patience(), 0);
        assert_eq!(after(&[FUTILE; 2]).patience(), 0);
        assert_eq!(after(&[FUTILE; 3]).patience(), 10);
        assert_eq!(after(&[FUTILE, Life { stalls: 40, ..FUTILE }, FUTILE]).patience(), 80);
    }

    #[test]
    fn one_that_gains_ends_it() {
        let gains = Life { stalls: 40, stalled_ns: 4_000_000, partial: 0, posts: 4, foretold: 200 };
        assert_eq!(after(&[FUTILE, FUTILE, FUTILE, gains]), Known::default());
        // Two foretold reads of a millisecond are no gain beside a start of two.
        let hardly = Life { stalls: 3, stalled_ns: 3_000_000, partial: 0, posts: 1, foretold: 2 };
        assert!(after(&[hardly; 3]).patience() > 0);
        // Short waits for what was on its way do not say that a stall is short.
        let partial = Life { stalls: 23, stalled_ns: 3_600_000, partial: 20, posts: 2, foretold: 40 };
        assert_eq!(after(&[partial; 3]).patience(), 0);
        let slow = Life { foretold: 3, ..hardly };
        assert_eq!(after(&[slow; 3]).patience(), 0);
    }

    #[test]
    fn who_never_stalled_says_nothing() {
        let known = after(&[FUTILE; 3]);
        assert_eq!(known.after(Life::default()), known);
    }

    #[test]
    fn who_waits_says_nothing_but_how_long_a_life_is_and_one_of_many_looks_again() {
        let waits = Life { stalls: 9, stalled_ns: 900_000, partial: 0, posts: 0, foretold: 0 };
        let mut known = after(&[FUTILE; 3]);
        for _ in 0..LOOK_AGAIN {
            assert!(known.patience() > 0);
            known = known.after(waits);
        }
        assert_eq!((known.stalls, known.patience()), (9, 0));
        assert_eq!(known.after(FUTILE).patience(), 18);
    }

    #[test]
    fn whatever_stands_there_is_survived() {
        let known = Known { fruitless: u16::MAX, waited: u16::MAX, stalls: u32::MAX };
        let most = u64::MAX;
        let life = Life { stalls: most, stalled_ns: most, partial: most, posts: most, foretold: most };
        assert_eq!(known.after(Life { posts: 0, ..life }), known);
        assert_eq!(Known { waited: 0, ..known }.after(FUTILE).patience(), PATIENCE_MOST);
        let _ = known.after(life);
        assert_eq!(Known::of(known.word()), known);
        let odd = Known { fruitless: 3, waited: 5, stalls: 7 };
        assert_eq!(Known::of(odd.word()), odd);
    }
}
