//! `runahead-bench`: what `./x bench` runs. The ideas are in the library's pages.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use runahead_bench::configuration::{self, Configuration};
use runahead_bench::experiment::{self, Experiment};
use runahead_bench::results::Record;
use runahead_bench::session::{self, Options};
use runahead_bench::workload::{self, Workload};
use runahead_bench::{compare, data, demo, guard, machine, neighbour, packages, report, results, table};
use slowdisk::profile::Profile;

/// Measure programs alone and under Runahead
#[derive(Parser)]
#[command(
    name = "./x bench",
    version,
    after_help = "Experiments of the papers in place of NAME: table4 and others; `list` shows all\n\
                  Commands in place of NAME: list, data SET..., show EXPERIMENT [A...], compare A [B], \
                  report [A...], clean, demo"
)]
struct Arguments {
    /// Workloads or lists of them; `list` shows all
    #[arg(required = true)]
    names: Vec<String>,
    /// Disks, separated by commas [native; the experiment's own]
    #[arg(long, value_delimiter = ',')]
    profile: Vec<String>,
    /// Runs of each configuration
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Only workloads with this in their name or description
    #[arg(long)]
    command: Option<String>,
    /// Configurations, separated by commas; `list` shows all
    /// [alone,runahead,alone-warm,runahead-warm; the experiment's own]
    #[arg(long, value_delimiter = ',')]
    configurations: Vec<String>,
    /// The runahead to test [target/release/runahead]
    #[arg(long)]
    subject: Option<PathBuf>,
    /// Replays of the same requests at the device's best depth, for the limit
    #[arg(long, default_value_t = 3)]
    replays: usize,
    /// File system on emulated disks: ext4, xfs or btrfs
    #[arg(long, default_value = "ext4")]
    fs: String,
    /// The kernel's read-ahead on the disk
    #[arg(long, default_value_t = 128)]
    read_ahead_kb: u64,
    /// Seconds after which a run is ended
    #[arg(long, default_value_t = 900)]
    patience: u64,
    /// A quick look: 2 runs, 1 replay
    #[arg(long)]
    smoke: bool,
    /// Leave out what these results already hold for this commit: after an interruption
    #[arg(long)]
    resume: bool,
    /// Where results go [bench/results/DATE-COMMIT.jsonl]
    #[arg(long)]
    results: Option<PathBuf>,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    // Two of our own processes are this program under another name; neither is for people to start.
    let outcome = match (words.next().as_deref(), words.next()) {
        (Some(guard::COMMAND), None) => guard::guard(),
        (Some("serve"), Some(disk)) => slowdisk::serve::serve(&disk),
        _ => run(Arguments::parse()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Two folders above `target/release/runahead-bench`.
fn checkout() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find our own program")?;
    let found = program.ancestors().find(|above| above.join("bench/workloads").is_dir());
    found.map(Path::to_path_buf).with_context(|| {
        format!("{} does not lie in a checkout of Runahead; start it with ./x bench", program.display())
    })
}

fn run(arguments: Arguments) -> Result<()> {
    let checkout = checkout()?;
    let rest = &arguments.names[1..];
    match arguments.names[0].as_str() {
        "list" => print!("{}", list()),
        "data" => make_data(&checkout, rest)?,
        "packages" => {
            println!("{}", packages::missing(&needs(rest)?).join("\n"));
        }
        "show" => {
            let (name, sources) =
                rest.split_first().context("show wants an experiment: ./x bench show table4")?;
            let experiment = experiment::named(name)?;
            print!("{}", experiment.table(&stored(&checkout, sources)?, &arguments.profile).show());
        }
        "compare" => {
            let directory = checkout.join("bench/results");
            let find = |name: &String| results::find(&directory, name);
            match rest {
                [one] => print!("{}", compare::agreement(&find(one)?)),
                [a, b] => print!("{}", compare::show(&find(a)?, &find(b)?)),
                _ => bail!(
                    "compare wants one or two commits or files of results: ./x bench compare A B, \
                     or A alone for how well its own repetitions agree"
                ),
            }
        }
        "report" => report(&checkout, rest)?,
        "clean" => {
            let left = guard::clean_up();
            ensure!(left.is_empty(), "still there: {}", left.join(", "));
        }
        "demo" => print!("{}", demo::demo(&checkout, &subject(&checkout, &arguments)?)?),
        _ => measure(&checkout, &arguments)?,
    }
    Ok(())
}

fn list() -> String {
    format!(
        "workloads and lists of them:\n{}\nexperiments of the papers [their disks]:\n{}\ndisks:\n{}\n\
         configurations:\n{}\ndata sets:\n{}",
        workload::known(),
        experiment::known(),
        slowdisk::profile::list(),
        configuration::known(),
        data::SETS.iter().map(|set| format!("  {:<12} {}\n", set.name, set.about)).collect::<String>()
    )
}

fn workloads(names: &[String], pattern: Option<&str>) -> Result<Vec<&'static Workload>> {
    let mut chosen: Vec<&'static Workload> = Vec::new();
    for name in names {
        for workload in workload::by_name(name)? {
            let wanted = pattern
                .is_none_or(|pattern| workload.name.contains(pattern) || workload.about.contains(pattern));
            if wanted && !chosen.iter().any(|other| other.name == workload.name) {
                chosen.push(workload);
            }
        }
    }
    if chosen.is_empty() {
        bail!("no workload is left; these exist:\n{}", workload::known());
    }
    Ok(chosen)
}

/// An experiment's name becomes its workloads'.
fn expand(names: &[String]) -> Vec<String> {
    let of = |name: &String| match experiment::by_name(name) {
        Some(experiment) => experiment.workloads.iter().map(|name| name.to_string()).collect(),
        None => vec![name.clone()],
    };
    names.iter().flat_map(of).collect()
}

/// What workloads, lists, experiments and data sets of these names need, the workloads' data included.
fn needs(names: &[String]) -> Result<Vec<(&'static str, &'static str)>> {
    let (sets, others): (Vec<_>, Vec<_>) = names
        .iter()
        .cloned()
        .partition(|name| data::by_name(name).is_ok() && workload::by_name(name).is_err());
    let mut sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let mut needs = Vec::new();
    if !others.is_empty() {
        for workload in workloads(&expand(&others), None)? {
            needs.extend(workload.needs);
            sets.extend(workload.data);
        }
    }
    for set in sets {
        needs.extend(data::needs(data::by_name(set)?));
    }
    Ok(needs)
}

/// Of the named files and commits, or all results that there are, be it none.
fn stored(checkout: &Path, names: &[String]) -> Result<Vec<Record>> {
    let directory = checkout.join("bench/results");
    if names.is_empty() {
        return Ok(results::find(&directory, "").unwrap_or_default());
    }
    let mut records = Vec::new();
    for name in names {
        records.extend(results::find(&directory, name)?);
    }
    Ok(records)
}

fn make_data(checkout: &Path, names: &[String]) -> Result<()> {
    let root = data::root(checkout);
    let all: Vec<String> = data::SETS.iter().map(|set| set.name.to_string()).collect();
    for name in if names.is_empty() { &all } else { names } {
        data::ensure_made(&root, data::by_name(name)?)?;
    }
    Ok(())
}

/// The workloads that the file holds no complete record of, for this commit and disk.
fn missing(
    checkout: &Path,
    workloads: &[&'static Workload],
    profile: &str,
    configurations: &[Configuration],
    results: &Path,
) -> Result<Vec<&'static Workload>> {
    if !results.exists() {
        return Ok(workloads.to_vec());
    }
    let (done, commit) = (results::read(results)?, machine::commit(checkout));
    let is_done = |workload: &&&Workload| {
        done.iter().any(|record| {
            let known = &record.summary.configurations;
            let mut wanted = configurations.iter().filter(|one| workload.possible(one));
            record.workload == workload.name
                && record.disk.profile == profile
                && record.commit == commit
                && wanted.all(|one| known.contains_key(one.name))
        })
    };
    Ok(workloads.iter().filter(|workload| !is_done(workload)).copied().collect())
}

fn report(checkout: &Path, names: &[String]) -> Result<()> {
    let out = checkout.join("bench/report");
    let records = stored(checkout, names)?;
    ensure!(
        !records.is_empty(),
        "there are no results to report on; measure something first: ./x bench core"
    );
    report::write(&records, &out)?;
    println!("{}", out.join("index.html").display());
    Ok(())
}

/// What was asked for, or the experiments' own.
fn or_own(
    asked: &[String],
    experiments: &[&'static Experiment],
    own: fn(&Experiment) -> &'static [&'static str],
    default: &[&'static str],
) -> Vec<String> {
    if !asked.is_empty() {
        return asked.to_vec();
    }
    let mut names: Vec<String> = Vec::new();
    for name in experiments.iter().flat_map(|experiment| own(experiment)) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_string());
        }
    }
    if names.is_empty() { default.iter().map(|name| name.to_string()).collect() } else { names }
}

