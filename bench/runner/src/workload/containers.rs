//! As in a container: the files lie on an overlay, which tells nobody what is cached.
//!
//! The command makes itself a mount namespace, and in it an overlay over the data, of which nothing is left afterwards. It takes root.

use std::ffi::OsString;

use anyhow::Result;

use super::commands::EVERY;
use super::{PLAIN, Place, Touches, Workload};

const UNSHARE: &[(&str, &str)] = &[("unshare", "util-linux")];
const CONTAINERS: &[&str] = &["containers", "all"];

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "overlay-grep",
        about: "grep -r over 9000 files on an overlay, as below a container's root",
        data: &["kernel"],
        needs: UNSHARE,
        lists: CONTAINERS,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| on_an_overlay(place, "grep -rc spin_lock_irqsave kernel"),
        helpers: &["sh", "grep"],
        ..PLAIN
    },
    Workload {
        name: "overlay-sqlite",
        about: "sqlite3, 1500 look-ups by index in 1 GB on an overlay: each needs data that were just asked for",
        data: &["database"],
        needs: &[("unshare", "util-linux"), ("sqlite3", "sqlite3")],
        lists: CONTAINERS,
        touches: Touches::Contents("database", EVERY),
        command: |place| {
            let line =
                "sqlite3 -init /dev/null -batch -readonly database/rows.db '.read database/by-key.sql'";
            on_an_overlay(place, line)
        },
        helpers: &["sh", "sqlite3"],
        ..PLAIN
    },
    Workload {
        name: "overlay-gather",
        about: "10,000 words of a mapped file of 1 GB on an overlay, at computed places",
        data: &["blocks"],
        needs: UNSHARE,
        lists: CONTAINERS,
        touches: Touches::Contents("blocks", EVERY),
        command: |place| {
            let program = place.programs.join("bench-mapped");
            on_an_overlay(place, &format!("{} blocks/blocks.raw computed 10000", program.display()))
        },
        helpers: &["sh"],
        ..PLAIN
    },
];

/// The command, in the directory of the data as an overlay shows it.
fn on_an_overlay(place: &Place, command: &str) -> Result<Vec<OsString>> {
    let (disk, scratch) = (place.disk.display(), place.scratch.display());
    let script = format!(
        "mkdir {scratch}/none {scratch}/merged && \
         mount -t overlay overlay -o lowerdir={disk}:{scratch}/none {scratch}/merged && \
         cd {scratch}/merged && exec {command}"
    );
    Ok(["unshare", "-m", "sh", "-c", &script].map(Into::into).into())
}
