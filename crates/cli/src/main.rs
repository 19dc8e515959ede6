//! The `runahead` command: takes the command line apart, says what went wrong. No policy lives here.

use clap::{Args, Parser, Subcommand};
use runahead_host::{Limits, Options};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

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
    /// Let the programs of all users share the devices, not only those of each user (never ends)
    Daemon {
        /// Where to listen [$RUNAHEAD_DAEMON, or /run/runahead/view.socket]
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
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

fn daemon(socket: Option<PathBuf>) -> ExitCode {
    let Err(error) = runahead_host::daemon(socket.as_deref());
    eprintln!("runahead: cannot serve the view: {error}");
    ExitCode::from(USAGE)
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

/// Exit status for what is wrong with our own command line; the command was not started.
const USAGE: u8 = 125;

/// Arguments among which the command's name surely is, since our own options are few. Only these are taken
/// apart: a command may have ten thousand, and clap takes a microsecond for each.
const LOOKED_AT: usize = 64;

fn main() -> ExitCode {
    let looked_at = runahead_host::arguments().take(LOOKED_AT).count();
    let arguments = match Arguments::try_parse_from(runahead_host::arguments().take(LOOKED_AT)) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
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
            },
            run.command,
        ),
        Action::Stat(stat) => {
            let options =
                Options { stats: true, report: stat.report, no_speculate: true, ..Options::default() };
            (options, stat.command)
        }
        Action::Daemon { socket } => return daemon(socket),
    };
    let failure = runahead_host::run(options, looked_at - command.len());
    eprintln!("runahead: {}", failure.message());
    ExitCode::from(failure.status())
}
