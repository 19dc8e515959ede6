//! How much to ask for at a time where the file system does not tell what is cached.
//!
//! Elsewhere a read that misses starts the kernel's own read-ahead, a window of 128 KB where a file is read
//! in order. To ask for each small read by itself instead is a request of its size each: of 400 MB in
//! pieces of 4 KB 100,000, which a disk of 64,000 requests a second takes longer for than for the windows.

use crate::PAGE;

/// The kernel's read-ahead, bytes (VM_READAHEAD_PAGES; Documentation/ABI/stable/sysfs-block,
/// `read_ahead_kb`).
const WINDOW: u64 = 128 << 10;

/// What was asked for of one file. Zeros are its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Where the next read begins if it goes on in order; and what was asked for last, bytes.
    next: u64,
    from: u64,
    to: u64,
}

impl Windows {
    pub const fn new() -> Windows {
        Windows { next: 0, from: 0, to: 0 }
    }

    /// A read of `bytes` bytes at `place` that is there. Async-signal-safe.
    pub fn hits(&mut self, place: u64, bytes: u64) {
        self.next = place.saturating_add(bytes);
    }

    /// A read of `bytes` bytes at `place` that may not be there: what is to be asked for, from the first
    /// byte to before the second; None where that was asked for with the reads before it.
    /// Async-signal-safe.
    pub fn read(&mut self, place: u64, bytes: u64) -> Option<(u64, u64)> {
        let end = place.saturating_add(bytes);
        let goes_on = place > 0 && place == core::mem::replace(&mut self.next, end);
        if self.from <= place && end <= self.to {
            return None;
        }
        if !goes_on {
            (self.from, self.to) = (place, end);
            return Some((place, end));
        }
        // Behind what was asked for already, if the read begins in that.
        let is_behind = (self.from..=self.to).contains(&place);
        let (first, from) = if is_behind { (self.from, self.to) } else { (place, place) };
        let to = end.max(from.saturating_add(WINDOW) / PAGE * PAGE);
        (self.from, self.to) = (first, to);
        Some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_reads_in_order_are_asked_for_by_windows_without_gaps() {
        for size in [100, 4096, 16_320, 65_536] {
            let mut windows = Windows::new();
            let (mut asks, mut up_to) = (0, 0);
            for read in 0..(4 << 20) / size {
                if let Some((from, to)) = windows.read(read * size, size) {
                    assert!(from <= up_to && to > up_to, "{size}: {from} {to} {up_to}");
                    (asks, up_to) = (asks + 1, to);
                }
                assert!(up_to >= (read + 1) * size);
            }
            assert!((30..70).contains(&asks), "{size}: {asks}");
        }
        // Larger ones each by themselves.
        let mut windows = Windows::new();
        for read in 0..8 {
            assert_eq!(windows.read(read << 20, 1 << 20), Some((read << 20, (read + 1) << 20)));
        }
    }

    #[test]
    fn reads_out_of_order_are_asked_for_as_they_are() {
        let mut windows = Windows::new();
        for read in (0..100).rev() {
            let place = read * 8192;
            assert_eq!(windows.read(place, 4096), Some((place, place + 4096)));
            assert_eq!(windows.read(place, 4096), None);
        }
        // What is there is not asked for, and nothing behind it is taken for asked for.
        let mut windows = Windows::new();
        windows.hits(0, 4096);
        assert_eq!(windows.read(4096, 4096), Some((4096, 4096 + WINDOW)));
        windows.hits(8192, 4096);
        assert_eq!(windows.read(12_288, 4096), None);
        windows.hits(1 << 20, 4096);
        assert_eq!(windows.read(2 << 20, 4096), Some((2 << 20, (2 << 20) + 4096)));
        // Nor anything behind what was asked for elsewhere.
        let mut windows = Windows::new();
        let _ = windows.read(1 << 20, 4096);
        windows.hits(0, 4096);
        assert_eq!(windows.read(4096, 4096), Some((4096, 4096 + WINDOW)));
        assert_eq!(windows.read(8192, 4096), None);
        let _ = windows.read(u64::MAX - 1, u64::MAX);
        let _ = windows.read(u64::MAX, 1);
    }
}
