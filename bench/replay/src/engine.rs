//! A program played back, alone or with a speculator, in virtual time.
//!
//! Threads and the speculator act in the order of their times. The agent's part and the speculator's ask the
//! policies in the order in which the real ones do; what these decide is theirs. Everything else is a model:
//! the disk, the page cache, what our own parts take. The same input gives the same outcome to the bit.

use crate::cache::{Ahead, Cache, Layout, page_of_name};
use crate::device::Device;
use crate::faults::{Fault, Watcher};
use crate::trace::{Known, PAGE, Step, Trace, What};
use runahead_policy::attention::Attention;
use runahead_policy::coldness::Coldness;
use runahead_policy::depth::{Depth, Disk};
use runahead_policy::following::Following;
use runahead_policy::futile::Futile;
use runahead_policy::hold::{Hold, Wait};
use runahead_policy::ledger::{Ledger, Moment};
use runahead_policy::pieces::Pieces;
use runahead_policy::regret::is_worth_a_start;
use runahead_policy::restart::{Machines, Past, Restart, Stall};
use runahead_policy::track::{Next, Passing, Track};
use runahead_policy::worth::Worth;
use std::collections::HashMap;

/// Lanes that threads may have.
const LANES: usize = 4;

/// Visits of one thread in a row after which it is thought to be alone (`agent::reads`).
const COMPANY: u32 = 4096;

/// Until somebody who sleeps is at work, ns.
const WAKE: u64 = 6_000;

/// A read's own time, ns, and what of it each 16 bytes take.
const READ: u64 = 400;
const BYTES_A_NS: u64 = 16;

/// Pages of a file of which speculation asks for all at once (`emulate::files`).
const WHOLE_FILE: u64 = 256;
/// Pages that one operation asks for at most.
const HINT_MOST: u64 = 512;

/// As in `speculator::run`.
const SETTLED_AFTER: u32 = 16;
const SETTLE_EVERY: u32 = 64;
/// How often a speculator that computes looks whether it is wanted elsewhere, ns.
pub const TICK: u64 = 1_000_000;
const TICKS_WITHOUT_PROGRESS: u32 = 100;
const HELD_MOST: u64 = 50_000_000;
const HELD_MOST_STALLS: u64 = 4;
const TURN_SYNCS: u64 = 4;
const TURN_LEAST: u64 = 300_000;
const TURN_MOST: u64 = 4_000_000;

/// Steps that are elsewhere behind one that follows from blanks, itself included: with these the recorded programs
/// that have such take as long on `cloud` as was measured.
const STRAYS: u32 = 4;

/// What it takes to ask an idle disk for something: an exit to the hypervisor, ns.
const MISS: u64 = 18_000;

/// While the program computes on the processor that the speculator wants too, which has niceness 5, that gets
/// one part in so many.
const SHARE: u64 = 4;

/// Never.
const NEVER: u64 = u64::MAX;

/// The clock that the policies see: what is added to the time from some time on, ns.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    pub jumps: Vec<(u64, i64)>,
}

impl Clock {
    fn at(&self, time: u64) -> u64 {
        let jumps = self.jumps.iter().filter(|(from, _)| *from <= time);
        jumps.fold(time.saturating_add(1 << 40), |time, (_, by)| time.saturating_add_signed(*by))
    }
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Until the last thread has ended, ns.
    pub elapsed: u64,
    /// What the disk was asked for.
    pub requests: u64,
    pub pages: u64,
    /// Time that threads have waited for reads, for names and in page faults, ns.
    pub waited: u64,
    pub reads: u64,
    pub foretold: u64,
    pub stalls: u64,
    pub restarts: u64,
    /// Pages that speculation has asked for, and those that were of no use.
    pub prefetched: u64,
    pub unused: u64,
    /// Time of the program that looks and restarts took, ns.
    pub looked: u64,
    /// Holds, and what they have lasted beyond the arrival of what was waited for, ns.
    pub holds: u64,
    pub held: u64,
    /// Processor time of speculation, ns, and of the speculation that took most.
    pub spent: u64,
    pub dearest: u64,
    /// That of speculation that began at page faults, which has an account of its own.
    pub faults_spent: u64,
    /// What stalls have taken as the agent measures them, to the next call: with what is computed until then, ns.
    pub stalled: u64,
    /// As the regret has it: what was waited for that nobody had asked for, and what was saved, ns.
    pub whole: u64,
    pub saved: u64,
    /// The most that it was thought to be when speculation was to restart. (It follows from means.)
    pub most_saved: u64,
}

/// Plays the program, without speculation or with.
pub fn replay(trace: &Trace, disk: Device, speculates: bool, clock: &Clock) -> Outcome {
    let layout = Layout::of(trace);
    let mut cache = Cache::new(layout, disk);
    if trace.warm {
        cache.fill();
    }
    let threads: Vec<Thread> = trace.threads.iter().map(|steps| Thread::new(steps)).collect();
    let watchers = threads.iter().map(|_| Watcher::default()).collect();
    let mut player = Player {
        trace,
        clock,
        speculates,
        cache,
        threads,
        watchers,
        process: Process::default(),
        speculator: Speculator::new(),
        outcome: Outcome::default(),
    };
    player.play();
    player.finish()
}

