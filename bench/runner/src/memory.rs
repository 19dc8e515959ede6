//! Runs with less memory than the machine has, and swap on the disk under test.
//!
//! The limit is a control group's and holds for everything of the run, page cache and speculators
//! included: version 2 where its memory controller is to be had, version 1 where the machine still has
//! that. Swap is a file on the disk under test. Both carry the session's name, so that whoever cleans up
//! after a kill finds them.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::group::{self, Group};

/// A limit on one run's group.
pub struct Limit {
    /// The group of version 1 beside the run's own, and where a process joins it.
    beside: Option<(PathBuf, File)>,
}

impl Limit {
    /// At most `megabytes` for whoever is in `group` and has passed [`Limit::entrance`].
    pub fn new(group: &Group, megabytes: u64) -> Result<Limit> {
        let bytes = (megabytes << 20).to_string();
        if fs::exists(group.path().join("memory.max"))? || delegate() {
            let file = group.path().join("memory.max");
            fs::write(&file, &bytes).with_context(|| format!("cannot write {}", file.display()))?;
            return Ok(Limit { beside: None });
        }
        let Some(root) = version_1() else {
            bail!(
                "this machine has no control groups for memory that we may use, so its memory cannot be limited; run as root, or leave out workloads with a memory limit"
            );
        };
        let name = group.path().file_name().context("a group without a name")?;
        let path = root.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make the control group {}", path.display()))?;
        let made = fs::write(path.join("memory.limit_in_bytes"), bytes)
            .and_then(|()| fs::OpenOptions::new().write(true).open(path.join("cgroup.procs")));
        match made {
            Ok(processes) => Ok(Limit { beside: Some((path, processes)) }),
            Err(error) => {
                let _ = fs::remove_dir(&path);
                Err(error).context("cannot limit the run's memory")
            }
        }
    }

    /// What a child writes "0" to besides its group's own entrance. Valid as long as the limit.
    pub fn entrance(&self) -> Option<i32> {
        self.beside.as_ref().map(|(_, processes)| processes.as_raw_fd())
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.beside {
            dissolve(path);
        }
    }
}

/// Has the root hand the memory controller to its groups, where it has it.
fn delegate() -> bool {
    group::mount_point().is_some_and(|root| {
        let has = fs::read_to_string(root.join("cgroup.controllers"))
            .is_ok_and(|text| text.split_whitespace().any(|name| name == "memory"));
        has && fs::write(root.join("cgroup.subtree_control"), "+memory").is_ok()
    })
}

/// Where version 1 has its memory groups.
fn version_1() -> Option<PathBuf> {
    let points = slowdisk::system::mounts().into_iter().filter(|(_, kind)| kind == "cgroup");
    points.map(|(point, _)| point).find(|point| point.join("memory.limit_in_bytes").exists())
}

/// Removes a group whose processes are gone or going.
fn dissolve(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(2);
    while fs::remove_dir(path).is_err() && path.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Swap on the disk under test; off and gone with the value.
pub struct Swap(PathBuf);

fn swap_name(instance: &str) -> String {
    format!("runahead-bench-{instance}.swap")
}

impl Swap {
    /// So many megabytes of it in `directory`.
    pub fn on(directory: &Path, instance: &str, megabytes: u64) -> Result<Swap> {
        let path = directory.join(swap_name(instance));
        let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let swap = Swap(path);
        // SAFETY: a request about a descriptor of our own.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, (megabytes << 20) as i64) } != 0 {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("no room for {megabytes} MB of swap in {}", directory.display()));
        }
        drop(file);
        slowdisk::system::run("chmod", &["600".as_ref(), swap.0.as_os_str()])?;
        slowdisk::system::run("mkswap", &[&swap.0])?;
        slowdisk::system::run("swapon", &[&swap.0]).context("cannot swap to the disk under test")?;
        Ok(swap)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // Where it is on still, whoever cleans up finds it.
        let _ = swap_off(&self.0);
    }
}

fn swap_off(path: &Path) -> std::io::Result<()> {
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: the name ends with a zero byte. Fails harmlessly where it is off already.
    while unsafe { libc::swapoff(name.as_ptr()) } != 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            // The file of one that was never turned on.
            let _ = fs::remove_file(path);
            return Err(error);
        }
    }
    fs::remove_file(path)
}

/// How long somebody else may take to turn it off.
const OTHERS: Duration = Duration::from_secs(60);

/// Turns off and removes what a killed session of that name has left. Its processes must be gone. Returns
/// what is still there.
pub fn clean_up(instance: &str) -> Vec<String> {
    let swaps = || -> Vec<PathBuf> {
        let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
        let files = text.lines().filter_map(|line| line.split_whitespace().next()).map(PathBuf::from);
        files.filter(|file| file.ends_with(swap_name(instance))).collect()
    };
    let deadline = Instant::now() + OTHERS;
    let failures = loop {
        let off = |file: PathBuf| swap_off(&file).err().map(|error| (file, error));
        let failures: Vec<_> = swaps().into_iter().filter_map(off).collect();
        // "No such swap", of one that is listed: a killed session's guard is turning it off.
        let others = failures.iter().any(|(_, error)| error.kind() == ErrorKind::InvalidInput);
        if !others || Instant::now() > deadline {
            break failures;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let groups = version_1().and_then(|root| fs::read_dir(root).ok()).into_iter().flatten().flatten();
    let prefix = group::prefix(instance);
    groups
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .for_each(|entry| dissolve(&entry.path()));
    let still = |file: PathBuf| {
        let why = failures.iter().find(|(failed, _)| *failed == file).map(|(_, error)| format!(": {error}"));
        format!("swap on {}{}", file.display(), why.unwrap_or_default())
    };
    swaps().into_iter().map(still).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_limited_run_cannot_have_more() {
        let Some((group, limit)) =
            Group::new("unit-test").and_then(|group| Limit::new(&group, 50).ok().map(|limit| (group, limit)))
        else {
            eprintln!("SKIPPED: no control groups with memory for this user");
            return;
        };
        let entrances = [Some(group.entrance()), limit.entrance()].into_iter().flatten();
        let join: String = entrances
            .map(|descriptor| format!("echo $$ > /proc/{}/fd/{descriptor}; ", std::process::id()))
            .collect();
        // A string in the shell's own memory: with too much of it the kernel ends the shell.
        let string = |bytes: u64| {
            let script = format!("{join}x=$(head -c {bytes} /dev/zero | tr '\\0' x); echo ${{#x}}");
            Command::new("bash").args(["-c", &script]).output().unwrap()
        };
        assert_eq!(string(1_000_000).stdout, b"1000000\n");
        let output = string(200_000_000);
        assert!(!output.status.success() || output.stdout != b"200000000\n", "{output:?}");
    }
}
