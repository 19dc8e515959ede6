//! Issue 2's table: programs with floors.

use super::commands::*;
use super::{PLAIN, Touches, Workload};

const AGREP: &[(&str, &str)] = &[("agrep", "glimpse")];
const RIPGREP: &[(&str, &str)] = &[("rg", "ripgrep")];
const GIT: &[(&str, &str)] = &[("git", "git")];
const PYTHON: &[(&str, &str)] = &[("python3", "python3")];
const CSCOPE: &[(&str, &str)] = &[("cscope", "cscope")];
const SQLITE: &[(&str, &str)] = &[("sqlite3", "sqlite3")];
const LD: &[(&str, &str)] = &[("ld", "binutils"), ("gcc", "gcc"), ("make", "make")];
const CORE: &[&str] = &["core", "all"];

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "agrep",
        about: "agrep for a word in 9000 kernel source files",
        data: &["kernel"],
        needs: AGREP,
        floor: floor(1.7, 7.0),
        lists: CORE,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| with_files(place, &["agrep", "spin_lock_irqsave"], "kernel", EVERY),
        ..PLAIN
    },
    Workload {
        name: "grep",
        about: "grep -c over the same files as arguments",
        data: &["kernel"],
        floor: floor(1.7, 9.0),
        lists: CORE,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| with_files(place, &["grep", "-c", "spin_lock_irqsave"], "kernel", EVERY),
        ..PLAIN
    },
    Workload {
        name: "grep-r",
        about: "grep -r over the same tree",
        data: &["kernel"],
        floor: floor(1.7, 9.0),
        lists: CORE,
        touches: Touches::Contents("kernel", EVERY),
        command: |_| words(&["grep", "-rc", "spin_lock_irqsave", "kernel"]),
        ..PLAIN
    },
    Workload {
        name: "ripgrep",
        about: "ripgrep -j1 over the same tree",
        data: &["kernel"],
        needs: RIPGREP,
        floor: floor(1.7, 9.0),
        lists: CORE,
        touches: Touches::Contents("kernel", EVERY),
        command: |_| words(&["rg", "--no-config", "-j1", "-c", "spin_lock_irqsave", "kernel"]),
        ..PLAIN
    },
    Workload {
        name: "md5sum",
        about: "md5sum of 3000 files",
        data: &["kernel"],
        floor: floor(1.4, 8.0),
        lists: CORE,
        touches: Touches::Contents("kernel", 3000),
        command: |place| with_files(place, &["md5sum"], "kernel", 3000),
        ..PLAIN
    },
    Workload {
        name: "cat",
        about: "cat of 3000 files to a pipe",
        data: &["kernel"],
        floor: floor(1.4, 8.0),
        lists: CORE,
        touches: Touches::Contents("kernel", 3000),
        command: |place| with_files(place, &["cat"], "kernel", 3000),
        ..PLAIN
    },
    Workload {
        name: "tar",
        about: "tar of the tree of 9000 files to a pipe",
        data: &["kernel"],
        floor: floor(1.3, 8.0),
        lists: CORE,
        touches: Touches::Contents("kernel", EVERY),
        command: |_| words(&["tar", "-cf", "-", "kernel"]),
        ..PLAIN
    },
    Workload {
        name: "git-grep",
        about: "git grep, 1 thread, 9000 files",
        data: &["git"],
        needs: GIT,
        floor: floor(1.5, 9.0),
        lists: CORE,
        touches: Touches::Contents("git", EVERY),
        command: |_| {
            // The tree belongs to whoever made it, and git asks about that.
            let safe = ["git", "-c", "safe.directory=*", "-c", "grep.threads=1", "-C", "git"];
            words(&[&safe[..], &["grep", "-c", "spin_lock_irqsave"]].concat())
        },
        ..PLAIN
    },
    Workload {
        name: "python",
        about: "python3 reading 3000 files in a loop",
        data: &["kernel"],
        needs: PYTHON,
        floor: floor(1.4, 8.0),
        lists: CORE,
        touches: Touches::Contents("kernel", 3000),
        command: |place| {
            let list = list(place, "kernel", 3000)?;
            let script = place.bench.join("workloads/readall.py");
            Ok(vec![python(), script.into(), list.into()])
        },
        ..PLAIN
    },
    Workload {
        name: "preads",
        about: "20,000 random 4 KiB preads, offsets computed",
        data: &["blocks"],
        floor: floor(6.5, 20.0),
        lists: CORE,
        touches: Touches::Contents("blocks", EVERY),
        command: |place| own(place, "bench-preads", &["--reads", "20000", "blocks/blocks.raw"]),
        manual: Some(|place| {
            own(place, "bench-preads", &["--reads", "20000", "--hints", "64", "blocks/blocks.raw"])
        }),
        ..PLAIN
    },
    Workload {
        name: "slices",
        about: "25 slices of a 512^3 float volume, a pread for each row segment",
        data: &["volume"],
        floor: floor(6.0, 20.0),
        lists: &["core", "hints", "all"],
        touches: Touches::Contents("volume", EVERY),
        command: |place| {
            let scratch = place.scratch.to_string_lossy().into_owned();
            own(place, "bench-slices", &["--out", &scratch, "volume/volume.raw"])
        },
        manual: Some(|place| {
            let scratch = place.scratch.to_string_lossy().into_owned();
            own(place, "bench-slices", &["--hints", "64", "--out", &scratch, "volume/volume.raw"])
        }),
        hinted: Some(|place| super::manager::slicing(place, &["--manual"])),
        ..PLAIN
    },
    Workload {
        name: "cscope",
        about: "cscope -b -k, 3000 files",
        data: &["kernel"],
        needs: CSCOPE,
        floor: floor(1.15, 4.5),
        lists: CORE,
        touches: Touches::Contents("kernel", 3000),
        command: |place| {
            let list = list(place, "kernel", 3000)?;
            let out = place.scratch.join("cscope.out");
            Ok(vec!["cscope".into(), "-bk".into(), "-f".into(), out.into(), "-i".into(), list.into()])
        },
        ..PLAIN
    },
    Workload {
        name: "sqlite-index",
        about: "sqlite3, 1500 look-ups by index in 1 GB",
        data: &["database"],
        needs: SQLITE,
        floor: floor(1.0, 7.0),
        lists: CORE,
        touches: Touches::Contents("database", EVERY),
        command: |place| look_up(place, "by-key.sql"),
        ..PLAIN
    },
    Workload {
        name: "sqlite-rowid",
        about: "sqlite3, 1500 look-ups by row number in 1 GB",
        data: &["database"],
        needs: SQLITE,
        floor: floor(1.0, 7.0),
        lists: CORE,
        touches: Touches::Contents("database", EVERY),
        command: |place| look_up(place, "by-number.sql"),
        ..PLAIN
    },
    Workload {
        name: "ld",
        about: "GNU ld, 490 objects with debug information",
        data: &["objects"],
        needs: LD,
        floor: floor(1.0, 2.2),
        lists: CORE,
        touches: Touches::Contents("objects", EVERY),
        command: |place| link(place, "objects"),
        ..PLAIN
    },
    Workload {
        name: "du",
        about: "du -s, 48,000 files",
        data: &["tree"],
        floor: floor(1.0, 1.0),
        lists: CORE,
        touches: Touches::Names("tree"),
        command: |_| words(&["du", "-s", "tree"]),
        ..PLAIN
    },
    Workload {
        name: "find",
        about: "find -ls, 48,000 files",
        data: &["tree"],
        floor: floor(1.0, 1.0),
        lists: CORE,
        touches: Touches::Names("tree"),
        command: |_| words(&["find", "tree", "-ls"]),
        ..PLAIN
    },
    Workload {
        name: "every-2nd",
        about: "6000 preads, every 2nd offset depends on the data just read",
        data: &["blocks"],
        floor: floor(1.0, 1.0),
        lists: CORE,
        touches: Touches::Contents("blocks", EVERY),
        command: |place| {
            own(place, "bench-preads", &["--reads", "6000", "--every", "2", "blocks/blocks.raw"])
        },
        ..PLAIN
    },
    Workload {
        name: "chain",
        about: "4000 preads, each offset depends on the data just read",
        data: &["blocks"],
        floor: floor(1.0, 1.0),
        lists: CORE,
        touches: Touches::Contents("blocks", EVERY),
        command: |place| {
            own(place, "bench-preads", &["--reads", "4000", "--every", "1", "blocks/blocks.raw"])
        },
        ..PLAIN
    },
];