struct Player<'a> {
    trace: &'a Trace,
    clock: &'a Clock,
    speculates: bool,
    cache: Cache,
    threads: Vec<Thread<'a>>,
    /// Of each thread's page faults.
    watchers: Vec<Watcher>,
    process: Process,
    speculator: Speculator,
    outcome: Outcome,
}

/// What the agent knows of the process.
#[derive(Default)]
struct Process {
    attention: Attention,
    /// Calls that may pass unseen.
    calm: u32,
    coldness: Coldness,
    /// Waited for by the run, ns.
    run_waited: u64,
    lanes: Vec<usize>,
    latest_lane: usize,
    company: u32,
    epochs: u32,
    stalls: u64,
    partial: u64,
    full: u64,
    stall_ns: u64,
    whole_ns: u64,
}

impl Process {
    /// `abi`'s `AgentCounts::saved_ns`.
    fn saved(&self) -> u64 {
        let whole = self.whole_ns.checked_div(self.stalls.saturating_sub(self.partial)).unwrap_or(0);
        let shortened =
            whole.saturating_mul(self.partial).saturating_sub(self.stall_ns.saturating_sub(self.whole_ns));
        self.full.saturating_mul(whole).saturating_add(shortened)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It computes; its next step begins at its time.
    Computing,
    /// It reads, and waits for this page; up to the other.
    Reading {
        page: u64,
        end: u64,
    },
    /// It waits for its name since then.
    Naming {
        since: u64,
    },
    /// It waits in a page fault.
    Faulting,
    /// It waits for the speculator since then.
    Held {
        settled: bool,
        since: u64,
        invests: bool,
    },
    Over,
}

struct Thread<'a> {
    steps: &'a [Step],
    at: usize,
    time: u64,
    phase: Phase,
    ahead: HashMap<(bool, u32), Ahead>,
    lane: Option<usize>,
    track: Track,
    following: Following,
    pieces: Pieces,
    hold: Hold,
    worth: Worth,
    futile: Futile,
    epoch: u32,
    passed: u32,
    stall_began: u64,
    stall_is_whole: bool,
    saw_a_stall: bool,
    /// In page faults, ns.
    waited: u64,
}

impl<'a> Thread<'a> {
    fn new(steps: &'a [Step]) -> Thread<'a> {
        Thread {
            steps,
            at: 0,
            time: steps.first().map_or(0, |step| step.compute),
            phase: if steps.is_empty() { Phase::Over } else { Phase::Computing },
            ahead: HashMap::new(),
            lane: None,
            track: Track::default(),
            following: Following::default(),
            pieces: Pieces::default(),
            hold: Hold::default(),
            worth: Worth::default(),
            futile: Futile::default(),
            epoch: 0,
            passed: 0,
            stall_began: 0,
            stall_is_whole: false,
            saw_a_stall: false,
            waited: 0,
        }
    }

    fn machines(&mut self) -> Machines<'_> {
        let Thread { track, following, pieces, hold, worth, futile, .. } = self;
        Machines { track, following, pieces, hold, worth, futile }
    }

    /// It goes on behind its step.
    fn next_step(&mut self) {
        self.at += 1;
        match self.steps.get(self.at) {
            Some(step) => {
                self.time = self.time.saturating_add(step.compute);
                self.phase = Phase::Computing;
            }
            None => self.phase = Phase::Over,
        }
    }
}

/// An entry of the hint log.
#[derive(Clone, Copy, Debug)]
struct Entry {
    right: bool,
    prefetched: bool,
    /// Numbers in the ledger of what it asked for.
    pages: (u64, u64),
}

/// A thread's part of the log, its posts, and what the speculator knows of it.
#[derive(Default)]
struct Lane {
    thread: usize,
    posted: u32,
    /// The step at which it was.
    posted_at: usize,
    epoch_before: u32,
    passed_before: u32,
    passed: u32,
    cancelled: u32,
    taken: u32,
    synced: u32,
    over: u32,
    served: u32,
    epoch: u32,
    log: Vec<Entry>,
    settled: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Absent,
    Starting,
    Idle,
    Syncing,
    /// On its way to its next operation, to which so much computing is left; None: nobody knows yet.
    Running(Option<u64>),
    /// It has arrived there.
    Arrived,
    /// Until the program has passed so many.
    Asleep {
        wake_at: u32,
        passed: u32,
    },
}

struct Speculator {
    mode: Mode,
    time: u64,
    lanes: Vec<Lane>,
    lane: usize,
    at: usize,
    /// The data of the step before is there; so many steps are none of the program's, the present one included.
    knows: bool,
    strays: u32,
    begun: u32,
    ticks: u32,
    turn_began: u64,
    pages_next: u64,
    ahead: HashMap<(bool, u32), Ahead>,
    depth: Depth,
    ledger: Box<Ledger>,
    spent: u64,
    /// What of it others can see.
    seen: u64,
    /// When the present speculation began, and the most that one has taken.
    begun_at: u64,
    dearest: u64,
    prefetched: u64,
    sync_cost: u64,
}

