//! Asks for what earlier runs wanted, in their order, in many threads: each waits for one directory entry or
//! inode at a time, and asks for the pages without waiting for them.
//!
//! The program may go another way this time, and its own reads wait behind what is asked for. So that is had
//! on credit: little at first, and more as the program is seen to want what was foretold, or the disk is so
//! quick that what is not wanted costs next to nothing.
//!
//! A file that is not what it was is passed over. Nothing is opened while a program gives something back, or
//! once a program bears nobody who opens files (`runahead_abi::opened`).

use crate::PAGE;
use crate::depth::Depth;
use crate::look::{self, Mounts, Opened};
use crate::memory::{Want, What};
use crate::ranges::Ranges;
use runahead_abi::opened::begins_to_replay;
use runahead_abi::release::What::{All, Files};
use runahead_gate::Gate;
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Threads that ask. A disk of a network answers as many at a time, and each waits some times for a name.
const THREADS: usize = 32;

/// Wants for which another thread is made.
const FOR_A_THREAD: usize = 4;

/// Between two looks whether anybody has taken a lease since, while files are opened.
const LEASES_EVERY: Duration = Duration::from_millis(100);

/// Between two looks whether a disk has less to do.
const AGAIN: Duration = Duration::from_millis(1);

/// Bytes of a thread's stack; a listing's buffer is 16 KiB of it.
const STACK: usize = 64 * 1024;

/// Files that are looked at to find out whether anything is to be asked for at all.
const SAMPLE: usize = 8;

/// What may be asked for before the program has wanted any of it, bytes: a hundred small files, on any disk a
/// second or less.
pub const CREDIT: u64 = 16 << 20;

/// What each costs beside its pages: a disk with an arm reads as much while that moves.
const COST_OF_FILE: u64 = 64 << 10;
const COST_OF_NAME: u64 = 4 << 10;

/// How many times what the program has wanted may be asked for beyond that.
const EARNED: u64 = 2;

/// A disk that has taken [`CREDIT`] within that time, while it never has more to do than it serves within some
/// 25 ms ([`Depth`]), is no slower for the program because of what is not wanted.
pub const QUICK: Duration = Duration::from_millis(50);

/// Of what it has taken so much at least must have been cold, on a disk of which it is told how much it has to
/// do: what is cached, and what only stands in a queue, is taken at once as well.
const ENOUGH_TO_TELL: u64 = CREDIT / 2;

/// A thread that waits for credit looks so often whether it is over: agents say so and wake nobody.
const LOOK: Duration = Duration::from_millis(500);

/// Where it is said that a program bears nobody who opens files (`session::Header`).
#[derive(Clone, Copy, Debug)]
pub struct Words {
    pub remembering: &'static AtomicU32,
    pub replaying: &'static AtomicU32,
}

impl Words {
    /// Counts one opening until it is dropped. None: none is borne.
    pub fn opening(self) -> Option<Opening> {
        let opening = Opening(self);
        begins_to_replay(self.remembering, self.replaying).then_some(opening)
    }

    /// Waits, at most so long, until nothing is being opened: to be called once no more may be.
    pub fn settle(self, longest: Duration) {
        use rustix::thread::futex;
        let end = Instant::now() + longest;
        loop {
            let seen = self.replaying.load(Ordering::Acquire);
            let left = end.saturating_duration_since(Instant::now());
            if seen == 0 || left.is_zero() {
                return;
            }
            let left = futex::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let _ = futex::wait(self.replaying, futex::Flags::empty(), seen, Some(&left));
        }
    }
}

/// Something is being opened, or about to be.
pub struct Opening(Words);

impl Drop for Opening {
    fn drop(&mut self) {
        let Words { replaying, .. } = self.0;
        if replaying.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ =
                rustix::thread::futex::wake(replaying, rustix::thread::futex::Flags::empty(), u32::MAX >> 1);
        }
    }
}

/// What has been done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Files of which pages were asked for, and bytes of those.
    pub files: u64,
    pub bytes: u64,
    /// Names and listings looked up.
    pub names: u64,
    /// Files that were not any more what they had been.
    pub changed: u64,
    /// Files and names that may not be opened, or are on no disk.
    pub refused: u64,
}

/// What a replay may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes asked for in all.
    pub bytes: u64,
    pub threads: usize,
    /// Bytes asked for before any of it was wanted: [`CREDIT`], or more where no program is waited for.
    pub credit: u64,
    /// A disk that has taken that within this time, zero for never, gets [`CREDIT`] more, and so on:
    /// [`QUICK`].
    pub quick: Duration,
}

