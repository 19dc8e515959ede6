//! Fraser and Chang, *Operating System I/O Speculation: How Two Invocations Are Faster Than One* (2003).
//!
//! The paper speculates inside the kernel, from page faults too, be they on mapped files or on swap; Runahead from
//! those on mapped files, and where it is privileged on swap. FFTPDE and MGRID are NAS codes, taken from the compiler's part of
//! this project (`compiler/nas`) and compiled plainly; the paper's swap, ours have their arrays on a mapped file.

use super::stored::{ENDED, Found, NOT_MEASURED, figure, speculates_on_faults};
use super::{Column, Experiment, Figure, Row, Stored, Table};

pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "table2",
        about: "effectiveness of prefetching (2003, table 2)",
        workloads: &[
            "agrep-2003",
            "gnuld",
            "postgres-index",
            "postgres-lookup",
            "xds",
            "matvec-file",
            "matvec-swap",
            "mgrid-file",
            "fftpde-file",
            "sphinx",
        ],
        profiles: &["array4"],
        configurations: &["alone", "ignored", "runahead"],
        table: table2,
    },
    Experiment {
        name: "table3",
        about: "cost of a sync against resident size (2003, tables 3 and 4)",
        workloads: &["resident-1", "resident-100", "resident-1000"],
        profiles: &["cloud"],
        configurations: &["alone", "runahead", "forked"],
        table: table3,
    },
    Experiment {
        name: "table5b",
        about: "memory control (2003, table 5)",
        workloads: &["sphinx-100mb", "sphinx-110mb", "sphinx-130mb", "sphinx"],
        profiles: &["array4"],
        configurations: &["alone", "ignored", "runahead"],
        table: table5b,
    },
];

const NO_FAULTS: &str = "Runahead does not speculate from page faults yet";
const NO_CONTROL: &str = "the Runahead that was measured kept to a budget of memory, and did not yet weigh stalls added \
against stalls removed as the paper's memory control does";
const FAULT_PAGES: &str = "of pages asked for at page faults it is counted how many waits they spared, \
not how many of them were reached";
const FAULT_TIMES: &str = "how long the program waited in page faults, and for which of them a page came in time, \
is not counted";

/// Stalls, their seconds, prefetches, full %, unused, sync seconds, copy-on-write faults.
type Effect = [Option<f64>; 7];

const fn effect(figures: [f64; 7]) -> Effect {
    let mut all = [None; 7];
    let mut index = 0;
    while index < 7 {
        all[index] = Some(figures[index]);
        index += 1;
    }
    all
}

/// Without speculation there are only stalls and faults.
const fn without(stalls: f64, seconds: f64, faults: f64) -> Effect {
    [Some(stalls), Some(seconds), None, None, None, None, Some(faults)]
}

/// The paper's label, our workload, the paper's figures without and with speculation.
const EFFECTS: [(&str, &str, Effect, Effect); 8] = [
    (
        "Agrep",
        "agrep-2003",
        without(14080.0, 30.0, 286.0),
        effect([4239.0, 17.0, 7350.0, 92.0, 0.0, 0.0, 326.0]),
    ),
    ("Gnuld", "gnuld", without(5434.0, 26.0, 8.0), effect([3228.0, 15.0, 4684.0, 74.0, 641.0, 2.0, 8.0])),
    (
        "PostgreSQL",
        "postgres-index",
        without(1_056_013.0, 8471.0, 259.0),
        effect([267_498.0, 3230.0, 1_201_033.0, 87.0, 25_101.0, 45.0, 2714.0]),
    ),
    (
        "XDataSlice",
        "xds",
        without(22887.0, 159.0, 13.0),
        effect([5905.0, 63.0, 44512.0, 87.0, 634.0, 7.0, 11376.0]),
    ),
    (
        "FFTPDE",
        "fftpde-file",
        without(439_221.0, 5345.0, 8.0),
        effect([201_384.0, 3024.0, 1_384_548.0, 86.0, 583.0, 929.0, 391_281.0]),
    ),
    (
        "MGRID",
        "mgrid-file",
        without(87594.0, 757.0, 8.0),
        effect([59732.0, 1020.0, 1_095_623.0, 90.0, 14.0, 428.0, 179_714.0]),
    ),
    (
        "MATVEC",
        "matvec-swap",
        without(105_518.0, 925.0, 7.0),
        effect([36114.0, 375.0, 893_238.0, 80.0, 0.0, 75.0, 91.0]),
    ),
    (
        "Sphinx",
        "sphinx",
        without(6238.0, 43.0, 1386.0),
        effect([6957.0, 58.0, 8417.0, 68.0, 909.0, 6.0, 1388.0]),
    ),
];

