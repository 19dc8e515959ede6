//! All of a user's programs beside one host (`runahead enable`): `tests/enabled.sh`, a test for each
//! situation. `RUNAHEAD_PROCESSES` says how many processes one host outlives; some if it does not.

use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::locate::{Runahead, build_folder, tests_folder};
use std::fs;
use std::process::Command;

const SITUATIONS: [&str; 18] = [
    "programs",
    "environment",
    "disable",
    "twice",
    "versions",
    "broken",
    "killed",
    "stopped",
    "reboot",
    "users",
    "logout",
    "chosen",
    "others",
    "refused",
    "container",
    "system",
    "services",
    "many",
];

const NEEDS: [&str; 4] = ["root", "command unshare", "command setpriv", "command python3"];

pub fn add(suite: &mut Suite) {
    for situation in SITUATIONS {
        suite.add(format!("enabled::{situation}"), NEEDS, move || check(situation));
    }
}

fn check(situation: &str) -> Verdict {
    let runahead = Runahead::built()?;
    if runahead.label != "built" || std::env::var("RUNAHEAD_BIN").is_ok_and(|bin| bin == "stand-in") {
        return Ok(());
    }
    let folder = build_folder().join(format!("enabled-{situation}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    // All mounts are gone with the last process there.
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(tests_folder().join("enabled.sh"))
        .arg(&runahead.command)
        .arg(&folder)
        .arg(situation)
        .output()
        .map_err(|error| error.to_string())?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(format!("{said}the folder: {}", folder.display()));
    }
    fs::remove_dir_all(&folder).map_err(|error| error.to_string())
}
