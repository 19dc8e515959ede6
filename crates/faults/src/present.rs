//! Which pages of a process's mappings are present, and which are so newly.
//!
//! `/proc/PID/pagemap` tells, to whoever may read the process. From Linux 6.7 on it can be asked for what is
//! present alone (`PAGEMAP_SCAN`, kernel document `admin-guide/mm/pagemap.rst`). 1 GB of one mapping, Linux
//! 6.18: nothing present 13 us, each 5000th page 60 us, all of it 3.1 ms; by reading a word for each page
//! 0.9, 1.0 and 8 ms. Nothing is asked about blocks of 2 MB that were found present as a whole.
//!
//! The descriptor is of the memory that the process had when it was opened: after an exec, or at its end, it
//! tells of nothing. Neither way changes anything in the process, or stops it. While the kernel looks it
//! holds the lock of the process's mappings for reading, so what is asked about at a time is bounded
//! ([`PIECE`]).

use crate::PAGE;
use runahead_policy::presence::Run;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Pages that are kept track of as one: those of one page table.
pub const BLOCK: u64 = 512;
const WORDS: usize = BLOCK as usize / 64;
type Bits = [u64; WORDS];
const ALL: Bits = [u64::MAX; WORDS];

/// Pages that are asked about at once, at first, and where there was nothing: 32 MB with all pages present
/// take 0.1 ms.
pub const PIECE: u64 = 16 * BLOCK;
const PIECE_MOST: u64 = 1024 * PIECE;

/// Blocks of which some pages are present, at most: 300 KB. What lies in others is not seen.
const BLOCKS_MOST: usize = 4096;

/// Stretches that the kernel may tell of at a time.
const TOLD: usize = 512;

