//! How many runs are enough?
//!
//! A median of three runs is sure where runs hardly differ, as those of a program that waits nine seconds for
//! an emulated disk, and says little where they differ by a third, as those that find everything in memory
//! and depend on who gets a processor first. So each configuration is run as often as was asked for; then the ratios are
//! looked at that people will read, of a configuration's base over itself. While one is not sure, those of its two go
//! on whose median is the reason. What is sure is not run again: alone, a program takes the longest.

/// The standard error of a ratio of two medians, in parts of it, at which it counts as sure.
///
/// Two measurements of the same thing are to agree within 8%. Their quotient has √2 times the error of either; it is
/// off by more than 8% in one pair of 200 where that is 2.81 standard errors, so 8% / (√2 · 2.81). (Each median used to be
/// asked for 2.5%: four of those are 5% together and 8% is 1.6 standard errors, so that one pair in nine had to
/// disagree; 3 of 21 did. Drawing runs that differ by 5 and 10% by chance and stopping as below, 2 to 5 pairs of
/// a thousand disagree with this figure, and 78 to 160 did with that one.)
const SURE: f64 = 0.02;

/// Fewer runs cannot say how much they differ.
const LEAST_RUNS: usize = 3;

/// Runs that happen to lie close together look sure, and who stops as soon as they look so stops at
/// such ones: three of 0.48 s, of a program that takes 0.35 to 0.51. Of n runs the error is taken to be
/// 1 + this / (n - 1) times what they say. Without it twice to four times as many pairs disagree.
const FEW: f64 = 2.0;

/// Seconds that further runs of one configuration may take: on the papers' disks single ones take minutes.
const LONGEST: f64 = 300.0;

/// A way to run the workload, and the seconds of its runs so far.
pub struct Way<'a> {
    pub name: &'a str,
    /// What it is compared with; itself if with nothing.
    pub base: &'a str,
    pub seconds: Vec<f64>,
    /// So many were asked for; those beyond are further ones.
    pub asked: usize,
}

/// Those that have to go on: their median is the reason why some ratio is not sure.
pub fn unsure<'a>(ways: &[Way<'a>]) -> Vec<&'a str> {
    let error = |way: &Way| error_of_median(&way.seconds);
    let pairs = ways.iter().filter_map(|way| {
        let base = ways.iter().find(|other| other.name == way.base && other.name != way.name)?;
        let sum = error(way).powi(2) + error(base).powi(2);
        (sum > SURE.powi(2)).then_some([way, base])
    });
    // Both have a share; of one above the sum, one at least is above its share.
    let share = SURE / 2f64.sqrt();
    let wanted: Vec<&str> = pairs.flatten().filter(|way| error(way) > share).map(|way| way.name).collect();
    let time_left = |way: &&Way| way.seconds.iter().skip(way.asked).sum::<f64>() < LONGEST;
    ways.iter().filter(time_left).map(|way| way.name).filter(|name| wanted.contains(name)).collect()
}

/// The standard error of the ratio of two configurations' medians, in parts of it; none of fewer than three runs.
pub fn error_of_ratio(one: &[f64], other: &[f64]) -> Option<f64> {
    let enough = one.len() >= LEAST_RUNS && other.len() >= LEAST_RUNS;
    enough.then(|| error_of_median(one).hypot(error_of_median(other)))
}

