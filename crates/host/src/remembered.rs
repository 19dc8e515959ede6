//! What earlier runs of the command wanted, or a profile has, is asked for at its start, and what this one
//! opens is remembered or recorded into a profile (`runahead-remembered`).
//!
//! A thread reads what is remembered, which may wait for the disk, and finds out whether any of it is missing
//! from the cache; then others ask for it. The host's loop takes in what agents enter, and writes it down
//! while the main process waits at its end: later nobody may have a file open, as the file system may be
//! unmounted.

use crate::apart::leave_stderr;
use crate::program;
use crate::report::printable;
use crate::room::Room;
use crate::session::Shared;
use runahead_abi::environment::REMEMBER;
use runahead_abi::opened::{self, kind};
use runahead_abi::session::{Slot, remembering};
use runahead_gate::Gate;
use runahead_kernel::text::maps_line;
use runahead_prefetcher::limits::Group;
use runahead_remembered::look::{self, Found, Mounts};
use runahead_remembered::profile::{self, Prefixes};
use runahead_remembered::recorder::{self, Earlier, Interest, Looked};
use runahead_remembered::replay::{self, Bounds, CREDIT, Done, Words};
use runahead_remembered::{Identity, Memory, Ranges, Recorder, Replay, Store, Variant, Want, What, hash};
use serde::Serialize;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long stopping may take: some look-ups of a slow disk.
const STOP_LONGEST: Duration = Duration::from_millis(100);

/// How long the main process may wait at its end: a hundredth of its time, within these bounds.
const LEAST_AT_END: Duration = Duration::from_millis(50);
const MOST_AT_END: Duration = Duration::from_millis(100);

/// The same where it has other threads. Those run on meanwhile, behind what the program does at its exit,
/// which may have taken down what they use.
const WITH_THREADS: Duration = Duration::from_millis(5);

/// Share of the memory that is free which may be asked for, and bytes at most.
const SHARE_OF_MEMORY: u64 = 4;
const MOST_BYTES: u64 = 2 << 30;

/// Names after which it is judged whether the program goes the way of earlier runs: where it has opened so
/// many, and so many were asked for, and less than one in so many of them was both, the rest is not asked
/// for.
const JUDGED_AFTER: u64 = 32;
const ONE_IN: u64 = 4;

/// Names that a run must have been seen to open for it to be judged at its end.
const SEEN_LEAST: u64 = 8;

/// For so long all processes of a cold run tell what they open, whether they wait or not: each attaches for
/// that. The same after one has waited in a run that was thought to be warm, and again after a pause as long.
const ALL_FOR: Duration = Duration::from_secs(30);

/// A name is looked over so long after it was opened, as it is in the kernel's cache by then.
const LOOKED_OVER_AFTER: Duration = Duration::from_millis(250);

/// Large files that wait to be looked at; more are not.
const MET: usize = 4096;

/// What was remembered and what became of it, for the report.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct RememberedCounts {
    /// Files of which pages were asked for since earlier runs had wanted them, and bytes of these pages.
    pub files: u64,
    pub bytes: u64,
    /// Names and listings looked up for the same reason.
    pub names: u64,
    /// Files that were not any more what they had been.
    pub changed: u64,
    /// Names remembered that this run has opened or mapped, as far as it was seen.
    pub used: u64,
    /// Names that the next run will begin with.
    pub kept: u64,
    /// How long the main process waited at its end for that.
    pub wait_ns: u64,
    /// Why nothing can be remembered, where something prevents it.
    pub left_because: Option<String>,
    /// Why the profile that was named was not used.
    pub profile_because: Option<String>,
}

/// What the thread has found out.
#[derive(Default)]
struct Known {
    store: Option<Store>,
    left_because: Option<String>,
    profile_because: Option<String>,
    executable: Vec<u8>,
    identity: Identity,
    mounts: Mounts,
    replay: Option<Replay>,
    /// What was cached of large files when they were met.
    before: HashMap<Vec<u8>, Ranges>,
    /// Names that were looked over since.
    looked: HashMap<Vec<u8>, (Interest, Looked)>,
    /// What was foretold is cached, or nothing was: only those that wait tell what they open.
    is_warm: bool,
}

