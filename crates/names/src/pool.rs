//! The threads.
//!
//! One thread takes the notes in (opening and listing a directory may wait for the disk, and whoever notes
//! must not), the others walk. One lock around the walk, held for microseconds. A thread takes a job, does it
//! without the lock, and brings the result. A thread that finds nothing that it may do sleeps; while the walk
//! waits for the program to follow, one of them (the *pacer*) looks at the program's count from time to time.
//!
//! One look-up is made at a time until it is known how long the disk takes (`pace`).
//!
//! Threads are called when there is a job for them: whoever takes one and leaves others calls two, who sleep or are made then.
//! (Woken all together for each listing, 64 threads took the processors from the program: importing numpy and pandas on
//! a fast disk took 0.67 s, so 0.60, alone 0.53.)

use crate::lists::{self, List};
use crate::look::{self, Identity};
use crate::neighbours::{Neighbours, Verdict};
use crate::pace::Pace;
use crate::restraint::{self, Restraint};
use crate::walk::{Job, Key, Name, Walk};
use runahead_abi::release::What as Given;
use runahead_abi::release::What::{All, Files};
use runahead_gate::{Gate, Pass};
use runahead_policy::coldness::WAITED_NS;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often the pacer looks: a cloud disk's latency, halved. Longer when the program does not move.
const LOOK: Duration = Duration::from_micros(500);
const LOOK_LONGEST: Duration = Duration::from_millis(50);

/// Bytes of a thread's stack; a listing's buffer is 32 KiB of it.
const STACK: usize = 128 * 1024;

/// How many whoever takes a job calls: two make a crowd in few steps where the disk is slow (with one, du on a cloud
/// disk took 0.8 s instead of 0.5).
const CALLS: usize = 2;

/// Notes that wait to be taken in; more are dropped, as the program is then far away from the oldest.
const NOTES: usize = 64;

/// Directories that are remembered as walked; more than any program walks between two changes of mind.
const REMEMBERED: usize = 1 << 20;

/// File systems of which it is remembered whether somebody serves them.
const DEVICES: usize = 256;

/// What the program has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Names looked up, and directories listed.
    pub looked_up: u64,
    pub listed: u64,
    /// Time that it waited for names, ns, in all its threads.
    pub waited: u64,
}

/// What the intake is told, and how often the walk had been stopped by then.
struct Told {
    what: What,
    stops: u64,
}

enum What {
    /// The program waited in this directory. `listed`: it lists it, and does not just look up a name there.
    Met { path: PathBuf, listed: bool, left: Arc<AtomicBool> },
    /// It is expected at these names below the directory, which are some process's, and not at all that are there.
    Names { path: PathBuf, whose: u64, names: Vec<Name> },
    /// Of this process, by its folder in /proc and its command line, the lists are wanted.
    Lists { process: PathBuf, command_line: Vec<u8>, lists: Arc<OnceLock<Vec<List>>> },
}

/// A directory that is open for the walk.
struct Directory {
    fd: OwnedFd,
    device: u64,
    /// Below the descriptor: what is held is counted until it is closed.
    _pass: Pass,
}

/// A directory that the walk has met.
#[derive(Clone)]
struct Known {
    key: Key,
    /// How often the walk had been given up by then: what it held is gone since, if that is less than now.
    given_up: u64,
}

struct State {
    walk: Walk<Directory>,
    known: HashMap<Identity, Known>,
    /// Arguments of processes, and whose are on their way to the intake.
    arguments: HashMap<u64, Known>,
    sent: HashSet<u64>,
    /// Directories above those in which the program was met, and the inode of the one in which it was met last.
    above: HashMap<Identity, u64>,
    /// How often the walk was given up since it met cached names only.
    given_up: u64,
    pace: Pace,
    restraint: Restraint,
    neighbours: Neighbours,
    /// Of file systems, by device, whether each request takes the time of somebody who serves it; and the one
    /// where the walk began last.
    served: HashMap<u64, bool>,
    device: u64,
    /// Directories listed so far, and the names in them.
    directories_listed: u64,
    names_listed: u64,
    /// How often the walk was stopped: what was begun before is not to go on.
    stops: u64,
    /// As [`Gate::generation`] was when this was last looked at.
    generation: u32,
    /// Jobs under way, and the intake's directory.
    busy: usize,
    /// The intake is at one.
    taking_in: bool,
    threads: usize,
    /// Threads that could be called, or have been and are not awake yet.
    sleeping: usize,
    pacing: bool,
    ending: bool,
}

