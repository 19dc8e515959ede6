//! How long something took, each time: counts by length, of which a median can be read.
//!
//! A mean says little of what a call usually costs: one post that was interrupted by another process weighs as much as
//! a hundred others. Lengths fall into classes, four to each doubling, so a median is right to an eighth.

use crate::sync::{AtomicU64, Ordering};

/// Everything shorter than this, ns, is in the first class.
const SHORTEST: u64 = 256;
const EACH_DOUBLING: usize = 4;
/// Ten doublings: everything longer than a quarter of a millisecond is in the last one.
const CLASSES: usize = 10 * EACH_DOUBLING;

/// Anybody may read, and gets counts that may be one old.
#[repr(C)]
#[derive(Debug)]
pub struct Durations([AtomicU64; CLASSES]);

impl Default for Durations {
    fn default() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Durations {
    /// One more that took `ns`. Async-signal-safe.
    pub fn count(&self, ns: u64) {
        let count = &self.0[class(ns)];
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sums of such counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths([u64; CLASSES]);

impl Default for Lengths {
    fn default() -> Self {
        Self([0; CLASSES])
    }
}

impl Lengths {
    pub fn add(&mut self, durations: &Durations) {
        for (sum, count) in self.0.iter_mut().zip(&durations.0) {
            *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
        }
    }

    /// The length in the middle, ns; 0 if there are none.
    pub fn median(&self) -> u64 {
        let all = self.0.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
        let middle = all.div_ceil(2);
        let mut before = 0u64;
        for (class, &count) in self.0.iter().enumerate() {
            if all > 0 && before.saturating_add(count) >= middle {
                let length = u128::from(begin(class + 1) - begin(class));
                let within = length * u128::from(middle - before) / (u128::from(count) + 1);
                return begin(class) + within as u64;
            }
            before = before.saturating_add(count);
        }
        0
    }
}

fn class(ns: u64) -> usize {
    if ns < SHORTEST {
        return 0;
    }
    let doublings = (ns / SHORTEST).ilog2() as usize;
    let part = (ns >> (SHORTEST.ilog2() as usize + doublings - 2)) as usize % EACH_DOUBLING;
    (doublings * EACH_DOUBLING + part).min(CLASSES - 1)
}

/// Where a class begins, ns.
fn begin(class: usize) -> u64 {
    let (doublings, part) = (class / EACH_DOUBLING, (class % EACH_DOUBLING) as u64);
    (SHORTEST << doublings) / EACH_DOUBLING as u64 * (EACH_DOUBLING as u64 + part)
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn median_of(lengths: &[u64]) -> u64 {
        let durations = Durations::default();
        lengths.iter().for_each(|length| durations.count(*length));
        let mut sum = Lengths::default();
        sum.add(&durations);
        sum.median()
    }

    #[test]
    fn classes_follow_each_other() {
        let classes: Vec<usize> = (0..300_000).step_by(3).map(class).collect();
        assert!(classes.is_sorted());
        assert_eq!(classes.last(), Some(&(CLASSES - 1)));
        for class_number in 1..CLASSES {
            assert_eq!(class(begin(class_number)), class_number);
            assert_eq!(class(begin(class_number) - 1), class_number - 1);
        }
        assert_eq!((class(0), class(u64::MAX)), (0, CLASSES - 1));
    }

    #[test]
    fn the_median_is_right_to_an_eighth_and_ignores_outliers() {
        assert_eq!(median_of(&[]), 0);
        for length in [300, 1_000, 5_000, 77_000] {
            let median = median_of(&[length, length, length * 9 / 8, 1_000_000_000, 1]);
            assert!(median.abs_diff(length) <= length / 4, "{length}: {median}");
            assert!(median_of(&[length; 101]).abs_diff(length) <= length / 8, "{length}");
        }
        assert!(Lengths([u64::MAX; CLASSES]).median() > 0, "garbage does no harm");
    }
}