impl Speculator {
    fn new() -> Speculator {
        Speculator {
            mode: Mode::Absent,
            time: NEVER,
            lanes: Vec::new(),
            lane: 0,
            at: 0,
            knows: false,
            strays: 0,
            begun: 0,
            ticks: 0,
            turn_began: 0,
            pages_next: 0,
            ahead: HashMap::new(),
            depth: Depth::new(),
            ledger: Box::new(Ledger::new()),
            spent: 0,
            seen: 0,
            begun_at: 0,
            dearest: 0,
            prefetched: 0,
            sync_cost: 0,
        }
    }

    fn now(&self) -> Moment {
        Moment { speculation: self.begun, distance: self.lanes[self.lane].log.len() as u32 }
    }

    fn wakes(&mut self, now: u64) {
        self.time = self.time.min(now + WAKE);
    }

    /// The lane with a post that is to be served next.
    fn next_lane(&self) -> Option<usize> {
        let unserved = |&number: &usize| {
            let lane = &self.lanes[number];
            lane.posted != lane.served && lane.cancelled != lane.posted
        };
        let turn = || (1..=self.lanes.len()).map(|turn| (self.lane + turn) % self.lanes.len());
        turn().filter(unserved).find(|&lane| self.lanes[lane].passed <= 1).or_else(|| turn().find(unserved))
    }

    fn others_wait(&self) -> bool {
        self.next_lane().is_some_and(|lane| lane != self.lane)
    }

    fn settle(&mut self) {
        for lane in &mut self.lanes {
            if lane.posted == lane.served {
                settle(lane, lane.passed, &mut self.ledger, &mut self.depth);
            }
        }
    }
}

fn settle(lane: &mut Lane, passed: u32, ledger: &mut Ledger, depth: &mut Depth) {
    let passed = passed.min(lane.log.len() as u32);
    for entry in lane.log.iter().take(passed as usize).skip(lane.settled as usize) {
        ledger.passed(depth, entry.pages.0, entry.pages.1);
    }
    lane.settled = lane.settled.max(passed);
}

impl Player<'_> {
    fn play(&mut self) {
        loop {
            let threads = self.threads.iter().enumerate().filter(|(_, thread)| thread.phase != Phase::Over);
            let Some((number, time)) =
                threads.map(|(number, thread)| (number, thread.time)).min_by_key(|one| one.1)
            else {
                return;
            };
            let watcher =
                |(number, watcher): (usize, &Watcher)| (watcher.time.min(watcher.runner.time), number);
            let watchers = self.watchers.iter().enumerate().map(watcher);
            let (watched, watcher) = watchers.min().unwrap_or((NEVER, 0));
            if watched < time && watched < self.speculator.time {
                self.watches(watcher);
            } else if self.speculator.time < time {
                self.speculate();
            } else {
                self.thread_goes_on(number);
            }
        }
    }

    /// The watcher of a thread's faults, or speculation that began at one.
    fn watches(&mut self, number: usize) {
        let (watcher, costs) = (&mut self.watchers[number], &self.trace.costs);
        if watcher.runner.time < watcher.time {
            watcher.runner.goes_on(self.threads[number].steps, &mut self.cache, costs);
        } else {
            watcher.look(&mut self.cache, costs, self.threads[number].waited);
        }
    }

    fn finish(mut self) -> Outcome {
        self.speculator.settle();
        let outcome = &mut self.outcome;
        outcome.elapsed = self.threads.iter().map(|thread| thread.time).max().unwrap_or(0);
        (outcome.requests, outcome.pages) = (self.cache.requests, self.cache.asked);
        outcome.prefetched = self.speculator.prefetched;
        outcome.unused = self.speculator.ledger.wasted() + self.speculator.ledger.open();
        outcome.stalls = self.process.stalls;
        (outcome.spent, outcome.dearest) = (self.speculator.spent, self.speculator.dearest);
        outcome.stalled = self.process.stall_ns;
        (outcome.whole, outcome.saved) = (self.process.whole_ns, self.process.saved());
        for watcher in &self.watchers {
            outcome.restarts += watcher.posts;
            outcome.foretold += watcher.foretold;
            outcome.prefetched += watcher.runner.prefetched;
            outcome.faults_spent += watcher.runner.spent;
        }
        self.outcome
    }

    fn thread_goes_on(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        let now = thread.time;
        match thread.phase {
            Phase::Computing => match thread.steps[thread.at].what {
                What::Read { file, place, length } => {
                    self.outcome.reads += 1;
                    if self.speculates {
                        self.reads(number, file, place, length);
                    }
                    let thread = &mut self.threads[number];
                    if !matches!(thread.phase, Phase::Held { .. }) {
                        self.begins_reading(number);
                    }
                }
                What::Name { number: name } => {
                    let (file, page) = page_of_name(name);
                    self.cache.ask(file, page, 1, now);
                    let ready = self.cache.ready(file, page).unwrap_or(now).max(now);
                    thread.time = ready + READ;
                    thread.phase = Phase::Naming { since: now };
                }
                What::Touch { file, page, instruction } => {
                    let ahead = thread.ahead.entry((true, file)).or_default();
                    let (ready, _) = self.cache.fault(ahead, file, page, now);
                    let waits = ready.saturating_sub(now);
                    thread.time = ready.max(now) + READ;
                    thread.phase = Phase::Faulting;
                    if self.speculates {
                        let fault = Fault { at: thread.at, file, page, instruction };
                        let seen = self.watchers[number].faults(fault, waits > 0, now, thread.waited);
                        thread.time += seen;
                        self.outcome.looked += seen;
                    }
                    thread.waited += waits;
                    self.outcome.waited += waits;
                }
            },
            Phase::Reading { page, end } => self.goes_on_reading(number, page, end),
            Phase::Naming { since } => {
                if self.speculates {
                    self.looked_up(now - since);
                }
                self.outcome.waited += (now - since).saturating_sub(READ);
                self.threads[number].next_step();
            }
            Phase::Faulting => thread.next_step(),
            Phase::Held { since, invests, .. } => self.was_held(number, since, invests),
            Phase::Over => {}
        }
    }

    fn begins_reading(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        let What::Read { place, length, .. } = thread.steps[thread.at].what else { return };
        let (page, end) = (place / PAGE, (place + length).div_ceil(PAGE));
        thread.phase = Phase::Reading { page, end };
        self.goes_on_reading(number, page, end);
    }

    fn goes_on_reading(&mut self, number: usize, page: u64, end: u64) {
        let thread = &mut self.threads[number];
        let What::Read { file, length, .. } = thread.steps[thread.at].what else { return };
        let ahead = thread.ahead.entry((false, file)).or_default();
        for page in page..end {
            let (ready, _) = self.cache.read(ahead, file, page, end - page, thread.time);
            if ready > thread.time {
                self.outcome.waited += ready - thread.time;
                thread.time = ready;
                thread.phase = Phase::Reading { page, end };
                return;
            }
        }
        thread.time += READ + length / BYTES_A_NS;
        thread.next_step();
    }

    fn looked_up(&mut self, took: u64) {
        if self.process.coldness.passed(took) {
            self.process.run_waited = self.process.run_waited.saturating_add(took);
            self.process.attention.stall();
            self.process.calm = 0;
        } else if self.process.calm > 0 {
            self.process.calm -= 1;
        } else {
            let skip = self.process.attention.hit();
            self.set_calm(skip);
        }
    }
}

