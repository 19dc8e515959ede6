//! What has been read cold is removed, moved and unmounted right away, on several file systems: `tests/given_back.sh`.
//! `RUNAHEAD_ROUNDS` says how often; a few times if it does not.

use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::locate::{Runahead, build_folder, tests_folder};
use std::fs;
use std::process::Command;

const KINDS: [(&str, &[&str]); 4] = [
    ("ext4", &[]),
    ("overlay", &[]),
    ("bindfs", &["command bindfs", "file /dev/fuse"]),
    ("sshfs", &["command sshfs", "file /usr/sbin/sshd", "file /dev/fuse"]),
];

const NEEDS: [&str; 5] =
    ["root", "file /dev/loop-control", "command mkfs.ext4", "command unshare", "command git"];

const ROUNDS: &str = "2";

pub fn add(suite: &mut Suite) {
    for (kind, more) in KINDS {
        let needs = NEEDS.iter().chain(more).copied();
        suite.add(format!("given_back::{kind}"), needs, move || nothing_is_kept(kind));
    }
}

fn nothing_is_kept(kind: &str) -> Verdict {
    let folder = build_folder().join(format!("given-back-{kind}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let runahead = Runahead::built()?;
    let rounds = std::env::var("RUNAHEAD_ROUNDS").unwrap_or_else(|_| ROUNDS.to_owned());
    // All mounts are gone with the last process there.
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(tests_folder().join("given_back.sh"))
        .arg(&runahead.command)
        .arg(&folder)
        .args([kind, &rounds])
        .envs(runahead.environment)
        .output()
        .map_err(|error| error.to_string())?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(format!("{said}the folder: {}", folder.display()));
    }
    fs::remove_dir_all(&folder).map_err(|error| error.to_string())
}
