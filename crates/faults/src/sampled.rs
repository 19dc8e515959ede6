//! The watch over one process where perf events are refused: by which of its pages have newly become present.
//!
//! Nobody is woken by a fault here, and neither registers nor addresses are seen, so nothing is speculated
//! but from the call before ([`crate::from_call`]). But the kernel counts the faults of a process, and
//! those that asked a disk, and its processor time ([`Counts`]), and tells which of its pages are present
//! ([`crate::present`]), of any thread's doing. From that [`runahead_policy::presence`] tells walks in
//! constant steps and scans, and [`runahead_policy::drift`] scans with gaps; what lies ahead of them is
//! asked for as with perf events, as far as the program follows. The process is only read: nothing in it is
//! stopped, traced or written.
//!
//! While no fault waits these counts are read each 10 ms, which takes some 10 us. What looks take that gain
//! nothing is limited for all processes of a run together ([`Shared`]).

use crate::PAGE;
use crate::blocks::BlockCosts;
use crate::from_call::{Done, FromCall, Pages};
use crate::mappings::{Mapping, Mappings};
use crate::present::{PIECE, Present};
use crate::pursuit::{CameTo, Link, SeenBy};
use crate::watch::{Missed, Stop, drift};
use runahead_gate::Gate;
use runahead_policy::drift::{BLOCK, Drifts, REQUEST};
use runahead_policy::presence::{Ask, Presence, Run};
use runahead_policy::sampling::{Budget, Looked, REST, SHARE, Sampling, Then, WAITS_LEAST};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Smaller mappings are not looked at, and no more than so many: the largest.
const PAGES_LEAST: u64 = 256;
const MAPPINGS_MOST: usize = 64;

/// How often mappings are looked for, and no more of the time than this part.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// What is looked at of all mappings in one look takes no longer than this, ns; at first, when nothing is
/// known of them, somewhat longer.
const LOOK_LONGEST: u64 = 300_000;
const FIRST_LONGEST: u64 = 2_000_000;

/// While looks pay for themselves, all mappings are looked at every so many of them: other threads may have
/// begun elsewhere.
const ALL_EACH: u64 = 8;

/// Runs of one look beyond which there is no order among them.
const RUNS_MOST: usize = 512;

/// Pieces that were asked for and are remembered, and for how many looks: what is not reached by then is not.
const ASKED_MOST: usize = 8192;
const ASKED_LOOKS: u64 = 256;

/// Pages that are expected in so wide a range are not looked for by themselves.
const EXPECTED_MOST: u64 = 1 << 18;

/// How long files may be held open without asking whether a program gives something back.
const HELD: u64 = 1_000_000;

/// Rests after which waits count anew: on a slow disk a program waits for longer than one.
const RESTS: u32 = 10;

/// How long nobody looks, ns, where nothing may be asked for.
const PAUSED: u64 = 250_000_000;

/// What the kernel maps around a page that is cached, and reads around one that is not, in pages.
const AROUND: u64 = 16;
const READ_AROUND: u64 = REQUEST / PAGE;

/// What all sampled watches of one run have in common: what they may take of a processor.
#[derive(Debug)]
pub struct Shared(Mutex<(Instant, Budget)>);

impl Default for Shared {
    fn default() -> Shared {
        Shared(Mutex::new((Instant::now(), Budget::default())))
    }
}

impl Shared {
    /// So much was spent, ns; for how long nothing more may be.
    fn spend(&self, ns: u64) -> u64 {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, budget) = &mut *held;
        budget.spend(since.elapsed().as_nanos() as u64, ns)
    }
}

/// A mapping that is looked at.
struct Target {
    mapping: Mapping,
    identity: ((u32, u32), u64),
    /// What was present of it is known.
    known: bool,
}

impl Target {
    fn pages(&self) -> Run {
        Run { first: self.mapping.start / PAGE, end: self.mapping.end.div_ceil(PAGE) }
    }

    fn is(&self, other: &Target) -> bool {
        let place = |target: &Target| (target.mapping.start, target.mapping.end, target.mapping.offset);
        place(self) == place(other) && self.identity == other.identity
    }
}