struct Shared {
    state: Mutex<State>,
    /// There may be a job for one more.
    called: Condvar,
    /// No job is under way.
    idle: Condvar,
    looked_up: AtomicU64,
    done: Box<dyn Fn() -> Done + Send + Sync>,
    gate: Gate,
    began: Instant,
}

/// A pool of threads that walks ahead of one program (or of several that share their counts). Threads start
/// with the first note and end when this is dropped.
pub struct Lookahead {
    shared: Arc<Shared>,
    notes: Option<SyncSender<Told>>,
}

impl Lookahead {
    /// `done` tells what the program has done so far; it is asked often, from any thread. Whatever is opened goes through
    /// `gate`.
    pub fn new(gate: Gate, done: impl Fn() -> Done + Send + Sync + 'static) -> Lookahead {
        let state = State {
            walk: Walk::default(),
            known: HashMap::new(),
            arguments: HashMap::new(),
            sent: HashSet::new(),
            above: HashMap::new(),
            given_up: 0,
            pace: Pace::default(),
            restraint: Restraint::default(),
            neighbours: Neighbours::default(),
            served: HashMap::new(),
            device: 0,
            directories_listed: 0,
            names_listed: 0,
            stops: 0,
            generation: gate.generation(),
            busy: 0,
            taking_in: false,
            threads: 0,
            sleeping: 0,
            pacing: false,
            ending: false,
        };
        let shared = Shared {
            state: Mutex::new(state),
            called: Condvar::new(),
            idle: Condvar::new(),
            looked_up: AtomicU64::new(0),
            done: Box::new(done),
            gate,
            began: Instant::now(),
        };
        Lookahead { shared: Arc::new(shared), notes: None }
    }

    /// The program has stalled in the directory at `path`: it has `listed` it, or looked a name up there.
    /// Does not wait. Later `left` says whether that file system is left to it. `generation`: the gate's as it
    /// may have said so.
    pub fn note(&mut self, path: PathBuf, listed: bool, left: &Arc<AtomicBool>, generation: u32) {
        self.tell(What::Met { path, listed, left: left.clone() }, generation);
    }

    /// The process `whose` has stalled at one of its arguments: these come next, to be looked up from
    /// `path`. Does not wait. `generation`: as for [`Lookahead::note`].
    pub fn arguments(&mut self, whose: u64, path: PathBuf, names: Vec<Name>, generation: u32) {
        self.tell(What::Names { path, whose, names }, generation);
    }

    /// Whether this process's arguments have been taken, and are looked up or have been.
    pub fn has_arguments(&self, whose: u64) -> bool {
        self.shared.lock().has_arguments(whose)
    }

    /// The lists that a process was given, which come later, or never. `process` is its folder in /proc. Does not wait.
    /// `generation`: as for [`Lookahead::note`]. None: nobody is going to read them.
    pub fn lists(
        &mut self,
        process: PathBuf,
        command_line: Vec<u8>,
        generation: u32,
    ) -> Option<Arc<OnceLock<Vec<List>>>> {
        let lists = Arc::new(OnceLock::new());
        let is_told = self.tell(What::Lists { process, command_line, lists: lists.clone() }, generation);
        is_told.then_some(lists)
    }

    /// False if nobody will take it in.
    fn tell(&mut self, what: What, generation: u32) -> bool {
        if self.notes.is_none() {
            let (sender, receiver) = sync_channel(NOTES);
            let shared = self.shared.clone();
            let intake = thread::Builder::new().name("runahead-names".into()).stack_size(STACK);
            if intake.spawn(move || shared.take_in(&receiver)).is_ok() {
                self.notes = Some(sender);
            }
        }
        let Some(notes) = &self.notes else { return false };
        let mut state = self.shared.lock();
        if state.generation != generation {
            return false;
        }
        let stops = state.stops;
        let whose = what.whose();
        let is_sent = notes.try_send(Told { what, stops }).is_ok();
        state.sent.extend(whose.filter(|_| is_sent));
        is_sent
    }

