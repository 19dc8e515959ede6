//! When the mirror maps a mostly cached block of a file, and no longer copies it page by page.
//!
//! A copy of a cached page costs a signal and four system calls, some 6 us, for each page that speculation touches: a program of
//! whose mapped file 90% are cached takes as long with its stalls. A *view*, a block that the mirror maps from the file itself, costs
//! as much as some copies, once; then its cached pages cost next to nothing. What is not cached of it are gaps, each of which costs
//! some more, since a touch of it must be noticed.
//!
//! Nobody knows how often speculation will come back to a block. So it is looked at after some copies from it, at ever greater
//! intervals, and mapped where that costs no more than [`HOPE`] times what its copies have cost so far: a guess that what
//! was touched so often will be touched as often again, and some more.

/// Bytes of a block: what one page of page tables maps.
pub const BLOCK: usize = 2 << 20;

/// What a copy of a cached page costs; a look at a block of 512 pages and its mapping; and a gap's guard, ns. (Linux 6.18, virtual
/// machine: `mincore` 28 to 33 us, `mmap` 4 us, all guards of 24,000 gaps at most 15 ms by a profile. A view is reckoned a little cheaper
/// than it is, so that a block of which 90% are cached is mapped after two copies, and not after eight.)
const COPY_NS: u64 = 6_000;
const VIEW_NS: u64 = 25_000;
const GAP_NS: u64 = 400;

/// Copies that are expected for each one that there was.
const HOPE: u64 = 4;

/// Of the pages of a block so many quarters must be cached. (With a fifth of the pages cached, as after a gather has begun, looks were
/// all that came of it.)
const CACHED_QUARTERS: usize = 3;

/// Copies from a block before the first look, and how much more often each time.
const FIRST: u32 = 2;
const TIMES: u32 = 4;

/// Pages that were blank and lie in views, at most: each makes two mappings of the 65,530 that the kernel lets a process have
/// (`vm.max_map_count`).
pub const BLANKS_MOST: usize = 16_384;

/// One block's copies, and after how many it is looked at next.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Copies {
    count: u32,
    /// 0 for the first.
    next: u32,
}

impl Copies {
    pub const NONE: Copies = Copies { count: 0, next: 0 };

    /// A cached page of the block was copied. True if the block is to be looked at.
    pub fn copied(&mut self) -> bool {
        self.count = self.count.saturating_add(1);
        let looks = self.count >= self.next.max(FIRST);
        if looks {
            self.next = self.count.saturating_mul(TIMES);
        }
        looks
    }

    /// Whether a block of so many pages, so many of them cached, with so many gaps between, is to be mapped.
    pub fn is_worth(&self, pages: usize, cached: usize, gaps: usize) -> bool {
        let cost = VIEW_NS + gaps as u64 * GAP_NS;
        is_mostly_cached(pages, cached) && cost <= u64::from(self.count) * COPY_NS * HOPE
    }
}

/// Whether so many cached pages are enough of a block of so many.
pub fn is_mostly_cached(pages: usize, cached: usize) -> bool {
    pages > 0 && cached * 4 >= pages * CACHED_QUARTERS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies until a block of 512 pages is mapped, if it ever is.
    fn copies_until_mapped(cached: usize, gaps: usize) -> Option<u32> {
        let mut copies = Copies::default();
        (1..=512).find(|_| copies.copied() && copies.is_worth(512, cached, gaps))
    }

    #[test]
    fn a_block_with_few_gaps_is_mapped_soon_and_one_with_many_later() {
        assert_eq!(copies_until_mapped(512, 0), Some(2));
        assert_eq!(copies_until_mapped(460, 46), Some(2), "90% cached");
        assert_eq!(copies_until_mapped(390, 100), Some(8), "three quarters, no two gaps together");
        assert_eq!(copies_until_mapped(100, 1), None, "a fifth");
        assert_eq!(copies_until_mapped(0, 0), None);
    }

    #[test]
    fn what_a_view_costs_is_bounded_by_what_copies_have_cost() {
        for gaps in 0..=128 {
            let copies = copies_until_mapped(512 - gaps, gaps).unwrap();
            assert!(VIEW_NS + gaps as u64 * GAP_NS <= HOPE * u64::from(copies) * COPY_NS);
        }
    }

    #[test]
    fn looks_get_rarer() {
        let mut copies = Copies::default();
        let looks: Vec<u32> = (1..=512).filter(|_| copies.copied()).collect();
        assert_eq!(looks, [2, 8, 32, 128, 512]);
    }

    #[test]
    fn a_block_of_no_pages_is_not_mapped() {
        assert!(!is_mostly_cached(0, 0));
    }
}
