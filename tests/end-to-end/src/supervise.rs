//! One run of one command, watched by a process that does nothing else.
//!
//! The supervisor is the *subreaper* of the run: whatever loses its parent becomes its child. When
//! the command has ended it therefore knows, without looking at names, whether anything was left
//! behind, and it ends what is left after [`GRACE`]. Being single-threaded it may fork and change
//! its mount namespace, which the test runner, with its threads, may not.
//!
//! The harness writes a [`RunSpec`] as JSON, starts the binary `supervisor` with it, and reads the
//! [`RunReport`] back; the captured output lies in files beside it.

use crate::scribble::Scribbler;
use crate::tree;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{OpenptyResult, openpty};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2, setsid};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long after the end of the program Runahead may take to disappear.
pub const GRACE: Duration = Duration::from_secs(2);

/// How often the supervisor looks around: often enough that a helper process which lives for the
/// length of one cold read of some hundred files is seen, seldom enough to cost little.
const TICK: Duration = Duration::from_millis(5);

/// What the run's standard input is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Stdin {
    Null,
    Closed,
    /// A file, relative to the run's directory.
    File(PathBuf),
    /// A pipe that holds these bytes (at most 60,000, so that they fit) and has no writer.
    Pipe(Vec<u8>),
}

/// What is done to Runahead's helper processes while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Harm {
    /// They are ended.
    Kill,
    /// Garbage is written over the memory that they share.
    Scribble,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Torture {
    pub harm: Harm,
    pub seed: u64,
    /// The pause before each time is chosen evenly from 0 to this.
    pub longest_pause_us: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunSpec {
    pub argv: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub directory: PathBuf,
    pub stdin: Stdin,
    /// Standard input, output and error are a terminal of the run's own; `Stdin::Pipe` is typed.
    pub terminal: bool,
    pub timeout_ms: u64,
    /// The run's TMPDIR; bound over /tmp too where that is allowed. Nothing may stay in it.
    pub temporary: PathBuf,
    pub runtime: PathBuf,
    pub torture: Option<Torture>,
    /// Where the captured output goes.
    pub stdout: PathBuf,
    pub stderr: PathBuf,
    pub report: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    Exited(i32),
    Signalled { signal: i32, core: bool },
    TimedOut { processes: Vec<String> },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunReport {
    pub ending: Ending,
    /// Signals that stopped the program on its way.
    pub stops: Vec<i32>,
    pub elapsed_ms: u64,
    /// How long after the end of the program its output and error had no writer any more.
    pub output_closed_after_ms: u64,
    /// Processes that were still there after [`GRACE`].
    pub left_processes: Vec<String>,
    /// Files in the run's temporary directories after [`GRACE`].
    pub left_files: Vec<String>,
    /// Names of Runahead's own processes that were seen during the run, without doubles.
    pub helpers_seen: Vec<String>,
    pub helpers_killed: u32,
    /// How often garbage was written over shared memory.
    pub scribbles: u32,
    /// How long the last process of the run outlived the program.
    pub gone_after_ms: u64,
}

/// A process name that belongs to Runahead itself.
fn is_helper(name: &str) -> bool {
    name.starts_with("runahead")
}

/// All processes below `root`, from the kernel's own lists of children.
fn descendants(root: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(process) = open.pop() {
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else {
            continue;
        };
        for task in tasks.flatten() {
            let Ok(children) = fs::read_to_string(task.path().join("children")) else {
                continue;
            };
            for child in children.split_whitespace().filter_map(|word| word.parse().ok()) {
                found.push(Pid::from_raw(child));
                open.push(Pid::from_raw(child));
            }
        }
    }
    found
}

fn name_of(process: Pid) -> String {
    fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Name and state, for people. The state matters: a helper that hangs in the kernel looks different
/// from one that was forgotten.
fn describe(process: Pid) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim().to_owned();
    format!("{} ({})", field("Name:"), field("State:"))
}

/// A directory for `/dev/shm` and `/tmp` that only this run sees. Needs privilege; without it the
/// run shares the machine's, and only its TMPDIR is looked at.
fn isolate(spec: &RunSpec) -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), Some("mode=1777"))?;
    // Not where that would hide the run's own files, or the command under test.
    let below_tmp = |word: &String| Path::new(word).starts_with("/tmp");
    let variables = spec.environment.iter().map(|(_, value)| value);
    if !spec.directory.starts_with("/tmp") && !spec.argv.iter().chain(variables).any(below_tmp) {
        mount(Some(&spec.temporary), "/tmp", none, MsFlags::MS_BIND, none)?;
    }
    Ok(())
}

