//! Small questions to, and commands for, the system below.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs a command to its end; its standard output, or what it said when it failed. It is killed with us: what is
/// half done is then taken down, and nobody may go on with it meanwhile.
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(std::process::Stdio::null());
    // SAFETY: prctl is async-signal-safe and touches no memory.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let output = command
        .output()
        .with_context(|| format!("cannot run {program}; install the Debian package that holds it"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let words: Vec<_> =
            arguments.iter().map(|word| word.as_ref().to_string_lossy().into_owned()).collect();
        bail!("{program} {} failed ({}): {}", words.join(" "), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Why an emulated disk cannot be had here, if so.
pub fn missing() -> Option<String> {
    if !is_root() {
        return Some("not root: mounting and loop devices need it; the native profile works without".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            return Some(format!("this kernel offers no {device}; the native profile works without"));
        }
    }
    None
}

/// Every mount point with the type of its file system, in the order of mounting.
pub fn mounts() -> Vec<(PathBuf, String)> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(parse_mount).collect()
}

fn parse_mount(line: &str) -> Option<(PathBuf, String)> {
    let (before, after) = line.split_once(" - ")?;
    let point = before.split(' ').nth(4)?;
    Some((PathBuf::from(unescape(point)), after.split(' ').next()?.to_string()))
}

/// Blanks and backslashes stand in mountinfo as three octal digits.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_string(), |text, (escaped, plain)| text.replace(escaped, plain))
}

pub fn is_mount_point(path: &Path) -> bool {
    mounts().iter().any(|(point, _)| point == path)
}

/// The loop devices whose backing file is `file`.
pub fn loops_over(file: &Path) -> Vec<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices
        .map(|device| Path::new("/dev").join(device.file_name()))
        .filter(|device| {
            let backing = loop_file(device).unwrap_or_default();
            // The kernel marks a file whose mount is gone.
            Path::new(backing.trim_end_matches(" (deleted)")) == file
        })
        .collect()
}

/// What the kernel says of the file behind a loop device; None if there is none.
pub fn loop_file(device: &Path) -> Option<String> {
    let text =
        fs::read_to_string(Path::new("/sys/block").join(device.file_name()?).join("loop/backing_file"));
    Some(text.ok()?.trim_end_matches('\n').to_string())
}

/// Who has the device's file system mounted, in a mount namespace of their own: for each a name and a process
/// id.
pub fn users_of(device: &Path) -> Vec<String> {
    let Ok(device) = fs::metadata(device).map(|told| told.rdev()) else { return Vec::new() };
    let numbers = format!("{}:{}", libc::major(device), libc::minor(device));
    let mut namespaces = HashSet::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit));
    let users = processes.filter_map(|entry| {
        let told = fs::read(entry.path().join("mountinfo")).ok()?;
        let told = String::from_utf8_lossy(&told);
        let has_it = told.lines().any(|line| line.split(' ').nth(2) == Some(&numbers));
        let is_new = has_it && namespaces.insert(fs::read_link(entry.path().join("ns/mnt")).ok()?);
        let name = is_new.then(|| fs::read(entry.path().join("comm")).ok()).flatten()?;
        Some(format!("{} ({})", String::from_utf8_lossy(&name).trim(), entry.file_name().display()))
    });
    users.collect()
}

/// The sysfs file with the read-ahead of the disk that holds `path` (a device or a file on it).
pub fn read_ahead_file(path: &Path) -> Result<PathBuf> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    let device = if metadata.rdev() != 0 { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = (libc::major(device), libc::minor(device));
    let found = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    if !found.exists() {
        bail!("the disk of {} ({major}:{minor}) has no read-ahead setting in sysfs", path.display());
    }
    Ok(found)
}

pub fn read_number(path: &Path) -> Result<u64> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.trim().parse().with_context(|| format!("{} holds no number", path.display()))
}

/// For a child that will outlive us, between fork and exec: a session of its own, and no descriptor of ours
/// but the standard three. Whoever started us under a lock (`flock LOCK slowdisk up`) has the lock's
/// descriptor open in us, and a daemon that kept it would hold the lock for as long as it lives. The
/// descriptors are closed by the exec, as Rust's own needs one until then. Async-signal-safe.
pub fn detach() -> std::io::Result<()> {
    // SAFETY: touches no memory; a session leader's second setsid fails harmlessly.
    unsafe { libc::setsid() };
    keep_descriptors()
}

/// The part of [`detach`] about descriptors.
pub fn keep_descriptors() -> std::io::Result<()> {
    // SAFETY: touches no memory.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Ok(())
}

/// For who has to outlive what asks others to end: a disk's daemon, without which nobody can turn off the swap on it,
/// and whoever cleans up. They end by themselves when there is nothing left for them; SIGKILL ends them.
/// (`killall -INT` and `systemctl stop` mean everything with our name or in our group, them too.)
pub fn ignore_requests_to_end() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// A process by id, safe against the id's being used again: its start time must agree.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Process {
    pub id: i32,
    /// Clock ticks after boot.
    pub started: u64,
}

impl Process {
    /// `None`: no such process, or only its remains.
    pub fn find(id: i32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The command's name may hold anything; the fields count from its closing bracket.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        if matches!(*fields.first()?, "Z" | "X") {
            return None;
        }
        Some(Process { id, started: fields.get(19)?.parse().ok()? })
    }

    pub fn lives(&self) -> bool {
        Process::find(self.id) == Some(*self)
    }

    /// Ends it for sure, if it is still the same process.
    pub fn kill(&self) {
        if self.lives() {
            // SAFETY: kill touches no memory of ours; the id was that of our own daemon a moment ago.
            unsafe { libc::kill(self.id, libc::SIGKILL) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_understood() {
        let line = r"36 35 98:0 / /mnt/a\040b rw,noatime shared:1 - ext4 /dev/loop0 rw";
        assert_eq!(parse_mount(line), Some((PathBuf::from("/mnt/a b"), "ext4".into())));
        assert!(is_mount_point(Path::new("/proc")));
        assert!(!is_mount_point(Path::new("/proc/self")));
    }

    #[test]
    fn a_process_is_known_by_its_start_too() {
        let ours = Process::find(std::process::id() as i32).unwrap();
        assert!(ours.lives());
        assert!(!Process { started: ours.started + 1, ..ours }.lives());
    }

    #[test]
    fn a_failed_command_tells_what_it_said() {
        let message = format!("{:#}", run("ls", &["/nowhere/at/all"]).unwrap_err());
        assert!(message.contains("/nowhere/at/all") && message.contains("No such file"), "{message}");
    }
}
