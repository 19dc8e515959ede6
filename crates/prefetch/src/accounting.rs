//! Accounting: what became of each page that was asked for.
//!
//! Every prefetched page ends once, as one of
//! - *full*: it had arrived when it was wanted: the stall is gone;
//! - *partial*: it was in flight when it was wanted: a part of the stall is gone;
//! - *evicted*: it had arrived and was gone again when it was wanted: the device worked twice for it;
//! - *unused*: its hint was cancelled, or so many others were asked for since that it was not wanted.
//!
//! The table has a fixed number of places, in groups of four by the page's hash; a new page takes the
//! place of the oldest of its group, which is then judged unused. So a page is under observation until about
//! `N` others have been asked for.
//!
//! The source's accuracy is the share of pages that were wanted, as a moving average, and steers what the
//! source is worth ([`crate::benefit`]).

use crate::benefit::{Share, WHOLE};

/// Places in a group.
const GROUP: usize = 4;

/// Each verdict moves the accuracy by 1/64 of the distance: some hundred wrong pages turn confidence into
/// doubt, and as many right ones back.
const WEIGHT: u32 = 64;

/// How pages ended, and how many have not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub asked: u64,
    pub full: u64,
    pub partial: u64,
    pub evicted: u64,
    pub unused: u64,
}

impl Counts {
    /// Pages that are neither wanted nor given up yet.
    pub fn open(&self) -> u64 {
        self.asked.saturating_sub(self.full + self.partial + self.evicted + self.unused)
    }

    /// Stalls that the program would have had and had not, or had shorter.
    pub fn removed_stalls(&self) -> u64 {
        self.full + self.partial
    }
}

/// The moving share of prefetched pages that were wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accuracy(Share);

impl Default for Accuracy {
    /// A source that has shown nothing yet is trusted half.
    fn default() -> Self {
        Accuracy(WHOLE / 2)
    }
}

impl Accuracy {
    pub fn share(self) -> Share {
        self.0
    }

