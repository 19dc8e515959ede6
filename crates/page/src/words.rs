//! The report in a person's words: one screen (`--stats`, `runahead stat`). Pure.

use crate::report::Report;
use crate::units::PAGE;
use crate::units::{self, bytes, count, duration, percent};
use crate::waits::{BEST, LIKELY, Overlapped, Spared, Waits};
use crate::why;
use runahead_remedies::Surroundings;

/// Before each line; width of what a line is about, with the gap behind it; of all.
const PREFIX: &str = "runahead: ";
const ABOUT_WIDTH: usize = 14;
const WIDTH: usize = 98;

pub fn text(report: &Report, around: &Surroundings, gains_rights: bool) -> String {
    let mut lines = Lines::default();
    lines.add_command("command", &units::command(&report.command));
    if report.elapsed_ns > 0 {
        lines.add("took", &took(report));
    }
    if report.plainly_because.is_none() {
        lines.each("waited", waited(report));
        if report.speculated {
            lines.add("gained", &gained(report));
            lines.each("fetched", fetched(report));
            lines.each("remembered", remembered(report));
        } else {
            lines.each("could take", could(report));
        }
    }
    let about = if report.speculated { "why not more" } else { "why" };
    for (at, reason) in why::reasons(report, around, gains_rights).iter().enumerate() {
        lines.add(if at == 0 { about } else { "" }, &units::printable(&reason.found));
        if let Some(remedy) = &reason.remedy {
            lines.add_command("", &format!("try: {}", units::printable(remedy)));
        }
    }
    lines.0
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    /// In as many lines as the words need.
    fn add(&mut self, about: &str, words: &str) {
        let mut line = format!("{PREFIX}{about:<ABOUT_WIDTH$}");
        let start = line.chars().count();
        for word in words.split(' ') {
            let length = line.chars().count();
            if length > start && length + 1 + word.chars().count() > WIDTH {
                self.0 += &(line + "\n");
                line = format!("{PREFIX}{:ABOUT_WIDTH$}", "");
            }
            if line.chars().count() > start {
                line.push(' ');
            }
            line += word;
        }
        self.0 += &(line + "\n");
    }

    fn each(&mut self, about: &str, parts: impl IntoIterator<Item = String>) {
        for (at, part) in parts.into_iter().enumerate() {
            self.add(if at == 0 { about } else { "" }, &part);
        }
    }

    /// Not wrapped, for who pastes it.
    fn add_command(&mut self, about: &str, words: &str) {
        self.0 += &format!("{PREFIX}{about:<ABOUT_WIDTH$}{words}\n");
    }
}

fn took(report: &Report) -> String {
    let mut took = duration(report.elapsed_ns);
    if let Some(program) = report.program {
        took += &format!("; it computed for {}", duration(program.processor_ns));
        if percent(program.queued_ns, report.elapsed_ns) >= 10.0 {
            took += &format!(" and had no processor for {}", duration(program.queued_ns));
        }
        if program.device_bytes > 0 {
            took += &format!("; {} came from disks while it waited", bytes(program.device_bytes));
        }
    }
    took
}

/// Where the time went that was no computing.
fn waited(report: &Report) -> Vec<String> {
    let waits = Waits::of(report);
    let mut parts = Vec::new();
    if waits.reads > 0 {
        parts.push(format!("{} for {}", duration(waits.reads_ns), count(waits.reads, "read")));
    }
    if waits.names > 0 {
        let names = if waits.names == 1 { "name" } else { "names" };
        parts.push(format!("{} for {} {names} of files", duration(waits.names_ns), waits.names));
    }
    if waits.faults > 0 {
        let faults = count(waits.faults, "page fault");
        parts.push(format!(
            "at most {} for {faults} in mapped files and in its own code",
            duration(waits.faults_ns)
        ));
    }
    if let Some(elsewhere) = waits.elsewhere_ns
        && percent(elsewhere, report.elapsed_ns) >= 10.0
    {
        let what = match waits.unseen {
            true => "what was not looked at: other such reads, starts, others, locks, a network",
            false => "something else: a start, another process, a lock, a network, a clock",
        };
        parts.push(format!("{} for {what}", duration(elsewhere)));
    }
    if parts.is_empty() {
        parts.push("for nothing that could be seen".to_owned());
    }
    parts
}