const WORD: usize = size_of::<u64>();
const PRESENT: u64 = 1 << 63;

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Question {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;

/// How the kernel is asked.
enum Way {
    Scan(Vec<Region>),
    /// Before Linux 6.7.
    Read(Vec<u8>),
}

/// The pages of one process.
pub struct Present {
    pagemap: File,
    way: Way,
    /// Blocks of which some pages were present when they were looked at.
    partly: BTreeMap<u64, Bits>,
    /// Blocks of which all were: from and up to.
    wholly: BTreeMap<u64, u64>,
}

impl Present {
    /// Of a process. The error tells why its pages cannot be seen.
    pub fn of(process: u32) -> io::Result<Present> {
        let pagemap = File::open(format!("/proc/{process}/pagemap"))?;
        let mut present = Present {
            pagemap,
            way: Way::Scan(vec![Region::default(); TOLD]),
            partly: BTreeMap::new(),
            wholly: BTreeMap::new(),
        };
        if present.scan(0, 1).is_err() {
            present.way = Way::Read(vec![0; PIECE as usize * WORD]);
        }
        // A process that has ended has no memory.
        if present.is_over() { Err(io::ErrorKind::NotFound.into()) } else { Ok(present) }
    }

    /// Whether there is no such memory any more: its process has ended or executed another program.
    pub fn is_over(&self) -> bool {
        !matches!(self.pagemap.read_at(&mut [0; WORD], 0), Ok(WORD))
    }

    /// Whether the page at an address is present now.
    pub fn is_present(&self, address: u64) -> bool {
        let mut word = [0; WORD];
        let read = self.pagemap.read_at(&mut word, address / PAGE * WORD as u64);
        matches!(read, Ok(WORD)) && u64::from_ne_bytes(word) & PRESENT != 0
    }

    /// Forgets what was present of a mapping that has gone.
    pub fn forget(&mut self, pages: Run) {
        let (first, end) = (pages.first / BLOCK, pages.end.div_ceil(BLOCK));
        self.partly.extract_if(first..end, |_, _| true).for_each(drop);
        self.no_more_whole(first, end);
    }

    fn no_more_whole(&mut self, first: u64, end: u64) {
        while let Some((&from, &to)) = self.wholly.range(..end).next_back().filter(|&(_, &to)| to > first) {
            self.wholly.remove(&from);
            if to > end {
                self.wholly.insert(end, to);
            }
            if from < first {
                self.wholly.insert(from, first);
            }
        }
    }

    /// Looks at pages of a mapping from `pages.first` on, as many as are asked about at a time, and says up
    /// to where it has looked. `piece`: how many that are; it grows where nothing is. `again`: also at blocks
    /// of which all pages were present. Runs that are new go to `each`, in their order.
    pub fn look(&mut self, pages: Run, piece: &mut u64, again: bool, each: &mut Vec<Run>) -> io::Result<u64> {
        let first = if again { pages.first } else { self.not_whole(pages.first) };
        if first >= pages.end {
            return Ok(pages.end);
        }
        let next = self.wholly.range(first / BLOCK + 1..).next().map(|(&from, _)| from * BLOCK);
        let whole = next.filter(|_| !again).unwrap_or(u64::MAX);
        let end = pages.end.min(whole).min((first / BLOCK * BLOCK).saturating_add(*piece));
        let (stretches, end) = self.present(first, end)?;
        *piece = if stretches.is_empty() { (*piece * 2).min(PIECE_MOST) } else { PIECE };
        self.take_in(Run { first, end }, &stretches, each);
        Ok(end)
    }

    /// The next page from one on that does not lie in a block of which all were present.
    fn not_whole(&self, page: u64) -> u64 {
        match self.wholly.range(..=page / BLOCK).next_back() {
            Some((_, &to)) if to > page / BLOCK => to * BLOCK,
            _ => page,
        }
    }

    fn is_whole(&self, block: u64) -> bool {
        self.not_whole(block * BLOCK) != block * BLOCK
    }

    /// Compares what is present of a range with what was, and keeps it.
    fn take_in(&mut self, range: Run, stretches: &[Run], each: &mut Vec<Run>) {
        let mut now: BTreeMap<u64, Bits> = BTreeMap::new();
        for stretch in stretches {
            for block in stretch.first / BLOCK..stretch.end.div_ceil(BLOCK) {
                let bits = now.entry(block).or_default();
                let begin = block * BLOCK;
                set(bits, stretch.first.max(begin) - begin, stretch.end.min(begin + BLOCK) - begin);
            }
        }
        let (first, end) = (range.first / BLOCK, range.end.div_ceil(BLOCK));
        let known: Vec<u64> =
            self.partly.range(first..end).map(|(&block, _)| block).chain(self.whole(first, end)).collect();
        for block in known {
            now.entry(block).or_default();
        }
        for (block, present) in now {
            let begin = block * BLOCK;
            let mut looked_at = Bits::default();
            set(&mut looked_at, range.first.max(begin) - begin, range.end.min(begin + BLOCK) - begin);
            let is_whole = self.is_whole(block);
            let was = if is_whole { Some(ALL) } else { self.partly.get(&block).copied() };
            if was.is_none() && self.partly.len() + self.wholly.len() >= BLOCKS_MOST {
                continue;
            }
            let was = was.unwrap_or_default();
            let word = |at: usize| {
                let of = |bits: &Bits| bits.get(at).copied().unwrap_or(0);
                (of(&was), of(&present), of(&looked_at))
            };
            let new: Bits = std::array::from_fn(|at| {
                let (was, now, _) = word(at);
                now & !was
            });
            let is: Bits = std::array::from_fn(|at| {
                let (was, now, looked) = word(at);
                now | was & !looked
            });
            runs(&new, begin, each);
            match (is == ALL, is_whole) {
                (true, true) => continue,
                (false, true) => self.no_more_whole(block, block + 1),
                (true, false) => self.add_whole(block),
                (false, false) => {}
            }
            if is == ALL || is == Bits::default() {
                self.partly.remove(&block);
            } else {
                self.partly.insert(block, is);
            }
        }
    }

    /// Of the blocks from one up to another those of which all pages were present.
    fn whole(&self, first: u64, end: u64) -> impl Iterator<Item = u64> + '_ {
        let stretches = self.wholly.range(..end).rev().take_while(move |&(_, &to)| to > first);
        stretches.flat_map(move |(&from, &to)| from.max(first)..to.min(end))
    }

    fn add_whole(&mut self, block: u64) {
        let (mut from, mut to) = (block, block + 1);
        if let Some((&before, &end)) = self.wholly.range(..=block).next_back()
            && end >= block
        {
            (from, to) = (before, end.max(to));
        }
        if let Some(end) = self.wholly.remove(&to) {
            to = end;
        }
        self.wholly.insert(from, to);
    }

    /// What is present from a page up to another one, and up to where it is known.
    fn present(&mut self, first: u64, end: u64) -> io::Result<(Vec<Run>, u64)> {
        match self.way {
            Way::Scan(_) => self.scan(first, end),
            Way::Read(_) => self.read(first, end),
        }
    }

    fn scan(&mut self, first: u64, end: u64) -> io::Result<(Vec<Run>, u64)> {
        let Way::Scan(regions) = &mut self.way else { return Err(io::ErrorKind::Unsupported.into()) };
        let mut question = Question {
            size: size_of::<Question>() as u64,
            start: first * PAGE,
            end: end * PAGE,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            category_mask: PAGE_IS_PRESENT,
            return_mask: PAGE_IS_PRESENT,
            ..Question::default()
        };
        // SAFETY: the kernel reads and writes the question, and writes as many regions as there are at most.
        // Nothing is changed without PM_SCAN_WP_MATCHING.
        let told =
            unsafe { libc::ioctl(self.pagemap.as_raw_fd(), PAGEMAP_SCAN as libc::Ioctl, &raw mut question) };
        let Ok(told) = usize::try_from(told) else { return Err(io::Error::last_os_error()) };
        let run = |region: &Region| Run { first: region.start / PAGE, end: region.end / PAGE };
        let is_inside = |run: &Run| first <= run.first && run.first < run.end && run.end <= end;
        let runs = regions.iter().take(told).map(run).filter(is_inside).collect();
        // A full vector ends it early.
        let known = if told < regions.len() { end } else { (question.walk_end / PAGE).clamp(first + 1, end) };
        Ok((runs, known))
    }

    fn read(&mut self, first: u64, end: u64) -> io::Result<(Vec<Run>, u64)> {
        let Way::Read(bytes) = &mut self.way else { return Err(io::ErrorKind::Unsupported.into()) };
        let end = end.min(first + (bytes.len() / WORD) as u64);
        let wanted = bytes.get_mut(..(end - first) as usize * WORD).unwrap_or_default();
        let got = self.pagemap.read_at(wanted, first * WORD as u64)? / WORD;
        let (mut runs, mut begun) = (Vec::new(), None);
        for (page, word) in (first..).zip(wanted.chunks_exact(WORD).take(got)) {
            let word = word.try_into().map_or(0, u64::from_ne_bytes);
            match (word & PRESENT != 0, begun) {
                (true, None) => begun = Some(page),
                (false, Some(first)) => {
                    runs.push(Run { first, end: page });
                    begun = None;
                }
                _ => {}
            }
        }
        runs.extend(begun.map(|begun| Run { first: begun, end: first + got as u64 }));
        Ok((runs, end))
    }
}

