//! Looking at something in a process of its own, with a limit of time: a device may hang, and a filter of
//! system calls may end whoever asks.
//!
//! Called by the doctor alone, which has one thread. The child holds nothing of the doctor's standard
//! descriptors, so nobody who reads its output waits for a child that hangs.

use super::line::{Line, Verdict, errno};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a look may take.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// How long a child that was ended may take to go.
const LINGERS: Duration = Duration::from_millis(200);

/// What a look says, line by line, so that what came before it hangs is not lost.
pub struct Say(File);

impl Say {
    pub fn line(&mut self, line: &Line) {
        // Nobody is there to tell.
        let _ = self.0.write_all(&encode(line));
    }
}

/// How a look that did not end has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// There could be no child.
    None(i32),
    /// It took too long.
    Silent,
    /// A signal ended it.
    Signal(i32),
}

/// What `look` says within [`PATIENCE`], and if that was not all, a line about `about` that says why.
pub fn apart(about: &str, look: &dyn Fn(&mut Say)) -> Vec<Line> {
    apart_within(PATIENCE, about, "it", look)
}

/// The same with another limit, and of something with a name.
pub fn apart_within(patience: Duration, about: &str, what: &str, look: &dyn Fn(&mut Say)) -> Vec<Line> {
    let (told, failure) = match gather(patience, look) {
        Ok(gathered) => gathered,
        Err(number) => (Vec::new(), Some(Failure::None(number))),
    };
    let mut lines = decode(&told);
    lines.extend(failure.map(|failure| failed(about, what, failure, patience)));
    lines
}

fn failed(about: &str, what: &str, failure: Failure, patience: Duration) -> Line {
    match failure {
        Failure::None(number) => {
            let found = format!("no process can be started to look ({})", errno(number));
            let line = Line::stops(about, found);
            if number == libc::EAGAIN { line.mended_by("ulimit -u unlimited") } else { line }
        }
        Failure::Silent => {
            Line::stops(about, format!("{what} does not answer within {} s", patience.as_secs()))
        }
        Failure::Signal(libc::SIGSYS) => {
            Line::stops(about, "a filter of system calls (seccomp) ends whoever looks at it")
        }
        Failure::Signal(signal) => Line::stops(about, format!("signal {signal} ended the look at it")),
    }
}

fn gather(patience: Duration, look: &dyn Fn(&mut Say)) -> Result<(Vec<u8>, Option<Failure>), i32> {
    let (from, to) = pipe_with(PipeFlags::CLOEXEC).map_err(rustix::io::Errno::raw_os_error)?;
    // SAFETY: one thread; the child goes on with a copy of all memory, and ends itself.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN)),
        0 => {
            drop(from);
            be_alone();
            look(&mut Say(File::from(to)));
            // SAFETY: ends the child without running anybody's exit handlers.
            unsafe { libc::_exit(0) }
        }
        child => {
            drop(to);
            let (told, ended) = hear(from, patience);
            Ok((told, end(child, ended)))
        }
    }
}

/// Nothing that somebody else waits for is held, and nobody is survived.
fn be_alone() {
    // SAFETY: descriptors and signals of this process; the path is terminated.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for standard in 0..3 {
            if nothing < 0 || libc::dup2(nothing, standard) < 0 {
                libc::close(standard);
            }
        }
    }
}

/// What comes, and whether that was all.
fn hear(from: OwnedFd, patience: Duration) -> (Vec<u8>, bool) {
    let end = Instant::now() + patience;
    let mut from = File::from(from);
    let (mut told, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left =
            rustix::event::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&left)) {
            Ok(0) => return (told, false),
            Ok(_) => match from.read(&mut piece) {
                Ok(0) | Err(_) => return (told, true),
                Ok(length) => told.extend(piece.iter().take(length)),
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return (told, false),
        }
    }
}

/// Sees the child off. One that cannot be ended now is left to the kernel, which was told to.
fn end(child: libc::pid_t, ended: bool) -> Option<Failure> {
    if !ended {
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let (mut status, since) = (0, Instant::now());
    loop {
        // SAFETY: the status is ours.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if since.elapsed() < LINGERS => std::thread::sleep(Duration::from_millis(1)),
            _ => break,
        }
    }
    match ended {
        false => Some(Failure::Silent),
        true => libc::WIFSIGNALED(status).then(|| Failure::Signal(libc::WTERMSIG(status))),
    }
}

/// Ends a line's field, and a line: neither is in a text of ours.
const FIELD: u8 = 0x1f;
const RECORD: u8 = 0x1e;

fn encode(line: &Line) -> Vec<u8> {
    let mut record = Vec::new();
    for field in [line.verdict.word(), &line.about, &line.found, line.remedy.as_deref().unwrap_or("")] {
        record.extend(field.bytes().map(|byte| if matches!(byte, FIELD | RECORD) { b'?' } else { byte }));
        record.push(FIELD);
    }
    record.push(RECORD);
    record
}

/// Half a line is none.
fn decode(told: &[u8]) -> Vec<Line> {
    let mut records: Vec<&[u8]> = told.split(|&byte| byte == RECORD).collect();
    records.pop();
    let line = |record: &[u8]| {
        let mut fields = record.split(|&byte| byte == FIELD).map(|field| String::from_utf8_lossy(field));
        let word = fields.next()?;
        let all = [Verdict::Ok, Verdict::Limits, Verdict::Stops];
        let verdict = all.into_iter().find(|verdict| verdict.word() == word)?;
        let (about, found, remedy) = (fields.next()?.into(), fields.next()?.into(), fields.next()?);
        Some(Line { about, verdict, found, remedy: (!remedy.is_empty()).then(|| remedy.into()) })
    };
    records.into_iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_through_as_they_are() {
        let lines = [
            Line::ok("a", "b\nc"),
            Line::limits("page faults", "").mended_by("sysctl x=1"),
            Line::stops("x", "y"),
        ];
        let mut bytes: Vec<u8> = lines.iter().flat_map(encode).collect();
        assert_eq!(decode(&bytes), lines);
        bytes.pop();
        assert_eq!(decode(&bytes), lines[..2], "half a line");
    }

    #[test]
    fn failures_say_what_happened() {
        let said = |failure| failed("x", "/mnt", failure, PATIENCE);
        assert_eq!(said(Failure::Silent), Line::stops("x", "/mnt does not answer within 3 s"));
        assert_eq!(said(Failure::None(libc::EAGAIN)).remedy.as_deref(), Some("ulimit -u unlimited"));
        assert_eq!(said(Failure::None(libc::EMFILE)).remedy, None);
        assert!(said(Failure::Signal(libc::SIGSYS)).found.contains("seccomp"));
        assert!(said(Failure::Signal(9)).found.contains("signal 9"));
    }
}