    /// Forgets all that was to be looked up and waits, at most so long, until no directory is held open. True
    /// if none is.
    pub fn stop(&self, longest: Duration) -> bool {
        let mut state = self.shared.lock();
        state.forget_all();
        let stopped = self.shared.idle.wait_timeout_while(state, longest, |state| {
            // A listing that came in meanwhile.
            state.walk.clear();
            state.busy > 0
        });
        !stopped.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// A program gives a file system back: forgets all that was to be looked up. What is under way ends by itself, and keeps
    /// nothing open.
    pub fn let_go(&self) {
        self.shared.lock().forget_all();
    }

    /// True while look-ups are under way or to be made.
    pub fn is_busy(&self) -> bool {
        let state = self.shared.lock();
        state.busy > 0 || !state.walk.is_empty()
    }

    /// True if names are found so quickly here that there is nothing to gain: notes are no longer wanted.
    pub fn is_pointless(&self) -> bool {
        self.shared.lock().pace.is_pointless()
    }

    /// Names looked up and directories listed so far.
    pub fn looked_up(&self) -> u64 {
        self.shared.looked_up.load(Ordering::Relaxed)
    }
}

impl Drop for Lookahead {
    fn drop(&mut self) {
        self.shared.lock().ending = true;
        self.shared.called.notify_all();
    }
}

impl State {
    fn next_job(&mut self, done: Done) -> Option<Job<Directory>> {
        let looked_up = done.looked_up.saturating_sub(done.listed);
        let names = Pace::wants_names(self.names_listed, self.directories_listed, done.listed, looked_up);
        let (neighbours, restraint, cold) = (&mut self.neighbours, &mut self.restraint, self.pace.cold());
        let choose = |name: &Name| match names.then(|| neighbours.meets(name.inode)) {
            None => Verdict::Skip,
            Some(Verdict::LookUp) if !restraint.wants_name(cold) => Verdict::Skip,
            Some(verdict) => verdict,
        };
        let (job, passed_over) = self.walk.take(choose);
        self.pace.issued(passed_over + u64::from(job.is_some()));
        if let Some(job) = &job {
            self.restraint.issued(matches!(job, Job::List { .. }));
        }
        job
    }

    /// Whether one more thread would find a job beside those under way and the one that has just been taken.
    fn has_work_for_more(&mut self, done: Done) -> bool {
        !self.walk.is_empty() && self.jobs() + 1 < self.pace.threads() && self.may_issue(done)
    }

    /// Jobs under way in the threads that walk.
    fn jobs(&self) -> usize {
        self.busy - usize::from(self.taking_in)
    }

    fn is_spent(&self, done: Done) -> bool {
        self.restraint.is_spent(self.pace.cold(), done)
    }

    /// Whether this file system is left to the program, as somebody serves it who is near at hand.
    fn leaves(&self, device: u64, done: Done) -> bool {
        self.served.get(&device) == Some(&true) && !restraint::is_far(done.waited, done.looked_up)
    }

    fn remember_device(&mut self, device: u64, is_served: bool) {
        if self.served.len() >= DEVICES {
            self.served.clear();
        }
        self.served.insert(device, is_served);
    }

    fn may_issue(&mut self, done: Done) -> bool {
        self.pace.may_issue(done.looked_up) && self.restraint.may_issue(self.pace.cold(), done)
    }

    fn has_listed(&mut self, names: usize) {
        self.directories_listed += 1;
        self.names_listed += names as u64;
    }

    fn remember(&mut self, identity: Identity, key: Key) {
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        self.known.insert(identity, Known { key, given_up: self.given_up });
    }

    /// The program is met in the directory `inside`, below `above`. Returns in which one it was met there before.
    fn meet(&mut self, above: Identity, inside: Identity) -> Option<u64> {
        if self.above.len() >= REMEMBERED {
            self.above.clear();
        }
        self.above.insert(above, inside.inode).filter(|&before| before != inside.inode)
    }

    fn has_arguments(&self, whose: u64) -> bool {
        let known = self.arguments.get(&whose);
        self.sent.contains(&whose)
            || known.is_some_and(|known| known.given_up == self.given_up || self.walk.holds(&known.key))
    }

    /// What was begun is not to go on, and nothing is known any more.
    fn forget_all(&mut self) {
        self.stops += 1;
        self.walk.clear();
        self.known.clear();
        self.arguments.clear();
        self.sent.clear();
        self.above.clear();
        self.served.clear();
    }

