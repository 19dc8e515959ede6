//! Why a run did not gain more, in plain words, with what helps. Pure.

use crate::report::Report;
use crate::units::{count, duration, percent};
use crate::waits::{Spared, Waits};
use runahead_remedies::{self as remedies, Surroundings};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub found: String,
    /// What helps; None: nothing does, or there is nothing to mend.
    pub remedy: Option<String>,
}

impl Reason {
    fn new(found: impl Into<String>) -> Reason {
        Reason { found: found.into(), remedy: None }
    }

    fn mended_by(self, remedy: &str) -> Reason {
        Reason { remedy: Some(remedy.to_owned()), ..self }
    }
}

/// So many are told at most: the first ones count most.
pub const MOST: usize = 4;

/// Below this part of the elapsed time, in percent, a kind of waiting is not worth a word.
const LITTLE: f64 = 10.0;
/// From this part on it is the most of it.
const MOSTLY: f64 = 50.0;

/// A wait that is shorter, ns, is over before a speculator is in step.
const SHORT_WAIT_NS: u64 = 100_000;

/// A run that is over sooner has hardly begun to be helped.
const SHORT_RUN_NS: u64 = 30_000_000;

struct Look<'a> {
    report: &'a Report,
    around: &'a Surroundings,
    gains_rights: bool,
    waits: Waits,
    spared: Spared,
}

/// The reasons, the weightiest first. `gains_rights`: the command's file is setuid or the like.
pub fn reasons(report: &Report, around: &Surroundings, gains_rights: bool) -> Vec<Reason> {
    let look = Look { report, around, gains_rights, waits: Waits::of(report), spared: Spared::of(report) };
    let mut reasons = look.told();
    // What stopped all of it explains all counts.
    let stopped = [&report.plainly_because, &report.left_because, &report.counts.speculator.refused_because];
    if stopped.iter().all(|why| why.is_none()) {
        reasons.extend(look.measured());
    }
    reasons.truncate(MOST);
    reasons
}

