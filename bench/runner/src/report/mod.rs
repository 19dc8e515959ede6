//! A report to look at: one HTML page without scripts or anything from a network, its plots as PNG
//! files beside it.

mod page;
mod plot;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use resvg::{tiny_skia, usvg};

use crate::results::{Figures, Record};
use plot::{Bars, COLOURS, Lines, Series};

/// A plot and the name of its file.
struct Plot {
    name: String,
    svg: String,
}

/// Writes `index.html` and the plots into `directory`.
pub fn write(records: &[Record], directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let newest = newest(records);
    let plots = plots(&newest);
    let mut options = usvg::Options::default();
    Arc::make_mut(&mut options.fontdb).load_system_fonts();
    for plot in &plots {
        let picture =
            picture(&plot.svg, &options).with_context(|| format!("cannot draw the plot {}", plot.name))?;
        let path = directory.join(format!("{}.png", plot.name));
        fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let svgs: Vec<&str> = plots.iter().map(|plot| plot.svg.as_str()).collect();
    let path = directory.join("index.html");
    fs::write(&path, page::page(&newest, records, &svgs))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Twice the size on paper, for sharp letters.
const SCALE: f32 = 2.0;

fn picture(svg: &str, options: &usvg::Options) -> Result<Vec<u8>> {
    let tree = usvg::Tree::from_str(svg, options)?;
    let size = tree.size();
    let mut pixels = tiny_skia::Pixmap::new((size.width() * SCALE) as u32, (size.height() * SCALE) as u32)
        .context("a plot without area")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    Ok(pixels.encode_png()?)
}

/// The last record of each workload on each disk.
fn newest(records: &[Record]) -> Vec<&Record> {
    let mut found: Vec<&Record> = Vec::new();
    for record in records {
        let key = |one: &Record| (one.workload.clone(), one.disk.profile.clone());
        match found.iter_mut().find(|other| key(other) == key(record)) {
            Some(other) if other.time <= record.time => *other = record,
            Some(_) => {}
            None => found.push(record),
        }
    }
    found
}

fn figures<'a>(record: &'a Record, name: &str) -> Option<&'a Figures> {
    record.summary.configurations.get(name)
}

fn series(names: &[&str]) -> Vec<Series> {
    names.iter().zip(COLOURS).map(|(name, colour)| Series { name: (*name).into(), colour }).collect()
}

fn plots(records: &[&Record]) -> Vec<Plot> {
    let mut profiles: Vec<&str> = Vec::new();
    for record in records {
        if !profiles.contains(&record.disk.profile.as_str()) {
            profiles.push(&record.disk.profile);
        }
    }
    let mut plots = Vec::new();
    for profile in &profiles {
        let of: Vec<&Record> =
            records.iter().copied().filter(|record| record.disk.profile == *profile).collect();
        plots.extend([elapsed(profile, &of), stall(profile, &of), reads(profile, &of)].into_iter().flatten());
    }
    plots.extend(latency(records));
    plots
}

/// One group for each record that has what it takes.
fn groups(
    records: &[&Record],
    values: impl Fn(&Record) -> Option<Vec<Option<f64>>>,
) -> Vec<(String, Vec<Option<f64>>)> {
    records.iter().filter_map(|record| Some((record.workload.clone(), values(record)?))).collect()
}

fn bars(name: String, bars: Bars) -> Option<Plot> {
    (!bars.groups.is_empty()).then(|| Plot { name, svg: bars.draw() })
}

fn elapsed(profile: &str, records: &[&Record]) -> Option<Plot> {
    let values = |record: &Record| {
        let median = |name: &str| figures(record, name).map(|figures| figures.median);
        Some(vec![Some(median("alone")?), median("runahead"), record.summary.limit])
    };
    bars(
        format!("elapsed-{profile}"),
        Bars {
            title: format!("Elapsed time, cold, disk {profile}"),
            axis: "seconds (median, logarithmic)".into(),
            series: series(&["alone", "under Runahead", "limit"]),
            groups: groups(records, values),
            logarithmic: true,
        },
    )
}

/// Stall is what a cold run takes longer than a warm one.
fn stall(profile: &str, records: &[&Record]) -> Option<Plot> {
    let values = |record: &Record| {
        let (alone, ours) = (figures(record, "alone")?.median, figures(record, "runahead")?.median);
        let stall = alone - figures(record, "alone-warm")?.median;
        // Under a twentieth of the time, there is none to speak of.
        (stall > alone / 20.0).then(|| vec![Some(100.0 * (alone - ours) / stall)])
    };
    bars(
        format!("stall-{profile}"),
        Bars {
            title: format!("Stall eliminated, disk {profile}"),
            axis: "percent of the time that the command alone waits".into(),
            series: vec![Series { name: "under Runahead".into(), colour: COLOURS[1] }],
            groups: groups(records, values),
            logarithmic: false,
        },
    )
}

