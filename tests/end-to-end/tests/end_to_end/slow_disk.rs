//! Programs on a slow disk of their own (`bench/slowdisk`), alone and under Runahead, with what the report counts.

use runahead_end_to_end::Verdict;
use runahead_end_to_end::compare::Outcome;
use runahead_end_to_end::locate::{Runahead, build_folder, slow_disks};
use runahead_end_to_end::scenario::{ALONE, Mode, Scenario};
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub const WANTS: [&str; 5] =
    ["root", "file /dev/fuse", "file /dev/loop-control", "command sha256sum", "command mkfs.ext4"];

const REPORTED: Mode =
    Mode { name: "under, reported", options: Some(&["--report", "report.json"]), cold: false };

/// Nothing is asked for ahead, so whoever waits is seen to.
const WATCHED: Mode = Mode {
    name: "under, watched",
    options: Some(&["--no-speculate", "--report", "report.json"]),
    cold: false,
};

/// How long a loaded machine may keep us from any of it.
const LONGEST: Duration = Duration::from_secs(150);

/// What a report must say.
pub fn number(counts: &Value, of: &str) -> Result<u64, String> {
    counts[of].as_u64().ok_or_else(|| format!("the report does not count {of}: {counts}"))
}

/// A slow disk with the program's files, made anew for each run, so that all names on it are cold. Gone with the value.
pub struct Disk<Fill> {
    name: &'static str,
    profile: &'static str,
    tool: PathBuf,
    folder: PathBuf,
    fill: Fill,
    runahead: Runahead,
    around: Vec<String>,
    reported: &'static Mode,
}

impl<Fill: Fn(&Path) -> io::Result<()>> Disk<Fill> {
    pub fn new(name: &'static str, profile: &'static str, fill: Fill) -> Result<Self, String> {
        let folder = build_folder().join(format!("disk-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Disk {
            name,
            profile,
            tool: slow_disks(),
            folder,
            fill,
            runahead: Runahead::built()?,
            around: Vec::new(),
            reported: &REPORTED,
        })
    }

    /// Where it will be mounted.
    pub fn mount(&self) -> PathBuf {
        self.folder.join("mount")
    }

    /// With this build of ours.
    pub fn under(mut self, runahead: &Runahead) -> Self {
        self.runahead = runahead.clone();
        self
    }

    /// Watched only.
    pub fn watched(mut self) -> Self {
        self.reported = &WATCHED;
        self
    }

    /// Commands that set the scene, as a scenario's.
    pub fn around<Word: Into<String>>(mut self, words: impl IntoIterator<Item = Word>) -> Self {
        self.around = words.into_iter().map(Into::into).collect();
        self
    }

    /// Runs the command until its counts are as they should be, so many times `in_a_row`, since a loaded machine may keep us from any of
    /// it. Not at all where there are no counts.
    pub fn until(
        &self,
        words: &impl Fn(&Path) -> Vec<PathBuf>,
        in_a_row: u32,
        good: impl Fn(&Value) -> Verdict,
    ) -> Verdict {
        let began = Instant::now();
        let mut seen = Vec::new();
        let mut times = 0;
        while began.elapsed() < LONGEST {
            let Some(counts) = self.counts(words)? else { return Ok(()) };
            match good(&counts) {
                Ok(()) => times += 1,
                Err(said) => {
                    times = 0;
                    seen.push(said);
                }
            }
            if times == in_a_row {
                return Ok(());
            }
        }
        Err(format!("never as it should be, {in_a_row} times in a row: {seen:?}"))
    }

    /// What the report of a run counts, which must print what it prints alone. None, and said why, where there are none: no
    /// disk can be emulated, or a stand-in is tested.
    pub fn counts(&self, words: &impl Fn(&Path) -> Vec<PathBuf>) -> Result<Option<Value>, String> {
        Ok(self.counts_and_outcome(words)?.map(|(counts, _)| counts))
    }