/// What was asked for and is not reached yet.
#[derive(Default)]
struct Asked {
    /// First page to the one behind the last.
    pieces: BTreeMap<u64, u64>,
    /// In which look each was asked for.
    order: VecDeque<(u64, u64)>,
    pages: u64,
}

impl Asked {
    fn add(&mut self, piece: Run, look: u64) {
        self.pages += piece.end - piece.first;
        if let Some(end) = self.pieces.insert(piece.first, piece.end) {
            self.pages -= end - piece.first;
        }
        self.order.push_back((look, piece.first));
    }

    /// The program has come to a run: pieces and pages that it has reached with it.
    fn reach(&mut self, run: Run) -> (u64, u64) {
        let (mut pieces, mut pages) = (0, 0);
        while let Some((&first, &end)) =
            self.pieces.range(..run.end).next_back().filter(|&(_, &end)| end > run.first)
        {
            self.pieces.remove(&first);
            (pieces, pages) = (pieces + 1, pages + end - first);
        }
        self.pages -= pages;
        (pieces, pages)
    }

    /// Pages that will not be reached any more.
    fn give_up(&mut self, look: u64) -> u64 {
        let mut wasted = 0;
        while let Some(&(at, first)) = self.order.front()
            && (at + ASKED_LOOKS < look || self.order.len() > ASKED_MOST)
        {
            self.order.pop_front();
            wasted += self.pieces.remove(&first).map_or(0, |end| end - first);
        }
        self.pages -= wasted;
        wasted
    }
}

pub(crate) struct Sampled {
    stop: Arc<Stop>,
    link: Box<dyn Link>,
    counts: Counting,
    present: Present,
    mappings: Mappings,
    targets: Vec<Target>,
    /// Where the next look at all mappings goes on: which, and at which page.
    next: (usize, u64),
    piece: u64,
    presence: Presence,
    drifts: Drifts,
    sampling: Sampling,
    from_call: FromCall,
    asked: Asked,
    look: u64,
    /// What asking took of a processor in the latest look, ns.
    asking: u64,
    /// Bytes that may be ahead.
    room: u64,
    costs: Arc<BlockCosts>,
    looked_around: Instant,
    around_cost: u64,
}

/// What a watch comes to.
enum Came {
    Over,
    Rest,
    Pause(u64),
}

impl Sampled {
    /// The error tells why the process's pages cannot be seen.
    pub(crate) fn of(
        process: u32,
        stop: Arc<Stop>,
        link: Box<dyn Link>,
        (costs, gate): (Arc<BlockCosts>, Gate),
    ) -> Result<Sampled, (Box<dyn Link>, io::Error)> {
        let opened = Present::of(process).and_then(|present| {
            let counts = Counting::of(process)?;
            counts.now().ok_or(io::ErrorKind::NotFound)?;
            Ok((present, counts))
        });
        let (present, counts) = match opened {
            Ok(opened) => opened,
            Err(error) => return Err((link, error)),
        };
        Ok(Sampled {
            stop,
            link,
            counts,
            present,
            mappings: Mappings::new(process).through(gate),
            targets: Vec::new(),
            next: (0, 0),
            piece: PIECE,
            presence: Presence::default(),
            drifts: Drifts::default(),
            sampling: Sampling::default(),
            from_call: FromCall::default(),
            asked: Asked::default(),
            look: 0,
            asking: 0,
            room: 0,
            costs,
            looked_around: Instant::now(),
            around_cost: 0,
        })
    }

    pub(crate) fn run(mut self) {
        self.link.seen_by(SeenBy::Pagemap);
        let (mut before, mut rests) = (self.counts.now(), 0);
        while !self.stop.is_asked() {
            let spent = Spent::begin();
            let now = self.counts.now().filter(|_| !self.present.is_over());
            let (Some(now), Some(since)) = (now, before) else { return };
            rests += 1;
            if now.waits_since(&since) >= WAITS_LEAST {
                let came = self.watch(now);
                self.rest();
                match came {
                    Came::Over => return,
                    Came::Rest => {}
                    Came::Pause(ns) => self.sleep(ns),
                }
                (before, rests) = (self.counts.now(), 0);
            } else if rests == RESTS {
                (before, rests) = (Some(now), 0);
            }
            let longest = self.costs.sampled.spend(spent.ns());
            self.sleep(REST.max(longest));
        }
    }

