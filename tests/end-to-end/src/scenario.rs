//! A scenario: one command, the directory it starts in, and the ways of running it that are compared.

use crate::compare::{self, Outcome};
use crate::locate::Runahead;
use crate::supervise::{RunReport, RunSpec, Stdin, Torture};
use crate::{Verdict, cold, locate, tree};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The search path of every run: a fixed one, so that a developer's wrappers play no part.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One way of running a scenario's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    pub name: &'static str,
    /// `None`: the command alone. Otherwise the options of `runahead run`.
    pub options: Option<&'static [&'static str]>,
    /// The directory's files are evicted from the page cache first.
    pub cold: bool,
}

pub const ALONE: Mode = Mode { name: "alone", options: None, cold: true };
pub const COLD: Mode = Mode { name: "under, cold", options: Some(&[]), cold: true };
pub const WARM: Mode = Mode { name: "under, warm", options: Some(&[]), cold: false };
pub const NO_SPECULATION: Mode =
    Mode { name: "under, cold, --no-speculate", options: Some(&["--no-speculate"]), cold: true };

/// How complaints begin that are about the harness itself.
pub const HARNESS_FAILED: &str = "the harness could not run";

type Prepare = Box<dyn Fn(&Path) -> io::Result<()> + Send + Sync>;
type Normalize = Box<dyn Fn(&mut Outcome) + Send + Sync>;

pub struct Scenario {
    pub name: String,
    argv: Vec<String>,
    around: Vec<String>,
    environment: Vec<(String, String)>,
    prepare: Prepare,
    normalize: Normalize,
    stdin: Stdin,
    terminal: bool,
    timeout: Duration,
    modes: Vec<Mode>,
    torture: Option<Torture>,
    /// The run alone must end like this; a model that failed by itself proves nothing.
    expect: Option<compare::Expectation>,
    shell: bool,
}

/// How long a run may take, unless a scenario says otherwise.
const LONGEST: Duration = Duration::from_secs(60);

/// How many times as long as alone a run may take at any rate: a stand-in that hangs on purpose is given up after
/// some seconds, on a quiet machine.
const SLOWER: u32 = 5;

impl Scenario {
    pub fn new<Word: Into<String>>(
        name: impl Into<String>,
        argv: impl IntoIterator<Item = Word>,
    ) -> Scenario {
        Scenario {
            name: name.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            around: Vec::new(),
            environment: Vec::new(),
            prepare: Box::new(|_| Ok(())),
            normalize: Box::new(|_| ()),
            stdin: Stdin::Null,
            terminal: false,
            timeout: LONGEST,
            modes: vec![COLD, WARM],
            torture: None,
            expect: Some(compare::Expectation::Exit(0)),
            shell: false,
        }
    }

    /// A bash script in which `$UNDER` stands before each command that is to run under Runahead.
    /// Alone it is empty. The script itself is not run under Runahead.
    pub fn shell(name: impl Into<String>, script: &str) -> Scenario {
        let mut scenario = Scenario::new(name, ["bash", "-c", script]);
        scenario.shell = true;
        scenario
    }

    /// Commands that set the scene and then exec what follows them, such as `taskset -c 0`.
    pub fn around<Word: Into<String>>(mut self, words: impl IntoIterator<Item = Word>) -> Self {
        self.around = words.into_iter().map(Into::into).collect();
        self
    }

    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Fills the empty directory, before each run.
    pub fn prepare(mut self, prepare: impl Fn(&Path) -> io::Result<()> + Send + Sync + 'static) -> Self {
        self.prepare = Box::new(prepare);
        self
    }