    /// The same, with what the program left.
    pub fn counts_and_outcome(
        &self,
        words: &impl Fn(&Path) -> Vec<PathBuf>,
    ) -> Result<Option<(Value, Outcome)>, String> {
        let Some(alone) = self.run(words, &ALONE)? else { return Ok(None) };
        let Some(under) = self.run(words, self.reported)? else { return Ok(None) };
        if alone.stdout != under.stdout || alone.stdout.is_empty() {
            return Err("it printed something else than alone".to_owned());
        }
        let entry = under.tree.get(Path::new("report.json")).ok_or("no report was written")?;
        let report: Value =
            serde_json::from_slice(&entry.contents).map_err(|error| format!("not JSON: {error}"))?;
        if report["counts"].is_null() && self.runahead.label != "built" {
            eprintln!("SKIPPED disk: a stand-in has nothing to count");
            return Ok(None);
        }
        Ok(Some((report["counts"].clone(), under)))
    }

    /// One run on a disk of its own; None where there can be none.
    pub fn run(
        &self,
        words: &impl Fn(&Path) -> Vec<PathBuf>,
        mode: &Mode,
    ) -> Result<Option<Outcome>, String> {
        let mount = self.mount();
        let up =
            ["up", self.profile, "--name", self.name, "--size", "64M", "--dir", &mount.to_string_lossy()];
        let loop_device = match self.tool(&up) {
            Ok(said) => said["loop_device"].as_str().unwrap_or_default().to_owned(),
            // A container may show the devices and forbid their use.
            Err(why) if why.contains("not permitted") => {
                eprintln!("SKIPPED disk: no slow disk can be had here: {}", why.trim());
                return Ok(None);
            }
            Err(why) => return Err(why),
        };
        self.tool(&["pace", self.name, "off"])?;
        (self.fill)(&mount).map_err(|error| error.to_string())?;
        // A file system that is mounted anew has nothing in any cache.
        unmount(&mount)?;
        wait_until_gone(&loop_device);
        command("mount", &[&loop_device, &mount.to_string_lossy()])?;
        self.tool(&["pace", self.name, "on"])?;
        let argv: Vec<String> =
            words(&mount).into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let scenario = Scenario::new(format!("disk {} {}", self.name, mode.name), argv);
        let outcome = scenario.around(self.around.iter().cloned()).run(mode, &self.runahead);
        self.tool(&["down", self.name])?;
        outcome.map(Some).map_err(|error| error.to_string())
    }

    fn tool(&self, arguments: &[&str]) -> Result<Value, String> {
        run_tool(&self.tool, &self.folder, arguments)
    }
}

/// Has the command that makes slow disks do something with those in `folder`; what it has said.
pub fn run_tool(tool: &Path, folder: &Path, arguments: &[&str]) -> Result<Value, String> {
    let output = Command::new(tool).args(arguments).env("SLOWDISK_RUN", folder.join("run")).output();
    let output = output.map_err(|error| format!("{}: {error}", tool.display()))?;
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap_or_default()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

impl<Fill> Drop for Disk<Fill> {
    fn drop(&mut self) {
        let mut command = Command::new(&self.tool);
        let _ = command.args(["down", "--all"]).env("SLOWDISK_RUN", self.folder.join("run")).output();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Unmounts what only we have filled, and nobody has run on yet. A child that another test forks at this
/// moment has our files open, until it executes its program.
fn unmount(mount: &Path) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        match command("umount", &[&mount.to_string_lossy()]) {
            Err(why) if why.contains("busy") && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

/// Waits until nobody has the file system on a device mounted. Whoever has made a mount namespace meanwhile
/// (another test does) has it mounted there until he ends, and with it all that is cached.
fn wait_until_gone(device: &str) {
    let Some(name) = Path::new(device).file_name() else { return };
    let mounted = Path::new("/sys/fs/ext4").join(name);
    let end = Instant::now() + LONGEST;
    while mounted.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn command(name: &str, arguments: &[&str]) -> Verdict {
    let output = Command::new(name).args(arguments).output().map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}
