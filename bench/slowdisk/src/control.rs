//! How the commands talk to the daemon: one line of JSON each way over a socket in the run directory.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::pacer::Pacer;

/// How long a daemon that lives may take to answer. It does no I/O of its own, so a second without an
/// answer means that it is stopped or gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// What may be asked of the daemon; each is answered with its [`Status`] afterwards.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    Status,
    /// Send answers so many nanoseconds early (see [`crate::pacer`]).
    Overhead(u64),
    /// Keep answers back, or give them at once.
    Paced(bool),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Status {
    pub requests: u64,
    pub bytes: u64,
    pub overhead_ns: u64,
    pub paced: bool,
    /// Processor time of the daemon so far.
    pub processor_ns: u64,
}

/// Answers on `listener` for as long as the process lives.
pub fn answer(listener: &UnixListener, pacer: &Pacer) {
    for stream in listener.incoming().flatten() {
        // A client that goes away in the middle concerns nobody else.
        let _ = answer_one(&stream, pacer);
    }
}

fn answer_one(mut stream: &UnixStream, pacer: &Pacer) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match serde_json::from_str(&line)? {
        Ask::Status => {}
        Ask::Overhead(nanoseconds) => pacer.set_overhead(nanoseconds),
        Ask::Paced(paced) => pacer.set_paced(paced),
    }
    let (requests, bytes) = pacer.served();
    let status = Status {
        requests,
        bytes,
        overhead_ns: pacer.overhead_ns(),
        paced: pacer.paced(),
        processor_ns: processor_ns(),
    };
    writeln!(stream, "{}", serde_json::to_string(&status)?)?;
    Ok(())
}

/// Asks the daemon behind `socket`.
pub fn ask(socket: &Path, what: Ask) -> Result<Status> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("no daemon answers at {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    writeln!(stream, "{}", serde_json::to_string(&what)?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).context("the daemon gave no answer in time")?;
    serde_json::from_str(&line).context("the daemon's answer makes no sense")
}

fn processor_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of our own that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
