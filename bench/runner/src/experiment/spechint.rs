//! Chang and Gibson, *Automatic I/O Hint Generation through Speculative Execution* (1999).
//!
//! The paper's disks: four of 15 ms, a block of 8 KB at a time. `Original`, `Speculating` and `Manual` are
//! our `alone`, `runahead` and `manual`. Of Gnuld there is no hand-hinted copy here; the paper's Agrep was
//! hinted in its source, ours is our own reader of the same files, compared with itself unhinted.

use super::stored::{Found, NOT_MEASURED, figure};
use super::{Column, Experiment, Figure, Row, Stored, Table};
use crate::results::Run;

const PROGRAMS: [(&str, &str); 3] = [("Agrep", "agrep-1999"), ("Gnuld", "gnuld"), ("XDataSlice", "xds")];
const ALL: &[&str] = &["agrep-1999", "search", "gnuld", "xds"];
const FEW: &[&str] = &["agrep-1999", "search", "gnuld", "xds-few"];
const ARRAY: &[&str] = &["array4"];
const THREE: &[&str] = &["alone", "runahead", "manual"];

pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "table4",
        about: "hinting statistics (1999, table 4)",
        workloads: ALL,
        profiles: ARRAY,
        configurations: THREE,
        table: table4,
    },
    Experiment {
        name: "table5",
        about: "prefetching and caching (1999, table 5)",
        workloads: ALL,
        profiles: ARRAY,
        configurations: THREE,
        table: table5,
    },
    Experiment {
        name: "table6",
        about: "side effects (1999, table 6)",
        workloads: &["agrep-1999", "gnuld", "xds"],
        profiles: ARRAY,
        configurations: &["alone", "runahead"],
        table: table6,
    },
    Experiment {
        name: "table7",
        about: "memory limits, the paper's cache sizes (1999, table 7)",
        workloads: &[
            "agrep-1999-6mb",
            "agrep-1999",
            "search-6mb",
            "search",
            "gnuld-140mb",
            "gnuld-200mb",
            "gnuld",
            "xds-few-12mb",
            "xds-few",
        ],
        profiles: ARRAY,
        configurations: THREE,
        table: table7,
    },
    Experiment {
        name: "fig3",
        about: "overall improvement (1999, figure 3)",
        workloads: ALL,
        profiles: ARRAY,
        configurations: THREE,
        table: fig3,
    },
    Experiment {
        name: "fig4",
        about: "overhead, hints ignored (1999, figure 4)",
        workloads: &["agrep-1999", "gnuld", "xds"],
        profiles: ARRAY,
        configurations: &["alone", "ignored", "alone-warm", "runahead-warm"],
        table: fig4,
    },
    Experiment {
        name: "fig5",
        about: "1, 2, 4 and 10 disks (1999, figure 5 and table 8)",
        workloads: FEW,
        profiles: &["disk1", "disk2", "array4", "disk10"],
        configurations: THREE,
        table: fig5,
    },
    Experiment {
        name: "fig6",
        about: "a wider gap between processor and disk (1999, figure 6)",
        workloads: FEW,
        profiles: &["array4", "array4x3", "array4x5", "array4x7", "array4x9"],
        configurations: THREE,
        table: fig6,
    },
];

const NO_HAND_HINTED_LD: &str = "no copy of GNU ld with hints written in exists here";
const NOT_IN_THE_SCAN: Figure = Figure::Words("?");
const SCANNED: &str = "?: the paper shows a picture here, without numbers.";

fn one_disk<'a>(disks: &[&'a str]) -> &'a str {
    disks.first().copied().unwrap_or("array4")
}

/// The workload with hints written in that stands for a program's.
fn by_hand(workload: &str) -> Option<&str> {
    match workload {
        "agrep-1999" => Some("search"),
        "agrep-1999-6mb" => Some("search-6mb"),
        "xds" | "xds-few" | "xds-few-12mb" => Some(workload),
        _ => None,
    }
}

fn manual_improvement(stored: &Stored, workload: &str, disk: &str) -> Figure {
    match by_hand(workload) {
        None => Figure::Missing(NO_HAND_HINTED_LD.into()),
        Some(hinted) => Figure::or(stored.improvement(hinted, disk, "manual"), NOT_MEASURED),
    }
}