/// The agent (`agent::reads`).
impl Player<'_> {
    fn reads(&mut self, number: usize, file: u32, place: u64, length: u64) {
        if self.process.calm > 0 {
            self.process.calm -= 1;
            return;
        }
        let look = self.trace.costs.look;
        self.outcome.looked += look;
        let thread = &mut self.threads[number];
        thread.time += look;
        let now = thread.time;
        self.notes_company(number);
        self.end_of_stall(number);
        let foretold = self.compare(number);
        let thread = &mut self.threads[number];
        let is_cached_in_any_case = foretold.is_some_and(|entry| !entry.prefetched);
        let page = place / PAGE;
        let is_there = is_cached_in_any_case || self.cache.is_there(file, page, now);
        if !is_there {
            let left = (place + length).div_ceil(PAGE) - page;
            let ahead = thread.ahead.entry((false, file)).or_default();
            self.cache.read(ahead, file, page, left, now);
        }
        self.outcome.foretold += u64::from(foretold.is_some());
        let (sync, time) = (self.speculator.sync_cost, self.clock.at(now));
        thread.machines().read(foretold.is_some(), length, sync, || time);
        match foretold {
            Some(entry) if !entry.prefetched => {}
            _ if is_there => self.hits(number, foretold),
            _ => self.stalls(number, foretold, file, page),
        }
    }

    fn notes_company(&mut self, number: usize) {
        let Some(lane) = self.threads[number].lane else { return };
        let process = &mut self.process;
        if process.latest_lane != lane {
            (process.latest_lane, process.company) = (lane, COMPANY);
        } else {
            process.company = process.company.saturating_sub(1);
        }
    }

    fn has_company(&self) -> bool {
        self.process.company > 0
    }

    fn end_of_stall(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        thread.saw_a_stall = false;
        let began = std::mem::take(&mut thread.stall_began);
        if began == 0 {
            return;
        }
        let ns = self.clock.at(thread.time).saturating_sub(began);
        thread.saw_a_stall = true;
        thread.hold.stalled(ns);
        let is_whole = thread.stall_is_whole;
        thread.worth.waited(ns, is_whole, self.speculator.prefetched);
        self.waited(ns, is_whole);
    }

    fn waited(&mut self, ns: u64, is_whole: bool) {
        let process = &mut self.process;
        process.stall_ns = process.stall_ns.saturating_add(ns);
        process.run_waited = process.run_waited.saturating_add(ns);
        if is_whole {
            process.whole_ns = process.whole_ns.saturating_add(ns);
        }
    }

    /// Entries that the log holds for a thread in its epoch.
    fn written(&self, number: usize) -> u32 {
        let thread = &self.threads[number];
        let lane = thread.lane.and_then(|lane| self.speculator.lanes.get(lane));
        lane.filter(|lane| lane.synced == thread.epoch).map_or(0, |lane| lane.log.len() as u32)
    }

    fn next(&self, number: usize) -> Option<Entry> {
        let thread = &self.threads[number];
        if thread.passed >= self.written(number) {
            return None;
        }
        self.speculator.lanes[thread.lane?].log.get(thread.passed as usize).copied()
    }

    /// What the log says of the thread's read, if it has foretold it.
    fn compare(&mut self, number: usize) -> Option<Entry> {
        if !self.threads[number].track.is_on() {
            return None;
        }
        let entry = self.next(number);
        let next = match entry {
            Some(entry) if entry.right => Next::Foretold,
            Some(_) => Next::Different,
            None if self.has_stopped(number) => Next::Never,
            None => Next::NotYet,
        };
        self.follow(number, next);
        entry.filter(|_| next == Next::Foretold)
    }

    fn has_stopped(&self, number: usize) -> bool {
        let thread = &self.threads[number];
        let lane = thread.lane.and_then(|lane| self.speculator.lanes.get(lane));
        lane.is_none_or(|lane| lane.over == thread.epoch && self.written(number) <= thread.passed)
    }

    fn follow(&mut self, number: usize, next: Next) {
        let thread = &mut self.threads[number];
        let (now, lane) = (thread.time, thread.lane);
        match thread.track.passes(next) {
            Passing::Pass => {
                thread.passed += 1;
                let passed = thread.passed;
                let Some(lane) = lane else { return };
                self.speculator.lanes[lane].passed = passed;
                if let Mode::Asleep { wake_at, .. } = self.speculator.mode
                    && self.speculator.lane == lane
                    && passed >= wake_at
                {
                    self.speculator.wakes(now);
                }
            }
            Passing::Off { cancel: true } => self.cancel(number),
            Passing::Off { cancel: false } => {}
        }
    }

    fn cancel(&mut self, number: usize) {
        let thread = &self.threads[number];
        let Some(lane) = thread.lane else { return };
        self.speculator.lanes[lane].cancelled = thread.epoch;
        if matches!(self.speculator.mode, Mode::Asleep { .. }) {
            self.speculator.wakes(thread.time);
        }
    }

    fn hits(&mut self, number: usize, foretold: Option<Entry>) {
        let thread = &mut self.threads[number];
        if foretold.is_some_and(|entry| entry.prefetched) {
            self.process.full += 1;
            self.process.attention.stall();
            thread.hold.saved();
            thread.worth.spared();
            thread.pieces.stall();
        }
        if thread.track.is_on()
            && thread.pieces.cost_more(thread.hold.expected_stall())
            && thread.track.leaves()
        {
            self.cancel(number);
        }
        let skip = self.process.attention.hit();
        let away = if skip == 0 { self.looks_away(number) } else { 0 };
        self.set_calm(skip.max(away));
    }

    fn must_see(&self) -> bool {
        self.threads.iter().any(|thread| thread.phase != Phase::Over && thread.track.is_on())
    }

    fn set_calm(&mut self, skip: u32) {
        self.process.calm = if self.must_see() { 0 } else { skip };
    }

    fn looks_away(&mut self, number: usize) -> u32 {
        if !self.threads[number].saw_a_stall || self.must_see() {
            return 0;
        }
        let thread = &mut self.threads[number];
        thread.worth.look_away(thread.hold.expected_stall())
    }

    fn stalls(&mut self, number: usize, foretold: Option<Entry>, file: u32, page: u64) {
        self.process.attention.stall();
        self.process.calm = 0;
        self.process.stalls += 1;
        self.process.partial += u64::from(foretold.is_some());
        let thread = &mut self.threads[number];
        thread.pieces.stall();
        thread.stall_began = self.clock.at(thread.time).max(1);
        thread.stall_is_whole = foretold.is_none();
        thread.worth.waits(self.speculator.prefetched);
        let has_lane = self.takes_lane(number);
        if has_lane && !self.is_patient() {
            let stall = Stall {
                foretold: foretold.is_some(),
                gap: self.threads[number].passed.saturating_sub(self.written(number)),
                waits_for_turn: self.waits_for_turn(number),
                has_company: self.has_company(),
                sync: self.speculator.sync_cost,
                may: true,
            };
            if let Restart::Post(wait) = self.threads[number].machines().at_stall(stall) {
                return self.post(number, wait, file, page);
            }
        }
        let away = self.looks_away(number);
        if away > 0 {
            self.set_calm(away);
            let thread = &mut self.threads[number];
            thread.stall_began = 0;
            let (expected, is_whole) = (thread.hold.expected_stall(), thread.stall_is_whole);
            self.waited(expected, is_whole);
        }
    }

    fn takes_lane(&mut self, number: usize) -> bool {
        if self.threads[number].lane.is_none() && self.process.lanes.len() < LANES {
            let lane = self.process.lanes.len();
            self.process.lanes.push(number);
            self.threads[number].lane = Some(lane);
            self.speculator.lanes.push(Lane { thread: number, ..Lane::default() });
        }
        self.threads[number].lane.is_some()
    }

    fn is_patient(&mut self) -> bool {
        let process = &self.process;
        let past = Past {
            stalls: process.stalls,
            patience: 0,
            spent: self.speculator.seen,
            waited: process.whole_ns,
            saved: process.saved(),
        };
        self.outcome.most_saved = self.outcome.most_saved.max(past.saved);
        past.is_patient() || !is_worth_a_start(process.run_waited, false)
    }

    /// Other threads have had their turns since this one has posted.
    fn waits_for_turn(&self, number: usize) -> bool {
        let thread = &self.threads[number];
        let lane = thread.lane.and_then(|lane| self.speculator.lanes.get(lane));
        self.has_company() && lane.is_some_and(|lane| lane.taken != thread.epoch)
    }

    fn post(&mut self, number: usize, wait: Wait, file: u32, page: u64) {
        let renews = self.waits_for_turn(number);
        let thread = &mut self.threads[number];
        let Some(lane) = thread.lane.map(|lane| &mut self.speculator.lanes[lane]) else { return };
        self.process.epochs += 1;
        let before = std::mem::replace(&mut thread.epoch, self.process.epochs);
        if !renews {
            (lane.epoch_before, lane.passed_before) = (before, thread.passed);
        }
        thread.passed = 0;
        thread.track.posted();
        let is_served = lane.synced != 0;
        if is_served && !renews {
            thread.worth.posted(false);
        }
        if !renews {
            thread.futile.restarts(self.speculator.prefetched, is_served);
        }
        (lane.posted, lane.posted_at, lane.passed) = (thread.epoch, thread.at, 0);
        thread.time += self.trace.costs.restart;
        self.outcome.looked += self.trace.costs.restart;
        self.outcome.restarts += 1;
        let now = thread.time;
        self.follow(number, Next::NotYet);
        match self.speculator.mode {
            Mode::Absent => {
                self.speculator.mode = Mode::Starting;
                self.speculator.time = now;
                self.charge(self.trace.costs.start);
            }
            Mode::Idle | Mode::Asleep { .. } => self.speculator.wakes(now),
            _ => {}
        }
        let (settled, mut longest) = match wait {
            Wait::Not => return,
            Wait::Within(longest) => (false, longest),
            Wait::Invest(longest) => (true, longest),
        };
        if self.has_company() {
            let ready = self.cache.ready(file, page).unwrap_or(now);
            longest = longest.min(ready.saturating_sub(now));
        }
        let thread = &mut self.threads[number];
        thread.time = now.saturating_add(longest);
        thread.phase = Phase::Held { settled, since: now, invests: settled };
    }

    fn was_held(&mut self, number: usize, since: u64, invests: bool) {
        let thread = &mut self.threads[number];
        let What::Read { file, place, .. } = thread.steps[thread.at].what else { return };
        let held = self.clock.at(thread.time).saturating_sub(self.clock.at(since));
        let ready = self.cache.ready(file, place / PAGE).unwrap_or(since);
        let beyond = thread.time.saturating_sub(ready.max(since));
        self.outcome.holds += 1;
        self.outcome.held += beyond;
        self.outcome.waited += thread.time - since - beyond;
        if invests {
            thread.hold.invested(held);
        } else if ready <= thread.time {
            thread.hold.outlasted(held);
        }
        self.begins_reading(number);
    }
}

