//! The host of all of a user's programs: what tells it to go on, and where it is found.

use super::place::Place;
use super::rules;
use crate::installation::Installation;
use crate::launch;
use crate::supervise::{Lasting, Next};
use runahead_abi::enabled::END;
use runahead_abi::environment;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often it is looked whether it is still what it says that it is.
const LOOK: Duration = Duration::from_secs(1);

/// How often it is shown that nobody has forgotten it.
const TOUCH: Duration = Duration::from_secs(24 * 3600);

/// How long nobody is served after memory was all but used up.
const MEMORY_PAUSE: Duration = Duration::from_secs(60);

/// How long a host may take to begin.
const BEGINS: Duration = Duration::from_secs(5);

/// Who looks whether there is a host has the lock for that moment, and so had who has us begin: longer than that it is
/// another host that has it.
const LOOKS_LAST: Duration = Duration::from_secs(1);

/// Word of the command line, and what makes it serve itself.
pub const SERVE: &str = "serve";
pub const FOREGROUND: &str = "--foreground";

/// What this host is found by.
struct Enabled {
    place: Place,
    lock: File,
    rules: Vec<u8>,
    published: Vec<u8>,
    /// Our own executable, as it was when we began, to be executed anew.
    executable: PathBuf,
    installed: Vec<(PathBuf, Option<Identity>)>,
    looked: Instant,
    touched: Instant,
}

/// What changes when another file is put there.
type Identity = (u64, u64, i64, i64);

fn identity(path: &PathBuf) -> Option<Identity> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
}

impl Lasting for Enabled {
    fn descriptor(&self) -> RawFd {
        self.lock.as_raw_fd()
    }

    fn rules(&self) -> Vec<u8> {
        self.rules.clone()
    }

    fn publish(&mut self, address: &environment::Session) -> io::Result<()> {
        self.published = format!("{address}\n").into_bytes();
        self.published.extend_from_slice(&self.rules);
        self.published.extend_from_slice(END);
        self.place.publish(&self.published)
    }

    fn look(&mut self) -> Next {
        if self.looked.elapsed() < LOOK {
            return Next::GoOn;
        }
        self.looked = Instant::now();
        if self.touched.elapsed() >= TOUCH {
            self.touched = Instant::now();
            self.place.touch();
        }
        if !self.place.says(&self.published) || has_logged_out() {
            Next::End
        } else if self.installed.iter().any(|(path, before)| identity(path) != *before) {
            Next::BeginAnew
        } else {
            Next::GoOn
        }
    }

    fn end(&mut self, is_short_of_memory: bool, next: Next) -> ! {
        if self.place.says(&self.published) {
            let _ = self.place.take_back();
        }
        if next == Next::BeginAnew {
            if is_short_of_memory {
                std::thread::sleep(MEMORY_PAUSE);
            }
            // The lock is not inherited. Where there is nothing to be executed any more we are over.
            let mut anew = Command::new(&self.executable);
            let _ = anew.args([SERVE, FOREGROUND]).exec();
        }
        // Nobody else's by now, or else it would not be ours to remove.
        self.place.clear();
        std::process::exit(0)
    }
}

/// Whether the user has logged out, but for processes that are still there. We may be one of a login's, and
/// the login manager keeps the user's folder and services as long as such are there.
fn has_logged_out() -> bool {
    let user = runahead_sites::location::effective_user();
    fs::read_to_string(format!("/run/systemd/users/{user}")).is_ok_and(|text| is_closing(&text))
}

fn is_closing(text: &str) -> bool {
    text.lines().any(|line| line == "STATE=closing")
}

/// Whether the agent's file is as long as it says. A loader that meets one which was cut ends the program.
fn is_whole(agent: &Path) -> bool {
    // The ELF header (elf(5)) of 64 bits: where the table of sections is, which linkers put last, the size of
    // its entries and their number.
    let mut header = [0u8; 64];
    let Ok(size) = File::open(agent).and_then(|mut file| {
        file.read_exact(&mut header)?;
        Ok(file.metadata()?.len())
    }) else {
        return false;
    };
    let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let mut place = [0; 8];
    place.copy_from_slice(&header[40..48]);
    let end = u64::from_le_bytes(place).saturating_add(u64::from(word(58)) * u64::from(word(60)));
    header.starts_with(b"\x7fELF") && word(60) != 0 && end <= size
}

