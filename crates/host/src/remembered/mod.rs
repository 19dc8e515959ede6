//! What earlier runs of the command wanted, or a profile has, is asked for at its start, and what this one
//! opens is remembered or recorded into a profile (`runahead-remembered`).
//!
//! A thread reads what is remembered, which may wait for the disk, and finds out whether any of it is missing
//! from the cache; then others ask for it. The host's loop takes in what agents enter, and looks at what was
//! wanted while the main process waits at its end: later nobody may have a file of the program's open, as the
//! file system may be unmounted. It is written down when that has gone on.

mod plan;
mod reader;

pub use plan::{Command, Remember, Remembering, forget};

use crate::apart::leave_stderr;
use crate::report::printable;
use crate::session::Shared;
use plan::Keep;
use reader::{Met, Reader};
use runahead_abi::opened::{self, kind};
use runahead_abi::session::{Slot, remembering};
use runahead_gate::Gate;
use runahead_kernel::text::maps_line;
use runahead_prefetcher::limits::Group;
use runahead_remembered::look::Mounts;
use runahead_remembered::profile;
use runahead_remembered::recorder::{Earlier, Interest, Looked};
use runahead_remembered::replay::{Done, Words};
use runahead_remembered::{Except, Identity, Memory, Ranges, Recorder, Replay, Store, Variant, Want, What};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
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

/// Large files that wait to be looked at; more are not.
const MET: usize = 4096;

/// Openings in a row for which nobody has waited and which nobody has foretold, after which no more are told
/// of: a program that opens its files from the cache is not to pay for the next run.
const IDLE_MOST: usize = 2048;

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
    /// How often it has waited.
    waits: u64,
    place: Option<Place>,
}

/// Where a process's relative names begin. None: elsewhere than ours, so that its names mean something else.
#[derive(Debug)]
struct Place(Option<PathBuf>);

/// What is known as the host's loop begins.
pub struct Begin<'a> {
    pub session: Shared,
    pub gate: Gate,
    /// Our own file in the programs.
    pub agent: PathBuf,
    pub main_process: u32,
    pub site_file: Option<&'a Path>,
}

/// A run that is remembered.
pub struct Remembered {
    session: Shared,
    gate: Gate,
    words: Words,
    key: u64,
    /// Where it is kept.
    keep: Keep,
    /// What the user wants to be kept nowhere.
    except: Arc<Except>,
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
    /// Openings since one was waited for, or foretold.
    idle: usize,
    kept: u64,
    wait: Duration,
    has_threads: bool,
    is_over: bool,
    /// What is to be written down.
    unwritten: Option<(Store, Memory)>,
}