/// The run's standard streams: what the command gets, and where the supervisor reads.
struct Streams {
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
    read_stdout: OwnedFd,
    read_stderr: Option<OwnedFd>,
}

fn streams(spec: &RunSpec) -> io::Result<Streams> {
    if spec.terminal {
        let OpenptyResult { master, slave } = openpty(None, None)?;
        // The kernel would echo what is typed in its own time, between the program's lines.
        let mut modes = tcgetattr(&slave)?;
        modes.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(&slave, SetArg::TCSANOW, &modes)?;
        if let Stdin::Pipe(keys) = &spec.stdin {
            File::from(master.try_clone()?).write_all(keys)?;
        }
        return Ok(Streams {
            stdin: Some(slave.try_clone()?),
            stdout: slave.try_clone()?,
            stderr: slave,
            read_stdout: master,
            read_stderr: None,
        });
    }
    let stdin = match &spec.stdin {
        Stdin::Closed => None,
        Stdin::Null => Some(File::open("/dev/null")?.into()),
        Stdin::File(path) => Some(File::open(spec.directory.join(path))?.into()),
        Stdin::Pipe(bytes) => {
            assert!(bytes.len() <= 60_000, "a pipe's standard input has to fit into the pipe");
            let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
            File::from(write).write_all(bytes)?;
            Some(read)
        }
    };
    let (read_stdout, stdout) = pipe2(OFlag::O_CLOEXEC)?;
    let (read_stderr, stderr) = pipe2(OFlag::O_CLOEXEC)?;
    Ok(Streams { stdin, stdout, stderr, read_stdout, read_stderr: Some(read_stderr) })
}

/// The child's side: becomes the command, or says why not on its standard error.
fn become_command(spec: &RunSpec, streams: Streams) -> ! {
    let attempt = || -> io::Result<()> {
        setsid()?;
        dup2_stdout(&streams.stdout)?;
        dup2_stderr(&streams.stderr)?;
        match &streams.stdin {
            Some(stdin) => dup2_stdin(stdin)?,
            // SAFETY: descriptor 0 belongs to nobody in this process after the fork.
            None => unsafe { libc::close(0) == 0 }.then_some(()).ok_or_else(io::Error::last_os_error)?,
        }
        if spec.terminal {
            // SAFETY: the call takes no pointer; descriptor 0 is the terminal.
            unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) };
        }
        // The streams' own copies must not reach the command. Nothing here may be added to that
        // was opened by the harness: std opens everything with O_CLOEXEC.
        for descriptor in streams.stdin.iter().chain([&streams.stdout, &streams.stderr]) {
            if descriptor.as_raw_fd() > 2 {
                // SAFETY: closing on exec a descriptor of our own.
                unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
            }
        }
        // The command must start with what a shell would give it. Rust ignores SIGPIPE, nohup SIGHUP, a background
        // job of a script SIGINT; who starts the suite must not decide what its programs do.
        for signal in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP))
        {
            // SAFETY: resets to the default disposition, no handler is involved.
            unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }?;
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        std::env::set_current_dir(&spec.directory)?;
        Ok(())
    };
    let text = |word: &String| CString::new(word.as_str()).expect("no NUL in arguments");
    let failure = match attempt() {
        Err(error) => error.to_string(),
        Ok(()) => {
            let argv: Vec<CString> = spec.argv.iter().map(text).collect();
            let environment: Vec<CString> =
                spec.environment.iter().map(|(name, value)| text(&format!("{name}={value}"))).collect();
            nix::unistd::execvpe(&argv[0], &argv, &environment).unwrap_err().to_string()
        }
    };
    eprintln!("supervisor: cannot start {}: {failure}", spec.argv[0]);
    // 119 is no code of Runahead's contract, of a shell or of a guest program.
    std::process::exit(119)
}

