//! The collection of tests, with those that this machine cannot run set aside, loudly.

use libtest_mimic::{Failed, Trial};
use runahead_end_to_end::{Verdict, needs};

#[derive(Default)]
pub struct Suite {
    trials: Vec<Trial>,
    skipped: Vec<(String, String)>,
}

impl Suite {
    /// Adds a test. `wants` says what the machine must have, in the words of `needs`.
    pub fn add<Want: ToString>(
        &mut self,
        name: impl Into<String>,
        wants: impl IntoIterator<Item = Want>,
        test: impl FnOnce() -> Verdict + Send + 'static,
    ) {
        let name = name.into();
        let wants: Vec<String> = wants.into_iter().map(|want| want.to_string()).collect();
        let missing = needs::missing(&wants);
        let trial = Trial::test(name.clone(), move || test().map_err(Failed::from))
            .with_ignored_flag(missing.is_some());
        if let Some(missing) = missing {
            self.skipped.push((name, missing));
        }
        self.trials.push(trial);
    }

    /// A test without a need.
    pub fn add_plain(
        &mut self,
        name: impl Into<String>,
        test: impl FnOnce() -> Verdict + Send + 'static,
    ) {
        self.add(name, std::iter::empty::<String>(), test);
    }

    /// One line for each test that cannot run here, and the count.
    pub fn tell_skips(&self) {
        for (name, missing) in &self.skipped {
            eprintln!("SKIPPED {name}: this machine lacks: {missing}");
        }
        eprintln!("{} of {} tests skipped for what this machine lacks", self.skipped.len(), self.trials.len());
    }

    pub fn into_trials(self) -> Vec<Trial> {
        self.trials
    }
}