    /// Looks for as long as that pays.
    fn watch(&mut self, mut before: Counts) -> Came {
        if !self.link.arms() {
            return Came::Over;
        }
        self.look_around();
        // What is present so far is no news.
        self.look_at_all(FIRST_LONGEST, true, &mut Vec::new());
        while !self.stop.is_asked() {
            let spent = Spent::begin();
            if self.link.is_paused() {
                return Came::Pause(PAUSED);
            }
            let Some(now) = self.counts.now().filter(|_| !self.present.is_over()) else { return Came::Over };
            let elapsed = now.at.duration_since(before.at).as_nanos() as u64;
            let looked = self.looked(now.waits_since(&before), elapsed, now.ran.saturating_sub(before.ran));
            before = now;
            if self.looked_around.elapsed() >= LOOK_AROUND.max(Duration::from_nanos(self.around_cost * SHARE))
            {
                self.look_around();
            }
            // What asking takes comes back.
            let cost = spent.ns().saturating_sub(self.asking);
            let sleep = match self.sampling.looked(Looked { cost, ..looked }) {
                Then::Look(ns) => ns,
                Then::Rest => return Came::Rest,
                Then::Pause(ns) => return Came::Pause(ns),
            };
            let longest = if self.sampling.gains() { 0 } else { self.costs.sampled.spend(cost) };
            self.sleep(sleep.max(longest));
        }
        Came::Over
    }

    /// Nobody looks any more: no file is held, and nothing is known of what is present.
    fn rest(&mut self) {
        self.from_call.rest(&*self.link);
        self.mappings.clear();
        self.targets.iter_mut().for_each(|target| target.known = false);
        (self.presence, self.drifts, self.asked) = (Presence::default(), Drifts::default(), Asked::default());
    }