    /// Removes from an outcome what differs between two runs alone (times, process numbers).
    pub fn normalize(mut self, normalize: impl Fn(&mut Outcome) + Send + Sync + 'static) -> Self {
        self.normalize = Box::new(normalize);
        self
    }

    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }

    pub fn terminal(mut self) -> Self {
        self.terminal = true;
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub fn modes(mut self, modes: impl IntoIterator<Item = Mode>) -> Self {
        self.modes = modes.into_iter().collect();
        self
    }

    pub fn torture(mut self, torture: Torture) -> Self {
        self.torture = Some(torture);
        self
    }

    pub fn expect(mut self, expect: Option<compare::Expectation>) -> Self {
        self.expect = expect;
        self
    }

    /// Runs alone, then in every mode, and compares each with the run alone. The run alone may take its time, on a
    /// machine that is busy; the others may take some times as long.
    pub fn check(&self, runahead: &Runahead) -> Verdict {
        let began = Instant::now();
        let alone = self
            .run_within(&ALONE, runahead, LONGEST.max(self.timeout))
            .map_err(|error| self.broken(&error))?;
        let timeout = self.timeout.max(SLOWER * began.elapsed());
        if let Some(complaint) = self.expect.as_ref().and_then(|expect| expect.complaint(&alone)) {
            return Err(format!("the run alone, our model, is wrong: {complaint}"));
        }
        let mut complaints = Vec::new();
        for mode in &self.modes {
            let under = self.run_within(mode, runahead, timeout).map_err(|error| self.broken(&error))?;
            for difference in compare::differences(&alone, &under) {
                complaints.push(format!("[{}] {difference}", mode.name));
            }
        }
        if complaints.is_empty() {
            return Ok(());
        }
        complaints.push(format!("the runs' directory: {}", self.scratch(runahead).display()));
        Err(complaints.join("\n"))
    }

    /// In words, an error of the harness itself, which says nothing about the command.
    pub fn broken(&self, error: &io::Error) -> String {
        format!("{HARNESS_FAILED} {}: {error}", self.name)
    }

    /// The scenario's own, for each Runahead another: a canary runs a test's scenario under a stand-in while the test
    /// itself may be running.
    fn scratch(&self, runahead: &Runahead) -> PathBuf {
        let plain = |letter: char| {
            if letter.is_ascii_alphanumeric() { letter } else { '-' }
        };
        locate::scratch()
            .join(format!("{} {}", self.name, runahead.label).chars().map(plain).collect::<String>())
    }

    /// Where the command is run.
    pub fn directory(&self, runahead: &Runahead) -> PathBuf {
        self.scratch(runahead).join("work")
    }

    /// One run, in a directory made anew. Its path is the same for every mode.
    pub fn run(&self, mode: &Mode, runahead: &Runahead) -> io::Result<Outcome> {
        self.run_within(mode, runahead, self.timeout)
    }

    fn run_within(&self, mode: &Mode, runahead: &Runahead, timeout: Duration) -> io::Result<Outcome> {
        let scratch = self.scratch(runahead);
        let directory = self.directory(runahead);
        let _in_use = InUse::take(&scratch)?;
        remove(&scratch)?;
        for folder in ["work", "temporary", "runtime"] {
            open_to_all(&scratch.join(folder))?;
        }
        fs::create_dir_all(locate::scratch().join("cache"))?;
        (self.prepare)(&directory)?;
        tree::set_prepared_times(&directory)?;
        if mode.cold {
            cold::evict(&directory)?;
        }
        let spec = self.specification(mode, runahead, &scratch, timeout);
        let path = scratch.join("specification.json");
        fs::write(&path, serde_json::to_string(&spec)?)?;
        let started = SystemTime::now();
        let output = Command::new(locate::supervisor()).arg(&path).output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!(
                "the supervisor failed: {}",
                String::from_utf8_lossy(&output.stderr)
            )));
        }
        let report: RunReport = serde_json::from_str(&fs::read_to_string(&spec.report)?)?;
        if mode.options.is_some() {
            locate::note_run(&report);
        }
        let mut outcome = Outcome {
            stdout: fs::read(&spec.stdout)?,
            stderr: fs::read(&spec.stderr)?,
            tree: tree::snapshot(&directory, started)?,
            report,
        };
        (self.normalize)(&mut outcome);
        Ok(outcome)
    }

    fn specification(&self, mode: &Mode, runahead: &Runahead, scratch: &Path, timeout: Duration) -> RunSpec {
        let mut under: Vec<String> = Vec::new();
        if let Some(options) = mode.options {
            under.extend([runahead.command.clone(), "run".to_owned()]);
            under.extend(options.iter().map(|option| (*option).to_owned()));
            under.push("--".to_owned());
        }
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let mut environment: Vec<(String, String)> = [
            ("PATH", PATH.to_owned()),
            ("HOME", text(scratch.join("work"))),
            ("LANG", "C".to_owned()),
            ("TMPDIR", text(scratch.join("temporary"))),
            // What Runahead keeps between runs lies outside of what is compared.
            ("XDG_CACHE_HOME", text(locate::scratch().join("cache"))),
            ("XDG_RUNTIME_DIR", text(scratch.join("runtime"))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec();
        environment.extend(self.environment.iter().cloned());
        if mode.options.is_some() {
            environment.extend(runahead.environment.iter().cloned());
        }
        let mut argv = self.around.clone();
        if self.shell {
            environment.push(("UNDER".to_owned(), under.join(" ")));
        } else {
            argv.append(&mut under);
        }
        argv.extend(self.argv.iter().cloned());
        RunSpec {
            argv,
            environment,
            directory: self.directory(runahead),
            stdin: self.stdin.clone(),
            terminal: self.terminal,
            timeout_ms: timeout.as_millis() as u64,
            temporary: scratch.join("temporary"),
            runtime: scratch.join("runtime"),
            torture: self.torture.clone().filter(|_| mode.options.is_some()),
            stdout: scratch.join("stdout"),
            stderr: scratch.join("stderr"),
            report: scratch.join("report.json"),
        }
    }
}

/// A run's directory, which nobody else may have meanwhile: each run begins by removing what it finds there.
struct InUse(PathBuf);

static IN_USE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

impl InUse {
    fn take(directory: &Path) -> io::Result<InUse> {
        let mut all = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        if all.iter().any(|one| one == directory) {
            return Err(io::Error::other(format!(
                "two tests at once have a scenario of this name, and so the directory {}",
                directory.display()
            )));
        }
        all.push(directory.to_owned());
        Ok(InUse(directory.to_owned()))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        IN_USE.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| *one != self.0);
    }
}

/// Makes a directory that every user may write to: some runs drop their privileges.
fn open_to_all(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))
}

/// Removes a tree, also one whose directories the run has closed to their owner, and into which a host that outlives
/// its program by some milliseconds still writes (it keeps what it learned of the program's libraries there).
fn remove(path: &Path) -> io::Result<()> {
    for _ in 0..100 {
        match remove_once(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            done => return done,
        }
    }
    remove_once(path)
}

fn remove_once(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => {
            for name in tree::walk(path).unwrap_or_default() {
                if fs::symlink_metadata(&name).is_ok_and(|found| found.is_dir()) {
                    let _ = fs::set_permissions(&name, fs::Permissions::from_mode(0o700));
                }
            }
            fs::remove_dir_all(path)
        }
    }
}

/// `length` bytes that look random, the same for the same seed; incompressible enough and without
/// long zero runs, so that a block read from a wrong place shows.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut made = Vec::with_capacity(length + 8);
    while made.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        made.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    made.truncate(length);
    made
}
