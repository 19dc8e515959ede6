//! What a run waited for, what was spared, and what its waiting may come to where it is overlapped. Pure.

use crate::report::Report;
use crate::units::PAGE;

/// Requests that disks are taken to serve at once: the best, and what is likely.
const AT_ONCE_MOST: u64 = 64;
const AT_ONCE_LIKELY: u64 = 16;

/// A disk has answered by then: more of what is left is something else.
const LONGEST_FAULT_NS: u64 = 15_000_000;

/// Of each process: its start reads before anybody looks.
const FEW_PAGES: u64 = 250;

/// The kernel's read-ahead where nobody has set another one, bytes.
const READ_AHEAD: u64 = 128 << 10;

/// What a run waited for, ns. The sum over all of its threads, so it may be more than the run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    pub reads: u64,
    pub reads_ns: u64,
    pub names: u64,
    pub names_ns: u64,
    /// Page faults that read.
    pub faults: u64,
    /// At most: all the time that nothing else is known to have taken. 0 where there were none.
    pub faults_ns: u64,
    /// Time that is neither the processors' nor any of these; None where the kernel has told nothing.
    pub elsewhere_ns: Option<u64>,
    /// More came for it from disks than what it was seen to wait for.
    pub unseen: bool,
}

impl Waits {
    pub fn of(report: &Report) -> Waits {
        let counts = &report.counts;
        let seen = counts.stall_ns.saturating_add(counts.name_stall_ns);
        let faults = report.program.map_or(0, |program| program.major_faults);
        let left = report.program.map(|program| {
            let known = program.processor_ns.saturating_add(program.queued_ns).saturating_add(seen);
            report.elapsed_ns.saturating_sub(known)
        });
        let faults_ns = left.unwrap_or(0).min(faults.saturating_mul(LONGEST_FAULT_NS));
        // Whoever waits may get all that the kernel reads ahead.
        let program = report.program.unwrap_or_default();
        let each = program.read_ahead_bytes.max(READ_AHEAD) / PAGE;
        let explained = counts.stalls.saturating_add(faults).saturating_mul(each);
        let by_starts = counts.processes.max(1).saturating_mul(FEW_PAGES);
        Waits {
            unseen: program.device_bytes / PAGE > explained.saturating_add(by_starts),
            reads: counts.stalls,
            reads_ns: counts.stall_ns,
            names: counts.name_stalls,
            names_ns: counts.name_stall_ns,
            faults,
            faults_ns,
            elsewhere_ns: left.map(|left| left - faults_ns),
        }
    }

    pub fn disk_ns(&self) -> u64 {
        self.reads_ns.saturating_add(self.names_ns).saturating_add(self.faults_ns)
    }

    fn number(&self) -> u64 {
        self.reads.saturating_add(self.names).saturating_add(self.faults)
    }
}

/// What was spared, in waits and ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spared {
    pub reads: u64,
    pub reads_ns: u64,
    pub names: u64,
    pub names_ns: u64,
    /// Of page faults; nobody has measured how long these would have been.
    pub faults: u64,
}

impl Spared {
    pub fn of(report: &Report) -> Spared {
        let counts = &report.counts;
        // As long as those that waited, and no more than the program came to.
        let names = counts.names_looked_ahead.min(counts.names.saturating_sub(counts.name_stalls));
        let mean = counts.name_stall_ns.checked_div(counts.name_stalls).unwrap_or(0);
        Spared {
            reads: counts.full_prefetches,
            reads_ns: counts.saved_ns,
            names: if mean > 0 { names } else { 0 },
            names_ns: names.saturating_mul(mean),
            faults: counts.faults.useful_pages,
        }
    }

    pub fn ns(&self) -> u64 {
        self.reads_ns.saturating_add(self.names_ns)
    }

    pub fn any(&self) -> bool {
        self.reads > 0 || self.names > 0 || self.faults > 0
    }
}

/// What the same work would take with its waiting overlapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlapped {
    pub best_ns: u64,
    pub likely_ns: u64,
    /// Each wait hangs on the one before: nothing changes.
    pub worst_ns: u64,
}

impl Overlapped {
    /// None: it hardly waits.
    pub fn of(report: &Report) -> Option<Overlapped> {
        let waits = Waits::of(report);
        let waited = waits.disk_ns().min(report.elapsed_ns);
        if waited == 0 || waits.number() == 0 {
            return None;
        }
        let rest = report.elapsed_ns - waited;
        // One wait at the least is left.
        let one = (waits.disk_ns() / waits.number()).min(waited);
        let with = |at_once: u64| rest + (waited / at_once).max(one);
        Some(Overlapped {
            best_ns: with(AT_ONCE_MOST),
            likely_ns: with(AT_ONCE_LIKELY),
            worst_ns: report.elapsed_ns,
        })
    }
}

pub const BEST: u64 = AT_ONCE_MOST;
pub const LIKELY: u64 = AT_ONCE_LIKELY;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Counts, Program};

    fn report(elapsed_ns: u64, stalls: u64, stall_ns: u64, processor_ns: u64, faults: u64) -> Report {
        Report {
            elapsed_ns,
            program: Some(Program { processor_ns, major_faults: faults, ..Program::default() }),
            counts: Counts { stalls, stall_ns, ..Counts::default() },
            ..Report::default()
        }
    }

    #[test]
    fn an_estimate_lies_between_all_at_once_and_one_by_one() {
        let told = Overlapped::of(&report(1000, 100, 900, 50, 0)).unwrap();
        assert_eq!(told, Overlapped { best_ns: 114, likely_ns: 156, worst_ns: 1000 });
        // One single wait cannot be overlapped with anything.
        let told = Overlapped::of(&report(1000, 1, 900, 50, 0)).unwrap();
        assert_eq!((told.best_ns, told.likely_ns), (1000, 1000));
        assert_eq!(Overlapped::of(&report(1000, 0, 0, 990, 0)), None);
        // Of many threads the sum is more than all of the time.
        let told = Overlapped::of(&report(1000, 100, 90_000, 50, 0)).unwrap();
        assert!(told.best_ns < 1000 && told.worst_ns == 1000);
    }

    #[test]
    fn what_is_left_is_the_faults_where_there_were_any() {
        let waits = Waits::of(&report(1000, 10, 300, 200, 7));
        assert_eq!((waits.faults_ns, waits.elsewhere_ns), (500, Some(0)));
        let waits = Waits::of(&report(1000, 10, 300, 200, 0));
        assert_eq!((waits.faults_ns, waits.elsewhere_ns), (0, Some(500)));
        assert_eq!(Waits::of(&Report { program: None, ..report(9, 1, 1, 1, 1) }).elsewhere_ns, None);
    }
}
