//! `slowdisk`: disks of known behaviour, up and down. The ideas are in the library's pages.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use slowdisk::control::{self, Ask};
use slowdisk::profile::Profile;
use slowdisk::setup::{self, Options};
use slowdisk::state::{self, State};
use slowdisk::{check, profile, serve, teardown};

#[derive(Parser)]
#[command(about = "Disks of known behaviour, to measure on", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Set a disk up and say where it is (JSON)
    Up(Up),
    /// Take a disk down, whatever state it is in
    Down {
        /// Its name
        name: Option<String>,
        /// All disks that are set up
        #[arg(long)]
        all: bool,
    },
    /// Measure whether a disk does what its profile says (JSON; exit status 1 if not)
    Check { name: String },
    /// What is set up (JSON)
    Status,
    /// Answer at once (off), to fill the disk with data, or as the profile says (on)
    Pace {
        name: String,
        #[arg(value_parser = ["on", "off"])]
        pace: String,
    },
    /// The profiles that exist
    Profiles,
    /// The daemon behind a disk; `up` starts it
    #[command(hide = true)]
    Serve { name: String },
}

#[derive(clap::Args)]
struct Up {
    /// A profile's name; `slowdisk profiles` lists them
    profile: String,
    /// Name of this disk [the profile's]
    #[arg(long)]
    name: Option<String>,
    /// Size, with K, M or G
    #[arg(long, default_value = "3G", value_parser = parse_size)]
    size: u64,
    /// Where to mount it: an empty or new directory [one of our own]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// File system on it: ext4, xfs or btrfs
    #[arg(long, default_value = "ext4")]
    fs: String,
    /// The kernel's read-ahead on it; 128 is what most machines have
    #[arg(long, default_value_t = 128)]
    read_ahead_kb: u64,
    /// Another latency, in microseconds (nvme, cloud, net)
    #[arg(long)]
    latency_us: Option<u64>,
    /// Another number of requests served at once (nvme, cloud, net)
    #[arg(long)]
    parallel: Option<usize>,
    /// net: the directory to pass through [a tmpfs of our own]
    #[arg(long)]
    source: Option<PathBuf>,
}

fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(number) => (number, &text[number.len()..]),
        None => (text, ""),
    };
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => 0,
    };
    let size = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    // Below 16 MB no file system finds room for its own tables.
    size.filter(|size| *size >= 16 << 20)
        .map(|size| size & !4095)
        .ok_or_else(|| format!("'{text}' is no size of at least 16M, such as 512M or 3G"))
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("slowdisk: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        Command::Up(up) => set_up(up)?,
        Command::Down { name, all } => return take_down(name, all),
        Command::Check { name } => {
            let verdict = check::check(&check::find(&name)?)?;
            print_json(&verdict)?;
            return Ok(if verdict.ok { ExitCode::SUCCESS } else { ExitCode::from(1) });
        }
        Command::Status => {
            let disks = state::names()
                .iter()
                .filter_map(|name| State::load(name).transpose())
                .collect::<Result<Vec<_>>>()?;
            let shown = disks.iter().map(|disk| {
                serde_json::json!({ "disk": disk, "daemon": control::ask(&disk.socket(), Ask::Status).ok() })
            });
            print_json(&shown.collect::<Vec<_>>())?;
        }
        Command::Pace { name, pace } => {
            print_json(&control::ask(&check::find(&name)?.socket(), Ask::Paced(pace == "on"))?)?;
        }
        Command::Profiles => print!("{}", profile::list()),
        Command::Serve { name } => serve::serve(&name)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn set_up(up: Up) -> Result<()> {
    let mut profile = Profile::by_name(&up.profile)?;
    if let Some(microseconds) = up.latency_us {
        profile = profile.with_latency(microseconds * 1000)?;
    }
    if let Some(parallel) = up.parallel {
        profile = profile.with_parallel(parallel)?;
    }
    let options = Options {
        name: up.name.unwrap_or_else(|| profile.name.clone()),
        profile,
        size: up.size,
        directory: up.dir,
        filesystem: up.fs,
        read_ahead_kb: up.read_ahead_kb,
        source: up.source,
        program: std::env::current_exe().context("cannot find our own program")?,
        owner: None,
    };
    print_json(&setup::up(&options)?)
}

fn take_down(name: Option<String>, all: bool) -> Result<ExitCode> {
    let names = match name {
        Some(name) => vec![name],
        None if all => state::names(),
        None => bail!("which disk? These are set up: {} (or say --all)", state::names().join(", ")),
    };
    let mut left = false;
    for name in names {
        let undone = teardown::down(&name)?;
        for line in undone.did {
            println!("{name}: {line}");
        }
        for line in undone.left {
            left = true;
            eprintln!("slowdisk: {name}: still there: {line}");
        }
    }
    Ok(if left { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn print_json(value: &impl serde::Serialize) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}