    /// Sleeps so many ns, or until the watch ends.
    fn sleep(&mut self, ns: u64) {
        let end = Instant::now() + Duration::from_nanos(ns);
        while !self.stop.is_asked() {
            self.mappings.let_go_if_asked();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let slice = if self.mappings.holds_any() { left.min(Duration::from_nanos(HELD)) } else { left };
            let slice = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: i64::from(slice.subsec_nanos()) };
            let _ = poll(&mut [PollFd::new(self.stop.bell(), PollFlags::IN)], Some(&slice));
        }
    }

    /// Which mappings there are, and how much may be asked for.
    fn look_around(&mut self) {
        let spent = Spent::begin();
        self.looked_around = Instant::now();
        if self.mappings.refresh().is_err() {
            self.mappings.clear();
        }
        let mut targets = Vec::new();
        for &mapping in self.mappings.all() {
            if let Some(identity) = self.mappings.identity(mapping)
                && (mapping.end - mapping.start) / PAGE >= PAGES_LEAST
            {
                targets.push(Target { mapping, identity, known: false });
            }
        }
        targets.sort_by_key(|target| u64::MAX - (target.mapping.end - target.mapping.start));
        targets.truncate(MAPPINGS_MOST);
        targets.sort_by_key(|target| target.mapping.start);
        for target in &mut targets {
            target.known = self.targets.iter().any(|before| before.known && before.is(target));
        }
        for gone in self.targets.iter().filter(|before| !targets.iter().any(|target| before.is(target))) {
            self.present.forget(gone.pages());
        }
        self.targets = targets;
        self.room = self.link.file_room();
        self.around_cost = spent.ns();
    }

    /// Looks at the mappings one after the other for so long, and goes on there the next time. `again`: each
    /// of them as if nothing were known of it, once all over.
    fn look_at_all(&mut self, longest: u64, again: bool, each: &mut Vec<Run>) {
        let spent = Spent::begin();
        let (mut index, mut page) = if again { (0, 0) } else { self.next };
        let mut steps = self.targets.len() + 1;
        while steps > 0 && spent.ns() < longest && !self.stop.is_asked() {
            let Some(target) = self.targets.get_mut(index) else {
                (index, page, steps) = (0, 0, steps - 1);
                if self.targets.is_empty() {
                    break;
                }
                continue;
            };
            let pages = target.pages();
            let first = page.clamp(pages.first, pages.end);
            let told = each.len();
            let looked =
                self.present.look(Run { first, end: pages.end }, &mut self.piece, !target.known, each);
            if !target.known {
                each.truncate(told);
            }
            page = looked.unwrap_or(pages.end);
            if page >= pages.end {
                target.known = true;
                (index, page, steps) = (index + 1, 0, steps - 1);
            }
        }
        self.next = (index, page);
    }

    /// Looks where the next pages are expected.
    fn look_ahead(&mut self, each: &mut Vec<Run>) {
        let expected: Vec<Run> =
            self.presence.expected().filter(|run| run.end - run.first <= EXPECTED_MOST).collect();
        for run in expected {
            for target in self.targets.iter().filter(|target| target.known) {
                let pages = target.pages();
                let (mut at, end) = (run.first.max(pages.first), run.end.min(pages.end));
                while at < end {
                    at = self
                        .present
                        .look(Run { first: at, end }, &mut PIECE.clone(), false, each)
                        .unwrap_or(end);
                }
            }
        }
    }

    /// One look, and what follows from it.
    fn looked(&mut self, waits: u64, elapsed: u64, ran: u64) -> Looked {
        self.look += 1;
        self.asking = 0;
        self.presence.next_look();
        let done = Done {
            waits,
            whole: elapsed,
            waited: elapsed.saturating_sub(ran),
            served: self.sampling.gains(),
        };
        let mut pages = Both { present: &self.present, mappings: &mut self.mappings };
        let came = self.from_call.look(&mut *self.link, done, &mut pages);
        if came.passed > 0 {
            // It follows speculation: nothing else is to be found out, and that takes far longer.
            self.link.looked(CameTo { useful: came.used, used: came.used, ..CameTo::default() });
            let ahead = self.from_call.ahead();
            return Looked { waits, used: came.used, ahead, ..Looked::default() };
        }
        let mut runs = Vec::new();
        self.look_ahead(&mut runs);
        // Who waits elsewhere than expected is to be found.
        let is_elsewhere = runs.is_empty() && waits > 0;
        if !self.sampling.gains() || is_elsewhere || self.look.is_multiple_of(ALL_EACH) {
            self.look_at_all(LOOK_LONGEST, false, &mut runs);
        }
        let runs = joined(runs);
        let (mut came_to, mut used) = (CameTo { faults: runs.len() as u64, ..CameTo::default() }, 0);
        for &run in &runs {
            let (pieces, pages) = self.asked.reach(run);
            came_to.useful += pieces;
            used += pages;
        }
        if runs.len() <= RUNS_MOST {
            let mut others = runs;
            others.retain(|&run| !self.presence.arrived(run));
            others.reverse();
            others.retain(|&run| !self.presence.fell(run));
            others.reverse();
            self.drift(&others, waits, elapsed, &mut came_to);
        }
        let spent = Spent::begin();
        let walks = self.presence.expected().count().max(1) as u64;
        while let Some(ask) = self.presence.next_ask(self.room / PAGE / walks) {
            came_to.asked += self.ask(ask);
        }
        self.asking = spent.ns();
        came_to.used += used;
        let wasted = self.asked.give_up(self.look);
        let looked = Looked { waits, used: came_to.used, wasted, ahead: self.asked.pages, cost: 0 };
        if came_to != CameTo::default() {
            self.link.looked(came_to);
        }
        looked
    }

    /// What belongs to no walk and no scan may be one with gaps.
    fn drift(&mut self, runs: &[Run], waits: u64, elapsed: u64, came_to: &mut CameTo) {
        let (mut left, mut piece) = (waits, u64::MAX);
        // A page by itself was not read around: the program has told the kernel that the rest is not wanted
        // (`MADV_RANDOM`).
        for run in runs.iter().filter(|run| run.end - run.first > 1) {
            let windows = run.first / AROUND..run.end.div_ceil(AROUND);
            for page in windows.map(|window| (window * AROUND).max(run.first)) {
                let address = page * PAGE;
                let Some(mapping) = self.mappings.at(address) else { continue };
                let Some(device) = self.mappings.device(mapping) else { continue };
                // The kernel reads so many pages for each wait.
                let waits = left > 0 && piece != page / READ_AROUND;
                if waits {
                    (left, piece) = (left - 1, page / READ_AROUND);
                    self.costs.waited(device, elapsed / u64::try_from(runs.len()).unwrap_or(1).max(1));
                }
                let missed = Missed { address, mapping, device, waits, steady: false };
                let followed = drift(
                    &mut self.mappings,
                    &mut self.drifts,
                    missed,
                    self.room / BLOCK,
                    (&self.costs, None),
                );
                came_to.asked += u64::from(followed.new);
                came_to.used += u64::from(followed.used);
                came_to.useful += u64::from(followed.useful);
            }
        }
    }

    /// Asks for pages, and says how many of them had to be.
    fn ask(&mut self, ask: Ask) -> u64 {
        let mut new = 0;
        let mut within: Option<Mapping> = None;
        for step in ask.steps() {
            let address = step.first.saturating_mul(PAGE);
            let found = within.or_else(|| self.mappings.at(address));
            let Some(mapping) = found.filter(|mapping| mapping.contains(address)) else { break };
            within = Some(mapping);
            let end = step.end.saturating_mul(PAGE).min(mapping.end);
            if self.mappings.ask(mapping, address, end) {
                let piece = Run { first: step.first, end: end.div_ceil(PAGE) };
                new += piece.end - piece.first;
                self.asked.add(piece, self.look);
            }
        }
        new
    }
}

