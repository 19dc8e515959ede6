//! The report of a run: for people (`--stats`) and as JSON (`--report`).

use crate::counts::Counts;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Version of the JSON document's layout: it stays when a field is added.
pub const VERSION: u32 = 1;

/// So many bytes of the command are printed, unless its name alone is longer.
const SHOWN_OF_THE_COMMAND: usize = 120;

/// The JSON document; documented in docs/report.md.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this document's layout.
    pub version: u32,
    pub command: Vec<Cow<'static, str>>,
    /// From the start of the command to the report.
    pub elapsed_ns: u64,
    /// Why nothing was speculated, where something prevented it.
    pub plainly_because: Option<String>,
    /// Why the command was left alone before its end, where it was; then all this is of the time until then.
    pub left_because: Option<String>,
    pub counts: Counts,
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// Text that a terminal shows and does not obey.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|shown| if shown.is_control() { '\u{fffd}' } else { shown }).collect()
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Report {
    /// Writes the JSON document. A disk that is full by now must not harm the command: errors are passed over.
    pub fn write_json(&self, to: &mut impl std::io::Write) {
        let json = serde_json::to_string_pretty(self).unwrap_or_default();
        let _ = writeln!(to, "{json}");
    }

    /// The command, as much of it as two lines hold: it may have ten thousand arguments.
    fn command_shortened(&self) -> String {
        let mut text = String::new();
        for (number, argument) in self.command.iter().enumerate() {
            if text.len() + argument.len() > SHOWN_OF_THE_COMMAND && number > 0 {
                let _ = write!(text, " ... and {} more", self.command.len() - number);
                break;
            }
            let space = if number == 0 { "" } else { " " };
            let _ = write!(text, "{space}{}", printable(argument));
        }
        text
    }

    /// What kept all or a part of speculation from the command, a line each; empty if nothing did.
    pub fn reasons(&self) -> String {
        let told = [
            ("the command ran plainly", &self.plainly_because),
            ("the command was left alone", &self.left_because),
            ("there was no speculator", &self.counts.speculator.refused_because),
            ("page faults were not seen", &self.counts.faults.unseen_because),
            ("memory was left on swap", &self.counts.faults.swap_left_because),
        ];
        let line =
            |(what, why): (&str, &Option<String>)| Some(format!("runahead: {what}: {}\n", why.as_ref()?));
        told.into_iter().filter_map(line).collect()
    }

    /// The report as text, a screen at most.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let c = &self.counts;
        let s = &c.speculator;
        let mut line = |name: &str, value: String| {
            // Writing into a String cannot fail.
            let _ = writeln!(text, "runahead: {name:<24} {value}");
        };
        line("command", self.command_shortened());
        line("elapsed", format!("{:.1} ms", milliseconds(self.elapsed_ns)));
        if let Some(reason) = &self.plainly_because {
            line("ran plainly", reason.clone());
            return text;
        }
        if let Some(reason) = &self.left_because {
            line("left alone since then", reason.clone());
        }
        line(
            "reads on files",
            format!(
                "{} calls, {:.1} MB; looked at while there were stalls",
                c.reads,
                c.read_bytes as f64 / 1e6
            ),
        );
        line(
            "  hinted",
            format!(
                "{} ({:.1}%), {:.1} MB",
                c.reads_hinted,
                percent(c.reads_hinted, c.reads),
                c.read_bytes_hinted as f64 / 1e6
            ),
        );
        line("prefetches", format!("{} full, {} partial", c.full_prefetches, c.partial_prefetches));
        line(
            "prefetched pages",
            format!(
                "{}, unused {} ({:.1}%)",
                s.prefetched_pages,
                s.unused_pages,
                percent(s.unused_pages, s.prefetched_pages)
            ),
        );
        line("stalls", format!("{}, {:.1} ms (upper bound)", c.stalls, milliseconds(c.stall_ns)));
        line(
            "names",
            format!(
                "{} looked up, {} stalls, {:.1} ms; {} looked up ahead; {} notes of speculators",
                c.names,
                c.name_stalls,
                milliseconds(c.name_stall_ns),
                c.names_looked_ahead,
                s.names_noted
            ),
        );
        if c.companions > 0 {
            line("files beside others", format!("{} asked for, {} used", c.companions, c.companions_used));
        }
        let f = &c.faults;
        line(
            "page faults",
            match &f.unseen_because {
                Some(reason) => format!("not seen: {reason}"),
                None => format!(
                    "{} seen; strides: {} pages asked for ahead; speculation: {} posts, {} pages foretold; {} waits spared",
                    f.seen, f.prefetched_pages, f.posts, f.foretold_pages, f.useful_pages
                ),
            },
        );
        if let Some(reason) = &f.swap_left_because {
            line("memory on swap", format!("left there: {reason}"));
        }
        if let Some(reason) = &s.refused_because {
            line("speculators refused", reason.clone());
        }
        let mean = |ns: u64, count: u64| ns.checked_div(count).unwrap_or(0) as f64 / 1e3;
        line(
            "posts",
            format!(
                "{}, {:.1} us each ({:.1} in the median); held {} times, {:.1} us each; {} mismatches, {} lags",
                c.posts,
                mean(c.post_ns, c.posts),
                c.post_lengths.median() as f64 / 1e3,
                c.holds,
                mean(c.hold_ns, c.holds),
                c.mismatches,
                c.lags
            ),
        );
        line(
            "speculators",
            format!(
                "{} processes, {} syncs, {:.1} us each; {} reads, {} calls ({} trapped), {} signals",
                c.processes,
                s.syncs,
                mean(s.sync_ns, s.syncs),
                s.reads,
                s.system_calls,
                s.trapped_calls,
                s.signals
            ),
        );
        line(
            "  memory, processor",
            format!(
                "{} pages at most, {} filled, {} refreshed; {:.1} ms",
                s.pages_most,
                s.pages_filled,
                s.pages_refreshed,
                milliseconds(s.processor_ns)
            ),
        );
        let m = &c.memory;
        if m.stalls_added > 0 || m.pauses > 0 {
            line(
                "  worth its memory",
                format!(
                    "{} stalls removed, {} added; off {} times, {:.1} s",
                    m.stalls_removed,
                    m.stalls_added,
                    m.pauses,
                    m.paused_ns as f64 / 1e9
                ),
            );
        }
        let d = &c.disks;
        if d.others > 0 {
            line(
                "  others at the disk",
                format!("seen at {} of {} looks; gave way to them", d.others, d.looks),
            );
        }
        let e = &s.endings;
        line(
            "  ended by",
            format!(
                "overtaken {}, cancelled {}, call {}, fault {}, time {}, exit {}, memory {}, descriptor {}, waiting {}, scan {}, released {}, names {}",
                e.overtaken,
                e.cancelled,
                e.system_call,
                e.fault,
                e.time,
                e.exit,
                e.memory,
                e.descriptor,
                e.waits,
                e.scan,
                e.released,
                e.names,
            ),
        );
        if !e.system_calls.is_empty() {
            let calls: Vec<_> =
                e.system_calls.iter().map(|(name, times)| format!("{name} {times}")).collect();
            line("    calls", calls.join(", "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_told_what_to_do() {
        assert_eq!(printable("grep \u{1b}[31m a\nb é"), "grep \u{fffd}[31m a\u{fffd}b é");
    }
}
