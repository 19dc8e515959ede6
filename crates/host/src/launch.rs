//! `runahead run`: everything from the command line to the command's first instruction.
//!
//! The process that the user started becomes the command itself (exec), so pid, parent, job control
//! and exit status are the command's own. The host is forked off twice before that: the command must
//! not find a child that it did not start.

use crate::installation::Installation;
use crate::program::Program;
use crate::session::Session;
use crate::supervise::{Host, Wishes};
use runahead_abi::environment::{SESSION, SWITCH, flags};
use runahead_abi::session::SESSION_BYTES;
use runahead_sites::SiteFile;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Print the counts on stderr after the run.
    pub stats: bool,
    /// Write the counts as JSON to this file after the run.
    pub report: Option<PathBuf>,
    /// Intercept and compare, but do not speculate.
    pub no_speculate: bool,
    /// Say why something runs plainly.
    pub verbose: bool,
}

/// Why the command was not started. The variants are the documented exit statuses.
#[derive(Debug)]
pub enum Failure {
    /// 125: our own affair; nothing was started.
    Ours(String),
    /// 126: found, but cannot be executed.
    NotExecutable(String),
    /// 127: not found.
    NotFound(String),
}

impl Failure {
    pub fn status(&self) -> u8 {
        match self {
            Failure::Ours(_) => 125,
            Failure::NotExecutable(_) => 126,
            Failure::NotFound(_) => 127,
        }
    }

    pub fn message(&self) -> &str {
        match self {
            Failure::Ours(m) | Failure::NotExecutable(m) | Failure::NotFound(m) => m,
        }
    }
}

/// Becomes `command` (name and arguments), with Runahead beside it. Returns only on failure.
pub fn run(options: Options, command: &[OsString]) -> Failure {
    let Some((name, arguments)) = command.split_first() else {
        return Failure::Ours("no command given".into());
    };
    let report_file = match &options.report {
        None => None,
        Some(path) => match File::create(path) {
            Ok(file) => Some(file),
            Err(e) => {
                return Failure::Ours(format!(
                    "cannot write the report to {}: {e}; nothing was started",
                    path.display()
                ));
            }
        },
    };
    let mut program = Program::new(name, arguments);
    if std::env::var_os(SWITCH).as_deref() == Some(OsStr::new("off")) {
        return became(name, &program.become_it());
    }
    let wishes = Wishes { stats: options.stats, report: report_file };
    match prepare(&options, wishes, command) {
        Ok(variables) => {
            program.set_variables(variables);
        }
        Err(reason) => {
            if options.verbose || options.stats {
                eprintln!("runahead: running the command plainly: {reason}");
            }
        }
    }
    became(name, &program.become_it())
}

/// What a failed exec means.
fn became(name: &OsStr, error: &io::Error) -> Failure {
    let name = name.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::NotFound(format!("{name}: command not found")),
        _ => Failure::NotExecutable(format!("{name}: cannot be executed: {error}")),
    }
}

/// Makes the session and starts the host; returns the variables that put the agent into the command.
fn prepare(
    options: &Options,
    wishes: Wishes,
    command: &[OsString],
) -> Result<Vec<(OsString, OsString)>, String> {
    let installation = Installation::find().map_err(|e| e.to_string())?;
    // Where the user has no cache directory of his own: one for this run, which the host removes.
    let fallback = std::env::temp_dir().join(format!("runahead-{}", std::process::id()));
    let sites = SiteFile::open_in_cache(&fallback).map_err(|e| e.to_string())?;
    let passing = sites.path().starts_with(&fallback).then_some(fallback);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if limit.is_some_and(|bytes| bytes < SESSION_BYTES as u64) {
        return Err("the limit on file sizes (ulimit -f) leaves no room for shared memory".into());
    }
    let session = Session::create().map_err(|e| format!("no shared memory for the session: {e}"))?;
    let descriptor = session.descriptor.as_raw_fd();
    let site_path = sites.path().as_os_str().to_owned();
    let mut flag_bits = 0;
    if options.no_speculate {
        flag_bits |= flags::NO_SPECULATION;
    }
    if options.stats || options.report.is_some() {
        flag_bits |= flags::REPORT;
    }
    session.header().main_process.store(std::process::id(), Ordering::Relaxed);
    let host = Host::new(
        session,
        sites.path().to_owned(),
        passing.clone(),
        installation.clone(),
        wishes,
        command.to_vec(),
    );
    let host_process = start_host(host).map_err(|e| {
        if let Some(directory) = &passing {
            let _ = std::fs::remove_dir_all(directory);
        }
        format!("cannot start the host: {e}")
    })?;
    let mut value = OsString::from(format!("{host_process}:{descriptor}:{flag_bits}:{}:", own_filters()));
    value.push(site_path);
    let mut preload = installation.agent.into_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    Ok(vec![("LD_PRELOAD".into(), preload), (SESSION.into(), value)])
}

/// How many seccomp filters this process is under.
fn own_filters() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    number("Seccomp_filters:").or_else(|| number("Seccomp:")).unwrap_or(0)
}

/// Forks the host off; returns its process id.
fn start_host(host: Host) -> io::Result<u32> {
    let (read_end, write_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: this process has one thread, so the child may go on as it pleases.
    // The go-between's processor time must not count as a child's of the command: the kernel leaves out
    // the children of those who ignore SIGCHLD.
    let ignoring = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    // SAFETY: this process has one thread, so the child may go on as it pleases.
    let forked = unsafe { libc::fork() };
    match forked {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: back to what it was: the host waits for its speculators.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
            // SAFETY: as above.
            match unsafe { libc::fork() } {
                -1 => std::process::exit(1),
                0 => {
                    drop(read_end);
                    let _ = rustix::io::write(&write_end, &std::process::id().to_le_bytes());
                    drop(write_end);
                    host.serve()
                }
                // SAFETY: ends the go-between without running anybody's exit handlers.
                _ => unsafe { libc::_exit(0) },
            }
        }
        between => {
            drop(write_end);
            let mut bytes = [0u8; 4];
            let got = rustix::io::read(&read_end, &mut bytes);
            let mut status = 0;
            // SAFETY: waits until our own child is gone (it reports nothing: ECHILD), then puts the
            // disposition back that we were started with.
            unsafe {
                libc::waitpid(between, &mut status, 0);
                libc::signal(libc::SIGCHLD, ignoring);
            }
            match got {
                Ok(4) => Ok(u32::from_le_bytes(bytes)),
                _ => Err(io::Error::other("the second fork failed")),
            }
        }
    }
}
