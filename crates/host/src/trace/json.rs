//! Events into a timeline in Chrome's trace format. Pure.
//!
//! Spans come out when they are over, each as one record, so that the timeline is whole at any
//! time. Those of one track are disjoint or nested, and none lies before the run or ends after the
//! present, whatever the events say: a program may write anything into the memory that they come
//! from. Called by [`super::Trace`]. docs/trace.md has the format.

use runahead_abi::session::{ended, holding};
use runahead_abi::trace::{Event, FORETOLD, FORETOLD_READ, kind};
use runahead_prefetch::PAGE;
use std::collections::HashMap;
use std::fmt::Write as _;
use syscalls::Sysno;

/// Tracks of speculation are no threads: this is above all process ids (PID_MAX_LIMIT is 2^22).
const SPECULATION_TRACK: u32 = 10_000_000;

/// Threads of one process that get a track; the events of more are left out.
const MAX_THREADS: usize = 1024;

/// Processes that have ended and are remembered, since the same one may come again as another
/// program.
const MAX_ENDED: usize = 1024;

/// Bytes of the file that may be written at once, and by each second of the run: ten seconds give
/// less than 20 MB.
const INITIAL_BYTES: u64 = 4 << 20;
const BYTES_A_SECOND: u64 = 5 << 18;
const MAX_BYTES: u64 = 1 << 28;

pub struct Timeline {
    /// Beginning of the run, and the latest time that is believed; CLOCK_MONOTONIC, ns.
    begin: u64,
    now: u64,
    /// Process id of the host: the devices' tracks are its own.
    host: u32,
    /// Records that nobody has taken yet, each with a comma before it.
    out: String,
    written: u64,
    pub records: u64,
    /// Events that were believed to be none, or for which there was no room.
    pub left_out: u64,
    /// By slot.
    processes: HashMap<usize, Process>,
    /// When processes ended, by their ids.
    ended: HashMap<u32, u64>,
    /// The latest value of each counter, by track and name.
    counters: HashMap<(u32, &'static str, u64), u64>,
}

/// The process in a slot.
struct Process {
    id: u32,
    floor: u64,
    threads: HashMap<u32, Thread>,
    speculation: Speculation,
}

#[derive(Clone, Copy)]
struct Thread {
    /// Nothing of it may begin before this.
    floor: u64,
    wait: Option<Wait>,
}

/// A read that a thread waits for.
#[derive(Clone, Copy)]
struct Wait {
    begin: u64,
    /// Where what lies within it ends.
    least_end: u64,
    /// Its end is not seen; it is taken to be this.
    likely_end: Option<u64>,
    place: u64,
    what: u64,
}

#[derive(Clone, Copy, Default)]
struct Speculation {
    floor: u64,
    begin: Option<u64>,
    is_named: bool,
    from: &'static str,
    epoch: u64,
    least_end: u64,
    sleeps: Option<(u64, u64)>,
}

/// A span, or what else stands on a track.
struct Span<'a> {
    process: u32,
    track: u32,
    name: &'a str,
    begin: u64,
    end: u64,
}

impl Timeline {
    /// `name`: what the process `host` is called.
    pub fn new(begin: u64, host: u32, name: &str) -> Timeline {
        let mut timeline = Timeline {
            begin,
            now: begin,
            host,
            out: String::new(),
            written: 0,
            records: 0,
            left_out: 0,
            processes: HashMap::new(),
            ended: HashMap::new(),
            counters: HashMap::new(),
        };
        timeline.name("process_name", host, host, name);
        timeline
    }

