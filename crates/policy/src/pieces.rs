//! Files that are read a few bytes at a time (a shell's `read`), while speculation is on track.
//!
//! On track every read is looked at, which takes three times as long as a read of one byte. A stall that is
//! avoided is worth its own length; thousands of such looks for each are worth less. So the track is left
//! once the looks since the last stall have taken what a stall and a start anew would: what is lost is
//! bounded by what could have been gained (ski rental).

/// Reads of more bytes than that take so long themselves that a look does not count.
const MOST_BYTES: u64 = 64;

/// What a look takes beside such a read, ns. Too little: the track is left late.
const LOOK_NS: u64 = 1_800;

/// What a start anew takes beside the stall, ns.
const RESTART_NS: u64 = 200_000;

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pieces {
    looks: u32,
}

impl Pieces {
    /// A read of so many bytes was looked at.
    pub fn read(&mut self, bytes: u64) {
        self.looks = if bytes <= MOST_BYTES { self.looks.saturating_add(1) } else { 0 };
    }

    /// It had to wait, or would have had without its prefetch.
    pub fn stall(&mut self) {
        self.looks = 0;
    }

    /// Whether looking costs more than stalls of `expected` ns that speculation may avoid.
    pub fn cost_more(&self, expected: u64) -> bool {
        u64::from(self.looks) * LOOK_NS > expected.saturating_add(RESTART_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(pieces: &mut Pieces, bytes: u64, count: usize) {
        (0..count).for_each(|_| pieces.read(bytes));
    }

    #[test]
    fn bytes_one_by_one_cost_more_than_a_short_stall() {
        let mut pieces = Pieces::default();
        reads(&mut pieces, 1, 100);
        assert!(!pieces.cost_more(60_000));
        reads(&mut pieces, 1, 100);
        assert!(pieces.cost_more(60_000));
        assert!(!pieces.cost_more(1_000_000));
        pieces.stall();
        assert!(!pieces.cost_more(60_000));
    }

    #[test]
    fn whole_blocks_never_do() {
        let mut pieces = Pieces::default();
        reads(&mut pieces, 4096, 1_000_000);
        reads(&mut pieces, 1, 100);
        assert!(!pieces.cost_more(0));
    }
}
