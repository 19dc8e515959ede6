//! Do a file's reads jump about, so that the kernel's read-ahead fetches what nobody wants?
//!
//! The kernel takes two reads that touch for the beginning of a scan, and reads on behind them. Where runs are short,
//! three or four blocks, half of what it brings in is waste, and on a disk with one arm waste stands in line with
//! the rest: 5000 blocks of 8 KB, in runs of two to five, took 13,500 pages for 10,000 on four such disks, and 21.5 s where
//! hints by hand, which ask for just the blocks, took 18.2 (`bench/results/2026-11-21-array4-6670584.jsonl`; 16.5 since).
//! Speculation knows which reads come next and needs no such guess. Long runs are another matter: there it makes few
//! requests of many.
//!
//! Rule: the advice is given for the speculator's own descriptor. The program's read-ahead is its own.

/// A run as long as this is a scan (bytes): the kernel's greatest request, and what its read-ahead grows to where nobody
/// has configured it.
const SCAN: u64 = 128 << 10;

/// So many short runs, one after the other, are no accident. (Each restart of speculation looks like the end of a run, too.)
const SURE: u8 = 8;

/// What to tell the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Read just what is asked for.
    Random,
    /// Read ahead as usual.
    Normal,
}

/// The reads of one open file. Zeros are its start: the kernel's own way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scattered {
    /// Where the latest read ended, and the bytes of the run up to there.
    end: u64,
    run: u64,
    short_runs: u8,
    random: bool,
}

impl Scattered {
    pub const fn new() -> Scattered {
        Scattered { end: 0, run: 0, short_runs: 0, random: false }
    }

    /// A read of `bytes` bytes at `place`. Returns what to tell the kernel before it, if that is something new.
    pub fn read(&mut self, place: u64, bytes: u64) -> Option<Advice> {
        if bytes == 0 {
            return None;
        }
        if place != self.end && self.run > 0 {
            self.short_runs = if self.run < SCAN { (self.short_runs + 1).min(SURE) } else { 0 };
            self.run = 0;
        }
        self.run = self.run.saturating_add(bytes);
        self.end = place.saturating_add(bytes);
        let random = self.run < SCAN && (self.random || self.short_runs >= SURE);
        if random == self.random {
            return None;
        }
        self.random = random;
        if random {
            return Some(Advice::Random);
        }
        self.short_runs = 0;
        Some(Advice::Normal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 8192;

    /// What is said of runs of `length` blocks, a MB apart.
    fn said(scattered: &mut Scattered, runs: u64, length: u64) -> Vec<Advice> {
        let places = (0..runs).flat_map(|run| (0..length).map(move |block| (run << 20) + block * BLOCK));
        places.filter_map(|place| scattered.read(place, BLOCK)).collect()
    }

    #[test]
    fn short_runs_turn_read_ahead_off_once() {
        for length in [1, 2, 5, 15] {
            assert_eq!(said(&mut Scattered::new(), 100, length), [Advice::Random], "{length}");
        }
    }

    #[test]
    fn scans_are_left_to_the_kernel() {
        assert_eq!(said(&mut Scattered::new(), 100, 16), []);
        assert_eq!(said(&mut Scattered::new(), 1, 10_000), []);
    }

    #[test]
    fn a_few_jumps_say_nothing() {
        assert_eq!(said(&mut Scattered::new(), 8, 1), []);
        assert_eq!(said(&mut Scattered::new(), 9, 1), [Advice::Random]);
    }

    #[test]
    fn a_scan_turns_it_on_again() {
        let mut scattered = Scattered::new();
        said(&mut scattered, 20, 1);
        assert_eq!(said(&mut scattered, 1, 15), []);
        assert_eq!(said(&mut scattered, 1, 1000), [Advice::Normal]);
        // And jumps have to show themselves anew.
        assert_eq!(said(&mut scattered, 8, 1), []);
        assert_eq!(said(&mut scattered, 8, 1), [Advice::Random]);
    }

    #[test]
    fn reads_of_nothing_are_none() {
        let mut scattered = Scattered::new();
        for place in 0..100 {
            assert_eq!(scattered.read(place << 20, 0), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics_and_says_nothing_twice(reads in proptest::collection::vec(proptest::prelude::any::<(u64, u64)>(), 0..100)) {
            let (mut scattered, mut latest) = (Scattered::new(), Advice::Normal);
            for (place, bytes) in reads {
                if let Some(advice) = scattered.read(place, bytes) {
                    proptest::prop_assert_ne!(advice, latest);
                    latest = advice;
                }
            }
        }
    }
}
