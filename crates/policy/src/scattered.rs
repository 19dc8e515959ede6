//! Do a file's reads jump about, so that the kernel's read-ahead fetches what nobody wants?
//!
//! The kernel takes two reads that touch for the beginning of a scan, and reads on behind them. Where runs are short,
//! three or four blocks, half of what it brings in is waste, and on a disk with one arm waste stands in line with
//! the rest: 5000 blocks of 8 KB, in runs of two to five, took 13,800 pages for 10,000 on four such disks, and 20.6 s where
//! hints by hand, which ask for just the blocks, took 16.5. Speculation knows which reads come next and needs no such guess.
//!
//! Short runs alone do not tell. GNU ld jumps about in its objects too, and comes back until it has read nearly all of
//! them: told to read just what is asked for it made 2600 and 6800 requests for 1400. So three things must come together.
//!
//! - *Runs are short* ([`Scattered`], one for each open file). Long ones are a scan, where read-ahead makes few requests of many.
//! - *Neighbourhoods stay sparse* ([`Neighbourhoods`], one for all files). Of 128 KB around what is read only a part is wanted by the time
//!   many other such places have been visited. What ld has begun it finishes before that.
//! - *The disk answers slowly* ([`is_slow`]). On others what is read along costs next to nothing: the 1 ms disk takes as long for
//!   128 KB as for 4.
//!
//! Rule: the advice is given for the speculator's own descriptor. The program's read-ahead is its own.

use crate::PAGE;

