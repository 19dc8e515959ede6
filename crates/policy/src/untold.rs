//! Do reads wait of which the kernel does not tell beforehand?
//!
//! Overlays (a container's root), FUSE, squashfs, erofs and networks refuse `RWF_NOWAIT`: whether a read will wait shows when it has. What
//! is seen then is that its thread has slept; the kernel counts how often a thread gives its processor away by itself. So a
//! read is taken for one that waits if reads before it did: one of the latest two, and two of the latest eight, as a thread may sleep over
//! its output as well.
//!
//! Rule: nothing is ever lost by a wrong answer but a post in vain, or a stall that goes by.

/// Reads that are looked back at.
const LATEST: u8 = 2;
const LEAST: u32 = 2;

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untold {
    thread: usize,
    /// How often that thread had slept before the latest read.
    slept: u64,
    /// After which of the latest eight reads it had slept more often, the latest in the lowest bit.
    waits: u8,
}

impl Untold {
    pub const fn new() -> Untold {
        Untold { thread: 0, slept: 0, waits: 0 }
    }

    /// A thread (never 0) that has slept so often so far is about to make such a read. True if it is taken for one that waits.
    pub fn read(&mut self, thread: usize, slept: u64) -> bool {
        if self.thread == thread {
            self.waits = self.waits << 1 | u8::from(slept != self.slept);
        }
        (self.thread, self.slept) = (thread, slept);
        self.waits & ((1 << LATEST) - 1) != 0 && self.waits.count_ones() >= LEAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of reads of one thread, which sleeps behind those of which `waits` says so.
    fn said(untold: &mut Untold, waits: &[bool]) -> Vec<bool> {
        let mut slept = 7;
        let say = |&waits: &bool| {
            let said = untold.read(1, slept);
            slept += u64::from(waits);
            said
        };
        waits.iter().map(say).collect()
    }

    #[test]
    fn reads_that_wait_are_followed_by_reads_that_wait() {
        let said = said(&mut Untold::new(), &[true; 8]);
        assert_eq!(said, [false, false, true, true, true, true, true, true]);
    }

    #[test]
    fn a_read_of_the_end_between_them_changes_nothing() {
        let waits: Vec<bool> = (0..20).map(|number| number % 2 == 0).collect();
        assert!(said(&mut Untold::new(), &waits)[4..].iter().all(|&said| said));
    }

    #[test]
    fn who_sleeps_seldom_does_not_wait_for_reads() {
        let waits: Vec<bool> = (0..100).map(|number| number % 9 == 0).collect();
        assert!(said(&mut Untold::new(), &waits).iter().all(|&said| !said));
    }

    #[test]
    fn once_the_reads_are_foretold_it_is_over() {
        let mut untold = Untold::new();
        said(&mut untold, &[true; 8]);
        assert_eq!(said(&mut untold, &[false; 5])[2..], [false; 3]);
    }

    #[test]
    fn threads_are_not_taken_for_one_another() {
        let mut untold = Untold::new();
        assert!((0..100).all(|number| !untold.read(1 + number % 2, number as u64)));
    }
}