/// In parts of the mean: the standard deviation over the root of the number, times 1.25, as for the median of what is
/// distributed normally, and more of few runs. Where there are two heaps of results it is too small by itself, but so
/// many runs are then made that the greater heap shows. Fewer than three runs were asked for as a quick look, and count as
/// sure.
fn error_of_median(seconds: &[f64]) -> f64 {
    if seconds.len() < LEAST_RUNS {
        return 0.0;
    }
    let number = seconds.len() as f64;
    let mean = seconds.iter().sum::<f64>() / number;
    let variance = seconds.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (number - 1.0);
    1.25 * (variance / number).sqrt() / mean * (1.0 + FEW / (number - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(alone: &[f64], ours: &[f64]) -> [Way<'static>; 2] {
        let way = |name, seconds: &[f64]| Way { name, base: "alone", seconds: seconds.to_vec(), asked: 3 };
        [way("alone", alone), way("runahead", ours)]
    }

    const STEADY: [f64; 3] = [9.54, 9.55, 9.54];

    #[test]
    fn runs_that_hardly_differ_are_sure_at_once() {
        assert!(unsure(&ways(&STEADY, &[0.501, 0.503, 0.502])).is_empty());
    }

    #[test]
    fn runs_that_differ_are_sure_once_there_are_many() {
        let few = [0.41, 0.38, 0.46];
        assert_eq!(unsure(&ways(&STEADY, &few)), ["runahead"]);
        let many: Vec<f64> = few.iter().copied().cycle().take(120).collect();
        assert!(unsure(&ways(&STEADY, &many)).is_empty());
        assert_eq!(unsure(&ways(&[9.0, 9.5, 10.0], &many)), ["alone"]);
        assert_eq!(unsure(&ways(&[9.0, 9.5, 10.0], &few)), ["alone", "runahead"]);
    }

    #[test]
    fn what_the_other_leaves_may_be_used_up() {
        // The same runs beside a base that is sure, and beside one that is just so.
        let ours: Vec<f64> = [0.40, 0.44].into_iter().cycle().take(20).collect();
        let base: Vec<f64> = [9.3, 9.7].into_iter().cycle().take(4).collect();
        assert!((0.014..0.02).contains(&error_of_median(&ours)), "{}", error_of_median(&ours));
        assert!(unsure(&ways(&STEADY, &ours)).is_empty());
        assert_eq!(unsure(&ways(&base, &ours)), ["alone", "runahead"]);
    }

    #[test]
    fn two_runs_are_a_quick_look() {
        assert!(unsure(&ways(&[1.0, 2.0], &[1.0, 2.0])).is_empty());
        assert_eq!(error_of_ratio(&[1.0, 2.0], &STEADY), None);
    }

    #[test]
    fn who_takes_minutes_is_not_run_for_hours() {
        let slow = |runs| [200.0, 240.0, 280.0].into_iter().cycle().take(runs).collect::<Vec<f64>>();
        assert_eq!(unsure(&ways(&STEADY, &slow(4))), ["runahead"]);
        assert!(unsure(&ways(&STEADY, &slow(5))).is_empty());
    }

    /// Runs of a program that differ by chance: how often do two measurements disagree, stopping when they look sure?
    #[test]
    fn two_measurements_seldom_disagree() {
        let mut random = Random(1);
        let mut measure = |spread: [f64; 2]| {
            let mut seconds =
                spread.map(|spread| (0..5).map(|_| random.near_one(spread)).collect::<Vec<_>>());
            for _ in 5..100 {
                let wanted = unsure(&ways(&seconds[0], &seconds[1]));
                for (index, name) in ["alone", "runahead"].iter().enumerate() {
                    if wanted.contains(name) {
                        seconds[index].push(random.near_one(spread[index]));
                    }
                }
            }
            let [alone, ours] = seconds.map(crate::results::median);
            alone / ours
        };
        for spread in [[0.01, 0.05], [0.045, 0.05], [0.01, 0.10], [0.045, 0.10]] {
            let off = (0..1000).filter(|_| (measure(spread) / measure(spread) - 1.0).abs() > 0.08).count();
            // One of 200 is aimed at; chance may double it.
            assert!(off <= 10, "{spread:?}: {off} of 1000 pairs disagree");
        }
    }

    struct Random(u64);

    impl Random {
        /// About normally distributed: twelve even ones have the variance 1.
        fn near_one(&mut self, spread: f64) -> f64 {
            let sum: f64 = (0..12).map(|_| self.even()).sum();
            1.0 + spread * (sum - 6.0)
        }

        fn even(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }
}