    pub fn judged(&mut self, wanted: bool) {
        // Rounded towards the target, so that it is reached.
        if wanted {
            self.0 += (WHOLE - self.0).div_ceil(WEIGHT);
        } else {
            self.0 -= self.0.div_ceil(WEIGHT);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Free, or judged.
    Closed,
    InFlight,
    Arrived,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    file: u64,
    number: u64,
    /// When it was entered, as a count of pages.
    entered: u64,
    state: State,
}

/// What a wanted page turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Full,
    Partial,
    Evicted,
    /// Never asked for, or judged before.
    NotOurs,
}

/// Pages of one source under observation: `N` of them, a multiple of 4.
#[derive(Debug)]
pub struct Ledger<const N: usize> {
    pages: [Page; N],
    counts: Counts,
    accuracy: Accuracy,
}

impl<const N: usize> Default for Ledger<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Ledger<N> {
    pub const fn new() -> Self {
        Self {
            pages: [Page { file: 0, number: 0, entered: 0, state: State::Closed }; N],
            counts: Counts { asked: 0, full: 0, partial: 0, evicted: 0, unused: 0 },
            accuracy: Accuracy(WHOLE / 2),
        }
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn accuracy(&self) -> Accuracy {
        self.accuracy
    }

    /// Pages `first..first + pages` were asked for. What is under observation already is not entered again;
    /// returns how many were.
    pub fn asked(&mut self, file: u64, first: u64, pages: u64) -> u64 {
        let mut new = 0;
        for number in range(first, pages) {
            if self.find(file, number).is_some() {
                continue;
            }
            new += 1;
            self.counts.asked += 1;
            let entered = self.counts.asked;
            // Free places first, then the longest there.
            let Some(place) = Self::group(file, number)
                .min_by_key(|&place| (self.pages[place].state != State::Closed, self.pages[place].entered))
            else {
                // A ledger without places.
                self.counts.unused += 1;
                continue;
            };
            self.give_up(place);
            self.pages[place] = Page { file, number, entered, state: State::InFlight };
        }
        new
    }

    /// They are in the page cache.
    pub fn arrived(&mut self, file: u64, first: u64, pages: u64) {
        for number in range(first, pages) {
            if let Some(place) = self.find(file, number) {
                self.pages[place].state = State::Arrived;
            }
        }
    }

    /// The program reads the page; `cached`: it found it in the page cache.
    pub fn wanted(&mut self, file: u64, number: u64, cached: bool) -> Outcome {
        let Some(place) = self.find(file, number) else { return Outcome::NotOurs };
        let state = core::mem::replace(&mut self.pages[place].state, State::Closed);
        self.accuracy.judged(true);
        match state {
            // Completions are noticed late: what the program found there had arrived.
            _ if cached => {
                self.counts.full += 1;
                Outcome::Full
            }
            State::InFlight => {
                self.counts.partial += 1;
                Outcome::Partial
            }
            State::Arrived | State::Closed => {
                self.counts.evicted += 1;
                Outcome::Evicted
            }
        }
    }

    /// Hints for a file (None: all) were cancelled: what has not been wanted will not be.
    pub fn cancelled(&mut self, file: Option<u64>) {
        for place in 0..N {
            if file.is_none_or(|file| self.pages[place].file == file) {
                self.give_up(place);
            }
        }
    }

    fn give_up(&mut self, place: usize) {
        if self.pages[place].state != State::Closed {
            self.pages[place].state = State::Closed;
            self.counts.unused += 1;
            self.accuracy.judged(false);
        }
    }

    fn group(file: u64, number: u64) -> core::ops::Range<usize> {
        let mixed = (file ^ number.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let groups = (N / GROUP) as u64;
        if groups == 0 {
            return 0..0;
        }
        let first = ((mixed >> 32) % groups) as usize * GROUP;
        first..first + GROUP
    }

    fn find(&self, file: u64, number: u64) -> Option<usize> {
        Self::group(file, number).find(|&place| {
            let page = &self.pages[place];
            page.state != State::Closed && page.file == file && page.number == number
        })
    }
}

/// Pages `first..first + pages`, however absurd: cut at four gigabytes' worth.
fn range(first: u64, pages: u64) -> core::ops::Range<u64> {
    first..first.saturating_add(pages.min(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_page_ends_once() {
        let mut ledger = Ledger::<64>::new();
        assert_eq!(ledger.asked(1, 0, 4), 4);
        assert_eq!(ledger.asked(1, 2, 3), 1);
        ledger.arrived(1, 0, 3);
        assert_eq!(ledger.wanted(1, 0, true), Outcome::Full);
        assert_eq!(ledger.wanted(1, 0, true), Outcome::NotOurs);
        assert_eq!(ledger.wanted(1, 1, false), Outcome::Evicted);
        assert_eq!(ledger.wanted(1, 3, false), Outcome::Partial);
        assert_eq!(ledger.wanted(2, 3, false), Outcome::NotOurs);
        ledger.cancelled(Some(2));
        assert_eq!(ledger.counts().open(), 2);
        ledger.cancelled(None);
        assert_eq!(ledger.counts(), Counts { asked: 5, full: 1, partial: 1, evicted: 1, unused: 2 });
        assert_eq!(ledger.counts().removed_stalls(), 2);
    }

    #[test]
    fn what_is_never_wanted_costs_the_source_its_reputation() {
        let mut ledger = Ledger::<64>::new();
        ledger.asked(1, 0, 1000);
        assert!(ledger.accuracy().share() < WHOLE / 100, "{:?}", ledger.accuracy());
        assert!(ledger.counts().unused >= 1000 - 64);
        for page in 5000..5500 {
            ledger.asked(1, page, 1);
            ledger.wanted(1, page, true);
        }
        assert!(ledger.accuracy().share() > WHOLE * 9 / 10, "{:?}", ledger.accuracy());
    }

    #[test]
    fn a_ledger_without_places_counts_all_the_same() {
        let mut ledger = Ledger::<0>::new();
        ledger.asked(1, 0, 3);
        assert_eq!(ledger.counts(), Counts { asked: 3, unused: 3, ..Counts::default() });
    }

    #[derive(Clone, Debug)]
    enum Event {
        Asked(u64, u64),
        Arrived(u64, u64),
        Wanted(u64, bool),
        Cancelled,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0..300u64, 1..40u64).prop_map(|(first, pages)| Event::Asked(first, pages)),
            (0..300u64, 1..40u64).prop_map(|(first, pages)| Event::Arrived(first, pages)),
            (0..300u64, any::<bool>()).prop_map(|(page, cached)| Event::Wanted(page, cached)),
            Just(Event::Cancelled),
        ]
    }

    proptest! {
        /// Whatever happens, the ends and the open ones add up to what was asked for.
        #[test]
        fn the_books_balance(events in proptest::collection::vec(event(), 0..200)) {
            let mut ledger = Ledger::<128>::new();
            for event in events {
                match event {
                    Event::Asked(first, pages) => { ledger.asked(1, first, pages); }
                    Event::Arrived(first, pages) => ledger.arrived(1, first, pages),
                    Event::Wanted(page, cached) => { ledger.wanted(1, page, cached); }
                    Event::Cancelled => ledger.cancelled(Some(1)),
                }
                let observed = ledger.pages.iter().filter(|page| page.state != State::Closed).count();
                prop_assert_eq!(ledger.counts().open(), observed as u64);
                prop_assert!(ledger.accuracy().share() <= WHOLE);
            }
        }
    }
}
