//! A traced run (`--trace`): takes events out of the slots' rings, adds samples of what nobody
//! writes down, and has the timeline of both ([`json`]) written to the file ([`file`]) piece by
//! piece.
//!
//! Called by the launcher, which makes the file before anything is started, and by the host's loop,
//! some fifty times a second. Nothing that is found in shared memory is trusted: an event is some
//! numbers, and no more of them are kept than are written within a second.

mod file;
mod json;

use crate::disks;
use crate::limits::{LOOK, Running};
use crate::memory::major_faults;
use crate::session::Session;
use file::{Closing, TraceFile};
use json::{Timeline, quoted};
use runahead_abi::post;
use runahead_abi::session::{Slot, activity};
use runahead_abi::trace::{Cursor, Event, kind};
use runahead_kernel::process::monotonic_ns;
use runahead_prefetch::PAGE;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Version of the document's layout: docs/trace.md.
const VERSION: u32 = 1;

/// Bytes that are written together, unless a second passes before there are so many.
const PIECE_BYTES: usize = 64 << 10;
const MAX_WAIT_NS: u64 = 1_000_000_000;

/// What takes a file of /proc to know is looked at every so many samples, of so many processes at
/// most: 20 us each.
const SELDOM: u64 = 5;
const MAX_SAMPLED: usize = 16;

/// Devices that have tracks.
const MAX_DEVICES: usize = 16;

/// Bytes of the command that the file tells.
const MAX_COMMAND: usize = 4096;

/// A trace's file was made, or why not.
pub type Made = io::Result<Box<dyn Recorder>>;

/// Where a trace is wanted. Only who says so has the code for it: the launcher does not
/// (`crates/cli`).
#[derive(Clone, Debug)]
pub struct TraceTo {
    pub(crate) path: PathBuf,
    pub(crate) make: fn(&Path, Option<&File>, &[&OsStr]) -> Made,
}

impl TraceTo {
    pub fn new(path: PathBuf) -> TraceTo {
        TraceTo { path, make: Trace::create }
    }
}

/// A trace that is being written.
pub trait Recorder {
    /// The file's.
    fn descriptor(&self) -> RawFd;
    /// The command runs without us, and nobody will be there to write the trace.
    fn runs_plainly(&mut self, reason: &str);
    /// The host has begun, in this process.
    fn begins(&mut self);
    /// A process is served in slot `index` from now on.
    fn attached(&mut self, index: usize, process: u32);
    /// The process in slot `index` has ended, or is another program from now on.
    fn parted(&mut self, index: usize, slot: &Slot);
    /// Takes what has come since, and samples, if it is time. `names`: looked up ahead so far.
    fn look(&mut self, session: &Session, running: &[Running], names: u64);
    /// The run is over. Returns why the file is not whole.
    fn finish(self: Box<Self>, session: &Session, running: &[Running]) -> Option<String>;
}

struct Trace {
    file: TraceFile,
    timeline: Timeline,
    begin: u64,
    written: u64,
    rings: HashMap<usize, Rings>,
    /// Events that ended processes' rings have lost.
    lost: u64,
    sampled: u64,
    samples: u64,
    /// By `st_dev`: where its counts are, and bytes that were asked of it in the present sample.
    devices: HashMap<u64, (Option<PathBuf>, u64)>,
}

/// How far the rings of a slot were read, and how much its speculators had asked for.
#[derive(Default)]
struct Rings {
    agent: Cursor,
    speculator: Cursor,
    asked: u64,
}

impl Trace {
    /// Makes or empties the file. `report`: which it must not be. (What cannot be written is found
    /// out later: a disk that is full keeps nothing from running.)
    fn create(path: &Path, report: Option<&File>, command: &[&OsStr]) -> Made {
        let error = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
        // A pipe is not waited for.
        let mut options = File::options();
        options.write(true).create(true).truncate(false).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = options.open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(error("it is no regular file"));
        }
        let is_report = |report: &File| {
            report.metadata().is_ok_and(|other| (other.dev(), other.ino()) == (found.dev(), found.ino()))
        };
        if report.is_some_and(is_report) {
            return Err(error("it is the report's file"));
        }
        file.set_len(0)?;
        let begin = monotonic_ns();
        Ok(Box::new(Trace {
            file: TraceFile::begin(file, &head(command)),
            timeline: Timeline::new(begin, std::process::id(), "the command"),
            begin,
            written: begin,
            rings: HashMap::new(),
            lost: 0,
            sampled: begin,
            samples: 0,
            devices: HashMap::new(),
        }))
    }
}

