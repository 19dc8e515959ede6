//! One run of one case: in directories of its own, with a time limit, and with nothing of it left when
//! it is over.

use crate::compare::{self, ENDING, TIME_LIMIT, Verdicts};
use crate::suite::{Places, Suite};
use runahead_abi::environment::{SESSION, Session, flags};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::chown;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Whom cases of an ordinary user run as.
pub const NOBODY: u32 = 65534;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Alone,
    /// With the variables that Runahead leaves in the environment, of the same lengths: the agent is loaded,
    /// and finds no session.
    AloneWithVariables,
    Under,
    /// With every read looked at: most reads of a run that never stalls would pass uninspected.
    UnderActive,
}

pub struct Run<'a> {
    pub places: &'a Places,
    pub suite: &'a Suite,
    pub case: &'a str,
    pub way: Way,
    /// The directory that is made for it; of the same name in every run of a case.
    pub directory: PathBuf,
    /// Where what it printed is kept.
    pub output: PathBuf,
}

impl Run<'_> {
    /// The verdicts, and whether a speculator was seen.
    pub fn carry_out(&self) -> Result<(Verdicts, bool), String> {
        let told = |error: std::io::Error| format!("{}: {error}", self.directory.display());
        remove(&self.directory);
        // Runahead keeps what it knows of executables there, as it does in a user's life.
        let cache = self.places.scratch.join(format!("cache-{}", self.user()));
        let inside = |name: &str| self.directory.join(name);
        for folder in [cache.clone(), inside("work"), inside("home"), inside("tmp")] {
            fs::create_dir_all(&folder).map_err(told)?;
            chown(&folder, Some(self.user()), Some(self.user())).map_err(told)?;
        }
        let errors = File::create(&self.output).map_err(told)?;
        let output = errors.try_clone().map_err(told)?;
        // With every read looked at, one that reads a byte at a time is several times as slow.
        let patience = if self.way == Way::UnderActive { 4 } else { 1 };
        let seconds = (patience * self.suite.limit().as_secs()).to_string();
        let mut command = Command::new(own_executable()?);
        command
            .args(["supervise", &seconds, &self.user().to_string()])
            .args(self.command()?)
            .current_dir(inside("work"))
            .env_clear()
            .env("CONFORMANCE", &self.places.scratch)
            .env("CONFORMANCE_SUITES", &self.places.suites)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", inside("home"))
            .env("TMPDIR", inside("tmp"))
            .env("XDG_CACHE_HOME", &cache)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        if self.way == Way::AloneWithVariables {
            // The supervisor is a program of ours, which the agent leaves alone for want of a session.
            let agent = runahead()?.with_file_name("librunahead_agent.so");
            command.env("LD_PRELOAD", agent).env(SESSION, format!("123456:3:2:0:{}:5", "0".repeat(32)));
        }
        let status = command.status().map_err(told)?;
        let verdicts = self.verdicts(status)?;
        let speculated = inside(SPECULATED).exists();
        remove(&self.directory);
        Ok((verdicts, speculated))
    }

    /// Who is not root runs everything as himself.
    fn user(&self) -> u32 {
        // SAFETY: takes no pointer.
        let own = unsafe { libc::geteuid() };
        if own == 0 && self.suite.as_nobody() { NOBODY } else { own }
    }

    fn command(&self) -> Result<Vec<OsString>, String> {
        let mut command: Vec<OsString> = Vec::new();
        if matches!(self.way, Way::Under | Way::UnderActive) {
            command.extend([runahead()?.into(), "run".into(), "--".into()]);
        }
        if self.way == Way::UnderActive {
            command.extend([own_executable()?.into(), "active".into()]);
        }
        let call = self.places.call(&self.suite.name, "run");
        command.push(call.get_program().into());
        command.extend(call.get_args().map(OsString::from));
        command.push(self.case.into());
        Ok(command)
    }

    /// What the output says, read plainly.
    fn verdicts(&self, status: ExitStatus) -> Result<Verdicts, String> {
        let read = self
            .places
            .call(&self.suite.name, "verdicts")
            .arg(&self.output)
            .current_dir(self.directory.join("work"))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let mut verdicts = compare::read(&String::from_utf8_lossy(&read.stdout));
        let ending = match (status.code(), status.signal()) {
            (Some(SUPERVISED_TOO_LONG), _) => TIME_LIMIT.to_owned(),
            (Some(code), _) if code > SUPERVISED_SIGNAL => format!("signal {}", code - SUPERVISED_SIGNAL),
            (Some(code), _) => format!("exit {code}"),
            (_, signal) => return Err(format!("the supervisor ended by {signal:?}")),
        };
        verdicts.insert(ENDING.to_owned(), ending);
        Ok(verdicts)
    }
}

/// The command that is tested.
fn runahead() -> Result<PathBuf, String> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/runahead");
    let runahead = std::env::var_os("RUNAHEAD_BIN").map_or_else(built, PathBuf::from);
    fs::canonicalize(&runahead)
        .map_err(|error| format!("{} (./x build makes it): {error}", runahead.display()))
}

fn own_executable() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("our own executable is not to be found: {error}"))
}