/// What was taken of a process's ring, and where its names are.
#[derive(Debug, Default)]
pub struct Taken {
    read: u32,
    place: Option<Place>,
}

/// Where a process's relative names begin. None: elsewhere than ours, so that its names mean something else.
#[derive(Debug)]
struct Place(Option<PathBuf>);

/// A command, as it is known among others.
#[derive(Clone, Debug)]
pub struct Command {
    /// Hash of its arguments and of the current directory.
    key: u64,
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

    fn is_known(&self, site_file: &Path) -> bool {
        let executable = self.candidates.iter().find(|path| path.is_file());
        executable.is_some_and(|path| Store::beside(site_file).has(path.as_os_str().as_bytes()))
    }
}

/// How a run remembers. Only who wants it has the code for it, as with a trace.
#[derive(Clone, Debug)]
pub struct Remember {
    begin: fn(Begin, Plan) -> Box<dyn Remembers>,
    /// Whether anything is remembered of a command.
    knows: fn(&Command, &Path) -> bool,
    plan: Plan,
}

/// What is asked for, and where what the run opens is kept.
#[derive(Clone, Debug)]
struct Plan {
    keep: Keep,
    profile: Option<Profile>,
}

/// A profile to begin with.
#[derive(Clone, Debug)]
struct Profile {
    /// From the root.
    path: PathBuf,
    prefixes: Prefixes,
}

#[derive(Clone, Debug)]
enum Keep {
    Nowhere,
    /// In the user's cache folder, of which the next run is asked as well.
    InCache,
    /// In a profile: all that the run opens, cold or not.
    InFile {
        path: PathBuf,
        file: Arc<Mutex<Option<File>>>,
    },
}

impl Remember {
    /// What earlier runs of the command wanted is asked for, and what this one does is kept for the next.
    pub fn runs() -> Remember {
        Remember::so(Keep::InCache, None)
    }

    /// What this run opens is recorded into a profile, whose file is made if there is none. Or says why it
    /// cannot be.
    pub fn record(path: &Path) -> Result<Remember, String> {
        let file = profile::open_to_record(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Remember::so(Keep::InFile { path: path.to_owned(), file: Arc::new(Mutex::new(Some(file))) }, None))
    }

    /// What a profile has is asked for; beside what is remembered, if anything is.
    pub fn with_profile(remember: Option<Remember>, path: &Path, prefixes: Prefixes) -> Remember {
        let path = std::env::current_dir().unwrap_or_default().join(path);
        let keep = remember.map_or(Keep::Nowhere, |remember| remember.plan.keep);
        Remember::so(keep, Some(Profile { path, prefixes }))
    }

    fn so(keep: Keep, profile: Option<Profile>) -> Remember {
        let begin = |begin: Begin, plan| -> Box<dyn Remembers> { Box::new(Remembered::begin(begin, plan)) };
        Remember { begin, knows: Command::is_known, plan: Plan { keep, profile } }
    }

    pub(crate) fn begin(&self, begin: Begin) -> Box<dyn Remembers> {
        (self.begin)(begin, self.plan.clone())
    }

    /// Whether the run is recorded into a profile.
    pub(crate) fn records(&self) -> bool {
        matches!(self.plan.keep, Keep::InFile { .. })
    }

    /// Whether a profile is to be asked for.
    pub(crate) fn has_profile(&self) -> bool {
        self.plan.profile.is_some()
    }

    /// The profile's that is written.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        match &self.plan.keep {
            Keep::InFile { file, .. } => file.lock().ok()?.as_ref().map(AsRawFd::as_raw_fd),
            Keep::Nowhere | Keep::InCache => None,
        }
    }
}

