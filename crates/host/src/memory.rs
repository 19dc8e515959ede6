//! Whether each speculator is worth the memory that it takes: what is measured for [`runahead_policy::memory`].
//!
//! Four times a second, while there are speculators and memory is short:
//!
//! - *removed*: reads and faults of the program that found what had been asked for ahead;
//! - *added*: pages that came back after they had been evicted (the kernel's own list of evicted pages, by its counts for
//!   the control group, or the machine where there is none), as far as programs waited for pages at all, shared out by
//!   the memory that the speculators use. Of them a speculator has added those that what it holds, and has brought in lately for nothing,
//!   can have pushed out, and none in an interval in which it brought nothing in.
//!
//! Both in stalls, each as long as one is on the device in question. Where there is room nothing is looked at but that
//! there is, nothing is counted, and nothing is ever stopped; what had been stopped begins again, if there is room for
//! what it gave back as well. Where the program's memory is all but used up nothing is weighed: all stop, and when that lasts
//! the host leaves too.

use crate::limits::Running;
use runahead_policy::memory::{Edge, Interval, Memory, Then, share};
use runahead_prefetch::PAGE;
use runahead_prefetcher::limits::Group;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(250);

/// A stall where nobody has measured one, ns: between a local disk and one in a cloud.
const STALL: u64 = 200_000;

/// What is brought in is forgotten by an eighth in each interval: a page that it pushed out may be wanted in a while.
const LATELY: u64 = 8;

pub struct Costs {
    group: Group,
    looked: Instant,
    /// Pages that had come back by the latest look; None: there was room.
    came_back: Option<u64>,
    known: HashMap<usize, Known>,
    edge: Edge,
    /// Pages that had come back when that was last looked at.
    edge_came_back: u64,
    hopeless: bool,
}

/// A speculator, and its counts at the latest look.
struct Known {
    process: u32,
    memory: Memory,
    /// None: there was room.
    counts: Option<Counts>,
    /// The latest look was the first one: nobody knows what came before it.
    first: bool,
    /// Pages brought in lately, less those that the program has come to: of a program that goes through more than fits every page comes
    /// back, again and again, and counted against what was brought in for it that ended NAS MG's prefetches for seconds.
    brought: u64,
    /// Pages that the speculator had of its own when it was there last.
    used: u64,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    /// Stalls of the program, and those removed.
    stalls: u64,
    removed: u64,
    /// Pages brought into memory: prefetched, and copied. And those of them that the program has come to.
    brought: u64,
    reached: u64,
}

impl Counts {
    fn of(one: &Running) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (agent, faults, ahead) = (&one.slot.agent.counts, &one.slot.faults, &one.slot.speculator.counts);
        // A process writes these as it likes: they wrap.
        Counts {
            stalls: get(&agent.stalls).wrapping_add(major_faults(one.process)),
            removed: get(&agent.full).wrapping_add(get(&agent.partial)).wrapping_add(get(&faults.useful)),
            brought: get(&ahead.prefetched_pages)
                .wrapping_add(get(&ahead.pages_filled))
                .wrapping_add(get(&faults.asked)),
            reached: (get(&agent.read_bytes_hinted) / PAGE).wrapping_add(get(&faults.used)),
        }
    }

    fn since(&self, before: &Counts) -> Counts {
        Counts {
            stalls: self.stalls.saturating_sub(before.stalls),
            removed: self.removed.saturating_sub(before.removed),
            brought: self.brought.saturating_sub(before.brought),
            reached: self.reached.saturating_sub(before.reached),
        }
    }
}

impl Costs {
    pub fn new() -> Costs {
        Costs {
            group: Group::find(),
            looked: Instant::now(),
            came_back: None,
            known: HashMap::new(),
            edge: Edge::default(),
            edge_came_back: 0,
            hopeless: false,
        }
    }

    /// Whether, by the latest look, memory has been so short for so long that nobody is to be beside the program.
    pub fn is_hopeless(&self) -> bool {
        self.hopeless
    }