/// The document up to its first record.
fn head(command: &[&OsStr]) -> String {
    let mut words = String::new();
    for word in command {
        if words.len() > MAX_COMMAND {
            words += " ...";
            break;
        }
        words += if words.is_empty() { "" } else { " " };
        words.extend(word.to_string_lossy().chars().take(MAX_COMMAND));
    }
    let process = std::process::id();
    format!(
        "{{\"otherData\":{{\"version\":{VERSION},\"command\":{}}},\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n\
         {{\"ph\":\"M\",\"pid\":{process},\"tid\":{process},\"ts\":0,\"name\":\"process_labels\",\"args\":{{\"labels\":\"the command\"}}}}",
        quoted(&words)
    )
}

impl Recorder for Trace {
    fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    fn runs_plainly(&mut self, reason: &str) {
        self.timeline.says(&format!("the command runs plainly: {reason}"));
        let closing = Closing { complete: true, records: self.timeline.records + 1, ..Closing::default() };
        self.file.append(&self.timeline.taken(), &closing);
    }

    fn begins(&mut self) {
        self.timeline = Timeline::new(self.begin, std::process::id(), "Runahead");
    }

    fn attached(&mut self, index: usize, process: u32) {
        let name = std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(&name);
        self.timeline.goes_on(monotonic_ns());
        self.rings.insert(index, Rings::default());
        self.timeline.attached(index, process, name.trim_end());
    }

    fn parted(&mut self, index: usize, slot: &Slot) {
        self.take(index, slot);
        // What a speculator was killed over does not come.
        self.take(index, slot);
        if let Some(rings) = self.rings.remove(&index) {
            self.lost = self.lost.saturating_add(rings.lost());
        }
        self.timeline.parted(index);
    }

    fn look(&mut self, session: &Session, running: &[Running], names: u64) {
        for one in running {
            self.take(one.index, session.slot(one.index));
        }
        let now = monotonic_ns();
        let elapsed = now.saturating_sub(self.sampled);
        if elapsed >= LOOK.as_nanos() as u64 {
            self.sampled = now;
            self.samples += 1;
            self.sample(running, names, now, elapsed);
        }
        if self.timeline.pending_bytes() >= PIECE_BYTES || now.saturating_sub(self.written) >= MAX_WAIT_NS {
            self.write(false);
        }
    }

    fn finish(mut self: Box<Self>, session: &Session, running: &[Running]) -> Option<String> {
        for one in running {
            self.parted(one.index, session.slot(one.index));
        }
        self.timeline.goes_on(monotonic_ns());
        self.timeline.finish();
        if self.lost > 0 {
            self.timeline.says(&format!("{} events came faster than they were taken", self.lost));
        }
        self.write(true);
        self.file.failed().map(|error| format!("the trace is not whole: {error}"))
    }
}

impl Trace {
    fn write(&mut self, complete: bool) {
        self.written = monotonic_ns();
        let lost = self.rings.values().fold(self.lost, |sum, rings| sum.saturating_add(rings.lost()));
        let closing = Closing {
            complete,
            elapsed_ns: self.written.saturating_sub(self.begin),
            // The document's head has one.
            records: self.timeline.records + 1,
            lost,
            left_out: self.timeline.left_out,
        };
        self.file.append(&self.timeline.taken(), &closing);
    }

