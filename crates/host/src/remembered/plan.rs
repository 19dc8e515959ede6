//! What a run begins with and where what it opens is kept, as the command line and the environment have it.

use crate::program;
use crate::session::Shared;
use runahead_abi::environment::{REMEMBER, REMEMBER_EXCEPT};
use runahead_abi::session::remembering;
use runahead_remembered::profile::{self, Prefixes};
use runahead_remembered::{Except, Store, hash};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A command, as it is known among others.
#[derive(Clone, Debug)]
pub struct Command {
    /// Hash of its arguments and of the current directory.
    pub(super) key: u64,
    /// Files that it may be, in order.
    candidates: Vec<PathBuf>,
}

impl Command {
    /// The one at our own argument number `first`. To be called while the current directory is the command's.
    pub fn find(first: usize) -> Command {
        let directory = std::env::current_dir().unwrap_or_default();
        let start = hash(0, directory.as_os_str().as_bytes());
        let key = program::arguments().skip(first + 1).fold(start, |key, word| hash(key, word.as_bytes()));
        let candidates = program::file_name(first).map(program::candidates).unwrap_or_default();
        let candidates = candidates.iter().map(|path| directory.join(path)).collect();
        Command { key, candidates }
    }

    /// The file that it is. Waits for the disk where that is not in the cache.
    pub(super) fn executable(&self) -> Option<&Path> {
        self.candidates.iter().find(|path| path.is_file()).map(PathBuf::as_path)
    }
}

/// How a run remembers.
#[derive(Clone, Debug)]
pub struct Remember {
    pub(super) keep: Keep,
    pub(super) profile: Option<Profile>,
    /// What is kept nowhere, and not asked for.
    pub(super) except: Arc<Except>,
}

/// A profile to begin with.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    /// From the root.
    pub path: PathBuf,
    pub prefixes: Prefixes,
}

#[derive(Clone, Debug)]
pub(super) enum Keep {
    Nowhere,
    /// In the user's cache folder, of which the next run is asked as well.
    InCache {
        /// The user asks for it: what is remembered is looked at from the start, be the command cold or not.
        is_asked_for: bool,
    },
    /// In a profile: all that the run opens, cold or not.
    InFile {
        path: PathBuf,
        file: Arc<Mutex<Option<File>>>,
    },
}

impl Remember {
    /// As the environment has it ([`REMEMBER`]): what cold runs want is remembered unless the user says `off`.
    pub fn usual() -> Option<Remember> {
        match std::env::var_os(REMEMBER) {
            Some(said) if said == "off" => None,
            said => Some(Remember::in_cache(said.is_some_and(|said| said == "on"))),
        }
    }

    /// What earlier runs of the command wanted is asked for, and what this one does is kept for the next.
    pub fn asked_for() -> Remember {
        Remember::in_cache(true)
    }

    fn in_cache(is_asked_for: bool) -> Remember {
        Remember { keep: Keep::InCache { is_asked_for }, profile: None, except: except() }
    }

    /// What this run opens is recorded into a profile, whose file is made if there is none. Or says why it
    /// cannot be.
    pub fn record(path: &Path) -> Result<Remember, String> {
        let file = profile::open_to_record(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file = Arc::new(Mutex::new(Some(file)));
        Ok(Remember { keep: Keep::InFile { path: path.to_owned(), file }, profile: None, except: except() })
    }

    /// What a profile has is asked for; beside what is remembered, if anything is.
    pub fn with_profile(remember: Option<Remember>, path: &Path, prefixes: Prefixes) -> Remember {
        let path = std::env::current_dir().unwrap_or_default().join(path);
        let keep = remember.map_or(Keep::Nowhere, |remember| remember.keep);
        Remember { keep, profile: Some(Profile { path, prefixes }), except: except() }
    }

    /// Whether the run is recorded into a profile.
    pub(crate) fn records(&self) -> bool {
        matches!(self.keep, Keep::InFile { .. })
    }

    /// Whether a profile is to be asked for.
    pub(crate) fn has_profile(&self) -> bool {
        self.profile.is_some()
    }

    /// The profile's that is written.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        match &self.keep {
            Keep::InFile { file, .. } => file.lock().ok()?.as_ref().map(AsRawFd::as_raw_fd),
            Keep::Nowhere | Keep::InCache { .. } => None,
        }
    }
}

/// Names that the user wants to be remembered nowhere ([`REMEMBER_EXCEPT`]).
fn except() -> Arc<Except> {
    let [patterns, home] = [REMEMBER_EXCEPT, "HOME"].map(|name| std::env::var_os(name).unwrap_or_default());
    Arc::new(Except::parse(patterns.as_bytes(), home.as_bytes()))
}

/// A run that is remembered.
#[derive(Clone, Debug)]
pub struct Remembering {
    pub how: Remember,
    pub command: Command,
    /// The command is not in the cache.
    pub is_cold: bool,
}

