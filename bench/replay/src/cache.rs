//! A page cache over a disk, and the kernel's read-ahead.
//!
//! A page is there from the time on at which the request for it is answered. Nothing is evicted. Read-ahead is
//! that of Linux since 2.6.23: windows that double, a mark at which the next one is started, single pages for
//! what looks random, and around a page fault as much as a window.

use crate::device::Device;
use crate::trace::{PAGE, Step, Trace, What};
use std::collections::HashMap;

/// Pages in a read-ahead window at most, and in a request (128 KB).
const WINDOW: u64 = 32;

/// Page faults that miss, more than those that hit, after which the kernel reads nothing around them.
const MISSES: u32 = 100;

/// Bytes between two files on the disk.
const GAP: u64 = 64 << 10;

/// Name inodes in one block of the disk.
const NAMES_A_BLOCK: u32 = 16;

/// The file that the names lie in.
const NAMES: u32 = u32::MAX;

/// Where a program's files lie.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// First byte on the disk, and bytes.
    files: HashMap<u32, (u64, u64)>,
    /// Bytes of the disk.
    pub size: u64,
}

impl Layout {
    /// One behind the other, in the order in which the program comes to them; the names before all of them.
    pub fn of(trace: &Trace) -> Layout {
        let mut order = vec![NAMES];
        let mut ends: HashMap<u32, u64> = HashMap::from([(NAMES, PAGE)]);
        for step in trace.threads.iter().flatten() {
            let (file, end) = end_of(step);
            let known = ends.entry(file).or_insert_with(|| {
                order.push(file);
                0
            });
            *known = (*known).max(end);
        }
        let mut layout = Layout::default();
        for file in order {
            let bytes = ends[&file].next_multiple_of(PAGE);
            layout.files.insert(file, (layout.size, bytes));
            layout.size += bytes.next_multiple_of(GAP) + GAP;
        }
        layout
    }

    /// Pages of a file.
    pub fn pages(&self, file: u32) -> u64 {
        self.files.get(&file).map_or(0, |(_, bytes)| bytes / PAGE)
    }

    fn place(&self, file: u32, page: u64) -> u64 {
        self.files.get(&file).map_or(0, |(first, _)| first + page * PAGE)
    }
}

/// The file that a step reads, and up to where.
fn end_of(step: &Step) -> (u32, u64) {
    match step.what {
        What::Read { file, place, length } => (file, place + length),
        What::Touch { file, page, .. } => (file, (page + 1) * PAGE),
        What::Name { number } => (NAMES, (u64::from(number / NAMES_A_BLOCK) + 1) * PAGE),
    }
}

/// Which page a name lies in.
pub fn page_of_name(number: u32) -> (u32, u64) {
    (NAMES, u64::from(number / NAMES_A_BLOCK))
}

/// What is remembered of an open file, by each who has it open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ahead {
    start: u64,
    size: u64,
    later: u64,
    /// The page behind the one read last.
    next: u64,
    misses: u32,
}

pub struct Cache {
    pub layout: Layout,
    disk: Device,
    /// When each page is there.
    pages: HashMap<(u32, u64), u64>,
    /// Requests and pages that the disk was asked for.
    pub requests: u64,
    pub asked: u64,
}

impl Cache {
    pub fn new(layout: Layout, disk: Device) -> Cache {
        Cache { layout, disk, pages: HashMap::new(), requests: 0, asked: 0 }
    }

    /// All of the program's files are there.
    pub fn fill(&mut self) {
        for (&file, &(_, bytes)) in &self.layout.files {
            self.pages.extend((0..bytes / PAGE).map(|page| ((file, page), 0)));
        }
    }

    /// When a page is there, if anybody has asked for it.
    pub fn ready(&self, file: u32, page: u64) -> Option<u64> {
        self.pages.get(&(file, page)).copied()
    }

    pub fn is_there(&self, file: u32, page: u64, now: u64) -> bool {
        self.ready(file, page).is_some_and(|ready| ready <= now)
    }

    /// Asks for those of `count` pages that nobody has asked for. Returns how many.
    pub fn ask(&mut self, file: u32, first: u64, count: u64, now: u64) -> u64 {
        let end = first.saturating_add(count).min(self.layout.pages(file));
        let (mut page, mut asked) = (first, 0);
        while page < end {
            let missing = (page..end.min(page + WINDOW))
                .take_while(|&page| !self.pages.contains_key(&(file, page)))
                .count() as u64;
            if missing == 0 {
                page += 1;
                continue;
            }
            let ready = self.disk.admit(now, self.layout.place(file, page), missing * PAGE);
            self.pages.extend((page..page + missing).map(|page| ((file, page), ready)));
            self.requests += 1;
            asked += missing;
            page += missing;
        }
        self.asked += asked;
        asked
    }

