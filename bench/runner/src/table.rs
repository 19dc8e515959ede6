//! Results as a table of text.

use std::fmt::Write;

use crate::results::{Record, median};

/// One line for each record, and below them what is wrong with any.
pub fn show(records: &[Record]) -> String {
    let mut text = String::new();
    let mut profile = "";
    for record in records {
        if record.disk.profile != profile {
            profile = &record.disk.profile;
            text += &heading(record);
        }
        text += &line(record);
    }
    for record in records {
        for mark in &record.marks {
            let _ = writeln!(text, "! {} on {}: {mark}", record.workload, record.disk.profile);
        }
    }
    text
}

fn heading(record: &Record) -> String {
    format!(
        "\ndisk {}, read-ahead {} KB, {}, {}\n{:<13}{:>9}{:>15}{:>9}{:>15}{:>8}{:>7}{:>8}{:>7}{:>12}{:>14}\n",
        record.disk.profile,
        record.disk.read_ahead_kb.map_or_else(|| "?".into(), |kilobytes| kilobytes.to_string()),
        record.commit,
        record.subject,
        "workload",
        "alone s",
        "(least-most)",
        "ours s",
        "(least-most)",
        "ratio",
        "floor",
        "limit s",
        "share",
        "processor s",
        "device reads"
    )
}

fn line(record: &Record) -> String {
    if record.runs.is_empty() {
        return format!("{:<13}not measured (marked)\n", record.workload);
    }
    let figures = |name: &str| record.summary.configurations.get(name).cloned().unwrap_or_default();
    let (alone, ours) = (figures("alone"), figures("runahead"));
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
    };
    let equal = record.equal();
    let mut line = format!(
        "{:<13}{:>9.3}{:>15}{:>9.3}{:>15}{:>8}{:>7}{:>8}{:>7}{:>12}{:>14}",
        record.workload,
        alone.median,
        format!("({:.2}-{:.2})", alone.least, alone.most),
        ours.median,
        format!("({:.2}-{:.2})", ours.least, ours.most),
        number(ours.ratio, 2),
        number(record.floor, 1),
        number(record.summary.limit, 3),
        number(record.summary.share_of_possible_gain, 2),
        format!("{:.2}/{:.2}", alone.processor, ours.processor),
        format!("{}/{}", number(alone.device_reads, 0), number(ours.device_reads, 0)),
    );
    if record.below_floor() {
        line += "  below the floor";
    }
    if record.summary.configurations.values().any(|figures| figures.late) {
        line += &format!("  ENDED AFTER {} s", record.patience);
    }
    line += if equal { "  outputs equal" } else { "  OUTPUTS DIFFER" };
    if !record.marks.is_empty() {
        line += "  (marked)";
    }
    line += "\n";
    let extra = record
        .summary
        .configurations
        .iter()
        .filter(|(name, _)| !["alone", "runahead"].contains(&name.as_str()));
    for (name, figures) in extra {
        let _ = writeln!(
            line,
            "    {name:<22}{:>8.3} s ({:.3}-{:.3}), ratio {}, processor {:.3} s",
            figures.median,
            figures.least,
            figures.most,
            number(figures.ratio, 3),
            figures.processor
        );
    }
    if !record.replays.is_empty() {
        let _ = writeln!(line, "    replay, 64 in flight  {:>8.3} s", median(record.replays.iter().copied()));
    }
    line
}