fn subject(checkout: &Path, arguments: &Arguments) -> Result<PathBuf> {
    Ok(match &arguments.subject {
        Some(subject) => std::path::absolute(subject)?,
        None => checkout.join("target/release/runahead"),
    })
}

fn measure(checkout: &Path, arguments: &Arguments) -> Result<()> {
    let experiments: Vec<_> = arguments.names.iter().filter_map(|name| experiment::by_name(name)).collect();
    let workloads = workloads(&expand(&arguments.names), arguments.command.as_deref())?;
    let profiles = or_own(&arguments.profile, &experiments, |one| one.profiles, &["native"])
        .iter()
        .map(|name| Profile::by_name(name))
        .collect::<Result<Vec<_>>>()?;
    let usual = ["alone", "runahead", "alone-warm", "runahead-warm"];
    let configurations = or_own(&arguments.configurations, &experiments, |one| one.configurations, &usual)
        .iter()
        .map(|name| configuration::by_name(name))
        .collect::<Result<Vec<Configuration>>>()?;
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    let name = format!(
        "{}-{}.jsonl",
        machine::date(machine::now()),
        machine::commit(checkout).replace('+', "-changed")
    );
    let results = arguments.results.clone().unwrap_or_else(|| checkout.join("bench/results").join(name));
    let mut records = Vec::new();
    for profile in profiles {
        let workloads = match arguments.resume {
            true => missing(checkout, &workloads, &profile.name, &configurations, &results)?,
            false => workloads.clone(),
        };
        if workloads.is_empty() {
            continue;
        }
        records.extend(session::run(&Options {
            checkout: checkout.to_path_buf(),
            subject: subject(checkout, arguments)?,
            profile,
            filesystem: arguments.fs.clone(),
            read_ahead_kb: arguments.read_ahead_kb,
            workloads,
            configurations: configurations.clone(),
            runs: if arguments.smoke { arguments.runs.min(2) } else { arguments.runs },
            replays: if arguments.smoke { arguments.replays.min(1) } else { arguments.replays },
            results: results.clone(),
            patience: Duration::from_secs(arguments.patience),
        })?);
    }
    if arguments.resume {
        records = results::read(&results)?;
    }
    print!("{}{}", table::show(&records), neighbour::show(&records));
    for experiment in experiments {
        print!("{}", experiment.table(&records, &arguments.profile).show());
    }
    eprintln!("bench: results are in {}", results.display());
    Ok(())
}
