//! Which of the reads of a file a program would wait in if nobody ran ahead of it.
//!
//! A file that is read in order is waited for once in two of the kernel's read-ahead windows, however small
//! the reads are. (What is read ahead while the program goes on may have come by then: so this counts too much
//! rather than too little where the program computes.) Elsewhere each read that leaves the pages of the one
//! before waits.

/// What comes with one wait: the kernel has two windows of its read-ahead under way, bytes
/// (VM_READAHEAD_PAGES; Documentation/ABI/stable/sysfs-block, `read_ahead_kb`). 400 MB in order take 1.75 s
/// on a disk of 1 ms: 0.55 ms for each 128 KB.
const READ_AHEAD: i64 = 2 * (128 << 10);
const PAGE: i64 = 4096;

/// What has come with the latest wait: from the first to the second, bytes of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitsAlone {
    from: i64,
    to: i64,
}

impl WaitsAlone {
    pub const fn new() -> WaitsAlone {
        WaitsAlone { from: 0, to: 0 }
    }

    /// Whether a read of `bytes` bytes at `place`, of which not all was cached, would have been waited in.
    /// Async-signal-safe.
    pub fn waits(&mut self, place: i64, bytes: i64) -> bool {
        let end = place.saturating_add(bytes);
        if self.from <= place && end <= self.to {
            return false;
        }
        let is_in_order = place == 0 || self.from < self.to && (self.from..=self.to).contains(&place);
        self.from = place - place % PAGE;
        let pages = end.saturating_add(PAGE - 1);
        self.to = pages - pages % PAGE;
        if is_in_order {
            self.to = self.to.max(self.from.saturating_add(READ_AHEAD));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_reads_in_order_wait_once_a_window() {
        for size in [100, 1024, 4096, 65_536] {
            let mut file = WaitsAlone::new();
            let waits = (0..(1 << 20) / size).filter(|read| file.waits(read * size, size)).count();
            assert!((4..=5).contains(&waits), "{size}: {waits}");
        }
        // Larger ones wait each.
        let mut file = WaitsAlone::new();
        assert_eq!((0..8).filter(|read| file.waits(read << 19, 1 << 19)).count(), 8);
    }

    #[test]
    fn scattered_reads_wait_each_but_within_a_page() {
        let mut file = WaitsAlone::new();
        assert!(file.waits(40_960, 100));
        assert!(!file.waits(41_100, 100));
        assert!(file.waits(81_920, 4096));
        assert!(file.waits(40_960, 100));
        assert!(file.waits(1 << 40, 4096));
        // Over the end of the page.
        assert!(file.waits((1 << 40) + 4000, 200));
        assert!(!WaitsAlone { from: 0, to: i64::MAX }.waits(0, i64::MAX));
    }
}
