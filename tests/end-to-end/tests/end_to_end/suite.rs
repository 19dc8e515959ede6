//! The collection of tests, with those that this machine cannot run set aside, loudly.

use libtest_mimic::{Failed, Trial};
use runahead_end_to_end::{Verdict, needs};
use std::sync::Mutex;
use std::time::{Duration, Instant};

static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// The tests that took longest: the suite has a time to keep.
pub fn tell_slowest() {
    let mut times = std::mem::take(&mut *TIMES.lock().expect("all tests are done"));
    times.sort_by(|one, other| other.cmp(one));
    for (time, name) in times.iter().take(15) {
        eprintln!("{:6.1} s {name}", time.as_secs_f64());
    }
}

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
        let timed = name.clone();
        let trial = Trial::test(name.clone(), move || {
            let started = Instant::now();
            let verdict = test();
            TIMES.lock().expect("no test panics while it notes its time").push((started.elapsed(), timed));
            verdict.map_err(Failed::from)
        })
        .with_ignored_flag(missing.is_some());
        if let Some(missing) = missing {
            self.skipped.push((name, missing));
        }
        self.trials.push(trial);
    }

    /// A test without a need.
    pub fn add_plain(&mut self, name: impl Into<String>, test: impl FnOnce() -> Verdict + Send + 'static) {
        self.add(name, std::iter::empty::<String>(), test);
    }

    /// One line for each test that cannot run here, and the count.
    pub fn tell_skips(&self) {
        for (name, missing) in &self.skipped {
            eprintln!("SKIPPED {name}: this machine lacks: {missing}");
        }
        eprintln!(
            "{} of {} tests skipped for what this machine lacks",
            self.skipped.len(),
            self.trials.len()
        );
    }

    pub fn into_trials(self) -> Vec<Trial> {
        self.trials
    }
}
