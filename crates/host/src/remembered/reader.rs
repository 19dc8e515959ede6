//! The thread that reads what is remembered, looks at large files that are met, and looks names over.

use super::plan::{Command, Keep, Remember};
use super::{Known, Place, mapped, room, says};
use crate::report::printable;
use crate::room::Room;
use crate::session::Shared;
use runahead_abi::session::remembering;
use runahead_gate::Gate;
use runahead_remembered::look::{self, Found, Mounts};
use runahead_remembered::profile;
use runahead_remembered::recorder::{self, Interest};
use runahead_remembered::replay::{self, Bounds, CREDIT, QUICK, Words};
use runahead_remembered::{Identity, Replay, Store, Want};
use std::collections::{HashSet, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// A name is looked over so long after it was opened, as it is in the kernel's cache by then: a disk answers
/// sooner, and what it has not answered yet the look waits for together with the program.
const LOOKED_OVER_AFTER: Duration = Duration::from_millis(50);

/// A name that the program has opened for the first time.
pub struct Met {
    pub path: Vec<u8>,
    pub interest: Interest,
    pub at: Instant,
    /// It was foretold, or is no file.
    pub is_asked: bool,
}

pub struct Reader {
    pub session: Shared,
    pub gate: Gate,
    pub words: Words,
    pub command: Command,
    pub how: Remember,
    /// The command is not in the cache.
    pub is_cold: bool,
    pub began: SystemTime,
    pub main_process: u32,
    /// Our own file in the programs.
    pub agent: PathBuf,
    pub known: Arc<Mutex<Known>>,
}

impl Reader {
    /// Ends with the host's loop.
    pub fn run(self, store: Option<Store>, met: &Receiver<Met>) {
        let Some(mounts) = self.begin(store) else {
            return says(self.words, remembering::NOTHING);
        };
        if matches!(self.how.keep, Keep::Nowhere) {
            return;
        }
        let replay = self.lock().replay.clone();
        let mut maps = replay.map(Maps::new);
        let mut waiting: VecDeque<Met> = VecDeque::new();
        loop {
            if let Some(looked) = &mut maps
                && !looked.look(self.main_process, &self.agent)
            {
                maps = None;
            }
            let longest = waiting.front().map(|first| {
                LOOKED_OVER_AFTER.saturating_sub(first.at.elapsed()).max(Duration::from_millis(10))
            });
            let until = |maps: &Maps| maps.next.saturating_duration_since(Instant::now());
            let longest = longest.into_iter().chain(maps.as_ref().map(until)).min();
            let received = match longest {
                None => met.recv().map_err(RecvTimeoutError::from),
                Some(longest) => met.recv_timeout(longest),
            };
            match received {
                Ok(met) => {
                    if !met.is_asked
                        && let Some(_opening) = self.words.opening()
                        && let Some(cached) = recorder::before(&met.path, &mounts, self.gate)
                    {
                        self.lock().before.insert(met.path.clone(), cached);
                    }
                    waiting.push_back(met);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Some(met) = waiting.pop_front_if(|first| first.at.elapsed() >= LOOKED_OVER_AFTER) {
                let Some(opening) = self.words.opening() else { return };
                let looked = recorder::look_over(&met.path, met.interest, &mounts, self.gate, self.began);
                drop(opening);
                if let Some(looked) = looked {
                    self.lock().looked.insert(met.path, (met.interest, looked));
                }
            }
        }
    }

    /// Only those that wait tell what they open.
    fn is_warm(&self) {
        self.lock().is_warm = true;
        says(self.words, remembering::WAITING);
    }

    /// Begins to ask for what is remembered, and what the profile has. None: nobody has to tell what he opens.
    fn begin(&self, store: Option<Store>) -> Option<Mounts> {
        let mounts = Mounts::look();
        let executable = self.executable(&mounts);
        {
            let mut known = self.lock();
            known.mounts = mounts.clone();
            (known.executable, known.identity) = executable.clone().unwrap_or_default();
        }
        let mut wants = match &self.how.keep {
            Keep::InCache { .. } => self.remembered(store, executable),
            Keep::InFile { .. } => Some(Vec::new()),
            Keep::Nowhere => None,
        };
        if let Some(profile) = &self.how.profile {
            match profile::read(&profile.path) {
                Ok(read) => {
                    let wants = wants.get_or_insert_default();
                    let known: HashSet<Vec<u8>> = wants.iter().map(|want| want.path.clone()).collect();
                    let all = profile::here(&read, &profile.prefixes, &mounts);
                    wants.extend(all.into_iter().filter(|want| !known.contains(&want.path)));
                }
                Err(why) => {
                    let why = format!("{}: {why}", profile.path.display());
                    self.lock().profile_because = Some(printable(&why));
                }
            }
        }
        let mut wants = wants?;
        wants.retain(|want| !self.how.except.has(&want.path));
        if matches!(self.how.keep, Keep::InFile { .. }) {
            self.session.header().remembers.store(1, Ordering::Relaxed);
            return Some(mounts);
        }
        let names_are_cold = self.is_cold || replay::names_are_cold(&wants, &mounts, self.gate, self.words);
        // At once, since a short program would tell what it opens meanwhile, and wait for us at its end.
        if !names_are_cold {
            self.is_warm();
        }
        let is_cold = || names_are_cold || replay::pages_are_cold(&wants, &mounts, self.gate, self.words);
        if !wants.is_empty() && is_cold() {
            self.session.header().remembers.store(1, Ordering::Relaxed);
            says(self.words, remembering::ALL);
            let bounds =
                Bounds { bytes: room(), threads: Room::look().threads(), credit: CREDIT, quick: QUICK };
            let replay = Replay::begin(wants, mounts.clone(), self.gate, self.words, bounds);
            self.lock().replay = Some(replay);
        }
        Some(mounts)
    }

    /// The command's own file: it is on its way to be executed.
    fn executable(&self, mounts: &Mounts) -> Option<(Vec<u8>, Identity)> {
        let executable = self.command.executable()?;
        let executable = executable.as_os_str().as_bytes().to_vec();
        match look::find(&look::name(&executable)?, mounts) {
            Some(Found::File(identity)) => Some((executable, identity)),
            _ => None,
        }
    }

    /// What is remembered of the executable. None: nothing can be.
    fn remembered(&self, store: Option<Store>, executable: Option<(Vec<u8>, Identity)>) -> Option<Vec<Want>> {
        if store.is_none() {
            let why = "there is no folder in which anything could be kept for the user";
            self.lock().left_because = Some(why.to_owned());
        }
        let (store, (executable, identity)) = (store?, executable?);
        let except = &self.how.except;
        if except.has(&executable) {
            self.lock().left_because = Some("the command is not to be remembered".to_owned());
            return None;
        }
        // The host's loop looks at what is known, and is not to wait for this disk.
        let memory = store.read(&executable).filter(|memory| memory.identity == identity);
        self.lock().store = Some(store);
        Some(memory.map_or(Vec::new(), |memory| memory.wants(self.command.key)))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between two looks at what the main process has mapped: at first, and twice as long after each that brought
/// nothing, up to the last.
const MAPS_FIRST: Duration = Duration::from_millis(5);
const MAPS_LAST: Duration = Duration::from_millis(320);

/// What the main process has mapped before it tells anything itself: the loader may wait for long.
struct Maps {
    replay: Replay,
    pause: Duration,
    /// When it is time for the next look.
    next: Instant,
    known: usize,
}

impl Maps {
    fn new(replay: Replay) -> Maps {
        Maps { replay, pause: MAPS_FIRST, next: Instant::now(), known: 0 }
    }

    /// Looks whether what the replay has asked for is wanted, where that would ask for more. False: not any
    /// more.
    fn look(&mut self, main: u32, agent: &Path) -> bool {
        if Instant::now() < self.next {
            return true;
        }
        if self.replay.lacks_credit() && Place::of(main).0.is_some() {
            let mapped = mapped(main, agent);
            for path in &mapped {
                let _ = self.replay.is_wanted(path);
            }
            let brings = mapped.len() > std::mem::replace(&mut self.known, mapped.len());
            self.pause = if brings { MAPS_FIRST } else { (2 * self.pause).min(MAPS_LAST) };
        }
        self.next = Instant::now() + self.pause;
        !self.replay.is_over()
    }
}
