//! A program played back, alone or with a speculator, in virtual time.
//!
//! Threads and the speculator act in the order of their times. The agent's part and the speculator's ask the
//! policies in the order in which the real ones do; what these decide is theirs. Everything else is a model:
//! the disk, the page cache, what our own parts take. The same input gives the same outcome to the bit.

mod agent;
mod speculation;

use crate::cache::{Ahead, Cache, Layout, page_of_name};
use crate::device::Device;
use crate::faults::{Fault, Watcher};
use crate::trace::{Known, PAGE, Step, Trace, What};
use runahead_policy::attention::Attention;
use runahead_policy::coldness::{Coldness, Slept};
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

/// Steps that are elsewhere behind one that follows from blanks, itself included. Fitted: of 1, 3, 4 and all
/// the one with which recorded programs come nearest to what was measured on `cloud`.
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
    /// What stalls have taken as the agent measures them, to the next call: with what is computed until then,
    /// ns.
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
    /// The data of the step before is there; so many steps are none of the program's, the present one
    /// included.
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
        if self.process.coldness.passed(took, || Slept::Yes) {
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
