//! `./x conformance`: public test suites, each case alone and under Runahead, warm and cold, compared
//! verdict by verdict. `tests/README.md` says how one is run and how one is added.

mod compare;
mod record;
mod run;
mod suite;

use clap::{Parser, Subcommand};
use compare::Runs;
use record::Record;
use run::{Run, Way};
use runahead_end_to_end::cold;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use suite::{Places, Suite};

#[derive(Parser)]
#[command(about = "Public test suites alone and under Runahead, compared verdict by verdict")]
struct Arguments {
    #[command(subcommand)]
    command: Told,
}

#[derive(Subcommand)]
enum Told {
    /// Names every suite.
    List,
    /// Says what must be there before the suites that would be run can be built.
    Wants(Choice),
    /// Builds the suites and runs them.
    Run(Choice),
    /// Runs a command with a time limit, as a user, and ends what it leaves (used by `run`).
    #[command(hide = true)]
    Supervise {
        seconds: u64,
        user: u32,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Becomes a command with every read of it looked at (used by `run`).
    #[command(hide = true)]
    Active {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

#[derive(clap::Args)]
struct Choice {
    /// The suites; all if none is named.
    suites: Vec<String>,
    /// The subset that is part of `./x test`.
    #[arg(long)]
    quick: bool,
    /// Only cases whose name contains this.
    #[arg(long)]
    case: Option<String>,
    /// At most this many cases of each suite, spread evenly.
    #[arg(long)]
    at_most: Option<usize>,
    /// Leave out this many cases of each suite, in the order that a budget takes them in: those that an
    /// earlier run came to.
    #[arg(long, default_value_t = 0)]
    from: usize,
    /// Seconds, once all is built, after which no case is begun any more; the suites share them.
    #[arg(long)]
    budget: Option<u64>,
    /// Cases at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Runs alone that a difference is given to turn out flaky.
    #[arg(long, default_value_t = 8)]
    again: usize,
    /// Append the results to this file, one line for each suite.
    #[arg(long)]
    store: Option<PathBuf>,
}

impl Choice {
    fn chosen(&self, places: &Places) -> Result<Vec<Suite>, String> {
        let all = Suite::all(places)?;
        if let Some(unknown) = self.suites.iter().find(|name| all.iter().all(|suite| suite.name != **name)) {
            return Err(format!("there is no suite '{unknown}'; './x conformance list' names them"));
        }
        let wanted = |suite: &Suite| {
            (self.suites.is_empty() || self.suites.contains(&suite.name)) && (!self.quick || suite.is_quick())
        };
        Ok(all.into_iter().filter(wanted).collect())
    }
}

fn main() -> ExitCode {
    match carry_out(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

fn carry_out(told: Told) -> Result<ExitCode, String> {
    let places = Places::find();
    match told {
        Told::List => {
            for suite in Suite::all(&places)? {
                println!("{:16} {}", suite.name, suite.about());
            }
        }
        Told::Wants(choice) => {
            for suite in choice.chosen(&places)? {
                for (kind, name) in suite.wants() {
                    println!("{kind} {name}");
                }
            }
        }
        Told::Run(choice) => return run_suites(&places, &choice.chosen(&places)?, &choice),
        Told::Supervise { seconds, user, command } => {
            let code = run::supervise(Duration::from_secs(seconds), user, &command)?;
            return Ok(ExitCode::from(code as u8));
        }
        Told::Active { command } => return Err(run::become_active(&command)),
    }
    Ok(ExitCode::SUCCESS)
}

fn run_suites(places: &Places, suites: &[Suite], choice: &Choice) -> Result<ExitCode, String> {
    let mut records = Vec::new();
    // Once: the checkout may move on while the suites run.
    let commit = record::commit();
    // What is built takes nothing of the suites' time.
    let built: Vec<Result<(), String>> = suites.iter().map(|suite| build(places, suite)).collect();
    let end = choice.budget.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    for (done, (suite, built)) in suites.iter().zip(built).enumerate() {
        // What is left of the time is shared by those that are left.
        let share = end.map(|end| {
            let left = end.saturating_duration_since(Instant::now());
            Instant::now() + left / (suites.len() - done) as u32
        });
        let record = Record::new(&suite.name, &commit);
        let record = match built {
            Ok(()) => run_suite(places, suite, record, choice, share),
            Err(why) => left_out(record, &why),
        };
        eprintln!("{}", record.line());
        if let Some(path) = &choice.store {
            record.append(path)?;
        }
        records.push(record);
    }
    print!("{}", record::table(&records));
    let different: usize = records.iter().map(|record| record.different).sum();
    Ok(if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn build(places: &Places, suite: &Suite) -> Result<(), String> {
    // SAFETY: takes no pointer.
    if !suite.as_nobody() && unsafe { libc::geteuid() } != 0 {
        return Err("it wants root".to_owned());
    }
    suite.build(places)
}

fn left_out(mut record: Record, why: &str) -> Record {
    eprintln!("SKIPPED {}: {why}", record.suite);
    record.skipped.push(format!("all of it: {why}"));
    record
}

fn run_suite(
    places: &Places,
    suite: &Suite,
    mut record: Record,
    choice: &Choice,
    end: Option<Instant>,
) -> Record {
    let begun = Instant::now();
    let (mut cases, skipped) = match suite.cases(places) {
        Ok(cases) => cases,
        Err(why) => return left_out(record, &why),
    };
    record.skipped = skipped;
    if let Some(part) = &choice.case {
        cases.retain(|case| case.contains(part.as_str()));
    }
    record.all_cases = cases.len();
    if choice.quick {
        cases = suite.quick(&cases);
    }
    if let Some(number) = choice.at_most {
        cases = suite::spread(&cases, number);
    }
    // Spread over the suite as well, so that what time leaves out is nowhere in particular.
    if end.is_some() || choice.from > 0 {
        cases = scattered(&cases);
    }
    cases.drain(..choice.from.min(cases.len()));
    let cold_files = suite.cold_files(places);
    let next = AtomicUsize::new(0);
    let shared = Mutex::new(record);
    std::thread::scope(|scope| {
        for _ in 0..choice.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(number) else { return };
                    if end.is_some_and(|end| Instant::now() > end) {
                        shared.lock().unwrap_or_else(PoisonError::into_inner).out_of_time += 1;
                        continue;
                    }
                    let runs = run_case(places, suite, case, number, choice, &cold_files);
                    let mut record = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    match runs {
                        Ok(runs) => record.add(case, &runs),
                        Err(why) => record.skipped.push(format!("{case}: {why}")),
                    }
                }
            });
        }
    });
    let mut record = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if record.cases > 0 && record.passed_alone == 0 {
        eprintln!("SKIPPED {}: no case passes alone", suite.name);
        record.skipped.push("all of it: no case passes alone, so nothing was tested".to_owned());
    }
    record.seconds = begun.elapsed().as_secs();
    record
}

/// Every case once, neighbours far apart.
fn scattered(cases: &[String]) -> Vec<String> {
    const STEP: usize = 16;
    (0..STEP).flat_map(|first| cases.iter().skip(first).step_by(STEP).cloned()).collect()
}

/// The four runs of a case, and, where they differ, as many alone as it is given to turn out flaky.
fn run_case(
    places: &Places,
    suite: &Suite,
    case: &str,
    number: usize,
    choice: &Choice,
    cold_files: &[PathBuf],
) -> Result<Runs, String> {
    let directory = places.scratch.join("runs").join(format!("{}-{number}", suite.name));
    let outputs = places.scratch.join("logs").join(&suite.name).join(case.replace('/', "_"));
    fs::create_dir_all(&outputs).map_err(|error| format!("{}: {error}", outputs.display()))?;
    let mut runs = Runs::default();
    let once = |runs: &mut Runs, way: Way, is_cold: bool| -> Result<(), String> {
        if is_cold {
            cold::evict_files(cold_files).map_err(|error| error.to_string())?;
        }
        let (side, side_name) = match way {
            Way::Alone => (&mut runs.alone, "alone"),
            Way::AloneWithVariables => (&mut runs.with_variables, "variables"),
            Way::Under | Way::UnderActive => (&mut runs.under, "under"),
        };
        let temperature = if is_cold { "cold" } else { "warm" };
        let output = outputs.join(format!("{side_name}-{temperature}-{}", side.len()));
        let directory = directory.clone();
        let (verdicts, speculated) = Run { places, suite, case, way, directory, output }.carry_out()?;
        side.push(verdicts);
        runs.speculated += usize::from(speculated);
        Ok(())
    };
    once(&mut runs, Way::Alone, false)?;
    if runs.is_too_long() {
        return Err(format!("longer than {} seconds alone", suite.limit().as_secs()));
    }
    once(&mut runs, Way::UnderActive, false)?;
    once(&mut runs, Way::Alone, true)?;
    once(&mut runs, Way::Under, true)?;
    let differs = runs.is_different();
    for again in 0..choice.again {
        if !runs.is_different() {
            break;
        }
        if again < 2 {
            once(&mut runs, Way::AloneWithVariables, again % 2 == 1)?;
        }
        once(&mut runs, Way::Alone, again % 2 == 1)?;
    }
    if differs && runs.is_different() {
        // How often, which says where to look.
        for _ in 0..2 {
            once(&mut runs, Way::UnderActive, false)?;
            once(&mut runs, Way::Under, true)?;
        }
    } else {
        let _ = fs::remove_dir_all(&outputs);
    }
    Ok(runs)
}
