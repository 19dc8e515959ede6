//! What a manager of prefetches has to reach: hints by hand beside speculation, others at the same device, little
//! memory, two at once, nothing but wrong hints.

use super::commands::*;
use super::{PLAIN, Touches, Workload};

const MANAGER: &[&str] = &["manager", "all"];
const HINTS: &[&str] = &["hints", "manager", "all"];
const WORD: &str = "spin_lock_irqsave";

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "hint-search",
        about: "our own agrep-like reader, 9000 files; it can give hints itself",
        data: &["kernel"],
        lists: HINTS,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| searching(place, &[]),
        hinted: Some(|place| searching(place, &["--manual"])),
        ..PLAIN
    },
    Workload {
        name: "hint-objects",
        about: "our own ld-like reader, 490 objects; it can give hints itself",
        data: &["objects"],
        lists: HINTS,
        touches: Touches::Contents("objects", EVERY),
        command: |place| linking(place, &[]),
        hinted: Some(|place| linking(place, &["--manual"])),
        ..PLAIN
    },
    Workload {
        name: "grep-20mb",
        about: "grep over 77 MB of files in 20 MB of memory",
        data: &["kernel"],
        lists: MANAGER,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| with_files(place, &["grep", "-c", WORD], "kernel", EVERY),
        memory_mb: Some(20),
        ..PLAIN
    },
    Workload {
        name: "slices-128mb",
        about: "slices of a volume of 512 MB in 128 MB of memory",
        data: &["volume"],
        lists: MANAGER,
        touches: Touches::Contents("volume", EVERY),
        command: |place| slicing(place, &[]),
        hinted: Some(|place| slicing(place, &["--manual"])),
        memory_mb: Some(128),
        ..PLAIN
    },
    Workload {
        name: "two-at-once",
        about: "grep over 9000 files and slices of a volume, started together",
        data: &["kernel", "volume"],
        lists: MANAGER,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| two(place, "&"),
        ..PLAIN
    },
    Workload {
        name: "two-in-turn",
        about: "the same two, one after the other",
        data: &["kernel", "volume"],
        lists: MANAGER,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| two(place, ";"),
        ..PLAIN
    },
    Workload {
        name: "beside-grep",
        about: "grep over 9000 files, and somebody else who reads page by page",
        data: &["kernel", "blocks"],
        lists: MANAGER,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| with_files(place, &["grep", "-c", WORD], "kernel", EVERY),
        neighbour: Some("blocks/blocks.raw"),
        ..PLAIN
    },
    Workload {
        name: "beside-preads",
        about: "20,000 random reads of 4 KiB, and somebody else who reads page by page",
        data: &["blocks"],
        lists: MANAGER,
        touches: Touches::Contents("blocks", EVERY),
        command: |place| own(place, "bench-preads", &["--reads", "20000", "blocks/blocks.raw"]),
        neighbour: Some("blocks/blocks.raw"),
        ..PLAIN
    },
    Workload {
        name: "beside-wrong",
        about: "a program that gives wrong hints for two seconds, and somebody else who reads page by page",
        data: &["blocks"],
        lists: MANAGER,
        touches: Touches::Contents("blocks", EVERY),
        command: |place| own(place, "bench-wrong", &["blocks/blocks.raw"]),
        neighbour: Some("blocks/blocks.raw"),
        ..PLAIN
    },
];

type Words = anyhow::Result<Vec<std::ffi::OsString>>;

fn searching(place: &super::Place, more: &[&str]) -> Words {
    let list = list(place, "kernel", EVERY)?.to_string_lossy().into_owned();
    own(place, "bench-search", &[more, &[WORD, &list]].concat())
}

fn linking(place: &super::Place, more: &[&str]) -> Words {
    let list = list(place, "objects", EVERY)?.to_string_lossy().into_owned();
    own(place, "bench-objects", &[more, &[&list]].concat())
}

/// As `slices` of the core table.
pub(super) fn slicing(place: &super::Place, more: &[&str]) -> Words {
    let scratch = place.scratch.to_string_lossy().into_owned();
    own(place, "bench-slices", &[more, &["--out", &scratch, "volume/volume.raw"]].concat())
}

/// Outputs go to files, which are compared: lines of two at once would come in any order.
fn two(place: &super::Place, between: &str) -> Words {
    let list = list(place, "kernel", EVERY)?.to_string_lossy().into_owned();
    let scratch = place.scratch.to_string_lossy().into_owned();
    let slices = place.programs.join("bench-slices").to_string_lossy().into_owned();
    let script = format!(
        "xargs -n 10000 grep -c {WORD} < \"$1\" > \"$2/grep\" {between} \"$3\" --out \"$2\" volume/volume.raw > \"$2/slices\"; wait"
    );
    words(&["sh", "-c", &script, "sh", &list, &scratch, &slices])
}
