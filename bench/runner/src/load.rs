//! Who else was busy while a run was measured.
//!
//! A figure taken while others compute is noise, so each run carries how much processor time other
//! programs used meanwhile, and how much the machine's owner took away (steal time); [`Busy::mark`] says
//! what is too much. Others are all processes but the run's own, the bench's and the kernel's threads,
//! which work for the run: a sum over `/proc` before and after, what finished children used included. It
//! is taken outside the time that counts. What the run's orphans used is known from its control group, and
//! taken off: whoever took them in has it among its children's.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Of the processors' time during a run, so much may go to others before the run is marked.
pub const SHARE: f64 = 0.10;

/// Up to here the kernel's clock ticks of 10 ms decide, not the load.
const LEAST: f64 = 0.03;

/// Seconds of processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// From the first look to the second, a little longer than the run.
    pub seconds: f64,
    /// Used by other programs.
    pub others: f64,
    /// Taken by the hypervisor for other machines.
    pub steal: f64,
}

/// Sums since the machine's start.
#[derive(Clone, Copy)]
pub struct Look {
    at: Instant,
    others: u64,
    steal: u64,
}

impl Look {
    pub fn now() -> Look {
        let ours = fs::read_link("/proc/self/exe").ok();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let of = |id: u32| -> Option<u64> {
            let directory = Path::new("/proc").join(id.to_string());
            // The bench, its guard and its disks' daemons are one program.
            if ours.is_some() && fs::read_link(directory.join("exe")).ok() == ours {
                return None;
            }
            ticks(id, &fs::read_to_string(directory.join("stat")).ok()?)
        };
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let steal = line.split_whitespace().nth(8).and_then(|field| field.parse().ok());
        Look { at: Instant::now(), others: ids.filter_map(of).sum(), steal: steal.unwrap_or(0) }
    }

    /// What happened since; `orphans` is what the run's processes used that were not waited for.
    pub fn since(self, orphans: f64) -> Busy {
        let now = Look::now();
        // SAFETY: sysconf has no preconditions.
        let second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        let passed = |after: u64, before: u64| after.saturating_sub(before) as f64 / second;
        let seconds = now.at.duration_since(self.at).as_secs_f64();
        let most = seconds * std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        // A process that nobody waits for takes its sum with it, and one that ends between the look at its
        // parent and the look at itself brings the whole of it: hence the bounds.
        let others = (passed(now.others, self.others) - orphans).clamp(0.0, most);
        Busy { seconds, others, steal: passed(now.steal, self.steal) }
    }
}

/// Clock ticks of a process and of the children that it has waited for; None of the kernel's threads.
fn ticks(id: u32, stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // The fields count from the state: parent, then 10 more, then user, system, and the children's.
    let parent = number(1)?;
    if id == 2 || parent == 2 {
        return None;
    }
    (11..=14).map(number).sum()
}

impl Busy {
    /// In words, what makes a run on so many processors doubtful.
    pub fn mark(&self, processors: usize) -> Option<String> {
        let share = |seconds: f64| seconds / (self.seconds * processors.max(1) as f64);
        let much = |seconds: f64| seconds > LEAST && share(seconds) > SHARE;
        let percent = |seconds: f64| 100.0 * share(seconds);
        if much(self.others) {
            return Some(format!(
                "the machine was busy: other programs used {:.0}% of its processors",
                percent(self.others)
            ));
        }
        much(self.steal).then(|| {
            format!("the machine was busy: {:.0}% of its processors was stolen", percent(self.steal))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_considerable_load_is_marked() {
        let busy = |others, steal| Busy { seconds: 2.0, others, steal }.mark(2);
        assert_eq!(busy(0.3, 0.3), None, "3 tenths of 4 processor seconds");
        assert!(busy(0.5, 0.0).unwrap().contains("other programs used 12%"));
        assert!(busy(0.0, 1.0).unwrap().contains("25% of its processors was stolen"));
        assert_eq!(Busy { seconds: 0.01, others: 0.02, steal: 0.02 }.mark(2), None, "two ticks are no load");
    }

    #[test]
    fn another_program_is_seen_and_kernel_threads_are_not() {
        let before = Look::now();
        let mut busy = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(400));
        let found = before.since(0.0);
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(found.others >= 0.1, "{found:?}");
        assert_eq!(before.since(1e9).others, 0.0);
        assert_eq!(ticks(77, "77 (kworker/0:1) I 2 0 0 0 -1 0 0 0 0 0 50 60 0 0 20"), None);
        assert_eq!(ticks(78, "78 (a) b) S 5 0 0 0 -1 0 0 0 0 0 50 60 7 8 20"), Some(125));
    }
}
