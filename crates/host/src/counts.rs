//! The counts of a run: sums over all processes that attached.

use crate::limits::Looks;
use crate::remembered::RememberedCounts;
use runahead_abi::durations::Lengths;
use runahead_abi::session::{Slot, ended, seen_by};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use syscalls::Sysno;

/// What is counted, in the order of the report. Times in ns, sizes in bytes or 4 KiB pages.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Counts {
    /// Processes of the program that stalled at least once, or mapped a large file (the others cost nothing and
    /// count nothing).
    pub processes: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub reads_hinted: u64,
    pub read_bytes_hinted: u64,
    pub full_prefetches: u64,
    pub partial_prefetches: u64,
    /// A speculator has met a file system whose data a program brings (FUSE).
    pub behind_a_server: bool,
    pub stalls: u64,
    pub stall_ns: u64,
    /// What prefetches have spared, by the stalls of the same process for which nothing had been asked ahead.
    pub saved_ns: u64,
    /// Bytes asked for ahead of reads in order that were not there.
    pub in_order_bytes: u64,
    /// Look-ups of names and listings of directories seen while there were slow ones.
    pub names: u64,
    pub name_stalls: u64,
    pub name_stall_ns: u64,
    /// Names and listings looked up ahead of the program.
    pub names_looked_ahead: u64,
    /// Files asked for since they stand beside one that the program waited for, and those of them that it began to read.
    pub companions: u64,
    pub companions_used: u64,
    pub posts: u64,
    pub post_ns: u64,
    #[serde(rename = "post_ns_median", serialize_with = "median")]
    pub post_lengths: Lengths,
    pub holds: u64,
    pub hold_ns: u64,
    pub mismatches: u64,
    pub lags: u64,
    /// Calls that gave something back although one of ours held it still, all waiting done.
    pub kept_open: u64,
    /// The latest mismatch of the last process that had one: what the program did, what was foretold.
    pub last_mismatch: Option<String>,
    pub faults: FaultCounts,
    pub memory: MemoryCounts,
    /// Looks at the disks that speculators read from, and those that found others there.
    pub disks: Looks,
    pub remembered: RememberedCounts,
    pub speculator: SpeculatorCounts,
}

/// Whether speculators were worth their memory.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct MemoryCounts {
    /// Stalls that prefetching is taken to have removed, and to have added by what it pushed out of memory.
    pub stalls_removed: u64,
    pub stalls_added: u64,
    /// Times that a speculator was stopped for that, and for how long they were.
    pub pauses: u64,
    pub paused_ns: u64,
}

/// Page faults of processes that map large files.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct FaultCounts {
    /// Why they could not be seen, for the last process of which that is so.
    pub unseen_because: Option<String>,
    /// How they were seen, for the last process that was watched.
    pub seen_by: Option<String>,
    /// Why memory on swap could not be brought in, for the last process that had some.
    pub swap_left_because: Option<String>,
    /// Times that watching began, and faults seen by it.
    pub watched: u64,
    pub seen: u64,
    /// Pages asked for because of them, and waits that these have spared the program (the name is older: a page that was asked for
    /// with many others and is reached counts as two).
    pub prefetched_pages: u64,
    pub useful_pages: u64,
    /// Times that speculation was restarted from a fault, and pages that it had asked for when the program faulted
    /// on them.
    pub posts: u64,
    pub foretold_pages: u64,
}

#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct SpeculatorCounts {
    /// Why there was none, of the first process of which that is so.
    pub refused_because: Option<String>,
    pub syncs: u64,
    pub sync_ns: u64,
    pub pages_filled: u64,
    pub pages_refreshed: u64,
    pub pages_most: u64,
    pub views: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub prefetches: u64,
    pub prefetched_pages: u64,
    pub unused_pages: u64,
    /// Notes of names that speculators have waited for.
    pub names_noted: u64,
    pub system_calls: u64,
    pub trapped_calls: u64,
    pub signals: u64,
    pub processor_ns: u64,
    pub endings: Endings,
}