/// A run that is remembered.
#[derive(Clone, Debug)]
pub struct Remembering {
    pub how: Remember,
    pub command: Command,
    /// The command is not in the cache.
    pub is_cold: bool,
}

impl Remembering {
    /// Tells agents whether the run may turn out to be cold, before the first of them looks: then all
    /// processes tell from their start what they open.
    pub fn tell(&self, session: &Shared, site_file: Option<&Path>) {
        let Plan { keep, profile } = &self.how.plan;
        let is_known = || {
            matches!(keep, Keep::InCache)
                && site_file.is_some_and(|site_file| (self.how.knows)(&self.command, site_file))
        };
        if self.how.records() || profile.is_some() || is_known() {
            session.header().remembering.store(remembering::ALL, Ordering::Relaxed);
        }
    }
}

/// Whether the user wants runs to be remembered, as the environment has it.
pub fn is_to_remember() -> bool {
    std::env::var_os(REMEMBER).is_some_and(|wanted| wanted == "on")
}

/// What is known as the host's loop begins.
pub struct Begin<'a> {
    pub session: Shared,
    pub gate: Gate,
    /// Our own file in the programs.
    pub agent: PathBuf,
    pub command: Command,
    pub site_file: Option<&'a Path>,
    pub is_cold: bool,
}

/// What the host's loop does for it.
pub trait Remembers {
    /// Takes in what the agent in `slot` has entered.
    fn take(&mut self, process: u32, slot: &Slot, taken: &mut Taken);
    /// The main process is about to end, and waits: writes down what the run has wanted. Nothing is open
    /// afterwards.
    fn finish(&mut self, main: u32, elapsed: Duration);
    /// Nothing is to be open any more, whatever was wanted.
    fn stop(&mut self);
    /// A process has ended before anybody looked at what the agent in its slot has entered.
    fn take_ended(&mut self, slot: &Slot);
    /// The main process had other threads when it waited with its exit.
    fn ended_with_threads(&self) -> bool;
    fn counts(&self) -> RememberedCounts;
}

struct Remembered {
    session: Shared,
    gate: Gate,
    words: Words,
    key: u64,
    /// Where it is kept.
    keep: Keep,
    recorder: Recorder,
    /// Since when all processes tell what they open, whether they have waited or not, or did for the last
    /// time.
    all_since: Option<Instant>,
    /// They do so from the start on.
    told_all: bool,
    known: Arc<Mutex<Known>>,
    met: Option<SyncSender<Met>>,
    /// Executables of which it is known what they map at their start.
    executables: HashSet<PathBuf>,
    /// Our own file in the programs.
    agent: PathBuf,
    /// Names opened while there is a replay, and those of them that it asks for; whether they are counted yet.
    is_judged: bool,
    opened: u64,
    foretold: u64,
    /// It goes another way than earlier runs.
    is_wrong: bool,
    kept: u64,
    wait: Duration,
    has_threads: bool,
    is_over: bool,
}

impl Remembered {
    fn begin(begin: Begin, plan: Plan) -> Remembered {
        let Begin { session, gate, agent, command, site_file, is_cold: cold } = begin;
        let told_all = session.header().remembering.load(Ordering::Relaxed) == remembering::ALL;
        let recorder = Recorder::new(SystemTime::now(), told_all);
        let header = session.header();
        let words = Words { remembering: &header.remembering, replaying: &header.replaying };
        let Command { key, candidates } = command;
        let known = Arc::<Mutex<Known>>::default();
        let (sender, receiver) = sync_channel(MET);
        let store = site_file.map(Store::beside);
        let began = recorder.began();
        let keep = plan.keep.clone();
        let known_too = known.clone();
        let reader = Reader { session, gate, words, key, plan, candidates, cold, began, known: known_too };
        let thread = thread::Builder::new().name("runahead-remember".into()).stack_size(256 << 10);
        let met = thread.spawn(move || reader.run(store, &receiver)).is_ok().then_some(sender);
        Remembered {
            session,
            gate,
            words,
            key,
            keep,
            recorder,
            all_since: told_all.then(Instant::now),
            told_all,
            known,
            met,
            executables: HashSet::new(),
            agent,
            is_judged: false,
            opened: 0,
            foretold: 0,
            is_wrong: false,
            kept: 0,
            wait: Duration::ZERO,
            has_threads: false,
            is_over: false,
        }
    }

