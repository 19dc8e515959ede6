//! Limits: the user's options, the memory control group's limit, the kernel's pressure figures.
//!
//! What cannot be read is no limit: on kernels without PSI, in containers without a visible control group.

use runahead_prefetch::PAGE;
use runahead_prefetch::budget::{self, Memory, Pressure};
use std::fs;
use std::path::{Path, PathBuf};

/// What the user allows. From the environment, since a library has no command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `RUNAHEAD_HINTS=off`: hints have no effect.
    pub enabled: bool,
    /// `RUNAHEAD_MAX_MEMORY`: bytes that are prefetched and not yet used.
    pub memory: u64,
    /// `RUNAHEAD_MAX_INFLIGHT`: requests at all devices together.
    pub in_flight: u32,
    /// `RUNAHEAD_MAX_BANDWIDTH`: bytes a second.
    pub bandwidth: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

impl Options {
    pub const UNLIMITED: Options = Options {
        enabled: true,
        memory: u64::MAX,
        in_flight: crate::pool::THREADS as u32,
        bandwidth: u64::MAX,
    };

    /// Whether anything may be fetched at all: a page needs room, and time.
    pub const fn allow_any(&self) -> bool {
        self.memory >= PAGE && self.bandwidth > 0
    }

    /// A value that is no number is as if it were not there: a program's hints are no place for complaints.
    pub fn from_environment() -> Self {
        let value = |name: &str| std::env::var(name).ok();
        let default = Options::default();
        let bytes = |name, default| value(name).and_then(|value| size(&value)).unwrap_or(default);
        Self {
            enabled: !value("RUNAHEAD_HINTS")
                .is_some_and(|value| matches!(value.as_str(), "off" | "0" | "no")),
            memory: bytes("RUNAHEAD_MAX_MEMORY", default.memory),
            in_flight: value("RUNAHEAD_MAX_INFLIGHT")
                .and_then(|value| value.parse().ok())
                .map_or(default.in_flight, |count: u32| count.clamp(1, default.in_flight)),
            bandwidth: bytes("RUNAHEAD_MAX_BANDWIDTH", default.bandwidth),
        }
    }
}

/// A number of bytes, with K, M, G or T behind it.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, shift) = match text.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        b'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The memory above this process.
#[derive(Debug)]
pub struct Group {
    /// From the process's own group upwards, of version 2 and of version 1.
    unified: Vec<PathBuf>,
    version1: Vec<PathBuf>,
    /// `memory.pressure` of the process's own group (version 2), unless that is the root.
    pressure: Option<PathBuf>,
}

impl Group {
    /// Where this process is. Its moving to another group later is not noticed.
    pub fn find() -> Group {
        Self::from_lines(
            &fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
            Path::new("/sys/fs/cgroup"),
        )
    }