fn table2(stored: &Stored, disks: &[&str]) -> Table {
    let disk = disks.first().copied().unwrap_or("array4");
    let mut rows = Vec::new();
    for (label, workload, off, on) in EFFECTS {
        rows.extend([("off", off), ("on", on)].map(|(state, paper)| {
            let configuration = if state == "off" { "ignored" } else { "runahead" };
            let found = stored.find(workload, disk, configuration);
            Row {
                label: format!("{label}, speculation {state}"),
                cells: paper.map(paper_figure).into_iter().zip(effect_of(found, state == "on")).collect(),
            }
        }));
    }
    // Those that the paper does not have: ours alone.
    for (label, workload) in
        [("PostgreSQL look-ups", "postgres-lookup"), ("MATVEC, mapped file", "matvec-file")]
    {
        for (state, configuration) in [("off", "ignored"), ("on", "runahead")] {
            let found = stored.find(workload, disk, configuration);
            let ours = effect_of(found, state == "on");
            let cells = ours.into_iter().map(|figure| (Figure::Empty, figure)).collect();
            rows.push(Row { label: format!("{label}, {state}"), cells });
        }
    }
    Table {
        title: String::new(),
        columns: vec![
            column(
                "stalls",
                0,
                "",
                "other sizes of data; ours are read calls that would have waited and page faults that did",
            ),
            column(
                "stall s",
                1,
                "ours is an upper bound, around the call",
                "disks and data are not the paper's",
            ),
            column(
                "prefetches",
                0,
                "other sizes of data",
                "other sizes of data; ours are requests, for page faults pages, the paper's are pages",
            ),
            column("full %", 0, "ours is of the hinted reads", ""),
            column("unused", 0, "ours are pages of 4 KB, and of other data", ""),
            column("sync s", 2, "", "ours copies nothing at a sync but the pages that changed"),
            column("CoW faults", 0, "", ""),
        ],
        rows,
        notes: vec![
            "Off: under Runahead with hints ignored, which counts stalls and does nothing about them.".into(),
            "Nothing of the program is shared copy-on-write here, so it has no such faults to count.".into(),
            "FFTPDE and MGRID: one step of NAS class A, on a mapped file that they write to; the paper's swap.".into(),
        ],
        other_disk: false,
    }
}

fn paper_figure(value: Option<f64>) -> Figure {
    value.map_or(Figure::Empty, Figure::Number)
}

/// `found`: None where it has not been measured.
fn effect_of(found: Option<Found>, on: bool) -> [Figure; 7] {
    let Some(found) = found else {
        return std::array::from_fn(|_| Figure::Missing(NOT_MEASURED.into()));
    };
    let faults = crate::workload::every()
        .any(|workload| workload.name == found.record.workload && workload.wants.is_some());
    if found.figures.late {
        return std::array::from_fn(|_| Figure::Missing(ENDED.into()));
    }
    if faults && !speculates_on_faults(&found) {
        return std::array::from_fn(|_| Figure::Missing(NO_FAULTS.into()));
    }
    let found = Some(&found);
    let seconds = |path: &str| figure(found, |found| Some(found.reported(path)? / 1e9));
    let none = || Figure::Empty;
    let with = |value: Figure| if on { value } else { none() };
    let of_reads = |value: Figure| if faults { Figure::Missing(FAULT_TIMES.into()) } else { value };
    let full = figure(found, |found| {
        let partial = found.reported("/counts/partial_prefetches")?;
        let full = found.reported("/counts/full_prefetches")?;
        Some(if full + partial > 0.0 { 100.0 * full / (full + partial) } else { 0.0 })
    });
    let sum =
        |one: &str, other: &str| figure(found, |found| Some(found.reported(one)? + found.reported(other)?));
    let stalls = figure(found, |found| {
        let faults = found.median(|run| Some(run.measured.major_faults as f64))?;
        Some(found.reported("/counts/stalls")? + faults)
    });
    let unused = match faults {
        true => Figure::Missing(FAULT_PAGES.into()),
        false => figure(found, |found| found.reported("/counts/speculator/unused_pages")),
    };
    [
        stalls,
        of_reads(seconds("/counts/stall_ns")),
        with(sum("/counts/speculator/prefetches", "/counts/faults/prefetched_pages")),
        with(of_reads(full)),
        with(unused),
        with(seconds("/counts/speculator/sync_ns")),
        none(),
    ]
}

