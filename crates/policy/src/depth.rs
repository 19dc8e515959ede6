//! How many operations a speculator may be ahead of its program.
//!
//! Too few leave the device idle between the program's reads; too many evict what they fetched and,
//! once wrong, have wasted more. On a device that answers 64 requests in the time of one, 64 ahead
//! is the least that fills it; the prototypes still gained from 64 to 256 (grep: 1.31 to 1.11 s), since
//! not every operation is a miss. At a fixed depth of 64 a program whose every second read depends on
//! the one before ran at an eighth of its speed on a fast disk: so the depth starts small, grows while
//! what was fetched is used, and falls when it is not.

/// Depth of a speculator that has proven nothing yet.
pub const START: u32 = 16;
/// The papers' and prototypes' figures end at 256; the ring holds 4096.
pub const MOST: u32 = 512;
pub const LEAST: u32 = 8;

#[derive(Clone, Copy, Debug)]
pub struct Depth {
    depth: u32,
}

impl Default for Depth {
    fn default() -> Self {
        Self::new()
    }
}

impl Depth {
    pub const fn new() -> Self {
        Self { depth: START }
    }

    /// Operations that may be written and not yet passed.
    pub fn operations(&self) -> u32 {
        self.depth
    }

    /// The program has come so close that a speculator which had been at its depth may go on: what it
    /// foretold was right for a whole depth. Room for twice as much.
    pub fn used(&mut self) {
        self.depth = (self.depth * 2).min(MOST);
    }

    /// An epoch ended with `passed` of `written` operations used. A long epoch that ends (every
    /// epoch ends once) is no reason to go slower; one in which most was wrong is.
    pub fn ended(&mut self, passed: u32, written: u32) {
        if passed >= self.depth {
            return;
        }
        let unused = written.saturating_sub(passed);
        if unused > passed {
            self.depth = (self.depth / 2).max(LEAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_while_right_and_falls_when_wrong() {
        let mut depth = Depth::default();
        for _ in 0..10 {
            depth.used();
        }
        assert_eq!(depth.operations(), MOST);
        depth.ended(600, 1100);
        assert_eq!(depth.operations(), MOST);
        for _ in 0..10 {
            depth.ended(2, 30);
        }
        assert_eq!(depth.operations(), LEAST);
        depth.ended(1, 2);
        assert_eq!(depth.operations(), LEAST);
    }
}
