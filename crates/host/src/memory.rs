//! Whether each speculator is worth the memory that it takes: what is measured for [`runahead_policy::memory`].
//!
//! Four times a second, while there are speculators:
//!
//! - *removed*: reads and faults of the program that found what had been asked for ahead;
//! - *added*: pages that came back soon after they had been evicted (`workingset_refault` of the control group, which
//!   is the kernel's own list of evicted pages; of the machine where there is none), as far as programs waited for
//!   pages at all, shared out by the memory that the speculators use. No speculator has added more than it has
//!   brought in lately.
//!
//! Both in stalls, each as long as one is on the device in question. Where nothing is evicted, nothing is added, and
//! nothing is ever stopped.

use crate::limits::Running;
use runahead_abi::session::Slot;
use runahead_policy::memory::{Interval, Memory, Then, share};
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
    refaults: u64,
    known: HashMap<usize, Known>,
}

/// A speculator, and its counts at the latest look.
struct Known {
    process: u32,
    memory: Memory,
    counts: Counts,
    /// Pages brought in lately.
    brought: u64,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    /// Stalls of the program, and those removed.
    stalls: u64,
    removed: u64,
    /// Pages brought into memory: prefetched, and copied.
    brought: u64,
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
        }
    }

    fn since(&self, before: &Counts) -> Counts {
        Counts {
            stalls: self.stalls.saturating_sub(before.stalls),
            removed: self.removed.saturating_sub(before.removed),
            brought: self.brought.saturating_sub(before.brought),
        }
    }
}

impl Costs {
    pub fn new() -> Costs {
        let group = Group::find();
        let refaults = group.refaults();
        Costs { group, looked: Instant::now(), refaults, known: HashMap::new() }
    }

    /// Looks, if it is time: which slots' speculators are to stop or to begin again. `stall`: how long one takes on a
    /// device, ns, where that is known.
    pub fn look(&mut self, all: &[Running], stall: impl Fn(u64) -> Option<u64>) -> Vec<(usize, Then)> {
        let elapsed = self.looked.elapsed();
        if elapsed < INTERVAL {
            return Vec::new();
        }
        self.looked = Instant::now();
        let refaults = self.group.refaults();
        let evicted = refaults.saturating_sub(std::mem::replace(&mut self.refaults, refaults));
        self.known
            .retain(|index, known| all.iter().any(|one| (one.index, one.process) == (*index, known.process)));
        let seen: Vec<Counts> = all.iter().map(|one| self.since_the_latest_look(one)).collect();
        let waited = seen.iter().fold(0u64, |sum, counts| sum.saturating_add(counts.stalls));
        let used = |one: &Running| one.slot.speculator.counts.pages_most.load(Ordering::Relaxed).max(1);
        let memory = all.iter().fold(0u64, |sum, one| sum.saturating_add(used(one)));
        let mut decided = Vec::new();
        for (one, counts) in all.iter().zip(seen) {
            let Some(known) = self.known.get_mut(&one.index) else { continue };
            let added = share(evicted.min(waited), used(one), memory);
            // While it is off this shows what goes on without it.
            let added = if known.memory.is_off() { added } else { added.min(known.brought) };
            let one_stall = stall(one.slot.speculator.device.load(Ordering::Relaxed)).unwrap_or(STALL);
            let elapsed = elapsed.as_nanos() as u64;
            // Nobody has waited for longer than the interval was.
            let time = |stalls: u64| stalls.saturating_mul(one_stall).min(elapsed);
            let interval = Interval { elapsed, removed: time(counts.removed), added: time(added) };
            tell(one.slot, known.memory.is_off(), elapsed, counts.removed, added);
            decided.push((one.index, known.memory.interval(interval)));
        }
        decided.retain(|(_, then)| *then != Then::AsBefore);
        decided
    }

    fn since_the_latest_look(&mut self, one: &Running) -> Counts {
        let now = Counts::of(one);
        let new = || Known { process: one.process, memory: Memory::default(), counts: now, brought: 0 };
        let known = self.known.entry(one.index).or_insert_with(new);
        let since = now.since(&known.counts);
        known.counts = now;
        known.brought = (known.brought - known.brought / LATELY).saturating_add(since.brought);
        since
    }
}

/// Leaves in the slot what the report says.
fn tell(slot: &Slot, off: bool, elapsed: u64, removed: u64, added: u64) {
    let part = &slot.speculator.allowance;
    if off {
        part.paused_ns.fetch_add(elapsed, Ordering::Relaxed);
    } else {
        part.stalls_removed.fetch_add(removed, Ordering::Relaxed);
        part.stalls_added.fetch_add(added, Ordering::Relaxed);
    }
}

/// Faults of a process for which a disk was asked (proc(5), field 12 of `stat`).
fn major_faults(process: u32) -> u64 {
    let line = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = line.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().nth(12 - 3).and_then(|field| field.parse().ok()).unwrap_or(0)
}