/// The paper's program, its syncs' total s, mean ms, attempts and completed %, and the program's copy-on-write faults
/// (from table 4).
const REFORKS: [(&str, [f64; 5]); 8] = [
    ("FFTPDE, base design", [929.0, 7.0, 136_645.0, 100.0, 391_281.0]),
    ("FFTPDE, fast, one-way", [274.0, 2.0, 118_581.0, 89.0, 8.0]),
    ("MGRID, base design", [428.0, 12.0, 37_065.0, 100.0, 179_714.0]),
    ("MGRID, fast, one-way", [144.0, 3.0, 48_668.0, 81.0, 8.0]),
    ("MATVEC, base design", [178.0, 10.0, 17_669.0, 100.0, 91.0]),
    ("MATVEC, fast, one-way", [75.0, 3.0, 24_951.0, 68.0, 7.0]),
    ("Sphinx, base design", [13.0, 3.0, 3769.0, 100.0, 1388.0]),
    ("Sphinx, fast, one-way", [6.0, 2.0, 2465.0, 91.0, 1387.0]),
];

fn table3(stored: &Stored, disks: &[&str]) -> Table {
    let disk = disks.first().copied().unwrap_or("cloud");
    let mut rows: Vec<Row> = REFORKS
        .into_iter()
        .map(|(label, paper)| {
            let mut cells: Vec<(Figure, Figure)> =
                paper.map(|value| (Figure::Number(value), Figure::Empty)).into();
            cells.push((Figure::Empty, Figure::Empty));
            Row { label: label.into(), cells }
        })
        .collect();
    for (label, workload) in
        [("1 MB resident", "resident-1"), ("100 MB", "resident-100"), ("1000 MB", "resident-1000")]
    {
        for (name, sync_ns, syncs) in [
            ("forked", "/counts/post_ns", "/counts/posts"),
            ("runahead", "/counts/speculator/sync_ns", "/counts/speculator/syncs"),
        ] {
            let found = stored.find(workload, disk, name);
            let ours = syncs_of(stored, found.as_ref(), sync_ns, syncs);
            let cells = ours.into_iter().map(|figure| (Figure::Empty, figure)).collect();
            rows.push(Row { label: format!("{label}, {name}"), cells });
        }
    }
    Table {
        title: String::new(),
        columns: vec![
            column("total s", 3, "", ""),
            column("mean ms", 4, "", ""),
            column("attempts", 0, "", ""),
            column("completed %", 0, "", ""),
            column("CoW faults", 0, "", ""),
            column("alone/ours", 2, "", ""),
        ],
        rows,
        notes: vec![
            "The paper's base design forks the program at each sync; its optimised one copies what has changed, gives \
             up when the disk is quicker (fast), and lets the program write without a fault (one-way)."
                .into(),
            "The paper's programs swap; ours reads a file, every 8th offset taken from the data, and holds the \
             memory named, to which it writes. The question is the same: does a sync grow with the memory?"
                .into(),
            "Forked: a build that copies the program at each post and leaves the speculating to the mirror. Its time \
             is the program's, in posts: the last copy's end and the new copy. The mirror's syncs come on top, beside \
             the program."
                .into(),
            "Runahead: the time is the speculator's, beside the program. Attempts are posts, completed are those that \
             the speculator took up."
                .into(),
            "Faults of ours are all that did not wait for the disk, the copies' own among them, less those of the \
             program alone."
                .into(),
        ],
        other_disk: false,
    }
}

/// Total s, mean ms, attempts, completed %, further faults, alone over ours.
fn syncs_of(stored: &Stored, found: Option<&Found>, sync_ns: &str, syncs: &str) -> [Figure; 6] {
    let attempts = "/counts/posts";
    let completed = match syncs == attempts {
        true => Figure::Missing("how often the kernel refused a copy is not counted".into()),
        false => figure(found, |found| found.reported_percent(syncs, attempts)),
    };
    [
        figure(found, |found| Some(found.reported(sync_ns)? / 1e9)),
        figure(found, |found| {
            let (time, syncs) = (found.reported(sync_ns)?, found.reported(syncs)?);
            Some(if syncs > 0.0 { time / syncs / 1e6 } else { 0.0 })
        }),
        figure(found, |found| found.reported(attempts)),
        completed,
        figure(found, |found| further_faults(stored, found)),
        figure(found, |found| found.figures.ratio),
    ]
}

/// Minor page faults beyond those of the program alone, of the same workload on the same disk.
fn further_faults(stored: &Stored, found: &Found) -> Option<f64> {
    let record = found.record;
    let alone = stored.find(&record.workload, &record.disk.profile, "alone")?;
    let faults = |found: &Found| found.median(|run| Some(run.measured.minor_faults as f64));
    Some((faults(found)? - faults(&alone)?).max(0.0))
}