fn improvement(stored: &Stored, workload: &str, disk: &str) -> Figure {
    Figure::or(stored.improvement(workload, disk, "runahead"), NOT_MEASURED)
}

fn alone(stored: &Stored, workload: &str, disk: &str) -> Figure {
    Figure::or(stored.seconds(workload, disk, "alone"), NOT_MEASURED)
}

const OTHER_DATA: &str = "other files and another version of the program";
const FASTER: &str = "a faster processor and other files; the emulated disk has no track buffer";
const SLOWER: &str = "other files, and an emulated disk without the track buffer that real ones have";
const GAINS_MORE: &str = "on a faster processor more of the time is wait, which is what can go; how much is in \
flight follows the device's use, where TIP bounded it by its horizon";

/// Measured and computed for the disk array4: the replays of its results, and XDataSlice's requests, as strace shows them,
/// dealt to the arms.
const FEW_ARMS: &str = "our arms serve requests in the order in which they come, and our data keeps few of four busy: of \
XDataSlice's next 64 requests seven eighths go to one arm, as its planes lie 1 MB, four stripes, apart; Agrep's files asked \
for 64 at a time still take 0.4 of the time alone; under a memory limit the speculator's memory counts too";

fn table4(stored: &Stored, disks: &[&str]) -> Table {
    let disk = one_disk(disks);
    let papers = [
        [4277.0, 18.09, 68.1, 99.7, 0.0, 68.3],
        [13037.0, 60.16, 54.9, 89.7, 37.18, 78.4],
        [46356.0, 370.66, 97.5, 99.9, 0.0, 97.6],
    ];
    let rows = PROGRAMS.iter().zip(papers).map(|((label, workload), paper)| {
        let alone = stored.find(workload, disk, "alone");
        let ours = stored.find(workload, disk, "runahead");
        let cells = [
            figure(alone.as_ref(), |found| found.median(|run| Some(run.measured.read_calls? as f64))),
            figure(alone.as_ref(), |found| found.median(|run| Some(run.measured.read_bytes? as f64 / 1e6))),
            figure(ours.as_ref(), |found| found.reported_percent("/counts/reads_hinted", "/counts/reads")),
            figure(ours.as_ref(), |found| {
                found.reported_percent("/counts/read_bytes_hinted", "/counts/read_bytes")
            }),
            figure(ours.as_ref(), |found| {
                Some(found.reported("/counts/speculator/unused_pages")? * 4096.0 / 1e6)
            }),
            Figure::Missing(
                "the kernel keeps no count of hints by posix_fadvise; fig3 has their effect".into(),
            ),
        ];
        row(label, paper.map(Figure::Number), cells)
    });
    Table {
        title: String::new(),
        columns: vec![
            column("read calls", 0, "other files; ours counts the loader's reads too", OTHER_DATA),
            column("read MB", 2, OTHER_DATA, OTHER_DATA),
            column(
                "% calls hinted",
                1,
                "the reads that find a file's end are entries of our hint log too, and no hints of the paper's",
                "GNU ld's next read depends on the data of the one before, and speculation that goes on without \
                 them is often wrong; of the others no reason is known",
            ),
            column("% bytes hinted", 1, "", ""),
            column(
                "inaccurate MB",
                2,
                "",
                "ours are pages prefetched and not read; the paper's are hints, prefetched or not",
            ),
            column("% by hand", 1, "", ""),
        ],
        rows: rows.collect(),
        notes: vec!["Writes are left out: results go to memory here, never to the disk under test.".into()],
        other_disk: false,
    }
}

