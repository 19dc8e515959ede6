//! What the verdicts of a case's runs mean, taken together.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What one run said: a verdict for each name. The case's own ending stands under [`ENDING`].
pub type Verdicts = BTreeMap<String, String>;

/// Stands for what ended the case: `exit 0`, `signal 9`, `time limit`.
pub const ENDING: &str = "(ending)";
pub const TIME_LIMIT: &str = "time limit";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Same,
    /// Differs, and a run alone was seen to give each of the verdicts that were seen under Runahead.
    FlakyAlone,
    /// Differs, and a run alone gave each of the verdicts once two variables of the same names and lengths
    /// stood in its environment, as docs/limitations.md says that they do.
    ByVariables,
    Different,
}

/// All runs of one case.
#[derive(Default)]
pub struct Runs {
    pub alone: Vec<Verdicts>,
    pub under: Vec<Verdicts>,
    /// Alone, with the agent loaded and nothing for it to do.
    pub with_variables: Vec<Verdicts>,
    /// Beside how many of them a speculator was seen.
    pub speculated: usize,
}

fn verdict<'a>(run: &'a Verdicts, name: &str) -> &'a str {
    run.get(name).map_or("absent", String::as_str)
}

impl Runs {
    pub fn names(&self) -> BTreeSet<&String> {
        self.alone.iter().chain(&self.under).flat_map(BTreeMap::keys).collect()
    }

    pub fn seen(runs: &[Verdicts], name: &str) -> BTreeMap<String, usize> {
        let mut seen = BTreeMap::new();
        for run in runs {
            *seen.entry(verdict(run, name).to_owned()).or_default() += 1;
        }
        seen
    }

    /// The outcome for one name.
    pub fn outcome(&self, name: &str) -> Outcome {
        let alone = Runs::seen(&self.alone, name);
        let under = Runs::seen(&self.under, name);
        let named = Runs::seen(&self.with_variables, name);
        if alone.len() == 1 && under.len() == 1 && alone.keys().eq(under.keys()) {
            Outcome::Same
        } else if under.keys().all(|verdict| alone.contains_key(verdict)) {
            Outcome::FlakyAlone
        } else if under.keys().all(|verdict| alone.contains_key(verdict) || named.contains_key(verdict)) {
            Outcome::ByVariables
        } else {
            Outcome::Different
        }
    }

    pub fn is_different(&self) -> bool {
        self.names().iter().any(|name| self.outcome(name) == Outcome::Different)
    }

    /// A case that takes longer than its limit alone tells nothing.
    pub fn is_too_long(&self) -> bool {
        self.alone.iter().all(|run| verdict(run, ENDING) == TIME_LIMIT)
    }
}

/// Reads `VERDICT<tab>NAME` lines. A name that comes again is numbered.
pub fn read(text: &str) -> Verdicts {
    let mut verdicts = Verdicts::new();
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for (verdict, name) in text.lines().filter_map(|line| line.split_once('\t')) {
        let times = times.entry(name).or_default();
        *times += 1;
        let name = if *times == 1 { name.to_owned() } else { format!("{name} ({times})") };
        verdicts.insert(name, verdict.to_owned());
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(alone: &[&str], under: &[&str]) -> Runs {
        let run = |verdict: &&str| read(&format!("{verdict}\tcase\n"));
        let [alone, under] = [alone, under].map(|runs| runs.iter().map(run).collect());
        Runs { alone, under, with_variables: Vec::new(), speculated: 0 }
    }

    #[test]
    fn a_verdict_that_was_never_seen_alone_is_a_difference() {
        assert_eq!(runs(&["ok", "ok"], &["ok", "ok"]).outcome("case"), Outcome::Same);
        assert_eq!(runs(&["failed"], &["failed"]).outcome("case"), Outcome::Same);
        assert_eq!(runs(&["ok", "ok"], &["ok", "failed"]).outcome("case"), Outcome::Different);
        assert_eq!(runs(&["failed", "failed"], &["ok"]).outcome("case"), Outcome::Different);
        assert_eq!(runs(&["ok", "failed"], &["failed"]).outcome("case"), Outcome::FlakyAlone);
    }

    #[test]
    fn what_the_variables_do_alone_is_told_apart() {
        let mut runs = runs(&["ok", "ok"], &["failed"]);
        runs.with_variables.push(read("ok\tcase\n"));
        assert_eq!(runs.outcome("case"), Outcome::Different);
        runs.with_variables.push(read("failed\tcase\n"));
        assert_eq!(runs.outcome("case"), Outcome::ByVariables);
        assert!(!runs.is_different());
    }

    #[test]
    fn a_verdict_that_is_missing_is_a_difference() {
        let mut runs = runs(&["ok"], &["ok"]);
        runs.under.push(Verdicts::new());
        assert_eq!(runs.outcome("case"), Outcome::Different);
        assert!(runs.is_different());
    }

    #[test]
    fn names_that_come_again_are_numbered() {
        let verdicts = read("ok\ta\nfailed\ta\n");
        assert_eq!(verdicts["a"], "ok");
        assert_eq!(verdicts["a (2)"], "failed");
    }
}