/// Serves all of the user's programs, as this process, until it is not wanted any more; `waits`: as soon as
/// another host is gone. Returns only why it does not.
pub fn serve_here(waits: bool) -> Result<(), String> {
    let said = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let installation = whole_installation()?;
    let place = Place::make().map_err(|error| error.to_string())?;
    let lock = if waits { place.lock(true) } else { lock_unless_served(&place) };
    let lock = lock.map_err(|error| said("cannot lock the user's folder", &error))?;
    let Some(lock) = lock else { return Ok(()) };
    Place::sign(&lock).map_err(|error| said("cannot write to the user's folder", &error))?;
    let executable = std::env::current_exe().map_err(|error| error.to_string())?;
    let files = [executable.clone(), installation.agent.clone(), installation.speculator.clone()];
    let installed = files.map(|path| (path.clone(), identity(&path))).into();
    let (looked, touched) = (Instant::now(), Instant::now());
    let (rules, published) = (rules::published(), Vec::new());
    let enabled = Enabled { place, lock, rules, published, executable, installed, looked, touched };
    launch::serve_all(Box::new(enabled), installation)
}

/// The place's lock; None: another host serves, or is about to.
fn lock_unless_served(place: &Place) -> io::Result<Option<File>> {
    let end = Instant::now() + LOOKS_LAST;
    loop {
        if is_served() {
            return Ok(None);
        }
        match place.lock(false)? {
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            lock => return Ok(lock),
        }
    }
}

fn whole_installation() -> Result<Installation, String> {
    let installation = Installation::find().map_err(|error| error.to_string())?;
    match is_whole(&installation.agent) {
        true => Ok(installation),
        false => Err(format!("{} is broken", installation.agent.display())),
    }
}

/// Whether there is a host for this user.
pub(super) fn is_served() -> bool {
    Place::all().iter().any(|place| place.published().is_some() && place.host() != super::place::Host::None)
}

/// Has a process of its own serve all of the user's programs, if there is none yet. It has published its
/// session when this returns.
pub fn serve_beside() -> Result<(), String> {
    // A login goes on without us where this fails.
    whole_installation()?;
    if is_served() {
        return Ok(());
    }
    // What keeps it from beginning it says here.
    launch::may_serve()?;
    let executable = std::env::current_exe().map_err(|error| error.to_string())?;
    let arguments: [OsString; 2] = [SERVE.into(), FOREGROUND.into()];
    let null = || Stdio::null();
    let mut host = Command::new(executable)
        .args(arguments)
        .stdin(null())
        .stdout(null())
        .stderr(null())
        .spawn()
        .map_err(|error| format!("cannot start the host: {error}"))?;
    let end = Instant::now() + BEGINS;
    loop {
        if is_served() {
            return Ok(());
        }
        match host.try_wait() {
            // Another one may have been quicker.
            Ok(Some(_)) if is_served() => return Ok(()),
            Ok(Some(status)) => return Err(format!("the host has ended at once ({status})")),
            _ if Instant::now() > end => return Err("the host does not begin".into()),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_logged_out_is_known() {
        assert!(is_closing("# This is private data.\nNAME=a\nSTATE=closing\nSTOPPING=no\n"));
        for other in ["", "STATE=active\n", "STATE=lingering\n", "XSTATE=closing\n"] {
            assert!(!is_closing(other));
        }
    }

    #[test]
    fn a_file_that_was_cut_is_not_whole() {
        let directory = tempfile::tempdir().unwrap();
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let path = directory.path().join("agent");
        for (length, expected) in [
            (whole.len(), true),
            (whole.len() - 1, false),
            (5000, false),
            (64, false),
            (10, false),
            (0, false),
        ] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(is_whole(&path), expected, "{length} of {}", whole.len());
        }
        std::fs::write(&path, [b'x'; 1000]).unwrap();
        assert!(!is_whole(&path));
        assert!(!is_whole(&directory.path().join("none")));
    }
}