fn table5(stored: &Stored, disks: &[&str]) -> Table {
    let disk = one_disk(disks);
    let papers: [[[f64; 4]; 3]; 3] = [
        [[1031.0, 51.3, 48.4, 0.4], [3003.0, 90.2, 9.1, 0.8], [2947.0, 91.2, 8.8, 0.0]],
        [[5511.0, 46.2, 36.6, 17.3], [12855.0, 27.2, 42.3, 30.5], [10018.0, 89.2, 10.6, 0.3]],
        [[60702.0, 21.1, 20.9, 58.0], [45338.0, 88.9, 10.8, 0.3], [44938.0, 89.4, 10.6, 0.0]],
    ];
    let mut rows = Vec::new();
    for ((label, workload), papers) in PROGRAMS.iter().zip(papers) {
        let hinted = by_hand(workload);
        let versions = [
            ("original", stored.find(workload, disk, "alone"), true),
            ("speculating", stored.find(workload, disk, "runahead"), true),
            ("by hand", hinted.and_then(|workload| stored.find(workload, disk, "manual")), hinted.is_some()),
        ];
        for ((version, found, exists), paper) in versions.iter().zip(papers) {
            let found = found.as_ref();
            let device = match exists {
                true => figure(found, |found| Some(found.figures.device_read_bytes? / 8192.0)),
                false => Figure::Missing(NO_HAND_HINTED_LD.into()),
            };
            let ours = match *version {
                "speculating" => {
                    let [full, partial, unused] = fates(found);
                    let prefetched = figure(found, |found| {
                        Some(found.reported("/counts/speculator/prefetched_pages")? / 2.0)
                    });
                    [prefetched, full, partial, unused]
                }
                _ => std::array::from_fn(|_| {
                    Figure::Missing("the kernel does not count what became of its own read-ahead".into())
                }),
            };
            let [prefetched, full, partial, unused] = ours;
            let papers = paper.map(Figure::Number);
            let [first, rest @ ..] = papers;
            let [second, third, fourth] = rest;
            rows.push(row(
                &format!("{label}, {version}"),
                [first, second, third, fourth, Figure::Empty],
                [prefetched, full, partial, unused, device],
            ));
        }
    }
    Table {
        title: String::new(),
        columns: vec![
            column("8 KB blocks", 0, OTHER_DATA, OTHER_DATA),
            column("fully %", 1, "", FEW_ARMS),
            column("partially %", 1, FEW_ARMS, ""),
            column("unused %", 1, "", ""),
            column("device blocks", 0, "", ""),
        ],
        rows,
        notes: vec![
            "Ours, 8 KB blocks: the pages that speculation asked for, two to a block.".into(),
            "Ours, fully and partially: what was not unused, parted as the program's hinted reads found it.".into(),
            "Device blocks: all that was read at the device, in blocks of 8 KB. The paper has no such figure.".into(),
        ],
        other_disk: false,
    }
}

/// Percent of the prefetched pages that came in time, came late, were never read.
fn fates(found: Option<&Found>) -> [Figure; 3] {
    let unused = |found: &Found| {
        found.reported_percent("/counts/speculator/unused_pages", "/counts/speculator/prefetched_pages")
    };
    let used_as = |found: &Found, path: &str| {
        let both =
            found.reported("/counts/full_prefetches")? + found.reported("/counts/partial_prefetches")?;
        let share = if both > 0.0 { found.reported(path)? / both } else { 0.0 };
        Some((100.0 - unused(found)?) * share)
    };
    [
        figure(found, |found| used_as(found, "/counts/full_prefetches")),
        figure(found, |found| used_as(found, "/counts/partial_prefetches")),
        figure(found, unused),
    ]
}

