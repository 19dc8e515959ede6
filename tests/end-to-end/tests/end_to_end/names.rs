//! Do the speculator's notes of names arrive, and are the program's arguments looked up because of them? Local disks answer
//! sooner than a note is worth (`runahead_policy::coldness`), so this takes an emulated one of 1 ms (`bench/slowdisk`).
//!
//! The program opens its arguments and asks for no name otherwise; openings its agent does not look at. So who finds out that names
//! are waited for is the speculator, or nobody.

use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::compare::Outcome;
use runahead_end_to_end::locate::{Runahead, build_folder, slow_disks};
use runahead_end_to_end::scenario::{ALONE, Mode, Scenario, bytes};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const REPORTED: Mode =
    Mode { name: "under, reported", options: Some(&["--report", "report.json"]), cold: false };

const DIRECTORIES: u64 = 24;
/// Of these two blocks of inodes each.
const FILES: u64 = 32;
const FILE_BYTES: usize = 6000;

/// Names and listings that must have been looked up ahead: more than one for each directory, as its listing alone would be.
const AHEAD: u64 = 2 * DIRECTORIES;

/// How long a loaded machine may keep us from any of it.
const LONGEST: Duration = Duration::from_secs(60);

pub fn add(suite: &mut Suite) {
    let wants =
        ["root", "file /dev/fuse", "file /dev/loop-control", "command sha256sum", "command mkfs.ext4"];
    suite.add(
        "names::arguments are looked up where the speculator waits for one",
        wants,
        arguments_are_looked_up,
    );
}

fn arguments_are_looked_up() -> Verdict {
    let runahead = Runahead::built()?;
    let mut disk = Disk::new()?;
    let Some(alone) = disk.run(&ALONE, &runahead)? else { return Ok(()) };
    let began = Instant::now();
    let mut seen = Vec::new();
    while began.elapsed() < LONGEST {
        let Some(under) = disk.run(&REPORTED, &runahead)? else { return Ok(()) };
        if alone.stdout != under.stdout || alone.stdout.is_empty() {
            return Err("it printed something else than alone".to_owned());
        }
        let entry = under.tree.get(Path::new("report.json")).ok_or("no report was written")?;
        let report: Value =
            serde_json::from_slice(&entry.contents).map_err(|error| format!("not JSON: {error}"))?;
        let counts = &report["counts"];
        let (Some(ahead), Some(noted)) =
            (counts["names_looked_ahead"].as_u64(), counts["speculator"]["names_noted"].as_u64())
        else {
            eprintln!("SKIPPED names: a stand-in has nothing to say of them");
            return Ok(());
        };
        if noted > 0 && ahead >= AHEAD {
            return Ok(());
        }
        seen.push(format!("{noted} notes, {ahead} names"));
    }
    Err(format!("always too few notes of the speculator's, or names looked up: {seen:?}"))
}

/// A slow disk with the program's files, made anew for each run, so that all names on it are cold. Gone with the value.
struct Disk {
    tool: PathBuf,
    folder: PathBuf,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Disk {
    fn new() -> Result<Disk, String> {
        let folder = build_folder().join(format!("names-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let file = |number: u64| {
            let path = format!("directory{}/file{}", number / FILES, number % FILES);
            (PathBuf::from(path), bytes(number, FILE_BYTES))
        };
        Ok(Disk { tool: slow_disks(), folder, files: (0..DIRECTORIES * FILES).map(file).collect() })
    }

    /// None, and said why, where no disk can be emulated.
    fn run(&mut self, mode: &Mode, runahead: &Runahead) -> Result<Option<Outcome>, String> {
        let mount = self.folder.join("mount");
        let up = ["up", "cloud", "--name", "names", "--size", "64M", "--dir", &mount.to_string_lossy()];
        let loop_device = match self.tool(&up) {
            Ok(said) => said["loop_device"].as_str().unwrap_or_default().to_owned(),
            // A container may show the devices and forbid their use.
            Err(why) if why.contains("not permitted") => {
                eprintln!("SKIPPED names: no slow disk can be had here: {}", why.trim());
                return Ok(None);
            }
            Err(why) => return Err(why),
        };
        self.tool(&["pace", "names", "off"])?;
        for (path, contents) in &self.files {
            let path = mount.join(path);
            let made = path.parent().map_or(Ok(()), fs::create_dir_all);
            made.and_then(|()| fs::write(&path, contents)).map_err(|error| error.to_string())?;
        }
        // A file system that is mounted anew has nothing in any cache.
        command("umount", &[&mount.to_string_lossy()])?;
        command("mount", &[&loop_device, &mount.to_string_lossy()])?;
        self.tool(&["pace", "names", "on"])?;
        let words = self.files.iter().map(|(path, _)| mount.join(path).to_string_lossy().into_owned());
        let argv: Vec<String> = ["sha256sum".to_owned()].into_iter().chain(words).collect();
        let outcome = Scenario::new(format!("names {}", mode.name), argv).run(mode, runahead);
        self.tool(&["down", "names"])?;
        outcome.map(Some).map_err(|error| error.to_string())
    }

    fn tool(&self, arguments: &[&str]) -> Result<Value, String> {
        let mut command = Command::new(&self.tool);
        let output = command.args(arguments).env("SLOWDISK_RUN", self.folder.join("run")).output();
        let output = output.map_err(|error| format!("{}: {error}", self.tool.display()))?;
        match output.status.success() {
            true => Ok(serde_json::from_slice(&output.stdout).unwrap_or_default()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.tool(&["down", "--all"]);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn command(name: &str, arguments: &[&str]) -> Verdict {
    let output = Command::new(name).args(arguments).output().map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}
