//! The watcher of page faults (`faults::watch`, `faults::pursuit`) and the speculation that begins at one.
//!
//! Asks the policies as the real ones do: strides first, then whether speculation has foretold a fault, and
//! last whether watching pays. Drifts and swap are left out.

use crate::cache::Cache;
use crate::trace::{Costs, Known, PAGE, Step, What};
use runahead_policy::arming::{Arming, LOOK_LEAST, Looked, Then as Watching};
use runahead_policy::strides::Strides;
use runahead_policy::touches::{self, Seen, Then, Touches};
use std::collections::{HashMap, HashSet};

/// Never.
const NEVER: u64 = u64::MAX;

/// Until somebody who sleeps is at work, ns.
const WAKE: u64 = 6_000;

/// What it takes a program to have a fault recorded, ns.
pub const SEEN: u64 = 700;

/// Pages that strides may be ahead.
const ROOM: u32 = 1 << 16;

/// As in `faults::pursuit` and `faults::watch`.
const SPAN: u64 = 4_000_000;
const LEAST_SPAN: u64 = SPAN / 2;
const SPANS: u32 = 2;
const SCAN_QUARTERS: u64 = 3;
const ON_TRACK: u32 = 3;
const ON_TRACK_OF: u32 = 4;

/// As in `speculator::run`.
const TOUCHES_MOST: u32 = 3072;
const SCAN_PAGES: u32 = 16;

/// A fault that was seen.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub at: usize,
    pub file: u32,
    pub page: u64,
    pub instruction: u32,
}

/// A page's place in the log, in the log since which restart, and whether it was asked for.
#[derive(Clone, Copy)]
struct Entry {
    position: u32,
    restart: u32,
    fetched: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Faults that wait wake it.
    Resting,
    Watching,
    /// Until its time, or so many faults have waited.
    Paused(Option<u32>),
}

/// The watcher of one thread.
pub struct Watcher {
    state: State,
    /// When it looks next.
    pub time: u64,
    looked: u64,
    sleep: u64,
    arming: Arming,
    strides: Strides,
    touches: Touches,
    log: HashMap<(u32, u64), Entry>,
    written: u32,
    restarts: u32,
    restarted: Option<u64>,
    ahead_of_log: HashSet<(u32, u64)>,
    scan_seen: bool,
    little: u32,
    /// When the span began, and what the thread had waited then.
    span: (u64, u64),
    seen: Vec<Fault>,
    pub runner: Runner,
    pub posts: u64,
    pub foretold: u64,
}

/// Speculation from a fault.
pub struct Runner {
    pub time: u64,
    /// The step that it comes to next; None: it has ended, or never began.
    at: Option<usize>,
    has_begun: bool,
    knows: bool,
    strays: bool,
    asleep: bool,
    met_scan: bool,
    /// What was touched: page, whether it was asked for, and missing pages up to it.
    log: Vec<((u32, u64), bool, u32)>,
    passed: u32,
    ahead: u32,
    scan: ((u32, u64), u32),
    pub spent: u64,
    pub prefetched: u64,
}

impl Default for Watcher {
    fn default() -> Watcher {
        Watcher {
            state: State::Resting,
            time: NEVER,
            looked: 0,
            sleep: LOOK_LEAST,
            arming: Arming::default(),
            strides: Strides::default(),
            touches: Touches::default(),
            log: HashMap::new(),
            written: 0,
            restarts: 0,
            restarted: None,
            ahead_of_log: HashSet::new(),
            scan_seen: false,
            little: 0,
            span: (0, 0),
            seen: Vec::new(),
            runner: Runner::new(),
            posts: 0,
            foretold: 0,
        }
    }
}

impl Watcher {
    /// The thread faults at `now`; `waits`: for the disk. What it has `waited` for before. Returns what being
    /// seen costs it, ns.
    pub fn faults(&mut self, fault: Fault, waits: bool, now: u64, waited: u64) -> u64 {
        match &mut self.state {
            State::Resting if waits => self.arms(now, waited),
            State::Paused(Some(left)) if waits && *left > 1 => *left -= 1,
            State::Paused(Some(_)) if waits => {
                self.arming.waits_came();
                self.arms(now, waited);
            }
            _ => {}
        }
        if self.state != State::Watching {
            return 0;
        }
        self.seen.push(fault);
        SEEN
    }

    fn arms(&mut self, now: u64, waited: u64) {
        self.state = State::Watching;
        (self.sleep, self.looked, self.time) = (LOOK_LEAST, now, now + WAKE + LOOK_LEAST);
        (self.span, self.little) = ((now, waited), 0);
    }