fn table6(stored: &Stored, disks: &[&str]) -> Table {
    let disk = one_disk(disks);
    let ranges = [
        Figure::Range(0.5, 4.1),
        Figure::Range(95.0, 633.0),
        Figure::Range(12.0, 40.0),
        Figure::Range(0.0, 39.0),
    ];
    let rows = PROGRAMS.iter().map(|(label, workload)| {
        let alone = stored.find(workload, disk, "alone");
        let ours = stored.find(workload, disk, "runahead");
        let more = |value: fn(&Run) -> f64| {
            figure(ours.as_ref(), |ours| {
                let before = alone.as_ref()?.median(|run| Some(value(run)))?;
                Some(ours.median(|run| Some(value(run)))? - before)
            })
        };
        let resident = more(|run| run.measured.most_resident_kb as f64 / 1024.0);
        let mirror = figure(ours.as_ref(), |found| {
            Some(found.reported("/counts/speculator/pages_most")? * 4096.0 / f64::from(1 << 20))
        });
        let footprint = match (resident.number(), mirror.number()) {
            (Some(program), Some(mirror)) => Figure::Number(program + mirror),
            _ => mirror,
        };
        let cells = [
            footprint,
            more(|run| run.measured.minor_faults as f64),
            more(|run| run.measured.major_faults as f64),
            figure(ours.as_ref(), |found| found.reported("/counts/speculator/signals")),
        ];
        let paper = match *label {
            "Gnuld" => [4.1, 633.0, 40.0, 39.0].map(Figure::Number),
            _ => ranges.clone(),
        };
        row(label, paper, cells)
    });
    let mirror_is = "ours is the mirror, page by page as speculation touches it, and what the agent needs";
    let elsewhere = "the paper speculates in a thread of the program, we in a process of its own: \
        the program's own faults hardly change";
    Table {
        title: String::new(),
        columns: vec![
            column("footprint MB", 1, mirror_is, mirror_is),
            column("reclaims", 0, "", elsewhere),
            column("faults", 0, "", elsewhere),
            column(
                "signals",
                0,
                "ours are the speculator's, one for a page that it lacks; the program sees none",
                "",
            ),
        ],
        rows: rows.collect(),
        notes: vec![
            "All are increases over the program alone. Of Agrep and XDataSlice the scan has ranges only."
                .into(),
            "Reclaims and faults are the program's, not the speculator's.".into(),
        ],
        other_disk: false,
    }
}

fn table7(stored: &Stored, disks: &[&str]) -> Table {
    let disk = one_disk(disks);
    let rows = [
        ("Agrep, 6 MB", "agrep-1999-6mb", [21.3, 69.0, 70.0]),
        ("Agrep, 64 MB (all)", "agrep-1999", [21.2, 70.0, 71.0]),
        ("Gnuld, 6 MB (140)", "gnuld-140mb", [106.3, 30.0, 68.0]),
        ("Gnuld, 12 MB (200)", "gnuld-200mb", [89.5, 29.0, 66.0]),
        ("Gnuld, 64 MB (all)", "gnuld", [56.5, 20.0, 55.0]),
        ("XDataSlice, 12 MB", "xds-few-12mb", [324.6, 70.0, 71.0]),
        ("XDataSlice, 64 MB (all)", "xds-few", [279.0, 69.0, 69.0]),
    ]
    .map(|(label, workload, paper)| {
        let ours = [
            alone(stored, workload, disk),
            improvement(stored, workload, disk),
            manual_improvement(stored, workload, disk),
        ];
        row(label, paper.map(Figure::Number), ours)
    });
    Table {
        title: String::new(),
        columns: improvements(),
        rows: rows.into(),
        notes: vec![
            "Ours limit all of the run's memory, the program's own and the speculator's included, not the file cache \
             alone; in brackets our limit where it is another, (all): the machine's."
                .into(),
            "xds-few has 3 of the 25 slices.".into(),
        ],
        other_disk: false,
    }
}

fn fig3(stored: &Stored, disks: &[&str]) -> Table {
    let disk = one_disk(disks);
    let papers = [[21.4, 69.0, 71.0], [89.5, 29.0, 66.0], [324.6, 70.0, 71.0]];
    let rows = PROGRAMS.iter().zip(papers).map(|((label, workload), paper)| {
        let ours = [
            alone(stored, workload, disk),
            improvement(stored, workload, disk),
            manual_improvement(stored, workload, disk),
        ];
        row(label, paper.map(Figure::Number), ours)
    });
    Table {
        title: String::new(),
        columns: improvements(),
        rows: rows.collect(),
        notes: vec![
            "Agrep by hand is our own reader of the same files, against itself without hints.".into(),
        ],
        other_disk: false,
    }
}

