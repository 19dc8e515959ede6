//! A trace over time, as inline SVG: what each thread waited for, when speculation ran, how far
//! ahead it was. Pure.
//!
//! Each column of the picture stands for a piece of the run, and shows what part of it something
//! took: a hundred thousand waits are no more than the picture is wide. Whatever a trace holds goes
//! through [`escaped`] once.

use crate::page::escaped;
use crate::trace::{Record, Trace};
use crate::units::{count, duration};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// In the picture's own units: each column is one.
const LEFT: usize = 190;
const COLUMNS: usize = 630;
const ROW: f64 = 22.0;
const STEP: f64 = 30.0;
const AXIS: f64 = 26.0;

/// Processes, and threads of each, that are shown: those that waited longest.
const MAX_PROCESSES: usize = 6;
const MAX_THREADS: usize = 8;

/// Above all process ids: tracks of speculation are no threads.
const SPECULATION_TRACK: u64 = 10_000_000;

/// What is shown of a span by this name: its colour, and what stands in the key.
const KINDS: [(&str, &str, &str); 6] = [
    ("read", "read", "waits for a read"),
    ("read, on its way", "partial", "waits for a read that is on its way"),
    ("name", "name", "waits for a name"),
    ("sync", "queue", "speculation: being brought into step"),
    ("speculation", "spared", "speculation runs"),
    ("far enough ahead", "rest", "speculation is far enough ahead, and sleeps"),
];
const SYNC: usize = 3;
const SPECULATION: usize = 4;
const SLEEPS: usize = 5;

#[derive(Default)]
struct Process {
    name: String,
    threads: BTreeMap<u64, Track>,
    speculation: Track,
    /// Operations ahead, when that changed, in microseconds.
    ahead: Vec<(f64, f64)>,
    /// Bytes of the speculator's, likewise.
    memory: Vec<(f64, f64)>,
    endings: BTreeMap<String, u64>,
    restarts: u64,
}

/// What each kind takes: of each column, a part, and in all, microseconds.
struct Track {
    columns: Vec<[f64; KINDS.len()]>,
    sums: [f64; KINDS.len()],
}

impl Default for Track {
    fn default() -> Track {
        Track { columns: vec![[0.0; KINDS.len()]; COLUMNS], sums: [0.0; KINDS.len()] }
    }
}

impl Track {
    fn add(&mut self, kind: usize, begin: f64, end: f64, column: f64) {
        self.sums[kind] += end - begin;
        let first = (begin / column) as usize;
        for number in first..COLUMNS {
            let from = number as f64 * column;
            if from >= end {
                break;
            }
            let part = end.min(from + column) - begin.max(from);
            self.columns[number][kind] += part.max(0.0) / column;
        }
    }

    fn waited(&self) -> f64 {
        self.sums[..SYNC].iter().sum()
    }
}

/// The timeline, and what is to be said below it.
pub fn plot(trace: &Trace) -> String {
    let elapsed = elapsed(trace);
    let processes = processes(trace, elapsed / COLUMNS as f64);
    let mut shown: Vec<&Process> = processes.values().filter(|process| process.is_worth_showing()).collect();
    shown.sort_by(|a, b| b.waited().total_cmp(&a.waited()));
    let hidden = shown.len().saturating_sub(MAX_PROCESSES);
    shown.truncate(MAX_PROCESSES);
    if shown.is_empty() {
        return "<p>Nothing was seen to wait.</p>\n".to_owned();
    }
    let mut picture = Picture::default();
    let mut said = String::new();
    for process in shown {
        process.draw(&mut picture, elapsed);
        said += &process.said();
    }
    if hidden > 0 {
        said += &format!(
            "<p>{} that waited less are not shown.</p>\n",
            count(hidden as u64, "process").replace("processs", "processes")
        );
    }
    let missing = trace.runahead.lost_events.saturating_add(trace.runahead.left_out_events);
    if missing > 0 || !trace.runahead.complete {
        said += &format!("<p>The trace is not whole: {} are missing.</p>\n", count(missing, "event"));
    }
    picture.finished(elapsed) + &said
}

