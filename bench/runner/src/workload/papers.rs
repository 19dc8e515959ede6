//! The papers' programs: the same one where it still exists, else the nearest that does.
//!
//! Sizes are theirs where a run takes seconds on today's machine, and said where they are not.

use super::commands::*;
use super::{Capability, PLAIN, Touches, Workload};
use crate::data::postgres;

const AGREP: &[(&str, &str)] = &[("agrep", "glimpse")];
const CC: &[(&str, &str)] = &[("cc", "gcc")];
const LD: &[(&str, &str)] = &[("ld", "binutils"), ("gcc", "gcc"), ("make", "make")];
const POSTGRES: &[(&str, &str)] = &[("/usr/lib/postgresql/15/bin/postgres", "postgresql-15")];
const SPHINX: &[(&str, &str)] = &[("pocketsphinx_continuous", "pocketsphinx")];
const PAPERS: &[&str] = &["papers", "all"];

/// In none of the files: the papers' Agrep looked for a string that does not occur.
const ABSENT: &str = "no_such_word_here";

/// Reads ahead that hand-written hints disclose: TIP's horizon was of this order.
const HINTS: &str = "64";

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "agrep-1999",
        about: "agrep for a word that does not occur, 1349 files of 18 MB",
        ..AGREP_1999
    },
    Workload {
        name: "agrep-2003",
        about: "the same, 8971 files of 105 MB",
        data: &["source-2003"],
        needs: AGREP,
        lists: PAPERS,
        touches: Touches::Contents("source-2003", EVERY),
        command: |place| with_files(place, &["agrep", ABSENT], "source-2003", EVERY),
        exit: 1,
        ..PLAIN
    },
    Workload {
        name: "search",
        about: "our own agrep-like reader over the 1349 files: the one that can be hinted by hand",
        ..SEARCH
    },
    Workload { name: "gnuld", about: "GNU ld, 562 objects", ..GNULD },
    Workload {
        name: "xds",
        about: "25 oblique slices of a volume of 512 MB, blocks of 8 KB, drawn as PNGs",
        data: &["volume"],
        lists: PAPERS,
        touches: Touches::Contents("volume", EVERY),
        command: |place| slices(place, &["--oblique"]),
        manual: Some(|place| slices(place, &["--oblique", "--hints", HINTS])),
        ..PLAIN
    },
    Workload { name: "xds-few", about: "3 of these slices, for sweeps over slow disks", ..XDS_FEW },
    Workload {
        name: "postgres-index",
        about: "PostgreSQL builds two indexes on each of four AS3AP relations, 500 MB",
        data: &["postgres"],
        needs: POSTGRES,
        lists: PAPERS,
        touches: Touches::Contents("postgres", EVERY),
        command: |place| postgres_runs(place, "build.sql"),
        helpers: &["/usr/lib/postgresql/15/bin/postgres"],
        never_root: true,
        ..PLAIN
    },
    Workload {
        name: "postgres-lookup",
        about: "PostgreSQL, 3000 look-ups by index",
        data: &["postgres"],
        needs: POSTGRES,
        lists: PAPERS,
        touches: Touches::Contents("postgres", EVERY),
        command: |place| postgres_runs(place, "look-up.sql"),
        helpers: &["/usr/lib/postgresql/15/bin/postgres"],
        never_root: true,
        ..PLAIN
    },
    Workload {
        name: "sphinx",
        about: "pocketsphinx recognises 18 seconds of speech, model and all read from the disk",
        ..SPEECH
    },
    // The papers' caches and memories were small against the data, and so are these against what the
    // programs hold at their largest: 107 MB here (96 MB ends this one), and 104 MB in ld, whose output of
    // 20 MB lies in memory too.
    Workload {
        name: "sphinx-100mb",
        about: "the same with 100 MB of memory",
        memory_mb: Some(100),
        ..SPEECH
    },
    Workload { name: "sphinx-110mb", about: "the same with 110 MB", memory_mb: Some(110), ..SPEECH },
    Workload { name: "sphinx-130mb", about: "the same with 130 MB", memory_mb: Some(130), ..SPEECH },
    Workload { name: "gnuld-140mb", about: "gnuld with 140 MB of memory", memory_mb: Some(140), ..GNULD },
    Workload { name: "gnuld-200mb", about: "gnuld with 200 MB", memory_mb: Some(200), ..GNULD },
    Workload {
        name: "agrep-1999-6mb",
        about: "agrep-1999 with 6 MB of memory, the paper's smallest cache",
        memory_mb: Some(6),
        ..AGREP_1999
    },
    Workload { name: "search-6mb", about: "search with 6 MB of memory", memory_mb: Some(6), ..SEARCH },
    Workload { name: "xds-few-12mb", about: "xds-few with 12 MB of memory", memory_mb: Some(12), ..XDS_FEW },
    Workload {
        name: "matvec-file",
        about: "a matrix of 512 MB, mapped, times a vector, in 128 MB of memory",
        data: &["volume"],
        lists: PAPERS,
        touches: Touches::Contents("volume", EVERY),
        command: |place| own(place, "bench-matvec", &["--file", "volume/volume.raw"]),
        memory_mb: Some(128),
        wants: Some(Capability::PageFaults),
        ..PLAIN
    },
    Workload {
        name: "matvec-swap",
        about: "a matrix of 256 MB of memory times a vector, four times, in 96 MB and swap on the disk",
        // Nothing of it is read; its file is there to be looked at for coldness. Four times, as to fill the memory
        // takes as long as two passes through it.
        data: &["small"],
        lists: PAPERS,
        touches: Touches::Contents("small", 1),
        command: |place| own(place, "bench-matvec", &["--memory-mb", "256", "--passes", "4"]),
        memory_mb: Some(96),
        swap_mb: Some(512),
        wants: Some(Capability::PageFaults),
        ..PLAIN
    },
    Workload {
        name: "resident-1",
        about: "6000 preads, every 8th depends on data; 1 MB of memory written to",
        command: |place| resident(place, "1"),
        ..RESIDENT
    },
    Workload {
        name: "resident-100",
        about: "the same with 100 MB",
        command: |place| resident(place, "100"),
        ..RESIDENT
    },
    Workload {
        name: "resident-1000",
        about: "the same with 1000 MB",
        command: |place| resident(place, "1000"),
        ..RESIDENT
    },
];