    fn enter(&mut self, process: u32, entry: &opened::Entry, taken: &Taken) {
        let Some(Place(Some(directory))) = &taken.place else { return };
        let Some(interest) = interest(entry.kind) else { return };
        let Some(path) = absolute(process, entry, directory) else { return self.recorder.misses_some() };
        self.opens(&path, interest);
    }

    /// The program wants what is at this path.
    fn opens(&mut self, path: &[u8], interest: Interest) {
        if !self.recorder.enter(path, interest) {
            return;
        }
        if interest == Interest::LookedUp {
            if let Some(met) = &self.met {
                let met_now = Met { path: path.to_vec(), interest, at: Instant::now(), is_asked: true };
                let _ = met.try_send(met_now);
            }
            return;
        }
        let replay = self.lock().replay.clone();
        let mut is_asked = false;
        if let Some(replay) = &replay {
            // What it has opened before the replay began as well.
            let before = (!std::mem::replace(&mut self.is_judged, true)).then(|| self.recorder.opened());
            let before = before.into_iter().flatten().filter(|&before| before != path);
            for is_foretold in before.chain([path]).filter_map(|path| replay.is_wanted(path)) {
                self.opened += 1;
                self.foretold += u64::from(is_foretold);
                is_asked = is_foretold;
            }
        }
        if let Some(met) = &self.met {
            let met_now = Met { path: path.to_vec(), interest, at: Instant::now(), is_asked };
            let _ = met.try_send(met_now);
        }
        let Some(replay) = replay else { return };
        // A memory that has a part of it alone is not wrong.
        let of = self.opened.min(replay.asked());
        if of >= JUDGED_AFTER && self.foretold * ONE_IN < of {
            self.is_wrong = true;
            replay.stop(Duration::ZERO);
        }
    }

    /// Enters the files that a process has mapped.
    fn mapped(&mut self, process: u32) {
        let Ok(maps) = std::fs::read(format!("/proc/{process}/maps")) else { return };
        let mut names = HashSet::new();
        for line in maps.split(|&byte| byte == b'\n').filter_map(maps_line) {
            let is_file =
                line.inode != 0 && line.name.starts_with(b"/") && !line.name.ends_with(b" (deleted)");
            // Odd letters are written as digits there.
            if is_file && !line.name.contains(&b'\\') && line.name != self.agent.as_os_str().as_bytes() {
                names.insert(line.name);
            }
        }
        names.into_iter().for_each(|name| self.opens(name, Interest::Opened));
    }

    /// From now on nothing is opened on anybody's behalf, and nothing is open when this returns.
    fn ends(&self, end: Instant) {
        says(self.words, remembering::OVER);
        self.words.settle(end.saturating_duration_since(Instant::now()));
    }

    /// What was taken of those that did not wait is not wanted, where the run turned out to be warm.
    fn decide(&mut self) {
        if self.told_all && self.lock().is_warm {
            self.told_all = false;
            self.all_since = None;
            self.recorder = Recorder::new(self.recorder.began(), false);
            self.session.header().remembers.store(0, Ordering::Relaxed);
        }
    }

    /// Whether it is time that all processes tell what they open, as one has waited.
    fn may_tell_all(&self) -> bool {
        self.all_since.is_none_or(|since| since.elapsed() > 2 * ALL_FOR)
    }

