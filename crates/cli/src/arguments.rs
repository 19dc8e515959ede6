//! The command line: what clap takes apart, and what manual pages and completions are made of
//! (`crates/manual`).

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueHint};
use runahead_host::{Detail, size};
use std::ffi::OsString;
use std::path::PathBuf;

/// With the commit, and what this was built for.
const VERSION: &str = env!("RUNAHEAD_VERSION");

#[derive(Parser)]
#[command(
    name = "runahead",
    version = VERSION,
    about = "Programs that wait for the disk stop waiting, without being changed.",
    long_about = "Runs a command with a speculative copy of it ahead, which turns the reads it meets \
                  into prefetches. The command's results are the same as without it."
)]
pub struct Arguments {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Subcommand)]
pub enum Action {
    /// Run a command, with its reads prefetched
    Run(Run),
    /// Run a command without speculation, and say how much of its time it waits for the disk
    Stat(Stat),
    /// Run a command, and write into a profile what it wants from the disk, to be taken along
    Record(Record),
    /// Ask for what a profile has, without running anything
    Warm(Warm),
    /// Look at profiles (record) and change them
    Profile {
        #[command(subcommand)]
        action: Profile,
    },
    /// Say what Runahead can do here, and what is in the way
    Doctor(Doctor),
    /// Make a page of a report, to be looked at in a browser
    Report {
        /// The page [standard output]
        #[arg(long, short, value_name = "PAGE")]
        output: Option<PathBuf>,
        /// What --trace has written in the same run: the page shows it over time
        #[arg(long, value_name = "TRACE", value_hint = ValueHint::FilePath)]
        trace: Option<PathBuf>,
        /// What --report has written
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        report: PathBuf,
    },
    /// Let the programs of all users share the devices, not only those of each user (never ends)
    Daemon {
        /// Where to listen [$RUNAHEAD_DAEMON, or /run/runahead/view.socket]
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Have every program run beside one host, without `run` before it
    Enable(Enable),
    /// Take back what `enable` has done
    Disable {
        #[command(flatten)]
        whom: Whom,
    },
    /// Say whether `enable` is in force, and for what
    Status,
    /// Serve all programs of this user's environment (what `enable` writes calls it at each login)
    Serve {
        /// As this process, not as one of its own
        #[arg(long)]
        foreground: bool,
        /// Until another host has ended, if there is one
        #[arg(long, requires = "foreground")]
        wait: bool,
    },
    /// Look at the machine's programs and libraries now, so that no user's first run has to
    Prepare {
        /// Keep it in FILE [beside the agent, where every run looks]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Files and folders [the usual places of programs and libraries]
        #[arg(value_name = "PATH")]
        places: Vec<PathBuf>,
    },
    /// Forget what earlier runs wanted from the disk
    Forget {
        /// Only the runs of COMMAND [all]
        #[arg(value_name = "COMMAND", value_hint = ValueHint::CommandName)]
        command: Option<OsString>,
    },
}

#[derive(Args)]
pub struct Run {
    /// Say what waited, what was gained and why not more, on stderr, after the command; with =full all counts
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "words",
          value_parser = PossibleValuesParser::new(["words", "full"]).map(|how| detail(&how)))]
    pub stats: Option<Detail>,
    /// Write all counts as JSON to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
    /// Write a timeline to FILE, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Say now and then how far it is, on stderr, if that is a terminal
    #[arg(long)]
    pub progress: bool,
    /// Watch only: intercept reads, but never speculate
    #[arg(long)]
    pub no_speculate: bool,
    /// At most so many bytes prefetched and not yet used (K, M, G) [$RUNAHEAD_MAX_MEMORY, or what is free]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_memory: Option<u64>,
    /// At most so many prefetches in flight [$RUNAHEAD_MAX_INFLIGHT, or what the device serves at once]
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_inflight: Option<u32>,
    /// At most so many bytes prefetched a second (K, M, G) [$RUNAHEAD_MAX_BANDWIDTH, or no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_bandwidth: Option<u64>,
    /// Look from the start at what earlier runs of the command wanted from the disk, also where the command
    /// is cached [$RUNAHEAD_REMEMBER=on]
    #[arg(long, overrides_with = "no_remember")]
    pub remember: bool,
    /// Neither begin with what earlier runs of the command wanted from the disk, nor remember what this one
    /// wants [$RUNAHEAD_REMEMBER=off]
    #[arg(long)]
    pub no_remember: bool,
    /// Begin with what a profile has (record)
    #[arg(long, value_name = "PROFILE", value_hint = ValueHint::FilePath)]
    pub profile: Option<PathBuf>,
    /// What the profile has below OLD is below NEW here; may be said more than once
    #[arg(long, value_name = "OLD=NEW", requires = "profile", value_parser = prefix())]
    pub prefix: Vec<Prefix>,
    /// Say why a command runs plainly, when it does
    #[arg(long, short)]
    pub verbose: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// A number of bytes from the command line.
