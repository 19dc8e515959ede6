//! Why a result should not be believed as it stands.
//!
//! A figure that was not measured under the conditions it claims is marked, never dropped and never
//! mended.

use crate::cold::{self, Sample};
use crate::configuration;
use crate::results::Run;

/// What a workload's caches should be like before its runs.
#[derive(Clone, Copy)]
pub struct Expected {
    /// Resident when everything is cached.
    pub warm: Sample,
    /// Percent of the pages that are cached before a cold run.
    pub percent: u64,
}

/// What is wrong with runs, in words; empty: nothing known. `check` is the disk's self-check.
pub fn of(runs: &[Run], check: &serde_json::Value, expected: Expected, processors: usize) -> Vec<String> {
    let mut marks = Vec::new();
    if check["ok"] == false {
        let failures: Vec<&str> = check["failures"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|failure| failure.as_str())
            .collect();
        marks.push(format!("the disk's self-check failed: {}", failures.join("; ")));
    }
    if !cold::may_drop_caches() {
        marks.push("names were not cold: dropping them takes root".into());
    }
    for run in runs {
        let which = format!("{} round {}", run.configuration, run.round + 1);
        marks.extend(of_run(run, expected, processors).into_iter().map(|mark| format!("{which}: {mark}")));
    }
    marks
}

fn of_run(run: &Run, Expected { warm: cached, percent }: Expected, processors: usize) -> Vec<String> {
    let mut marks = Vec::new();
    let sample = run.cold.unwrap_or_default();
    let warm = configuration::by_name(&run.configuration).is_ok_and(|found| found.warm);
    if !warm && percent == 0 && sample.resident > 0 {
        marks.push(format!("not cold, {} of {} pages were cached", sample.resident, sample.pages));
    }
    // Of a hundred pages one more or less: chance, and what is paged out meanwhile.
    if !warm && percent > 0 && (sample.resident * 100).abs_diff(sample.pages * percent) > sample.pages {
        marks.push(format!(
            "{} of {} pages were cached, and {percent}% should be",
            sample.resident, sample.pages
        ));
    }
    // A fiftieth may go between two looks on a machine that pages out idle memory.
    if warm && sample.resident * 50 < cached.resident * 49 {
        marks.push(format!("not warm, {} of {} pages were cached", sample.resident, cached.resident));
    }
    marks.extend((run.spoilt > 0).then(|| spoilt(run.spoilt)));
    marks.extend(run.measured.difference.clone());
    if run.measured.left_behind {
        marks.push("processes outlived the command by a second".into());
    }
    marks.extend(run.measured.busy.mark(processors));
    marks
}

/// Of a run during which others dropped the caches so often.
pub fn spoilt(others: u64) -> String {
    match others {
        1 => "somebody else dropped the machine's caches meanwhile".into(),
        times => format!("somebody else dropped the machine's caches {times} times meanwhile"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Busy;
    use crate::run::Measured;

    fn run(configuration: &str, resident: u64, measured: Measured) -> Run {
        Run {
            configuration: configuration.into(),
            round: 0,
            cold: Some(Sample { files: 1, pages: 100, resident }),
            prefetch: None,
            spoilt: 0,
            neighbour: None,
            measured: Measured { wall: 1.0, same: true, ..measured },
            report: None,
        }
    }

    #[test]
    fn each_reservation_is_seen_alone() {
        let warm = Sample { files: 1, pages: 100, resident: 100 };
        let marks = |run: Run| of_run(&run, Expected { warm, percent: 0 }, 2);
        assert_eq!(marks(run("alone", 0, Measured::default())), Vec::<String>::new());
        assert_eq!(marks(run("alone-warm", 100, Measured::default())), Vec::<String>::new());
        let busy = Measured { busy: Busy { seconds: 1.0, others: 0.5, steal: 0.0 }, ..Measured::default() };
        for (run, word) in [
            (run("alone", 1, Measured::default()), "not cold"),
            (run("alone-warm", 90, Measured::default()), "not warm"),
            (
                run("alone", 0, Measured { difference: Some("stdout".into()), ..Measured::default() }),
                "stdout",
            ),
            (run("alone", 0, Measured { left_behind: true, ..Measured::default() }), "outlived"),
            (Run { spoilt: 2, ..run("alone", 0, Measured::default()) }, "caches 2 times meanwhile"),
            (run("alone", 0, busy), "other programs used 25%"),
        ] {
            let found = marks(run);
            assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
        }
    }

    #[test]
    fn a_share_that_is_not_what_was_wanted_is_seen() {
        let expected = Expected { warm: Sample::default(), percent: 90 };
        let marks = |resident| of_run(&run("alone", resident, Measured::default()), expected, 2);
        assert!(marks(90).is_empty() && marks(91).is_empty());
        for resident in [0, 88, 100] {
            assert!(marks(resident)[0].contains("90% should be"), "{resident}");
        }
    }

    #[test]
    fn a_failed_self_check_marks_the_result() {
        let check = serde_json::json!({ "ok": false, "failures": ["too slow", "too few"] });
        let expected = Expected { warm: Sample::default(), percent: 0 };
        let marks = of(&[], &check, expected, 2);
        assert!(marks.contains(&"the disk's self-check failed: too slow; too few".to_string()), "{marks:?}");
        let fine = of(&[], &serde_json::json!({ "ok": true }), expected, 2);
        assert!(!fine.iter().any(|mark| mark.contains("self-check")), "{fine:?}");
    }
}