    fn look(&mut self, replay: Option<&Replay>, main: u32, end: Instant) {
        if matches!(self.keep, Keep::Nowhere) {
            return self.ends(end);
        }
        // An agent that has said that nobody is borne, or says so now, waits for the end of this.
        let opening = self.words.opening();
        // No large file is to be looked at any more.
        self.met = None;
        if opening.is_some() && (self.recorder.names() > 0 || matches!(self.keep, Keep::InFile { .. })) {
            if Place::of(main).0.is_some() {
                self.mapped(main);
            }
            let missed = self.session.header().openings_missed.load(Ordering::Relaxed) != 0;
            if !self.told_all || missed {
                self.recorder.misses_some();
            }
            self.keep(replay, end);
        }
        drop(opening);
        self.ends(end);
    }

    fn keep(&mut self, replay: Option<&Replay>, end: Instant) {
        match self.keep.clone() {
            Keep::Nowhere => {}
            Keep::InCache => self.keep_in_cache(replay, end),
            Keep::InFile { file, .. } => {
                // Closed afterwards, whoever else knows of it.
                let file = file.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(file) = file {
                    self.keep_in_file(&file, end);
                }
            }
        }
    }

    fn keep_in_file(&mut self, file: &File, end: Instant) {
        let known = self.known.clone();
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let nothing = HashMap::new();
        let of = Earlier { variant: None, was_asked_for: false, found: &nothing };
        let left = end.saturating_duration_since(Instant::now());
        let Known { mounts, before, looked, .. } = &*known;
        let wants = self.recorder.finish(mounts, self.gate, before, looked, of, left);
        if wants.is_empty() {
            return;
        }
        let kept = wants.len() as u64;
        let memory = profile::of(known.executable.clone(), known.identity, wants);
        match profile::write(file, &memory) {
            Ok(()) => self.kept = kept,
            Err(error) => known.left_because = Some(format!("it cannot be written: {error}")),
        }
    }

    /// Says what is wrong with a profile that was to be recorded; its file is closed afterwards.
    fn close_profile(&mut self) {
        let Keep::InFile { path, file } = std::mem::replace(&mut self.keep, Keep::Nowhere) else { return };
        drop(file.lock().unwrap_or_else(PoisonError::into_inner).take());
        let path = printable(&path.to_string_lossy());
        let said = match self.lock().left_because.clone() {
            Some(why) => Some(format!("nothing was recorded in {path}: {why}")),
            None if self.kept == 0 => Some(format!(
                "nothing was recorded in {path}: the command was killed, or opened nothing on a disk that was seen"
            )),
            None if !self.recorder.is_complete() => {
                Some(format!("{path} lacks a part of what was opened, which came too quickly"))
            }
            None => None,
        };
        if let Some(said) = said {
            // Nobody may be listening.
            let _ = writeln!(std::io::stderr(), "runahead: {said}");
        }
        // Whoever waits for the command's streams to close does not wait for what it has left behind.
        leave_stderr();
    }

