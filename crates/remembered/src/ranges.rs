//! Sets of a file's pages.

use std::ops::Range;

/// Pages of a file: ranges in ascending order with a gap between any two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u32>>);

impl Ranges {
    /// The first so many pages.
    pub fn first(pages: u32) -> Ranges {
        let mut first = Ranges::default();
        first.push(0..pages);
        first
    }

    /// Adds a range behind all others, or at the end of the last.
    ///
    /// False, and nothing is added, if it does not lie there.
    pub fn push(&mut self, range: Range<u32>) -> bool {
        if range.is_empty() {
            return range.start == range.end;
        }
        match self.0.last_mut() {
            Some(last) if range.start < last.end => return false,
            Some(last) if range.start == last.end => last.end = range.end,
            _ => self.0.push(range),
        }
        true
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Range<u32>> + '_ {
        self.0.iter().cloned()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn pages(&self) -> u64 {
        self.0.iter().map(|range| range.len() as u64).sum()
    }

    /// These pages and `others`.
    pub fn with(&self, others: &Ranges) -> Ranges {
        let mut all: Vec<Range<u32>> = self.iter().chain(others.iter()).collect();
        all.sort_by_key(|range| range.start);
        let mut joined = Ranges::default();
        for range in all {
            let end = joined.0.last().map_or(0, |last| last.end);
            joined.push(range.start.max(end)..range.end.max(end));
        }
        joined
    }

    /// The pages that are not among `others`.
    pub fn without(&self, others: &Ranges) -> Ranges {
        let mut left = Ranges::default();
        let mut rest = others.0.iter().peekable();
        for range in &self.0 {
            let mut start = range.start;
            while rest.peek().is_some_and(|other| other.end <= start) {
                rest.next();
            }
            let mut ahead = rest.clone();
            while let Some(other) = ahead.next_if(|other| other.start < range.end) {
                left.push(start..other.start.max(start));
                start = start.max(other.end);
            }
            left.push(start..range.end.max(start));
        }
        left
    }

    /// The same in parts of so many pages, above zero; one part of none if there is none.
    pub fn parts(&self, pages: u32) -> Vec<Ranges> {
        let mut parts = vec![Ranges::default()];
        let mut room = pages;
        for range in &self.0 {
            let mut start = range.start;
            while start < range.end {
                if room == 0 {
                    parts.push(Ranges::default());
                    room = pages;
                }
                let end = range.end.min(start.saturating_add(room));
                if let Some(part) = parts.last_mut() {
                    part.push(start..end);
                }
                room -= end - start;
                start = end;
            }
        }
        parts
    }

    /// Its first so many pages, in so many ranges at most.
    pub fn cut(&self, most_pages: u64, most_ranges: usize) -> Ranges {
        let (mut cut, mut room) = (Ranges::default(), most_pages);
        for range in self.0.iter().take(most_ranges) {
            let length = (range.len() as u64).min(room) as u32;
            cut.push(range.start..range.start + length);
            room -= u64::from(length);
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn of(pages: &BTreeSet<u32>) -> Ranges {
        let mut ranges = Ranges::default();
        for &page in pages {
            assert!(ranges.push(page..page + 1));
        }
        ranges
    }

    fn pages(ranges: &Ranges) -> BTreeSet<u32> {
        ranges.iter().flatten().collect()
    }

    #[test]
    fn parts_are_all_of_it_in_order() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.parts(4), [Ranges::default()]);
        assert!(ranges.push(1..4) && ranges.push(6..16) && ranges.push(u32::MAX - 2..u32::MAX));
        let parts = ranges.parts(4);
        let lengths: Vec<u64> = parts.iter().map(Ranges::pages).collect();
        assert_eq!(lengths, [4, 4, 4, 3]);
        assert_eq!(parts.iter().fold(Ranges::default(), |all, part| all.with(part)), ranges);
        assert_eq!(parts[0].iter().collect::<Vec<_>>(), [1..4, 6..7]);
    }

    proptest! {
        #[test]
        fn sets_of_pages(a in prop::collection::btree_set(0u32..60, 0..40),
                         b in prop::collection::btree_set(0u32..60, 0..40), most in 0u64..50) {
            let (first, second) = (of(&a), of(&b));
            prop_assert_eq!(pages(&first), a.clone());
            prop_assert_eq!(first.pages(), a.len() as u64);
            let left: BTreeSet<u32> = a.difference(&b).copied().collect();
            prop_assert_eq!(pages(&first.without(&second)), left.clone());
            prop_assert_eq!(first.without(&second), of(&left));
            prop_assert_eq!(first.with(&second), of(&a.union(&b).copied().collect()));
            let cut: BTreeSet<u32> = a.iter().copied().take(most as usize).collect();
            prop_assert_eq!(pages(&first.cut(most, usize::MAX)), cut);
        }
    }

    #[test]
    fn what_lies_before_the_end_is_not_added() {
        let mut ranges = Ranges::first(4);
        assert!(!ranges.push(3..5) && !ranges.push(0..1) && ranges.push(4..4));
        assert!(ranges.push(4..6) && ranges.push(8..9));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [0..6, 8..9]);
    }
}