    fn take(&mut self, index: usize, slot: &Slot) {
        let Some(rings) = self.rings.get_mut(&index) else { return };
        let timeline = &mut self.timeline;
        // Read after what is taken was written: nothing of that is later.
        let mut events = Vec::new();
        rings.agent.take(&slot.agent.trace, |event| events.extend((event.kind < 16).then_some(*event)));
        rings.speculator.take(&slot.speculator.trace, |event| {
            events.extend((16..32).contains(&event.kind).then_some(*event));
        });
        timeline.goes_on(monotonic_ns());
        for event in &events {
            timeline.event(index, event);
        }
    }

    fn sample(&mut self, running: &[Running], names: u64, now: u64, elapsed: u64) {
        self.timeline.goes_on(now);
        let event = |kind, a, b| Event { time: now, kind, thread: 0, a, b };
        let seldom = self.samples.is_multiple_of(SELDOM);
        for (number, one) in running.iter().enumerate() {
            let (ahead, passed) = ahead(one.slot);
            self.timeline.event(one.index, &event(kind::AHEAD, ahead, passed));
            self.asked(one);
            if seldom && number < MAX_SAMPLED {
                self.timeline.event(one.index, &event(kind::FAULTS, major_faults(one.process), 0));
                let memory = one.speculator.map_or(0, own_pages);
                self.timeline.event(one.index, &event(kind::MEMORY, memory, 0));
            }
        }
        self.timeline.event(0, &event(kind::NAMES_AHEAD, names, 0));
        for (&device, (counts, asked)) in &mut self.devices {
            let rate = u128::from(std::mem::take(asked)) * 1_000_000_000 / u128::from(elapsed.max(1));
            self.timeline.event(0, &event(kind::ASKED, device, u64::try_from(rate).unwrap_or(u64::MAX)));
            if let Some(requests) = counts.as_deref().and_then(disks::in_flight) {
                self.timeline.event(0, &event(kind::IN_FLIGHT, device, requests));
            }
        }
    }

    /// Books what a process's speculators have asked for since the sample before.
    fn asked(&mut self, one: &Running) {
        let part = &one.slot.speculator;
        let (pages, device) =
            (part.counts.prefetched_pages.load(Ordering::Relaxed), part.device.load(Ordering::Relaxed));
        let Some(rings) = self.rings.get_mut(&one.index) else { return };
        let more = pages.saturating_sub(std::mem::replace(&mut rings.asked, pages));
        if device == 0 || (self.devices.len() >= MAX_DEVICES && !self.devices.contains_key(&device)) {
            return;
        }
        let (_, asked) = self.devices.entry(device).or_insert_with(|| (disks::counts(device), 0));
        *asked = asked.saturating_add(more.saturating_mul(PAGE));
    }
}

impl Rings {
    fn lost(&self) -> u64 {
        self.agent.lost.saturating_add(self.speculator.lost)
    }
}

/// How many operations speculation is ahead of its program's threads, and how many those have passed
/// in their present epochs.
fn ahead(slot: &Slot) -> (u64, u64) {
    let get = |word: &AtomicU32| word.load(Ordering::Relaxed);
    let part = &slot.speculator;
    if !matches!(get(&part.activity), activity::RUNNING | activity::AHEAD) {
        return (0, 0);
    }
    let is_of = |posted: &AtomicU32, synced: &AtomicU32| {
        post::latest(posted).is_some_and(|posted| post::epoch_of(posted) == get(synced))
    };
    let lanes = slot.agent.lanes.iter().zip(&part.lanes);
    let reads = lanes
        .filter(|(lane, answer)| is_of(&lane.posted, &answer.synced))
        .map(|(lane, answer)| (get(&answer.written), get(&lane.passed)));
    let faults = is_of(&slot.faults.posted, &part.fault_synced)
        .then(|| (get(&part.touched), get(&slot.faults.passed)));
    reads.chain(faults).fold((0, 0), |(ahead, all), (written, passed)| {
        (ahead + u64::from(written.saturating_sub(passed)), all + u64::from(passed))
    })
}

/// Pages of memory that a process has of its own: resident ones without those of files.
fn own_pages(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let mut words = text.split_whitespace().skip(1).map(|word| word.parse::<u64>().unwrap_or(0));
    let resident = words.next().unwrap_or(0);
    resident.saturating_sub(words.next().unwrap_or(0))
}