    fn keep_in_cache(&mut self, replay: Option<&Replay>, end: Instant) {
        let known = self.known.clone();
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(store) = known.store.clone() else { return };
        // Others may have written since.
        let memory = store.read(&known.executable).filter(|memory| memory.identity == known.identity);
        let mut memory = memory.unwrap_or_else(|| Memory {
            path: known.executable.clone(),
            identity: known.identity,
            variants: Vec::new(),
        });
        let earlier = memory.variant(self.key).cloned();
        // What a profile has is not known as exactly.
        let was_asked_for = replay.is_some_and(|replay| exact(replay).next().is_some());
        let mut found = replay.map(Replay::found).unwrap_or_default();
        found.retain(|_, want| want.what.is_exact());
        let of = Earlier { variant: earlier.as_ref(), was_asked_for, found: &found };
        let left = end.saturating_duration_since(Instant::now());
        let Known { mounts, before, looked, .. } = &*known;
        let wants = self.recorder.finish(mounts, self.gate, before, looked, of, left);
        if wants.is_empty() {
            return;
        }
        let mut earlier = earlier.unwrap_or_default();
        if let Some(replay) = replay {
            let changed = replay.changed();
            earlier.wants.retain(|want| !changed.contains(&want.path));
        }
        let used_little = |replay| {
            let files = exact(replay).count() as u64;
            let used = exact(replay).filter(|want| self.recorder.has(&want.path)).count() as u64;
            self.opened >= SEEN_LEAST && used * ONE_IN < files
        };
        let is_wrong = replay.is_some_and(|replay| self.is_wrong || used_little(replay));
        let wrong = if is_wrong { earlier.wrong.saturating_add(1) } else { 0 };
        // What was wrong is not worth to be carried on.
        let wants = if is_wrong { wants } else { earlier.after(wants, self.recorder.is_complete()) };
        self.kept = wants.len() as u64;
        memory.put(Variant { key: self.key, wrong, wants });
        if let Err(error) = store.write(&memory, std::process::id()) {
            known.left_because = Some(format!("what was opened cannot be kept: {error}"));
            self.kept = 0;
        }
    }

    /// Files that were asked for and that the program has opened.
    fn used(&self, replay: &Replay) -> u64 {
        let used = |want: &&Want| matches!(want.what, What::File { .. }) && self.recorder.has(&want.path);
        replay.wants().iter().filter(used).count() as u64
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembers for Remembered {
    fn take(&mut self, process: u32, slot: &Slot, taken: &mut Taken) {
        let ring = &slot.agent.opened;
        self.decide();
        let wanted = self.words.remembering.load(Ordering::Relaxed);
        if self.is_over || !matches!(wanted, remembering::WAITING | remembering::ALL) {
            return;
        }
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let has_waited = count(&slot.agent.counts.stalls) + count(&slot.agent.counts.name_stalls) > 0;
        if has_waited && self.may_tell_all() {
            says(self.words, remembering::ALL);
            self.all_since = Some(Instant::now());
        }
        if wanted == remembering::WAITING && !has_waited {
            // From when it was thought to be cold.
            taken.read = ring.written();
            return;
        }
        if ring.written() == taken.read && taken.place.is_some() {
            return;
        }
        if taken.place.is_none() {
            let place = Place::of(process);
            // Ended already: what it has entered cannot be told any more.
            if place.0.is_none() && ring.written() != taken.read {
                self.recorder.misses_some();
            }
            // Where many processes execute the same, one tells.
            let executable = std::fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
            if place.0.is_some() && self.executables.insert(executable) {
                self.mapped(process);
            }
            taken.place = Some(place);
        }
        while ring.written() != taken.read {
            match ring.read(&mut taken.read) {
                Some(entry) => self.enter(process, &entry, taken),
                None => self.recorder.misses_some(),
            }
        }
        if self.recorder.is_full() {
            says(self.words, remembering::NOTHING);
        } else if wanted == remembering::ALL
            && !matches!(self.keep, Keep::InFile { .. })
            && self.all_since.is_some_and(|since| since.elapsed() > ALL_FOR)
        {
            says(self.words, remembering::WAITING);
            self.told_all = false;
        }
        if self.recorder.names() > 0 {
            self.session.header().remembers.store(1, Ordering::Relaxed);
        }
    }

    fn finish(&mut self, main: u32, elapsed: Duration) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let began = Instant::now();
        self.decide();
        let replay = self.lock().replay.clone();
        self.has_threads = has_threads(main);
        let (stop, look) = match self.has_threads {
            true => (WITH_THREADS, WITH_THREADS),
            false => (STOP_LONGEST, STOP_LONGEST + (elapsed / 100).clamp(LEAST_AT_END, MOST_AT_END)),
        };
        match replay.as_ref().is_none_or(|replay| replay.stop(stop)) {
            true => self.look(replay.as_ref(), main, began + look),
            false => self.ends(began + look),
        }
        self.close_profile();
        self.wait = began.elapsed();
    }

    fn stop(&mut self) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let replay = self.lock().replay.clone();
        if let Some(replay) = replay {
            replay.stop(STOP_LONGEST);
        }
        self.ends(Instant::now() + STOP_LONGEST);
        self.close_profile();
    }