/// Xorshift: the kills only have to fall anywhere, repeatably.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

/// Reads what has arrived. `None` once there is no writer any more (a terminal says EIO).
fn drain(stream: &mut Option<File>, into: &mut File, readable: bool) -> io::Result<()> {
    if let Some(file) = stream
        && readable
    {
        let mut buffer = [0; 65536];
        match file.read(&mut buffer) {
            Ok(0) => *stream = None,
            Ok(length) => into.write_all(&buffer[..length])?,
            Err(error) if error.raw_os_error() == Some(libc::EIO) => *stream = None,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

struct Watch<'a> {
    spec: &'a RunSpec,
    program: Pid,
    started: Instant,
    ending: Option<(Ending, Instant)>,
    stops: Vec<i32>,
    /// No child is left to wait for.
    childless: bool,
    helpers_seen: Vec<String>,
    helpers_killed: u32,
    scribbler: Option<Scribbler>,
    scribbles: u32,
    next_harm: Instant,
    dice: Dice,
}

impl Watch<'_> {
    /// Takes up every change of state among the children, our own and inherited.
    fn reap(&mut self) {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED | WaitPidFlag::__WALL;
        loop {
            let status = match waitpid(Pid::from_raw(-1), Some(flags)) {
                Ok(WaitStatus::StillAlive) => return,
                Err(Errno::ECHILD) => {
                    self.childless = true;
                    return;
                }
                Err(Errno::EINTR) => continue,
                Err(error) => panic!("waiting for the run's processes: {error}"),
                Ok(status) => status,
            };
            if status.pid() != Some(self.program) {
                continue;
            }
            let ending = match status {
                WaitStatus::Exited(_, code) => Ending::Exited(code),
                WaitStatus::Signaled(_, signal, core) => Ending::Signalled { signal: signal as i32, core },
                WaitStatus::Stopped(_, signal) => {
                    self.stops.push(signal as i32);
                    std::thread::sleep(4 * TICK);
                    let _ = kill(self.program, Signal::SIGCONT);
                    continue;
                }
                _ => continue,
            };
            self.ending = Some((ending, Instant::now()));
        }
    }

    /// Notes Runahead's own processes and, as torture, does them harm. The program itself carries the
    /// command's name `runahead` until its exec, and must not be hit.
    fn look_at_helpers(&mut self) {
        let torture = self.spec.torture.as_ref().filter(|_| Instant::now() >= self.next_harm);
        let harm = torture.map(|torture| torture.harm);
        for process in descendants(Pid::this()) {
            let name = name_of(process);
            if process == self.program || !is_helper(&name) {
                continue;
            }
            if !self.helpers_seen.contains(&name) {
                self.helpers_seen.push(name);
            }
            match harm {
                Some(Harm::Kill) if kill(process, Signal::SIGKILL).is_ok() => self.helpers_killed += 1,
                Some(Harm::Scribble) if self.scribbler.is_none() => {
                    self.scribbler = Scribbler::find(process);
                }
                _ => {}
            }
        }
        if let (Some(Harm::Scribble), Some(scribbler)) = (harm, &self.scribbler) {
            scribbler.scribble(|| self.dice.next());
            self.scribbles += 1;
        }
        if let Some(torture) = torture {
            let pause = self.dice.below(torture.longest_pause_us);
            self.next_harm = Instant::now() + Duration::from_micros(pause);
        }
    }

    /// Ends whatever is left of the run and reports it. Only descendants can be hit.
    fn sweep(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for _ in 0..100 {
            self.reap();
            let processes = descendants(Pid::this());
            if processes.is_empty() {
                break;
            }
            for process in processes {
                if left.len() < 50 {
                    left.push(describe(process));
                }
                let _ = kill(process, Signal::SIGKILL);
            }
            std::thread::sleep(TICK);
        }
        left.sort();
        left.dedup();
        left
    }
}

/// Runs the command to its end. An error here is the harness's, not the command's.
pub fn supervise(spec: &RunSpec) -> io::Result<RunReport> {
    // SAFETY: takes no pointers.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let isolated = isolate(spec).is_ok();
    let streams = streams(spec)?;
    let mut stdout = File::create(&spec.stdout)?;
    let mut stderr = File::create(&spec.stderr)?;
    let started = Instant::now();
    // SAFETY: this process has a single thread.
    let program = match unsafe { fork() }? {
        ForkResult::Child => become_command(spec, streams),
        ForkResult::Parent { child } => child,
    };
    let mut output = Some(File::from(streams.read_stdout));
    let mut error = streams.read_stderr.map(File::from);
    drop((streams.stdin, streams.stdout, streams.stderr));

    let seed = spec.torture.as_ref().map_or(1, |torture| torture.seed | 1);
    let mut watch = Watch {
        spec,
        program,
        started,
        ending: None,
        stops: Vec::new(),
        childless: false,
        helpers_seen: Vec::new(),
        helpers_killed: 0,
        scribbler: None,
        scribbles: 0,
        next_harm: started,
        dice: Dice(seed),
    };
    let mut closed = None;
    let mut gone = None;
    let mut next_look = started;
    loop {
        let tick = if spec.torture.is_some() { Duration::from_millis(1) } else { TICK };
        wait_for_output(&mut output, &mut error, &mut stdout, &mut stderr, tick)?;
        watch.reap();
        if Instant::now() >= next_look {
            watch.look_at_helpers();
            next_look = Instant::now() + tick;
        }
        let now = Instant::now();
        if output.is_none() && error.is_none() && closed.is_none() {
            closed = Some(now);
        }
        if watch.childless && gone.is_none() {
            gone = Some(now);
        }
        match &watch.ending {
            Some(_) if closed.is_some() && gone.is_some() => break,
            Some((_, ended)) if now - *ended > GRACE => break,
            None if now - started > Duration::from_millis(spec.timeout_ms) => {
                let processes = watch.sweep();
                watch.ending = Some((Ending::TimedOut { processes }, now));
                break;
            }
            _ => {}
        }
    }
    let left_processes = watch.sweep();
    let (ending, ended) = watch.ending.take().expect("the loop ends with an ending");
    let after = |moment: Option<Instant>| {
        moment.unwrap_or_else(Instant::now).saturating_duration_since(ended).as_millis() as u64
    };
    Ok(RunReport {
        ending,
        stops: watch.stops,
        elapsed_ms: (ended - watch.started).as_millis() as u64,
        output_closed_after_ms: after(closed),
        left_processes,
        left_files: left_files(spec, isolated),
        helpers_seen: watch.helpers_seen,
        helpers_killed: watch.helpers_killed,
        scribbles: watch.scribbles,
        gone_after_ms: after(gone),
    })
}

/// Waits at most a tick for output, and takes what there is.
fn wait_for_output(
    output: &mut Option<File>,
    error: &mut Option<File>,
    stdout: &mut File,
    stderr: &mut File,
    tick: Duration,
) -> io::Result<()> {
    let mut fds: Vec<PollFd> = [&*output, &*error]
        .into_iter()
        .flatten()
        .map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN))
        .collect();
    match poll(&mut fds, PollTimeout::from(tick.as_millis() as u16)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = fds
        .iter()
        .map(|fd| fd.revents().is_some_and(|events| !events.is_empty()))
        .collect::<Vec<_>>()
        .into_iter();
    let output_ready = output.is_some() && ready.next() == Some(true);
    let error_ready = error.is_some() && ready.next() == Some(true);
    drain(output, stdout, output_ready)?;
    drain(error, stderr, error_ready)
}

/// Everything in the run's private temporary directories, given [`GRACE`] to disappear.
fn left_files(spec: &RunSpec, isolated: bool) -> Vec<String> {
    let list = || {
        let mut found = tree::names(&spec.temporary);
        found.extend(tree::names(&spec.runtime));
        if isolated {
            found.extend(tree::names(Path::new("/dev/shm")));
        }
        found
    };
    let deadline = Instant::now() + GRACE;
    loop {
        let found = list();
        if found.is_empty() || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(TICK);
    }
}
