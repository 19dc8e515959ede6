//! The `runahead` command: takes the command line apart, says what went wrong. No policy lives here.
//!
//! `main` is the C library's: the standard library's start-up changes what a command inherits (`host::program`).
#![cfg_attr(not(test), no_main)]

use clap::{Args, Parser, Subcommand};
use runahead_abi::environment::again;
use runahead_host::{DoctorSubject, Limits, Options};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

#[global_allocator]
static ALLOCATOR: runahead_host::Allocator = runahead_host::Allocator;

#[derive(Parser)]
#[command(
    name = "runahead",
    version,
    about = "Programs that wait for the disk stop waiting, without being changed.",
    long_about = "Runs a command with a speculative copy of it ahead, which turns the reads it meets \
                  into prefetches. The command's results are the same as without it."
)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Run a command, with its reads prefetched
    Run(Run),
    /// Run a command without speculation, and say how much of its time it waits for the disk
    Stat(Stat),
    /// Say what Runahead can do here, and what is in the way
    Doctor(Doctor),
    /// Let the programs of all users share the devices, not only those of each user (never ends)
    Daemon {
        /// Where to listen [$RUNAHEAD_DAEMON, or /run/runahead/view.socket]
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
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
}

#[derive(Args)]
struct Run {
    /// Print what was gained and what was wasted, on stderr, after the command
    #[arg(long)]
    stats: bool,
    /// Write the same as JSON to FILE
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Watch only: intercept reads, but never speculate
    #[arg(long)]
    no_speculate: bool,
    /// At most so many bytes prefetched and not yet used (K, M, G) [$RUNAHEAD_MAX_MEMORY, or what is free]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_memory: Option<u64>,
    /// At most so many prefetches in flight [$RUNAHEAD_MAX_INFLIGHT, or what the device serves at once]
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(1..))]
    max_inflight: Option<u32>,
    /// At most so many bytes prefetched a second (K, M, G) [$RUNAHEAD_MAX_BANDWIDTH, or no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_bandwidth: Option<u64>,
    /// Say why a command runs plainly, when it does
    #[arg(long, short)]
    verbose: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn daemon(socket: Option<PathBuf>) -> u8 {
    let Err(error) = runahead_host::daemon(socket.as_deref());
    eprintln!("runahead: cannot serve the view: {error}");
    USAGE
}

fn prepare(places: Vec<PathBuf>, output: Option<PathBuf>) -> u8 {
    match runahead_host::prepare(places, output) {
        Ok(said) => {
            println!("{said}");
            0
        }
        Err(why) => {
            eprintln!("runahead: {why}");
            1
        }
    }
}

impl Run {
    /// What stands on the command line, else in the environment, where it means the same to the library.
    fn limits(&self) -> Limits {
        let limits = Limits::from_environment();
        Limits {
            memory: self.max_memory.unwrap_or(limits.memory),
            in_flight: self.max_inflight.unwrap_or(limits.in_flight),
            bandwidth: self.max_bandwidth.unwrap_or(limits.bandwidth),
            ..limits
        }
    }
}

/// A number of bytes from the command line.
fn bytes(text: &str) -> Result<u64, String> {
    runahead_host::size(text).ok_or_else(|| format!("'{text}' is no size such as 4096, 64K, 512M or 2G"))
}

#[derive(Args)]
struct Stat {
    /// Write the counts as JSON to FILE
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Args)]
#[command(
    after_help = "Exit status: 0 nothing is in the way, 1 something limits what is gained, 2 something stops it.\n\
                        docs/doctor.md says what each line means."
)]
struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A folder or file with what is to be read [the current folder]
    #[arg(conflicts_with = "command")]
    path: Option<PathBuf>,
    /// A command that is to be helped; it is looked at and not run
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Doctor {
    fn examine(self, allowed: Result<(), String>) -> u8 {
        let subject = match self.command.is_empty() {
            true => DoctorSubject::Place(self.path.unwrap_or_else(|| ".".into())),
            false => DoctorSubject::Command(self.command),
        };
        runahead_host::doctor(subject, allowed, self.json)
    }
}

/// Exit status for what is wrong with our own command line; the command was not started.
const USAGE: u8 = 125;

/// Arguments among which the command's name surely is, since our own options are few. Only these are taken
/// apart: a command may have ten thousand, and clap takes a microsecond for each.
const LOOKED_AT: usize = 64;

/// Our options that have a value as a word of its own.
const WITH_VALUES: [&str; 4] = ["--report", "--max-memory", "--max-inflight", "--max-bandwidth"];

