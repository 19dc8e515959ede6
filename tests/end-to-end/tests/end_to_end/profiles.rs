//! What a run wants is recorded into a profile and asked for elsewhere: on an emulated disk of 1 ms, mounted anew
//! before each run, and on a copy with other inodes beside the first.
//!
//! What counts is what is asked for, and that the program's output is what it is alone, whatever the profile
//! has.

use crate::remembered::{FILES, Kept, PATH, Ran, is_same};
use crate::slow_disk::{self, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::cold::resident_pages;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub fn add(suite: &mut Suite) {
    let wants = || slow_disk::WANTS.into_iter().chain(["command python3", "command mkfifo"]);
    suite.add("profiles::what is recorded is asked for elsewhere", wants(), elsewhere);
    suite.add("profiles::a warm command is recorded as well", wants(), warm_command);
    suite.add("profiles::warm asks for all without a program", wants(), warm);
    suite.add("profiles::what is of no use is told and harms nobody", wants(), no_use);
    suite.add("profiles::who holds a lease keeps it", wants(), leased);
    suite.add("profiles::profiles are shown, merged, trimmed and checked", wants(), changed);
    suite.add("profiles::nothing is recorded where it cannot be", wants(), unrecorded);
}

impl Kept {
    fn profile(&self) -> PathBuf {
        self.cache().with_file_name("profile")
    }

    /// Runahead with other words than `run`.
    fn says(&self, words: &[&str]) -> Result<Output, String> {
        let mut command = Command::new(self.command_under_test());
        command.args(words).env("XDG_CACHE_HOME", self.cache()).stdin(Stdio::null());
        command.output().map_err(|error| error.to_string())
    }

    /// The same, with what it writes to stdout; `status`: its exit status has to be this.
    fn told(&self, status: i32, words: &[&str]) -> Result<String, String> {
        let output = self.says(words)?;
        let [out, errors] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        match output.status.code() == Some(status) {
            true => Ok(out),
            false => Err(format!("{words:?}: {} and not {status}: {out}{errors}", output.status)),
        }
    }

    /// Records the program's run, cold, and compares it with one alone.
    fn record(&self) -> Result<(Ran, PathBuf), String> {
        let alone = self.run(None)?;
        let profile = self.profile();
        is_same(&alone.output, &self.recorded(&profile, true)?)?;
        Ok((alone, profile))
    }

    /// Records it once or, where it is said that something is missing (a loaded machine may lose some), again.
    fn recorded(&self, profile: &Path, cold: bool) -> Result<Output, String> {
        let mut output = None;
        for _ in 0..5 {
            if cold {
                self.chill()?;
            }
            let mut command = Command::new(self.command_under_test());
            command.args(["record", "-o"]).arg(profile).arg("--").args(self.words());
            command.env("XDG_CACHE_HOME", self.cache()).env("PATH", PATH).stdin(Stdio::null());
            let now = command.output().map_err(|error| error.to_string())?;
            let is_whole = !String::from_utf8_lossy(&now.stderr).contains("lacks a part");
            output = Some(now);
            if is_whole {
                break;
            }
        }
        output.ok_or_else(|| "no run".to_owned())
    }

    /// Makes a copy of the files, as an image's copy is: in other inodes, with their times in seconds.
    fn copy(&self) -> Result<PathBuf, String> {
        let copy = self.mount().join("copy");
        self.change(|mount| {
            for number in 0..FILES {
                let path = Kept::path(number);
                copied(&mount.join(&path), &copy.join(&path))?;
            }
            copied(&mount.join("large"), &copy.join("large"))
        })?;
        Ok(copy)
    }
}

fn copied(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to)?;
    let seconds = fs::metadata(from)?.mtime() as u64;
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    fs::File::options().write(true).open(to)?.set_modified(time)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn elsewhere() -> Verdict {
    let Some(kept) = Kept::new("profile")? else { return Ok(()) };
    let (alone, profile) = kept.record()?;
    if !kept.remembered().is_empty() {
        return Err("a recorded run is remembered as well".to_owned());
    }
    let profile = text(&profile);
    let ran = kept.run(Some(&["--no-remember", "--profile", &profile]))?;
    is_same(&alone.output, &ran.output)?;
    let counts = &ran.counts;
    // One run has it all, though nothing was known of its code.
    if number(counts, "files")? < FILES || number(counts, "used")? < FILES || number(counts, "kept")? != 0 {
        return Err(format!("with the profile: {counts}"));
    }
    let copy = kept.copy()?;
    let prefix = format!("{}={}", text(&kept.mount()), text(&copy));
    let there = |command: &mut Command| kept.on_copy(command, &copy);
    let alone = kept.run_so(None, there)?;
    // Where it was recorded the files are as they were, but nobody reads them there.
    let led = kept.run_so(Some(&["--no-remember", "--profile", &profile, "--prefix", &prefix]), there)?;
    is_same(&alone.output, &led.output)?;
    let counts = &led.counts;
    if number(counts, "files")? < FILES || number(counts, "used")? < FILES || number(counts, "changed")? > 0 {
        return Err(format!("on a copy: {counts}"));
    }
    // What is remembered goes first, and the rest comes of the profile.
    for _ in 0..2 {
        let both = kept.run(Some(&["--profile", &profile, "--remember"]))?;
        if number(&both.counts, "files")? < FILES || number(&both.counts, "kept")? < FILES {
            return Err(format!("with both: {}", both.counts));
        }
    }
    Ok(())
}

/// Without a disk to wait for: what it opens is there all the same.
fn warm_command() -> Verdict {
    let Some(kept) = Kept::new("warm-command")? else { return Ok(()) };
    kept.run(None)?;
    let profile = kept.profile();
    let output = kept.recorded(&profile, false)?;
    if !output.status.success() || !output.stderr.is_empty() {
        return Err(format!("{output:?}"));
    }
    let shown = kept.told(0, &["profile", "show", "--json", &text(&profile)])?;
    let shown: Value = serde_json::from_str(&shown).map_err(|error| error.to_string())?;
    match number(&shown, "files")? {
        FILES.. => Ok(()),
        _ => Err(format!("of {FILES} files: {shown}")),
    }
}

fn warm() -> Verdict {
    let Some(kept) = Kept::new("profile-warm")? else { return Ok(()) };
    let (_, profile) = kept.record()?;
    let profile = text(&profile);
    kept.chill()?;
    let said = kept.told(0, &["warm", &profile])?;
    if !said.starts_with("asked for ") || said.contains('\r') {
        return Err(format!("it says {said:?}"));
    }
    // What the program wants is cached: it waits for nothing.
    let cold = uncached(&kept.mount())?;
    if cold > 2 {
        return Err(format!("of {FILES} files {cold} are not cached: {said}"));
    }
    kept.chill()?;
    let said = kept.told(1, &["warm", "--max-memory", "80K", &profile])?;
    let cold = uncached(&kept.mount())?;
    if cold < FILES as usize / 2 || !said.contains("no more than") {
        return Err(format!("of 80 KB: {said}, and {cold} are not cached"));
    }
    kept.change(|mount| fs::remove_file(mount.join(Kept::path(3))))?;
    let said = kept.told(1, &["warm", &profile])?;
    match said.contains("1 changed or missing") {
        true => Ok(()),
        false => Err(format!("without a file: {said}")),
    }
}

/// How many of the files have a page that is not cached.
fn uncached(mount: &Path) -> Result<usize, String> {
    let mut cold = 0;
    for number in 0..FILES {
        let path = mount.join(Kept::path(number));
        let resident = resident_pages(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        cold += usize::from(resident.0 < resident.1);
    }
    Ok(cold)
}

/// As it stands in a profile (FNV-1a).
fn check_sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn no_use() -> Verdict {
    let Some(kept) = Kept::new("profile-bad")? else { return Ok(()) };
    let (alone, profile) = kept.record()?;
    let good = fs::read(&profile).map_err(|error| error.to_string())?;
    let version = [&b"RArem777"[..], &good[8..]].concat();
    let mut crafted = good.clone();
    crafted.truncate(16);
    crafted.extend([0xff; 4000]);
    let sum = check_sum(&crafted[16..]);
    crafted[8..16].copy_from_slice(&sum.to_le_bytes());
    type Harm<'a> = &'a dyn Fn(&Path) -> std::io::Result<()>;
    let nothing: Harm = &|_| Ok(());
    let others: Harm = &|file| chown(file, Some(65534), Some(65534));
    let open: Harm = &|file| fs::set_permissions(file, fs::Permissions::from_mode(0o666));
    let gone: Harm = &|file| fs::remove_file(file);
    let pipe: Harm = &|file| {
        fs::remove_file(file)?;
        Command::new("mkfifo").arg(file).status().map(drop)
    };
    let harms: [(&str, &[u8], Harm); 9] = [
        ("cut or changed", &good[..good.len() / 2], nothing),
        ("empty", b"", nothing),
        ("no profile", b"#!/bin/sh", nothing),
        ("another version", &version, nothing),
        ("out of bounds", &crafted, nothing),
        ("belongs to user 65534", &good, others),
        ("others may write", &good, open),
        ("cannot be read", &good, gone),
        ("no regular file", &good, pipe),
    ];
    let name = text(&profile);
    for (why, contents, harm) in harms {
        let _ = fs::remove_file(&profile);
        fs::write(&profile, contents).and_then(|()| harm(&profile)).map_err(|error| error.to_string())?;
        for words in [&["warm", &name][..], &["profile", "show", &name], &["profile", "check", &name]] {
            let output = kept.says(words)?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.code() != Some(2) || !said.contains(why) || !output.stdout.is_empty() {
                return Err(format!("{why}: {words:?} says {said:?}, {}", output.status));
            }
        }
        let quiet = kept.run(Some(&["--no-remember", "--profile", &name]))?;
        is_same(&alone.output, &quiet.output).map_err(|different| format!("{why}: {different}"))?;
        let verbose = kept.run(Some(&["--no-remember", "--profile", &name, "--verbose"]))?;
        let said = String::from_utf8_lossy(&verbose.output.stderr).into_owned();
        if verbose.output.stdout != alone.output.stdout
            || !said.contains("the profile is not used")
            || !said.contains(why)
        {
            return Err(format!("{why}: a run says {said:?}"));
        }
        if number(&verbose.counts, "files")? != 0 {
            return Err(format!("{why}: {}", verbose.counts));
        }
    }
    Ok(())
}

/// Files of the profile are pipes, devices and links to what is served by now: none is opened.
fn changed() -> Verdict {
    let Some(kept) = Kept::new("profile-changed")? else { return Ok(()) };
    let (_, profile) = kept.record()?;
    let name = text(&profile);
    let mount = kept.mount();
    let shown = kept.told(0, &["profile", "show", &name])?;
    if !shown.contains(&text(&mount.join(Kept::path(7)))) || !shown.contains("WANTED") {
        return Err(format!("shown is {shown}"));
    }
    let of = |path: &Path| -> Result<Value, String> {
        let shown = kept.told(0, &["profile", "show", "--json", &text(path)])?;
        serde_json::from_str(&shown).map_err(|error| format!("{error}: {shown}"))
    };
    let part = profile.with_extension("part");
    let folder = text(&mount);
    kept.told(0, &["profile", "trim", "--only", &folder, "-o", &text(&part), &name])?;
    let rest = profile.with_extension("rest");
    kept.told(0, &["profile", "trim", "--except", &folder, "-o", &text(&rest), &name])?;
    let (whole, first, second) = (of(&profile)?, of(&part)?, of(&rest)?);
    if number(&first, "files")? < FILES || number(&second, "files")? == 0 {
        return Err(format!("parts: {first} {second}"));
    }
    let merged = profile.with_extension("merged");
    kept.told(0, &["profile", "merge", &text(&part), &text(&rest), "-o", &text(&merged)])?;
    let merged = of(&merged)?;
    for what in ["files", "directories", "names", "bytes"] {
        if number(&merged, what)? != number(&whole, what)? {
            return Err(format!("{what} of {whole} are others once merged: {merged}"));
        }
    }
    kept.told(0, &["profile", "trim", "--max-bytes", "40K", &text(&part)])?;
    if number(&of(&part)?, "bytes")? > 40 << 10 {
        return Err(format!("40 KB of it: {}", of(&part)?));
    }
    kept.told(0, &["profile", "check", &name])?;
    kept.change(|mount| {
        let at = |number: u64| mount.join(Kept::path(number));
        fs::remove_file(at(3))?;
        fs::write(at(4), "short")?;
        fs::remove_file(at(5))?;
        Command::new("mkfifo").arg(at(5)).status()?;
        fs::remove_file(at(6))?;
        Command::new("mknod").arg(at(6)).args(["c", "1", "5"]).status()?;
        fs::remove_file(at(7))?;
        std::os::unix::fs::symlink("/proc/version", at(7))?;
        fs::remove_file(at(8))?;
        std::os::unix::fs::symlink(at(8), at(8))?;
        fs::File::options().write(true).open(at(9))?.set_modified(std::time::UNIX_EPOCH)
    })?;
    let checked = kept.told(1, &["profile", "check", "--json", &name])?;
    let checked: Value = serde_json::from_str(&checked).map_err(|error| error.to_string())?;
    let entries = checked["entries"].as_array().cloned().unwrap_or_default();
    for (number, expected) in [
        (3, "missing"),
        (4, "changed"),
        (5, "changed"),
        (6, "changed"),
        (7, "refused"),
        (8, "refused"),
        (9, "touched"),
        (10, "same"),
    ] {
        let path = text(&mount.join(Kept::path(number)));
        let found = entries.iter().find(|entry| entry["path"] == path.as_str() && entry["kind"] == "file");
        if found.is_none_or(|entry| entry["standing"] != expected) {
            return Err(format!("file {number} is {expected}: {found:?}"));
        }
    }
    let said = kept.told(1, &["warm", &name])?;
    if !said.contains("4 changed or missing") || !said.contains("2 not to be read") {
        return Err(format!("warm says {said}"));
    }
    let alone = kept.run(None)?;
    let ran = kept.run(Some(&["--no-remember", "--profile", &name]))?;
    is_same(&alone.output, &ran.output)
}

/// A process of its own has a lease on a file that nobody is to open.
const HOLDS: &str = "
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()
print(fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_WRLCK)
";

fn leased() -> Verdict {
    let Some(kept) = Kept::new("profile-lease")? else { return Ok(()) };
    let (_, profile) = kept.record()?;
    kept.chill()?;
    let mut holder = Command::new("python3");
    holder.args(["-c", HOLDS]).arg(kept.mount().join(Kept::path(9)));
    let holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut holder = holder.map_err(|error| error.to_string())?;
    let mut said = [0; 5];
    let out = holder.stdout.as_mut().ok_or("no output")?;
    std::io::Read::read_exact(out, &mut said).map_err(|error| error.to_string())?;
    let name = text(&profile);
    let warmed = kept.told(1, &["warm", &name]);
    let checked = kept.told(0, &["profile", "check", &name]);
    let output = holder.wait_with_output().map_err(|error| error.to_string())?;
    let held = String::from_utf8_lossy(&output.stdout).into_owned();
    let (warmed, _) = (warmed?, checked?);
    match held.trim() == "True" && warmed.contains("lease") && warmed.starts_with("asked for 0 files") {
        true => Ok(()),
        false => Err(format!("held: {held}, and it says {warmed}")),
    }
}

fn unrecorded() -> Verdict {
    let Some(kept) = Kept::new("unrecorded")? else { return Ok(()) };
    let nowhere = text(&kept.cache().join("none/profile"));
    let device = "/dev/null".to_owned();
    for place in [&nowhere, &device] {
        let output = kept.says(&["record", "-o", place, "--", "echo", "it runs"])?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() != Some(125)
            || !said.contains("nothing was started")
            || !output.stdout.is_empty()
        {
            return Err(format!("{place}: {output:?}"));
        }
    }
    let profile = kept.profile();
    let name = text(&profile);
    // Killed, and left alone: what was there stays, and it is said that nothing comes.
    fs::write(&profile, "what was there").map_err(|error| error.to_string())?;
    let words = ["record", "-o", &name, "--", "sh", "-c", "kill -9 $$"];
    // Whoever says so has the stream open, so that it is read to its end.
    let killed = kept.says(&words)?;
    let mut off = Command::new(kept.command_under_test());
    off.args(["record", "-o", &name, "--", "echo", "it runs"]).env("RUNAHEAD", "off");
    let off = off.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&off.stderr).into_owned();
    if !off.status.success() || off.stdout != b"it runs\n" || !said.contains("RUNAHEAD=off") {
        return Err(format!("left alone: {off:?}"));
    }
    let left = fs::read(&profile).map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&killed.stderr).into_owned();
    if killed.status.success() || left != b"what was there" || !said.contains("nothing was recorded") {
        return Err(format!("killed: {killed:?}, and the file has {left:?}"));
    }
    // Its status is the command's.
    let status = kept.says(&["record", "-o", &name, "--", "sh", "-c", "exit 7"])?;
    match status.status.code() {
        Some(7) => Ok(()),
        other => Err(format!("exit 7 became {other:?}: {status:?}")),
    }
}
