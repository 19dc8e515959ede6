//! `runahead-bench`: what `./x bench` runs. The ideas are in the library's pages.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use runahead_bench::configuration::{Builds, Subject};
use runahead_bench::results::Record;
use runahead_bench::session::{self, Options};
use runahead_bench::{
    compare, configuration, data, demo, experiment, guard, machine, neighbour, packages, plan, report,
    results, table, workload,
};

/// Times as many runs as were asked for, at most: runs that differ by a tenth, as those of half a second on two
/// processors do, are sure after 40 or, where those of their base differ too, 80; the default is 5.
const MOST_RUNS: usize = 20;

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
    /// Runs at most of a configuration whose ratio is not sure to 2% with --runs [twenty times as many, as long as
    /// the further ones take less than 5 minutes; fewer than three are never added to]
    #[arg(long)]
    most_runs: Option<usize>,
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
    /// The runahead that copies the program at each sync [target/forked/release/runahead]
    #[arg(long)]
    forked: Option<PathBuf>,
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
        "builds" => print!("{}", builds_wanted(&arguments, rest)?),
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
        "demo" => print!("{}", demo::demo(&checkout, builds(&checkout, &arguments)?)?),
        _ => measure(&checkout, &arguments)?,
    }
    Ok(())
}

fn list() -> String {
    format!(
        "workloads and lists of them:\n{}\nexperiments of the papers [their disks]; 'experiments' are all of them:\n{}\ndisks:\n{}\n\
         configurations:\n{}\ndata sets:\n{}",
        workload::known(),
        experiment::known(),
        slowdisk::profile::list(),
        configuration::known(),
        data::SETS.iter().map(|set| format!("  {:<12} {}\n", set.name, set.about)).collect::<String>()
    )
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
        for name in plan::workload_names(&others) {
            for workload in workload::by_name(&name)? {
                needs.extend(workload.needs);
                sets.extend(workload.data);
            }
        }
    }
    for set in sets {
        needs.extend(data::needs(data::by_name(set)?));
    }
    Ok(needs)
}

/// Of the named files and commits, or all results that there are, be it none. What cannot be read is an error.
fn stored(checkout: &Path, names: &[String]) -> Result<Vec<Record>> {
    let directory = checkout.join("bench/results");
    if names.is_empty() {
        return results::all(&directory);
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

fn builds(checkout: &Path, arguments: &Arguments) -> Result<Builds> {
    let named = |told: &Option<PathBuf>, usual: &str| match told {
        Some(told) => std::path::absolute(told),
        None => Ok(checkout.join(usual)),
    };
    Ok(Builds {
        usual: named(&arguments.subject, "target/release/runahead")?,
        forked: named(&arguments.forked, "target/forked/release/runahead")?,
    })
}

/// What `./x bench` has to build beside the usual, for measuring `names`: a line for each.
fn builds_wanted(arguments: &Arguments, names: &[String]) -> Result<&'static str> {
    let parts = plan::plan(names, &asked(arguments))?;
    let mut ways = parts.iter().flat_map(|part| &part.jobs).flat_map(|job| &job.configurations);
    let forked = arguments.forked.is_none() && ways.any(|way| way.subject == Subject::Forked);
    Ok(if forked { "forked\n" } else { "" })
}

fn asked(arguments: &Arguments) -> plan::Asked<'_> {
    plan::Asked {
        profiles: &arguments.profile,
        configurations: &arguments.configurations,
        pattern: arguments.command.as_deref(),
    }
}

fn measure(checkout: &Path, arguments: &Arguments) -> Result<()> {
    let runs = if arguments.smoke { arguments.runs.min(2) } else { arguments.runs };
    ensure!(runs > 0, "--runs must be at least 1");
    let parts = plan::plan(&arguments.names, &asked(arguments))?;
    let commit = machine::commit(checkout);
    let results = results_file(checkout, arguments, &commit);
    let mut records = Vec::new();
    let mut failed = Vec::new();
    for part in parts {
        let part = match arguments.resume && results.exists() {
            true => part.without(&results::read(&results)?, &commit, runs, arguments.patience),
            false => part,
        };
        if part.jobs.is_empty() {
            continue;
        }
        let options = Options {
            checkout: checkout.to_path_buf(),
            builds: builds(checkout, arguments)?,
            profile: part.profile,
            filesystem: arguments.fs.clone(),
            read_ahead_kb: arguments.read_ahead_kb,
            jobs: part.jobs,
            runs,
            most_runs: arguments.most_runs.unwrap_or(MOST_RUNS * runs),
            replays: if arguments.smoke { arguments.replays.min(1) } else { arguments.replays },
            results: results.clone(),
            patience: Duration::from_secs(arguments.patience),
        };
        // Other disks are still worth measuring on; the command fails at its end.
        match session::run(&options) {
            Ok(outcome) => {
                records.extend(outcome.records);
                failed.extend(outcome.failed);
            }
            Err(error) => {
                eprintln!("bench: on the disk '{}': {error:#}", options.profile.name);
                failed.push(format!("on the disk '{}': {error:#}", options.profile.name));
            }
        }
    }
    if arguments.resume && results.exists() {
        records = results::read(&results)?;
    }
    print!("{}{}", table::show(&records), neighbour::show(&records));
    for experiment in plan::experiments(&arguments.names) {
        print!("{}", experiment.table(&records, &arguments.profile).show());
    }
    if !records.is_empty() {
        eprintln!("bench: results are in {}", results.display());
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// Where results go: as told; when resuming, to the commit's latest file, be it of another day; else to
/// today's.
fn results_file(checkout: &Path, arguments: &Arguments, commit: &str) -> PathBuf {
    let directory = checkout.join("bench/results");
    let end = format!("-{}.jsonl", commit.replace('+', "-changed"));
    let earlier = || -> Option<PathBuf> {
        let files = std::fs::read_dir(&directory).ok()?.flatten().map(|entry| entry.path());
        files.filter(|file| file.to_string_lossy().ends_with(&end)).max()
    };
    let told = arguments.results.clone().or_else(|| earlier().filter(|_| arguments.resume));
    told.unwrap_or_else(|| directory.join(machine::date(machine::now()) + &end))
}