fn fig4(stored: &Stored, disks: &[&str]) -> Table {
    let disk = one_disk(disks);
    let rows = PROGRAMS.iter().map(|(label, workload)| {
        let warm = stored.find(workload, disk, "runahead-warm");
        let ours = [
            Figure::or(stored.improvement(workload, disk, "ignored").map(|less| -less), NOT_MEASURED),
            figure(warm.as_ref(), |found| Some(100.0 * (1.0 / found.figures.ratio? - 1.0))),
        ];
        row(label, [Figure::Range(1.0, 4.0), Figure::Empty], ours)
    });
    Table {
        title: String::new(),
        columns: vec![
            column("ignored, % more", 1, "", "the difference is smaller than that between two runs"),
            column("warm, % more", 1, "", ""),
        ],
        rows: rows.collect(),
        notes: vec![
            "The paper's bars have no numbers; its text says at least 1% and at most 4%.".into(),
            "Warm: everything cached, hints not ignored. The paper has no such figure.".into(),
        ],
        other_disk: false,
    }
}

fn fig5(stored: &Stored, disks: &[&str]) -> Table {
    let papers = |label: &str, disk: &str| -> [Figure; 3] {
        let column = ["disk1", "disk2", "array4", "disk10"].iter().position(|name| *name == disk);
        let alone = match label {
            "Agrep" => [23.8, 24.1, 21.4, 20.1],
            "Gnuld" => [93.7, 101.3, 89.5, 82.8],
            _ => [303.5, 292.0, 324.6, 265.7],
        };
        let gains = |disk: &str| match (label, disk) {
            ("Agrep", "array4") => [Figure::Number(69.0), Figure::Number(71.0)],
            ("Gnuld", "array4") => [Figure::Number(29.0), Figure::Number(66.0)],
            (_, "array4") => [Figure::Number(70.0), Figure::Number(71.0)],
            _ => [NOT_IN_THE_SCAN, NOT_IN_THE_SCAN],
        };
        let [speculating, by_hand] = gains(disk);
        [column.map_or(NOT_IN_THE_SCAN, |column| Figure::Number(alone[column])), speculating, by_hand]
    };
    sweep(stored, disks, papers)
}

fn fig6(stored: &Stored, disks: &[&str]) -> Table {
    let papers = |label: &str, disk: &str| -> [Figure; 3] {
        match (label, disk) {
            ("Agrep", "array4") => [21.4, 69.0, 71.0].map(Figure::Number),
            ("Gnuld", "array4") => [89.5, 29.0, 66.0].map(Figure::Number),
            (_, "array4") => [324.6, 70.0, 71.0].map(Figure::Number),
            _ => [NOT_IN_THE_SCAN, NOT_IN_THE_SCAN, NOT_IN_THE_SCAN],
        }
    };
    let mut table = sweep(stored, disks, papers);
    table.notes.push(
        "As the paper, we slow the disk down instead of waiting for faster processors; times are as measured, \
         not divided by the factor."
            .into(),
    );
    table
}

/// What figures 3, 5, 6 and table 7 show of each program.
fn improvements() -> Vec<Column> {
    vec![
        column("alone s", 1, SLOWER, FASTER),
        column("speculating, % less", 0, GAINS_MORE, FEW_ARMS),
        column("by hand, % less", 0, GAINS_MORE, FEW_ARMS),
    ]
}

/// Every program on every disk.
fn sweep(stored: &Stored, disks: &[&str], papers: impl Fn(&str, &str) -> [Figure; 3]) -> Table {
    let mut rows = Vec::new();
    for (label, workload) in
        PROGRAMS.map(|(label, name)| (label, if name == "xds" { "xds-few" } else { name }))
    {
        for disk in disks {
            let seconds = alone(stored, workload, disk);
            let ours =
                [seconds, improvement(stored, workload, disk), manual_improvement(stored, workload, disk)];
            rows.push(row(&format!("{label}, {disk}"), papers(label, disk), ours));
        }
    }
    Table {
        title: String::new(),
        columns: improvements(),
        rows,
        notes: vec![SCANNED.into(), "XDataSlice: 3 of the paper's 25 slices.".into()],
        other_disk: false,
    }
}

fn column(name: &'static str, places: usize, more: &'static str, less: &'static str) -> Column {
    Column { name, places, more, less }
}

fn row<const N: usize>(label: &str, paper: [Figure; N], ours: [Figure; N]) -> Row {
    Row { label: label.into(), cells: paper.into_iter().zip(ours).collect() }
}