/// What speculation brought.
fn gained(report: &Report) -> String {
    let spared = Spared::of(report);
    let mut of = Vec::new();
    let each = |ns: u64, number: u64| match ns / number {
        0 => String::new(),
        each => format!(", {} each", duration(each)),
    };
    if spared.reads > 0 {
        of.push(format!("{}{}", count(spared.reads, "read"), each(spared.reads_ns, spared.reads)));
    }
    if spared.names > 0 {
        of.push(format!("{}{}", count(spared.names, "name"), each(spared.names_ns, spared.names)));
    }
    if spared.faults > 0 {
        of.push(count(spared.faults, "wait") + " in mapped files");
    }
    match (spared.any(), spared.ns()) {
        (false, _) => "nothing".to_owned(),
        (true, 0) => format!("{} spared", of.join("; ")),
        (true, ns) => format!("about {} of waiting spared: {}", duration(ns), of.join("; ")),
    }
}

fn fetched(report: &Report) -> Option<String> {
    let counts = &report.counts;
    let pages = counts.speculator.prefetched_pages.saturating_add(counts.faults.prefetched_pages);
    let unused = counts.speculator.unused_pages;
    let size = |pages: u64| bytes(pages.saturating_mul(PAGE));
    let part = percent(unused, pages);
    (pages > 0).then(|| format!("{} ahead of it, of that {} in vain ({part:.0}%)", size(pages), size(unused)))
}

/// What earlier runs had wanted.
fn remembered(report: &Report) -> Option<String> {
    let counts = &report.counts.remembered;
    let asked = (counts.files > 0).then(|| {
        format!(
            "{} of {} that earlier runs had wanted; {} of these files opened, {} changed since",
            bytes(counts.bytes),
            count(counts.files, "file"),
            counts.used,
            counts.changed
        )
    });
    let kept = || (counts.kept > 0).then(|| format!("{} for the next run", count(counts.kept, "name")));
    asked.or_else(kept)
}

