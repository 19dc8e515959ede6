//! Limits: the user's options, the memory control group's limit, the kernel's pressure figures.
//!
//! What cannot be read is no limit: on kernels without PSI, in containers without a visible control group.

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
        Self { enabled: true, memory: u64::MAX, in_flight: crate::pool::THREADS as u32, bandwidth: u64::MAX }
    }
}

impl Options {
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
    /// From the process's own group upwards; version 2, then version 1's one.
    unified: Vec<PathBuf>,
    version1: Option<PathBuf>,
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
        let mut group = Group { unified: Vec::new(), version1: None, pressure: None };
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
                let own = root.join("memory").join(path);
                // Inside a container the path is the host's, and our group is mounted as the root.
                let seen = if own.exists() { own } else { root.join("memory") };
                group.version1 = Some(seen).filter(|path| path.join("memory.limit_in_bytes").exists());
            }
        }
        group
    }

    /// The tightest limit: the group with the least room.
    pub fn memory(&self, most: u64) -> Memory {
        let machine = machine(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
        let mut tightest = machine;
        for path in &self.unified {
            let inactive = || field(&text(path, "memory.stat"), "inactive_file");
            // Above memory.high the kernel slows the group down, so that is its limit to us.
            let limit = number(path, "memory.max").unwrap_or(u64::MAX);
            let limit = limit.min(number(path, "memory.high").unwrap_or(u64::MAX));
            if let Some(used) = number(path, "memory.current") {
                tighten(&mut tightest, limit, used, inactive);
            }
        }
        if let Some(path) = &self.version1 {
            let inactive = || field(&text(path, "memory.stat"), "total_inactive_file");
            if let (Some(limit), Some(used)) =
                (number(path, "memory.limit_in_bytes"), number(path, "memory.usage_in_bytes"))
            {
                tighten(&mut tightest, limit, used, inactive);
            }
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
}

impl Group {
    /// Pages of this process's group that were read or swapped in again soon after they had been evicted, ever; of the
    /// machine where there is no group. 0 where the kernel does not say (before Linux 5.9).
    pub fn refaults(&self) -> u64 {
        let own = self.unified.first().or(self.version1.as_ref()).map(|path| text(path, "memory.stat"));
        match own.as_deref().and_then(refaults) {
            Some(count) => count,
            None => refaults(&fs::read_to_string("/proc/vmstat").unwrap_or_default()).unwrap_or(0),
        }
    }
}

/// What is said of files and of anonymous memory, of all groups below this one too (version 1 says that apart).
fn refaults(text: &str) -> Option<u64> {
    let whole = text.contains("\ntotal_workingset_refault_file ");
    let names = if whole {
        ["total_workingset_refault_file", "total_workingset_refault_anon"]
    } else {
        ["workingset_refault_file", "workingset_refault_anon"]
    };
    let said = text.contains(names[0]);
    said.then(|| names.iter().fold(0, |sum, name| field(text, name).wrapping_add(sum)))
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
    fn refaults_of_both_versions_of_groups_and_of_the_machine() {
        let both = "anon 1\nworkingset_refault_anon 3\nworkingset_refault_file 40\n";
        assert_eq!(refaults(both), Some(43));
        assert_eq!(
            refaults(&format!(
                "{both}total_cache 1\ntotal_workingset_refault_anon 5\ntotal_workingset_refault_file 60\n"
            )),
            Some(65)
        );
        assert_eq!(refaults("anon 1\n"), None);

        let root = tempfile::tempdir().unwrap();
        for (path, name, value) in [
            ("a", "memory.max", "max"),
            ("a", "memory.stat", both),
            ("memory/x", "memory.limit_in_bytes", "5"),
            ("memory/x", "memory.stat", "\nworkingset_refault_file 1\ntotal_workingset_refault_file 7\n"),
        ] {
            fs::create_dir_all(root.path().join(path)).unwrap();
            fs::write(root.path().join(path).join(name), value).unwrap();
        }
        assert_eq!(Group::from_lines("0::/a\n", root.path()).refaults(), 43);
        assert_eq!(Group::from_lines("4:memory:/x\n", root.path()).refaults(), 7);
    }

    #[test]
    fn pressure_in_hundredths_of_a_percent() {
        let text = "some avg10=12.34 avg60=1.00 avg300=0.00 total=5\nfull avg10=1.00";
        assert_eq!(pressure(text), Some(1234));
        assert_eq!(pressure(""), None);
    }
}
