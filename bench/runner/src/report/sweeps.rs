//! Speed-up against what a disk is: its latency, and how many requests it serves at once.

use std::collections::BTreeMap;

use slowdisk::profile::{Kind, Profile};

use super::plot::{COLOURS, Lines, Series};
use super::{Plot, figures};
use crate::results::Record;

/// Points for each workload.
type Found = BTreeMap<String, Vec<(f64, f64)>>;

/// What tells one emulated disk from another.
struct Character {
    /// In ms: the expected mean of the self-check.
    latency: f64,
    parallel: f64,
    /// Disks of one class differ in nothing but how many requests they serve at once.
    class: String,
    spins: bool,
}

fn character(record: &Record) -> Option<Character> {
    if record.machine.processors == 1 {
        return None;
    }
    let latency = record.disk.check["expected_latency_ns"].as_f64().filter(|latency| *latency > 0.0)?;
    let latency = latency / 1e6;
    let found = match Profile::by_name(&record.disk.profile).ok()?.kind {
        Kind::Native => return None,
        Kind::Fixed { parallel, .. } => (parallel, format!("{latency:.1} ms"), false),
        Kind::Names { parallel, .. } => (parallel, format!("{latency:.1} ms, names too"), false),
        // Their parallelism says little of how much they serve.
        Kind::Capped { .. } | Kind::Hydrating { .. } => return None,
        Kind::Spinning(figures) => {
            (figures.disks, format!("spinning, {:.0} ms a turn", figures.turn_ns as f64 / 1e6), true)
        }
    };
    let (parallel, class, spins) = found;
    Some(Character { latency, parallel: parallel as f64, class, spins })
}

/// One line for each name that has two points at least.
fn lines(name: &str, title: &str, across: &str, mut found: Found) -> Option<Plot> {
    for points in found.values_mut() {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points.dedup_by(|one, other| one.0 == other.0);
    }
    found.retain(|_, points| points.len() >= 2);
    if found.is_empty() {
        return None;
    }
    let colours = COLOURS.iter().cycle();
    let series =
        found.keys().zip(colours).map(|(name, colour)| Series { name: name.clone(), colour }).collect();
    let plot = Lines {
        title: title.into(),
        across: across.into(),
        up: "times as fast".into(),
        series,
        points: found.into_values().collect(),
    };
    Some(Plot { name: name.into(), svg: plot.draw() })
}

fn ratio(record: &Record) -> Option<f64> {
    figures(record, "runahead")?.ratio
}

/// Over the disks that serve 64 requests at once: they differ in latency alone.
pub fn latency(records: &[&Record]) -> Option<Plot> {
    let mut found: Found = BTreeMap::new();
    for record in records {
        if let (Some(disk), Some(ratio)) = (character(record), ratio(record))
            && disk.parallel == 64.0
            && !disk.spins
        {
            found.entry(record.workload.clone()).or_default().push((disk.latency, ratio));
        }
    }
    lines("latency", "Speed-up against the disk's latency", "milliseconds a request, 64 at once", found)
}

/// Over disks of one latency, a plot for each: they differ in how many requests they serve at once.
pub fn depth(records: &[&Record]) -> Vec<Plot> {
    let mut classes: BTreeMap<String, Found> = BTreeMap::new();
    for record in records {
        if let (Some(disk), Some(ratio)) = (character(record), ratio(record)) {
            let lines = classes.entry(disk.class).or_default();
            lines.entry(record.workload.clone()).or_default().push((disk.parallel, ratio));
        }
    }
    let plot = |(class, found): (String, Found)| {
        lines(
            &format!("depth-{class}"),
            &format!("Speed-up against queue depth, {class}"),
            "requests served at once",
            found,
        )
    };
    classes.into_iter().filter_map(plot).collect()
}
