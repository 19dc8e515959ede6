//! Do a file's reads jump about, so that the kernel's read-ahead fetches what nobody wants?
//!
//! The kernel takes two reads that touch for the beginning of a scan, and reads on behind them. Where runs are short,
//! three or four blocks, half of what it brings in is waste, and on a disk with one arm waste stands in line with
//! the rest: 5000 blocks of 8 KB, in runs of two to five, took 13,500 pages for 10,000 on four such disks, and 21.5 s where
//! hints by hand, which ask for just the blocks, took 18.2 (`bench/results/2026-11-21-array4-6670584.jsonl`; 16.5 since).
//! Speculation knows which reads come next and needs no such guess. Long runs are another matter: there it makes few
//! requests of many.
//!
//! Rules: a scan is known while a few others are met between its reads; the advice is given for the speculator's own descriptor. The program's read-ahead is its own.

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

/// Runs that are followed at a time: a merge reads several scans in turns, and the kernel knows each by its own marks.
const RUNS: usize = 4;

/// Reads that touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Where the latest read ended, and the bytes up to there. No bytes: no run.
    end: u64,
    bytes: u64,
}

/// The reads of one open file. The kernel's own way is its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scattered {
    /// The latest first.
    runs: [Run; RUNS],
    /// Short ones that have ended, one after the other.
    short_runs: u8,
    random: bool,
}

impl Default for Run {
    fn default() -> Run {
        Run::NONE
    }
}

impl Run {
    const NONE: Run = Run { end: 0, bytes: 0 };

    /// Whether a read at `place` goes on with it, or is of what it holds.
    fn takes(&self, place: u64) -> bool {
        self.bytes > 0 && place <= self.end && place >= self.end.saturating_sub(self.bytes)
    }
}

impl Scattered {
    pub const fn new() -> Scattered {
        Scattered { runs: [Run::NONE; RUNS], short_runs: 0, random: false }
    }

    /// Whether the kernel was told to read just what is asked for.
    pub fn is_random(&self) -> bool {
        self.random
    }

    /// A read of `bytes` bytes at `place`. Returns what to tell the kernel before it, if that is something new.
    pub fn read(&mut self, place: u64, bytes: u64) -> Option<Advice> {
        if bytes == 0 {
            return None;
        }
        let run = self.run_at(place);
        let end = place.saturating_add(bytes);
        run.bytes = run.bytes.saturating_add(end.saturating_sub(run.end));
        run.end = run.end.max(end);
        let scans = run.bytes >= SCAN;
        let random = !scans && (self.random || self.short_runs >= SURE);
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

    /// The run that a read at `place` belongs to, first in line now. A new one takes the place of the one that was met
    /// longest ago, which is over.
    fn run_at(&mut self, place: u64) -> &mut Run {
        let at = self.runs.iter().position(|run| run.takes(place));
        let upto = at.unwrap_or(RUNS - 1);
        self.runs[..=upto].rotate_right(1);
        if at.is_none() {
            let over = core::mem::replace(&mut self.runs[0], Run { end: place, bytes: 0 });
            if over.bytes > 0 {
                self.short_runs = if over.bytes < SCAN { (self.short_runs + 1).min(SURE) } else { 0 };
            }
        }
        &mut self.runs[0]
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
        assert_eq!(said(&mut Scattered::new(), 8 + RUNS as u64 - 1, 1), []);
        assert_eq!(said(&mut Scattered::new(), 8 + RUNS as u64, 1), [Advice::Random]);
    }

    #[test]
    fn scans_in_turns_and_a_header_between_are_scans() {
        let mut scattered = Scattered::new();
        for block in 0..1000 {
            let turns = [0, 1 << 30, 2 << 30].map(|scan| scattered.read(scan + block * BLOCK, BLOCK));
            assert_eq!((turns, scattered.read(3 << 30, 100)), ([None; 3], None), "{block}");
        }
    }

    #[test]
    fn a_scan_turns_it_on_again() {
        let mut scattered = Scattered::new();
        said(&mut scattered, 20, 1);
        assert_eq!(said(&mut scattered, 1, 15), []);
        assert_eq!(said(&mut scattered, 1, 1000), [Advice::Normal]);
        // And jumps have to show themselves anew.
        assert_eq!(said(&mut scattered, 5, 1), []);
        assert_eq!(said(&mut scattered, 20, 1), [Advice::Random]);
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