    /// What was begun before a program that does not ask is not to go on.
    fn refresh(&mut self, gate: Gate) {
        let generation = gate.generation();
        if std::mem::replace(&mut self.generation, generation) != generation {
            self.forget_all();
        }
    }

    /// Nothing more is to be looked up until the next note.
    fn give_up(&mut self) {
        if !self.walk.is_empty() {
            self.walk.clear();
            self.given_up += 1;
        }
    }
}

impl What {
    /// The process whose arguments these are.
    fn whose(&self) -> Option<u64> {
        match self {
            What::Names { whose, .. } => Some(*whose),
            _ => None,
        }
    }
}

impl Shared {
    /// A panic in another thread leaves counts that are off, no more.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.refresh(self.gate);
        state
    }

    /// The intake's loop.
    fn take_in(self: Arc<Self>, notes: &Receiver<Told>) {
        while let Ok(told) = notes.recv() {
            if !self.begins_with(&told) {
                continue;
            }
            let before = processor_ns();
            // What cannot be opened is the program's to find out.
            let _ = match told.what {
                What::Met { path, left, .. } => self.begin_at(&path, &left, told.stops),
                What::Names { path, whose, names } => self.begin_with(&path, whose, names, told.stops),
                What::Lists { process, command_line, lists } => {
                    if let Ok(_pass) = self.pass(Files, told.stops) {
                        let _ = lists.set(lists::of_process(&process, &command_line));
                    }
                    Ok(())
                }
            };
            let mut state = self.lock();
            state.restraint.took(processor_ns().saturating_sub(before));
            state.taking_in = false;
            self.done_with_one(&mut state);
            if !state.walk.is_empty() {
                // Whoever begins now begins alone.
                self.call_one(&mut state);
            }
        }
    }

    /// Whether the intake is to do this: then it is at it.
    fn begins_with(&self, told: &Told) -> bool {
        let mut state = self.lock();
        if state.stops != told.stops {
            return false;
        }
        if let Some(whose) = told.what.whose() {
            state.sent.remove(&whose);
        }
        let done = (self.done)();
        match told.what {
            What::Met { listed, .. } => state.restraint.begins(listed, done.listed),
            // What a program is told to work on is no guess.
            What::Names { .. } => state.restraint.begins(true, done.listed),
            What::Lists { .. } => {}
        }
        if state.is_spent(done) {
            return false;
        }
        state.busy += 1;
        state.taking_in = true;
        true
    }

    /// Opens the directory at `path`, for a walk to begin. None: its file system is left to the program.
    fn open(&self, path: &Path) -> io::Result<Option<(OwnedFd, Identity)>> {
        let leaves = |device| self.lock().leaves(device, (self.done)());
        // Who serves a file system that is known to be left is not even asked to open the directory.
        if look::device(path).is_some_and(leaves) {
            return Ok(None);
        }
        let (fd, identity) = look::open_root(path)?;
        self.lock().remember_device(identity.device, look::is_served(&fd));
        if leaves(identity.device) {
            return Ok(None);
        }
        self.lock().device = identity.device;
        Ok(Some((fd, identity)))
    }

    /// Opens and lists the directory at `path`, and walks on from there.
    fn begin_at(&self, path: &Path, left: &AtomicBool, stops: u64) -> io::Result<()> {
        let pass = self.pass(All, stops)?;
        let opened = self.open(path)?;
        left.store(opened.is_none(), Ordering::Relaxed);
        let Some((fd, identity)) = opened else { return Ok(()) };
        {
            let mut state = self.lock();
            if let Some(known) = state.known.get(&identity).cloned() {
                let hurried = state.walk.hurry(&known.key);
                if hurried {
                    state.pace.restart((self.done)().looked_up);
                }
                if hurried || known.given_up == state.given_up {
                    return Ok(());
                }
            }
        }
        let names = look::list(fd.as_fd());
        let directory = Directory { fd, device: identity.device, _pass: pass };
        let above = self.above(&directory, identity, stops);
        let mut state = self.lock();
        self.may_keep(&state, stops)?;
        if let Some((directory, identity, names)) = above {
            let key = state.walk.root_above(Arc::new(directory), names);
            state.remember(identity, key);
        }
        state.has_listed(names.len());
        let key = state.walk.root(Arc::new(directory), names);
        state.remember(identity, key);
        state.pace.restart((self.done)().looked_up);
        Ok(())
    }

