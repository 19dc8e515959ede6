//! How many processes there may be where they are counted (`pids.max`, RLIMIT_NPROC): ours count there, and
//! are not to keep the program's from being made.

use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// One thread of ours for so many processes that are left.
const ONE_IN: u64 = 64;

/// What the control groups above this process allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// The least limit of all.
    pub limit: u64,
    /// Processes that may still be made.
    pub left: u64,
}

impl Room {
    /// Asks; what cannot be read is no limit.
    pub(crate) fn look() -> Room {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Room::of(&own, Path::new(GROUPS))
    }

    /// Of the groups that `own` (`/proc/self/cgroup`) names below `mounted`, and those above them.
    fn of(own: &str, mounted: &Path) -> Room {
        let mut room = Room { limit: u64::MAX, left: u64::MAX };
        for line in own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let top: PathBuf = match controllers {
                "" => mounted.to_path_buf(),
                _ if controllers.split(',').any(|name| name == "pids") => mounted.join("pids"),
                _ => continue,
            };
            // Inside a container the path may be the host's, and our group is mounted as the root.
            for group in Path::new(path.trim_start_matches('/')).ancestors() {
                let group = top.join(group);
                let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
                let Some(limit) = number("pids.max") else { continue };
                let left = limit.saturating_sub(number("pids.current").unwrap_or(0));
                room = Room { limit: room.limit.min(limit), left: room.left.min(left) };
            }
        }
        room
    }

    /// How many threads may be made for what is only of use: at least one.
    pub(crate) fn threads(self) -> usize {
        let user = getrlimit(Resource::Nproc).current.unwrap_or(u64::MAX);
        one_in(self.left.min(user))
    }
}

fn one_in(left: u64) -> usize {
    usize::try_from(left / ONE_IN).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_group_counts() {
        let groups = std::env::temp_dir().join(format!("runahead-groups-{}", std::process::id()));
        let put = |group: &str, limit: &str, now: &str| {
            let folder = groups.join(group);
            fs::create_dir_all(&folder).expect("a group");
            fs::write(folder.join("pids.max"), limit).expect("its limit");
            fs::write(folder.join("pids.current"), now).expect("its processes");
        };
        let room = |own| {
            let Room { limit, left } = Room::of(own, &groups);
            (limit, left)
        };
        assert_eq!(room("0::/a/b\n"), (u64::MAX, u64::MAX));
        put("a", "512\n", "200\n");
        put("a/b", "max\n", "1\n");
        assert_eq!(room("0::/a/b\n"), (512, 312));
        assert_eq!(room("3:cpu,cpuacct:/x\n0::/a/b\n"), (512, 312));
        put("pids/c", "10\n", "50\n");
        assert_eq!(room("7:pids:/c\n0::/a/b\n"), (10, 0));
        // The group's own files, where its path is another's.
        put("pids", "100\n", "40\n");
        assert_eq!(room("7:cpu,pids:/of/the/host\n"), (100, 60));
        assert_eq!((one_in(0), one_in(312), one_in(u64::MAX) > 1000), (1, 4, true));
        fs::remove_dir_all(&groups).expect("the groups go again");
    }
}