    fn take_ended(&mut self, slot: &Slot) {
        let ring = &slot.agent.opened;
        let mut read = 0;
        while ring.written() != read {
            let entry = ring.read(&mut read);
            // Where it was, and in which root, nobody can tell any more; the next run has it. A run that is
            // recorded has no next one, so there names from a root are taken for ours.
            let entry = entry
                .filter(|entry| entry.path().starts_with(b"/") && matches!(self.keep, Keep::InFile { .. }));
            match entry.and_then(|entry| Some((interest(entry.kind)?, entry))) {
                Some((interest, entry)) => self.opens(entry.path(), interest),
                None => self.recorder.misses_some(),
            }
        }
    }

    fn ended_with_threads(&self) -> bool {
        self.has_threads
    }

    fn counts(&self) -> RememberedCounts {
        let known = self.lock();
        let replay = known.replay.as_ref();
        let Done { files, bytes, names, changed, .. } = replay.map(Replay::done).unwrap_or_default();
        RememberedCounts {
            files,
            bytes,
            names,
            changed,
            used: replay.map_or(0, |replay| self.used(replay)),
            kept: self.kept,
            wait_ns: self.wait.as_nanos() as u64,
            left_because: known.left_because.clone(),
            profile_because: known.profile_because.clone(),
        }
    }
}

fn has_threads(process: u32) -> bool {
    std::fs::read_dir(format!("/proc/{process}/task")).is_ok_and(|threads| threads.take(2).count() > 1)
}

/// Files that are remembered of earlier runs, without those that a profile alone has.
fn exact(replay: &Replay) -> impl Iterator<Item = &Want> {
    replay.wants().iter().filter(|want| matches!(want.what, What::File { .. }) && want.what.is_exact())
}

