//! Programs that read through mappings: what they wait for are page faults.

use super::commands::*;
use super::{Capability, PLAIN, Touches, Workload};

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
];

const MAPPED: &str = "bench-mapped";

const MAPPED_PLAIN: Workload =
    Workload { lists: &["mapped", "all"], wants: Some(Capability::PageFaults), ..PLAIN };
