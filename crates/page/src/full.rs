//! Every count, for who knows them (`--stats=full`); docs/report.md says what each means.

use crate::report::Report;
use crate::units::{self, percent};
use std::fmt::Write as _;

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// A screen at most.
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    let c = &report.counts;
    let s = &c.speculator;
    let mut line = |name: &str, value: String| {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "runahead: {name:<24} {value}");
    };
    line("command", units::command(&report.command));
    line("elapsed", format!("{:.1} ms", milliseconds(report.elapsed_ns)));
    if let Some(reason) = &report.plainly_because {
        line("ran plainly", reason.clone());
        return text;
    }
    if let Some(reason) = &report.left_because {
        line("left alone since then", reason.clone());
    }
    line(
        "reads on files",
        format!("{} calls, {:.1} MB; looked at while there were stalls", c.reads, c.read_bytes as f64 / 1e6),
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
    let r = &c.remembered;
    if r.files > 0 || r.kept > 0 {
        line(
            "remembered",
            format!(
                "{} files asked for ({:.1} MB), {} names; {} used, {} changed; {} kept in {:.1} ms",
                r.files,
                r.bytes as f64 / 1e6,
                r.names,
                r.used,
                r.changed,
                r.kept,
                milliseconds(r.wait_ns)
            ),
        );
    }
    if let Some(reason) = &r.left_because {
        line("nothing remembered", reason.clone());
    }
    if let Some(reason) = &r.profile_because {
        line("profile not used", reason.clone());
    }
    let f = &c.faults;
    line(
        "page faults",
        match &f.unseen_because {
            Some(reason) => format!("not seen: {reason}"),
            None => format!(
                "{} seen by {}; strides: {} pages asked for ahead; speculation: {} posts, {} pages foretold; {} waits spared",
                f.seen,
                f.seen_by.as_deref().unwrap_or("nobody"),
                f.prefetched_pages,
                f.posts,
                f.foretold_pages,
                f.useful_pages
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
            c.post_ns_median as f64 / 1e3,
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
        line("  others at the disk", format!("seen at {} of {} looks; gave way to them", d.others, d.looks));
    }
    let e = &s.endings;
    line(
        "  ended by",
        format!(
            "overtaken {}, cancelled {}, call {}, fault {}, time {}, exit {}, memory {}, descriptor {}, waiting {}, scan {}, released {}, names {}, turn {}",
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
            e.turn,
        ),
    );
    if !e.system_calls.is_empty() {
        let calls: Vec<_> = e.system_calls.iter().map(|(name, times)| format!("{name} {times}")).collect();
        line("    calls", calls.join(", "));
    }
    text
}