fn set(bits: &mut Bits, first: u64, end: u64) {
    for (at, word) in (0u64..).zip(bits) {
        let (from, to) =
            (first.clamp(at * 64, at * 64 + 64) - at * 64, end.clamp(at * 64, at * 64 + 64) - at * 64);
        if from < to {
            *word |= (u64::MAX >> (64 - (to - from))) << from;
        }
    }
}

/// The runs of a block; one that continues the latest is one with it.
fn runs(bits: &Bits, begin: u64, each: &mut Vec<Run>) {
    for (at, &word) in (0u64..).zip(bits) {
        let (mut left, mut page) = (word, begin + at * 64);
        while left != 0 {
            let gap = left.trailing_zeros();
            let length = (left >> gap).trailing_ones();
            let first = page + u64::from(gap);
            let run = Run { first, end: first + u64::from(length) };
            match each.last_mut() {
                Some(last) if last.end == run.first => last.end = run.end,
                _ => each.push(run),
            }
            left = left.checked_shr(gap + length).unwrap_or(0);
            page = run.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(read: bool) -> Present {
        let mut present = Present::of(std::process::id()).unwrap();
        if read {
            present.way = Way::Read(vec![0; PIECE as usize * WORD]);
        }
        present
    }

    fn look(present: &mut Present, pages: Run, again: bool) -> Vec<Run> {
        let (mut found, mut at, mut piece) = (Vec::new(), pages.first, PIECE);
        while at < pages.end {
            at = present.look(Run { first: at, end: pages.end }, &mut piece, again, &mut found).unwrap();
        }
        found
    }

    #[test]
    fn what_has_newly_become_present_is_told_once_in_either_way() {
        const PAGES: usize = 3 * PIECE as usize;
        for read in [false, true] {
            let mut map = memmap2::MmapMut::map_anon(PAGES * PAGE as usize).unwrap();
            map.advise(memmap2::Advice::NoHugePage).unwrap();
            let first = map.as_ptr() as u64 / PAGE;
            let pages = Run { first, end: first + PAGES as u64 };
            let mut present = made(read);
            assert_eq!(look(&mut present, pages, false), []);
            let mut touch = |page: usize| map[page * PAGE as usize] = 1;
            [0, 1, 700, PAGES - 1].into_iter().for_each(&mut touch);
            let run = |from: u64, to: u64| Run { first: first + from, end: first + to };
            assert_eq!(
                look(&mut present, pages, false),
                [run(0, 2), run(700, 701), run(PAGES as u64 - 1, PAGES as u64)]
            );
            assert_eq!(look(&mut present, pages, false), []);
            (0..2000).for_each(&mut touch);
            assert_eq!(look(&mut present, pages, false), [run(2, 700), run(701, 2000)]);
            assert!(!present.wholly.is_empty());
            assert_eq!(look(&mut present, pages, false), []);
            // SAFETY: nothing is kept in it.
            unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) }.unwrap();
            assert_eq!(look(&mut present, pages, false), []);
            let was = present.wholly.len();
            assert_eq!(look(&mut present, pages, true), []);
            assert!(was > 0 && present.wholly.is_empty());
            map[5 * PAGE as usize] = 1;
            assert_eq!(look(&mut present, pages, false), [run(5, 6)]);
            present.forget(pages);
            assert_eq!(look(&mut present, pages, false), [run(5, 6)]);
        }
    }

    #[test]
    fn a_hundred_gigabytes_of_nothing_are_looked_at_in_no_time() {
        const BYTES: usize = 100 << 30;
        // SAFETY: a new mapping that nobody touches.
        let map = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_NONE, flags, -1, 0)
        };
        assert_ne!(map, libc::MAP_FAILED);
        let mut present = Present::of(std::process::id()).unwrap();
        if matches!(present.way, Way::Read(_)) {
            return eprintln!("SKIPPED: before Linux 6.7 each page is read");
        }
        let first = map as u64 / PAGE;
        let begun = std::time::Instant::now();
        assert_eq!(look(&mut present, Run { first, end: first + BYTES as u64 / PAGE }, false), []);
        assert!(begun.elapsed() < std::time::Duration::from_millis(50), "{:?}", begun.elapsed());
        // SAFETY: ours.
        unsafe { libc::munmap(map, BYTES) };
    }

    #[test]
    fn who_has_ended_has_no_pages() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let present = Present::of(child.id()).unwrap();
        assert!(!present.is_over());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(present.is_over());
        assert!(Present::of(child.id()).is_err());
    }

    proptest! {
        /// Against a set of pages, whatever comes and goes.
        #[test]
        fn as_a_set_says(steps in prop::collection::vec(prop::collection::vec((0u64..1600, 1u64..700), 0..6), 1..12)) {
            let mut present = made(false);
            let mut was = std::collections::BTreeSet::new();
            let range = Run { first: 100, end: 2000 };
            for stretches in steps {
                let now: std::collections::BTreeSet<u64> =
                    stretches.iter().flat_map(|&(first, length)| 100 + first..(100 + first + length).min(2000)).collect();
                let pages: Vec<Run> = now.iter().map(|&page| Run { first: page, end: page + 1 }).collect();
                let mut each = Vec::new();
                present.take_in(range, &pages, &mut each);
                let told: Vec<u64> = each.iter().flat_map(|run| run.first..run.end).collect();
                prop_assert_eq!(told, now.difference(&was).copied().collect::<Vec<u64>>());
                let whole: Vec<u64> = present.whole(0, 10).collect();
                let is_whole = |block: &u64| (block * BLOCK..block * BLOCK + BLOCK).all(|page| now.contains(&page));
                prop_assert!(whole.iter().all(|block| is_whole(block) && present.is_whole(*block)));
                prop_assert_eq!(whole.len(), (0..10).filter(is_whole).count());
                was = now;
            }
        }
    }
}
