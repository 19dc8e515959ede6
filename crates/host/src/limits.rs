//! What speculators may ask for: the user's options, the memory that is left, the others at the device.
//!
//! A speculator prefetches by itself and knows only itself. The host looks some fifty times a second, while there
//! is a speculator, at what concerns all: the memory control group and pressure (a few times a second), the disks' own
//! counts, the user's other programs. What comes of it goes into each slot as an [`Allowance`], which the speculator
//! reads at each operation. Decisions are [`runahead_prefetch`]'s; the view of the other programs and the reading
//! of limits are the library's own, so that hints and speculation share a device by the same rules.
//!
//! Rules: never in the program's way (it only sees fewer prefetches), nothing kept open on the disk under test,
//! nothing left behind (so a view is joined where there is one, and not made), and what cannot be read is no limit.

use crate::disks;
use runahead_abi::session::{Allowance, Slot, activity};
use runahead_faults::REQUEST;
use runahead_prefetch::PAGE;
use runahead_prefetch::benefit::WHOLE;
use runahead_prefetch::courtesy::{Counts, Courtesy};
use runahead_prefetch::shares::{Claim, DEVICES, Slot as Stated};
use runahead_prefetcher::limits::{Group, Options};
use runahead_prefetcher::view::{Part, View, machine_now};
use serde::Serialize;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often the host looks while there is a speculator. Giving way takes some ten looks.
pub const LOOK: Duration = Duration::from_millis(20);

/// How often memory is looked at: a dozen small files.
const MEMORY_EVERY: Duration = Duration::from_millis(250);

/// Requests that a speculator claims among others': the greatest claim that is taken at face value.
const WANTED: u32 = 256;

/// Processes and speculators whose counts are remembered, ended ones among them: more than there are slots.
const FORGET: usize = 512;

pub struct Limits {
    options: Options,
    /// From the first speculator on: a program that never stalls has none.
    machine: Option<Machine>,
}

struct Machine {
    group: Group,
    /// Pages for all speculators together.
    budget: u64,
    budget_at: Instant,
    view: Option<View>,
    /// Looks at devices, and those at which others were seen to read from one of them.
    looks: Looks,
    /// By `st_dev`.
    devices: HashMap<u64, Device>,
    /// Bytes that devices delivered for each process at the latest look, and for all since the first.
    seen: HashMap<Reader, u64>,
    ours: u64,
}

/// Looks at the devices that speculators read from, fifty a second, and how many of them found others reading there.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Looks {
    pub looks: u64,
    pub others: u64,
}

struct Device {
    /// `stat` of the whole disk; None: no disk, but a network, a union of others.
    counts: Option<PathBuf>,
    courtesy: Courtesy,
    allowed: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Reader {
    Ourselves,
    Program(u32),
    Speculator(usize),
}

/// A slot with a speculator, and the process that it belongs to.
pub struct Running<'a> {
    pub index: usize,
    pub process: u32,
    /// The speculator's own process; None: it is gone for some time.
    pub speculator: Option<u32>,
    pub slot: &'a Slot,
}

impl Limits {
    pub fn new(options: Options) -> Limits {
        Limits { options, machine: None }
    }

    /// Bytes that the user lets be in memory ahead of all programs together.
    pub fn memory(&self) -> u64 {
        self.options.memory
    }

    /// Before a speculator starts: it must not begin without limits.
    pub fn begin(&mut self, slot: &Slot) {
        let options = self.options;
        let machine = self.machine.get_or_insert_with(|| Machine::new(&options));
        put(&slot.speculator.allowance, &options, None, machine.budget);
    }

    /// How long a device takes to answer while nobody else asks it, as far as that was seen, ns.
    pub fn unloaded(&self, device: u64) -> Option<u64> {
        let seen = self.machine.as_ref()?.devices.get(&device)?.courtesy.unloaded();
        (seen > 0).then_some(seen)
    }

    /// What looks at devices have found so far.
    pub fn looks(&self) -> Looks {
        self.machine.as_ref().map_or(Looks::default(), |machine| machine.looks)
    }

    /// The run is over.
    pub fn end(&mut self) {
        self.machine = None;
    }