/// Microseconds of the run; never 0.
fn elapsed(trace: &Trace) -> f64 {
    let ends = trace.records.iter().map(Record::end).filter(|end| end.is_finite());
    ends.fold(trace.runahead.elapsed_ns as f64 / 1e3, f64::max).max(1.0)
}

impl Record {
    fn end(&self) -> f64 {
        self.ts + self.dur
    }
}

fn processes(trace: &Trace, column: f64) -> BTreeMap<u64, Process> {
    let mut processes: BTreeMap<u64, Process> = BTreeMap::new();
    for record in &trace.records {
        let is_sound = record.ts >= 0.0 && record.dur >= 0.0 && record.end().is_finite();
        if !is_sound {
            continue;
        }
        let process = processes.entry(record.pid).or_default();
        match (record.ph.as_str(), record.name.as_str()) {
            ("M", "process_name") => process.name = record.args.name.clone().unwrap_or_default(),
            ("C", "operations ahead") => process.ahead.push((record.ts, record.args.value)),
            ("C", "speculator's memory") => process.memory.push((record.ts, record.args.value)),
            ("i", "restart") => process.restarts += 1,
            ("X", name) => {
                let Some(kind) = KINDS.iter().position(|(known, ..)| *known == name) else { continue };
                let (begin, end) = (record.ts, record.end());
                if kind < SYNC {
                    process.threads.entry(record.tid).or_default().add(kind, begin, end, column);
                } else if record.tid > SPECULATION_TRACK {
                    process.speculation.add(kind, begin, end, column);
                }
                if kind == SPECULATION {
                    let why = record.args.ended.clone().unwrap_or_default();
                    let call = record.args.call.as_ref().map_or(String::new(), |call| format!(" ({call})"));
                    *process.endings.entry(why + &call).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    for process in processes.values_mut() {
        // What lies within a speculation is shown in its place.
        for column in &mut process.speculation.columns {
            column[SPECULATION] = (column[SPECULATION] - column[SYNC] - column[SLEEPS]).max(0.0);
        }
    }
    processes
}

impl Process {
    fn waited(&self) -> f64 {
        self.threads.values().map(Track::waited).sum()
    }

    fn is_worth_showing(&self) -> bool {
        !self.threads.is_empty() || self.speculation.sums[SPECULATION] > 0.0
    }

    fn draw(&self, picture: &mut Picture, elapsed: f64) {
        let mut threads: Vec<(&u64, &Track)> = self.threads.iter().collect();
        threads.sort_by(|a, b| b.1.waited().total_cmp(&a.1.waited()));
        for (thread, track) in threads.into_iter().take(MAX_THREADS) {
            picture.row(&format!("{} {thread}", self.name), track);
        }
        if self.speculation.sums[SPECULATION] > 0.0 {
            picture.row("speculation", &self.speculation);
        }
        let most = self.ahead.iter().map(|&(_, value)| value).fold(0.0, f64::max);
        if most > 0.0 {
            picture.area(&format!("ahead, up to {most:.0}"), &self.ahead, most, elapsed);
        }
    }

    /// In words.
    fn said(&self) -> String {
        let more = self.threads.len().saturating_sub(MAX_THREADS);
        let mut said = format!("<p><strong>{}</strong>", escaped(&self.name));
        let waited = |kind: usize| self.threads.values().map(|track| track.sums[kind]).sum::<f64>();
        for (kind, what) in [(0, "reads"), (1, "reads on their way"), (2, "names")] {
            let us = waited(kind);
            if us > 0.0 {
                let _ = write!(said, ", waited {} for {what}", duration((us * 1e3) as u64));
            }
        }
        if more > 0 {
            let _ = write!(said, "; {} more that waited less", count(more as u64, "thread"));
        }
        let ended: u64 = self.endings.values().sum();
        if ended > 0 {
            let each: Vec<String> =
                self.endings.iter().map(|(why, number)| format!("{} {number}", escaped(why))).collect();
            let _ = write!(said, ". Speculated {}: ended by {}", count(ended, "time"), each.join(", "));
        }
        let memory = self.memory.iter().map(|&(_, bytes)| bytes).fold(0.0, f64::max);
        if memory > 0.0 {
            let _ = write!(said, ". The speculator had up to {}", crate::units::bytes(memory as u64));
        }
        said + ".</p>\n"
    }
}

#[derive(Default)]
struct Picture {
    inside: String,
    rows: usize,
    kinds: [bool; KINDS.len()],
}

impl Picture {
    fn label(&mut self, text: &str) -> f64 {
        let top = STEP * self.rows as f64;
        self.rows += 1;
        let _ = write!(
            self.inside,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"ground\" x=\"{LEFT}\" y=\"{top}\" width=\"{COLUMNS}\" height=\"{ROW}\"/>",
            LEFT - 12,
            top + ROW * 0.7,
            escaped(text)
        );
        top
    }

    /// Parts of each column on top of each other, equal neighbours as one.
    fn row(&mut self, name: &str, track: &Track) {
        let top = self.label(name);
        let mut below = [0.0f64; COLUMNS];
        for (kind, (_, class, told)) in KINDS.iter().enumerate() {
            if track.sums[kind] <= 0.0 {
                continue;
            }
            self.kinds[kind] = true;
            let told = format!("{told}: {}", duration((track.sums[kind] * 1e3) as u64));
            let mut path = String::new();
            let mut number = 0;
            while number < COLUMNS {
                let height = |number: usize| {
                    let part = track.columns[number][kind] * ROW;
                    // What is there is seen.
                    let part = if part > 1e-6 { part.max(0.7) } else { 0.0 };
                    ((part * 10.0).round() / 10.0).min(ROW - below[number])
                };
                let (first, tall, ground) = (number, height(number), below[number]);
                while number < COLUMNS && height(number) == tall && below[number] == ground {
                    number += 1;
                }
                if tall > 0.0 {
                    let (x, y, wide) = (LEFT + first, top + ROW - ground, number - first);
                    let _ = write!(path, "M{x} {y:.1}v-{tall:.1}h{wide}v{tall:.1}z");
                }
                below[first..number].fill(ground + tall.max(0.0));
            }
            let _ = write!(self.inside, "<path class=\"{class}\" d=\"{path}\"><title>{told}</title></path>");
        }
    }

    /// A value over time, of each column the greatest.
    fn area(&mut self, name: &str, values: &[(f64, f64)], most: f64, elapsed: f64) {
        let top = self.label(name);
        let mut columns = [0.0f64; COLUMNS];
        let column = elapsed / COLUMNS as f64;
        for (number, &(time, value)) in values.iter().enumerate() {
            let until = values.get(number + 1).map_or(elapsed, |&(time, _)| time).max(time);
            let (first, last) = ((time / column) as usize, (until / column) as usize);
            for height in columns.iter_mut().take(last + 1).skip(first) {
                *height = height.max(value);
            }
        }
        let mut path = format!("M{LEFT} {:.1}", top + ROW);
        for (number, value) in columns.iter().enumerate() {
            let y = top + ROW - value / most * ROW;
            let _ = write!(path, "L{} {y:.1}h1", LEFT + number);
        }
        let _ = write!(self.inside, "<path class=\"compute\" d=\"{path}V{:.1}z\"/>", top + ROW);
    }

    fn finished(&self, elapsed: f64) -> String {
        const KEY: f64 = 20.0;
        const IN_A_ROW: usize = 2;
        let axis = STEP * self.rows as f64;
        let keys: Vec<_> =
            KINDS.iter().zip(self.kinds).filter(|(_, is_there)| *is_there).map(|(kind, _)| kind).collect();
        let height = axis + AXIS + KEY * keys.len().div_ceil(IN_A_ROW) as f64 + 6.0;
        let mut svg =
            format!("<svg viewBox=\"0 0 {} {height}\" role=\"img\">{}", LEFT + COLUMNS, self.inside);
        for (x, anchor, at) in [(0.0, "start", 0.0), (0.5, "middle", 0.5), (1.0, "end", 1.0)] {
            let _ = write!(
                svg,
                "<text class=\"quiet\" x=\"{}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                LEFT as f64 + x * COLUMNS as f64,
                axis + 12.0,
                duration((elapsed * at * 1e3) as u64)
            );
        }
        for (number, (_, class, told)) in keys.into_iter().enumerate() {
            let x = LEFT + number % IN_A_ROW * COLUMNS / IN_A_ROW;
            let y = axis + AXIS + KEY * (number / IN_A_ROW) as f64;
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y:.1}\" width=\"11\" height=\"11\" rx=\"2\"/>\
                 <text class=\"quiet\" x=\"{}\" y=\"{:.1}\">{told}</text>",
                x + 17,
                y + 10.0
            );
        }
        svg + "</svg>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(records: &str) -> Trace {
        let text = format!(
            r#"{{"otherData":{{"version":1}},"traceEvents":[{records}],"runahead":{{"complete":true,"elapsed_ns":1000000}}}}"#
        );
        Trace::read(text.as_bytes()).unwrap()
    }

    const NAME: &str = r#"{"ph":"M","pid":7,"tid":7,"name":"process_name","args":{"name":"<b>grep</b>"}}"#;

    #[test]
    fn a_wait_fills_the_columns_of_its_time() {
        let told = plot(&trace(&format!(
            r#"{NAME},{{"ph":"X","pid":7,"tid":7,"ts":0,"dur":500,"name":"read"}},{{"ph":"X","pid":7,"tid":7,"ts":750,"dur":250,"name":"name"}}"#
        )));
        // Half of the run from its beginning, as high as a row.
        assert!(told.contains("<path class=\"read\" d=\"M190 22.0v-22.0h315v22.0z\">"), "{told}");
        assert!(told.contains("<path class=\"name\" d=\"M662 "), "{told}");
        assert!(told.contains(
            "&lt;b&gt;grep&lt;/b&gt;</strong>, waited 0.50 ms for reads, waited 0.25 ms for names"
        ));
        assert!(!told.contains("<b>") && !told.contains("not whole"));
    }

    #[test]
    fn what_lies_within_a_speculation_is_shown_in_its_place() {
        let track = SPECULATION_TRACK + 7;
        let span = |name: &str, ts: u32, dur: u32| {
            format!(
                r#",{{"ph":"X","pid":7,"tid":{track},"ts":{ts},"dur":{dur},"name":"{name}","args":{{"ended":"exit"}}}}"#
            )
        };
        let told = plot(&trace(&format!(
            "{NAME}{}{}{},{}",
            span("sync", 0, 100),
            span("far enough ahead", 500, 500),
            span("speculation", 0, 1000),
            r#"{"ph":"C","pid":7,"ts":500,"name":"operations ahead","args":{"value":64}}"#
        )));
        assert!(told.contains("<path class=\"queue\" d=\"M190 22.0v-22.0h63v22.0z\">"), "{told}");
        assert!(told.contains("<path class=\"spared\" d=\"M253 22.0v-22.0h252v22.0z\">"), "{told}");
        assert!(told.contains("<path class=\"rest\" d=\"M505 22.0v-22.0h315v22.0z\">"), "{told}");
        assert!(told.contains("Speculated 1 time: ended by exit 1") && told.contains("ahead, up to 64"));
    }

    #[test]
    fn what_is_no_time_is_no_picture() {
        let told = plot(&trace(&format!(
            r#"{NAME},{{"ph":"X","pid":7,"tid":7,"ts":-5,"dur":1,"name":"read"}},{{"ph":"X","pid":7,"tid":7,"ts":1e308,"dur":1e308,"name":"read"}},{{"ph":"X","pid":7,"tid":7,"ts":1,"dur":2e300,"name":"read"}}"#
        )));
        assert!(!told.contains("NaN") && !told.contains("inf"), "{told}");
        assert_eq!(plot(&trace(NAME)), "<p>Nothing was seen to wait.</p>\n");
    }
}