    /// Looks, if it is time: which slots' speculators are to stop or to begin again. `stall`: how long one takes on a
    /// device, ns, where that is known.
    pub fn look(&mut self, all: &[Running], stall: impl Fn(u64) -> Option<u64>) -> Vec<(usize, Then)> {
        let elapsed = self.looked.elapsed();
        if elapsed < INTERVAL {
            return Vec::new();
        }
        self.looked = Instant::now();
        let elapsed = elapsed.as_nanos() as u64;
        self.known
            .retain(|index, known| all.iter().any(|one| (one.index, one.process) == (*index, known.process)));
        let off = |one: &&Running| self.known.get(&one.index).is_some_and(|known| known.memory.is_off());
        let paused: Vec<&Running> = all.iter().filter(off).collect();
        for one in &paused {
            one.slot.speculator.allowance.paused_ns.fetch_add(elapsed, Ordering::Relaxed);
        }
        let held = sum(paused.into_iter().map(|one| self.used(one))).saturating_mul(PAGE);
        let evicts = self.group.evicts(held);
        let at_the_edge = evicts && self.group.is_at_the_edge(held);
        self.hopeless = self.look_at_the_edge(at_the_edge, all, elapsed);
        let mut decided = match evicts {
            true if at_the_edge => self.give_way(all),
            true => self.weigh(all, elapsed, stall),
            false => self.leave_alone(elapsed),
        };
        decided.retain(|(_, then)| *then != Then::AsBefore);
        decided
    }

    /// Whether it has gone on for too long that memory is all but used up though no speculator is there, and that pages come
    /// back, so that it matters. What was between two looks that are far apart nobody knows.
    fn look_at_the_edge(&mut self, at_the_edge: bool, all: &[Running], elapsed: u64) -> bool {
        let before = match at_the_edge {
            true => std::mem::replace(&mut self.edge_came_back, self.group.came_back()),
            false => u64::MAX,
        };
        let comes_back = self.edge_came_back > before;
        let without_us = all.iter().all(|one| one.speculator.is_none());
        let reached = comes_back && without_us && elapsed < 2 * INTERVAL.as_nanos() as u64;
        self.edge.look(reached && self.group.is_at_the_edge(0), elapsed)
    }

    fn leave_alone(&mut self, elapsed: u64) -> Vec<(usize, Then)> {
        self.came_back = None;
        self.known.retain(|_, known| known.memory.is_off());
        let again = |(index, known): (&usize, &mut Known)| {
            known.counts = None;
            (*index, known.memory.abundant(elapsed))
        };
        self.known.iter_mut().map(again).collect()
    }

    fn give_way(&mut self, all: &[Running]) -> Vec<(usize, Then)> {
        let mut decided = Vec::new();
        for one in all {
            self.since_the_latest_look(one);
            decided.extend(self.known.get_mut(&one.index).map(|known| (one.index, known.memory.give_way())));
        }
        decided
    }

    fn weigh(
        &mut self,
        all: &[Running],
        elapsed: u64,
        stall: impl Fn(u64) -> Option<u64>,
    ) -> Vec<(usize, Then)> {
        let came_back = self.group.came_back();
        let before = self.came_back.replace(came_back).unwrap_or(came_back);
        let evicted = came_back.saturating_sub(before);
        let seen: Vec<Counts> = all.iter().map(|one| self.since_the_latest_look(one)).collect();
        let waited = sum(seen.iter().map(|counts| counts.stalls));
        let memory = sum(all.iter().map(|one| self.used(one)));
        let mut decided = Vec::new();
        for (one, counts) in all.iter().zip(seen) {
            let Some(known) = self.known.get_mut(&one.index) else { continue };
            let used = known.used;
            let added = share(evicted.min(waited), used, memory);
            // While it is off this shows what goes on without it. Else it has pushed out as much as it has brought in, at most. (Of
            // 41,000 pages that came back to NAS MG in 250 ms, a wait for each 70, that was a third.)
            let off = known.memory.is_off();
            let added = if off { added } else { share(added, known.brought.saturating_add(used), evicted) };
            let one_stall = stall(one.slot.speculator.device.load(Ordering::Relaxed)).unwrap_or(STALL);
            // Nobody has waited for longer than the interval was.
            let time = |stalls: u64| stalls.saturating_mul(one_stall).min(elapsed);
            let others = all.iter().any(|other| other.index != one.index && other.speculator.is_some());
            let interval = Interval { elapsed, removed: time(counts.removed), added: time(added), others };
            let idle = !off && known.shows_what_goes_on_without_it(&counts, evicted.min(waited));
            if !off {
                let part = &one.slot.speculator.allowance;
                part.stalls_removed.fetch_add(counts.removed, Ordering::Relaxed);
                part.stalls_added.fetch_add(if idle { 0 } else { added }, Ordering::Relaxed);
            }
            let then = if idle { known.memory.idle(interval) } else { known.memory.interval(interval) };
            decided.push((one.index, then));
        }
        decided
    }