    /// Looks at everything and says it to the speculators.
    pub fn look(&mut self, running: &[Running]) {
        let options = self.options;
        if running.is_empty() {
            return;
        }
        let machine = self.machine.get_or_insert_with(|| Machine::new(&options));
        machine.look_at_memory(&options);
        machine.look_at_readers(running);
        let devices = machine.look_at_devices(running);
        for one in running {
            let device = one.slot.speculator.device.load(Ordering::Relaxed);
            let count = devices.get(&device).copied().unwrap_or(1).max(1);
            let allowed = machine.devices.get(&device).and_then(|device| device.allowed);
            let pages = machine.budget / running.len() as u64;
            put(&one.slot.speculator.allowance, &options, allowed.map(|most| most / count), pages);
        }
    }
}

impl Machine {
    fn new(options: &Options) -> Machine {
        let group = Group::find();
        let budget = group.memory(options.memory).pages();
        let budget_at = Instant::now();
        let (devices, seen) = (HashMap::new(), HashMap::new());
        Machine {
            group,
            budget,
            budget_at,
            view: View::join_existing(),
            looks: Looks::default(),
            devices,
            seen,
            ours: 0,
        }
    }

    fn look_at_memory(&mut self, options: &Options) {
        if self.budget_at.elapsed() >= MEMORY_EVERY {
            self.budget_at = Instant::now();
            self.budget = self.group.memory(options.memory).pages();
        }
    }

    /// How much devices have delivered for us and ours.
    fn look_at_readers(&mut self, running: &[Running]) {
        self.delivered(Reader::Ourselves, read_bytes("self"));
        for one in running {
            self.delivered(Reader::Program(one.process), read_bytes(&one.process.to_string()));
            let speculators = one.slot.speculator.delivered.load(Ordering::Relaxed);
            self.delivered(Reader::Speculator(one.index), Some(speculators));
        }
        // A build starts thousands of processes.
        if self.seen.len() > 2 * FORGET {
            self.seen.retain(|reader, _| match reader {
                Reader::Ourselves => true,
                Reader::Program(process) => running.iter().any(|one| one.process == *process),
                Reader::Speculator(index) => running.iter().any(|one| one.index == *index),
            });
        }
    }

    fn delivered(&mut self, reader: Reader, bytes: Option<u64>) {
        let Some(bytes) = bytes else { return };
        // Who is new was there before: what it has read so far, nobody has counted on the other side either.
        let before = self.seen.insert(reader, bytes).unwrap_or(bytes);
        self.ours = self.ours.wrapping_add(bytes.saturating_sub(before));
    }

    /// Decides for each device; returns how many speculators read from each.
    fn look_at_devices(&mut self, running: &[Running]) -> HashMap<u64, u32> {
        let mut readers: HashMap<u64, u32> = HashMap::new();
        let (mut asked, mut unused) = (0u64, 0u64);
        for one in running {
            let part = &one.slot.speculator;
            let device = part.device.load(Ordering::Relaxed);
            asked = asked.saturating_add(part.counts.prefetched_pages.load(Ordering::Relaxed));
            unused = unused.saturating_add(part.counts.unused_pages.load(Ordering::Relaxed));
            let busy = matches!(part.activity.load(Ordering::Relaxed), activity::RUNNING | activity::AHEAD);
            if device != 0 && busy {
                *readers.entry(device).or_default() += 1;
            }
        }
        // A speculator writes its device number: no more of them than anybody reads from.
        if self.devices.len() > 4 * DEVICES {
            self.devices.retain(|device, _| readers.contains_key(device));
        }
        let mut stated = Stated { written: machine_now(), pages: 0, claims: Default::default() };
        let right = asked.saturating_sub(unused);
        let accuracy = (u128::from(right) * u128::from(WHOLE)).checked_div(asked.into());
        let mut others = false;
        for (at, &number) in readers.keys().enumerate() {
            let device = self.devices.entry(number).or_insert_with(|| Device::new(number));
            device.look(self.ours);
            others |= device.courtesy.others();
            let concurrency = device.courtesy.concurrency();
            if let Some(claim) = stated.claims.get_mut(at)
                && concurrency > 0
            {
                *claim = Claim {
                    device: number,
                    wants: WANTED,
                    concurrency,
                    latency: device.courtesy.unloaded(),
                    accuracy: accuracy.unwrap_or(u128::from(WHOLE) / 2) as u32,
                };
            }
        }
        self.looks.looks += u64::from(!readers.is_empty());
        self.looks.others += u64::from(others);
        let Some(view) = &self.view else { return readers };
        for (claim, part) in stated.claims.iter().zip(view.exchange(&stated)) {
            if let (Part::Of(part), Some(device)) = (part, self.devices.get_mut(&claim.device)) {
                // The others are the user's own programs and prefetch themselves: each has its part, and it
                // is not for us to give way beyond ours.
                device.allowed = Some(part.max(1));
            }
        }
        readers
    }
}

