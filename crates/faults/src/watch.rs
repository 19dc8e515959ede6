//! The thread that watches one process.
//!
//! It begins armed where the program has just mapped a large file, and disarmed where some of its memory went to swap.
//! Disarmed it sleeps in `poll` until a fault has waited
//! for the disk (or to see whether there are new threads). Armed it looks at every fault that was recorded, lets each thread's strides be followed, and asks
//! for what comes next.

use crate::PAGE;
use crate::blocks::{BlockCosts, Device, Probe};
use crate::event::{Event, Kind};
use crate::mappings::{Mapping, Mappings};
use crate::memory::{Followed, Memory};
use crate::pursuit::{CameTo, Link, Pursuit, SeenBy, Standing};
use crate::record::Fault;
use crate::recorder::Recorder;
use crate::sampled::Sampled;
use crate::waits::Waits;
use runahead_gate::Gate;
use runahead_policy::arming::{Arming, LOOK_LEAST, Looked, Then};
use runahead_policy::drift::{self, Drifts, Leave, REQUEST};
use runahead_policy::followed::Followed as Whose;
use runahead_policy::strides::{self, Strides};
use runahead_policy::swapped::Streams;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Threads of a program that are watched; the 8 rings of these are what an unprivileged user may lock besides
/// his own 8 MB at most (`perf_event_mlock_kb`).
const THREADS_MOST: usize = 8;

/// How often new threads and mappings are looked for.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// Of the pages between two that were asked for, these many of four make it a scan.
const SCAN_QUARTERS: u64 = 3;

/// Of the pages of a block in which three waits were, one of so many is cached if the kernel reads around what is missed.
/// Where it does not, the program has told it (`MADV_RANDOM`) that the rest is not wanted.
const READ_AROUND_ONE_IN: u64 = 10;

/// Of the faults of a look, so many must have been foretold for speculation to be on track: a few wait, as the program is at its
/// heels.
const ON_TRACK: u32 = 3;
const ON_TRACK_OF: u32 = 4;

/// How often waits are counted in a pause that they may end.
const COUNT_WAITS: Duration = Duration::from_millis(10);

/// How long nobody watches, ns, where nothing may be asked for.
const PAUSED: u64 = 250_000_000;

const STACK: usize = 128 * 1024;
/// A process under watch, until this is dropped.
pub struct Watch {
    thread: Option<JoinHandle<()>>,
    stop: Arc<Stop>,
}

pub(crate) struct Stop {
    asked: AtomicBool,
    bell: OwnedFd,
    phase: AtomicU32,
}

/// The phases of a watch. Opening may take long (the first event of a machine waits for all processors, [`crate::event`]):
/// one that is not wanted any more by then is left to itself, holds nothing of the program's, and ends.
mod phase {
    pub const OPENING: u32 = 0;
    pub const WATCHING: u32 = 1;
    pub const LEFT: u32 = 2;
}