/// What could be gained: of a run that was only watched.
fn could(report: &Report) -> Option<String> {
    let Overlapped { best_ns, likely_ns, worst_ns } = Overlapped::of(report)?;
    Some(format!(
        "about {} with that waiting overlapped, {LIKELY} at a time; between {} ({BEST} at a time) and {} (where each wait hangs on the one before). To try: runahead run --stats -- COMMAND",
        duration(likely_ns),
        duration(best_ns),
        duration(worst_ns)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::full;
    use crate::report::{Counts, Faults, Program};
    use serde_json::Value;

    const MANUAL: &str = include_str!("../../../docs/report.md");

    fn example() -> Value {
        let (_, rest) = MANUAL.split_once("```json\n").expect("an example");
        let (example, _) = rest.split_once("```").expect("the example's end");
        serde_json::from_str(example).expect("JSON")
    }

    fn each_number(value: &mut Value, of: &mut impl FnMut() -> u64) {
        match value {
            Value::Number(_) => *value = of().into(),
            Value::Object(fields) => fields.values_mut().for_each(|field| each_number(field, of)),
            _ => {}
        }
    }

    fn said(report: &Report) -> String {
        text(report, &Surroundings::default(), false)
    }

    #[test]
    fn the_manuals_example_is_told() {
        let report: Report = serde_json::from_value(example()).unwrap();
        let text = said(&report);
        for part in [
            "md5sum big.iso",
            "took          0.29 s",
            "10.1 ms for 50 reads",
            "about 0.12 s of waiting spared",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    /// A process may have written anything where it counts.
    #[test]
    fn whatever_is_counted_is_a_screen_at_most() {
        let mut state = 1u64;
        let mut noise = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if state >> 62 == 0 { u64::MAX - (state >> 60) } else { state >> (state >> 58) }
        };
        for turn in 0..2000 {
            let mut value = example();
            each_number(&mut value, &mut noise);
            value["version"] = 1.into();
            value["speculated"] = (turn % 2 == 0).into();
            let report: Report = serde_json::from_value(value).unwrap();
            for text in [said(&report), full::text(&report)] {
                assert!(text.lines().all(|line| line.starts_with("runahead: ")), "{text}");
                assert!(text.lines().count() < 25, "{text}");
            }
            let is_wide = |line: &str| {
                line.chars().count() > WIDTH && !line.contains("try: ") && !line.contains("command")
            };
            assert!(!said(&report).lines().any(is_wide), "{}", said(&report));
        }
    }

    fn of(elapsed: u64, program: Program, counts: Counts) -> Report {
        Report {
            command: vec!["x".into()],
            elapsed_ns: elapsed,
            speculated: true,
            program: Some(program),
            counts,
            ..Report::default()
        }
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn each_situation_has_its_own_reason() {
        let program = Program { processor_ns: SECOND / 100, ..Program::default() };
        let busy = Program { processor_ns: SECOND, ..program };
        let queued = Program { queued_ns: SECOND * 9 / 10, ..program };
        let direct = Program { device_bytes: 12 << 20, ..program };
        let started =
            Program { device_bytes: 18 << 20, major_faults: 20, read_ahead_bytes: 1 << 20, ..program };
        let nothing = Counts::default();
        let stalls = |stalls: u64, each: u64| Counts {
            reads: stalls,
            stalls,
            stall_ns: stalls * each,
            ..Counts::default()
        };
        let full = Counts { full_prefetches: 9000, saved_ns: 9 * SECOND, ..stalls(10, 1_000_000) };
        let late = Counts { behind_a_server: true, partial_prefetches: 60, ..stalls(900, 1_000_000) };
        let faulted = Program { major_faults: 900, ..program };
        let faults = |useful_pages| Counts {
            faults: Faults { watched: 1, useful_pages, ..Faults::default() },
            ..Counts::default()
        };
        let some_in_time = Counts { full_prefetches: 8, ..late.clone() };
        for (report, found) in [
            (of(SECOND, program, late), "lose what is cached"),
            (of(SECOND, program, some_in_time), "each read hangs on the one before"),
            (of(SECOND, busy, nothing.clone()), "it computes"),
            (of(SECOND, program, nothing.clone()), "waits for something that is no file"),
            (of(SECOND, queued, nothing.clone()), "the machine is busy"),
            (of(SECOND / 100, program, nothing.clone()), "over before there is anything to gain"),
            (of(SECOND, direct, nothing.clone()), "pass the page cache"),
            (of(8 * SECOND, started, nothing.clone()), "waits for something that is no file"),
            // Faults may have taken more than a tenth of it.
            (of(2 * SECOND, started, nothing.clone()), "waits for something that is no file"),
            (of(SECOND, program, stalls(900, 1_000_000)), "each read hangs on the one before"),
            (of(SECOND, program, stalls(20_000, 40_000)), "the disk is quick (0.04 ms a wait)"),
            (of(SECOND, program, full), "nothing is left to gain"),
            (
                of(SECOND, faulted, faults(1)),
                "hangs on what it has just waited for: of 901 waits 1 was spared",
            ),
            (of(SECOND, faulted, faults(9000)), "little is left to gain"),
        ] {
            let text = said(&report).replace("\nrunahead:               ", " ");
            assert!(text.contains(found), "{found}: {text}");
        }
    }

    #[test]
    fn what_stopped_all_of_it_is_the_only_reason() {
        let counts = Counts {
            speculator: crate::report::Speculator {
                refused_because: Some("there are too few addresses for it (ulimit -v)".into()),
                ..Default::default()
            },
            ..Counts::default()
        };
        let text = said(&of(SECOND, Program::default(), counts));
        assert!(text.contains("try: ulimit -v unlimited"), "{text}");
        assert_eq!(text.matches("why not more").count(), 1);
        assert!(!text.contains("memory already"), "{text}");
    }

    #[test]
    fn a_run_that_was_watched_says_what_it_could_take() {
        let counts = Counts { stalls: 1000, stall_ns: SECOND * 9 / 10, ..Counts::default() };
        let report = Report {
            speculated: false,
            ..of(SECOND, Program { processor_ns: SECOND / 20, ..Program::default() }, counts)
        };
        let text = said(&report);
        assert!(text.contains("could take    about 0.16 s") && text.contains("and 1.00 s"), "{text}");
    }
}
