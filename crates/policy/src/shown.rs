//! Which pages of the mirror a touch does not raise a signal for, where the kernel keeps no count of them (no
//! userfaultfd).
//!
//! Memory is *entered* block by block, as it is touched, and the pages of a block are *shown* or hidden. A
//! block is the part of one mapping that lies in one [`BLOCK`] of addresses; a mapping never changes its
//! bounds. What is not entered is hidden altogether, and costs nothing.
//!
//! Called by the speculator, which makes the kernel's page tables so. All zeros when it begins.

use crate::views::BLOCK;

const PAGE: usize = crate::PAGE as usize;
const PAGES: usize = BLOCK / PAGE;
const WORD: usize = u64::BITS as usize;

/// Each block may make two mappings more of the 65,530 that a process may have by default
/// (`vm.max_map_count`), as does each run of shown pages where these are mappings of their own. Half of them
/// are left for the program's own.
pub const MAX_BLOCKS: usize = 16_384;
pub const MAX_RUNS: usize = 16_384;

/// From so many on, in quarters of the bounds, all that can be copied anew is to be hidden at the next sync.
const CROWDED_QUARTERS: usize = 3;

/// A part of a mapping, whole pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    pub start: usize,
    pub end: usize,
}

impl Part {
    /// The part of a mapping that lies in one block with `address`.
    pub fn of(mapping: Part, address: usize) -> Part {
        let block = address & !(BLOCK - 1);
        Part { start: mapping.start.max(block), end: mapping.end.min(block + BLOCK) }
    }