/// The process's pages, and its files'.
struct Both<'a> {
    present: &'a Present,
    mappings: &'a mut Mappings,
}

impl Pages for Both<'_> {
    fn is_present(&mut self, address: u64) -> bool {
        self.present.is_present(address)
    }

    fn is_missing(&mut self, address: u64) -> bool {
        let mapping = self.mappings.at(address);
        mapping.and_then(|mapping| self.mappings.is_missing(mapping, address)).unwrap_or(false)
    }
}

/// In their order, those that continue each other as one.
fn joined(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable_by_key(|run| run.first);
    runs.dedup_by(|next, run| {
        let continues = next.first <= run.end;
        if continues {
            run.end = run.end.max(next.end);
        }
        continues
    });
    runs
}

/// What the kernel counts of a process: faults, and processor time of all its threads.
#[derive(Clone, Copy)]
struct Counts {
    at: Instant,
    /// Faults, of which a disk was asked for or not.
    major: u64,
    minor: u64,
    /// ns.
    ran: u64,
}

/// A process that has faults and computes for less than so many tenths of the time waits in them: not only
/// for what it has the disk asked for, which is counted, but for what the kernel has read ahead and is on its
/// way.
const COMPUTES_MOST: u64 = 7;
/// No wait of a disk is shorter, ns.
const WAIT_LEAST: u64 = 100_000;

impl Counts {
    /// Faults that have waited since, as far as that can be told.
    fn waits_since(&self, before: &Counts) -> u64 {
        let major = self.major.saturating_sub(before.major);
        let minor = self.minor.saturating_sub(before.minor);
        let elapsed = self.at.duration_since(before.at).as_nanos() as u64;
        let ran = self.ran.saturating_sub(before.ran);
        let waits = ran * 10 < elapsed.saturating_mul(COMPUTES_MOST);
        let seem = if waits { minor.min(elapsed.saturating_sub(ran) / WAIT_LEAST) } else { 0 };
        major.max(seem)
    }
}

struct Counting {
    stat: File,
    clock: libc::clockid_t,
}

