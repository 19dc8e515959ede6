//! How many reads are held back to be started together.
//!
//! A virtual disk has a doorbell: the first request that finds it idle costs an exit to the hypervisor, 16 to 20 us of the
//! asker's processor, where the next ones cost 1 us. A speculation that asks for one page every 20 us finds the disk idle most of the time, since
//! each doorbell slows it down so much that the one before has been heard: 25 us a page, or 9 where the queue happens
//! to be full (4096 random pages, one machine, from one run to the next). 8 at a time took 6.5, 16 took 5.6, 32 took 4.8.
//!
//! What is held back comes later. So it begins with one, after each start and wherever reads come slowly, and doubles.

/// Most that are held back: what more would save is less than 1 us.
pub const MOST: u32 = 16;

/// How long one is held back, ns, as far as the pace of those before tells: a local disk's answer takes no longer. (By count alone,
/// sixteen reads of sqlite's, one in 40 us, came later than sqlite: look-ups by row number 0.24 s for 0.21.)
const HELD_NS: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
pub struct Together {
    held: u32,
    send_at: u32,
    /// When the first of those held back was asked for, and the latest of all, ns.
    first: u64,
    latest: u64,
}

impl Together {
    pub const fn new() -> Self {
        Together { held: 0, send_at: 1, first: 0, latest: 0 }
    }

    /// One more request at `now` (ns). True if it is to be sent, with all that were held back.
    pub fn asks(&mut self, now: u64) -> bool {
        let apart = now.saturating_sub(self.latest);
        self.latest = now;
        if self.held == 0 {
            self.first = now;
        }
        self.held += 1;
        if apart >= HELD_NS {
            self.send_at = 1;
        }
        let next = now.saturating_add(apart);
        if self.held < self.send_at && next.saturating_sub(self.first) < HELD_NS {
            return false;
        }
        self.held = 0;
        self.send_at = (self.send_at * 2).min(MOST);
        true
    }

    /// All that was held back has been sent for another reason.
    pub fn sent(&mut self) {
        self.held = 0;
    }
}

impl Default for Together {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests sent at each of so many requests, so far apart.
    fn sent(requests: u64, apart: u64) -> Vec<u32> {
        let mut together = Together::new();
        let mut held = 0;
        (1..=requests)
            .filter_map(|number| {
                held += 1;
                together.asks(number * apart + 1_000_000).then(|| core::mem::take(&mut held))
            })
            .collect()
    }

    #[test]
    fn quick_ones_go_together_and_more_each_time() {
        assert_eq!(sent(63, 5_000), [1, 2, 4, 8, 16, 16, 16]);
    }

    #[test]
    fn none_is_held_for_long() {
        assert_eq!(sent(25, 20_000), [1, 2, 4, 5, 5, 5]);
        assert_eq!(sent(9, 50_000), [1, 2, 2, 2, 2]);
    }

    #[test]
    fn slow_ones_go_at_once() {
        assert_eq!(sent(5, HELD_NS), [1; 5]);
    }

    #[test]
    fn one_that_comes_late_takes_those_before_along() {
        let mut together = Together::new();
        assert!(together.asks(1_000_000));
        assert!(!together.asks(1_010_000));
        assert!(together.asks(2_000_000));
        assert!(!together.asks(2_010_000));
    }

    #[test]
    fn what_had_to_go_earlier_is_not_waited_for() {
        let mut together = Together::new();
        (0..7).for_each(|number| {
            assert_eq!(together.asks(1_000_000 + number * 1000), [0, 2, 6].contains(&number))
        });
        assert!(!together.asks(1_007_000));
        together.sent();
        assert_eq!(
            (8..16).filter(|number| together.asks(1_000_000 + number * 1000)).collect::<Vec<u64>>(),
            [15]
        );
    }
}
