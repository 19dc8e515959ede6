//! Programs that read through mappings: what they wait for are page faults.

use super::commands::*;
use super::{Capability, PLAIN, Touches, Workload};
use crate::data::generated::ENTRIES;

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "columns",
        about: "a column of a mapped matrix of 1 GB, rows of 64 KB",
        data: &["blocks"],
        floor: floor(6.0, 15.0),
        touches: Touches::Contents("blocks", EVERY),
        command: |place| own(place, MAPPED, &["blocks/blocks.raw", "columns"]),
        ..MAPPED_PLAIN
    },
    Workload {
        name: "gather",
        about: "10,000 words of a mapped file of 1 GB at computed places",
        data: &["blocks"],
        floor: floor(5.0, 25.0),
        touches: Touches::Contents("blocks", EVERY),
        command: |place| own(place, MAPPED, &["blocks/blocks.raw", "computed", "10000"]),
        ..MAPPED_PLAIN
    },
    Workload {
        name: "gather-random",
        about: "the same, with the kernel told not to read around (MADV_RANDOM)",
        data: &["blocks"],
        floor: floor(5.0, 25.0),
        touches: Touches::Contents("blocks", EVERY),
        command: |place| own(place, MAPPED, &["--random", "blocks/blocks.raw", "computed", "10000"]),
        ..MAPPED_PLAIN
    },
    Workload {
        name: "gather-indexed",
        about: "10,000 words at places that stand in a second mapped file",
        data: &["blocks", "volume"],
        floor: floor(5.0, 20.0),
        touches: Touches::Contents("blocks", EVERY),
        command: |place| own(place, MAPPED, &["blocks/blocks.raw", "indexed", "volume/volume.raw", "10000"]),
        ..MAPPED_PLAIN
    },
    Workload {
        name: "gather-twice",
        about: "5000 words at places that stand at computed places of a second mapped file",
        data: &["blocks", "volume"],
        floor: floor(5.0, 20.0),
        touches: Touches::Contents("blocks", EVERY),
        command: |place| own(place, MAPPED, &["blocks/blocks.raw", "twice", "volume/volume.raw", "5000"]),
        ..MAPPED_PLAIN
    },
    Workload {
        name: "compiler-start",
        about: "the C compiler of 33 MB, itself cold, over an empty file, as a shell's child",
        data: &["compiler"],
        needs: &[("gcc", "gcc")],
        touches: Touches::Contents("compiler", EVERY),
        command: |_| Ok(["sh", "-c", "compiler/cc1 -quiet /dev/null -o -; exit"].map(Into::into).into()),
        ..MAPPED_PLAIN
    },
    Workload {
        name: "sqlite-index-mapped",
        about: "sqlite3, 1500 look-ups by index in 1 GB that it maps (PRAGMA mmap_size)",
        data: &["database"],
        needs: SQLITE,
        floor: floor(1.5, 4.0),
        touches: Touches::Contents("database", EVERY),
        command: |place| look_up_mapped(place, "by-key.sql"),
        ..MAPPED_PLAIN
    },
    Workload {
        name: "sqlite-rowid-mapped",
        about: "the same by row number",
        data: &["database"],
        needs: SQLITE,
        floor: floor(1.5, 4.0),
        touches: Touches::Contents("database", EVERY),
        command: |place| look_up_mapped(place, "by-number.sql"),
        ..MAPPED_PLAIN
    },
    Workload {
        name: "tree",
        about: "5000 look-ups in a mapped B-tree of 530 MB, as LMDB's are",
        data: &["entries"],
        floor: floor(1.5, 4.0),
        touches: Touches::Contents("entries", EVERY),
        command: |place| {
            own(place, "bench-tree", &["entries/tree.pages", &ENTRIES.to_string(), "5000", "--random"])
        },
        ..MAPPED_PLAIN
    },
    Workload {
        name: "memmap-slices",
        about: "NumPy, 8 slices through a memmap of 512 x 512 x 512 floats",
        data: &["volume", "python"],
        needs: PYTHON,
        floor: floor(1.5, 4.0),
        touches: Touches::Contents("volume", EVERY),
        command: |place| memmap(place, "slices"),
        helpers: &["/usr/bin/python3"],
        ..MAPPED_PLAIN
    },
    Workload {
        name: "memmap-rows",
        about: "NumPy, 4000 rows of such a memmap by a list of their numbers",
        data: &["volume", "python"],
        needs: PYTHON,
        floor: floor(1.5, 4.0),
        touches: Touches::Contents("volume", EVERY),
        command: |place| memmap(place, "rows"),
        helpers: &["/usr/bin/python3"],
        ..MAPPED_PLAIN
    },
    Workload {
        name: "gather-90",
        about: "40,000 words of a mapped file of 1 GB at computed places, 90% of its pages cached",
        resident_percent: 90,
        floor: floor(1.3, 2.0),
        ..PARTLY_CACHED
    },
    Workload {
        name: "gather-98",
        about: "the same with 98% of the pages cached",
        resident_percent: 98,
        floor: floor(0.98, 0.98),
        ..PARTLY_CACHED
    },
    Workload {
        name: "git-grep-pack",
        about: "git grep in the 2800 makefiles of a kernel's commit, all objects in one mapped pack of 250 MB",
        data: &["packs"],
        needs: &[("git", "git")],
        floor: floor(1.5, 4.0),
        touches: Touches::Contents("packs", EVERY),
        command: |_| {
            // The repository belongs to whoever made it, and git asks about that.
            let safe = ["git", "-c", "safe.directory=*", "-c", "grep.threads=1", "-C", "packs/linux.git"];
            words(&[&safe[..], &["grep", "-c", "obj-m", "HEAD", "--", "*Makefile"]].concat())
        },
        ..MAPPED_PLAIN
    },
    Workload {
        name: "mgrid-file",
        about: "NAS MG, class A, one step, its 432 MB of arrays a mapped file, in 160 MB",
        floor: floor(1.3, 2.0),
        command: |place| nas(place, "mg", true),
        memory_mb: Some(160),
        writes_mb: 440,
        ..NAS
    },
    Workload {
        name: "fftpde-file",
        about: "NAS FT, class A, one step, its 336 MB of arrays a mapped file, in 128 MB",
        floor: floor(1.3, 2.0),
        command: |place| nas(place, "ft", true),
        memory_mb: Some(128),
        writes_mb: 340,
        ..NAS
    },
    Workload {
        name: "faults-useless",
        about: "a million faults on fresh memory, and 1200 on places of a mapped file that nobody can know",
        data: &["blocks"],
        floor: floor(0.98, 0.98),
        touches: Touches::Contents("blocks", EVERY),
        command: |place| own(place, "bench-faults", &["blocks/blocks.raw"]),
        ..MAPPED_PLAIN
    },
    Workload {
        name: "chain-mapped",
        about: "4000 words of a mapped file, each at a place that follows from the one before",
        data: &["blocks"],
        floor: floor(0.97, 1.0),
        touches: Touches::Contents("blocks", EVERY),
        command: |place| own(place, MAPPED, &["blocks/blocks.raw", "chain", "4000"]),
        ..MAPPED_PLAIN
    },
    Workload {
        name: "scan-mapped",
        about: "a mapped matrix of 512 MB times a vector, from end to end: read-ahead's own",
        data: &["volume"],
        floor: floor(0.97, 1.0),
        touches: Touches::Contents("volume", EVERY),
        command: |place| own(place, "bench-matvec", &["--file", "volume/volume.raw"]),
        ..MAPPED_PLAIN
    },
    Workload {
        name: "gather-swap",
        about: "40,000 words of 288 MB of memory at computed places, in 96 MB and swap on the disk",
        floor: floor(2.0, 8.0),
        command: |place| own(place, "bench-swapped", &["--memory-mb", "288", "--count", "40000"]),
        ..SWAPPED
    },
    Workload {
        name: "chain-swap",
        about: "8000 such words, each at a place that follows from the one before",
        floor: floor(0.97, 1.0),
        command: |place| own(place, "bench-swapped", &["--memory-mb", "288", "--count", "8000", "--chain"]),
        ..SWAPPED
    },
];

/// Nothing is read of its file; it is there to be looked at for coldness.
const SWAPPED: Workload = Workload {
    data: &["small"],
    touches: Touches::Contents("small", 1),
    memory_mb: Some(96),
    swap_mb: Some(640),
    ..MAPPED_PLAIN
};

const PARTLY_CACHED: Workload = Workload {
    data: &["blocks"],
    touches: Touches::Contents("blocks", EVERY),
    command: |place| own(place, MAPPED, &["blocks/blocks.raw", "computed", "40000"]),
    ..MAPPED_PLAIN
};

/// Nothing is read of its file here either.
const NAS: Workload = Workload {
    data: &["small"],
    needs: &[("cc", "gcc")],
    touches: Touches::Contents("small", 1),
    ..MAPPED_PLAIN
};

const SQLITE: &[(&str, &str)] = &[("sqlite3", "sqlite3")];
const PYTHON: &[(&str, &str)] = &[("/usr/bin/python3", "python3")];

const MAPPED: &str = "bench-mapped";

const MAPPED_PLAIN: Workload =
    Workload { lists: &["mapped", "all"], wants: Some(Capability::PageFaults), ..PLAIN };