/// Says whose openings are of interest. What an agent has said, that nobody is borne, holds.
fn says(words: Words, wanted: u32) {
    for before in [remembering::NOTHING, remembering::WAITING, remembering::ALL] {
        if before != remembering::NOTHING || wanted == remembering::OVER {
            let _ = words.remembering.compare_exchange(before, wanted, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

/// A name that the program has opened for the first time.
struct Met {
    path: Vec<u8>,
    interest: Interest,
    at: Instant,
    /// It was foretold, or is no file.
    is_asked: bool,
}

/// The thread that reads what is remembered, looks at large files that are met, and looks names over.
struct Reader {
    session: Shared,
    gate: Gate,
    words: Words,
    key: u64,
    plan: Plan,
    candidates: Vec<PathBuf>,
    cold: bool,
    began: SystemTime,
    known: Arc<Mutex<Known>>,
}

impl Reader {
    fn run(self, store: Option<Store>, met: &Receiver<Met>) {
        let Some(mounts) = self.begin(store) else {
            return says(self.words, remembering::NOTHING);
        };
        if matches!(self.plan.keep, Keep::Nowhere) {
            return;
        }
        // Ends with the host's loop.
        let mut waiting: VecDeque<Met> = VecDeque::new();
        loop {
            let longest = waiting.front().map(|first| {
                LOOKED_OVER_AFTER.saturating_sub(first.at.elapsed()).max(Duration::from_millis(10))
            });
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
        let mut wants = match &self.plan.keep {
            Keep::InCache => self.remembered(store, executable),
            Keep::InFile { .. } => Some(Vec::new()),
            Keep::Nowhere => None,
        };
        if let Some(profile) = &self.plan.profile {
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
        let wants = wants?;
        if matches!(self.plan.keep, Keep::InFile { .. }) {
            self.session.header().remembers.store(1, Ordering::Relaxed);
            return Some(mounts);
        }
        let names_are_cold = self.cold || replay::names_are_cold(&wants, &mounts, self.gate, self.words);
        // At once, since a short program would tell what it opens meanwhile, and wait for us at its end.
        if !names_are_cold {
            self.is_warm();
        }
        let is_cold = || names_are_cold || replay::pages_are_cold(&wants, &mounts, self.gate, self.words);
        if !wants.is_empty() && is_cold() {
            self.session.header().remembers.store(1, Ordering::Relaxed);
            says(self.words, remembering::ALL);
            let bounds = Bounds { bytes: room(), threads: Room::look().threads(), credit: CREDIT };
            let replay = Replay::begin(wants, mounts.clone(), self.gate, self.words, bounds);
            self.lock().replay = Some(replay);
        }
        Some(mounts)
    }

    /// The command's own file: it is on its way to be executed.
    fn executable(&self, mounts: &Mounts) -> Option<(Vec<u8>, Identity)> {
        let executable = self.candidates.iter().find(|path| path.is_file())?;
        let executable = executable.as_os_str().as_bytes().to_vec();
        match look::find(&look::name(&executable)?, mounts) {
            Some(Found::File(identity)) => Some((executable, identity)),
            _ => None,
        }
    }

    /// What is remembered of the executable. None: nothing can be.
    fn remembered(&self, store: Option<Store>, executable: Option<(Vec<u8>, Identity)>) -> Option<Vec<Want>> {
        let mut known = self.lock();
        if store.is_none() {
            let why = "there is no folder in which anything could be kept for the user";
            known.left_because = Some(why.to_owned());
        }
        let (store, (executable, identity)) = (store?, executable?);
        let memory = store.read(&executable).filter(|memory| memory.identity == identity);
        known.store = Some(store);
        Some(memory.map_or(Vec::new(), |memory| memory.wants(self.key)))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that may be asked for: what is free is the program's in the first place.
pub(crate) fn room() -> u64 {
    let group = Group::find();
    match group.evicts(0) {
        true => 0,
        false => (group.memory(u64::MAX).free() / SHARE_OF_MEMORY).min(MOST_BYTES),
    }
}

impl Place {
    fn of(process: u32) -> Place {
        let own = std::fs::metadata("/").ok();
        let its = std::fs::metadata(format!("/proc/{process}/root/")).ok();
        let place = |found: std::fs::Metadata| (found.dev(), found.ino());
        let is_ours = own.map(place).is_some_and(|own| its.map(place) == Some(own));
        let space = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        let is_ours = is_ours && space("self").is_some_and(|own| space(&process.to_string()) == Some(own));
        let directory = || std::fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default();
        Place(is_ours.then(directory))
    }
}

/// None: no kind that an agent writes.
fn interest(of: u32) -> Option<Interest> {
    match of {
        kind::OPENED => Some(Interest::Opened),
        kind::LISTED => Some(Interest::Listed),
        kind::LOOKED_UP => Some(Interest::LookedUp),
        _ => None,
    }
}

/// The path of an entry from the root. None: it cannot be told any more.
fn absolute(process: u32, entry: &opened::Entry, directory: &Path) -> Option<Vec<u8>> {
    let path = entry.path();
    if path.first() == Some(&b'/') {
        return Some(path.to_vec());
    }
    let base = match entry.directory {
        // Where it is now, or was when it was met first.
        ..0 => std::fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_else(|_| directory.to_owned()),
        number => std::fs::read_link(format!("/proc/{process}/fd/{number}")).ok()?,
    };
    let mut whole = base.into_os_string().into_encoded_bytes();
    if !whole.ends_with(b"/") {
        whole.push(b'/');
    }
    whole.extend_from_slice(path.strip_prefix(b"./").unwrap_or(path));
    Some(whole)
}

/// Removes what is remembered of a command, or everything; says what was done.
pub fn forget(command: Option<&std::ffi::OsStr>) -> Result<String, String> {
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