/// Whether anybody holds a lease, which opening a file may break. To ask takes 4 to 26 ms where nobody has
/// lately (the kernel waits for a grace period of RCU), so names are looked up meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leases {
    Unknown,
    None,
    Some,
}

struct Shared {
    wants: Vec<Want>,
    /// Where each path is among them.
    places: HashMap<Vec<u8>, usize>,
    mounts: Mounts,
    gate: Gate,
    words: Words,
    /// The next to be looked up while leases are not known, and the next to be asked for.
    next_name: AtomicUsize,
    next: AtomicUsize,
    /// Bytes that may still be asked for.
    room: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
    names: AtomicU64,
    refused: AtomicU64,
    /// Numbers of the wants that were something else.
    changed: Mutex<Vec<usize>>,
    depth: Depth,
    quick: Duration,
    stopped: AtomicBool,
    state: Mutex<State>,
    changed_state: Condvar,
}

struct State {
    threads: usize,
    leases: Leases,
    /// When it was last asked for leases, and whether somebody does so at present.
    leases_at: Instant,
    is_asking: bool,
    /// What may be asked for at present, and since when; and how much of it a disk has had to read since, as
    /// far as that is known.
    credit: u64,
    /// What has been asked for beyond that, as it was found out too late that something had earned nothing.
    debt: u64,
    since: Instant,
    taken: u64,
    /// Numbers of those that the program has been seen to want.
    wanted: HashSet<usize>,
    /// What was free of those of which something was cached when it was asked for.
    free: HashMap<usize, u64>,
}

impl State {
    fn grant(&mut self, more: u64) {
        let owed = more.min(self.debt);
        self.debt -= owed;
        self.credit = self.credit.saturating_add(more - owed);
    }

    fn withdraw(&mut self, less: u64) {
        self.debt = self.debt.saturating_add(less.saturating_sub(self.credit));
        self.credit = self.credit.saturating_sub(less);
    }
}

/// What is being asked for.
#[derive(Clone)]
pub struct Replay(Arc<Shared>);

impl Replay {
    /// Begins to ask for these, within these bounds.
    pub fn begin(wants: Vec<Want>, mounts: Mounts, gate: Gate, words: Words, bounds: Bounds) -> Replay {
        let Bounds { bytes: most, threads, credit, quick } = bounds;
        let count = THREADS.min(threads).min(wants.len().div_ceil(FOR_A_THREAD));
        let places = wants.iter().enumerate().map(|(number, want)| (want.path.clone(), number)).collect();
        let replay = Replay(Arc::new(Shared {
            wants,
            places,
            mounts,
            gate,
            words,
            next_name: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            room: AtomicU64::new(most),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            names: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            changed: Mutex::default(),
            depth: Depth::default(),
            quick,
            stopped: AtomicBool::new(false),
            state: Mutex::new(State {
                threads: 0,
                leases: Leases::Unknown,
                leases_at: Instant::now(),
                is_asking: false,
                credit,
                debt: 0,
                since: Instant::now(),
                taken: 0,
                wanted: HashSet::new(),
                free: HashMap::new(),
            }),
            changed_state: Condvar::new(),
        }));
        for number in 0..count {
            let shared = replay.0.clone();
            // While the first one asks for leases it holds nothing, and nobody is to wait for that.
            shared.lock().threads += usize::from(number > 0);
            let work = move || {
                if number == 0 && !shared.find_leases() {
                    return;
                }
                shared.work();
                shared.lock().threads -= 1;
                shared.changed_state.notify_all();
            };
            let thread = thread::Builder::new().name("runahead-replay".into()).stack_size(STACK);
            if thread.spawn(work).is_err() {
                match number {
                    // Nobody finds out.
                    0 => replay.0.stopped.store(true, Ordering::SeqCst),
                    _ => replay.0.lock().threads -= 1,
                }
                break;
            }
        }
        replay
    }

