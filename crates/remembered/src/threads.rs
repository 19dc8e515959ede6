//! How many threads may be made where processes are counted: ours are not to keep the program's from being made.

use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::{Path, PathBuf};

/// One of ours for so many that are left.
const ONE_IN: u64 = 64;

/// As many as the user's limit and the control group leave room for, at least one.
pub fn most() -> usize {
    let own = getrlimit(Resource::Nproc).current.unwrap_or(u64::MAX);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    of(own.min(room(&groups, Path::new("/sys/fs/cgroup"))))
}

fn of(room: u64) -> usize {
    usize::try_from(room / ONE_IN).unwrap_or(usize::MAX).max(1)
}

/// Processes that the groups above this one may still have.
fn room(groups: &str, root: &Path) -> u64 {
    let mut least = u64::MAX;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let top: PathBuf = match controllers {
            "" => root.to_path_buf(),
            _ if controllers.split(',').any(|name| name == "pids") => root.join("pids"),
            _ => continue,
        };
        // Inside a container the path may be the host's, and our group is mounted as the root.
        let own = top.join(path.trim_start_matches('/'));
        for group in own.ancestors().take_while(|group| group.starts_with(&top)) {
            let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
            if let Some(most) = number("pids.max") {
                least = least.min(most.saturating_sub(number("pids.current").unwrap_or(0)));
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = |path: &str, most: &str, now: &str| {
            let folder = root.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("pids.max"), most).unwrap();
            fs::write(folder.join("pids.current"), now).unwrap();
        };
        assert_eq!(room("0::/a/b\n", root.path()), u64::MAX);
        group("a", "512\n", "200\n");
        group("a/b", "max\n", "1\n");
        assert_eq!(room("0::/a/b\n", root.path()), 312);
        assert_eq!(room("3:cpu,cpuacct:/x\n0::/a/b\n", root.path()), 312);
        group("pids/c", "10\n", "50\n");
        assert_eq!(room("7:pids:/c\n0::/a/b\n", root.path()), 0);
        // The group's own files, where its path is another's.
        group("pids", "100\n", "40\n");
        assert_eq!(room("7:pids:/elsewhere/d\n", root.path()), 60);
        assert_eq!((of(0), of(312), of(u64::MAX) > 1000), (1, 4, true));
    }
}
