//! Random sequences of operations on descriptors of every kind: the run alone is the model (the guest
//! `read_model`). Each test run takes seeds that nobody has tried; one that differs is named, and can be
//! tried again as `RUNAHEAD_MODEL_SEED=…`.

use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::{Guest, stand_in};
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{COLD, NO_SPECULATION, Scenario};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// For each setting; `RUNAHEAD_MODEL_SECONDS` lengthens it.
const SECONDS: u64 = 5;

pub fn add(suite: &mut Suite) {
    for (setting, needs) in
        [("plain", vec![]), ("signals", vec![]), ("overlay", vec!["root"]), ("tmpfs", vec!["root"])]
    {
        suite.add(format!("model::reads of every kind, {setting}"), needs, move || reads(setting));
    }
}

/// Runs against itself, two at a time, that a sequence must survive to be a model.
const ALONE: usize = 20;

/// Whether a sequence is the same each time without Runahead. What the kernel leaves to chance is taken out of the
/// guest as it is found; a seed that finds some more proves nothing about Runahead.
fn is_steady(scenario: &Scenario) -> Result<bool, String> {
    let none = stand_in("none")?;
    Ok((0..ALONE).all(|_| scenario.check(&none).is_ok()))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn reads(setting: &str) -> Verdict {
    let runahead = Runahead::built()?;
    let guest = Guest::all()?.into_iter().find(|guest| guest.name() == "read_model");
    let guest = guest.ok_or("there is no guest 'read_model'")?;
    let fixed = number("RUNAHEAD_MODEL_SEED");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64);
    let mut seed = fixed.unwrap_or(now / 1000 % 1_000_000_000);
    let end = Instant::now() + Duration::from_secs(number("RUNAHEAD_MODEL_SECONDS").unwrap_or(SECONDS));
    loop {
        let mut scenario = guest.scenario(&guest.run_with(&[&seed.to_string(), setting]))?;
        scenario.name = format!("model {setting}");
        let scenario = scenario.modes([COLD, NO_SPECULATION]);
        if let Err(why) = scenario.check(&runahead) {
            let why = format!("RUNAHEAD_MODEL_SEED={seed}: {why}");
            if fixed.is_some() || is_steady(&scenario)? {
                return Err(why);
            }
            eprintln!("NOT JUDGED: the guest is unsteady without Runahead, too, so this says nothing: {why}");
        }
        if fixed.is_some() || Instant::now() > end {
            return Ok(());
        }
        seed += 1;
    }
}