/// The paper's memory, ours, and the paper's stall seconds off, on, controlled; syncs on, controlled;
/// threshold crossings.
const CONTROL: [(&str, Option<&str>, [f64; 6]); 5] = [
    ("48 MB, ours 100", Some("sphinx-100mb"), [315.0, 224.0, 218.0, 18303.0, 14790.0, 15.0]),
    ("56 MB, ours 110", Some("sphinx-110mb"), [106.0, 102.0, 101.0, 8356.0, 1963.0, 12.0]),
    ("64 MB, ours 130", Some("sphinx-130mb"), [43.0, 47.0, 41.0, 3337.0, 1979.0, 10.0]),
    ("72 MB", None, [34.0, 25.0, 23.0, 2282.0, 957.0, 4.0]),
    ("80 MB, ours all", Some("sphinx"), [28.0, 21.0, 20.0, 1955.0, 729.0, 5.0]),
];

fn table5b(stored: &Stored, disks: &[&str]) -> Table {
    let disk = disks.first().copied().unwrap_or("array4");
    let rows = CONTROL.map(|(label, workload, paper)| {
        let find = |configuration| workload.and_then(|workload| stored.find(workload, disk, configuration));
        let (off, on) = (find("ignored"), find("runahead"));
        let stall = |found: &Option<Found>| {
            figure(found.as_ref(), |found| Some(found.reported("/counts/stall_ns")? / 1e9))
        };
        // How often the threshold was crossed, as reports say since there is memory control.
        let crossings = |found: &Found| found.reported("/counts/memory/pauses");
        let controlled = on.as_ref().is_some_and(|found| crossings(found).is_some());
        let control = |value: Figure| match (&on, controlled) {
            (Some(_), false) => Figure::Missing(NO_CONTROL.into()),
            _ => value,
        };
        let syncs = figure(on.as_ref(), |found| found.reported("/counts/speculator/syncs"));
        let without = |value: Figure| match controlled {
            true => {
                Figure::Missing("what was measured has memory control, which cannot be turned off".into())
            }
            false => value,
        };
        let ours = match workload {
            None => std::array::from_fn(|_| Figure::Missing("no such limit here".into())),
            Some(_) => [
                stall(&off),
                without(stall(&on)),
                control(stall(&on)),
                without(syncs.clone()),
                control(syncs),
                control(figure(on.as_ref(), crossings)),
            ],
        };
        Row { label: label.into(), cells: paper.map(Figure::Number).into_iter().zip(ours).collect() }
    });
    let why = "another recogniser, model and machine; ours are stalls of read calls, and none of page faults";
    Table {
        title: String::new(),
        columns: vec![
            column("off: stall s", 1, why, why),
            column("on", 1, why, why),
            column("controlled", 1, why, why),
            column("on: syncs", 0, why, why),
            column("controlled: syncs", 0, why, why),
            column("crossings", 0, why, why),
        ],
        rows: rows.into(),
        notes: vec!["Both are Sphinx; limits are scaled to what the program wants, 107 MB here.".into()],
        other_disk: false,
    }
}

fn column(name: &'static str, places: usize, more: &'static str, less: &'static str) -> Column {
    Column { name, places, more, less }
}

#[cfg(test)]
mod tests {
    use crate::experiment::named;
    use crate::results::Record;
    use crate::results::tests::{record, run};

    /// Alone and forked, with so many faults each and a report of two posts that took 22 ms.
    fn measured() -> Record {
        let mut found = record("resident-1000", 1, 2.0, 1.0);
        let [alone, forked] = &mut found.runs[..] else { unreachable!("two runs") };
        alone.measured.minor_faults = 1000;
        *forked = run("forked", 4.0);
        forked.measured.minor_faults = 1700;
        forked.report = Some(serde_json::json!({ "counts": { "posts": 2, "post_ns": 22_000_000 } }));
        found.summary = crate::results::Summary::of(&found.runs, &[], |_| "alone".to_string());
        found
    }

    #[test]
    fn a_run_that_was_ended_is_not_taken_for_an_old_one() {
        let mut ended = record("matvec-swap", 1, 300.0, 400.0);
        ended.disk.profile = "array4".into();
        for run in &mut ended.runs {
            run.measured.late = true;
        }
        ended.summary = crate::results::Summary::of(&ended.runs, &[], crate::results::base_of);
        let text = named("table2").unwrap().table(&[ended], &[]).show();
        assert!(
            text.contains("ended before it was over") && !text.contains("does not speculate from"),
            "{text}"
        );
    }

    #[test]
    fn a_copy_at_each_sync_has_a_row_of_its_own() {
        let text = named("table3").unwrap().table(&[measured()], &[]).show();
        let mut lines = text.lines().skip_while(|line| !line.starts_with("1000 MB, forked"));
        let ours: Vec<&str> = lines.nth(1).unwrap().split_whitespace().collect();
        assert_eq!(ours, ["ours", "0.022", "11.0000", "2", "(2)", "700", "0.50"], "{text}");
        assert!(text.contains("(2) how often"), "{text}");
    }
}
