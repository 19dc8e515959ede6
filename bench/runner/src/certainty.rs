//! How many runs are enough?
//!
//! A median of three runs is sure where runs hardly differ, as those of a program that waits nine seconds for
//! an emulated disk, and says little where they differ by a third, as those that find everything in memory
//! and depend on who gets a processor first. So each configuration is run as often as was asked for, and those whose
//! median is not sure by then go on by themselves. What is sure is not run again: alone, a program takes the longest.

/// The median's standard error, in parts of it, at which it counts as sure. The ratio of two such medians is off by 8%
/// (what two measurements may differ by) in one pair of forty.
const SURE: f64 = 0.025;

/// Fewer runs cannot say how much they differ.
const LEAST_RUNS: usize = 3;

/// Whether more runs would hardly move the median of `seconds`. Of less than three runs nobody can tell: they
/// were asked for as a quick look, and count as sure.
pub fn sure(seconds: &[f64]) -> bool {
    seconds.len() < LEAST_RUNS || error_of_median(seconds) <= SURE
}

/// In parts of the mean: the standard deviation over the root of the number, times 1.25, as for the median of what is
/// distributed normally. Where there are two heaps of results it is too small by itself, but so many runs are then made
/// that the greater heap shows.
fn error_of_median(seconds: &[f64]) -> f64 {
    let number = seconds.len() as f64;
    let mean = seconds.iter().sum::<f64>() / number;
    let variance = seconds.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (number - 1.0);
    1.25 * (variance / number).sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_hardly_differ_are_sure_at_once() {
        assert!(sure(&[9.51, 9.66, 9.54]));
    }

    #[test]
    fn runs_that_differ_are_sure_once_there_are_many() {
        let few = [0.41, 0.28, 0.46];
        assert!(!sure(&few));
        let many: Vec<f64> = few.iter().copied().cycle().take(300).collect();
        assert!(sure(&many));
    }

    #[test]
    fn two_runs_are_a_quick_look() {
        assert!(sure(&[1.0, 2.0]));
    }
}