    /// Stops, and waits at most so long until nothing is open. True if so.
    pub fn stop(&self, longest: Duration) -> bool {
        self.0.stopped.store(true, Ordering::SeqCst);
        let state = self.0.lock();
        self.0.changed_state.notify_all();
        let stopped = self.0.changed_state.wait_timeout_while(state, longest, |state| state.threads > 0);
        !stopped.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// The program wants what is at this path. True if that was foretold: then more is asked for, once. None:
    /// it is on no disk, which nobody foretells.
    pub fn is_wanted(&self, path: &[u8]) -> Option<bool> {
        let want = self.0.places.get(path).and_then(|&number| Some((number, self.0.wants.get(number)?)));
        let Some((number, want)) = want else { return self.0.mounts.has(path).then_some(false) };
        let mut state = self.0.lock();
        if state.wanted.insert(number) {
            let free = state.free.get(&number).copied().unwrap_or(0);
            state.grant(EARNED * cost(want).saturating_sub(free));
            self.0.changed_state.notify_all();
        }
        Some(true)
    }

    /// Whether it would ask for more if more was wanted.
    pub fn lacks_credit(&self) -> bool {
        let next = self.0.wants.get(self.0.next.load(Ordering::Relaxed));
        let state = self.0.lock();
        state.threads > 0 && next.is_some_and(|want| state.credit < cost(want).min(CREDIT))
    }

    pub fn is_over(&self) -> bool {
        let state = self.0.lock();
        state.threads == 0 && (state.leases != Leases::Unknown || self.0.stopped.load(Ordering::SeqCst))
    }

    /// Files that were asked for so far.
    pub fn asked(&self) -> u64 {
        self.0.files.load(Ordering::Relaxed)
    }

    pub fn done(&self) -> Done {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Shared { files, bytes, names, refused, .. } = &*self.0;
        let changed = self.0.changed().len() as u64;
        Done { files: get(files), bytes: get(bytes), names: get(names), changed, refused: get(refused) }
    }

    /// How many of them it has come to.
    pub fn come_to(&self) -> usize {
        self.0.next.load(Ordering::Relaxed).min(self.0.wants.len())
    }

    /// Somebody holds a lease, so nothing more is opened.
    pub fn is_held_by_leases(&self) -> bool {
        self.0.lock().leases == Leases::Some
    }

    /// No byte more may be asked for.
    pub fn is_full(&self) -> bool {
        self.0.room.load(Ordering::Relaxed) == 0
    }

    /// Waits, at most so long, until the disks that it has asked have nothing to do.
    pub fn settle(&self, longest: Duration) {
        let end = Instant::now() + longest;
        while !self.0.depth.is_idle() && Instant::now() < end {
            thread::sleep(AGAIN);
        }
    }

    /// Those that were something else, or nothing, so far.
    pub fn changed(&self) -> HashSet<Vec<u8>> {
        self.0.changed().iter().filter_map(|&number| Some(self.0.wants.get(number)?.path.clone())).collect()
    }

    /// Those that it has come to and that were what they had been. To be called once it has stopped.
    pub fn found(&self) -> HashMap<&[u8], &Want> {
        let changed: HashSet<usize> = self.0.changed().iter().copied().collect();
        let come_to = self.0.next.load(Ordering::Relaxed);
        let all = self.0.wants.iter().enumerate().take(come_to);
        let found = all.filter(|(number, _)| !changed.contains(number));
        found.map(|(_, want)| (&want.path[..], want)).collect()
    }

    pub fn wants(&self) -> &[Want] {
        &self.0.wants
    }
}

/// Pages of one file that are asked for at a time.
const PART: u32 = 1024;

/// A part of what is wanted.
struct Part<'a> {
    want: &'a Want,
    pages: Ranges,
    is_first: bool,
    cost: u64,
}

fn cost(want: &Want) -> u64 {
    let pages = if let What::File { pages, .. } = &want.what { pages.pages() } else { 0 };
    cost_of_name(want) + pages * PAGE
}

fn cost_of_name(want: &Want) -> u64 {
    match &want.what {
        What::File { .. } | What::Directory { .. } => COST_OF_FILE,
        What::Name => COST_OF_NAME,
    }
}