const AGREP_1999: Workload = Workload {
    data: &["source-1999"],
    needs: AGREP,
    lists: PAPERS,
    touches: Touches::Contents("source-1999", EVERY),
    command: |place| with_files(place, &["agrep", ABSENT], "source-1999", EVERY),
    exit: 1,
    ..PLAIN
};

const SEARCH: Workload = Workload {
    data: &["source-1999"],
    needs: CC,
    lists: PAPERS,
    touches: Touches::Contents("source-1999", EVERY),
    command: |place| {
        let program = compiled(place, "search")?;
        with_files(place, &[&program, ABSENT], "source-1999", EVERY)
    },
    manual: Some(|place| {
        let program = compiled(place, "search")?;
        with_files(place, &[&program, "-a", HINTS, ABSENT], "source-1999", EVERY)
    }),
    exit: 1,
    ..PLAIN
};

const XDS_FEW: Workload = Workload {
    data: &["volume"],
    lists: PAPERS,
    touches: Touches::Contents("volume", EVERY),
    command: |place| slices(place, &["--oblique", "--slices", "3"]),
    manual: Some(|place| slices(place, &["--oblique", "--slices", "3", "--hints", HINTS])),
    ..PLAIN
};

const SPEECH: Workload = Workload {
    data: &["speech"],
    needs: SPHINX,
    lists: PAPERS,
    touches: Touches::Contents("speech", EVERY),
    command: |_| speech(),
    ..PLAIN
};

const GNULD: Workload = Workload {
    data: &["objects-562"],
    needs: LD,
    lists: PAPERS,
    touches: Touches::Contents("objects-562", EVERY),
    command: |place| link(place, "objects-562"),
    ..PLAIN
};

const RESIDENT: Workload =
    Workload { data: &["blocks"], lists: PAPERS, touches: Touches::Contents("blocks", EVERY), ..PLAIN };

type Words = anyhow::Result<Vec<std::ffi::OsString>>;

fn slices(place: &super::Place, more: &[&str]) -> Words {
    let scratch = place.scratch.to_string_lossy().into_owned();
    own(place, "bench-slices", &[more, &["--out", &scratch, "volume/volume.raw"]].concat())
}

fn resident(place: &super::Place, megabytes: &str) -> Words {
    let reads = ["--reads", "6000", "--every", "8", "--resident-mb", megabytes];
    own(place, "bench-preads", &[&reads[..], &["blocks/blocks.raw"]].concat())
}

/// In single-user mode, which takes its statements, one a line, from standard input. A small cache of its
/// own, as the subject is the disk; nothing is synced (-F), and index builds are taken back.
fn postgres_runs(place: &super::Place, statements: &str) -> Words {
    let script = place.data.join("postgres").join(statements);
    let server = format!("{}/postgres", postgres::PROGRAMS);
    let shell = "statements=$1; shift; exec \"$@\" < \"$statements\"";
    let mut all = words(&["sh", "-c", shell, "sh"])?;
    all.push(script.into());
    all.extend(words(&[&server, "--single", "-F", "-D", "postgres/cluster"])?);
    for setting in ["shared_buffers=16MB", "maintenance_work_mem=256MB", "log_min_messages=panic"] {
        all.extend(words(&["-c", setting])?);
    }
    all.extend(words(&["postgres"])?);
    Ok(all)
}

fn speech() -> Words {
    words(&[
        "pocketsphinx_continuous",
        "-infile",
        "speech/speech.raw",
        "-hmm",
        "speech/en-us/en-us",
        "-lm",
        "speech/en-us/en-us.lm.bin",
        "-dict",
        "speech/en-us/cmudict-en-us.dict",
        // It logs times there, which differ in every run.
        "-logfn",
        "/dev/null",
    ])
}