    fn since_the_latest_look(&mut self, one: &Running) -> Counts {
        let known = self.known.entry(one.index).or_insert_with(|| Known::new(one.process));
        if let Some(pages) = one.speculator.and_then(own_pages) {
            known.used = pages.max(1);
        }
        known.since(Counts::of(one))
    }

    fn used(&self, one: &Running) -> u64 {
        self.known.get(&one.index).map_or(1, |known| known.used)
    }
}

impl Known {
    fn new(process: u32) -> Known {
        Known { process, memory: Memory::default(), counts: None, first: true, brought: 0, used: 1 }
    }

    /// What has come since the latest look.
    fn since(&mut self, now: Counts) -> Counts {
        let before = self.counts.replace(now);
        self.first = before.is_none();
        let since = now.since(&before.unwrap_or(now));
        let brought = (self.brought - self.brought / LATELY).saturating_add(since.brought);
        self.brought = brought.saturating_sub(since.reached);
        since
    }

    /// Whether so many pages that came back in an interval show what goes on without it: it has brought nothing in meanwhile,
    /// and too little lately to have pushed them out.
    fn shows_what_goes_on_without_it(&self, seen: &Counts, came_back: u64) -> bool {
        !self.first && seen.brought == 0 && self.brought < came_back
    }
}

/// Pages of a process that are nobody else's.
fn own_pages(process: u32) -> Option<u64> {
    own_pages_of(&std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?)
}

/// Pages in all, resident ones, those of them that are files' or shared (proc(5)).
fn own_pages_of(statm: &str) -> Option<u64> {
    let mut numbers = statm.split_whitespace().skip(1).map(|number| number.parse::<u64>().ok());
    let resident = numbers.next()??;
    Some(resident.saturating_sub(numbers.next()??))
}

fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Faults of a process for which a disk was asked (proc(5), field 12 of `stat`).
pub(crate) fn major_faults(process: u32) -> u64 {
    major_faults_of(&std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default())
}

fn major_faults_of(line: &str) -> u64 {
    let fields = line.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().nth(12 - 3).and_then(|field| field.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_a_process_whose_name_looks_like_the_next_fields() {
        assert_eq!(major_faults_of("7 (a) S 1) R 1 7 7 0 -1 4194304 12345 0 99 0 5 6"), 99);
        assert_eq!(major_faults_of(""), 0);
    }

    #[test]
    fn what_is_files_or_shared_is_not_its_own() {
        assert_eq!(own_pages_of("9000 700 90 20 0 600 0"), Some(610));
        assert_eq!(own_pages_of("9000 7 90"), Some(0));
        assert_eq!(own_pages_of("9000 seven 90"), None);
        assert_eq!(own_pages_of(""), None);
    }

    #[test]
    fn what_it_may_have_pushed_out_is_not_what_goes_on_without_it() {
        let mut known = Known::new(1);
        let counts = |brought| Counts { brought, ..Counts::default() };
        let first = known.since(counts(1000));
        assert!(!known.shows_what_goes_on_without_it(&first, 50), "nobody knows when those were brought in");
        let nothing = known.since(counts(1000));
        assert!(known.shows_what_goes_on_without_it(&nothing, 50));
        let some = known.since(counts(1100));
        assert!(!known.shows_what_goes_on_without_it(&some, 500));
        let nothing = known.since(counts(1100));
        assert!(!known.shows_what_goes_on_without_it(&nothing, 50), "a hundred were brought in just before");
        assert!(known.shows_what_goes_on_without_it(&nothing, 500));
    }

    #[test]
    fn what_was_brought_in_for_nothing_counts_and_what_was_of_use_does_not() {
        let after = |useful_of_ten: u64| {
            let mut known = Known::new(1);
            for look in 0..100 {
                let (brought, reached) = (look * 1000, look * 100 * useful_of_ten);
                known.since(Counts { brought, reached, ..Counts::default() });
            }
            known.brought
        };
        assert_eq!(after(10), 0);
        // An eighth is forgotten at each look: what stays is eight times what comes, less an eighth of what came last.
        assert!((7900..=8000).contains(&after(0)), "{}", after(0));
        assert!((3900..=4000).contains(&after(5)), "{}", after(5));
        let mut known = Known::new(1);
        known.since(Counts { stalls: 1, removed: 1 << 40, brought: 1 << 50, reached: 0 });
        assert_eq!(known.brought, 0, "what was there before the first look is nobody's");
    }
}
