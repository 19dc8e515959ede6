//! Those that cannot gain, and small ones for tests of the bench itself.

use super::commands::*;
use super::{PLAIN, Touches, Workload};

const XZ: &[(&str, &str)] = &[("xz", "xz-utils")];
const CONTROLS: &[&str] = &["controls", "all"];
const SMOKE: &[&str] = &["smoke"];

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "xz",
        about: "xz of 1000 files: the processor is the limit",
        data: &["small"],
        needs: XZ,
        floor: floor(1.0, 1.0),
        lists: CONTROLS,
        touches: Touches::Contents("small", EVERY),
        command: |place| with_files(place, &["xz", "-6", "-c", "-T1"], "small", EVERY),
        ..PLAIN
    },
    Workload {
        name: "parallel",
        about: "xargs -P16 over 9000 files: many read at once already",
        data: &["kernel"],
        floor: floor(1.0, 1.0),
        lists: CONTROLS,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| {
            let list = list(place, "kernel", EVERY)?;
            // Sorted, as the order of parallel processes is anyone's guess.
            let script = "xargs -P16 -n50 grep -c spin_lock_irqsave < \"$1\" | sort";
            Ok(vec!["sh".into(), "-c".into(), script.into(), "sh".into(), list.into()])
        },
        ..PLAIN
    },
    Workload {
        name: "smoke-grep",
        about: "grep over 1000 files: small, for tests of the bench itself",
        data: &["small"],
        lists: SMOKE,
        touches: Touches::Contents("small", EVERY),
        command: |place| with_files(place, &["grep", "-c", "spin_lock_irqsave"], "small", EVERY),
        ..PLAIN
    },
    Workload {
        name: "smoke-find",
        about: "find over the same 1000 files",
        data: &["small"],
        lists: SMOKE,
        touches: Touches::Names("small"),
        command: |_| words(&["find", "small", "-type", "f", "-size", "+3"]),
        ..PLAIN
    },
];