/// How speculations ended.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Endings {
    pub overtaken: u64,
    pub cancelled: u64,
    pub system_call: u64,
    pub fault: u64,
    pub time: u64,
    pub exit: u64,
    pub memory: u64,
    pub descriptor: u64,
    pub waits: u64,
    pub scan: u64,
    /// Something was given back, or the program stood still for long.
    pub released: u64,
    pub names: u64,
    /// Another thread of the program had stalled, and it was its turn.
    pub turn: u64,
    /// The system call that ended the latest one that a system call ended, of the last process.
    pub last_system_call: u64,
    /// The system calls that ended some, by name.
    pub system_calls: BTreeMap<String, u64>,
    /// The latest fault: instruction and address, in hexadecimal, of the last process that had one.
    pub last_fault: Option<String>,
}

fn median<S: Serializer>(lengths: &Lengths, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(lengths.median())
}

/// What a system call is called; its number where it has no name yet.
fn name_of(number: usize) -> String {
    Sysno::new(number).map_or_else(|| number.to_string(), |call| call.name().to_owned())
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counts {
    /// Adds what a process and its speculator have counted. A process could write anything there, so
    /// the sums wrap rather than fail.
    pub fn add(&mut self, slot: &Slot) {
        let agent = &slot.agent.counts;
        let add = |sum: &mut u64, counter: &AtomicU64| *sum = sum.wrapping_add(get(counter));
        self.processes += 1;
        add(&mut self.reads, &agent.reads);
        add(&mut self.read_bytes, &agent.read_bytes);
        add(&mut self.reads_hinted, &agent.reads_hinted);
        add(&mut self.read_bytes_hinted, &agent.read_bytes_hinted);
        add(&mut self.full_prefetches, &agent.full);
        add(&mut self.full_prefetches, &agent.in_order);
        add(&mut self.in_order_bytes, &agent.in_order_bytes);
        add(&mut self.partial_prefetches, &agent.partial);
        self.behind_a_server |= get(&slot.speculator.server) != 0;
        add(&mut self.stalls, &agent.stalls);
        add(&mut self.stalls, &agent.in_order_stalls);
        add(&mut self.stall_ns, &agent.stall_ns);
        add(&mut self.stall_ns, &agent.in_order_stall_ns);
        self.saved_ns = self.saved_ns.wrapping_add(agent.saved_ns());
        add(&mut self.saved_ns, &agent.in_order_ns);
        add(&mut self.names, &agent.names);
        add(&mut self.name_stalls, &agent.name_stalls);
        add(&mut self.name_stall_ns, &agent.name_stall_ns);
        add(&mut self.posts, &agent.posts);
        add(&mut self.post_ns, &agent.post_ns);
        self.post_lengths.add(&agent.post_lengths);
        add(&mut self.holds, &agent.holds);
        add(&mut self.hold_ns, &agent.hold_ns);
        add(&mut self.mismatches, &agent.mismatches);
        add(&mut self.lags, &agent.lags);
        if get(&agent.mismatches) != 0 {
            let word = |at: usize| get(&slot.agent.mismatch[at]) as i64;
            let operation = |at: usize| {
                format!("kind {} on {}, {} bytes at {}", word(at), word(at + 1), word(at + 2), word(at + 3))
            };
            self.last_mismatch = Some(format!("{}; foretold: {}", operation(0), operation(4)));
        }
        let part = &slot.faults;
        let sum = &mut self.faults;
        add(&mut sum.watched, &part.armed);
        add(&mut sum.seen, &part.faults);
        add(&mut sum.prefetched_pages, &part.asked);
        add(&mut sum.useful_pages, &part.useful);
        add(&mut sum.posts, &part.posts);
        add(&mut sum.foretold_pages, &part.foretold);
        match part.seen_by.load(Ordering::Relaxed) {
            seen_by::EVENTS => sum.seen_by = Some("perf events".to_owned()),
            seen_by::PAGEMAP => sum.seen_by = Some("pagemap".to_owned()),
            _ => {}
        }
        let refused = part.refused.load(Ordering::Relaxed) as i32;
        if refused != 0 {
            let error = std::io::Error::from_raw_os_error(refused);
            let pagemap =
                std::io::Error::from_raw_os_error(part.pagemap_refused.load(Ordering::Relaxed) as i32);
            sum.unseen_because = Some(format!(
                "the kernel does not show them (perf_event_open): {error}; nor what is present (/proc/PID/pagemap): {pagemap}"
            ));
        }
        let refused = part.swap_refused.load(Ordering::Relaxed) as i32;
        if refused != 0 {
            let error = std::io::Error::from_raw_os_error(refused);
            sum.swap_left_because =
                Some(format!("the kernel lets us advise nobody else (process_madvise): {error}"));
        }
        let allowance = &slot.speculator.allowance;
        let sum = &mut self.memory;
        add(&mut sum.stalls_removed, &allowance.stalls_removed);
        add(&mut sum.stalls_added, &allowance.stalls_added);
        add(&mut sum.pauses, &allowance.pauses);
        add(&mut sum.paused_ns, &allowance.paused_ns);
        let counts = &slot.speculator.counts;
        let sum = &mut self.speculator;
        add(&mut sum.syncs, &counts.syncs);
        add(&mut sum.sync_ns, &counts.sync_ns);
        add(&mut sum.pages_filled, &counts.pages_filled);
        add(&mut sum.pages_refreshed, &counts.pages_refreshed);
        add(&mut sum.views, &counts.views);
        sum.pages_most = sum.pages_most.max(get(&counts.pages_most));
        add(&mut sum.reads, &counts.reads);
        add(&mut sum.read_bytes, &counts.read_bytes);
        add(&mut sum.prefetches, &counts.prefetches);
        add(&mut sum.prefetched_pages, &counts.prefetched_pages);
        add(&mut sum.unused_pages, &counts.unused_pages);
        // The program is over: what was not used by now never will be.
        add(&mut sum.unused_pages, &counts.open_pages);
        add(&mut sum.names_noted, &counts.names_noted);
        add(&mut sum.system_calls, &counts.system_calls);
        add(&mut sum.trapped_calls, &counts.trapped_calls);
        add(&mut sum.signals, &counts.signals);
        add(&mut sum.processor_ns, &counts.processor_ns);
        add(&mut sum.processor_ns, &allowance.processor_before_ns);
        let ended_as = |sum: &mut u64, reason: u32| add(sum, &counts.endings[reason as usize]);
        let endings = &mut sum.endings;
        ended_as(&mut endings.overtaken, ended::OVERTAKEN);
        ended_as(&mut endings.cancelled, ended::CANCELLED);
        ended_as(&mut endings.system_call, ended::SYSTEM_CALL);
        ended_as(&mut endings.fault, ended::FAULT);
        ended_as(&mut endings.time, ended::TIME);
        ended_as(&mut endings.exit, ended::EXIT);
        ended_as(&mut endings.memory, ended::MEMORY);
        ended_as(&mut endings.descriptor, ended::DESCRIPTOR);
        ended_as(&mut endings.waits, ended::WAITS);
        ended_as(&mut endings.scan, ended::SCAN);
        ended_as(&mut endings.released, ended::RELEASED);
        ended_as(&mut endings.names, ended::NAMES);
        ended_as(&mut endings.turn, ended::TURN);
        let instruction = slot.speculator.fault_instruction.load(Ordering::Relaxed);
        if instruction != 0 {
            let address = slot.speculator.fault_address.load(Ordering::Relaxed);
            endings.last_fault = Some(format!("{instruction:#x} touching {address:#x}"));
        }
        let call = slot.speculator.ended_by.load(Ordering::Relaxed);
        if call != 0 {
            endings.last_system_call = u64::from(call);
        }
        for (number, counter) in counts.calls.0.iter().enumerate() {
            let times = counter.load(Ordering::Relaxed);
            if times != 0 {
                let sum = endings.system_calls.entry(name_of(number)).or_default();
                *sum = sum.wrapping_add(u64::from(times));
            }
        }
    }
}