/// A run as long as this is a scan, and a neighbourhood is as large (bytes): the kernel's greatest request, and what its
/// read-ahead grows to where nobody has configured it.
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

    /// A read of `bytes` bytes at `place`; `may` says whether read-ahead may be turned off at all, by what this does not see.
    /// Returns what to tell the kernel before the read, if that is something new.
    pub fn read(&mut self, place: u64, bytes: u64, may: bool) -> Option<Advice> {
        if bytes == 0 {
            return None;
        }
        if place != self.end && self.run > 0 {
            self.short_runs = if self.run < SCAN { (self.short_runs + 1).min(SURE) } else { 0 };
            self.run = 0;
        }
        self.run = self.run.saturating_add(bytes);
        self.end = place.saturating_add(bytes);
        let random = may && self.run < SCAN && (self.random || self.short_runs >= SURE);
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

/// Neighbourhoods that are remembered, 32 MB; the one not visited for longest makes room. (The large ones of GNU ld's
/// 562 objects are 18 MB.) Found by going through all of them, some 100 ns: in sets of four, which is quicker, a few
/// crowded sets forgot theirs all the time, and what ld reads looked sparse.
const KEPT: usize = 256;

/// Neighbourhoods that must have been left before they say anything.
const ENOUGH: u8 = 16;

/// Pages of the 32 of which a neighbourhood is sparse, on the average: those of XDataSlice have 4 to 10, ld's 20 and more.
const SPARSE: u32 = 12;

/// The average is kept in 1/256 pages; each neighbourhood that is left moves it by 1/16 of the distance.
const FINE: u32 = 256;

/// How much of the neighbourhood of what is read is wanted in the end.
pub struct Neighbourhoods {
    /// Which they are (file and number mixed).
    names: [u64; KEPT],
    /// One bit for each page that was wanted. None: nothing is remembered here.
    wanted: [u32; KEPT],
    visited: [u32; KEPT],
    visits: u32,
    /// Where the latest is.
    latest: usize,
    /// Neighbourhoods left, up to [`ENOUGH`], and how many of their pages were wanted.
    left: u8,
    average: u32,
}

impl Default for Neighbourhoods {
    fn default() -> Self {
        Self::new()
    }
}

impl Neighbourhoods {
    pub const fn new() -> Neighbourhoods {
        Neighbourhoods {
            names: [0; KEPT],
            wanted: [0; KEPT],
            visited: [0; KEPT],
            visits: 0,
            latest: 0,
            left: 0,
            average: 0,
        }
    }

    /// A read of `bytes` bytes at `place` in `file` (device and inode mixed). Of long reads the first and the last
    /// neighbourhood count: those between are wanted whole.
    pub fn read(&mut self, file: u64, place: u64, bytes: u64) {
        let Some(last) = bytes.checked_sub(1).and_then(|more| place.checked_add(more)) else { return };
        let (first, last) = (place / PAGE, last / PAGE);
        let pages = SCAN / PAGE;
        if first / pages == last / pages {
            return self.want(file, first / pages, bits(first % pages, last % pages));
        }
        self.want(file, first / pages, bits(first % pages, pages - 1));
        self.want(file, last / pages, bits(0, last % pages));
    }

    fn want(&mut self, file: u64, number: u64, wanted: u32) {
        let name = (file ^ number.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.visits = self.visits.wrapping_add(1);
        if self.names.get(self.latest) != Some(&name) {
            self.latest = match self.names.iter().position(|&known| known == name) {
                Some(at) => at,
                None => self.replace_oldest(name),
            };
        }
        if let (Some(pages), Some(visited)) =
            (self.wanted.get_mut(self.latest), self.visited.get_mut(self.latest))
        {
            *pages |= wanted;
            *visited = self.visits;
        }
    }

    /// Forgets the neighbourhood not visited for longest, or takes an empty place, for `name`. Returns where.
    fn replace_oldest(&mut self, name: u64) -> usize {
        let age = |at: usize| match (self.wanted.get(at), self.visited.get(at)) {
            (Some(1..), Some(&visited)) => self.visits.wrapping_sub(visited),
            _ => u32::MAX,
        };
        let oldest = (0..KEPT).max_by_key(|&at| age(at)).unwrap_or(0);
        if let (Some(known), Some(pages)) = (self.names.get_mut(oldest), self.wanted.get_mut(oldest)) {
            *known = name;
            let left = core::mem::take(pages);
            if left != 0 {
                self.leave(left.count_ones() * FINE);
            }
        }
        oldest
    }

    fn leave(&mut self, pages: u32) {
        // The first few are averaged as they are, so that the start counts for nothing.
        self.left = (self.left + 1).min(ENOUGH);
        let weight = u32::from(self.left);
        self.average = (self.average * (weight - 1) + pages) / weight;
    }

    /// Whether little of a neighbourhood is wanted, as a rule.
    pub fn are_sparse(&self) -> bool {
        self.left >= ENOUGH && self.average < SPARSE * FINE
    }
}

/// Bits `first..=last`, both below 32.
fn bits(first: u64, last: u64) -> u32 {
    (u32::MAX << (first & 31)) & (u32::MAX >> (31 - (last & 31)))
}

/// A disk that lets the program wait so long on the average (ns) moves an arm, or is so busy that all that is
/// asked for needlessly is waited for. Above what full queues of the 1 ms disk take, below any arm's way and turn.
const SLOW: u64 = 4_000_000;

/// Waits that say something.
const WAITS: u64 = 8;

/// Whether the disk answers slowly, by the program's `stalls` and what they took in all (ns).
pub fn is_slow(stalls: u64, stall_ns: u64) -> bool {
    stalls >= WAITS && stall_ns / stalls >= SLOW
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 8192;

    /// What is said of runs of `length` blocks, a MB apart.
    fn said(scattered: &mut Scattered, runs: u64, length: u64) -> Vec<Advice> {
        let places = (0..runs).flat_map(|run| (0..length).map(move |block| (run << 20) + block * BLOCK));
        places.filter_map(|place| scattered.read(place, BLOCK, true)).collect()
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
    fn where_it_may_not_it_is_on() {
        let mut scattered = Scattered::new();
        let jumps = |scattered: &mut Scattered, may| {
            (1..50).filter_map(|place| scattered.read(place << 20, BLOCK, may)).collect::<Vec<_>>()
        };
        assert_eq!(jumps(&mut scattered, false), []);
        assert_eq!(jumps(&mut scattered, true), [Advice::Random]);
        assert_eq!(jumps(&mut scattered, false), [Advice::Normal]);
    }

    #[test]
    fn reads_of_nothing_are_none() {
        let mut scattered = Scattered::new();
        for place in 0..100 {
            assert_eq!(scattered.read(place << 20, 0, true), None);
        }
    }

    /// A few blocks in each of `count` neighbourhoods, spread over a file.
    fn slice(neighbourhoods: &mut Neighbourhoods, file: u64, count: u64, blocks: u64) {
        for number in 0..count {
            (0..blocks).for_each(|block| neighbourhoods.read(file, number * 5 * SCAN + block * BLOCK, BLOCK));
        }
    }

    #[test]
    fn slices_are_sparse_once_they_went_on() {
        let mut neighbourhoods = Neighbourhoods::new();
        slice(&mut neighbourhoods, 1, 64, 3);
        assert!(!neighbourhoods.are_sparse());
        slice(&mut neighbourhoods, 1, 400, 3);
        assert!(neighbourhoods.are_sparse());
    }

    #[test]
    fn pieces_of_which_all_is_wanted_in_the_end_are_not() {
        // As ld: headers of all first, a page here and there, then the rest, backwards.
        let mut neighbourhoods = Neighbourhoods::new();
        for page in [0, 31, 7, 3, 12].into_iter().chain((0..32).rev()) {
            for number in 0..100 {
                neighbourhoods.read(number % 6, (number * 32 + page) * PAGE, PAGE);
                assert!(!neighbourhoods.are_sparse());
            }
        }
        // Nor when they are left: all of them were wanted, and this is what is left first.
        (0..200).for_each(|number| neighbourhoods.read(9, number * SCAN, SCAN));
        assert!(!neighbourhoods.are_sparse());
    }

    #[test]
    fn a_scan_ends_it() {
        let mut neighbourhoods = Neighbourhoods::new();
        slice(&mut neighbourhoods, 1, 600, 2);
        assert!(neighbourhoods.are_sparse());
        (0..400).for_each(|number| neighbourhoods.read(2, number * SCAN, SCAN));
        assert!(!neighbourhoods.are_sparse());
    }

    #[test]
    fn bits_of_a_read() {
        assert_eq!(bits(0, 31), u32::MAX);
        assert_eq!(bits(0, 0), 1);
        assert_eq!(bits(31, 31), 1 << 31);
        assert_eq!(bits(4, 5), 0b11_0000);
    }

    #[test]
    fn slow_is_what_lets_the_program_wait() {
        assert!(is_slow(20, 20 * 13_000_000));
        assert!(!is_slow(20, 20 * 1_200_000));
        // Too few to say.
        assert!(!is_slow(2, 2 * 13_000_000));
        assert!(!is_slow(0, 0));
    }

    proptest::proptest! {
        #[test]
        fn never_panics_and_says_nothing_twice(reads in proptest::collection::vec(proptest::prelude::any::<(u64, u64, bool)>(), 0..100)) {
            let (mut scattered, mut latest) = (Scattered::new(), Advice::Normal);
            let mut neighbourhoods = Neighbourhoods::new();
            for (place, bytes, may) in reads {
                neighbourhoods.read(bytes % 3, place, bytes);
                if let Some(advice) = scattered.read(place, bytes, may) {
                    proptest::prop_assert_ne!(advice, latest);
                    latest = advice;
                }
            }
        }
    }
}
