//! A neighbour: somebody else who reads from the disk under test, one page after another, and waits for each.
//!
//! What Runahead takes from other programs is their waiting. For workloads that have a neighbour, a thread of the
//! session reads random pages of a file during each run, past the page cache (O_DIRECT), and for a second before
//! it, and notes how long each took.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::results::Record;

const PAGE: usize = 4096;

/// How long the neighbour reads by itself: a thousand reads on the disk of 1 ms.
const ALONE: Duration = Duration::from_secs(1);

/// How long its reads took, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Waits {
    pub reads: usize,
    pub median: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Before the run, and during it.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Beside {
    pub alone: Waits,
    pub beside: Waits,
}

impl Waits {
    fn of(mut nanoseconds: Vec<u64>) -> Waits {
        nanoseconds.sort_unstable();
        let at = |share: f64| {
            let index = (nanoseconds.len() as f64 * share) as usize;
            nanoseconds.get(index).map_or(0.0, |wait| *wait as f64 / 1000.0)
        };
        Waits { reads: nanoseconds.len(), median: at(0.5), p99: at(0.99) }
    }
}

/// Buffers for O_DIRECT have to lie on a sector's boundary.
#[repr(align(4096))]
struct Page([u8; PAGE]);

pub struct Neighbour {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u64>>,
}

impl Neighbour {
    pub fn start(path: &Path) -> Result<Neighbour> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
        let file = file.with_context(|| format!("the neighbour cannot open {}", path.display()))?;
        let pages = file.metadata()?.len() / PAGE as u64;
        ensure!(pages > 0, "{} is empty", path.display());
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || read(&file, pages, &seen));
        Ok(Neighbour { stop, thread })
    }

    pub fn end(self) -> Waits {
        self.stop.store(true, Ordering::Relaxed);
        Waits::of(self.thread.join().unwrap_or_default())
    }
}

fn read(file: &File, pages: u64, stop: &AtomicBool) -> Vec<u64> {
    let mut page = Box::new(Page([0; PAGE]));
    let mut waits = Vec::new();
    let mut state = 1u64;
    while !stop.load(Ordering::Relaxed) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let began = Instant::now();
        if file.read_exact_at(&mut page.0, (state >> 20) % pages * PAGE as u64).is_err() {
            break;
        }
        waits.push(began.elapsed().as_nanos() as u64);
    }
    waits
}

/// How long the neighbour waits without anybody.
pub fn alone(path: &Path) -> Result<Waits> {
    let neighbour = Neighbour::start(path)?;
    std::thread::sleep(ALONE);
    Ok(neighbour.end())
}

/// One line for each configuration of each workload with a neighbour: medians over its runs.
pub fn show(records: &[Record]) -> String {
    let mut text = String::new();
    for record in records {
        let mut names: Vec<&str> = Vec::new();
        for run in record.runs.iter().filter(|run| run.neighbour.is_some()) {
            if !names.contains(&run.configuration.as_str()) {
                names.push(&run.configuration);
            }
        }
        for name in names {
            let runs: Vec<Beside> = record
                .runs
                .iter()
                .filter(|run| run.configuration == name)
                .filter_map(|run| run.neighbour)
                .collect();
            let median = |figure: fn(&Beside) -> f64| {
                let mut all: Vec<f64> = runs.iter().map(figure).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            text += &format!(
                "neighbour of {} ({name}, {}): median {:.2} times as long ({:.0} us alone), 99th percentile {:.2} times ({:.0} us)\n",
                record.workload,
                record.disk.profile,
                median(|one| one.beside.median / one.alone.median),
                median(|one| one.alone.median),
                median(|one| one.beside.p99 / one.alone.p99),
                median(|one| one.alone.p99),
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles() {
        let waits = Waits::of((1..=1000).rev().map(|n| n * 1000).collect());
        assert_eq!(waits, Waits { reads: 1000, median: 501.0, p99: 991.0 });
        assert_eq!(Waits::of(Vec::new()), Waits::default());
    }

    #[test]
    fn reads_until_it_is_told_to_stop() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/neighbour.rs");
        let neighbour = Neighbour::start(&folder).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(neighbour.end().reads > 0);
    }
}