impl Look<'_> {
    fn part(&self, ns: u64) -> f64 {
        percent(ns, self.report.elapsed_ns)
    }

    /// What the run itself gives as reasons.
    fn told(&self) -> Vec<Reason> {
        let counts = &self.report.counts;
        [
            ("it ran plainly", &self.report.plainly_because),
            ("it was left alone", &self.report.left_because),
            ("nothing could run ahead of it", &counts.speculator.refused_because),
            ("waits in mapped files were not seen", &counts.faults.unseen_because),
            ("its memory on swap was left there", &counts.faults.swap_left_because),
        ]
        .into_iter()
        .filter_map(|(what, why)| {
            let why = why.as_ref()?;
            if self.gains_rights && why.contains("nothing of ours has begun") {
                let found = "it ran plainly: it gets rights at its start (setuid, setgid), and nobody gets a right through us";
                return Some(Reason::new(found).mended_by(remedies::AS_ROOT));
            }
            Some(Reason { found: format!("{what}: {why}"), remedy: remedies::of(why, self.around) })
        })
        .chain(self.registers_are_missing())
        .collect()
    }

    /// Where page faults were seen by the pages that came, only its calls tell what it was about to do.
    fn registers_are_missing(&self) -> Option<Reason> {
        const FOUND: &str = "waits in mapped files were seen by the pages that came alone, as the kernel does not show them \
                             (perf_event_open): what is read in no order is run ahead of from calls between \
                             at best";
        let is_so = self.report.counts.faults.seen_by.as_deref() == Some("pagemap");
        is_so.then(|| Reason { found: FOUND.to_owned(), remedy: remedies::of(FOUND, self.around) })
    }

    /// What its counts say.
    fn measured(&self) -> Vec<Reason> {
        let mut reasons: Vec<Reason> =
            [self.memory_is_full(), self.others_read()].into_iter().flatten().collect();
        let disk = self.part(self.waits.disk_ns());
        let elsewhere = self.part(self.waits.elsewhere_ns.unwrap_or(0));
        if self.passes_the_cache() {
            let found = "it waits for disks in reads that are not seen to wait: files read from end to end, which the \
                         kernel reads ahead already, or reads that pass the page cache by (O_DIRECT, or a file \
                         system without one)";
            reasons.push(Reason::new(found).mended_by(
                "against the latter the program's own option for buffered reads; on FUSE a mount without direct_io",
            ));
        } else if disk < LITTLE {
            reasons.extend(self.machine_is_busy());
            reasons.extend(self.hardly_waits(elsewhere));
        } else if self.report.speculated {
            reasons.extend(self.still_waits());
            reasons.extend(self.still_faults());
        }
        let faults = &self.report.counts.faults;
        let all_seen = faults.unseen_because.is_none() && faults.seen_by.as_deref() != Some("pagemap");
        if reasons.is_empty() && self.report.speculated && all_seen {
            let told =
                self.waits_for_no_file(elsewhere).filter(|_| !self.waits.unseen && !self.spared_much());
            reasons.push(told.unwrap_or_else(|| self.all_was_gained(disk)));
        }
        reasons
    }

    fn memory_is_full(&self) -> Option<Reason> {
        let memory = &self.report.counts.memory;
        if memory.pauses == 0 && memory.stalls_added <= memory.stalls_removed {
            return None;
        }
        let found = format!(
            "memory is full: what was fetched pushed out what it needs ({} waits spared, {} added)",
            memory.stalls_removed, memory.stalls_added
        );
        Some(Reason::new(found).mended_by(remedies::more_memory(true, self.around)))
    }

    fn others_read(&self) -> Option<Reason> {
        let disks = &self.report.counts.disks;
        let often = disks.others > 0 && disks.others.saturating_mul(2) > disks.looks;
        often.then(|| {
            Reason::new("others read from the same disk, and were given way")
                .mended_by("run it while the disk is idle")
        })
    }

    /// Much came from disks, it waited, and neither a read nor a page fault was seen to: those reads look at
    /// no cache, or wait for what is on its way already.
    fn passes_the_cache(&self) -> bool {
        let elsewhere = self.part(self.waits.elsewhere_ns.unwrap_or(0));
        let seen = self.part(self.waits.disk_ns());
        self.waits.unseen && elsewhere >= MOSTLY && seen < LITTLE
    }

    fn machine_is_busy(&self) -> Option<Reason> {
        let queued = self.report.program.map_or(0, |program| program.queued_ns);
        (self.part(queued) >= MOSTLY).then(|| {
            let time = duration(queued);
            Reason::new(format!("the machine is busy: for {time} it was ready to run and had no processor"))
                .mended_by("run less beside it")
        })
    }

    /// It hardly waited for a disk.
    fn hardly_waits(&self, elsewhere: f64) -> Option<Reason> {
        let Report { elapsed_ns, .. } = *self.report;
        let program = self.report.program.unwrap_or_default();
        if self.spared_much() {
            return None;
        }
        if elapsed_ns < SHORT_RUN_NS {
            return Some(Reason::new("it is over before there is anything to gain: hardly anything waited"));
        }
        if let Some(told) = self.waits_for_no_file(elsewhere) {
            return Some(told);
        }
        let cached = "all that it reads is in memory already: it has nothing to wait for";
        let ready = elapsed_ns.saturating_sub(program.queued_ns);
        let computes = percent(program.processor_ns, ready) >= MOSTLY;
        let (busy, all) = (duration(program.processor_ns), duration(elapsed_ns));
        Some(match (computes, self.waits.reads.saturating_add(self.waits.faults)) {
            (true, 0) => {
                Reason::new(format!("it computes: its processors are busy for {busy} of {all}; {cached}"))
            }
            (true, _) => Reason::new(format!("it computes: its processors are busy for {busy} of {all}")),
            (false, 0) => Reason::new(cached),
            (false, _) => Reason::new("it hardly waits for a disk"),
        })
    }

    fn spared_much(&self) -> bool {
        self.spared.any() && self.spared.ns() >= self.report.elapsed_ns / 10
    }

    fn waits_for_no_file(&self, elsewhere: f64) -> Option<Reason> {
        let time = duration(self.waits.elsewhere_ns.unwrap_or(0));
        (elsewhere >= MOSTLY).then(|| {
            Reason::new(format!(
                "for {time} it waits for something that is no file: another process, a network, a lock, \
                 a clock"
            ))
        })
    }

    /// Speculation was there, and it waited all the same.
    fn still_waits(&self) -> Option<Reason> {
        let counts = &self.report.counts;
        let mean = self.waits.reads_ns.checked_div(self.waits.reads)?;
        let remaining = percent(counts.stalls, counts.stalls.saturating_add(counts.full_prefetches));
        if self.part(self.waits.reads_ns) < LITTLE || remaining < MOSTLY {
            return None;
        }
        if mean < SHORT_WAIT_NS {
            return Some(Reason::new(format!(
                "the disk is quick ({} a wait): there is little to gain",
                duration(mean)
            )));
        }
        if let Some((call, times)) = self.call_in_the_way() {
            let times = count(times, "time");
            return Some(Reason::new(format!(
                "it makes a call that nothing can run ahead of: {call} ({times})"
            )));
        }
        if self.is_fetched_in_vain() {
            let found = "what was fetched ahead was not there when it was read: a file server (FUSE) \
                         that answers one request after the other, or whose files lose what is cached of \
                         them whenever they are opened";
            return Some(Reason::new(found).mended_by(
                "against the latter a mount that keeps it: -o auto_cache (sshfs), -o kernel_cache or its like",
            ));
        }
        if percent(counts.reads_hinted, counts.reads) >= MOSTLY {
            return Some(Reason::new(
                "what it reads was foretold, but came late: it reads as fast as the disk answers",
            ));
        }
        let reads = count(counts.reads, "read");
        let found = format!(
            "each read hangs on the one before: of {reads} looked at {} could be foretold",
            counts.reads_hinted
        );
        Some(
            Reason::new(found)
                .mended_by("nothing here: the program itself would have to ask for more at a time"),
        )
    }

    /// It was watched, and waited in page faults that nobody had foretold all the same.
    fn still_faults(&self) -> Option<Reason> {
        let (all, mean) = (self.waits.faults, self.waits.faults_ns.checked_div(self.waits.faults)?);
        let remaining = percent(all, all.saturating_add(self.spared.faults));
        let is_so = self.report.counts.faults.watched > 0
            && self.part(self.waits.faults_ns) >= MOSTLY
            && remaining >= MOSTLY
            && mean >= SHORT_WAIT_NS;
        is_so.then(|| {
            Reason::new(format!(
                "which page of its mapped files it touches next hangs on what it has just waited for: of {} \
                 {} spared",
                count(all.saturating_add(self.spared.faults), "wait"),
                match self.spared.faults {
                    0 => "none was".to_owned(),
                    1 => "1 was".to_owned(),
                    some => format!("{some} were"),
                }
            ))
        })
    }

    /// Behind a server hardly anything came in time of what was asked for.
    fn is_fetched_in_vain(&self) -> bool {
        const LEAST: u64 = 32;
        let counts = &self.report.counts;
        let late = counts.partial_prefetches;
        counts.behind_a_server && late >= LEAST && counts.full_prefetches < late / 10
    }

    /// The call that ended speculations most often, where calls did so more often than not.
    fn call_in_the_way(&self) -> Option<(&str, u64)> {
        let endings = &self.report.counts.speculator.endings;
        let (call, times) = endings.system_calls.iter().max_by_key(|(_, times)| **times)?;
        (endings.system_call.saturating_mul(2) > self.report.counts.posts).then_some((call.as_str(), *times))
    }

    fn all_was_gained(&self, disk: f64) -> Reason {
        Reason::new(match disk < LITTLE {
            true => "nothing is left to gain: what it takes now is its own computing",
            false => "little is left to gain: the first waits come before there is anything ahead",
        })
    }
}