const _: () = assert!(COST_OF_FILE + PART as u64 * PAGE <= CREDIT, "what is granted is enough for a part");

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the thread goes on, and counts from now on.
    fn find_leases(&self) -> bool {
        let leases = if look::leases() { Leases::Some } else { Leases::None };
        let mut state = self.lock();
        state.leases = leases;
        state.leases_at = Instant::now();
        self.changed_state.notify_all();
        // Whoever has stopped it looks at the count afterwards.
        let goes_on = !self.stopped.load(Ordering::SeqCst);
        state.threads += usize::from(goes_on);
        goes_on
    }

    /// Looks names up until it is known whether there are leases; whether there are none.
    fn may_open(&self) -> bool {
        while self.lock().leases == Leases::Unknown && !self.stopped.load(Ordering::SeqCst) {
            if !self.depth.begins() {
                thread::sleep(AGAIN);
                continue;
            }
            let turn = Turn::begin(&self.depth);
            match self.wants.get(self.next_name.fetch_add(1, Ordering::Relaxed)) {
                Some(want) => drop(self.look_up(want)),
                None => {
                    drop(turn);
                    let waits = |state: &mut State| {
                        state.leases == Leases::Unknown && !self.stopped.load(Ordering::SeqCst)
                    };
                    drop(self.changed_state.wait_while(self.lock(), waits));
                }
            }
        }
        self.lock().leases == Leases::None
    }

    /// Whether what is open may stay so: nobody waits for it.
    fn goes_on(&self) -> bool {
        self.goes_on_at_all() && !self.gate.is_closed(Files) && !self.gate.is_closed(All)
    }

    /// The same, and waits until there is room in the disk's queue.
    fn goes_on_beside(&self, what: &What) -> bool {
        let What::File { identity, .. } = what else { return false };
        while self.goes_on() {
            if !self.depth.is_reached(identity.device) {
                return true;
            }
            thread::sleep(AGAIN);
        }
        false
    }

    fn look_up(&self, want: &Want) -> Option<()> {
        let name = look::name(&want.path).filter(|_| self.mounts.has(&want.path))?;
        let opening = self.words.opening()?;
        let places = self.gate.pass(All)?;
        look::look_up(&name, &self.mounts);
        drop((places, opening));
        Some(())
    }

    fn work(&self) {
        if !self.may_open() {
            return;
        }
        while !self.stopped.load(Ordering::SeqCst) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(want) = self.wants.get(number) else { return };
            let parts = match &want.what {
                What::File { pages, .. } => pages.parts(PART),
                What::Directory { .. } | What::Name => vec![Ranges::default()],
            };
            for (index, pages) in parts.into_iter().enumerate() {
                let of_name = if index == 0 { cost_of_name(want) } else { 0 };
                let cost = of_name + pages.pages() * PAGE;
                // Paid for when it is its turn: by then it is known what those before it have cost.
                loop {
                    if !self.affords(cost) || !self.finds_no_leases() || !self.has_turn(want) {
                        return;
                    }
                    if self.pays(cost) {
                        break;
                    }
                    self.depth.is_left();
                }
                // What cannot be had now is passed over: the program is giving something back.
                if self.ask(number, &Part { want, pages, is_first: index == 0, cost }).is_none() {
                    if self.words.remembering.load(Ordering::Relaxed) == runahead_abi::opened::OVER {
                        return;
                    }
                    break;
                }
            }
        }
    }

    /// Whether nobody has taken a lease since the last look, which one thread makes now and then. Nobody
    /// opens anything meanwhile.
    fn finds_no_leases(&self) -> bool {
        let asked = |state: &mut State| state.is_asking && !self.stopped.load(Ordering::SeqCst);
        let waited = self.changed_state.wait_while(self.lock(), asked);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.leases == Leases::Some || self.stopped.load(Ordering::SeqCst) {
            return false;
        }
        if state.leases_at.elapsed() < LEASES_EVERY {
            return true;
        }
        state.is_asking = true;
        drop(state);
        let has_some = look::leases();
        let mut state = self.lock();
        state.is_asking = false;
        state.leases_at = Instant::now();
        if has_some {
            state.leases = Leases::Some;
            self.stopped.store(true, Ordering::SeqCst);
        }
        self.changed_state.notify_all();
        !has_some
    }

    /// Waits until the disk has less to do, and holds nothing meanwhile. False: nothing is asked for any more.
    fn has_turn(&self, want: &Want) -> bool {
        let is_full = || match &want.what {
            What::File { identity, .. } => self.depth.is_reached(identity.device),
            What::Directory { device, .. } => self.depth.is_reached(*device),
            What::Name => false,
        };
        loop {
            if !self.goes_on_at_all() {
                return false;
            }
            if self.depth.begins() {
                if !is_full() {
                    return true;
                }
                self.depth.is_left();
            }
            thread::sleep(AGAIN);
        }
    }

    fn goes_on_at_all(&self) -> bool {
        !self.stopped.load(Ordering::SeqCst)
            && self.words.remembering.load(Ordering::Relaxed) != runahead_abi::opened::OVER
    }

    /// Waits until so much may be asked for. False: nothing is asked for any more.
    fn affords(&self, cost: u64) -> bool {
        let mut state = self.lock();
        loop {
            let is_over = self.words.remembering.load(Ordering::Relaxed) == runahead_abi::opened::OVER;
            if is_over || self.stopped.load(Ordering::SeqCst) {
                return false;
            }
            if state.credit >= cost {
                return true;
            }
            if state.since.elapsed() < self.quick && state.taken >= ENOUGH_TO_TELL {
                state.grant(CREDIT);
                (state.since, state.taken) = (Instant::now(), 0);
                continue;
            }
            let waited = self.changed_state.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes so much of what may be asked for, if there still is as much.
    fn pays(&self, cost: u64) -> bool {
        let mut state = self.lock();
        let left = state.credit.checked_sub(cost);
        state.credit = left.unwrap_or(state.credit);
        left.is_some()
    }

    /// What of a part is cached costs no disk anything: it is given back, earns nothing, and says nothing of
    /// how quick a disk is. `missing`: pages that are not, if that is known.
    fn settles(&self, number: usize, part: &Part, missing: Option<u64>) {
        let What::File { identity, .. } = &part.want.what else { return };
        let Some(missing) = missing else { return };
        let free =
            if missing == 0 { part.cost } else { part.cost.min((part.pages.pages() - missing) * PAGE) };
        let is_told = self.depth.is_told(identity.device);
        let mut state = self.lock();
        if is_told {
            state.taken = state.taken.saturating_add(part.cost - free);
        }
        if free == 0 {
            return;
        }
        *state.free.entry(number).or_default() += free;
        if state.wanted.contains(&number) {
            state.withdraw(EARNED * free);
        }
        state.grant(free);
        self.changed_state.notify_all();
    }

    fn changed(&self) -> MutexGuard<'_, Vec<usize>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the turn that was given to it. None: the rest of it is not to be had.
    fn ask(&self, number: usize, part: &Part) -> Option<()> {
        let Part { want, pages, is_first, .. } = part;
        let turn = Turn::begin(&self.depth);
        let Some(name) = look::name(&want.path).filter(|_| self.mounts.has(&want.path)) else {
            self.refuses();
            return None;
        };
        // In this order they are let go: what is open first.
        let opening = self.words.opening()?;
        let places = self.gate.pass(All)?;
        let files = self.gate.pass(Files)?;
        match &want.what {
            What::Name => {
                look::look_up(&name, &self.mounts);
                self.names.fetch_add(1, Ordering::Relaxed);
            }
            What::Directory { .. } => match look::open(&name, &want.what, &self.mounts) {
                Opened::File(directory) => {
                    look::list(directory.as_fd(), || self.goes_on());
                    self.names.fetch_add(1, Ordering::Relaxed);
                }
                Opened::Other => self.changed().push(number),
                Opened::Refused => self.refuses(),
            },
            What::File { .. } => match look::open(&name, &want.what, &self.mounts) {
                Opened::File(file) => {
                    // The name is found.
                    drop(turn);
                    self.settles(number, part, look::missing(&file, pages));
                    let pages = self.take(pages);
                    let asked = look::ask(&file, &pages, || self.goes_on_beside(&want.what));
                    self.files.fetch_add(u64::from(*is_first), Ordering::Relaxed);
                    self.bytes.fetch_add(asked, Ordering::Relaxed);
                    drop((file, files, places, opening));
                    return Some(());
                }
                Opened::Other => self.changed().push(number),
                Opened::Refused => self.refuses(),
            },
        }
        drop((files, places, opening));
        None
    }

    fn refuses(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// As many of these pages as there is still room for.
    fn take(&self, pages: &Ranges) -> Ranges {
        let wanted = pages.pages() * PAGE;
        let left = |room: u64| Some(room.saturating_sub(wanted));
        let room = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).unwrap_or(0);
        if room >= wanted { pages.clone() } else { pages.cut(room / PAGE, usize::MAX) }
    }
}

/// A name that is being looked up.
struct Turn<'a> {
    depth: &'a Depth,
    began: Instant,
    slept: i64,
}

