//! A report to look at: one HTML page without scripts or anything from a network, its plots as PNG
//! files beside it.

mod page;
mod papers;
mod plot;
mod sweeps;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use resvg::{tiny_skia, usvg};

use crate::results::{Figures, Record};
use plot::{Bars, COLOURS, Series};

/// A plot and the name of its file.
struct Plot {
    name: String,
    svg: String,
}

/// Writes `index.html` and the plots into `directory`, which is the report's own.
pub fn write(records: &[Record], directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    // Plots of an earlier report that this one does not have would be taken for its own.
    for entry in fs::read_dir(directory)?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "png") {
            fs::remove_file(entry.path())?;
        }
    }
    let (cold, warm) = (newest(records, is_cold), newest(records, is_warm));
    let mut plots = plots(&cold.iter().collect::<Vec<_>>());
    plots.extend(papers::plots(records));
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
    let page = page::page(&cold, &warm, records, &svgs, &papers::tables(records));
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
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

/// The last commit's record of each workload on each disk with so many processors, of those that `has` is true of; of
/// what was measured more than once in the same circumstances all runs together. The disks that most was measured on come first.
fn newest(records: &[Record], has: impl Fn(&Record) -> bool) -> Vec<Record> {
    let mut of_time: Vec<&Record> = records.iter().filter(|record| has(record)).collect();
    of_time.sort_by_key(|record| record.time);
    let mut found: Vec<Record> = Vec::new();
    for record in of_time {
        let key = |one: &Record| (one.workload.clone(), disk(one));
        match found.iter_mut().find(|other| key(other) == key(record)) {
            Some(other) if other.alike(record) => {
                *other = other.clone().together(record);
            }
            Some(other) => *other = record.clone(),
            None => found.push(record.clone()),
        }
    }
    let mut counts: HashMap<String, usize> = HashMap::new();
    found.iter().for_each(|record| *counts.entry(disk(record)).or_default() += 1);
    found.sort_by_key(|record| (std::cmp::Reverse(counts[&disk(record)]), disk(record)));
    found
}

/// What tells a cold run from others. A measurement of warm runs alone must not stand for it, nor the other way round.
fn is_cold(record: &Record) -> bool {
    record.hopeless || figures(record, "alone").or(figures(record, "runahead")).is_some()
}

fn is_warm(record: &Record) -> bool {
    figures(record, "alone-warm").is_some() && figures(record, "runahead-warm").is_some()
}

/// The disk, and that there was one processor only, which makes another machine of it.
fn disk(record: &Record) -> String {
    match record.machine.processors {
        1 => format!("{}, 1 processor", record.disk.profile),
        _ => record.disk.profile.clone(),
    }
}

fn figures<'a>(record: &'a Record, name: &str) -> Option<&'a Figures> {
    record.summary.configurations.get(name)
}

/// Of runs that all came to their end: the median of others is less than the truth.
fn whole<'a>(record: &'a Record, name: &str) -> Option<&'a Figures> {
    figures(record, name).filter(|figures| !figures.late)
}

fn series(names: &[&str]) -> Vec<Series> {
    names.iter().zip(COLOURS).map(|(name, colour)| Series { name: (*name).into(), colour }).collect()
}

