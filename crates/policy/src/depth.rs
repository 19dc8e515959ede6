//! How many operations a speculator may be ahead of its program.
//!
//! Too few leave the device idle between the program's reads; too many evict what they fetched and, when
//! wrong, have wasted more. On a device that answers 64 requests in the time of one, 64 ahead is the least
//! that fills it; the prototypes still gained from 64 to 256 (grep: 1.31 to 1.11 s), since not every
//! operation is a miss.
//!
//! What slows speculation down is *waste*, not short runs: a program that looks things up by index
//! mismatches at every second read, and gains threefold all the same, since what the first run fetched
//! blind the second finds there. (Halving the depth at each mismatch made sqlite three times slower than
//! leaving it alone.) So each page that was asked for is judged when it is known: useful if the program
//! passed it or a later speculation found and used it, else wasted when it has grown old. At a fixed depth
//! of 64 a program that wastes all it fetches ran at an eighth of its speed on a fast disk.
//!
//! A spinning disk serves its arms' number at once, so that the program's next read stands in line behind all that was asked for in
//! vain. There doubt goes further ([`is_slow`]): a chain of 300 reads, 3.9 s alone on one such disk, took 20.8 with the depths that
//! do no harm elsewhere. Whether to speculate at all is [`crate::worth`]'s.

/// Depth of a speculator whose first pages were of use: fills a cloud disk once. Before that it is
/// [`Doubt`]'s: a dozen useful pages are proof enough (on slow disks twenty), and what is wrong from the start wastes a quarter.
pub const START: u32 = 64;
/// The papers' and prototypes' figures end at 256; each lane of the log holds 1024.
pub const MOST: u32 = 512;
/// Where requests are capped the program's next wrong step waits for all that is in line: so many operations in vain may
/// be expected to stand there.
const VAIN_IN_LINE: u32 = 8;

/// When there is doubt, and what is allowed then.
#[derive(Clone, Copy)]
struct Doubt {
    /// The share of useful pages below which there is.
    trust: u32,
    /// Depths while less than that, and less than a sixteenth, were useful.
    doubtful: u32,
    useless: u32,
    /// Pages that may be open, neither useful nor wasted yet. Verdicts come late, and a wrong path that finds its own pages again
    /// each time brings none at all.
    open: u32,
}

/// 128 pages are several cloud disks full.
const USUAL: Doubt = Doubt { trust: ONE / 4, doubtful: 16, useless: 4, open: 128 };
/// Some twenty useful pages end the doubt, five rounds of four arms. Of what the papers' programs ask for on such disks 58% and more are
/// of use; of a program whose every second read depends on the one before, which gains nothing on one arm, a quarter.
const SLOW: Doubt = Doubt { trust: ONE / 8 * 3, doubtful: 8, useless: 2, open: 32 };

/// What a stall takes, ns, on a disk that has arms to move.
const ARMS: u64 = 4_000_000;

/// The share of useful pages is kept in 1/4096; each verdict moves it by 1/64 of the distance, so that some
/// hundred wrong pages in a row turn confidence into doubt, and as many right ones back.
const ONE: u32 = 4096;
const WEIGHT: u32 = 64;

/// Whether stalls that take `stall` ns at present are those of a disk that serves few requests at once. (Means over a program's life
/// are no measure: one answer of 400 ms would make a disk of 1 ms slow for 130 stalls.)
pub fn is_slow(stall: u64) -> bool {
    stall >= ARMS
}

/// How a disk takes what is asked for ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disk {
    /// What is in vain costs nothing.
    Usual,
    /// It has arms to move: [`is_slow`].
    Slow,
    /// Its requests are capped: what is in vain was seen to stand in line ([`crate::toll`]).
    Crowded,
}

impl Disk {
    /// `stall`: what a stall takes at present, ns.
    pub fn of(stall: u64, is_crowded: bool) -> Disk {
        if is_crowded {
            Disk::Crowded
        } else if is_slow(stall) {
            Disk::Slow
        } else {
            Disk::Usual
        }
    }

    fn doubt(self) -> Doubt {
        if self == Disk::Usual { USUAL } else { SLOW }
    }