fn bytes(text: &str) -> Result<u64, String> {
    size(text).ok_or_else(|| format!("'{text}' is no size such as 4096, 64K, 512M or 2G"))
}

/// Old folder and new.
pub type Prefix = (Vec<u8>, Vec<u8>);

fn prefix() -> impl TypedValueParser<Value = Prefix> {
    OsStringValueParser::new().try_map(|text| runahead_host::profiles::prefix(&text))
}

#[derive(Args)]
pub struct Record {
    /// The profile, made if there is none
    #[arg(long, short, value_name = "PROFILE", required = true, value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Args)]
#[command(
    after_help = "Exit status: 0 all was asked for, 1 a part of it, 2 nothing, since the profile is of no use."
)]
pub struct Warm {
    /// What the profile has below OLD is below NEW here; may be said more than once
    #[arg(long, value_name = "OLD=NEW", value_parser = prefix())]
    pub prefix: Vec<Prefix>,
    /// At most so many bytes (K, M, G) [a quarter of the memory that is free]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_memory: Option<u64>,
    /// What record has written
    #[arg(value_name = "PROFILE", value_hint = ValueHint::FilePath)]
    pub profile: PathBuf,
}

#[derive(Subcommand)]
pub enum Profile {
    /// Say what is in a profile
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// What record has written
        #[arg(value_name = "PROFILE", value_hint = ValueHint::FilePath)]
        profile: PathBuf,
    },
    /// Make one profile of several
    Merge {
        /// The profile that is made
        #[arg(long, short, value_name = "PROFILE", required = true, value_hint = ValueHint::FilePath)]
        output: PathBuf,
        /// What record has written
        #[arg(value_name = "PROFILES", required = true, value_hint = ValueHint::FilePath)]
        profiles: Vec<PathBuf>,
    },
    /// Keep a part of a profile
    Trim {
        /// The profile that is made [the same]
        #[arg(long, short, value_name = "PROFILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,
        /// Keep what is below FOLDER only; may be said more than once
        #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        only: Vec<PathBuf>,
        /// Keep nothing that is below FOLDER; may be said more than once
        #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        except: Vec<PathBuf>,
        /// Keep the first so many bytes of what was wanted (K, M, G)
        #[arg(long, value_name = "BYTES", value_parser = bytes)]
        max_bytes: Option<u64>,
        /// What record has written
        #[arg(value_name = "PROFILE", value_hint = ValueHint::FilePath)]
        profile: PathBuf,
    },
    /// Say which files of a profile would be asked for here, have changed or are missing; opens none
    #[command(
        after_help = "Exit status: 0 all would be asked for, 1 a part of it, 2 the profile is of no use."
    )]
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// What the profile has below OLD is below NEW here; may be said more than once
        #[arg(long, value_name = "OLD=NEW", value_parser = prefix())]
        prefix: Vec<Prefix>,
        /// What record has written
        #[arg(value_name = "PROFILE", value_hint = ValueHint::FilePath)]
        profile: PathBuf,
    },
}

#[derive(Args)]
pub struct Whom {
    /// For this user [this is so if nothing is said]
    #[arg(long)]
    pub user: bool,
    /// For everybody (the superuser's to say)
    #[arg(long, conflicts_with = "user")]
    pub system: bool,
}

#[derive(Args)]
pub struct Enable {
    #[command(flatten)]
    pub whom: Whom,
    /// Programs of these names only, such as 'python*'; may be said more than once
    #[arg(long, value_name = "PATTERN", conflicts_with = "except")]
    pub only: Vec<String>,
    /// No programs of these names, besides those that are left out anyway; may be said more than once
    #[arg(long, value_name = "PATTERN")]
    pub except: Vec<String>,
    /// Change nothing, and print the variables that a program's environment has to have, one a line
    #[arg(long, conflicts_with_all = ["user", "system", "only", "except"])]
    pub print_env: bool,
}

#[derive(Args)]
pub struct Stat {
    /// How much is said: words, or all counts
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "words",
          value_parser = PossibleValuesParser::new(["words", "full"]).map(|how| detail(&how)))]
    pub stats: Option<Detail>,
    /// Write the counts as JSON to FILE
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Args)]
#[command(
    after_help = "Exit status: 0 nothing is in the way, 1 something limits what is gained, 2 something stops it.\n\
                        docs/doctor.md says what each line means."
)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A folder or file with what is to be read [the current folder]
    #[arg(conflicts_with = "command")]
    pub path: Option<PathBuf>,
    /// A command that is to be helped; it is looked at and not run
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

fn detail(how: &str) -> Detail {
    if how == "full" { Detail::Full } else { Detail::Words }
}
