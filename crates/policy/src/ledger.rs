//! The ledger: what became of the pages that were asked for.
//!
//! Each page that speculation asked the disk for is entered, and judged once: *useful* if the program passed
//! an operation that asked for it, or if later speculations found it in the cache and nearer to the program;
//! *wasted* when it was neither for several speculations, or for as many pages as the ledger holds. The
//! verdicts steer the depth and make up the report's unused pages.
//!
//! Why nearer: a wrong path is taken again and again, and finds what it fetched the last time, always as far
//! away as before. With finding alone for proof a chain of dependent reads fetched a dozen wrong pages at
//! each restart; with passing alone an index's look-ups, which the program mostly reaches before there is a
//! log to compare them with, were taken for waste and lost a quarter of their speed.

use crate::depth::Depth;

/// Pages under observation. Several times the greatest depth, since a page asked for at the far end of one
/// speculation is found by a later one.
const PAGES: usize = 8192;

/// Speculations of a thread after which a page that nobody wanted is wasted. A look-up in an index finds in
/// its second one what it fetched in the first; with no such limit a chain of dependent reads had asked for
/// 8000 wrong pages before the first verdict.
const SPECULATIONS: u32 = 8;

/// Places in the index; twice the pages, a power of two.
const INDEX: usize = 2 * PAGES;

#[derive(Clone, Copy)]
struct Page {
    file: u64,
    number: u64,
    /// The one that asked for it, or has found it last.
    speculation: u32,
    /// How many operations ahead of its start the latest speculation wanted it.
    distance: u32,
    /// Not judged yet.
    open: bool,
    /// Asked for when its file was opened, and not yet read by an operation of the log.
    unread: bool,
}

/// When something is asked for or found: in which speculation, and how many operations after its start.
#[derive(Clone, Copy)]
pub struct Moment {
    pub speculation: u32,
    pub distance: u32,
}

pub struct Ledger {
    pages: [Page; PAGES],
    /// Pages entered so far; the latest `PAGES` are in `pages`, at their number modulo `PAGES`.
    entered: u64,
    /// Pages before this number are too old to be of use, and judged.
    aged: u64,
    /// For each hash the number (+ 1) of the latest page entered under it; a newer one replaces an older.
    index: [u64; INDEX],
    /// Pages judged to be waste so far.
    wasted: u64,
}

fn place(file: u64, number: u64) -> usize {
    let mixed = (file ^ number.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize % INDEX
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger::new()
    }
}

impl Ledger {
    /// All of it is zeros.
    pub const fn new() -> Ledger {
        const PAGE: Page =
            Page { file: 0, number: 0, speculation: 0, distance: 0, open: false, unread: false };
        Ledger { pages: [PAGE; PAGES], entered: 0, aged: 0, index: [0; INDEX], wasted: 0 }
    }

    /// Pages judged to be waste so far.
    pub fn wasted(&self) -> u64 {
        self.wasted
    }

    /// Number of the next page to be entered: what is entered from here on belongs to the next operation.
    pub fn position(&self) -> u64 {
        self.entered
    }

    /// Pages `first..first + count` of `file` (device and inode mixed) were asked for, by the operation `now`.
    /// Returns how many of them are new: one that is still under observation (and still under way) now
    /// belongs to the later operation.
    pub fn enter(&mut self, depth: &mut Depth, file: u64, first: u64, count: u32, now: Moment) -> u32 {
        let mut new = 0;
        for number in first..first + u64::from(count) {
            match self.find(file, number) {
                Some(at) if self.pages[at].open => self.pages[at].open = false,
                _ => {
                    depth.asked();
                    new += 1;
                }
            }
            self.put(depth, file, number, now);
        }
        new
    }

    fn put(&mut self, depth: &mut Depth, file: u64, number: u64, now: Moment) {
        let at = (self.entered % PAGES as u64) as usize;
        self.judge(depth, at, false);
        self.pages[at] = Page {
            file,
            number,
            speculation: now.speculation,
            distance: now.distance,
            open: true,
            unread: false,
        };
        self.entered += 1;
        self.index[place(file, number)] = self.entered;
    }

    /// Where page `number` of `file` is observed.
    fn find(&self, file: u64, number: u64) -> Option<usize> {
        let latest = self.index[place(file, number)];
        if latest == 0 || latest + (PAGES as u64) <= self.entered {
            return None;
        }
        let at = ((latest - 1) % PAGES as u64) as usize;
        (self.pages[at].file == file && self.pages[at].number == number).then_some(at)
    }

    /// Whether page `number` of `file` was asked for in an earlier speculation than `now`: it may have come.
    pub fn was_asked_for(&self, file: u64, number: u64, now: Moment) -> bool {
        self.find(file, number).is_some_and(|at| self.pages[at].speculation != now.speculation)
    }

    /// The pages that were entered last, so many, were asked for when their file was opened.
    pub fn unread(&mut self, count: u32) {
        for number in self.entered.saturating_sub(u64::from(count).min(PAGES as u64))..self.entered {
            self.pages[(number % PAGES as u64) as usize].unread = true;
        }
    }

    /// Pages `first..first + count` of `file` were found in the cache by the operation `now`. Those that are
    /// not nearer now stay under observation, as that operation's. Returns whether some of them had been
    /// asked for when the file was opened: without that this operation would have asked.
    pub fn found(&mut self, depth: &mut Depth, file: u64, first: u64, count: u32, now: Moment) -> bool {
        let mut unread = false;
        for number in first..first + u64::from(count) {
            let Some(at) = self.find(file, number) else { continue };
            let page = &mut self.pages[at];
            unread |= core::mem::take(&mut page.unread);
            if !page.open || page.speculation == now.speculation {
                continue;
            }
            if now.distance < page.distance {
                self.judge(depth, at, true);
            } else {
                page.open = false;
                self.put(depth, file, number, now);
            }
        }
        unread
    }

    /// Nobody will know whether pages `from..to` were of use: they get no verdict.
    pub fn forget(&mut self, depth: &mut Depth, from: u64, to: u64) {
        for number in from.max(self.entered.saturating_sub(PAGES as u64))..to.min(self.entered) {
            let page = &mut self.pages[(number % PAGES as u64) as usize];
            if page.open {
                page.open = false;
                depth.forgot();
            }
        }
    }

    /// The program has passed the operations that entered pages `from..to`.
    pub fn passed(&mut self, depth: &mut Depth, from: u64, to: u64) {
        let oldest = self.entered.saturating_sub(PAGES as u64);
        for number in from.max(oldest)..to.min(self.entered) {
            self.judge(depth, (number % PAGES as u64) as usize, true);
        }
    }

    /// `speculation` begins. Those of so many threads take turns.
    pub fn age(&mut self, depth: &mut Depth, speculation: u32, threads: u32) {
        self.aged = self.aged.max(self.entered.saturating_sub(PAGES as u64));
        while self.aged < self.entered {
            let at = (self.aged % PAGES as u64) as usize;
            if speculation.wrapping_sub(self.pages[at].speculation) < SPECULATIONS.saturating_mul(threads) {
                break;
            }
            self.judge(depth, at, false);
            self.aged += 1;
        }
    }

    fn judge(&mut self, depth: &mut Depth, at: usize, useful: bool) {
        let page = &mut self.pages[at];
        if !page.open {
            return;
        }
        page.open = false;
        depth.judged(useful);
        if !useful {
            self.wasted += 1;
        }
    }

    /// How many pages are not judged: the report counts them as unused at the end.
    pub fn open(&self) -> u64 {
        self.pages.iter().filter(|page| page.open).count() as u64
    }
}