impl Counting {
    fn of(process: u32) -> io::Result<Counting> {
        let stat = File::open(format!("/proc/{process}/stat"))?;
        // What clock_getcpuclockid(3) makes of it.
        Ok(Counting { stat, clock: !(process as libc::clockid_t) << 3 | 2 })
    }

    /// None if the process is no more.
    fn now(&self) -> Option<Counts> {
        let mut line = [0; 512];
        let length = self.stat.read_at(&mut line, 0).ok()?;
        let [minor, major] = faults(line.get(..length)?)?;
        let mut ran = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes the structure.
        let told = unsafe { libc::clock_gettime(self.clock, &raw mut ran) } == 0;
        let ran = if told { ran.tv_sec as u64 * 1_000_000_000 + ran.tv_nsec as u64 } else { 0 };
        Some(Counts { at: Instant::now(), major, minor, ran })
    }
}

/// Fields 10 and 12 of proc(5)'s `stat`: faults without and with a disk. The name, field 2, may hold
/// anything: it ends at the last parenthesis.
fn faults(line: &[u8]) -> Option<[u64; 2]> {
    let at = line.iter().rposition(|&byte| byte == b')')?;
    let mut words = std::str::from_utf8(line.get(at + 1..)?).ok()?.split_ascii_whitespace().skip(10 - 3);
    let minor = words.next()?.parse().ok()?;
    Some([minor, words.nth(1)?.parse().ok()?])
}

/// Processor time of this thread since then.
struct Spent(u64);

impl Spent {
    fn begin() -> Spent {
        Spent(Spent::now())
    }

    fn now() -> u64 {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn ns(&self) -> u64 {
        Spent::now().saturating_sub(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found_behind_any_name() {
        let line = b"7 (a) R 1 2) S 1 7 7 0 -1 4194560 1001 0 42 0 1 2 0 0 20 0 1 0\n";
        assert_eq!(faults(line), Some([1001, 42]));
        for garbage in [&b""[..], b"7 (a", b"7 (a) R", b"7 (a) S 1 7 7 0 -1 4194560 1001 0 x 0"] {
            assert_eq!(faults(garbage), None);
        }
        assert!(Counting::of(std::process::id()).unwrap().now().is_some());
    }

    #[test]
    fn who_faults_and_hardly_computes_waits() {
        let at = Instant::now();
        let counts = |ms, major, minor, ran_ms: u64| Counts {
            at: at + Duration::from_millis(ms),
            major,
            minor,
            ran: ran_ms * 1_000_000,
        };
        let waits = |ms, major, minor, ran| counts(ms, major, minor, ran).waits_since(&counts(0, 0, 0, 0));
        assert_eq!(waits(10, 3, 900, 9), 3);
        assert_eq!(waits(10, 0, 900, 9), 0, "it computes");
        assert_eq!(waits(10, 0, 0, 0), 0, "it sleeps");
        assert_eq!((waits(10, 0, 20, 2), waits(10, 0, 900, 2)), (20, 80));
    }

    #[test]
    fn runs_that_continue_each_other_are_one() {
        let run = |first, end| Run { first, end };
        assert_eq!(
            joined(vec![run(9, 10), run(1, 3), run(3, 5), run(10, 11), run(2, 4)]),
            [run(1, 5), run(9, 11)]
        );
    }

    #[test]
    fn what_was_asked_for_is_reached_once_or_given_up() {
        let run = |first, end| Run { first, end };
        let mut asked = Asked::default();
        [0, 32, 64].into_iter().for_each(|first| asked.add(run(first, first + 32), 1));
        asked.add(run(0, 32), 2);
        assert_eq!(asked.pages, 96);
        assert_eq!(asked.reach(run(40, 41)), (1, 32));
        assert_eq!(asked.reach(run(40, 41)), (0, 0));
        assert_eq!(asked.reach(run(31, 64)), (1, 32));
        assert_eq!((asked.pages, asked.give_up(2)), (32, 0));
        assert_eq!((asked.give_up(ASKED_LOOKS + 2), asked.pages), (32, 0));
    }
}