    /// `vain`: the share of pages that were of no use, of [`ONE`].
    fn most(self, vain: u32) -> u32 {
        if self == Disk::Crowded { (VAIN_IN_LINE * ONE / vain.max(1)).min(MOST) } else { MOST }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Depth {
    depth: u32,
    useful: u32,
    /// The share of wasted pages, which begins with none.
    vain: u32,
    /// Pages asked for and not judged.
    open: u32,
}

impl Default for Depth {
    fn default() -> Self {
        Self::new()
    }
}

impl Depth {
    pub const fn new() -> Self {
        Self { depth: START, useful: ONE / 8, vain: 0, open: 0 }
    }

    /// Operations that may be written and not yet passed.
    pub fn operations(&self, disk: Disk) -> u32 {
        let doubt = disk.doubt();
        if self.useful >= doubt.trust {
            self.depth.min(disk.most(self.vain))
        } else if self.useful >= ONE / 16 && self.open <= doubt.open {
            self.depth.min(doubt.doubtful)
        } else {
            doubt.useless
        }
    }

    /// A page is asked for.
    pub fn asked(&mut self) {
        self.open = self.open.saturating_add(1);
    }

    /// A page that was asked for will not be judged.
    pub fn forgot(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// A page that was asked for has been useful, or has turned out to be waste.
    pub fn judged(&mut self, useful: bool) {
        self.forgot();
        let (of_use, of_none) = if useful { (ONE, 0) } else { (0, ONE) };
        self.useful = moved(self.useful, of_use);
        self.vain = moved(self.vain, of_none);
    }

    /// The speculator was as far ahead as allowed and the program has caught up, or an epoch is over:
    /// if what was asked for is of use, there is room for twice as much.
    pub fn grow(&mut self, disk: Disk) {
        let doubt = disk.doubt();
        if self.useful >= doubt.trust {
            self.depth = (self.depth * 2).min(disk.most(self.vain).max(self.depth));
        }
    }
}

/// A share after one verdict. Rounded towards the target, so that it is reached.
fn moved(share: u32, target: u32) -> u32 {
    let step = target.abs_diff(share).div_ceil(WEIGHT);
    if target > share { share + step } else { share - step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_while_useful() {
        let mut depth = Depth::new();
        for _ in 0..12 {
            depth.judged(true);
        }
        assert_eq!(depth.operations(Disk::Usual), START);
        for _ in 0..3 {
            depth.judged(true);
            depth.grow(Disk::Usual);
        }
        assert_eq!(depth.operations(Disk::Usual), MOST);
    }

    #[test]
    fn no_verdict_is_no_proof() {
        let mut depth = Depth::new();
        (0..USUAL.open).for_each(|_| depth.asked());
        assert_eq!(depth.operations(Disk::Usual), USUAL.doubtful);
        depth.asked();
        assert_eq!(depth.operations(Disk::Usual), USUAL.useless);
        // With the first useful ones there is confidence, however many are open.
        (0..1000).for_each(|_| depth.asked());
        (0..12).for_each(|_| depth.judged(true));
        assert_eq!(depth.operations(Disk::Usual), START);
    }

    #[test]
    fn doubt_goes_further_where_arms_move() {
        let mut depth = Depth::new();
        assert_eq!(depth.operations(Disk::Slow), SLOW.doubtful);
        (0..=SLOW.open).for_each(|_| depth.asked());
        assert_eq!(
            (depth.operations(Disk::Slow), depth.operations(Disk::Usual)),
            (SLOW.useless, USUAL.doubtful)
        );
        (0..24).for_each(|_| depth.judged(true));
        assert_eq!(depth.operations(Disk::Slow), START);
    }

    #[test]
    fn nothing_grows_in_doubt() {
        let mut depth = Depth::new();
        // Between a quarter, the usual trust, and three eighths.
        while depth.useful < ONE / 16 * 5 {
            depth.judged(true);
        }
        (0..20).for_each(|_| depth.grow(Disk::Slow));
        (0..12).for_each(|_| depth.judged(true));
        assert_eq!(depth.operations(Disk::Slow), START);
    }

    #[test]
    fn where_requests_are_capped_only_what_is_hardly_ever_wrong_goes_far() {
        let mut depth = Depth::new();
        for _ in 0..1000 {
            depth.judged(true);
            depth.judged(false);
            depth.grow(Disk::Usual);
        }
        let in_line = depth.operations(Disk::Crowded);
        assert!(in_line.abs_diff(2 * VAIN_IN_LINE) <= 1, "{in_line}");
        assert_eq!(depth.operations(Disk::Usual), MOST);
        (0..400).for_each(|_| depth.judged(true));
        depth.grow(Disk::Crowded);
        assert_eq!(depth.operations(Disk::Crowded), MOST);
    }

    #[test]
    fn half_wasted_is_no_reason_to_stop() {
        let mut depth = Depth::new();
        assert_eq!(depth.operations(Disk::Usual), USUAL.doubtful);
        for _ in 0..1000 {
            depth.judged(true);
            depth.judged(false);
        }
        depth.grow(Disk::Usual);
        assert_eq!(depth.operations(Disk::Usual), 2 * START);
    }

    #[test]
    fn falls_when_all_is_waste_and_recovers() {
        let mut depth = Depth::new();
        for _ in 0..1000 {
            depth.judged(false);
            depth.grow(Disk::Usual);
        }
        assert_eq!(depth.operations(Disk::Usual), USUAL.useless);
        for _ in 0..200 {
            depth.judged(true);
        }
        assert!(depth.operations(Disk::Usual) >= START);
    }
}