    fn within(self, other: Part) -> Part {
        Part { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// What reaches from the one to the other.
    pub fn with(self, other: Part) -> Part {
        Part { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    pub fn length(self) -> usize {
        self.end.saturating_sub(self.start)
    }
}

/// One bit for each page of a block of addresses.
type Bits = [u64; PAGES / WORD];

#[derive(Clone, Copy)]
struct Block {
    part: Part,
    pages: Bits,
    is_entered: bool,
}

impl Block {
    const NOTHING: Block =
        Block { part: Part { start: 0, end: 0 }, pages: [0; PAGES / WORD], is_entered: false };

    fn has(&self, page: usize) -> bool {
        let at = page / PAGE % PAGES;
        self.pages.get(at / WORD).is_some_and(|word| word >> (at % WORD) & 1 != 0)
    }

    fn set(&mut self, pages: Part, shown: bool) {
        for page in (pages.start..pages.end).step_by(PAGE) {
            let at = page / PAGE % PAGES;
            if let Some(word) = self.pages.get_mut(at / WORD) {
                *word = *word & !(1 << (at % WORD)) | u64::from(shown) << (at % WORD);
            }
        }
    }

    /// Runs of shown pages.
    fn runs(&self) -> usize {
        let mut carried = 0;
        let begins = self.pages.iter().map(|&word| {
            let first = word & !(word << 1 | carried);
            carried = word >> (WORD - 1);
            first.count_ones() as usize
        });
        begins.sum()
    }

    fn is_empty(&self) -> bool {
        self.pages.iter().all(|&word| word == 0)
    }
}

/// A block that has been entered, for as long as none is taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entered(usize);

pub struct Shown {
    blocks: [Block; MAX_BLOCKS],
    count: usize,
    /// By the start of a block, open addressing: its number + 1, 0 for none.
    index: [u16; MAX_BLOCKS * 2],
    runs: usize,
    /// The kernel has refused one more mapping.
    was_refused: bool,
}

impl Shown {
    pub const NOTHING: Shown = Shown {
        blocks: [Block::NOTHING; MAX_BLOCKS],
        count: 0,
        index: [0; MAX_BLOCKS * 2],
        runs: 0,
        was_refused: false,
    };

    /// Where in the index a block is, or would be.
    fn place(&self, start: usize) -> usize {
        let length = self.index.len();
        let mut at = ((start / PAGE) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 40;
        loop {
            at %= length;
            let number = self.index.get(at).copied().unwrap_or(0);
            match usize::from(number).checked_sub(1).and_then(|number| self.blocks.get(number)) {
                Some(block) if block.part.start != start => at += 1,
                _ => return at,
            }
        }
    }

    fn number(&self, start: usize) -> Option<usize> {
        let number = *self.index.get(self.place(start))?;
        usize::from(number).checked_sub(1)
    }

    pub fn find(&self, part: Part) -> Option<Entered> {
        let at = self.number(part.start)?;
        self.blocks.get(at).filter(|block| block.is_entered).map(|_| Entered(at))
    }

    /// Takes a block in, with all pages hidden. None: there are too many.
    pub fn enter(&mut self, part: Part) -> Option<Entered> {
        let entered = Block { part, is_entered: true, ..Block::NOTHING };
        if let Some(at) = self.number(part.start) {
            *self.blocks.get_mut(at)? = entered;
            return Some(Entered(at));
        }
        let place = self.place(part.start);
        *self.blocks.get_mut(self.count)? = entered;
        *self.index.get_mut(place)? = self.count as u16 + 1;
        self.count += 1;
        Some(Entered(self.count - 1))
    }

    /// The block is as if it had never been entered, but for its place here.
    pub fn leave(&mut self, entered: Entered) {
        if let Some(&Block { part, .. }) = self.blocks.get(entered.0) {
            self.set(entered, part, false);
        }
        if let Some(block) = self.blocks.get_mut(entered.0) {
            block.is_entered = false;
        }
    }

    pub fn is_shown(&self, mapping: Part, page: usize) -> bool {
        let found = self.find(Part::of(mapping, page));
        found.and_then(|Entered(at)| self.blocks.get(at)).is_some_and(|block| block.has(page))
    }

    /// The first run of hidden pages of a block within these bounds.
    pub fn hidden_run(&self, Entered(at): Entered, bounds: Part) -> Option<Part> {
        let block = self.blocks.get(at)?;
        let bounds = bounds.within(block.part);
        let mut pages = (bounds.start..bounds.end).step_by(PAGE);
        let start = pages.find(|&page| !block.has(page))?;
        let end = pages.find(|&page| block.has(page)).unwrap_or(bounds.end);
        Some(Part { start, end })
    }

    /// What of a block lies within these bounds.
    pub fn part(&self, Entered(at): Entered, bounds: Part) -> Part {
        self.blocks.get(at).map_or(Part { end: bounds.start, ..bounds }, |block| bounds.within(block.part))
    }

    /// The first run of shown pages of a block within these bounds.
    pub fn shown_run(&self, Entered(at): Entered, bounds: Part) -> Option<Part> {
        let block = self.blocks.get(at)?;
        let bounds = bounds.within(block.part);
        let mut pages = (bounds.start..bounds.end).step_by(PAGE);
        let start = pages.find(|&page| block.has(page))?;
        let end = pages.find(|&page| !block.has(page)).unwrap_or(bounds.end);
        Some(Part { start, end })
    }

    /// The shortest part of a block within these bounds that holds all shown pages there.
    pub fn shown_span(&self, Entered(at): Entered, bounds: Part) -> Option<Part> {
        let block = self.blocks.get(at)?;
        let bounds = bounds.within(block.part);
        let shown = |page: &usize| block.has(*page);
        let start = (bounds.start..bounds.end).step_by(PAGE).find(shown)?;
        let last = (bounds.start..bounds.end).step_by(PAGE).rev().find(shown)?;
        Some(Part { start, end: last + PAGE })
    }

    /// Pages of a block are shown now, or hidden.
    pub fn set(&mut self, Entered(at): Entered, pages: Part, shown: bool) {
        let Some(block) = self.blocks.get_mut(at) else { return };
        self.runs -= block.runs().min(self.runs);
        block.set(pages.within(block.part), shown);
        self.runs += block.runs();
    }

    /// The blocks that have been entered and reach into these bounds, one call after the other: the first
    /// from `from` on, with where to go on. `mapping` is what holds the bounds.
    pub fn next_within(&self, mapping: Part, bounds: Part, from: usize) -> Option<(Entered, usize)> {
        let blocks = bounds.length() / BLOCK + 2;
        if blocks <= self.count {
            // `from`: how far into the bounds.
            let mut address = bounds.start + from;
            while address < bounds.end {
                let part = Part::of(mapping, address);
                address = part.end;
                if let Some(found) = self.find(part) {
                    return Some((found, address - bounds.start));
                }
            }
            return None;
        }
        let entered = self.blocks.get(from..self.count)?;
        let reaches = |block: &Block| block.is_entered && block.part.within(bounds).length() > 0;
        let at = from + entered.iter().position(reaches)?;
        Some((Entered(at), at + 1))
    }

    /// Whether there may be another run of shown pages, where these are mappings.
    pub fn has_room(&self) -> bool {
        self.runs < MAX_RUNS
    }

    /// The kernel has refused a mapping more.
    pub fn refused(&mut self) {
        self.was_refused = true;
    }

    /// Whether all that can be hidden is to be hidden, and what is empty taken out. `runs_count`: they are
    /// mappings.
    pub fn is_crowded(&self, runs_count: bool) -> bool {
        let is_near = |count: usize, most: usize| count * 4 >= most * CROWDED_QUARTERS;
        self.was_refused || is_near(self.count, MAX_BLOCKS) || runs_count && is_near(self.runs, MAX_RUNS)
    }

    /// Takes out the blocks of which nothing is shown, but for those that are to stay; `leaves` is told of
    /// each that was entered.
    pub fn take_out_empty(&mut self, stays: impl Fn(Part) -> bool, mut leaves: impl FnMut(Part)) {
        let mut kept = 0;
        for at in 0..self.count {
            let Some(&block) = self.blocks.get(at) else { break };
            if !block.is_entered {
                continue;
            }
            if block.is_empty() && !stays(block.part) {
                leaves(block.part);
            } else if let Some(place) = self.blocks.get_mut(kept) {
                *place = block;
                kept += 1;
            }
        }
        self.count = kept;
        self.was_refused = false;
        self.index.fill(0);
        for number in 0..kept {
            let start = self.blocks.get(number).map_or(0, |block| block.part.start);
            let place = self.place(start);
            if let Some(word) = self.index.get_mut(place) {
                *word = number as u16 + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MAPPINGS: [Part; 3] = [
        Part { start: 0x10_0000, end: 0x13_0000 },
        Part { start: 0x13_0000, end: 0x61_3000 },
        Part { start: 0x7f00_0000_0000, end: 0x7f00_0100_0000 },
    ];

    fn pages(mapping: usize, first: usize, count: usize) -> Part {
        let mapping = MAPPINGS[mapping];
        let start = mapping.start + first * PAGE % mapping.length();
        Part { start, end: (start + count * PAGE).min(mapping.end) }
    }

    fn shown() -> Box<Shown> {
        // In place: it is too large for a test's stack.
        let mut made = Box::<Shown>::new_uninit();
        // SAFETY: the box's own bytes; all zeros are `Shown::NOTHING`.
        unsafe {
            made.as_mut_ptr().write_bytes(0, 1);
            made.assume_init()
        }
    }

    /// As the speculator does it: block by block.
    fn set(shown: &mut Shown, mapping: Part, pages: Part, to: bool) -> bool {
        let mut at = pages.start;
        while at < pages.end {
            let part = Part::of(mapping, at);
            let found = shown.find(part).or_else(|| shown.enter(part));
            let Some(entered) = found else { return false };
            shown.set(entered, pages, to);
            at = part.end;
        }
        true
    }

    #[test]
    fn what_is_not_entered_is_hidden() {
        let shown = shown();
        assert!(!shown.is_shown(MAPPINGS[0], MAPPINGS[0].start));
        assert_eq!(shown.find(MAPPINGS[0]), None);
        assert!(!shown.is_crowded(true) && shown.has_room());
    }

    #[test]
    fn mappings_of_one_block_are_blocks_of_their_own() {
        let mut shown = shown();
        assert!(set(&mut shown, MAPPINGS[0], pages(0, 0, 3), true));
        assert!(shown.is_shown(MAPPINGS[0], 0x10_2000));
        assert!(!shown.is_shown(MAPPINGS[1], 0x13_0000));
        assert_eq!(shown.count, 1);
        assert!(set(&mut shown, MAPPINGS[1], pages(1, 0, 1), true));
        assert_eq!(shown.count, 2);
    }

    #[test]
    fn runs_that_cross_a_word_are_one() {
        let mut shown = shown();
        let mapping = MAPPINGS[2];
        assert!(set(&mut shown, mapping, pages(2, 60, 10), true));
        assert_eq!(shown.runs, 1);
        assert!(set(&mut shown, mapping, pages(2, 64, 1), false));
        assert_eq!(shown.runs, 2);
        assert!(set(&mut shown, mapping, pages(2, 80, 1), true));
        assert_eq!(shown.runs, 3);
    }

    #[test]
    fn too_many_blocks_are_refused_and_empty_ones_make_room() {
        let mut shown = shown();
        let part = |at: usize| Part { start: at * BLOCK, end: (at + 1) * BLOCK };
        for at in 0..MAX_BLOCKS {
            assert_eq!(shown.is_crowded(true), at >= MAX_BLOCKS / 4 * 3, "{at}");
            let entered = shown.enter(part(at)).unwrap();
            if at % 2 == 0 {
                shown.set(entered, Part { start: at * BLOCK, end: at * BLOCK + PAGE }, true);
            }
        }
        assert_eq!(shown.enter(part(MAX_BLOCKS)), None);
        let mut left = 0;
        shown.take_out_empty(|part| part.start == BLOCK, |_| left += 1);
        assert_eq!((left, shown.count), (MAX_BLOCKS / 2 - 1, MAX_BLOCKS / 2 + 1));
        assert!(shown.find(part(1)).is_some() && shown.find(part(3)).is_none());
        assert!(shown.is_shown(part(4), 4 * BLOCK) && !shown.is_crowded(true));
    }

    #[test]
    fn a_block_that_was_left_is_hidden_until_it_is_entered_anew() {
        let mut shown = shown();
        let part = Part::of(MAPPINGS[1], 0x20_0000);
        let entered = shown.enter(part).unwrap();
        shown.set(entered, part, true);
        shown.leave(entered);
        assert!(!shown.is_shown(MAPPINGS[1], 0x20_0000) && shown.runs == 0);
        assert_eq!((shown.find(part), shown.next_within(MAPPINGS[1], MAPPINGS[1], 0)), (None, None));
        assert_eq!(shown.enter(part), Some(entered));
        assert!(!shown.is_shown(MAPPINGS[1], 0x20_0000) && shown.count == 1);
    }

    #[test]
    fn a_refusal_of_the_kernels_counts_until_room_was_made() {
        let mut shown = shown();
        shown.refused();
        assert!(shown.is_crowded(false));
        shown.take_out_empty(|_| false, |_| {});
        assert!(!shown.is_crowded(false));
    }

    #[test]
    fn runs_count_where_they_are_mappings() {
        let mut shown = shown();
        let part = |at: usize| Part { start: at * BLOCK, end: (at + 1) * BLOCK };
        let mut runs = 0;
        for at in 0..MAX_RUNS * 2 / PAGES {
            let entered = shown.enter(part(at)).unwrap();
            for page in (part(at).start..part(at).end).step_by(2 * PAGE) {
                assert_eq!((shown.has_room(), shown.is_crowded(false)), (true, false));
                assert_eq!(shown.is_crowded(true), runs >= MAX_RUNS / 4 * 3);
                shown.set(entered, Part { start: page, end: page + PAGE }, true);
                runs += 1;
            }
        }
        assert!(runs == MAX_RUNS && !shown.has_room());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        #[test]
        fn it_is_a_set_of_pages(
            steps in proptest::collection::vec((0..3usize, 0..4096usize, 1..700usize, any::<bool>()), 1..30),
            asked in (0..3usize, 0..4096usize, 1..3000usize),
        ) {
            let (mut shown, mut model) = (shown(), BTreeSet::new());
            for (mapping, first, count, to) in steps {
                let pages = pages(mapping, first, count);
                prop_assert!(set(&mut shown, MAPPINGS[mapping], pages, to));
                for page in (pages.start..pages.end).step_by(PAGE) {
                    if to { model.insert(page); } else { model.remove(&page); }
                }
            }
            for mapping in MAPPINGS {
                for page in (mapping.start..mapping.end).step_by(PAGE) {
                    prop_assert_eq!(shown.is_shown(mapping, page), model.contains(&page));
                }
            }
            let (mapping, bounds) = (MAPPINGS[asked.0], pages(asked.0, asked.1, asked.2));
            let (mut found, mut from) = (BTreeSet::new(), 0);
            while let Some((entered, next)) = shown.next_within(mapping, bounds, from) {
                from = next;
                let mut rest = bounds;
                while let Some(run) = shown.shown_run(entered, rest) {
                    prop_assert!(run.length() > 0);
                    found.extend((run.start..run.end).step_by(PAGE));
                    rest.start = run.end;
                }
                let span = shown.shown_span(entered, bounds);
                prop_assert_eq!(span.map(|span| span.start), shown.shown_run(entered, bounds).map(|r| r.start));
                if let Some(hidden) = shown.hidden_run(entered, bounds) {
                    prop_assert!((hidden.start..hidden.end).step_by(PAGE).all(|page| !model.contains(&page)));
                }
            }
            let wanted: BTreeSet<usize> = model.range(bounds.start..bounds.end).copied().collect();
            prop_assert_eq!(found, wanted);
        }
    }
}