impl Stop {
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Can be read from then on.
    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Goes from opening on to another phase, if nobody was there before.
    fn leaves_opening(&self, to: u32) -> bool {
        self.phase.compare_exchange(phase::OPENING, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Watch {
    /// Begins; `armed`: with the next fault, not only after one that waited. Where the kernel refuses perf
    /// events it is what is present that is looked at ([`crate::sampled`]), and where it does not tell that
    /// either, `link` is told so by and by. `costs`: what is known of the disks so far; `gate`: where files
    /// are opened. Fails without a thread or a descriptor.
    pub fn start(
        process: u32,
        armed: bool,
        link: impl Link + 'static,
        costs: Arc<BlockCosts>,
        gate: Gate,
    ) -> io::Result<Watch> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let phase = AtomicU32::new(phase::OPENING);
        let stop = Arc::new(Stop { asked: AtomicBool::new(false), bell, phase });
        let mut watcher = Watcher::new(process, stop.clone(), Box::new(link), (costs, gate));
        let thread =
            thread::Builder::new().name("runahead-faults".into()).stack_size(STACK).spawn(move || {
                let opened = watcher.look_for_threads();
                if watcher.stop.leaves_opening(phase::WATCHING) {
                    match opened {
                        Ok(()) => watcher.run(armed),
                        Err(error) => watcher.sample(&error),
                    }
                }
            })?;
        Ok(Watch { thread: Some(thread), stop })
    }

    /// Ends it, and waits until all is closed; `link` is left alone from then on.
    pub fn stop(&mut self) {
        self.stop.asked.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.stop.bell, &1u64.to_ne_bytes());
        let thread = self.thread.take();
        if !self.stop.leaves_opening(phase::LEFT)
            && let Some(thread) = thread
        {
            let _ = thread.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One thread of the program.
struct Observed {
    waited: Event,
    /// While armed.
    every: Option<Recorder>,
    strides: Strides,
    drifts: Drifts,
    streams: Streams,
    pursuit: Pursuit,
    /// It waits for this disk since then, in ns of the faults' clock: until its next fault, at the latest.
    waiting: Option<(Device, u64)>,
    /// Instruction, time and address of each since the latest look. Speculation begins at the latest only, so that one's registers are
    /// enough: with all of them a thousand faults took 170 KB of the program's memory control group.
    faults: Vec<(u64, u64, u64)>,
}

impl Observed {
    fn new(waited: Event) -> Observed {
        let (strides, streams, pursuit) = (Strides::default(), Streams::default(), Pursuit::default());
        Observed {
            waited,
            every: None,
            strides,
            drifts: Drifts::default(),
            streams,
            pursuit,
            waiting: None,
            faults: Vec::new(),
        }
    }
}

struct Watcher {
    process: u32,
    stop: Arc<Stop>,
    link: Box<dyn Link>,
    threads: HashMap<i32, Observed>,
    mappings: Mappings,
    memory: Memory,
    /// Pages on swap that may be ahead of each thread.
    room: u32,
    /// Blocks of files that may be.
    blocks: u64,
    costs: Arc<BlockCosts>,
    /// A block under way whose time is taken.
    probe: Option<Probe>,
    arming: Arming,
    /// Which thread speculation is for.
    whose: Whose,
    began: Instant,
    looked_around: Instant,
}

impl Watcher {
    fn new(
        process: u32,
        stop: Arc<Stop>,
        link: Box<dyn Link>,
        (costs, gate): (Arc<BlockCosts>, Gate),
    ) -> Watcher {
        Watcher {
            process,
            stop,
            link,
            threads: HashMap::new(),
            mappings: Mappings::new(process).through(gate),
            memory: Memory::new(process),
            room: 0,
            blocks: 0,
            costs,
            probe: None,
            arming: Arming::default(),
            whose: Whose::default(),
            began: Instant::now(),
            looked_around: Instant::now(),
        }
    }

    fn is_over(&self) -> bool {
        self.stop.is_asked() || self.threads.is_empty()
    }

    /// Without perf events, for which there is a reason.
    fn sample(self, error: &io::Error) {
        let shared = (self.costs, self.mappings.gate());
        match Sampled::of(self.process, self.stop, self.link, shared) {
            Ok(sampled) => sampled.run(),
            Err((link, why)) => link.refused(error, &why),
        }
    }

    fn run(mut self, armed: bool) {
        self.link.seen_by(SeenBy::Events);
        // The default slack of 50 us is longer than the shortest sleep.
        // SAFETY: affects this thread only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let mut woken = armed;
        while !self.is_over() {
            if !woken {
                woken = self.rest();
                continue;
            }
            woken = false;
            let then = self.armed();
            self.disarm();
            if let Then::Pause { ns, waits } = then {
                // It does not know that it is of no use, and ran on over thousands of pages: a chain's, all of them wrong.
                self.link.cancel();
                self.pause(Duration::from_nanos(ns), waits);
            }
        }
    }

    /// Threads that have come and gone. Fails if none can be watched.
    fn look_for_threads(&mut self) -> io::Result<()> {
        self.looked_around = Instant::now();
        let mut found = Vec::new();
        for entry in fs::read_dir(format!("/proc/{}/task", self.process))?.flatten() {
            found.extend(entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
        }
        self.threads.retain(|thread, _| found.contains(thread));
        let mut refused = None;
        for thread in found {
            if self.threads.len() >= THREADS_MOST || self.threads.contains_key(&thread) {
                continue;
            }
            match Event::open(thread, Kind::Waited) {
                Ok(waited) => {
                    waited.enable(true);
                    self.threads.insert(thread, Observed::new(waited));
                }
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if self.threads.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Sleeps until faults have waited for the disk. False if it was something else that ended the sleep.
    fn rest(&mut self) -> bool {
        let mut set: Vec<PollFd> = vec![PollFd::new(&self.stop.bell, PollFlags::IN)];
        set.extend(
            self.threads
                .values()
                .map(|observed| PollFd::from_borrowed_fd(observed.waited.descriptor(), PollFlags::IN)),
        );
        let longest = rustix::event::Timespec { tv_sec: 0, tv_nsec: LOOK_AROUND.as_nanos() as i64 };
        let _ = poll(&mut set, Some(&longest));
        let woken = set.iter().skip(1).any(|thread| thread.revents().contains(PollFlags::IN));
        let ended = set.iter().skip(1).any(|thread| thread.revents().contains(PollFlags::HUP));
        if ended || self.looked_around.elapsed() >= LOOK_AROUND {
            // A process that is gone has no threads: it is over.
            if self.look_for_threads().is_err() {
                self.threads.clear();
            }
        }
        for observed in self.threads.values_mut() {
            observed.waited.take(|_| ());
        }
        woken
    }

    /// Watches every fault for as long as that pays.
    fn armed(&mut self) -> Then {
        if !self.link.arms() || self.mappings.refresh().is_err() {
            self.threads.clear();
            return Then::Rest;
        }
        if self.link.is_paused() {
            return Then::Pause { ns: PAUSED, waits: None };
        }
        self.look_at_memory();
        for (thread, observed) in &mut self.threads {
            observed.waited.enable(false);
            observed.every = Recorder::start(*thread).ok();
            observed.pursuit.begin(Waits::begin(self.process, *thread));
        }
        let mut sleep = LOOK_LEAST;
        let mut before = Instant::now();
        while !self.is_over() {
            thread::sleep(Duration::from_nanos(sleep));
            let elapsed = before.elapsed().as_nanos() as u64;
            before = Instant::now();
            self.mappings.let_go_if_asked();
            let looked = self.look();
            let then = self.arming.looked(elapsed, looked);
            sleep = self.arming.next_look(sleep, looked);
            if let Some(probe) = &self.probe {
                sleep = sleep.min(probe.next_look().max(LOOK_LEAST));
            }
            if then != Then::Watch {
                return then;
            }
            if self.link.is_paused() {
                return Then::Pause { ns: PAUSED, waits: None };
            }
            if self.looked_around.elapsed() >= LOOK_AROUND {
                self.looked_around = Instant::now();
                self.probe = None;
                if self.mappings.refresh().is_err() {
                    return Then::Rest;
                }
                self.look_at_memory();
            }
        }
        Then::Rest
    }

    fn look_at_memory(&mut self) {
        if let Err(error) = self.memory.refresh() {
            self.link.swap_refused(&error);
        }
        self.room = 0;
        if self.memory.is_swapped() {
            self.room = self.link.room() / self.threads.len().max(1) as u32;
        }
        self.blocks = self.link.file_room() / drift::BLOCK / self.threads.len().max(1) as u64;
        self.memory.allow(self.room > 0);
        self.link.swapping(self.memory.is_any_on_swap().then_some(self.room));
    }

    fn disarm(&mut self) {
        self.probe = None;
        for observed in self.threads.values_mut() {
            observed.every = None;
            observed.strides = Strides::default();
            observed.drifts = Drifts::default();
            observed.streams = Streams::default();
            observed.waiting = None;
            observed.waited.enable(true);
        }
        self.memory.rest();
        // Nobody looks any more.
        self.link.swapping(None);
        self.mappings.clear();
    }

    /// Sleeps so long, or until so many faults have waited. Nobody is woken by these; they are counted now and then. (Recorded as
    /// well, they cost a gather of which 98% are cached, with 716 waits, some 7% of its time.)
    fn pause(&mut self, longest: Duration, waits: Option<u32>) {
        let counted = || self.threads.values().map(|observed| observed.waited.count()).sum::<u64>();
        self.threads.values().for_each(|observed| {
            observed.waited.only_count(true);
            observed.waited.enable(waits.is_some());
        });
        let (begun, before) = (Instant::now(), counted());
        let enough = |waits: Option<u32>| {
            waits.is_some_and(|waits| counted().saturating_sub(before) >= u64::from(waits))
        };
        while begun.elapsed() < longest && !self.is_over() {
            if enough(waits) {
                self.arming.waits_came();
                break;
            }
            let left = longest.saturating_sub(begun.elapsed());
            let sleep = if waits.is_some() { left.min(COUNT_WAITS) } else { left };
            let sleep =
                rustix::event::Timespec { tv_sec: 0, tv_nsec: sleep.as_nanos().min(999_999_999) as i64 };
            let _ = poll(&mut [PollFd::new(&self.stop.bell, PollFlags::IN)], Some(&sleep));
        }
        self.threads.values().for_each(|observed| {
            observed.waited.only_count(false);
            observed.waited.enable(true);
        });
    }

    /// Looks at the faults since the last look.
    fn look(&mut self) -> Looked {
        let over = self.probe.as_mut().is_some_and(|probe| probe.look(&self.costs, &mut self.mappings));
        self.probe.take_if(|_| over);
        let (mut tally, mut slack) = (Tally::default(), u32::MAX);
        // The same with those that were not recorded, as far as the recorded ones tell.
        let mut all = CameTo::default();
        // Of all threads that are watched.
        let mut little = true;
        let mut around = Around {
            mappings: &mut self.mappings,
            memory: &mut self.memory,
            link: &mut *self.link,
            room: self.room,
            blocks: self.blocks,
            costs: &self.costs,
            probe: &mut self.probe,
            whose: &mut self.whose,
        };
        let followed = around.link.followed();
        let (mut has_faulted, mut waiting) = (false, None);
        for (&thread, observed) in &mut self.threads {
            let Some(one_in) = observed.every.as_ref().map(Recorder::one_in) else { continue };
            let (useful_before, used_before) = (tally.useful, tally.used);
            let waited_before = std::mem::take(&mut tally.waits);
            let seen = observed.look(thread, &mut around, &mut tally);
            if thread == followed {
                has_faulted = seen > 0;
            } else if tally.waits {
                waiting = Some(thread);
            }
            tally.waits |= waited_before;
            if seen > 0 {
                slack = slack.min(observed.pursuit.slack());
            }
            all.faults += seen * one_in;
            all.useful += u64::from(tally.useful - useful_before) * one_in;
            // What was mapped with those that were not recorded the recorded ones tell too.
            all.used += u64::from(tally.used - used_before);
            observed.record_as_wanted(&around);
            little &= observed.pursuit.waits_little();
        }
        let now = self.began.elapsed().as_nanos() as u64 + 1;
        if self.whose.looked(now, has_faulted)
            && let Some(thread) = waiting
        {
            self.whose.changes(now);
            self.link.follow(thread);
        }
        self.link.nudge();
        if tally.faults > 0 {
            self.link.looked(CameTo { asked: u64::from(tally.asked), ..all });
        }
        tally.looked(slack, little)
    }
}

/// What the faults of one look came to.
#[derive(Default)]
struct Tally {
    faults: u32,
    /// Pages that were asked for.
    asked: u32,
    useful: u32,
    /// Pages.
    used: u32,
    follows: u32,
    /// By speculation.
    foretold: u32,
    waits: bool,
}

impl Tally {
    fn add(&mut self, followed: Followed) {
        self.asked += followed.new;
        self.useful += followed.useful;
        self.used += followed.used;
    }

    /// `slack`: the least of the threads'; `little`: no thread has waited much.
    fn looked(&self, slack: u32, little: bool) -> Looked {
        let on_track = self.foretold > 0 && self.foretold * ON_TRACK_OF >= self.faults * ON_TRACK;
        let slack = if on_track { slack } else { 0 };
        let Tally { faults, useful, follows, waits, .. } = *self;
        Looked { faults, useful, follows, waits, little, slack }
    }
}

/// What the faults of all threads have in common.
struct Around<'a> {
    mappings: &'a mut Mappings,
    memory: &'a mut Memory,
    link: &'a mut dyn Link,
    room: u32,
    blocks: u64,
    costs: &'a BlockCosts,
    probe: &'a mut Option<Probe>,
    whose: &'a mut Whose,
}

impl Observed {
    /// Takes in the faults that were recorded since the last look, and says how many.
    fn look(&mut self, thread: i32, around: &mut Around, tally: &mut Tally) -> u64 {
        let mut seen = std::mem::take(&mut self.faults);
        seen.clear();
        let mut registers = None;
        if let Some(every) = &mut self.every {
            every.take(|fault| {
                seen.push((fault.instruction, fault.time, fault.address));
                registers = fault.registers;
            });
        }
        self.pursuit.read_log(around.link, around.memory, thread);
        for (at, &(instruction, time, address)) in seen.iter().enumerate() {
            let latest = at + 1 == seen.len();
            let fault = Fault { instruction, time, address, registers: registers.filter(|_| latest) };
            self.take_in(thread, &fault, latest, around, tally);
        }
        let count = seen.len();
        self.faults = seen;
        tally.faults += count as u32;
        count as u64
    }

    /// A stride's, speculation's or nobody's, in this order.
    fn take_in(&mut self, thread: i32, fault: &Fault, latest: bool, around: &mut Around, tally: &mut Tally) {
        if let Some((device, since)) = self.waiting.take() {
            let waited = fault.time.saturating_sub(since);
            around.costs.waited(device, waited);
            around.whose.waited(waited);
        }
        let is_swapped = around.memory.is_swapped();
        let own = around.mappings.memory_at(fault.address).filter(|_| is_swapped);
        let followed = match own {
            Some(range) => {
                let place = (fault.instruction, fault.address);
                around.memory.follow(&mut self.streams, place, range, around.room)
            }
            // Strides do not show where only some of the faults are seen.
            None if self.every.as_ref().is_some_and(|every| every.one_in() > 1) => Followed::default(),
            None => {
                let (amid, pages) = (self.drifts.holds(fault.address), around.blocks * (drift::BLOCK / PAGE));
                follow(around.mappings, &mut self.strides, *fault, pages, amid)
            }
        };
        tally.add(followed);
        // What a stride foretells is in memory or soon will be: a program that writes where it has just read faults there again.
        // But in a file that is cached as a whole that says nothing for watching.
        let is_behind = followed.served && followed.useful == 0;
        tally.follows += u32::from(is_behind && own.is_none() && self.strides.has_asked());
        // What a stride serves is not to be run ahead for. A speculator that has begun before hears nothing of
        // the program, and stays where it is. (Else it fetched what the stride would have, at a third of the
        // speed: columns of a mapped matrix took 0.2 s or 0.8, by who came first.)
        if followed.useful > 0 || followed.served {
            self.pursuit.served();
            return;
        }
        let standing = Standing { latest, scans: self.drifts.are_scans() };
        let memories = (&mut *around.mappings, &mut *around.memory);
        let found = self.pursuit.fault(around.link, memories, thread, fault, standing);
        tally.useful += u32::from(found.useful);
        tally.used += u32::from(found.useful);
        tally.follows += u32::from(found.follows);
        tally.foretold += u32::from(found.follows);
        tally.waits |= found.waits;
        if found.useful {
            self.drifts.foretold();
        } else {
            self.missed(fault, found.waits, followed.steady, around, tally);
        }
    }

    /// A fault that nothing has foretold.
    fn missed(&mut self, fault: &Fault, waits: bool, steady: bool, around: &mut Around, tally: &mut Tally) {
        let address = fault.address;
        let Some(mapping) = around.mappings.at(address) else { return };
        let Some(device) = around.mappings.device(mapping) else { return };
        self.waiting = waits.then_some((device, fault.time));
        let what = Missed { address, mapping, device, waits, steady };
        let taken = (around.costs, Some(&mut *around.probe));
        tally.add(drift(around.mappings, &mut self.drifts, what, around.blocks, taken));
    }

    /// Of how many faults one is recorded (those on memory that is on swap are streams' steps), and whether with registers.
    fn record_as_wanted(&mut self, around: &Around) {
        let Some(every) = &mut self.every else { return };
        every.record_one_in(if around.memory.is_swapped() { 1 } else { self.drifts.one_in() });
        every.want_registers(!self.drifts.are_scans() && self.pursuit.may_restart(around.link));
    }
}

/// A fault that neither a stride nor speculation has foretold.
pub(crate) struct Missed {
    pub address: u64,
    pub mapping: Mapping,
    pub device: Device,
    pub waits: bool,
    /// It looks like a stride's beginning.
    pub steady: bool,
}

/// Takes such a fault in. `blocks`: so many may be ahead; the time of one may be taken, if anybody wants it.
pub(crate) fn drift(
    mappings: &mut Mappings,
    drifts: &mut Drifts,
    missed: Missed,
    blocks: u64,
    (costs, probe): (&BlockCosts, Option<&mut Option<Probe>>),
) -> Followed {
    let Missed { address, mapping, device, waits, steady } = missed;
    let outcome = drifts.fault(address, waits && !steady, Leave { blocks, dense: costs.dense(device) });
    let useful = u32::from(outcome.served && !waits);
    let (served, used) = (outcome.served, outcome.used);
    let mut followed = Followed { useful, used, served, ..Followed::default() };
    let Some((first, count)) = outcome.ask else { return followed };
    let (start, end) = (first * drift::BLOCK, (first + count) * drift::BLOCK);
    if !outcome.served && !is_read_around(mappings, mapping, start, end) {
        return followed;
    }
    // One after the other. (Where blocks follow each other the disk is busy with the one before.)
    let wanted = probe.filter(|probe| probe.is_none() && !outcome.served);
    let mut taken = wanted.as_ref().and_then(|_| Probe::begin(costs, device, mapping));
    let (mut at, end) = (start.max(mapping.start), end.min(mapping.end));
    while at < end {
        let next = (at + REQUEST).min(end);
        if mappings.ask(mapping, at, next) {
            followed.new += (REQUEST / PAGE) as u32;
            taken.iter_mut().for_each(|taken| taken.sent(next, mappings));
        }
        at = next;
    }
    if let Some(probe) = wanted {
        *probe = taken.and_then(Probe::all_sent);
    }
    followed
}

/// Whether the kernel reads around what is missed of a part of a mapping.
fn is_read_around(mappings: &mut Mappings, mapping: Mapping, start: u64, end: u64) -> bool {
    let found = mappings.cached(mapping, start.max(mapping.start), end.min(mapping.end));
    found.is_some_and(|(cached, pages)| cached * READ_AROUND_ONE_IN >= pages)
}

/// Takes one fault in. `room`: pages that may be ahead; `amid`: a drift has asked for what is around.
fn follow(mappings: &mut Mappings, strides: &mut Strides, fault: Fault, room: u64, amid: bool) -> Followed {
    let Some(mapping) = mappings.at(fault.address) else { return Followed::default() };
    let room = u32::try_from(room).unwrap_or(u32::MAX);
    let outcome = match amid {
        true => strides.fault_amid(fault.instruction, fault.address, room),
        false => strides.fault(fault.instruction, fault.address, room),
    };
    if let Some((first, end)) = outcome.look
        && let Some((cached, pages)) = mappings.cached(mapping, first, end)
    {
        let scan = cached * 4 >= pages * SCAN_QUARTERS;
        strides.judged(outcome.stream, scan);
        if scan {
            return Followed { useful: outcome.useful, used: outcome.used, ..Followed::default() };
        }
    }
    let strides::Outcome { useful, used, served, steady, .. } = outcome;
    let mut followed = Followed { new: 0, useful, used, served, steady };
    if let Some((from, pages)) = outcome.beside
        && mapping.contains(from)
        && mappings.cached(mapping, from, from + PAGE) != Some((1, 1))
        && mappings.ask(mapping, from, from + u64::from(pages) * PAGE)
    {
        strides.asked(outcome.stream, 1);
        followed.new = pages_to(mapping, from, pages);
    }
    let Some(ask) = outcome.ask else { return followed };
    let (mut steps, mut new) = (0, 0);
    for address in ask.addresses() {
        if !mapping.contains(address) {
            break;
        }
        // A wide step's pages that follow one that is cached came with it.
        let is_there = ask.width > 1 && mappings.cached(mapping, address, address + PAGE) == Some((1, 1));
        let end = address + u64::from(ask.width) * PAGE;
        if !is_there && mappings.ask(mapping, address, end) {
            steps += 1;
            new += pages_to(mapping, address, ask.width);
        }
    }
    strides.asked(outcome.stream, steps);
    followed.new += new;
    followed
}

/// Of so many pages from an address on, those in the mapping.
fn pages_to(mapping: Mapping, from: u64, pages: u32) -> u32 {
    let left = mapping.end.saturating_sub(from).div_ceil(PAGE);
    pages.min(u32::try_from(left).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pursuit::tests::Made;
    use std::sync::mpsc;

    /// No process has this number (`PID_MAX_LIMIT` is 2^22).
    const NOBODY: u32 = 1 << 30;

    #[test]
    fn who_cannot_be_watched_is_told_of() {
        let (refusals, told) = mpsc::channel();
        let watch =
            Watch::start(NOBODY, true, Made::telling(refusals), Arc::default(), Gate::default()).unwrap();
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(Some(libc::ENOENT)));
        drop(watch);
    }

    #[test]
    fn one_that_is_left_while_it_opens_says_nothing() {
        let (refusals, told) = mpsc::channel();
        let stop = Watch::start(NOBODY, true, Made::telling(refusals), Arc::default(), Gate::default())
            .unwrap()
            .stop
            .clone();
        // Dropped by now: it was left, or had refused before.
        let left = stop.phase.load(Ordering::Acquire) == phase::LEFT;
        assert_eq!(told.recv_timeout(Duration::from_secs(60)).is_err(), left);
    }
}