    fn from_lines(lines: &str, root: &Path) -> Group {
        let mut group = Group { unified: Vec::new(), version1: Vec::new(), pressure: None };
        for line in lines.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let path = path.trim_start_matches('/');
            if controllers.is_empty() {
                group.unified = Path::new(path)
                    .ancestors()
                    .map(|path| root.join(path))
                    .filter(|path| path.join("memory.max").exists())
                    .collect();
                // Where version 1 limits memory, version 2 is mounted beside it and has pressure all the same.
                group.pressure = [root.to_path_buf(), root.join("unified")]
                    .iter()
                    .map(|root| root.join(path).join("memory.pressure"))
                    .find(|file| !path.is_empty() && file.exists());
            } else if controllers.split(',').any(|name| name == "memory") {
                let mounted = root.join("memory");
                let own = mounted.join(path);
                // Inside a container the path is the host's, and our group is mounted as the root.
                let seen = if own.exists() { own } else { mounted.clone() };
                group.version1 = seen
                    .ancestors()
                    .take_while(|path| path.starts_with(&mounted))
                    .filter(|path| path.join("memory.limit_in_bytes").exists())
                    .map(Path::to_path_buf)
                    .collect();
            }
        }
        group
    }

    /// Each group with what it may use and uses, and the name of the file pages that it would give up first.
    fn groups(&self) -> impl Iterator<Item = (&Path, u64, u64, &'static str)> {
        let unified = self.unified.iter().filter_map(|path| {
            // Above memory.high the kernel slows the group down, so that is its limit to us.
            let limit = number(path, "memory.max").unwrap_or(u64::MAX);
            let limit = limit.min(number(path, "memory.high").unwrap_or(u64::MAX));
            Some((path.as_path(), limit, number(path, "memory.current")?, "inactive_file"))
        });
        let version1 = self.version1.iter().filter_map(|path| {
            let limit = number(path, "memory.limit_in_bytes")?;
            Some((path.as_path(), limit, number(path, "memory.usage_in_bytes")?, "total_inactive_file"))
        });
        unified.chain(version1)
    }

    /// The tightest limit: the group with the least room.
    pub fn memory(&self, most: u64) -> Memory {
        let machine = machine(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
        let mut tightest = machine;
        for (path, limit, used, inactive) in self.groups() {
            tighten(&mut tightest, limit, used, || field(&text(path, "memory.stat"), inactive));
        }
        let read = |path: &Path| fs::read_to_string(path).ok().and_then(|text| pressure(&text));
        let short = |memory: &Memory| budget::is_short(memory.limit, memory.free());
        let pressure = Pressure {
            own: self.pressure.as_deref().and_then(read),
            machine: read(Path::new("/proc/pressure/memory")),
            machine_short: short(&machine),
            group_short: short(&tightest),
        };
        Memory { pressure: pressure.counts(), most, ..tightest }
    }

    /// Bytes of swap that are left to this process's group, where the machine has `machine` left: a group above it may be
    /// allowed less.
    pub fn free_swap(&self, machine: u64) -> u64 {
        let left = |path: &PathBuf, most, used| {
            Some(number(path, most)?.saturating_sub(number(path, used).unwrap_or(0)))
        };
        let unified =
            self.unified.iter().filter_map(|path| left(path, "memory.swap.max", "memory.swap.current"));
        // Memory and swap together, which come to the same where memory is full.
        let version1 = self
            .version1
            .iter()
            .filter_map(|path| left(path, "memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"));
        unified.chain(version1).fold(machine, u64::min)
    }

    /// Whether pages may have to go for what is brought in: a group of ours is full, or would be with `held` bytes more,
    /// or the machine is. (What is evicted where there is room, as by kernels that page idle cache out, is nobody's fault.)
    pub fn evicts(&self, held: u64) -> bool {
        self.groups().any(|(_, limit, used, _)| budget::is_full(limit, used.saturating_add(held)))
            || machine_evicts(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), held)
    }

    /// Whether a group of ours, or the machine, would be [at the edge](budget::is_at_the_edge) with `held` bytes more.
    /// What is left is what is free, files' pages, which can be evicted, and swap.
    pub fn is_at_the_edge(&self, held: u64) -> bool {
        self.is_at_the_edge_beside(held, &fs::read_to_string("/proc/meminfo").unwrap_or_default())
    }

    fn is_at_the_edge_beside(&self, held: u64, meminfo: &str) -> bool {
        let swap = self.free_swap(field(meminfo, "SwapFree") << 10);
        let machine = machine(meminfo);
        let at_the_edge = |limit: u64, used: u64, files: u64| {
            let left = limit.saturating_sub(used).saturating_add(files).saturating_add(swap);
            budget::is_at_the_edge(limit, left.saturating_sub(held))
        };
        self.groups().any(|(path, limit, used, inactive)| {
            let stat = text(path, "memory.stat");
            let files = field(&stat, inactive) + field(&stat, &inactive.replace("inactive", "active"));
            at_the_edge(limit, used, files)
        }) || at_the_edge(machine.limit, machine.used, 0)
    }

    /// Pages of this process's group that came back after they had been evicted, ever; of the machine where there is no
    /// group. Only those that the kernel finds would not have had to go, had there been a little more memory;
    /// version 1 of groups tells no difference. 0 where the kernel does not say (before Linux 5.9).
    pub fn came_back(&self) -> u64 {
        let own = self.unified.first().or(self.version1.first()).map(|path| text(path, "memory.stat"));
        let machine = || came_back(&fs::read_to_string("/proc/vmstat").unwrap_or_default());
        own.as_deref().and_then(came_back).or_else(machine).unwrap_or(0)
    }
}