/// The speculator (`speculator::run`).
impl Player<'_> {
    /// It computes for `ns`, from its time on.
    fn charge(&mut self, ns: u64) {
        let from = self.speculator.time;
        let wants = |thread: &&mut Thread| thread.phase == Phase::Computing && thread.time > from;
        let computing = self.threads.iter_mut().filter(wants).count() as u64;
        let is_crowded = computing >= u64::from(self.trace.processors);
        if is_crowded {
            let each = ns / computing.max(1);
            self.threads.iter_mut().filter(wants).for_each(|thread| thread.time += each);
        }
        self.speculator.spent += ns;
        let present = self.speculator.spent - self.speculator.begun_at;
        self.speculator.dearest = self.speculator.dearest.max(present);
        self.speculator.time = from.saturating_add(if is_crowded { ns.saturating_mul(SHARE) } else { ns });
    }

    fn speculate(&mut self) {
        match self.speculator.mode {
            Mode::Absent => self.speculator.time = NEVER,
            Mode::Starting | Mode::Idle => self.serves(),
            Mode::Syncing => self.synced(),
            Mode::Running(left) => {
                if !self.is_over() {
                    self.goes_on(left);
                }
            }
            Mode::Arrived => {
                if !self.is_over() {
                    self.operates();
                }
            }
            Mode::Asleep { wake_at, passed } => self.wakes_up(wake_at, passed),
        }
    }

    fn serves(&mut self) {
        self.speculator.mode = Mode::Idle;
        let Some(number) = self.speculator.next_lane() else {
            // It tells what it has taken.
            self.speculator.seen = self.speculator.spent;
            self.speculator.time = NEVER;
            return;
        };
        self.speculator.settle();
        let speculator = &mut self.speculator;
        let lane = &mut speculator.lanes[number];
        lane.taken = lane.posted;
        if lane.epoch_before == lane.epoch {
            settle(lane, lane.passed_before, &mut speculator.ledger, &mut speculator.depth);
        }
        (lane.served, lane.epoch, lane.settled) = (lane.posted, lane.posted, 0);
        lane.log.clear();
        (speculator.lane, speculator.at) = (number, lane.posted_at);
        (speculator.knows, speculator.strays) = (true, 0);
        speculator.begun += 1;
        if speculator.begun > 1 {
            // The first is paid for together with the start.
            speculator.begun_at = speculator.spent;
        }
        let threads = speculator.lanes.iter().filter(|lane| lane.posted != 0).count().max(1) as u32;
        speculator.ledger.age(&mut speculator.depth, speculator.begun, threads);
        speculator.pages_next = speculator.ledger.position();
        speculator.mode = Mode::Syncing;
        self.charge(self.trace.costs.sync);
    }

    fn synced(&mut self) {
        let speculator = &mut self.speculator;
        let (now, number) = (speculator.time, speculator.lane);
        speculator.lanes[number].synced = speculator.lanes[number].epoch;
        speculator.sync_cost = self.trace.costs.sync.max(1);
        speculator.seen = speculator.spent;
        (speculator.turn_began, speculator.ticks) = (now, 0);
        speculator.mode = Mode::Running(None);
        self.lets_go(false);
    }

    /// Lets go of a thread that is held until speculation is in step, or has settled.
    fn lets_go(&mut self, settled: bool) {
        let (now, lane) = (self.speculator.time, &self.speculator.lanes[self.speculator.lane]);
        let thread = &mut self.threads[lane.thread];
        if matches!(thread.phase, Phase::Held { settled: until, .. } if until == settled)
            && thread.epoch == lane.epoch
        {
            thread.time = thread.time.min(now + WAKE);
        }
    }

    fn ends(&mut self) {
        self.lets_go(true);
        self.speculator.settle();
        let disk = self.disk();
        let speculator = &mut self.speculator;
        speculator.depth.grow(disk);
        let lane = &mut speculator.lanes[speculator.lane];
        lane.over = lane.epoch;
        speculator.mode = Mode::Idle;
    }

    /// Whether the present speculation has become pointless, or its turn is over; ends it then.
    fn is_over(&mut self) -> bool {
        let speculator = &self.speculator;
        let lane = &speculator.lanes[speculator.lane];
        let pointless = lane.posted != lane.epoch || lane.cancelled == lane.epoch;
        let over = pointless || self.turn_is_over();
        if over {
            self.ends();
        }
        over
    }

    fn turn_is_over(&self) -> bool {
        let speculator = &self.speculator;
        if !speculator.others_wait() {
            return false;
        }
        let turn =
            (speculator.sync_cost * TURN_SYNCS).max(self.expected_stall()).clamp(TURN_LEAST, TURN_MOST);
        speculator.time.saturating_sub(speculator.turn_began) >= turn
    }

    fn expected_stall(&self) -> u64 {
        self.threads[self.speculator.lanes[self.speculator.lane].thread].hold.expected_stall()
    }

    fn disk(&self) -> Disk {
        let thread = &self.threads[self.speculator.lanes[self.speculator.lane].thread];
        Disk::of(thread.hold.expected_stall(), thread.worth.is_crowded())
    }

    fn steps(&self) -> &[Step] {
        self.threads[self.speculator.lanes[self.speculator.lane].thread].steps
    }

    /// Computes, up to the next tick, at which it looks whether that is of use still.
    fn goes_on(&mut self, left: Option<u64>) {
        let left = match left {
            Some(left) => left,
            None => {
                let lane = &self.speculator.lanes[self.speculator.lane];
                let is_first = lane.log.is_empty() && self.speculator.at == lane.posted_at;
                let Some(step) = self.steps().get(self.speculator.at).copied() else {
                    return self.ends();
                };
                if !is_first && step.known == Known::Never {
                    return self.ends();
                }
                (if is_first { 0 } else { step.compute }) + self.trace.costs.operation
            }
        };
        let Some(rest) = left.checked_sub(TICK).filter(|rest| *rest > 0) else {
            self.speculator.mode = Mode::Arrived;
            return self.charge(left);
        };
        self.speculator.ticks += 1;
        if self.speculator.ticks > TICKS_WITHOUT_PROGRESS {
            return self.ends();
        }
        self.speculator.mode = Mode::Running(Some(rest));
        self.charge(TICK);
    }

    fn operates(&mut self) {
        let now = self.speculator.time;
        let at = self.speculator.at;
        let step = self.steps()[at];
        let is_own = self.speculator.lanes[self.speculator.lane].log.is_empty();
        // What follows from blanks is elsewhere, and so are some of the next.
        let follows_from_blanks = step.known == Known::AfterData && !is_own && !self.speculator.knows;
        let left = if follows_from_blanks { STRAYS } else { self.speculator.strays.saturating_sub(1) };
        self.speculator.strays = left;
        self.speculator.at += 1;
        self.speculator.mode = Mode::Running(None);
        match step.what {
            What::Read { file, place, length } => self.speculates_read(at, file, place, length, is_own),
            What::Name { number } => {
                let (file, page) = page_of_name(number);
                self.cache.ask(file, page, 1, now);
                self.speculator.time = self.cache.ready(file, page).unwrap_or(now).max(now);
                self.speculator.knows = true;
            }
            What::Touch { file, page, .. } => {
                self.speculator.knows = self.cache.is_there(file, page, now);
                if !self.speculator.knows {
                    self.speculator.prefetched += self.cache.ask(file, page, 1, now);
                }
            }
        }
    }

    fn speculates_read(&mut self, at: usize, file: u32, place: u64, length: u64, is_own: bool) {
        let now = self.speculator.time;
        let of_file = self.cache.layout.pages(file);
        let (mut first, mut end) = (place / PAGE, (place + length).div_ceil(PAGE).min(of_file));
        let strays = self.speculator.strays > 0;
        if strays {
            // Somewhere else in the file: by what the speculation at hand has found in its memory.
            let count = end.saturating_sub(first);
            let mixed = (u64::from(self.speculator.begun) << 20) ^ (at as u64 + 1);
            first = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % of_file.saturating_sub(count).max(1);
            end = first + count;
        }
        let there = (first..end).take_while(|&page| self.cache.is_there(file, page, now)).count() as u64;
        let moment = self.speculator.now();
        let speculator = &mut self.speculator;
        let mut before = false;
        if there > 0 {
            before = speculator.ledger.found(&mut speculator.depth, file.into(), first, there as u32, moment);
        }
        let missing = end.saturating_sub(first + there);
        if missing > 0 {
            let from = first + there;
            if of_file <= WHOLE_FILE {
                end = of_file;
            } else {
                let ahead = speculator.ahead.entry((false, file)).or_default();
                self.cache.read(ahead, file, from, missing, now);
            }
            let count = (end - from).min(HINT_MOST);
            self.cache.ask(file, from, count, now);
            if !is_own {
                let entered =
                    speculator.ledger.enter(&mut speculator.depth, file.into(), from, count as u32, moment);
                speculator.prefetched += u64::from(entered);
            }
        } else if let Some(page) = end.checked_sub(1) {
            // What is found goes through the file's read-ahead as well.
            let ahead = speculator.ahead.entry((false, file)).or_default();
            self.cache.read(ahead, file, page, 1, now);
        }
        speculator.knows = missing == 0 && !strays;
        if missing > 0 {
            self.charge(MISS);
        }
        self.writes(!strays, missing > 0 || before);
    }

    /// `Run::log`.
    fn writes(&mut self, right: bool, prefetched: bool) {
        let disk = self.disk();
        let speculator = &mut self.speculator;
        speculator.ticks = 0;
        let asked_to = speculator.ledger.position();
        let lane = &mut speculator.lanes[speculator.lane];
        if (lane.log.len() as u32) < lane.passed {
            speculator.ledger.forget(&mut speculator.depth, speculator.pages_next, asked_to);
        }
        lane.log.push(Entry { right, prefetched, pages: (speculator.pages_next, asked_to) });
        speculator.pages_next = asked_to;
        let (written, passed) = (lane.log.len() as u32, lane.passed);
        if written == SETTLED_AFTER {
            self.lets_go(true);
        }
        if written.is_multiple_of(SETTLE_EVERY) {
            self.speculator.settle();
        }
        if self.turn_is_over() {
            return self.ends();
        }
        let operations = self.speculator.depth.operations(disk);
        if written.saturating_sub(passed) >= operations {
            self.falls_asleep(written, passed, operations);
        }
    }

    fn falls_asleep(&mut self, written: u32, passed: u32, operations: u32) {
        self.lets_go(true);
        if self.speculator.others_wait() {
            return self.ends();
        }
        let wake_at = written.saturating_sub(operations / 2).max(passed + 1).min(written);
        self.speculator.mode = Mode::Asleep { wake_at, passed };
        self.sleeps_on();
    }

    fn sleeps_on(&mut self) {
        let held = HELD_MOST.max(self.expected_stall().saturating_mul(HELD_MOST_STALLS));
        self.speculator.time = self.speculator.time.saturating_add(held);
    }

    fn wakes_up(&mut self, wake_at: u32, before: u32) {
        if self.is_over() {
            return;
        }
        if self.speculator.others_wait() {
            return self.ends();
        }
        let passed = self.speculator.lanes[self.speculator.lane].passed;
        if passed >= wake_at {
            let disk = self.disk();
            self.speculator.settle();
            self.speculator.depth.grow(disk);
            self.speculator.mode = Mode::Running(None);
        } else if passed == before {
            // The program stands still.
            self.ends();
        } else {
            self.speculator.mode = Mode::Asleep { wake_at, passed };
            self.sleeps_on();
        }
    }
}