    /// The records that have come since the latest call.
    pub fn taken(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    pub fn pending_bytes(&self) -> usize {
        self.out.len()
    }

    /// Time has gone on: no later event is believed.
    pub fn goes_on(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// A process is served in `slot` from now on. `name`: what it is called.
    pub fn attached(&mut self, slot: usize, id: u32, name: &str) {
        self.parted(slot);
        let floor = self.ended.get(&id).copied().unwrap_or(self.begin);
        let speculation = Speculation { floor, ..Speculation::default() };
        self.processes.insert(slot, Process { id, floor, threads: HashMap::new(), speculation });
        self.name("process_name", id, id, name);
        self.instant(id, id, self.now, "looked at from here", "");
    }

    /// The process in `slot` has ended, or is another program from now on.
    pub fn parted(&mut self, slot: usize) {
        let Some(mut process) = self.processes.remove(&slot) else { return };
        let now = self.now;
        let tracks: Vec<u32> = process.threads.keys().copied().collect();
        for thread in tracks {
            self.wait_ends(&mut process, thread, now);
        }
        self.speculation_ends(&mut process, now, "with its process", 0);
        if self.ended.len() >= MAX_ENDED {
            self.ended.clear();
        }
        self.ended.insert(process.id, now);
        for name in ["operations ahead", "speculator's memory"] {
            self.counter(process.id, name, 0, 0, now);
        }
    }

    /// Ends all that is open: nothing comes any more.
    pub fn finish(&mut self) {
        let mut slots: Vec<usize> = self.processes.keys().copied().collect();
        slots.sort_unstable();
        slots.into_iter().for_each(|slot| self.parted(slot));
    }

    /// What is to be said of the whole run.
    pub fn says(&mut self, text: &str) {
        let at = self.time(self.now);
        let (host, text) = (self.host, quoted(text));
        self.record(format_args!(
            r#"{{"ph":"i","s":"g","pid":{host},"tid":{host},"ts":{at},"name":{text}}}"#
        ));
    }

    /// One event from the rings or the samples of the process in `slot`.
    pub fn event(&mut self, slot: usize, event: &Event) {
        if event.time < self.begin || event.time > self.now {
            self.left_out += 1;
            return;
        }
        // What is nobody's process's is the host's.
        if matches!(event.kind, kind::ASKED | kind::IN_FLIGHT | kind::NAMES_AHEAD) {
            return self.sample_of_host(event);
        }
        let Some(mut process) = self.processes.remove(&slot) else {
            self.left_out += 1;
            return;
        };
        match event.kind {
            ..=15 => self.of_thread(&mut process, event),
            16..=31 => self.of_speculation(&mut process, event),
            _ => self.sample(&process, event),
        }
        self.processes.insert(slot, process);
    }

    fn of_thread(&mut self, process: &mut Process, event: &Event) {
        if !process.threads.contains_key(&event.thread) {
            if process.threads.len() >= MAX_THREADS || !(1..SPECULATION_TRACK).contains(&event.thread) {
                self.left_out += 1;
                return;
            }
            process.threads.insert(event.thread, Thread { floor: process.floor, wait: None });
        }
        let (id, track, time) = (process.id, event.thread, event.time);
        match event.kind {
            kind::READ_WAITS => {
                self.wait_ends(process, track, time);
                let Some(thread) = process.threads.get_mut(&track) else { return };
                let begin = time.max(thread.floor);
                let (place, what) = (event.a, event.b);
                thread.wait = Some(Wait { begin, least_end: begin, likely_end: None, place, what });
            }
            kind::READ_CAME => {
                // The thread's own, or, as another thread may come by first, the one that the
                // process has.
                let begin_of =
                    |one: &Thread| one.wait.filter(|wait| wait.likely_end.is_none()).map(|wait| wait.begin);
                let own = process.threads.get(&track).and_then(begin_of).map(|begin| (track, begin));
                let mut all = process.threads.iter();
                let found = own.or_else(|| all.find_map(|(&track, one)| Some((track, begin_of(one)?))));
                let Some((track, begin)) = found else { return };
                self.wait_ends(process, track, time.min(begin.saturating_add(event.a)));
            }
            kind::READ_UNSEEN => {
                if let Some(wait) = process.threads.get_mut(&track).and_then(|one| one.wait.as_mut()) {
                    wait.likely_end = Some(wait.begin.saturating_add(event.a));
                }
            }
            kind::NAME_WAITED => {
                let begin = time.saturating_sub(event.a);
                // A thread that looks a name up waits for no read any more.
                self.wait_ends(process, track, begin);
                let Some(thread) = process.threads.get_mut(&track) else { return };
                let begin = begin.max(thread.floor);
                let end = time.max(begin);
                thread.floor = end;
                self.span(&Span { process: id, track, name: "name", begin, end }, format_args!(""));
            }
            kind::HELD => {
                let Some(thread) = process.threads.get_mut(&track) else { return };
                let Some(wait) = &mut thread.wait else { return };
                let end = time.max(wait.least_end);
                let begin = time.saturating_sub(event.a).clamp(wait.least_end, end);
                wait.least_end = end;
                let until = match event.b as u32 {
                    holding::SYNC => "in step",
                    holding::SETTLED => "settled",
                    _ => "",
                };
                let span = Span { process: id, track, name: "hold", begin, end };
                self.span(&span, format_args!(r#","args":{{"until":"{until}"}}"#));
            }
            kind::RESTARTED => {
                let arguments = format!(r#","args":{{"epoch":{},"cost_ns":{}}}"#, event.a, event.b);
                self.instant(id, track, time, "restart", &arguments);
            }
            kind::READ => {
                let (file, bytes) = (event.b >> 32, event.b as u32);
                let foretold = u8::from(event.a & FORETOLD_READ != 0);
                let place = event.a & !FORETOLD_READ;
                let arguments = format!(
                    r#","args":{{"file":{file},"at":{place},"bytes":{bytes},"foretold":{foretold}}}"#
                );
                self.instant(id, track, time, "read begins", &arguments);
            }
            kind::LEFT_TRACK => {
                let arguments = format!(r#","args":{{"epoch":{},"passed":{}}}"#, event.a, event.b);
                self.instant(id, track, time, "not as foretold", &arguments);
            }
            _ => self.left_out += 1,
        }
    }

    /// The wait of a thread, if there is one, was over at `time`.
    fn wait_ends(&mut self, process: &mut Process, track: u32, time: u64) {
        let Some(thread) = process.threads.get_mut(&track) else { return };
        let Some(wait) = thread.wait.take() else { return };
        let seen = wait.likely_end.map_or(time, |likely| likely.min(time));
        let end = seen.max(wait.least_end).min(self.now);
        thread.floor = end;
        let name = if wait.what & FORETOLD != 0 { "read, on its way" } else { "read" };
        let (fd, place) = (wait.what as u32 as i32, wait.place as i64);
        let unseen = if wait.likely_end.is_some() { r#","unseen":1"# } else { "" };
        let span = Span { process: process.id, track, name, begin: wait.begin, end };
        self.span(&span, format_args!(r#","args":{{"fd":{fd},"at":{place}{unseen}}}"#));
    }

    fn of_speculation(&mut self, process: &mut Process, event: &Event) {
        let (id, track, time) = (process.id, SPECULATION_TRACK + process.id, event.time);
        match event.kind {
            kind::SYNCED | kind::SYNCED_TO_FAULT => {
                let began = time.saturating_sub(event.b);
                // One that has not said so is over by now: it was killed, and this is another
                // speculator.
                self.speculation_ends(process, began, "without a word", 0);
                let speculation = &mut process.speculation;
                let begin = began.max(speculation.floor);
                let end = time.max(begin);
                let is_fault = event.kind == kind::SYNCED_TO_FAULT;
                let from = if is_fault { "page fault" } else { "read" };
                let named = speculation.is_named;
                *speculation = Speculation {
                    floor: speculation.floor,
                    begin: Some(begin),
                    is_named: true,
                    from,
                    epoch: event.a,
                    least_end: end,
                    sleeps: None,
                };
                if !named {
                    self.name("thread_name", id, track, "speculation");
                }
                self.span(&Span { process: id, track, name: "sync", begin, end }, format_args!(""));
            }
            kind::SLEEPS_AHEAD => {
                let speculation = &mut process.speculation;
                if speculation.begin.is_some() && speculation.sleeps.is_none() {
                    speculation.sleeps = Some((time.max(speculation.least_end), event.a));
                }
            }
            kind::GOES_ON => self.sleep_ends(process, time),
            kind::ENDED => {
                let by = u32::try_from(event.a).unwrap_or(u32::MAX);
                self.speculation_ends(
                    process,
                    time,
                    reason(by),
                    if by == ended::SYSTEM_CALL { event.b } else { 0 },
                );
            }
            _ => self.left_out += 1,
        }
    }

    fn sleep_ends(&mut self, process: &mut Process, time: u64) {
        let (id, track) = (process.id, SPECULATION_TRACK + process.id);
        let Some((begin, written)) = process.speculation.sleeps.take() else { return };
        let end = time.max(begin).min(self.now);
        process.speculation.least_end = end;
        let span = Span { process: id, track, name: "far enough ahead", begin, end };
        self.span(&span, format_args!(r#","args":{{"written":{written}}}"#));
    }

    fn speculation_ends(&mut self, process: &mut Process, time: u64, why: &str, call: u64) {
        self.sleep_ends(process, time);
        let (id, track) = (process.id, SPECULATION_TRACK + process.id);
        let speculation = &mut process.speculation;
        let Some(begin) = speculation.begin.take() else { return };
        let end = time.max(speculation.least_end).min(self.now);
        speculation.floor = end;
        let (from, epoch) = (speculation.from, speculation.epoch);
        let by = match Sysno::new(call as usize) {
            Some(call) if why == reason(ended::SYSTEM_CALL) => format!(r#","call":"{}""#, call.name()),
            _ => String::new(),
        };
        let span = Span { process: id, track, name: "speculation", begin, end };
        self.span(&span, format_args!(r#","args":{{"epoch":{epoch},"from":"{from}","ended":"{why}"{by}}}"#));
    }

    fn sample(&mut self, process: &Process, event: &Event) {
        let (id, time) = (process.id, event.time);
        match event.kind {
            kind::AHEAD => self.counter(id, "operations ahead", 0, event.a, time),
            kind::MEMORY => self.counter(id, "speculator's memory", 0, event.a.saturating_mul(PAGE), time),
            kind::FAULTS => self.counter(id, "page faults that read", 0, event.a, time),
            _ => self.left_out += 1,
        }
    }

    fn sample_of_host(&mut self, event: &Event) {
        let (host, time) = (self.host, event.time);
        match event.kind {
            kind::ASKED => self.counter(host, "asked ahead, bytes a second", event.a, event.b, time),
            kind::IN_FLIGHT => self.counter(host, "requests in flight", event.a, event.b, time),
            _ => self.counter(host, "names looked up ahead", 0, event.a, time),
        }
    }

    /// A counter's value, if it is a new one. `device`: 0, or whose it is.
    fn counter(&mut self, process: u32, name: &'static str, device: u64, value: u64, time: u64) {
        let before = self.counters.get(&(process, name, device)).copied().unwrap_or(0);
        if before == value {
            return;
        }
        // A program's numbers are not to fill our memory.
        if self.counters.len() >= 16 * MAX_ENDED {
            self.counters.clear();
        }
        let at = self.time(time);
        if value == 0 {
            self.counters.remove(&(process, name, device));
        } else {
            self.counters.insert((process, name, device), value);
        }
        let disk = match device {
            0 => String::new(),
            device => format!(", {}:{}", rustix::fs::major(device), rustix::fs::minor(device)),
        };
        self.record(format_args!(
            r#"{{"ph":"C","pid":{process},"ts":{at},"name":"{name}{disk}","args":{{"value":{value}}}}}"#
        ));
    }

    fn span(&mut self, span: &Span, arguments: std::fmt::Arguments) {
        let &Span { process, track, name, begin, end } = span;
        let (at, took) = (self.time(begin), Micros(end.saturating_sub(begin)));
        self.record(format_args!(
            r#"{{"ph":"X","pid":{process},"tid":{track},"ts":{at},"dur":{took},"name":"{name}"{arguments}}}"#
        ));
    }

    fn instant(&mut self, process: u32, track: u32, time: u64, name: &str, arguments: &str) {
        let at = self.time(time);
        self.record(format_args!(
            r#"{{"ph":"i","s":"t","pid":{process},"tid":{track},"ts":{at},"name":"{name}"{arguments}}}"#
        ));
    }

    /// `what`: of a process or of a track.
    fn name(&mut self, what: &str, process: u32, track: u32, name: &str) {
        let name = quoted(name);
        self.record(format_args!(
            r#"{{"ph":"M","pid":{process},"tid":{track},"ts":0,"name":"{what}","args":{{"name":{name}}}}}"#
        ));
    }

    fn time(&self, time: u64) -> Micros {
        Micros(time.min(self.now).saturating_sub(self.begin))
    }

    fn record(&mut self, record: std::fmt::Arguments) {
        let elapsed = u128::from(self.now - self.begin);
        let more = (elapsed * u128::from(BYTES_A_SECOND) / 1_000_000_000) as u64;
        if self.written >= INITIAL_BYTES.saturating_add(more).min(MAX_BYTES) {
            self.left_out += 1;
            return;
        }
        let before = self.out.len();
        self.out.push_str(",\n");
        let _ = self.out.write_fmt(record);
        self.written += (self.out.len() - before) as u64;
        self.records += 1;
    }
}

/// Nanoseconds, shown in the format's microseconds, to the last digit.
#[derive(Clone, Copy)]
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Text as a string of JSON's.
pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned())
}

/// Why a speculation ended, as the report has it.
fn reason(reason: u32) -> &'static str {
    match reason {
        ended::OVERTAKEN => "overtaken",
        ended::CANCELLED => "cancelled",
        ended::SYSTEM_CALL => "system_call",
        ended::FAULT => "fault",
        ended::TIME => "time",
        ended::EXIT => "exit",
        ended::MEMORY => "memory",
        ended::DESCRIPTOR => "descriptor",
        ended::WAITS => "waits",
        ended::SCAN => "scan",
        ended::RELEASED => "released",
        ended::NAMES => "names",
        ended::TURN => "turn",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    const BEGIN: u64 = 5_000_000_000;

    fn event(at: u64, kind: u8, thread: u32, a: u64, b: u64) -> Event {
        Event { time: BEGIN + at, kind, thread, a, b }
    }

    fn records(timeline: &mut Timeline) -> Vec<Value> {
        let text = timeline.taken();
        serde_json::from_str(&format!("[{}]", text.trim_start_matches(','))).expect("JSON")
    }

    fn told(events: &[Event]) -> Vec<Value> {
        let mut timeline = Timeline::new(BEGIN, 9, "Runahead");
        timeline.attached(3, 70, "a \"name\"\u{1b}");
        timeline.goes_on(BEGIN + 1_000_000);
        events.iter().for_each(|event| timeline.event(3, event));
        timeline.finish();
        records(&mut timeline)
    }

    /// Name, begin and end of each span, in microseconds.
    fn spans(records: &[Value]) -> Vec<(String, f64, f64)> {
        let span = |record: &Value| {
            let number = |field: &str| record[field].as_f64().unwrap();
            (record["name"].as_str().unwrap().to_owned(), number("ts"), number("ts") + number("dur"))
        };
        records.iter().filter(|record| record["ph"] == "X").map(span).collect()
    }

    fn named(spans: &[(&str, f64, f64)]) -> Vec<(String, f64, f64)> {
        spans.iter().map(|&(name, begin, end)| (name.to_owned(), begin, end)).collect()
    }

    #[test]
    fn a_wait_ends_when_its_read_came_and_holds_lie_within() {
        let records = told(&[
            event(1000, kind::READ_WAITS, 71, 4096, 3),
            event(1500, kind::RESTARTED, 71, 1, 400),
            event(3000, kind::HELD, 71, 1000, 1),
            event(9001, kind::READ_CAME, 71, 8001, 0),
            event(10_000, kind::READ_WAITS, 71, 8192, 3 | FORETOLD),
            event(12_000, kind::READ_CAME, 71, 2000, 0),
        ]);
        let expected = [("hold", 2.0, 3.0), ("read", 1.0, 9.001), ("read, on its way", 10.0, 12.0)];
        assert_eq!(spans(&records), named(&expected));
        let read = records.iter().find(|record| record["name"] == "read").unwrap();
        assert_eq!(read["args"], serde_json::json!({"fd": 3, "at": 4096}));
        assert!(records.iter().any(|record| record["name"] == "restart" && record["ph"] == "i"));
        assert!(records.iter().any(|record| record["args"]["name"] == "a \"name\"\u{1b}"));
    }

    #[test]
    fn a_wait_of_which_nobody_sees_the_end_ends_by_the_next_one_at_last() {
        let records = told(&[
            event(1000, kind::READ_WAITS, 71, 0, 3),
            event(1000, kind::READ_UNSEEN, 71, 500_000, 0),
            event(100_000, kind::READ_WAITS, 71, 0, 3),
            event(100_000, kind::READ_UNSEEN, 71, 2000, 0),
            event(600_000, kind::NAME_WAITED, 71, 50_000, 0),
            event(700_000, kind::READ_WAITS, 71, 0, 3),
        ]);
        let expected =
            [("read", 1.0, 100.0), ("read", 100.0, 102.0), ("name", 550.0, 600.0), ("read", 700.0, 1000.0)];
        assert_eq!(spans(&records), named(&expected));
    }

    #[test]
    fn a_wait_is_over_when_another_thread_comes_by() {
        let records =
            told(&[event(1000, kind::READ_WAITS, 71, 0, 3), event(5000, kind::READ_CAME, 72, 4000, 0)]);
        assert_eq!(spans(&records), named(&[("read", 1.0, 5.0)]));
        assert!(records.iter().all(|record| record["ph"] != "X" || record["tid"] == 71));
    }

    #[test]
    fn speculations_end_as_is_said_or_with_what_follows() {
        let records = told(&[
            event(10_000, kind::SYNCED, 0, 1, 5000),
            event(20_000, kind::SLEEPS_AHEAD, 0, 64, 0),
            event(30_000, kind::GOES_ON, 0, 0, 0),
            event(40_000, kind::SLEEPS_AHEAD, 0, 128, 0),
            event(50_000, kind::ENDED, 0, 1, 0),
            event(60_000, kind::SYNCED_TO_FAULT, 0, 1, 2000),
            event(70_000, kind::ENDED, 0, 3, 1),
            event(80_000, kind::SYNCED, 0, 2, 1000),
            event(90_000, kind::SYNCED, 0, 3, 1000),
        ]);
        let expected = [
            ("sync", 5.0, 10.0),
            ("far enough ahead", 20.0, 30.0),
            ("far enough ahead", 40.0, 50.0),
            ("speculation", 5.0, 50.0),
            ("sync", 58.0, 60.0),
            ("speculation", 58.0, 70.0),
            ("sync", 79.0, 80.0),
            ("speculation", 79.0, 89.0),
            ("sync", 89.0, 90.0),
            ("speculation", 89.0, 1000.0),
        ];
        assert_eq!(spans(&records), named(&expected));
        let ended: Vec<&Value> =
            records.iter().filter(|record| record["name"] == "speculation").map(|one| &one["args"]).collect();
        assert_eq!(ended[0]["ended"], "overtaken");
        assert_eq!((&ended[1]["call"], &ended[1]["from"]), (&"write".into(), &"page fault".into()));
        assert_eq!(ended[3]["ended"], "with its process");
    }

    #[test]
    fn counters_are_told_when_they_change() {
        let records = told(&[
            event(1000, kind::AHEAD, 0, 0, 0),
            event(2000, kind::AHEAD, 0, 7, 0),
            event(3000, kind::AHEAD, 0, 7, 0),
            event(4000, kind::ASKED, 0, rustix::fs::makedev(8, 16), 1_000_000),
        ]);
        let counters: Vec<&Value> = records.iter().filter(|record| record["ph"] == "C").collect();
        assert_eq!((counters.len(), &counters[0]["args"]["value"]), (3, &7.into()));
        assert_eq!(counters[1]["name"], "asked ahead, bytes a second, 8:16");
        // And ends with its process.
        assert_eq!((&counters[2]["name"], &counters[2]["args"]["value"]), (&counters[0]["name"], &0.into()));
    }

    #[test]
    fn the_file_stays_small_and_what_is_left_out_is_counted() {
        let mut timeline = Timeline::new(BEGIN, 9, "Runahead");
        timeline.attached(0, 70, "a");
        timeline.goes_on(BEGIN + 10_000_000_000);
        let (mut bytes, count) = (0, 400_000u64);
        for number in 0..count {
            let at = number * 20_000;
            timeline.event(0, &event(at, kind::READ_WAITS, 71, 1 << 40, 3));
            timeline.event(0, &event(at + 10_000, kind::READ_CAME, 71, 10_000, 0));
            bytes += timeline.taken().len();
        }
        assert!((15 << 20..20_000_000).contains(&bytes), "{bytes}");
        assert!(timeline.left_out > 0 && timeline.records + timeline.left_out >= count);
        // As many as a run of ten seconds has: all of them.
        assert!(timeline.records > 100_000, "{}", timeline.records);
    }

    fn events() -> impl Strategy<Value = Event> {
        let kinds = prop_oneof![1u8..8, 16u8..21, 32u8..40, any::<u8>()];
        let times = prop_oneof![4 => BEGIN..BEGIN + 1_000_000, 1 => any::<u64>()];
        let threads = prop_oneof![4 => 70u32..73, 1 => any::<u32>()];
        let words = prop_oneof![2 => 0u64..100_000, 1 => any::<u64>()];
        (times, kinds, threads, words.clone(), words).prop_map(|(time, kind, thread, a, b)| Event {
            time,
            kind,
            thread,
            a,
            b,
        })
    }

    proptest! {
        /// Whatever is found in the rings.
        #[test]
        fn spans_of_a_track_are_nested_or_disjoint_and_none_leaves_the_run(
            events in prop::collection::vec((events(), 0usize..3, 0u8..20), 0..200)
        ) {
            let mut timeline = Timeline::new(BEGIN, 9, "Runahead");
            timeline.goes_on(BEGIN + 1_000_000);
            for (event, slot, what) in &events {
                match what {
                    0 => timeline.attached(*slot, 70 + *slot as u32, "p"),
                    1 => timeline.parted(*slot),
                    _ => timeline.event(*slot, event),
                }
            }
            timeline.finish();
            let records = records(&mut timeline);
            let mut tracks: HashMap<String, Vec<(u64, u64)>> = HashMap::new();
            for record in &records {
                let ns = |field: &str| (record[field].as_f64().unwrap() * 1000.0).round() as u64;
                prop_assert!(ns("ts") <= 1_000_000, "{}", record);
                if record["ph"] == "X" {
                    prop_assert!(ns("ts") + ns("dur") <= 1_000_000, "{}", record);
                    let track = format!("{} {}", record["pid"], record["tid"]);
                    tracks.entry(track).or_default().push((ns("ts"), ns("ts") + ns("dur")));
                }
            }
            for spans in tracks.values_mut() {
                spans.sort_by_key(|&(begin, end)| (begin, std::cmp::Reverse(end)));
                let mut open: Vec<u64> = Vec::new();
                for &(begin, end) in spans.iter() {
                    open.retain(|&before| before > begin);
                    prop_assert!(open.iter().all(|&before| end <= before), "{:?}", spans);
                    open.push(end);
                }
            }
        }
    }
}