    /// Looks these names up below the directory at `path`.
    fn begin_with(&self, path: &Path, whose: u64, names: Vec<Name>, stops: u64) -> io::Result<()> {
        let pass = self.pass(All, stops)?;
        let Some((fd, identity)) = self.open(path)? else { return Ok(()) };
        let mut state = self.lock();
        self.may_keep(&state, stops)?;
        if state.has_arguments(whose) || state.walk.is_full() {
            return Ok(());
        }
        let directory = Arc::new(Directory { fd, device: identity.device, _pass: pass });
        let key = state.walk.root_of_arguments(directory, names);
        if state.arguments.len() >= REMEMBERED {
            state.arguments.clear();
        }
        let given_up = state.given_up;
        state.arguments.insert(whose, Known { key, given_up });
        state.pace.restart((self.done)().looked_up);
        Ok(())
    }

    /// The directory above one in which the program is met, and the names there behind that one: if the program may be
    /// supposed to go on there, and the walk does not hold it. So it may if the walk has been there, or if it was met before
    /// in another directory there, in front of this one.
    ///
    /// A program is met where it waits, and its first waits may be anywhere: find on a cloud disk took 0.4 s where its first
    /// note was of the directory that it was told to search, and 1.3 s where that was of one far below, since then each
    /// walk ended with the directory where it began.
    fn above(
        &self,
        directory: &Directory,
        identity: Identity,
        stops: u64,
    ) -> Option<(Directory, Identity, Vec<Name>)> {
        let pass = self.pass(All, stops).ok()?;
        let (fd, above) = look::open_above(directory.fd.as_fd(), identity.device).ok()?;
        let (known, met) = {
            let mut state = self.lock();
            let known = state.known.get(&above).cloned();
            if known.as_ref().is_some_and(|known| state.walk.holds(&known.key)) {
                return None;
            }
            (known.is_some(), state.meet(above, identity))
        };
        if !known && met.is_none() {
            return None;
        }
        let mut names = look::list(fd.as_fd());
        let place = |inode: u64| names.iter().position(|name| name.inode == inode);
        let here = place(identity.inode)?;
        if !known && met.and_then(place).is_none_or(|before| before >= here) {
            return None;
        }
        if let Ok((_, next)) = look::open_above(fd.as_fd(), above.device) {
            self.lock().meet(next, above);
        }
        names.drain(..=here);
        Some((Directory { fd, device: above.device, _pass: pass }, above, names))
    }

