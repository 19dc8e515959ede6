//! `runahead-bench`: what `./x bench` runs. The ideas are in the library's pages.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use runahead_bench::configuration::{self, Configuration};
use runahead_bench::session::{self, Options};
use runahead_bench::workload::{self, Workload};
use runahead_bench::{compare, data, demo, guard, machine, report, results, table};
use slowdisk::profile::Profile;

/// Measure programs alone and under Runahead
#[derive(Parser)]
#[command(
    name = "./x bench",
    version,
    after_help = "Commands in place of NAME: list, data SET..., compare A B, report [A...], clean, demo"
)]
struct Arguments {
    /// Workloads or lists of them; `list` shows all
    #[arg(required = true)]
    names: Vec<String>,
    /// Disks, separated by commas
    #[arg(long, default_value = "native", value_delimiter = ',')]
    profile: Vec<String>,
    /// Runs of each configuration
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Only workloads with this in their name or description
    #[arg(long)]
    command: Option<String>,
    /// Configurations, separated by commas; `list` shows all
    #[arg(long, default_value = "alone,runahead,alone-warm,runahead-warm", value_delimiter = ',')]
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
        "packages" => println!("{}", session::missing_packages(&workloads(rest, None)?).join("\n")),
        "compare" => {
            ensure!(rest.len() == 2, "compare wants two commits or files of results: ./x bench compare A B");
            let directory = checkout.join("bench/results");
            print!(
                "{}",
                compare::show(&results::find(&directory, &rest[0])?, &results::find(&directory, &rest[1])?)
            );
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
        "workloads and lists of them:\n{}\ndisks:\n{}\nconfigurations:\n{}\ndata sets:\n{}",
        workload::known(),
        slowdisk::profile::list(),
        configuration::known(),
        data::SETS.iter().map(|set| format!("  {:<10} {}\n", set.name, set.about)).collect::<String>()
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

fn make_data(checkout: &Path, names: &[String]) -> Result<()> {
    let root = data::root(checkout);
    let all: Vec<String> = data::SETS.iter().map(|set| set.name.to_string()).collect();
    for name in if names.is_empty() { &all } else { names } {
        data::ensure_made(&root, data::by_name(name)?)?;
    }
    Ok(())
}

/// The workloads that the file holds no record of, for this commit and disk.
fn missing(
    checkout: &Path,
    workloads: &[&'static Workload],
    profile: &str,
    results: &Path,
) -> Result<Vec<&'static Workload>> {
    if !results.exists() {
        return Ok(workloads.to_vec());
    }
    let (done, commit) = (results::read(results)?, machine::commit(checkout));
    let is_done = |workload: &&&Workload| {
        done.iter().any(|record| {
            record.workload == workload.name && record.disk.profile == profile && record.commit == commit
        })
    };
    Ok(workloads.iter().filter(|workload| !is_done(workload)).copied().collect())
}

/// Of the named files and commits, or of all results that there are.
fn report(checkout: &Path, names: &[String]) -> Result<()> {
    let directory = checkout.join("bench/results");
    let everything = [String::new()];
    let mut records = Vec::new();
    for name in if names.is_empty() { &everything[..] } else { names } {
        records.extend(results::find(&directory, name)?);
    }
    let out = checkout.join("bench/report");
    report::write(&records, &out)?;
    println!("{}", out.join("index.html").display());
    Ok(())
}

fn subject(checkout: &Path, arguments: &Arguments) -> Result<PathBuf> {
    Ok(match &arguments.subject {
        Some(subject) => std::path::absolute(subject)?,
        None => checkout.join("target/release/runahead"),
    })
}

fn measure(checkout: &Path, arguments: &Arguments) -> Result<()> {
    let workloads = workloads(&arguments.names, arguments.command.as_deref())?;
    let profiles = arguments.profile.iter().map(|name| Profile::by_name(name)).collect::<Result<Vec<_>>>()?;
    let configurations = arguments
        .configurations
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
            true => missing(checkout, &workloads, &profile.name, &results)?,
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
    print!("{}", table::show(&records));
    eprintln!("bench: results are in {}", results.display());
    Ok(())
}
