//! Which waits for names are worth a note.
//!
//! The host takes a note of a name for one of its directory, and goes on from there by itself: a second one of the same
//! directory says nothing new. Unless the name is one of the program's arguments, which whoever leaves the note does not know. So
//! where a name may be one, another note follows, later and later: when the program has waited there for a quarter as long again
//! as it had at the latest one. That is after 1, 2, 3, 4, 5, 7, 9, 12 waits of equal length, 17 notes for a hundred. (With a single one a linker that
//! looked beside its objects for a file that it was not told had the directory listed, and what it was told to read went unnoticed.)

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noting {
    /// Mark of the directory of the latest note.
    mark: u64,
    /// What was waited for in it, ns, and what makes another note due.
    waited: u64,
    due: u64,
}

impl Noting {
    pub const fn new() -> Noting {
        Noting { mark: 0, waited: 0, due: 0 }
    }

    /// A name was waited for, `took` ns, in the directory of this mark (never 0). True if a note is due.
    pub fn wants(&mut self, mark: u64, may_be_argument: bool, took: u64) -> bool {
        if self.mark != mark {
            *self = Noting { mark, ..Noting::new() };
        } else if !may_be_argument {
            return false;
        }
        self.waited = self.waited.saturating_add(took);
        let due = self.waited >= self.due;
        if due {
            self.due = self.waited.saturating_add(self.waited / 4).max(1);
        }
        due
    }

    /// Whatever comes next is news.
    pub fn forget(&mut self) {
        *self = Noting::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: u64 = 1_000_000;

    #[test]
    fn a_directory_is_noted_once() {
        let mut noting = Noting::new();
        assert!(noting.wants(1, false, WAIT));
        assert!((0..100).all(|_| !noting.wants(1, false, WAIT)));
        assert!(noting.wants(2, false, WAIT));
        assert!(noting.wants(1, false, WAIT));
        noting.forget();
        assert!(noting.wants(1, false, WAIT));
    }

    #[test]
    fn what_may_be_an_argument_later_and_later() {
        for wait in [0, 20_000, WAIT, u64::MAX] {
            let mut noting = Noting::new();
            assert!(noting.wants(1, true, wait));
        }
        let mut noting = Noting::new();
        let noted: Vec<u32> = (1..=100).filter(|_| noting.wants(1, true, WAIT)).collect();
        assert_eq!(noted[..8], [1, 2, 3, 4, 5, 7, 9, 12]);
        assert_eq!(noted.len(), 17);
    }

    #[test]
    fn one_in_a_few_is_met_soon() {
        for every in 2..6 {
            for first in 1..=every {
                let mut noting = Noting::new();
                let met = (1..=24).any(|wait| noting.wants(1, true, WAIT) && wait % every == first % every);
                assert!(met, "each {every}th from the {first}th");
            }
        }
    }
}
