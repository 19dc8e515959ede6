//! What is printed and stored of a suite.

use crate::compare::{ENDING, Outcome, Runs};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

#[derive(Serialize)]
pub struct Record {
    pub suite: String,
    /// What was measured: the checkout's commit, with `+` if it has changes.
    pub commit: String,
    pub all_cases: usize,
    pub cases: usize,
    /// Of the cases, those that end alone with status 0.
    pub passed_alone: usize,
    /// Names with a verdict, the cases' endings included.
    pub verdicts: usize,
    pub same: usize,
    pub different: usize,
    pub flaky_alone: usize,
    pub by_variables: usize,
    /// Runs under Runahead, and beside how many of them a speculator was seen.
    pub runs_under: usize,
    pub speculated: usize,
    pub out_of_time: usize,
    pub seconds: u64,
    pub skipped: Vec<String>,
    pub differences: Vec<Difference>,
}

/// How often which verdict was seen.
#[derive(Serialize)]
pub struct Difference {
    pub case: String,
    pub name: String,
    pub outcome: Outcome,
    pub alone: BTreeMap<String, usize>,
    pub under: BTreeMap<String, usize>,
}

impl Record {
    pub fn new(suite: &str, commit: &str) -> Record {
        Record {
            suite: suite.to_owned(),
            commit: commit.to_owned(),
            all_cases: 0,
            cases: 0,
            passed_alone: 0,
            verdicts: 0,
            same: 0,
            different: 0,
            flaky_alone: 0,
            by_variables: 0,
            runs_under: 0,
            speculated: 0,
            out_of_time: 0,
            seconds: 0,
            skipped: Vec::new(),
            differences: Vec::new(),
        }
    }

    pub fn add(&mut self, case: &str, runs: &Runs) {
        self.cases += 1;
        self.runs_under += runs.under.len();
        self.speculated += runs.speculated;
        let passed = runs.alone.iter().all(|run| run.get(ENDING).is_some_and(|ending| ending == "exit 0"));
        self.passed_alone += usize::from(passed);
        for name in runs.names() {
            self.verdicts += 1;
            let outcome = runs.outcome(name);
            match outcome {
                Outcome::Same => self.same += 1,
                Outcome::FlakyAlone => self.flaky_alone += 1,
                Outcome::ByVariables => self.by_variables += 1,
                Outcome::Different => self.different += 1,
            }
            if outcome != Outcome::Same {
                let (alone, under) = (Runs::seen(&runs.alone, name), Runs::seen(&runs.under, name));
                if outcome == Outcome::Different {
                    eprintln!("DIFFERENT {} {case} {name}: alone {alone:?}, under {under:?}", self.suite);
                }
                self.differences.push(Difference {
                    case: case.to_owned(),
                    name: name.clone(),
                    outcome,
                    alone,
                    under,
                });
            }
        }
    }

    pub fn line(&self) -> String {
        format!(
            "{}: {} of {} cases, {} verdicts: {} same, {} different, {} flaky alone, {} by variables ({} s)",
            self.suite,
            self.cases,
            self.all_cases,
            self.verdicts,
            self.same,
            self.different,
            self.flaky_alone,
            self.by_variables,
            self.seconds
        )
    }

    pub fn append(&self, path: &Path) -> Result<(), String> {
        let told = |error: std::io::Error| format!("{}: {error}", path.display());
        let line = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).map_err(told)?;
        writeln!(file, "{line}").map_err(told)
    }
}

pub fn table(records: &[Record]) -> String {
    let mut text = String::from(
        "suite            cases (of all)  passed alone  verdicts     same  different  flaky alone  variables  skipped  speculator seen\n",
    );
    for record in records {
        let _ = writeln!(
            text,
            "{:16} {:>5} ({:>5}) {:>14} {:>9} {:>8} {:>10} {:>12} {:>10} {:>8} {:>8} of {:>4}",
            record.suite,
            record.cases,
            record.all_cases,
            record.passed_alone,
            record.verdicts,
            record.same,
            record.different,
            record.flaky_alone,
            record.by_variables,
            record.skipped.len() + record.out_of_time,
            record.speculated,
            record.runs_under,
        );
    }
    for record in records {
        if record.out_of_time > 0 {
            let _ = writeln!(text, "skipped: {}: {} cases: no time left", record.suite, record.out_of_time);
        }
        for why in &record.skipped {
            let _ = writeln!(text, "skipped: {}: {why}", record.suite);
        }
    }
    text
}

/// The checkout's commit.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
    format!("{}{}", git(&["rev-parse", "--short", "HEAD"]), if changed { "+" } else { "" })
}