    /// Looks at what was seen. `waited`: what the thread has waited by now, ns.
    pub fn look(&mut self, cache: &mut Cache, costs: &Costs, waited: u64) {
        let now = self.time;
        if self.state != State::Watching {
            // A pause is over: the next fault that waits wakes it.
            (self.state, self.time) = (State::Resting, NEVER);
            return;
        }
        self.reads_log(now);
        let seen = std::mem::take(&mut self.seen);
        let mut looked = Looked { faults: seen.len() as u32, ..Looked::default() };
        let mut foretold = 0;
        for (number, fault) in seen.iter().enumerate() {
            let is_latest = number + 1 == seen.len();
            self.takes_in(fault, is_latest, (cache, costs), (now, waited), (&mut looked, &mut foretold));
        }
        let (whole, in_it) = (now.saturating_sub(self.span.0), waited.saturating_sub(self.span.1));
        if whole >= SPAN {
            self.little = if touches::is_little(whole, in_it) { self.little + 1 } else { 0 };
            self.span = (now, waited);
        }
        looked.little = self.little >= SPANS;
        let on_track = foretold > 0 && foretold * ON_TRACK_OF >= looked.faults * ON_TRACK;
        looked.slack = if on_track { self.touches.ahead() / 8 } else { 0 };
        let then = self.arming.looked(now.saturating_sub(self.looked), looked);
        self.sleep = self.arming.next_look(self.sleep, looked);
        (self.looked, self.time) = (now, now + self.sleep);
        if then != Watching::Watch {
            self.strides = Strides::default();
        }
        match then {
            Watching::Watch => {}
            Watching::Rest => (self.state, self.time) = (State::Resting, NEVER),
            Watching::Pause { ns, waits } => {
                self.runner.cancels();
                (self.state, self.time) = (State::Paused(waits), now.saturating_add(ns));
            }
        }
    }

    fn reads_log(&mut self, now: u64) {
        let before = self.touches.passed();
        while let Some(&(page, fetched, _)) = self.runner.log.get(self.written as usize) {
            let (position, restart) = (self.written, self.restarts);
            let is_ahead = |entry: &Entry| entry.restart == restart && entry.position >= before;
            if !self.log.get(&page).is_some_and(is_ahead) {
                self.log.insert(page, Entry { position, restart, fetched });
            }
            self.written += 1;
            if self.ahead_of_log.remove(&page) {
                self.touches.fault(Seen::Foretold { position, fetched: false }, Some(self.written));
            }
        }
        if self.touches.passed() > before {
            self.runner.passed(self.touches.passed(), self.touches.ahead(), now);
        }
        if self.touches.is_dear(self.runner.spent) {
            self.runner.cancels();
        }
        if !self.scan_seen && self.runner.met_scan {
            self.scan_seen = true;
            self.touches.met_scan();
        }
    }

    fn takes_in(
        &mut self,
        fault: &Fault,
        is_latest: bool,
        (cache, costs): (&mut Cache, &Costs),
        (now, waited): (u64, u64),
        (looked, foretold): (&mut Looked, &mut u32),
    ) {
        let (useful, served) = self.strides(fault, cache, now);
        looked.useful += useful;
        looked.follows += u32::from(served && useful == 0 && self.strides.has_asked());
        if useful > 0 || served {
            self.touches.served();
            self.foretold += 1;
            return;
        }
        let page = (fault.file, fault.page);
        let entry = self.log.get(&page).copied();
        let current = entry.filter(|entry| entry.restart == self.restarts && self.touches.is_on());
        if current.is_none() {
            self.ahead_of_log.insert(page);
        }
        let seen = match current {
            Some(Entry { position, fetched, .. }) => Seen::Foretold { position, fetched },
            None if is_latest && !cache.is_there(page.0, page.1, now) => Seen::Missing,
            None => Seen::Cached,
        };
        looked.waits |= seen == Seen::Missing;
        if let (Seen::Cached, Some(earlier)) = (seen, entry) {
            looked.follows += 1;
            *foretold += 1;
            looked.useful += u32::from(earlier.fetched);
            self.log.remove(&page);
        }
        let age = self.restarted.map_or(u64::MAX, |at| now.saturating_sub(at));
        let let_be = self.touches.is_young(age) && seen == Seen::Missing;
        let seen = if let_be { Seen::Cached } else { seen };
        match self.touches.fault(seen, self.runner.has_begun.then_some(self.written)) {
            Then::Nothing => {}
            Then::Passed => {
                self.runner.passed(self.touches.passed(), self.touches.ahead(), now);
                looked.follows += 1;
                *foretold += 1;
                self.foretold += 1;
                looked.useful += u32::from(matches!(seen, Seen::Foretold { fetched: true, .. }));
            }
            Then::Post => self.posts_at(fault, costs, (now, waited)),
        }
    }

    fn posts_at(&mut self, fault: &Fault, costs: &Costs, (now, waited): (u64, u64)) {
        let (whole, in_it) = (now.saturating_sub(self.span.0), waited.saturating_sub(self.span.1));
        if whole >= LEAST_SPAN && self.touches.waits_little(whole, in_it) {
            return self.runner.cancels();
        }
        self.runner.begins(fault.at, self.touches.ahead(), now, costs);
        self.restarted = Some(now);
        self.touches.posted(self.runner.spent);
        (self.written, self.scan_seen) = (0, false);
        self.restarts += 1;
        self.posts += 1;
        self.ahead_of_log.clear();
        self.ahead_of_log.insert((fault.file, fault.page));
    }