impl Turn<'_> {
    fn begin(depth: &Depth) -> Turn<'_> {
        Turn { depth, began: Instant::now(), slept: sleeps() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.depth.ends(self.began.elapsed(), sleeps() > self.slept);
    }
}

/// A file in the middle of each part of these, so that the first is not the executable alone.
fn sample(wants: &[Want]) -> impl Iterator<Item = &Want> {
    let files =
        || wants.iter().filter(|want| matches!(&want.what, What::File { pages, .. } if !pages.is_empty()));
    let every = (files().count() / SAMPLE).max(1);
    files().skip(every / 2).step_by(every).take(SAMPLE)
}

/// Whether the name of one of a sample of these is not cached. Waits for the disk where it is not, and then
/// no longer than for one of them.
pub fn names_are_cold(wants: &[Want], mounts: &Mounts, gate: Gate, words: Words) -> bool {
    sample(wants).any(|want| {
        looks_at(want, mounts, gate, words, |name| {
            let before = sleeps();
            drop(look::place(name, &want.what, mounts));
            sleeps() > before
        })
    })
}

/// The same of pages. Nothing is opened before it is known that there are no leases, which takes some ms.
pub fn pages_are_cold(wants: &[Want], mounts: &Mounts, gate: Gate, words: Words) -> bool {
    sample(wants).next().is_some()
        && !look::leases()
        && sample(wants).any(|want| {
            let What::File { pages, .. } = &want.what else { return false };
            looks_at(want, mounts, gate, words, |name| match look::open(name, &want.what, mounts) {
                Opened::File(file) => {
                    pages.iter().next().is_some_and(|range| look::is_cold(&file, range.start))
                }
                _ => false,
            })
        })
}

