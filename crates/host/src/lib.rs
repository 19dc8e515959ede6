//! The host: the process beside the programs of one `runahead run`.
//!
//! `runahead run` makes a [`session`], forks an [`attendant`] off (an orphan of its own session, so that the
//! command has no child that it did not start), and becomes the command. The attendant becomes the host
//! when it is first called. The host sleeps on the
//! session's doorbell. It starts a speculator for each process that attaches ([`supervise`]), analyses
//! executable files for agents that meet a new one, lets the page faults of those be watched that map large files
//! ([`faults`]), and gathers the counts of processes that end
//! ([`counts`]), which become the [`report`]. While there are speculators it tells them what they may ask
//! for (`limits`), and ends those for a while that are not worth their memory (`memory`).
//!
//! The host is the speculators' parent: they die with it, and nobody else waits for them.

mod apart;
mod attendant;
mod checks;
mod child;
mod confined;
pub mod counts;
mod disks;
mod doctor;
pub mod enabled;
mod ends;
mod executions;
mod faults;
mod filter;
mod futex;
mod installation;
mod last_resort;
pub mod launch;
mod limits;
mod memory;
mod names;
mod own_files;
mod processes;
pub mod profiles;
mod program;
mod progress;
mod reading;
mod reasons;
mod remembered;
pub mod report;
mod rights;
mod room;
mod run;
mod session;
mod standing;
mod start_files;
mod supervise;
mod trace;
mod unasked;
mod watchers;

pub use attendant::attend;
pub use doctor::{Subject as DoctorSubject, examine as doctor};
pub use last_resort::{Allocator, arm as arm_last_resort};
pub use launch::{Beside, Failure, Options, check_filters, run};
pub use own_files::ask_for_ourselves;
pub use program::{arguments, become_tools, fill_standard_descriptors, set_file, take_name};
pub use progress::{SayHowFar, begin as progress};
pub use remembered::{Remember, forget};
pub use report::Detail;
pub use runahead_prefetcher::Options as Limits;
pub use runahead_prefetcher::limits::size;
pub use runahead_remembered::profile::Prefixes;
pub use standing::{STATUS_BYTES, STATUS_LENGTH, STATUS_TEXT};
pub use trace::TraceTo;

/// Serves a run, in a process of its own that has been forked off, until the command and everybody who
/// attached have ended.
pub fn serve(run: run::Run) -> ! {
    apart::leave_the_terminal(&run, None);
    let gate = run.session.gate();
    // Serves from the start, whether it does or not.
    let begins = std::sync::atomic::AtomicBool::new(false);
    let run = attendant::open_sites(run, &begins, |cold| cold.ask_for_libraries(gate, || false));
    match supervise::Host::new(run) {
        Some(host) => host.serve(),
        None => std::process::exit(1),
    }
}

/// Serves the run that this process was executed for, by an attendant. Returns only if it was not.
pub fn serve_as_told() {
    let words: Vec<&std::ffi::OsStr> = program::arguments().collect();
    let address = std::env::var_os(runahead_abi::environment::SESSION).unwrap_or_default();
    // SAFETY: the attendant has left us the descriptors.
    let run = unsafe { run::Run::from_words(&words, &address) };
    if let Some(host) = run.and_then(supervise::Host::new) {
        host.serve();
    }
}

/// Analyses executable files for all who use this installation, so that their first runs need not: those
/// below `places`, or where programs and libraries usually are. Returns what there is to say, or why it
/// failed.
pub fn prepare(places: Vec<std::path::PathBuf>, to: Option<std::path::PathBuf>) -> Result<String, String> {
    const USUAL: [&str; 11] = [
        "/lib",
        "/lib64",
        "/usr/lib",
        "/usr/lib64",
        "/usr/libexec",
        "/usr/local/lib",
        "/bin",
        "/sbin",
        "/usr/bin",
        "/usr/sbin",
        "/usr/local/bin",
    ];
    let to = match to {
        Some(to) => to,
        None => installation::Installation::find().map_err(|error| error.to_string())?.known,
    };
    let places = if places.is_empty() { USUAL.map(Into::into).into() } else { places };
    let prepared = runahead_sites::prepare(&places, &to)
        .map_err(|error| format!("cannot prepare {}: {error}", to.display()))?;
    Ok(format!(
        "{} programs and libraries looked at, {} kept in {}",
        prepared.files,
        prepared.kept,
        to.display()
    ))
}

/// Makes a page of a report, and of a trace besides, by a helper that this process becomes. Returns only why
/// it cannot.
pub fn make_page(
    report: &std::path::Path,
    page: Option<&std::path::Path>,
    trace: Option<&std::path::Path>,
) -> String {
    use std::os::unix::process::CommandExt;
    let teller = match installation::Installation::find() {
        Ok(found) => found.teller,
        Err(error) => return error.to_string(),
    };
    let mut command = std::process::Command::new(&teller);
    if let Some(trace) = trace {
        command.arg("--trace").arg(trace);
    }
    let error = command.arg("page").arg(report).args(page).exec();
    format!("{}: {error}", teller.display())
}

/// Hands the view of all users out, at `socket` or the usual place, until it is ended.
pub fn daemon(socket: Option<&std::path::Path>) -> std::io::Result<std::convert::Infallible> {
    // Whoever asks may be gone before he is answered.
    // SAFETY: ignoring needs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let usual = runahead_prefetcher::daemon::socket();
    runahead_prefetcher::daemon::serve(socket.unwrap_or(&usual))
}