fn reads(profile: &str, records: &[&Record]) -> Option<Plot> {
    let values = |record: &Record| {
        let alone = figures(record, "alone")?.device_read_bytes.filter(|bytes| *bytes > 0.0)?;
        Some(vec![Some(100.0 * (figures(record, "runahead")?.device_read_bytes? / alone - 1.0))])
    };
    bars(
        format!("reads-{profile}"),
        Bars {
            title: format!(
                "Waste: bytes read at the device beyond those of the command alone, disk {profile}"
            ),
            axis: "percent more than alone".into(),
            series: vec![Series { name: "under Runahead".into(), colour: COLOURS[4] }],
            groups: groups(records, values),
            logarithmic: false,
        },
    )
}

/// Speed-up over the disks' latencies, for workloads measured on two emulated disks at least.
fn latency(records: &[&Record]) -> Option<Plot> {
    let mut lines: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for record in records {
        let latency = record.disk.check["expected_latency_ns"].as_f64().filter(|latency| *latency > 0.0);
        let ratio = figures(record, "runahead").and_then(|figures| figures.ratio);
        if let (Some(latency), Some(ratio)) = (latency, ratio) {
            lines.entry(&record.workload).or_default().push((latency / 1e6, ratio));
        }
    }
    lines.retain(|_, points| points.len() >= 2);
    if lines.is_empty() {
        return None;
    }
    lines.values_mut().for_each(|points| points.sort_by(|one, other| one.0.total_cmp(&other.0)));
    let colours = COLOURS.iter().cycle();
    let plot = Lines {
        title: "Speed-up against the disk's latency".into(),
        across: "milliseconds a request".into(),
        up: "times as fast".into(),
        series: lines
            .keys()
            .zip(colours)
            .map(|(name, colour)| Series { name: (*name).into(), colour })
            .collect(),
        points: lines.into_values().collect(),
    };
    Some(Plot { name: "latency".into(), svg: plot.draw() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::results::{Disk, FORMAT, Run, Summary};
    use crate::run::Measured;

    fn record(workload: &str, profile: &str, latency_ns: f64, times: [f64; 3]) -> Record {
        let runs: Vec<Run> = ["alone", "runahead", "alone-warm"]
            .iter()
            .zip(times)
            .map(|(configuration, wall)| Run {
                configuration: configuration.to_string(),
                round: 0,
                cold: None,
                prefetch: None,
                measured: Measured {
                    wall,
                    same: true,
                    device_read_bytes: Some(1_000_000),
                    ..Measured::default()
                },
                report: None,
            })
            .collect();
        Record {
            format: FORMAT,
            time: 1,
            commit: "abc".into(),
            subject: "<script>".into(),
            machine: Machine::this(),
            disk: Disk {
                profile: profile.into(),
                filesystem: "ext4".into(),
                read_ahead_kb: Some(128),
                check: serde_json::json!({ "expected_latency_ns": latency_ns }),
            },
            workload: workload.into(),
            floor: Some(9.0),
            summary: Summary::of(&runs, &[], |name| match name {
                "runahead" => "alone".into(),
                other => other.to_string(),
            }),
            runs,
            replays: vec![],
            marks: vec!["not cold & not warm".into()],
        }
    }

    #[test]
    fn the_page_shows_everything_and_loads_nothing() {
        let records = [
            record("grep", "cloud", 1e6, [10.0, 2.0, 0.5]),
            record("grep", "net", 5e6, [50.0, 10.0, 0.5]),
            record("grep", "cloud", 1e6, [10.0, 1.0, 0.5]),
        ];
        let directory = std::env::temp_dir().join(format!("runahead-bench-report-{}", std::process::id()));
        write(&records, &directory).unwrap();
        let html = fs::read_to_string(directory.join("index.html")).unwrap();
        for wanted in
            ["grep", "cloud", "abc", "not cold &amp; not warm", "disagree by more than 8%", "class=\"below\""]
        {
            assert!(html.contains(wanted), "{wanted}: {html}");
        }
        let outside = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http") && !html.contains("<script"), "nothing comes from elsewhere");
        let pictures: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "png"))
            .collect();
        // Elapsed, stall and waste for each of two disks, and the latency plot over both.
        assert_eq!(pictures.len(), 7);
        assert!(pictures.iter().all(|entry| fs::read(entry.path()).unwrap().starts_with(b"\x89PNG")));
        fs::remove_dir_all(directory).unwrap();
    }
}