/// Looks at a name while it may be, and holds nothing afterwards.
fn looks_at(
    want: &Want,
    mounts: &Mounts,
    gate: Gate,
    words: Words,
    look: impl FnOnce(&CStr) -> bool,
) -> bool {
    let Some(name) = look::name(&want.path).filter(|_| mounts.has(&want.path)) else { return false };
    let (Some(opening), Some(places), Some(files)) = (words.opening(), gate.pass(All), gate.pass(Files))
    else {
        return false;
    };
    let found = look(&name);
    drop((files, places, opening));
    found
}

/// How often this thread has slept: a look-up that waits for a disk does, one that is only preempted does not.
fn sleeps() -> i64 {
    // SAFETY: the structure is ours, and all-zero is a value of it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nvcsw
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Identity;
    use std::ffi::{CString, OsStr};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    const LONG: Duration = Duration::from_secs(20);
    const ALL: Bounds = Bounds { bytes: u64::MAX, threads: THREADS, credit: CREDIT, quick: Duration::ZERO };

    /// A lease that one test takes is seen by the others.
    static LEASED: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        LEASED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn words() -> Words {
        let word = || -> &'static AtomicU32 { Box::leak(Box::default()) };
        Words { remembering: word(), replaying: word() }
    }

    fn want(path: &Path, what: What) -> Want {
        Want { path: path.as_os_str().as_bytes().to_vec(), what, unseen: 0 }
    }

    fn file(path: &Path, mounts: &Mounts) -> Want {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        let Some(look::Found::File(identity)) = look::find(&name, mounts) else { panic!("{path:?}") };
        let pages = Ranges::first(identity.size.div_ceil(PAGE) as u32);
        want(path, What::File { identity, pages, wrong: 0 })
    }

    fn over(replay: &Replay) {
        let end = Instant::now() + LONG;
        while !replay.is_over() {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_is_there_is_asked_for_and_what_has_changed_is_passed_over() {
        let _alone = alone();
        let folder = crate::folder_on_a_disk();
        let mounts = Mounts::look();
        if !mounts.has(folder.path().as_os_str().as_bytes()) {
            return eprintln!("SKIPPED: {} is on no disk", folder.path().display());
        }
        let at = |name: String| folder.path().join(name);
        let mut wants = Vec::new();
        for number in 0..100 {
            let path = at(format!("file{number}"));
            std::fs::write(&path, vec![1; 5000]).unwrap();
            wants.push(file(&path, &mounts));
        }
        std::fs::remove_file(at("file1".into())).unwrap();
        std::fs::write(at("file2".into()), "shorter").unwrap();
        // A pipe in the place of a file neither waits nor is opened: nobody who writes to it is let in.
        let pipe = at("file3".into());
        std::fs::remove_file(&pipe).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        wants.push(want(&at("absent".into()), What::Name));
        wants.push(want(
            Path::new("/dev/zero"),
            What::File { identity: Identity::default(), pages: Ranges::first(9), wrong: 0 },
        ));
        let words = words();
        let replay = Replay::begin(wants.clone(), mounts, Gate::default(), words, ALL);
        over(&replay);
        let done = replay.done();
        assert_eq!((done.files, done.bytes, done.names, done.changed), (97, 97 * 8192, 1, 3));
        assert_eq!((done.refused, replay.come_to(), replay.is_full()), (1, 102, false));
        assert_eq!(words.replaying.load(Ordering::Relaxed), 0);
        let mounts = Mounts::look();
        assert!(!pages_are_cold(&wants[4..100], &mounts, Gate::default(), words));
        let bounded =
            Replay::begin(wants, mounts, Gate::default(), words, Bounds { bytes: 10 * 8192 + 4096, ..ALL });
        over(&bounded);
        assert_eq!((bounded.done().bytes, bounded.is_full()), (10 * 8192 + 4096, true));
    }

    #[test]
    fn more_is_asked_for_as_the_program_wants_what_was_foretold() {
        let _alone = alone();
        let folder = crate::folder_on_a_disk();
        let mounts = Mounts::look();
        if !mounts.has(folder.path().as_os_str().as_bytes()) {
            return eprintln!("SKIPPED: {} is on no disk", folder.path().display());
        }
        let large = u64::from(u32::try_from(CREDIT).unwrap()) / 2;
        let mut wants = Vec::new();
        for number in 0..6 {
            let path = folder.path().join(format!("file{number}"));
            std::fs::File::create(&path).unwrap().set_len(large).unwrap();
            wants.push(file(&path, &mounts));
        }
        let paths: Vec<Vec<u8>> = wants.iter().map(|want| want.path.clone()).collect();
        let replay = Replay::begin(wants, mounts, Gate::default(), words(), ALL);
        // All that may be asked for, but for what is not enough for another part, for each of two threads.
        let asked = |most: u64| {
            let least = most - 2 * (u64::from(PART) * PAGE + COST_OF_FILE) - 6 * COST_OF_FILE;
            let end = Instant::now() + LONG;
            while replay.done().bytes < least {
                assert!(Instant::now() < end);
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(50));
            let bytes = replay.done().bytes;
            assert!((least..=most).contains(&bytes), "{bytes} of {most}");
        };
        asked(CREDIT);
        assert!(replay.lacks_credit());
        assert_ne!(replay.is_wanted(b"/proc/self/maps"), Some(false), "not on a disk");
        let beside = folder.path().join("beside");
        assert_eq!(replay.is_wanted(beside.as_os_str().as_bytes()), Some(false));
        asked(CREDIT);
        // Once, however often it is said.
        for _ in 0..3 {
            assert_eq!(replay.is_wanted(&paths[0]), Some(true));
            asked(CREDIT + EARNED * large);
        }
        assert!(!replay.is_over() && replay.stop(LONG) && replay.is_over());
        // Where no program is waited for nothing has to be wanted.
        let wants = replay.wants().to_vec();
        let bounds = Bounds { credit: u64::MAX, ..ALL };
        let all = Replay::begin(wants, Mounts::look(), Gate::default(), self::words(), bounds);
        over(&all);
        assert_eq!((all.done().files, all.done().bytes), (6, 6 * large));
        // A disk that takes it at once gets more.
        forget(&paths);
        let bounds = Bounds { quick: LONG, ..ALL };
        let wants = replay.wants().to_vec();
        let quick = Replay::begin(wants, Mounts::look(), Gate::default(), self::words(), bounds);
        let device = std::os::unix::fs::MetadataExt::dev(&folder.path().metadata().unwrap());
        if quick.0.depth.is_told(device) {
            over(&quick);
            assert_eq!((quick.done().files, quick.done().bytes), (6, 6 * large));
        } else {
            eprintln!("SKIPPED: {} is on a disk that does not tell", folder.path().display());
        }
        quick.stop(LONG);
    }

    fn forget(paths: &[Vec<u8>]) {
        for path in paths {
            let file = std::fs::File::open(OsStr::from_bytes(path)).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
    }

    /// What the program has in the cache already says nothing of what it will want of the disk, nor of the
    /// disk.
    #[test]
    fn what_is_cached_costs_and_earns_nothing() {
        let _alone = alone();
        let folder = crate::folder_on_a_disk();
        let mounts = Mounts::look();
        if !mounts.has(folder.path().as_os_str().as_bytes()) {
            return eprintln!("SKIPPED: {} is on no disk", folder.path().display());
        }
        let large = CREDIT / 2;
        let mut wants = Vec::new();
        for number in 0..12 {
            let path = folder.path().join(format!("file{number}"));
            std::fs::write(&path, vec![1; large as usize]).unwrap();
            wants.push(file(&path, &mounts));
        }
        let paths: Vec<Vec<u8>> = wants.iter().map(|want| want.path.clone()).collect();
        let (cached, cold) = paths.split_at(4);
        forget(cold);
        let replay = Replay::begin(wants.clone(), mounts.clone(), Gate::default(), words(), ALL);
        // Before they are asked for, and afterwards.
        assert!(cached[..2].iter().all(|path| replay.is_wanted(path) == Some(true)));
        let end = Instant::now() + LONG;
        while replay.come_to() < 6 {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(cached[2..].iter().all(|path| replay.is_wanted(path) == Some(true)));
        thread::sleep(Duration::from_millis(200));
        replay.stop(LONG);
        let asked = replay.done().bytes - 4 * large;
        assert!(asked > CREDIT / 2 && asked <= CREDIT, "{asked}");
        // Nor does it say that a disk is quick.
        let names = (CREDIT / COST_OF_NAME + 500) as usize;
        wants.truncate(4);
        let absent = |number: usize| want(&folder.path().join(number.to_string()), What::Name);
        wants.extend((0..names).map(absent));
        let bounds = Bounds { quick: LONG, ..ALL };
        let replay = Replay::begin(wants, mounts, Gate::default(), words(), bounds);
        thread::sleep(Duration::from_millis(500));
        let (come_to, is_over) = (replay.come_to(), replay.is_over());
        replay.stop(LONG);
        assert!(come_to > 4 && !is_over, "{come_to} of {names}");
    }

    /// The program has taken one since it began.
    #[test]
    fn a_lease_that_is_taken_later_is_seen() {
        let _alone = alone();
        let folder = crate::folder_on_a_disk();
        let mounts = Mounts::look();
        let large = CREDIT / 2;
        let mut wants = Vec::new();
        for number in 0..8 {
            let path = folder.path().join(format!("file{number}"));
            std::fs::File::create(&path).unwrap().set_len(large).unwrap();
            if !mounts.has(path.as_os_str().as_bytes()) {
                return eprintln!("SKIPPED: {} is on no disk", path.display());
            }
            wants.push(file(&path, &mounts));
        }
        let paths: Vec<Vec<u8>> = wants.iter().map(|want| want.path.clone()).collect();
        let leased = std::fs::File::open(folder.path().join("file7")).unwrap();
        let replay = Replay::begin(wants, mounts, Gate::default(), words(), ALL);
        let end = Instant::now() + LONG;
        // Three parts, of which there is no credit for a fourth.
        let before = 3 * u64::from(PART) * PAGE;
        while replay.done().bytes < before {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: a call on a descriptor of ours.
        let taken =
            unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&leased), libc::F_SETLEASE, libc::F_RDLCK) };
        if taken != 0 {
            return eprintln!("SKIPPED: no lease can be had here");
        }
        thread::sleep(2 * LEASES_EVERY);
        for path in &paths {
            let _ = replay.is_wanted(path);
        }
        over(&replay);
        assert_eq!(replay.done().bytes, before);
    }

    #[test]
    fn what_is_asked_for_ends_in_between() {
        let folder = crate::folder_on_a_disk();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let opened: std::os::fd::OwnedFd = std::fs::File::open(&path).unwrap().into();
        let asked = std::cell::Cell::new(0);
        look::ask(&opened, &Ranges::first(256), || {
            asked.set(asked.get() + 1);
            asked.get() < 3
        });
        assert_eq!(asked.get(), 3, "eight pieces");
    }

    #[test]
    fn nothing_is_opened_for_who_bears_nobody() {
        let mounts = Mounts::look();
        let words = words();
        words.remembering.store(runahead_abi::opened::OVER, Ordering::SeqCst);
        let own = std::env::current_exe().unwrap();
        if !mounts.has(own.as_os_str().as_bytes()) {
            return;
        }
        let wants = vec![file(&own, &mounts); 50];
        assert!(!names_are_cold(&wants, &mounts, Gate::default(), words));
        assert!(!pages_are_cold(&wants, &mounts, Gate::default(), words));
        let replay = Replay::begin(wants, mounts, Gate::default(), words, ALL);
        assert!(replay.stop(LONG));
        assert_eq!((replay.done(), words.replaying.load(Ordering::SeqCst)), (Done::default(), 0));
    }
}