impl Device {
    fn new(number: u64) -> Device {
        Device { counts: disks::counts(number), courtesy: Courtesy::default(), allowed: None }
    }

    fn look(&mut self, ours: u64) {
        self.allowed = None;
        if let Some(done) = self.counts.as_deref().and_then(disks::done) {
            let disks::Done { reads, bytes, read_ns } = done;
            self.allowed = self.courtesy.sample(Counts { at: machine_now(), reads, bytes, read_ns, ours });
        }
    }
}

/// Bytes that a thread may ask for ahead of what it reads in order, by the user's limits. Of a limited
/// bandwidth nothing: nobody would count it.
pub(crate) fn ahead_of_reads(options: &Options) -> u64 {
    let requests = match options.in_flight {
        count if count == Options::default().in_flight => u64::MAX,
        count => u64::from(count).saturating_mul(REQUEST),
    };
    match options.bandwidth {
        u64::MAX => options.memory.min(requests),
        _ => 0,
    }
}

/// Says it to a speculator. `requests`: what courtesy and the others leave; `pages`: what memory does.
fn put(allowance: &Allowance, options: &Options, requests: Option<u32>, pages: u64) {
    let most = (options.in_flight != Options::default().in_flight).then_some(options.in_flight);
    let requests = [requests, most].into_iter().flatten().min().map_or(0, |count| count.max(1));
    allowance.requests.store(requests, Ordering::Relaxed);
    allowance.pages.store(u32::try_from(pages).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
    let rate = if options.bandwidth == u64::MAX { 0 } else { options.bandwidth.max(PAGE) };
    allowance.bytes_a_second.store(rate, Ordering::Relaxed);
}

/// Bytes that devices have delivered for a process.
fn read_bytes(process: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_the_rest_meet_in_the_lower_one() {
        let allowance = Allowance::default();
        let said = |options: &Options, requests, pages| {
            put(&allowance, options, requests, pages);
            let rate = allowance.bytes_a_second.load(Ordering::Relaxed);
            (allowance.requests.load(Ordering::Relaxed), allowance.pages.load(Ordering::Relaxed), rate)
        };
        let plain = Options::default();
        assert_eq!(said(&plain, None, 1000), (0, 1000, 0));
        assert_eq!(said(&plain, Some(7), 0), (7, 1, 0));
        assert_eq!(said(&plain, Some(0), u64::MAX), (1, u32::MAX, 0));
        let limited = Options { in_flight: 4, bandwidth: 1 << 20, ..plain };
        assert_eq!(said(&limited, None, 9), (4, 9, 1 << 20));
        assert_eq!(said(&limited, Some(3), 9).0, 3);
        assert_eq!(said(&limited, Some(300), 9).0, 4);
    }

    #[test]
    fn limits_are_those_of_what_is_asked_for_ahead_of_reads_in_order() {
        let plain = Options::default();
        let limited = |memory, in_flight, bandwidth| Options { memory, in_flight, bandwidth, ..plain };
        assert_eq!(ahead_of_reads(&plain), u64::MAX);
        assert_eq!(ahead_of_reads(&limited(1 << 16, plain.in_flight, u64::MAX)), 1 << 16);
        assert_eq!(ahead_of_reads(&limited(u64::MAX, 2, u64::MAX)), 2 * REQUEST);
        assert_eq!(ahead_of_reads(&limited(u64::MAX, plain.in_flight, 1 << 40)), 0);
    }

    #[test]
    fn what_a_process_was_given_is_counted_from_the_first_look_on() {
        let mut machine = Machine::new(&Options::default());
        for (bytes, ours) in [(5000, 0), (7000, 2000), (6000, 2000), (6500, 2500)] {
            machine.delivered(Reader::Program(1), Some(bytes));
            assert_eq!(machine.ours, ours);
        }
        machine.delivered(Reader::Speculator(1), None);
        assert_eq!(machine.ours, 2500);
    }
}
