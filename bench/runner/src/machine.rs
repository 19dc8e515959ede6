//! What a result was measured on and with.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine, as far as it shapes a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub processors: usize,
    pub memory_mb: u64,
    pub kernel: String,
    pub system: String,
}

impl Machine {
    pub fn this() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str, split: char| -> String {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(split)
                .map_or_else(String::new, |(_, value)| value.trim().trim_matches('"').to_string())
        };
        let memory = value(&read("/proc/meminfo"), "MemTotal", ':');
        Machine {
            processor: value(&read("/proc/cpuinfo"), "model name", ':'),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mb: memory.split(' ').next().and_then(|kilobytes| kilobytes.parse().ok()).unwrap_or(0u64)
                >> 10,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            system: value(&read("/etc/os-release"), "PRETTY_NAME", '='),
        }
    }
}

/// The commit of the checkout, with `+` where files differ from it; "unknown" without git.
pub fn commit(checkout: &Path) -> String {
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git").arg("-C").arg(checkout).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".into();
    };
    // Results themselves do not make a different program.
    let changed =
        git(&["status", "--porcelain", "--", ".", ":!bench/results"]).is_none_or(|text| !text.is_empty());
    if changed { commit + "+" } else { commit }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A moment as `YYYY-MM-DD`, in UTC (days to a civil date, after the usual 400-year cycle of 146,097
/// days that begins on a first of March).
pub fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (cycle, day_of_cycle) = (days / 146_097, days % 146_097);
    let year_of_cycle =
        (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = cycle * 400 + year_of_cycle + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (seconds, text) in [(0, "1970-01-01"), (951_782_400, "2000-02-29"), (1_735_689_599, "2024-12-31")]
        {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::this();
        assert!(machine.processors >= 1 && machine.memory_mb > 100 && !machine.kernel.is_empty());
    }
}