/// Where the command begins, as far as a look tells that takes no memory: for the last resort, before the command line is
/// taken apart. None: there is no command, or the command line is wrong.
fn place_of_command<'a>(words: impl Iterator<Item = &'a std::ffi::OsStr>) -> Option<usize> {
    let mut words = words.enumerate().skip(1);
    match words.next()?.1.to_str()? {
        "run" | "stat" => {}
        word if word.as_bytes() == again::WORD.to_bytes() => return Some(again::FIRST),
        _ => return None,
    }
    while let Some((place, word)) = words.next() {
        match word.to_str() {
            Some("--") => return words.next().map(|(place, _)| place),
            Some(word) if WITH_VALUES.contains(&word) => drop(words.next()),
            Some(word) if word.starts_with('-') && word != "-" => {}
            _ => return Some(place),
        }
    }
    None
}

/// Called by the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn main(_count: i32, _arguments: *const *const std::ffi::c_char) -> i32 {
    if is_again() {
        runahead_host::set_file(again::FILE, again::DESCRIPTOR);
    }
    let allowed = runahead_host::check_filters();
    // What may not be done is not done for the last resort's sake either.
    if allowed.is_ok()
        && let Some(place) = place_of_command(runahead_host::arguments())
    {
        runahead_host::arm_last_resort(place, false);
    }
    let status = if is_again() { run_again(allowed) } else { act(allowed) };
    let _ = std::io::stdout().flush();
    status.into()
}

/// Whether an agent has started us in place of a program that was executed already.
fn is_again() -> bool {
    let mut words = runahead_host::arguments().skip(1);
    let word = words.next();
    word.is_some_and(|word| word.as_encoded_bytes() == again::WORD.to_bytes())
        && words.nth(again::FIRST - 2).is_some()
}

/// Executes such a program, with a run of its own.
#[inline(never)]
fn run_again(allowed: Result<(), String>) -> u8 {
    runahead_host::fill_standard_descriptors();
    let options = Options { limits: Limits::from_environment(), again: true, ..Options::default() };
    let failure = runahead_host::run(options, again::FIRST, allowed);
    eprintln!("runahead: {}", failure.message());
    failure.status()
}

/// Does what the command line says; returns the exit status. A command has taken this process over by then, if it could.
///
/// Not a part of `main`: should there be no room for all that this has on the stack, the last resort is armed by then.
#[inline(never)]
fn act(allowed: Result<(), String>) -> u8 {
    let may_arm = allowed.is_ok();
    runahead_host::fill_standard_descriptors();
    let looked_at = runahead_host::arguments().take(LOOKED_AT).count();
    let arguments = match Arguments::try_parse_from(runahead_host::arguments().take(LOOKED_AT)) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { USAGE } else { 0 };
        }
    };
    let (options, command) = match arguments.action {
        Action::Run(run) => (
            Options {
                limits: run.limits(),
                stats: run.stats,
                report: run.report,
                no_speculate: run.no_speculate,
                verbose: run.verbose,
                again: false,
            },
            run.command,
        ),
        Action::Stat(stat) => {
            let options =
                Options { stats: true, report: stat.report, no_speculate: true, ..Options::default() };
            (options, stat.command)
        }
        Action::Doctor(doctor) => return doctor.examine(allowed),
        Action::Daemon { socket } => return daemon(socket),
        Action::Prepare { output, places } => return prepare(places, output),
    };
    let first = looked_at - command.len();
    if may_arm {
        runahead_host::arm_last_resort(first, options.verbose || options.stats);
    }
    let failure = runahead_host::run(options, first, allowed);
    eprintln!("runahead: {}", failure.message());
    failure.status()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::ffi::OsStr;

    #[test]
    fn the_command_is_found_where_clap_finds_it() {
        for line in [
            "runahead run true",
            "runahead run -- true",
            "runahead run --stats -v true --report x",
            "runahead run --report x --max-memory 1M -- true a",
            "runahead run --report=x --max-inflight 3 --max-bandwidth=1G cat - --",
            "runahead stat --report x cat",
            "runahead run - a",
        ] {
            let words: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
            let command = match Arguments::try_parse_from(&words).unwrap().action {
                Action::Run(run) => run.command,
                Action::Stat(stat) => stat.command,
                Action::Doctor(_) | Action::Daemon { .. } | Action::Prepare { .. } => unreachable!(),
            };
            let place = place_of_command(words.iter().copied());
            assert_eq!(place, Some(words.len() - command.len()), "{line}");
        }
        for line in [
            "runahead",
            "runahead run",
            "runahead daemon --socket x",
            "runahead doctor a",
            "runahead run --report x",
        ] {
            assert_eq!(place_of_command(line.split(' ').map(OsStr::new)), None, "{line}");
        }
    }

    #[test]
    fn options_with_values_are_all_known() {
        for action in ["run", "stat"] {
            let command = Arguments::command();
            let action = command.find_subcommand(action).unwrap();
            let options = action.get_arguments().filter(|one| one.get_action().takes_values());
            for long in options.filter_map(|one| one.get_long()) {
                assert!(WITH_VALUES.contains(&format!("--{long}").as_str()), "--{long}");
            }
        }
    }
}