/// What `memory.stat` or `/proc/vmstat` says of pages that came back, files' and anonymous ones.
fn came_back(text: &str) -> Option<u64> {
    // The second is version 1's, of all groups below too.
    let names = ["workingset_activate_", "total_workingset_refault_"];
    let said = |name: &&str| text.lines().any(|line| line.starts_with(name));
    let name = names.into_iter().find(said)?;
    Some(["file", "anon"].iter().fold(0, |sum, kind| sum.wrapping_add(field(text, &format!("{name}{kind}")))))
}

/// A machine fills its memory with files in time. Memory is short when those that nobody uses any more run out as well.
fn machine_evicts(meminfo: &str, held: u64) -> bool {
    let of = |name| field(meminfo, name) << 10;
    let (total, free, idle) = (of("MemTotal"), of("MemFree"), of("Inactive(file)"));
    let used = total.saturating_sub(free);
    budget::is_full(total, used.saturating_add(held)) && idle < total / 4
}

fn tighten(tightest: &mut Memory, limit: u64, used: u64, reclaimable: impl Fn() -> u64) {
    if limit < tightest.limit {
        *tightest = Memory { limit, used, reclaimable: reclaimable(), ..*tightest };
    }
}

fn text(path: &Path, name: &str) -> String {
    fs::read_to_string(path.join(name)).unwrap_or_default()
}

fn number(path: &Path, name: &str) -> Option<u64> {
    text(path, name).trim().parse().ok()
}

fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once([' ', ':']))
        .find(|(field, _)| *field == name)
        .and_then(|(_, value)| value.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// The machine's memory, from /proc/meminfo.
fn machine(text: &str) -> Memory {
    let total = field(text, "MemTotal") << 10;
    let available = field(text, "MemAvailable") << 10;
    let limit = if total == 0 { u64::MAX } else { total };
    Memory { limit, used: total.saturating_sub(available), reclaimable: 0, pressure: 0, most: u64::MAX }
}

/// Hundredths of a percent of the last ten seconds in which some task waited for memory.
fn pressure(text: &str) -> Option<u32> {
    let percent = text
        .lines()
        .find_map(|line| line.strip_prefix("some avg10=")?.split(' ').next()?.parse::<f64>().ok())?;
    Some((percent * 100.0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("64k"), Some(64 << 10));
        assert_eq!(size(" 2G "), Some(2 << 30));
        assert_eq!([size(""), size("G"), size("x"), size("-1"), size("99999999999T")], [None; 5]);
    }

    #[test]
    fn the_tightest_of_nested_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, name: &str, value: &str| {
            fs::create_dir_all(root.path().join(path)).unwrap();
            fs::write(root.path().join(path).join(name), value).unwrap();
        };
        for (path, limit, used) in [("a", "1048576", "600000"), ("a/b", "max", "500000")] {
            put(path, "memory.max", limit);
            put(path, "memory.current", used);
            put(path, "memory.stat", "anon 5\ninactive_file 4096\n");
        }
        let memory = Group::from_lines("0::/a/b\n", root.path()).memory(u64::MAX);
        assert_eq!((memory.limit, memory.used, memory.reclaimable), (1_048_576, 600_000, 4096));

        put("memory/x", "memory.limit_in_bytes", "524288\n");
        put("memory/x", "memory.usage_in_bytes", "1000\n");
        put("memory/x", "memory.stat", "total_inactive_file 8\n");
        let memory = Group::from_lines("4:cpu,memory:/x\n0::/a/b\n", root.path()).memory(u64::MAX);
        assert_eq!((memory.limit, memory.used, memory.reclaimable), (524_288, 1000, 8));

        let none = Group::from_lines("", root.path()).memory(u64::MAX);
        assert!(none.limit > 100 << 20);
    }

    #[test]
    fn the_own_groups_pressure_counts_wherever_version_2_is_mounted() {
        for mounted in ["", "unified"] {
            let root = tempfile::tempdir().unwrap();
            let own = root.path().join(mounted).join("a");
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("memory.pressure"), "some avg10=7.00 avg60=0.00\n").unwrap();
            // The machine's own may be anything, and counts only where memory is short.
            let pressure = Group::from_lines("0::/a\n", root.path()).memory(u64::MAX).pressure;
            assert!(pressure >= 700, "{mounted}: {pressure}");
            assert!(Group::from_lines("0::/\n", root.path()).pressure.is_none());
        }
    }

    #[test]
    fn pages_that_came_back_in_both_versions_of_groups_and_on_the_machine() {
        let unified =
            "anon 1\nworkingset_refault_file 99\nworkingset_activate_anon 3\nworkingset_activate_file 40\n";
        let version1 = "cache 1\nworkingset_refault_file 1\ntotal_cache 1\ntotal_workingset_refault_anon 5\n\
                        total_workingset_refault_file 60\n";
        assert_eq!([unified, version1, "anon 1\n"].map(came_back), [Some(43), Some(65), None]);

        let root = tempfile::tempdir().unwrap();
        for (path, name, value) in [
            ("a", "memory.max", "max"),
            ("a", "memory.stat", unified),
            ("memory/x", "memory.limit_in_bytes", "5"),
            ("memory/x", "memory.stat", version1),
        ] {
            fs::create_dir_all(root.path().join(path)).unwrap();
            fs::write(root.path().join(path).join(name), value).unwrap();
        }
        assert_eq!(Group::from_lines("0::/a\n", root.path()).came_back(), 43);
        assert_eq!(Group::from_lines("4:memory:/x\n", root.path()).came_back(), 65);
    }

    #[test]
    fn a_full_group_evicts_whichever_of_those_above_it_is() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, name: &str, value: u64| {
            fs::create_dir_all(root.path().join(path)).unwrap();
            fs::write(root.path().join(path).join(name), value.to_string()).unwrap();
        };
        for (path, limit, used) in [("", u64::MAX >> 1, 900), ("x", 1600, 900), ("x/y", 3200, 900)] {
            put(&format!("memory/{path}"), "memory.limit_in_bytes", limit);
            put(&format!("memory/{path}"), "memory.usage_in_bytes", used);
        }
        let group = Group::from_lines("4:memory:/x/y\n", root.path());
        let short = machine_evicts(&fs::read_to_string("/proc/meminfo").unwrap(), 0);
        assert_eq!([0, 500, 700].map(|held| group.evicts(held) || short), [short, short, true]);
        put("memory/x", "memory.usage_in_bytes", 1550);
        assert!(group.evicts(0));
        put("memory/x", "memory.usage_in_bytes", 0);
        put("memory/x/y", "memory.usage_in_bytes", 3200);
        assert!(group.evicts(0));
    }

    #[test]
    fn what_can_be_evicted_or_swapped_keeps_a_group_from_the_edge() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, name: &str, value: String| {
            fs::create_dir_all(root.path().join(path)).unwrap();
            fs::write(root.path().join(path).join(name), value).unwrap();
        };
        let (limit, version1, unified) = (100 << 20, "memory/x", "y");
        let use_up = |left: u64, files: u64| {
            let stat = format!("inactive_file {}\nactive_file {}\n", files / 4, files - files / 4);
            let total = stat.replace("inactive", "total_inactive").replace("\nactive", "\ntotal_active");
            put(version1, "memory.limit_in_bytes", limit.to_string());
            put(version1, "memory.usage_in_bytes", (limit - left).to_string());
            put(version1, "memory.memsw.limit_in_bytes", limit.to_string());
            put(version1, "memory.memsw.usage_in_bytes", limit.to_string());
            put(version1, "memory.stat", total);
            put(unified, "memory.max", limit.to_string());
            put(unified, "memory.swap.max", "0".into());
            put(unified, "memory.current", (limit - left).to_string());
            put(unified, "memory.stat", stat);
        };
        use_up(0, 0);
        for lines in ["4:memory:/x\n", "0::/y\n"] {
            let group = Group::from_lines(lines, root.path());
            let at_the_edge = |left: u64, files: u64, held: u64| {
                use_up(left, files);
                group.is_at_the_edge(held)
            };
            assert!(at_the_edge(1 << 20, 5 << 20, 0), "{lines}");
            assert!(!at_the_edge(1 << 20, 6 << 20, 0), "{lines}");
            assert!(at_the_edge(1 << 20, 6 << 20, 1 << 20), "{lines}");
            assert!(!at_the_edge(7 << 20, 0, 0), "{lines}");
        }
        use_up(0, 0);
        put(unified, "memory.swap.max", "max".into());
        let group = Group::from_lines("0::/y\n", root.path());
        let with_swap = |kb: u64| {
            let meminfo = format!("MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\nSwapFree: {kb} kB\n");
            group.is_at_the_edge_beside(0, &meminfo)
        };
        assert!(with_swap(6 << 10) && !with_swap(7 << 10));
    }

    #[test]
    fn swap_is_left_as_the_tightest_of_nested_groups_has_it() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, name: &str, value: &str| {
            fs::create_dir_all(root.path().join(path)).unwrap();
            fs::write(root.path().join(path).join(name), value).unwrap();
        };
        for (path, most, used) in
            [("a", "5000\n", "4000\n"), ("a/b", "max\n", "3000\n"), ("a/b/c", "9000\n", "0\n")]
        {
            put(path, "memory.max", "max\n");
            put(path, "memory.swap.max", most);
            put(path, "memory.swap.current", used);
        }
        let group = Group::from_lines("0::/a/b/c\n", root.path());
        assert_eq!([u64::MAX, 900].map(|machine| group.free_swap(machine)), [1000, 900]);
        put("a/b/c", "memory.swap.max", "0\n");
        assert_eq!(group.free_swap(u64::MAX), 0);

        for (path, most, used) in [("x", "7000\n", "6500\n"), ("x/y", "9223372036854771712\n", "100\n")] {
            put(&format!("memory/{path}"), "memory.limit_in_bytes", "5000\n");
            put(&format!("memory/{path}"), "memory.memsw.limit_in_bytes", most);
            put(&format!("memory/{path}"), "memory.memsw.usage_in_bytes", used);
        }
        assert_eq!(Group::from_lines("4:memory:/x/y\n", root.path()).free_swap(u64::MAX), 500);
        put("memory/x", "memory.memsw.usage_in_bytes", "7001\n");
        assert_eq!(Group::from_lines("4:memory:/x/y\n", root.path()).free_swap(u64::MAX), 0);
        // Where swap is not accounted for the machine's is all that can be known.
        assert_eq!(Group::from_lines("", root.path()).free_swap(77), 77);
    }

    #[test]
    fn a_machine_full_of_files_that_nobody_uses_is_not_short() {
        let meminfo =
            |free, idle| format!("MemTotal: 1600 kB\nMemFree: {free} kB\nInactive(file): {idle} kB\n");
        assert!(machine_evicts(&meminfo(50, 300), 0));
        assert!(!machine_evicts(&meminfo(50, 500), 0));
        assert!(!machine_evicts(&meminfo(200, 300), 0));
        assert!(machine_evicts(&meminfo(200, 300), 150 << 10));
        assert!(!machine_evicts("", 0));
    }

    #[test]
    fn pressure_in_hundredths_of_a_percent() {
        let text = "some avg10=12.34 avg60=1.00 avg300=0.00 total=5\nfull avg10=1.00";
        assert_eq!(pressure(text), Some(1234));
        assert_eq!(pressure(""), None);
    }
}