/// Directories may have lost their owner's rights.
fn remove(directory: &Path) {
    if fs::remove_dir_all(directory).is_err() && directory.exists() {
        let _ = Command::new("chmod").args(["-R", "u+rwX"]).arg(directory).stderr(Stdio::null()).status();
        let _ = fs::remove_dir_all(directory);
    }
}

/// What a supervisor leaves if a speculator was at work.
const SPECULATED: &str = "speculated";

/// The supervisor's exit statuses: the command's own are at most 128 + 64, those of signals are told
/// apart from a shell's, and both from the time limit.
const SUPERVISED_SIGNAL: i32 = 192;
const SUPERVISED_TOO_LONG: i32 = 192;

/// Runs a command with a time limit in a session of its own, and ends every process that it leaves.
pub fn supervise(limit: Duration, user: u32, command: &[OsString]) -> Result<i32, String> {
    // SAFETY: takes no pointer. Orphans of the command become our children, so that none escapes.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    let (program, arguments) = command.split_first().ok_or("there is no command")?;
    let mut process = Command::new(program);
    process.args(arguments);
    // SAFETY: takes no pointer.
    if user != unsafe { libc::geteuid() } {
        // Told a user, Command clears the groups as well.
        process.uid(user).gid(user);
    }
    // SAFETY: setsid is a system call without memory of ours; nothing is allocated.
    unsafe {
        process.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    let mut child = process.spawn().map_err(|error| format!("{}: {error}", program.to_string_lossy()))?;
    let (status, speculated) = wait(&mut child, limit).map_err(|error| error.to_string())?;
    if speculated {
        // Beside the working directory that we were started in.
        fs::write(Path::new("..").join(SPECULATED), "").map_err(|error| error.to_string())?;
    }
    // Runahead's own processes end by themselves.
    let patience = Instant::now() + Duration::from_millis(500);
    while status.is_some() && !descendants().is_empty() && Instant::now() < patience {
        reap();
        std::thread::sleep(Duration::from_millis(5));
    }
    end_all();
    Ok(match status {
        None => SUPERVISED_TOO_LONG,
        Some(status) => match status.signal() {
            Some(signal) => SUPERVISED_SIGNAL + signal.min(60),
            None => status.code().unwrap_or(0).min(SUPERVISED_SIGNAL - 1),
        },
    })
}

/// How it ended, if within the limit, and whether a speculator was seen.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<(Option<ExitStatus>, bool)> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_micros(500);
    let mut speculated = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((Some(status), speculated));
        }
        if Instant::now() > end {
            return Ok((None, speculated));
        }
        std::thread::sleep(pause);
        speculated = speculated || descendants().into_iter().any(is_speculator);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Waits for what has ended already.
fn reap() {
    // SAFETY: a null status is allowed.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}

fn end_all() {
    for _ in 0..200 {
        reap();
        let left = descendants();
        if left.is_empty() {
            return;
        }
        for process in left {
            // SAFETY: takes no pointer. Only our own descendants are named: they cannot have been
            // replaced by others, as we alone wait for them.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn descendants() -> Vec<i32> {
    let mut found = children_of(std::process::id() as i32);
    let mut next = 0;
    while next < found.len() {
        found.extend(children_of(found[next]));
        next += 1;
    }
    found
}

fn is_speculator(process: i32) -> bool {
    // The kernel keeps 15 letters of a name.
    fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.starts_with("runahead-specul"))
}

fn children_of(process: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return found };
    for thread in threads.flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().filter_map(|word| word.parse::<i32>().ok()));
    }
    found
}

/// Becomes the command, with every read looked at from the first on.
pub fn become_active(command: &[OsString]) -> String {
    let Some((program, arguments)) = command.split_first() else { return "there is no command".into() };
    let mut process = Command::new(program);
    process.args(arguments);
    match std::env::var_os(SESSION).and_then(|value| with_active_flag(value.as_bytes())) {
        Some(value) => process.env(SESSION, value),
        None => return format!("{SESSION} is not as expected"),
    };
    process.exec().to_string()
}

fn with_active_flag(value: &[u8]) -> Option<String> {
    let session = Session::parse(value)?;
    Some(Session { flags: session.flags | flags::ALWAYS_ACTIVE, ..session }.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_set_and_nothing_else_changed() {
        let value = |flags| format!("12:3:{flags}:0:0123456789abcdeffedcba9876543210:5");
        assert_eq!(with_active_flag(value(2).as_bytes()), Some(value(6)));
        assert_eq!(with_active_flag(b"12"), None);
    }

    #[test]
    fn endings_are_told_apart() {
        let run = |script: &str, seconds| {
            let command: Vec<OsString> = ["sh", "-c", script].map(OsString::from).to_vec();
            let status = Command::new("true").status();
            assert!(status.is_ok());
            supervise(Duration::from_secs(seconds), 0, &command)
        };
        assert_eq!(run("exit 3", 10), Ok(3));
        assert_eq!(run("kill -9 $$", 10), Ok(SUPERVISED_SIGNAL + 9));
        assert_eq!(run("sleep 60", 1), Ok(SUPERVISED_TOO_LONG));
        assert!(run("sleep 60 & exit 0", 10).is_ok());
        assert!(descendants().is_empty());
    }
}