fn plots(records: &[&Record]) -> Vec<Plot> {
    let mut disks: Vec<String> = Vec::new();
    for record in records {
        if !disks.contains(&disk(record)) {
            disks.push(disk(record));
        }
    }
    let mut plots = Vec::new();
    for name in &disks {
        let of: Vec<&Record> = records.iter().copied().filter(|record| disk(record) == *name).collect();
        plots.extend([elapsed(name, &of), stall(name, &of), reads(name, &of)].into_iter().flatten());
    }
    plots.extend(sweeps::latency(records));
    plots.extend(sweeps::depth(records));
    for plot in &mut plots {
        plot.name = plot.name.replace(", ", "-").replace(' ', "-");
    }
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
        let median = |name: &str| whole(record, name).map(|figures| figures.median);
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
        let (alone, ours) = (whole(record, "alone")?.median, whole(record, "runahead")?.median);
        let stall = alone - whole(record, "alone-warm")?.median;
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
        let alone = whole(record, "alone")?.device_read_bytes.filter(|bytes| *bytes > 0.0)?;
        Some(vec![Some(100.0 * (whole(record, "runahead")?.device_read_bytes? / alone - 1.0))])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{self, Run, Summary};

    /// Alone, under Runahead and warm, on a disk of this latency.
    fn record(workload: &str, profile: &str, latency_ns: f64, times: [f64; 3]) -> Record {
        let mut record = results::tests::record(workload, 1, times[0], times[1]);
        record.subject = "<script>".into();
        record.disk.profile = profile.into();
        record.disk.check = serde_json::json!({ "expected_latency_ns": latency_ns });
        record.memory_mb = None;
        record.runs.push(Run { configuration: "alone-warm".into(), ..record.runs[0].clone() });
        for (run, wall) in record.runs.iter_mut().zip(times) {
            run.measured.wall = wall;
            run.measured.device_read_bytes = Some(1_000_000);
        }
        record.summary = Summary::of(&record.runs, &[], |name| match name {
            "runahead" => "alone".into(),
            other => other.to_string(),
        });
        record.marks = vec!["not cold & not warm".into()];
        record
    }

    #[test]
    fn the_page_shows_everything_and_loads_nothing() {
        let records = [
            record("grep", "cloud", 1e6, [10.0, 2.0, 0.5]),
            record("grep", "net", 5e6, [50.0, 10.0, 0.5]),
            record("grep", "cloud", 1e6, [10.0, 1.0, 0.5]),
            record("grep", "cloud@8", 1e6, [10.0, 4.0, 0.5]),
            record("agrep-1999", "array4", 14e6, [20.0, 5.0, 0.5]),
        ];
        let directory = std::env::temp_dir().join(format!("runahead-bench-report-{}", std::process::id()));
        write(&records, &directory).unwrap();
        let html = fs::read_to_string(directory.join("index.html")).unwrap();
        for wanted in [
            "grep",
            "cloud",
            "abc",
            "not cold &amp; not warm",
            "disagree by more than 8%",
            "class=\"below\"",
            "queue depth",
            "fig3: overall improvement",
            "kernel 9000 files",
        ] {
            assert!(html.contains(wanted), "{wanted}: {html}");
        }
        let outside = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http") && !html.contains("<script"), "nothing comes from elsewhere");
        let pictures: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "png"))
            .collect();
        // Elapsed, stall and waste for each of four disks; latency, depth; the papers' figures 3, 5, 6 and
        // table 7, which have agrep-1999 on array4 in common.
        assert_eq!(pictures.len(), 4 * 3 + 2 + 4, "{pictures:?}");
        assert!(pictures.iter().all(|entry| fs::read(entry.path()).unwrap().starts_with(b"\x89PNG")));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_was_measured_on_one_processor_or_warm_does_not_stand_for_the_rest() {
        let two = record("grep", "cloud", 1e6, [10.0, 2.0, 0.5]);
        let mut one = two.clone();
        one.machine.processors = 1;
        one.time += 1;
        let mut warm = two.clone();
        warm.time += 2;
        warm.summary.configurations.retain(|name, _| name.ends_with("warm"));
        let figures = warm.summary.configurations["alone-warm"].clone();
        warm.summary.configurations.insert("runahead-warm".into(), figures);
        let mut hopeless = record("slow", "cloud", 1e6, [1.0, 1.0, 1.0]);
        (hopeless.hopeless, hopeless.runs, hopeless.summary) = (true, vec![], Summary::default());
        let mut two = two;
        for usual in [&mut two, &mut warm, &mut hopeless] {
            usual.machine.processors = 2;
        }
        let records = [two, one, warm, hopeless];
        let names = |found: Vec<Record>| found.iter().map(disk).collect::<Vec<_>>();
        assert_eq!(names(newest(&records, is_cold)), ["cloud", "cloud", "cloud, 1 processor"]);
        assert_eq!(newest(&records, is_warm), [records[2].clone()]);
        // Measured again at this commit, and at another one.
        let mut again = vec![records[0].clone(), records[0].clone()];
        assert_eq!(newest(&again, is_cold)[0].summary.configurations["alone"].runs, 2);
        again[1].commit = "later".into();
        again[1].time += 1;
        assert_eq!(newest(&again, is_cold), [again[1].clone()]);
        let directory = std::env::temp_dir().join(format!("runahead-bench-newest-{}", std::process::id()));
        write(&records, &directory).unwrap();
        let html = fs::read_to_string(directory.join("index.html")).unwrap();
        for wanted in ["cloud, 1 processor", "All cached", "not over after 900 s"] {
            assert!(html.contains(wanted), "{wanted}: {html}");
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn only_what_is_alike_is_pooled() {
        type Change = fn(&mut Record);
        let changes: [(&str, Change); 10] = [
            ("hopeless", |record| {
                (record.hopeless, record.runs, record.summary) = (true, vec![], Summary::default());
            }),
            ("late", |record| record.runs[0].measured.late = true),
            ("subject", |record| record.subject = "other".into()),
            ("read-ahead", |record| record.disk.read_ahead_kb = Some(0)),
            ("file system", |record| record.disk.filesystem = "xfs".into()),
            ("memory", |record| record.memory_mb = Some(7)),
            ("swap", |record| record.swap_mb = Some(7)),
            ("resident", |record| record.resident_percent = 90),
            ("processors", |record| record.machine.processors = 16),
            ("data", |record| record.data[0].version += 1),
        ];
        let mut usual = record("grep", "cloud", 1e6, [10.0, 2.0, 0.5]);
        usual.machine.processors = 8;
        for (name, change) in changes {
            let mut other = usual.clone();
            change(&mut other);
            for (mut first, mut second) in [(usual.clone(), other.clone()), (other, usual.clone())] {
                (first.time, second.time) = (1, 2);
                assert_eq!(newest(&[first.clone(), second.clone()], is_cold), [second.clone()], "{name}");
                assert_eq!(
                    newest(&[second.clone(), first], is_cold),
                    [second],
                    "{name}: told the other way round"
                );
            }
        }
        assert_eq!(newest(&[usual.clone(), usual], is_cold)[0].runs.len(), 6);
    }

    #[test]
    fn what_was_ended_early_is_in_no_plot_of_stall_or_reads() {
        let usual = record("grep", "cloud", 1e6, [10.0, 2.0, 0.5]);
        assert!(stall("cloud", &[&usual]).is_some() && reads("cloud", &[&usual]).is_some());
        for name in ["alone", "runahead", "alone-warm"] {
            let mut late = usual.clone();
            late.summary.configurations.get_mut(name).unwrap().late = true;
            assert!(stall("cloud", &[&late]).is_none(), "{name}");
            assert_eq!(reads("cloud", &[&late]).is_none(), name != "alone-warm", "{name}");
        }
    }

    /// The page in a real browser: does it show, with letters and with the plots' colours?
    #[test]
    fn a_browser_shows_the_page() {
        let Some(browser) = crate::packages::find_program("chromium") else {
            eprintln!(
                "SKIPPED: no chromium here, so the report was not looked at in a browser; ./x test installs it as root"
            );
            return;
        };
        let records = [
            record("grep", "cloud", 1e6, [10.0, 2.0, 0.5]),
            record("agrep-1999", "array4", 14e6, [20.0, 5.0, 0.5]),
        ];
        let directory = std::env::temp_dir().join(format!("runahead-bench-browser-{}", std::process::id()));
        write(&records, &directory).unwrap();
        let shot = directory.join("shot.png");
        // A browser started as root refuses its own sandbox; it sees nothing but a page of ours.
        let output = std::process::Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
            ])
            .arg(format!("--user-data-dir={}", directory.join("profile").display()))
            .arg("--window-size=1000,4000")
            .arg(format!("--screenshot={}", shot.display()))
            .arg(format!("file://{}", directory.join("index.html").display()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let picture = fs::read(&shot).unwrap_or_else(|error| panic!("no screenshot ({error}): {said}"));
        let picture = tiny_skia::Pixmap::decode_png(&picture).unwrap();
        assert_eq!((picture.width(), picture.height()), (1000, 4000));
        let count = |colour: &str| {
            let part = |at: usize| u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
            let wanted = tiny_skia::ColorU8::from_rgba(part(1), part(3), part(5), 255).premultiply();
            picture.pixels().iter().filter(|pixel| **pixel == wanted).count()
        };
        // Bars of both kinds are at least a hundred points long and ten high.
        for colour in [COLOURS[0], COLOURS[1]] {
            assert!(count(colour) > 1000, "{colour}: {}", count(colour));
        }
        // Letters, in the page's own colour, make a few thousand points.
        assert!(count("#1d2126") > 2000, "{}", count("#1d2126"));
        fs::remove_dir_all(directory).unwrap();
    }
}