/// In the place of a path.
const NONE: &str = "-";

impl Remembering {
    /// Tells agents that all processes are to tell from their start what they open, before the first of them
    /// looks: where somebody wants all of it, or there is something to begin with that the user asks for.
    pub fn tell(&self, session: &Shared, site_file: Option<&Path>) {
        let Remember { keep, profile, .. } = &self.how;
        let is_known = || {
            let store = site_file.map(Store::beside);
            let executable = || self.command.executable().map(|path| path.as_os_str().as_bytes());
            store.is_some_and(|store| executable().is_some_and(|path| store.has(path)))
        };
        let is_wanted = match keep {
            Keep::InFile { .. } => true,
            Keep::InCache { is_asked_for: true } => profile.is_some() || is_known(),
            Keep::InCache { is_asked_for: false } | Keep::Nowhere => profile.is_some(),
        };
        if is_wanted {
            // A main process that is over by now has said so.
            super::says(super::words(session), remembering::ALL);
        }
    }

    /// Whether there is something to begin with at once, as the command is not in the cache, or what is
    /// remembered of it is not: it has not run for long. (Else it is looked at when the program waits.) Waits
    /// for the disk.
    pub fn begins_cold(&self, session: &Shared, site_file: Option<&Path>) -> bool {
        let Keep::InCache { is_asked_for: false } = self.how.keep else { return false };
        let Some(store) = site_file.map(Store::beside) else { return false };
        let Some(executable) = self.command.executable() else { return false };
        let path = executable.as_os_str().as_bytes();
        let is_cold = if self.is_cold { store.has(path) } else { store.has_cold(path) };
        if is_cold {
            super::says(super::words(session), remembering::ALL);
        }
        is_cold
    }

    /// What makes the same of another executable ([`Remembering::from_words`]): a word, and a path. Where a
    /// profile is read or written the run is served at once.
    pub(crate) fn words(remembering: Option<&Remembering>) -> [OsString; 2] {
        let Some(Remembering { how, command, is_cold }) = remembering else {
            return [NONE, NONE].map(Into::into);
        };
        let (Keep::InCache { is_asked_for }, Some(path)) = (&how.keep, command.executable()) else {
            return [NONE, NONE].map(Into::into);
        };
        let flags = [(*is_cold, 'c'), (*is_asked_for, 'a')];
        let flags: String = flags.iter().filter(|(on, _)| *on).map(|(_, letter)| letter).collect();
        [format!("{:x}:{flags}", command.key).into(), path.into()]
    }

    /// None: the run is not remembered, or these are no such words.
    pub(crate) fn from_words(word: &OsStr, path: &OsStr) -> Option<Remembering> {
        let (key, flags) = word.to_str()?.split_once(':')?;
        let command = Command { key: u64::from_str_radix(key, 16).ok()?, candidates: vec![path.into()] };
        let how = Remember::in_cache(flags.contains('a'));
        Some(Remembering { how, command, is_cold: flags.contains('c') })
    }
}

/// Removes what is remembered of a command, or everything; says what was done.
pub fn forget(command: Option<&OsStr>) -> Result<String, String> {
    let executable = match command {
        None => None,
        Some(name) => {
            let directory = std::env::current_dir().unwrap_or_default();
            let mut places = program::candidates(name).into_iter().map(|path| directory.join(path));
            Some(places.find(|path| path.is_file()).ok_or_else(|| format!("{}: not found", name.display()))?)
        }
    };
    let executable = executable.as_ref().map(|path| path.as_os_str().as_bytes());
    let (mut count, mut failed) = (0, None);
    for store in Store::all() {
        match store.forget(executable) {
            Ok(forgotten) => count += forgotten,
            Err(error) => failed = Some(format!("cannot forget: {error}")),
        }
    }
    if let Some(failed) = failed {
        return Err(failed);
    }
    Ok(match count {
        0 => "nothing was remembered".to_owned(),
        1 => "forgotten: what one program's runs wanted".to_owned(),
        count => format!("forgotten: what the runs of {count} programs wanted"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Session;
    use std::sync::atomic::Ordering;

    #[test]
    fn who_has_said_that_nobody_is_borne_is_not_overruled() {
        let session = Session::create().unwrap();
        let word = &session.header().remembering;
        let how = Remember::with_profile(None, Path::new("/none"), Prefixes::default());
        let command = Command { key: 0, candidates: Vec::new() };
        let remembering = Remembering { how, command, is_cold: false };
        for (said, told) in [
            (remembering::WAITING, remembering::ALL),
            (remembering::ALL, remembering::ALL),
            (remembering::OVER, remembering::OVER),
        ] {
            word.store(said, Ordering::Relaxed);
            remembering.tell(&session.share(), None);
            assert_eq!(word.load(Ordering::Relaxed), told);
        }
    }
}