    /// Whether a fault was a stride's: waits that were spared, and whether it was served.
    fn strides(&mut self, fault: &Fault, cache: &mut Cache, now: u64) -> (u32, bool) {
        let of_file = cache.layout.pages(fault.file);
        let outcome = self.strides.fault(fault.instruction.into(), fault.page * PAGE, ROOM);
        if let Some((first, end)) = outcome.look {
            let pages = first / PAGE..(end.div_ceil(PAGE)).min(of_file);
            let all = pages.clone().count() as u64;
            let cached = pages.filter(|&page| cache.is_there(fault.file, page, now)).count() as u64;
            let scan = cached * 4 >= all * SCAN_QUARTERS;
            self.strides.judged(outcome.stream, scan);
            if scan {
                return (outcome.useful, false);
            }
        }
        if let Some(ask) = outcome.ask {
            let mut steps = 0;
            for address in ask.addresses().take_while(|address| address / PAGE < of_file) {
                let asked = cache.ask(fault.file, address / PAGE, ask.width.into(), now);
                self.runner.prefetched += asked;
                steps += u32::from(asked > 0);
            }
            self.strides.asked(outcome.stream, steps);
        }
        (outcome.useful, outcome.served)
    }
}

impl Runner {
    fn new() -> Runner {
        Runner {
            time: NEVER,
            at: None,
            has_begun: false,
            knows: true,
            strays: false,
            asleep: false,
            met_scan: false,
            log: Vec::new(),
            passed: 0,
            ahead: 0,
            scan: ((0, 0), 0),
            spent: 0,
            prefetched: 0,
        }
    }

    fn begins(&mut self, at: usize, ahead: u32, now: u64, costs: &Costs) {
        let start = if self.spent == 0 { costs.start } else { 0 };
        let (spent, prefetched) = (self.spent + start + costs.sync, self.prefetched);
        *self = Runner { spent, prefetched, ..Runner::new() };
        (self.at, self.ahead) = (Some(at), ahead);
        self.time = now + WAKE + start + costs.sync;
    }

    fn cancels(&mut self) {
        (self.at, self.time) = (None, NEVER);
    }

    fn passed(&mut self, passed: u32, ahead: u32, now: u64) {
        (self.passed, self.ahead) = (passed, ahead);
        if self.asleep && self.at.is_some() && !self.is_far_ahead() {
            self.asleep = false;
            self.time = now + WAKE;
        }
    }

    fn is_far_ahead(&self) -> bool {
        let touched = self.log.len() as u32;
        let ahead = touched.saturating_sub(self.passed);
        let missing = |position: u32| position.checked_sub(1).map_or(0, |last| self.log[last as usize].2);
        let before = missing(self.passed.min(touched));
        ahead >= TOUCHES_MOST || (ahead > 0 && missing(touched) - before >= self.ahead.max(1))
    }

    /// Its next step.
    pub fn goes_on(&mut self, steps: &[Step], cache: &mut Cache, costs: &Costs) {
        let now = self.time;
        self.has_begun = true;
        let (Some(at), false) = (self.at, self.asleep) else {
            self.time = NEVER;
            return;
        };
        let Some(step) = steps.get(at).filter(|step| step.known != Known::Never || self.log.is_empty())
        else {
            return self.cancels();
        };
        self.at = Some(at + 1);
        let took = if self.log.is_empty() { 0 } else { step.compute } + costs.operation / 4;
        self.spent += took;
        self.time = now + took;
        self.strays = step.known == Known::AfterData && !self.log.is_empty() && !self.knows;
        match step.what {
            What::Touch { file, page, .. } => self.touches(file, page, at, cache),
            What::Read { file, place, .. } => self.knows = cache.is_there(file, place / PAGE, now),
            What::Name { .. } => self.knows = true,
        }
    }

    fn touches(&mut self, file: u32, page: u64, at: usize, cache: &mut Cache) {
        let page = match self.strays {
            true => (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % cache.layout.pages(file).max(1),
            false => page,
        };
        let is_there = cache.is_there(file, page, self.time);
        self.knows = is_there && !self.strays;
        let missing = self.log.last().map_or(0, |last| last.2) + u32::from(!is_there);
        if !is_there {
            self.prefetched += cache.ask(file, page, 1, self.time);
        }
        self.log.push(((file, page), !is_there, missing));
        let follows = self.scan.0 == (file, page);
        self.scan = ((file, page + 1), if follows { self.scan.1 + 1 } else { 0 });
        if self.scan.1 >= SCAN_PAGES {
            self.met_scan = true;
            return self.cancels();
        }
        if self.is_far_ahead() {
            (self.asleep, self.time) = (true, NEVER);
        }
    }
}