    /// A pass for what was begun as the walk had been stopped so often: to open a directory, and to look
    /// names up in it (all), or to open files.
    fn pass(&self, what: Given, stops: u64) -> io::Result<Pass> {
        let pass = self.gate.pass(what).ok_or(io::ErrorKind::WouldBlock)?;
        if self.lock().stops == stops { Ok(pass) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Fails if a program gives a file system back, or the walk was stopped since what was opened just
    /// before was begun: it is not for the walk then. Who gives back first says so and then has the walk
    /// cleared, so what comes into the walk before it says so is cleared as well.
    fn may_keep(&self, state: &State, stops: u64) -> io::Result<()> {
        let may = state.stops == stops && !self.gate.is_closed(All);
        if may { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Calls one more thread, if there are to be more.
    fn call_one(self: &Arc<Self>, state: &mut State) {
        if state.sleeping > 0 {
            self.called.notify_one();
        } else if state.threads < state.pace.threads() {
            let shared = self.clone();
            let spawned = thread::Builder::new()
                .name("runahead-names".into())
                .stack_size(STACK)
                .spawn(move || shared.work());
            // No more threads to be had: those that there are do it.
            state.threads += usize::from(spawned.is_ok());
        }
    }

    fn work(self: Arc<Self>) {
        let mut state = self.lock();
        let mut pause = LOOK;
        loop {
            if state.ending {
                return;
            }
            // It may have slept.
            state.refresh(self.gate);
            let done = (self.done)();
            let leaves = state.leaves(state.device, done);
            if leaves || state.is_spent(done) || state.pace.is_warm() || state.pace.is_pointless() {
                state.give_up();
            }
            state.restraint.waits(self.began.elapsed().as_nanos() as u64, done.waited);
            let wide = state.jobs() < state.pace.threads();
            if wide
                && state.may_issue(done)
                && let Some(job) = state.next_job(done)
            {
                pause = LOOK;
                for _ in 0..CALLS {
                    if state.has_work_for_more(done) {
                        self.call_one(&mut state);
                    }
                }
                state = self.act(state, job);
                continue;
            }
            let pace = wide && !state.pacing && !state.walk.is_empty();
            state.sleeping += 1;
            if !pace {
                state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.sleeping -= 1;
                continue;
            }
            state.pacing = true;
            let waited = self.called.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.pacing = false;
            state.sleeping -= 1;
            let moved = (self.done)().looked_up != done.looked_up;
            pause = if moved { LOOK } else { (pause * 2).min(LOOK_LONGEST) };
        }
    }

    /// Does a job without the lock and enters its result.
    fn act<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        job: Job<Directory>,
    ) -> MutexGuard<'a, State> {
        let alone = state.busy == 0;
        state.busy += 1;
        let stops = state.stops;
        drop(state);
        let before = processor_ns();
        self.looked_up.fetch_add(1, Ordering::Relaxed);
        let mut state = match job {
            Job::LookUp { key, number, directory, name, sample } => {
                let began = Instant::now();
                let is_directory = look::look_up(directory.fd.as_fd(), &name);
                let took = began.elapsed().as_nanos() as u64;
                let mut state = self.lock();
                state.pace.took(took, alone);
                state.restraint.looked_up(took < WAITED_NS);
                if sample {
                    state.neighbours.sampled(took >= WAITED_NS);
                }
                state.walk.looked_up(&key, number, is_directory);
                state
            }
            Job::List { key, directory, name } => self.list(key, &directory, &name, (alone, stops)),
        };
        state.restraint.took(processor_ns().saturating_sub(before));
        self.done_with_one(&mut state);
        state
    }

    fn list(
        &self,
        key: Key,
        parent: &Directory,
        name: &CStr,
        (alone, stops): (bool, u64),
    ) -> MutexGuard<'_, State> {
        let began = Instant::now();
        let Ok(pass) = self.pass(All, stops) else { return self.lock() };
        let opened = look::open_inside(parent.fd.as_fd(), name, parent.device);
        let listed = opened.map(|(fd, identity)| (look::list(fd.as_fd()), fd, identity));
        let took = began.elapsed().as_nanos() as u64;
        let mut state = self.lock();
        state.pace.took(took, alone);
        if let Ok((names, fd, identity)) = listed
            && self.may_keep(&state, stops).is_ok()
            && !state.known.contains_key(&identity)
        {
            state.has_listed(names.len());
            let directory = Arc::new(Directory { fd, device: identity.device, _pass: pass });
            state.walk.listed(key.clone(), directory, names);
            state.remember(identity, key);
        }
        state
    }

    /// A job is over, and what it held open is closed.
    fn done_with_one(&self, state: &mut State) {
        state.busy -= 1;
        if state.busy == 0 {
            self.idle.notify_all();
        }
    }
}

/// Processor time of the calling thread, ns.
fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Directories beside each other, and files in each.
    const DIRECTORIES: u64 = 8;
    const FILES: u64 = 50;

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for directory in 0..DIRECTORIES {
            let path = folder.path().join(format!("directory{directory}"));
            fs::create_dir(&path).unwrap();
            (0..FILES).for_each(|file| fs::write(path.join(format!("file{file}")), "x").unwrap());
        }
        folder
    }

    fn until(condition: impl Fn() -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(120);
        while Instant::now() < end {
            if condition() {
                return true;
            }
            thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// A program that comes along, whatever the disk is taken for: on a busy machine look-ups of cached names seem to wait. (With
    /// one that stood still, what it had not reached was rightly left, and this waited for it.)
    fn following() -> impl Fn() -> Done {
        let asked = AtomicU64::new(1);
        move || {
            let listed = asked.fetch_add(1, Ordering::Relaxed);
            Done { listed, looked_up: 100 * listed, ..Done::default() }
        }
    }

    /// Descriptors of this process that lead into the folder.
    fn open_inside(folder: &Path) -> usize {
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
        links.filter(|link| fs::read_link(link.path()).is_ok_and(|path| path.starts_with(folder))).count()
    }

    #[test]
    fn a_tree_is_walked_and_nothing_stays_open() {
        let folder = tree();
        let mut ahead = Lookahead::new(Gate::default(), following());
        ahead.note(folder.path().to_owned(), true, &Arc::default(), 0);
        // A listing for each directory; of 400 names those that share no block of inodes with another.
        assert!(until(|| ahead.looked_up() > DIRECTORIES && !ahead.is_busy()), "{}", ahead.looked_up());
        assert!(ahead.looked_up() <= DIRECTORIES * (FILES + 2), "{}", ahead.looked_up());
        assert!(ahead.stop(Duration::from_secs(120)));
        assert_eq!(open_inside(folder.path()), 0);
    }

    #[test]
    fn nothing_goes_on_behind_a_program_that_does_not_ask() {
        let folder = tree();
        let words = runahead_gate::Words::unshared();
        let mut ahead = Lookahead::new(Gate::new(words), following());
        let (fd, identity) = look::open_root(folder.path()).unwrap();
        let names = look::list(fd.as_fd());
        let pass = ahead.shared.pass(All, 0).unwrap();
        let directory = Directory { fd, device: identity.device, _pass: pass };
        ahead.shared.lock().walk.root(Arc::new(directory), names);
        assert!(ahead.is_busy() && open_inside(folder.path()) == 1 && words.places.is_any());
        words.releasing.begins_unasked();
        assert!(!ahead.is_busy() && open_inside(folder.path()) == 0 && !words.places.is_any());
        let before = ahead.looked_up();
        ahead.note(folder.path().to_owned(), true, &Arc::default(), 0);
        assert!(!ahead.is_busy() && ahead.shared.pass(All, 0).is_err(), "that was left before");
        ahead.note(folder.path().to_owned(), true, &Arc::default(), 1);
        assert!(until(|| ahead.looked_up() > before));
    }

    #[test]
    fn a_server_at_hand_is_left_to_the_program_and_nothing_else_is() {
        let folder = tree();
        let device = look::device(folder.path()).unwrap();
        let waited = Arc::new(AtomicU64::new(0));
        let (told, follows) = (waited.clone(), following());
        let done = move || Done { waited: told.load(Ordering::Relaxed), ..follows() };
        let mut ahead = Lookahead::new(Gate::default(), done);
        let left = Arc::new(AtomicBool::new(false));
        ahead.shared.lock().served.insert(device, true);
        ahead.note(folder.path().to_owned(), true, &left, 0);
        assert!(until(|| left.load(Ordering::Relaxed) && !ahead.is_busy()));
        assert_eq!((ahead.looked_up(), open_inside(folder.path())), (0, 0));
        // Where the program waits long for each name it is far away.
        waited.store(u64::MAX, Ordering::Relaxed);
        ahead.note(folder.path().to_owned(), true, &left, 0);
        assert!(until(|| ahead.looked_up() > DIRECTORIES && !ahead.is_busy()));
        assert!(!left.load(Ordering::Relaxed));
        // What is left where the walk began says nothing of other file systems.
        waited.store(0, Ordering::Relaxed);
        let before = ahead.looked_up();
        ahead.shared.lock().known.clear();
        ahead.shared.lock().served = HashMap::from([(device, false), (device + 1, true)]);
        ahead.shared.lock().device = device + 1;
        ahead.note(folder.path().to_owned(), true, &left, 0);
        assert!(until(|| ahead.looked_up() > before));
    }

    #[test]
    fn met_in_two_directories_a_program_is_expected_in_those_beside_them() {
        let folder = tree();
        let listing = look::list(std::fs::File::open(folder.path()).unwrap().as_fd());
        let path = |place: usize| folder.path().join(listing[place].name.to_str().unwrap());
        assert_eq!(listing.len() as u64, DIRECTORIES);
        let mut ahead = Lookahead::new(Gate::default(), following());
        ahead.note(path(2), true, &Arc::default(), 0);
        assert!(until(|| ahead.looked_up() > 0 && !ahead.is_busy()));
        let known = |ahead: &Lookahead| ahead.shared.lock().known.len();
        assert_eq!(known(&ahead), 1);
        // Backwards: a program that opens files here and there.
        ahead.note(path(1), true, &Arc::default(), 0);
        assert!(until(|| known(&ahead) == 2 && !ahead.is_busy()));
        ahead.note(path(4), true, &Arc::default(), 0);
        // Those three, the one above, and the three behind.
        assert!(until(|| known(&ahead) == 7 && !ahead.is_busy()), "{} are known", known(&ahead));
    }

    #[test]
    fn arguments_are_looked_up_and_nothing_beside_them() {
        let folder = tree();
        let name = |name: String| Name {
            name: std::ffi::CString::new(name).unwrap(),
            inode: 0,
            is_directory: false,
        };
        // Numbers in blocks of their own, so that each is looked up.
        let names: Vec<Name> = (0..20)
            .map(|file| Name { inode: 1000 * file, ..name(format!("directory1/file{file}")) })
            .chain([Name { inode: 1 << 40, ..name("absent/file".into()) }])
            .collect();
        let mut ahead = Lookahead::new(Gate::default(), following());
        assert!(!ahead.has_arguments(7));
        ahead.arguments(7, folder.path().to_owned(), names.clone(), 0);
        assert!(ahead.has_arguments(7), "on their way to the intake");
        assert!(until(|| ahead.looked_up() == 21 && !ahead.is_busy()), "{}", ahead.looked_up());
        // Not once more, until they are forgotten. (With other numbers, or they would pass for neighbours of the first.)
        let again = names.iter().map(|name| Name { inode: name.inode + (1 << 50), ..name.clone() }).collect();
        ahead.arguments(7, folder.path().to_owned(), again, 0);
        fs::create_dir(folder.path().join("empty")).unwrap();
        ahead.note(folder.path().join("empty"), false, &Arc::default(), 0);
        assert!(until(|| ahead.shared.lock().directories_listed == 1 && !ahead.is_busy()));
        assert_eq!(ahead.looked_up(), 21);
        assert!(ahead.stop(Duration::from_secs(120)));
        assert!(!ahead.has_arguments(7));
        assert_eq!(open_inside(folder.path()), 0);
    }

    #[test]
    fn directories_among_arguments_are_walked_once_the_program_lists_them() {
        let folder = tree();
        let name = |number: u64| Name {
            name: std::ffi::CString::new(format!("directory{number}")).unwrap(),
            inode: 1000 * number,
            is_directory: false,
        };
        let mut ahead = Lookahead::new(Gate::default(), following());
        ahead.arguments(7, folder.path().to_owned(), (0..DIRECTORIES).map(name).collect(), 0);
        assert!(until(|| ahead.looked_up() >= DIRECTORIES && !ahead.is_busy()));
        assert_eq!(ahead.looked_up(), DIRECTORIES);
        ahead.note(folder.path().join("directory3"), true, &Arc::default(), 0);
        assert!(until(|| ahead.looked_up() > DIRECTORIES && !ahead.is_busy()));
        assert!(ahead.looked_up() <= DIRECTORIES + FILES, "{}", ahead.looked_up());
    }

    #[test]
    fn stopped_in_the_middle_everything_is_closed() {
        let folder = tree();
        for _ in 0..50 {
            let mut ahead = Lookahead::new(Gate::default(), following());
            ahead.note(folder.path().to_owned(), true, &Arc::default(), 0);
            until(|| ahead.looked_up() > 0);
            assert!(ahead.stop(Duration::from_secs(120)));
            assert!(!ahead.is_busy());
            assert_eq!(open_inside(folder.path()), 0);
            // A note from before the stop has no effect after it.
            let walked = ahead.looked_up();
            thread::sleep(Duration::from_millis(1));
            assert_eq!(ahead.looked_up(), walked);
        }
    }

    #[test]
    fn what_is_not_there_harms_nothing() {
        let folder = tree();
        let mut ahead = Lookahead::new(Gate::default(), following());
        ahead.note(folder.path().join("absent"), true, &Arc::default(), 0);
        ahead.note(folder.path().join("directory0/file0"), true, &Arc::default(), 0);
        ahead.note(PathBuf::from("/proc"), true, &Arc::default(), 0);
        ahead.note(folder.path().join("directory1"), true, &Arc::default(), 0);
        assert!(until(|| ahead.looked_up() > 0 && !ahead.is_busy()));
        assert!(ahead.looked_up() <= FILES);
    }
}