    /// One page of a read of `left` pages, this one included: asks for what the kernel asks for. Returns when
    /// it is there, and how many pages were asked for.
    pub fn read(&mut self, ahead: &mut Ahead, file: u32, page: u64, left: u64, now: u64) -> (u64, u64) {
        let asked = match self.ready(file, page) {
            None => self.misses(ahead, file, page, left, now),
            Some(_) if ahead.later > 0 && page == ahead.start + ahead.size - ahead.later => {
                ahead.start += ahead.size;
                ahead.size = next_size(ahead.size);
                ahead.later = ahead.size;
                self.ask(file, ahead.start, ahead.size, now)
            }
            Some(_) => 0,
        };
        ahead.next = page + 1;
        (self.ready(file, page).unwrap_or(now), asked)
    }

    fn misses(&mut self, ahead: &mut Ahead, file: u32, page: u64, left: u64, now: u64) -> u64 {
        let left = left.max(1);
        if page == 0 || left > WINDOW || page == ahead.next || page + 1 == ahead.next {
            ahead.start = page;
            ahead.size = first_size(left);
            ahead.later = if ahead.size > left { ahead.size - left } else { ahead.size / 2 };
            return self.ask(file, page, ahead.size, now);
        }
        let history = (1..=WINDOW.min(page)).take_while(|back| self.pages.contains_key(&(file, page - back)));
        let history = history.count() as u64;
        if history <= left {
            return self.ask(file, page, left.min(WINDOW), now);
        }
        ahead.start = page;
        ahead.size = (history + left).min(WINDOW);
        ahead.later = 1;
        self.ask(file, page, ahead.size, now)
    }

    /// A page fault. Returns when the page is there, and whether it had to be asked for.
    pub fn fault(&mut self, ahead: &mut Ahead, file: u32, page: u64, now: u64) -> (u64, bool) {
        let is_missing = self.ready(file, page).is_none();
        if !is_missing {
            ahead.misses = ahead.misses.saturating_sub(1);
        } else if ahead.misses > MISSES {
            self.ask(file, page, 1, now);
        } else {
            ahead.misses += 1;
            self.ask(file, page.saturating_sub(WINDOW / 2), WINDOW, now);
        }
        (self.ready(file, page).unwrap_or(now), is_missing)
    }
}

fn first_size(left: u64) -> u64 {
    let size = left.next_power_of_two();
    if size <= WINDOW / 32 {
        size * 4
    } else if size <= WINDOW / 4 {
        size * 2
    } else {
        WINDOW
    }
}

fn next_size(size: u64) -> u64 {
    if size < WINDOW / 16 {
        size * 4
    } else if size <= WINDOW / 2 {
        size * 2
    } else {
        WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Known;

    fn cache(pages: u64) -> Cache {
        let what = What::Read { file: 1, place: 0, length: pages * PAGE };
        let threads = vec![vec![Step { compute: 0, what, known: Known::Always }]];
        let trace = Trace { threads, ..Trace::default() };
        Cache::new(Layout::of(&trace), Device::named("cloud").unwrap())
    }

    #[test]
    fn a_scan_waits_for_its_first_windows_only() {
        let (mut cache, mut ahead, mut now) = (cache(1000), Ahead::default(), 0);
        let mut waits = 0;
        for page in 0..1000 {
            let (ready, _) = cache.read(&mut ahead, 1, page, 1, now);
            waits += u64::from(ready > now);
            now = ready.max(now) + 100_000;
        }
        assert!(waits <= 2, "{waits}");
        assert!((1000 / WINDOW..=1000 / WINDOW + 5).contains(&cache.requests), "{}", cache.requests);
    }

    #[test]
    fn what_looks_random_is_read_page_by_page() {
        let (mut cache, mut ahead) = (cache(1000), Ahead::default());
        for page in [500, 100, 900, 300] {
            assert_eq!(cache.read(&mut ahead, 1, page, 1, 0), (1_000_000, 1));
        }
        assert_eq!((cache.requests, cache.asked), (4, 4));
    }

    #[test]
    fn around_a_fault_a_window_is_read() {
        let (mut cache, mut ahead) = (cache(1000), Ahead::default());
        assert_eq!(cache.fault(&mut ahead, 1, 500, 0), (1_000_000, true));
        assert_eq!(cache.fault(&mut ahead, 1, 484, 5), (1_000_000, false));
        assert_eq!(cache.fault(&mut ahead, 1, 516, 5), (1_000_005, true));
        // Half of the second window was there.
        assert_eq!(cache.asked, WINDOW + WINDOW / 2);
    }

    #[test]
    fn what_is_on_its_way_is_not_asked_for_again() {
        let mut cache = cache(100);
        assert_eq!(cache.ask(1, 10, 4, 0), 4);
        assert_eq!(cache.ask(1, 8, 8, 10), 4);
        // Two pieces, before and behind.
        assert_eq!(cache.requests, 3);
        assert!(!cache.is_there(1, 10, 999_999) && cache.is_there(1, 10, 1_000_000));
        // Nor what is beyond the file's end.
        assert_eq!(cache.ask(1, 90, 100, 0), 10);
    }
}