impl Remembered {
    pub fn begin(begin: Begin, remembering: Remembering) -> Remembered {
        let Begin { session, gate, agent, main_process, site_file } = begin;
        let Remembering { how, command, is_cold } = remembering;
        let told_all = session.header().remembering.load(Ordering::Relaxed) == remembering::ALL;
        let recorder = Recorder::new(SystemTime::now(), told_all);
        let words = words(&session);
        let key = command.key;
        let known = Arc::<Mutex<Known>>::default();
        let (sender, receiver) = sync_channel(MET);
        let store = site_file.map(Store::beside);
        let began = recorder.began();
        let (keep, except) = (how.keep.clone(), how.except.clone());
        let known_too = known.clone();
        let reader = Reader {
            session,
            gate,
            words,
            command,
            how,
            is_cold,
            began,
            main_process,
            agent: agent.clone(),
            known: known_too,
        };
        let thread = thread::Builder::new().name("runahead-remember".into()).stack_size(256 << 10);
        let met = thread.spawn(move || reader.run(store, &receiver)).is_ok().then_some(sender);
        Remembered {
            session,
            gate,
            words,
            key,
            keep,
            except,
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
            idle: 0,
            kept: 0,
            wait: Duration::ZERO,
            has_threads: false,
            is_over: false,
            unwritten: None,
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
        if self.except.has(path) || !self.recorder.enter(path, interest) {
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
        if is_asked {
            self.idle = 0;
        }
        if let Some(met) = &self.met {
            let met_now = Met { path: path.to_vec(), interest, at: Instant::now(), is_asked };
            let _ = met.try_send(met_now);
        }
        let Some(replay) = replay else { return };
        if self.goes_another_way(&replay) {
            replay.stop(Duration::ZERO);
        }
    }

    /// Whether little of what has been opened so far was foretold.
    fn goes_another_way(&self, replay: &Replay) -> bool {
        // A memory that has a part of it alone is not wrong.
        let of = self.opened.min(replay.asked());
        of >= JUDGED_AFTER && self.foretold * ONE_IN < of
    }

    /// Enters the files that a process has mapped.
    fn mapped(&mut self, process: u32) {
        for name in mapped(process, &self.agent) {
            self.opens(&name, Interest::Opened);
        }
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
            Keep::InCache { .. } => self.keep_in_cache(replay, end),
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
        // One of nobody's in particular, where the command's own name is not to be kept.
        let (executable, identity) = match self.except.has(&known.executable) {
            true => Default::default(),
            false => (known.executable.clone(), known.identity),
        };
        let memory = profile::of(executable, identity, wants);
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
        let known = known.lock().unwrap_or_else(PoisonError::into_inner);
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
        // By all of the run: what lacks the beginning of it seems wrong at first.
        let is_wrong = replay.is_some_and(|replay| self.goes_another_way(replay) || used_little(replay));
        let wrong = if is_wrong { earlier.wrong.saturating_add(1) } else { 0 };
        // What was wrong is not worth to be carried on.
        let wants = if is_wrong { wants } else { earlier.after(wants, self.recorder.is_complete()) };
        self.kept = wants.len() as u64;
        memory.put(Variant { key: self.key, wrong, wants });
        // Runs before may not have been told of them.
        for variant in &mut memory.variants {
            variant.wants.retain(|want| !self.except.has(&want.path));
        }
        drop(known);
        self.unwritten = Some((store, memory));
    }

    /// Writes down what [`finish`](Self::finish) has found. Waits for the disk on which the user's cache
    /// folder is.
    pub fn write(&mut self) {
        let Some((store, memory)) = self.unwritten.take() else { return };
        if let Err(error) = store.write(&memory, std::process::id()) {
            self.lock().left_because = Some(format!("what was opened cannot be kept: {error}"));
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

impl Remembered {
    /// Takes in what the agent in `slot` has entered.
    pub fn take(&mut self, process: u32, slot: &Slot, taken: &mut Taken) {
        let ring = &slot.agent.opened;
        self.decide();
        let wanted = self.words.remembering.load(Ordering::Relaxed);
        if self.is_over || !matches!(wanted, remembering::WAITING | remembering::ALL) {
            return;
        }
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &slot.agent.counts;
        let waits = counts.all_stalls().wrapping_add(count(&counts.name_stalls));
        let has_waited = waits > 0;
        if std::mem::replace(&mut taken.waits, waits) != waits {
            self.idle = 0;
        }
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
        let mut read = taken.read;
        for entry in entries(ring, &mut read) {
            self.idle += 1;
            match entry {
                Some(entry) => self.enter(process, &entry, taken),
                None => self.recorder.misses_some(),
            }
        }
        taken.read = read;
        let is_idle = self.idle > IDLE_MOST && !matches!(self.keep, Keep::InFile { .. });
        if is_idle {
            self.recorder.misses_some();
        }
        if is_idle || self.recorder.is_full() {
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

    /// The main process is about to end, and waits: looks at what the run has wanted. No file of the
    /// program's is open afterwards, and a profile is written.
    pub fn finish(&mut self, main: u32, elapsed: Duration) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let began = Instant::now();
        self.decide();
        let replay = self.lock().replay.clone();
        self.has_threads = has_threads(main);
        let (stop, look) = match self.has_threads {
            true => (WITH_THREADS, WITH_THREADS),
            false => (STOP_LONGEST, (elapsed / 100).clamp(LEAST_AT_END, MOST_AT_END)),
        };
        let has_stopped = replay.as_ref().is_none_or(|replay| replay.stop(stop));
        // What stopping may take and did not is no time to look.
        let end = match self.has_threads {
            true => began + look,
            false => Instant::now() + look,
        };
        match has_stopped {
            true => self.look(replay.as_ref(), main, end),
            false => self.ends(end),
        }
        self.close_profile();
        self.wait = began.elapsed();
    }

    /// Nothing is to be open any more, whatever was wanted.
    pub fn stop(&mut self) {
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

    /// A process has ended before anybody looked at what the agent in its slot has entered.
    pub fn take_ended(&mut self, slot: &Slot) {
        let ring = &slot.agent.opened;
        for entry in entries(ring, &mut 0) {
            // In which root it was nobody can tell any more. A name is taken for ours: what it means here is
            // looked at before it is kept, and before it is asked for. Where it was is not known either.
            let entry = entry.filter(|entry| entry.path().starts_with(b"/"));
            match entry.and_then(|entry| Some((interest(entry.kind)?, entry))) {
                Some((interest, entry)) => self.opens(entry.path(), interest),
                None => self.recorder.misses_some(),
            }
        }
    }

    /// The main process had other threads when it waited with its exit.
    pub fn ended_with_threads(&self) -> bool {
        self.has_threads
    }

    pub fn counts(&self) -> RememberedCounts {
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

/// What is in the ring behind so many words, which are then more; None for what could not be read. However the
/// program scribbles there, it is not endless.
fn entries<'a>(
    ring: &'a opened::Ring,
    read: &'a mut u32,
) -> impl Iterator<Item = Option<opened::Entry>> + 'a {
    (0..opened::WORDS).map_while(move |_| (ring.written() != *read).then(|| ring.read(read)))
}

/// Paths of the files that a process has mapped, but for our own in the programs.
fn mapped(process: u32, agent: &Path) -> HashSet<Vec<u8>> {
    let maps = std::fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
    let lines = maps.split(|&byte| byte == b'\n').filter_map(maps_line);
    let files = lines.filter(|line| {
        let is_file = line.inode != 0 && line.name.starts_with(b"/") && !line.name.ends_with(b" (deleted)");
        // Odd letters are written as digits there.
        is_file && !line.name.contains(&b'\\') && line.name != agent.as_os_str().as_bytes()
    });
    files.map(|line| line.name.to_vec()).collect()
}

fn has_threads(process: u32) -> bool {
    std::fs::read_dir(format!("/proc/{process}/task")).is_ok_and(|threads| threads.take(2).count() > 1)
}

/// Files that are remembered of earlier runs, without those that a profile alone has.
fn exact(replay: &Replay) -> impl Iterator<Item = &Want> {
    replay.wants().iter().filter(|want| matches!(want.what, What::File { .. }) && want.what.is_exact())
}

/// Where agents and those who ask tell each other of that.
fn words(session: &Shared) -> Words {
    let header = session.header();
    Words { remembering: &header.remembering, replaying: &header.replaying }
}

/// Says whose openings are of interest. What an agent has said, that nobody is borne, holds.
fn says(words: Words, wanted: u32) {
    for before in [remembering::NOTHING, remembering::WAITING, remembering::ALL] {
        if before != remembering::NOTHING || wanted == remembering::OVER {
            let _ = words.remembering.compare_exchange(before, wanted, Ordering::SeqCst, Ordering::SeqCst);
        }
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
