//! What a disk really does: random reads from outside, so many in flight.

use std::fs::{self, File, OpenOptions};
use std::io::Seek;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::model::Random;

/// One kind of request, repeated.
#[derive(Clone, Copy, Debug)]
pub enum Probe<'a> {
    /// Random 4 KiB reads of a device or file, past the page cache.
    Read(&'a Path),
    /// Look-ups of names that do not exist, in this directory.
    LookUp(&'a Path),
}

/// Bytes of one read.
pub const READ_BYTES: u64 = 4096;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub in_flight: usize,
    pub requests: usize,
    pub mean_latency_ns: f64,
    pub median_latency_ns: u64,
    /// The mean without the slowest hundredth: what a program waits for time and again, and no single accident.
    #[serde(default)]
    pub usual_latency_ns: f64,
    pub requests_per_second: f64,
}

/// An aligned block, as direct I/O wants it.
#[repr(align(4096))]
struct Block([u8; READ_BYTES as usize]);

/// Keeps `in_flight` requests going for `duration`, one thread each.
pub fn measure(probe: Probe, in_flight: usize, duration: Duration, seed: u64) -> Result<Measured> {
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let results: Vec<Result<Vec<u64>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..in_flight)
            .map(|number| {
                let stop = &stop;
                scope.spawn(move || repeat(probe, seed * 1000 + number as u64, stop))
            })
            .collect();
        std::thread::sleep(duration);
        stop.store(true, Relaxed);
        let panicked = || Err(anyhow::anyhow!("a measuring thread panicked"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| panicked())).collect()
    });
    let elapsed = start.elapsed();
    let mut latencies: Vec<u64> = results.into_iter().collect::<Result<Vec<_>>>()?.concat();
    latencies.sort_unstable();
    let count = latencies.len().max(1);
    let usual = &latencies[..latencies.len() - latencies.len() / 100];
    Ok(Measured {
        in_flight,
        requests: latencies.len(),
        mean_latency_ns: latencies.iter().sum::<u64>() as f64 / count as f64,
        median_latency_ns: latencies.get(count / 2).copied().unwrap_or(0),
        usual_latency_ns: usual.iter().sum::<u64>() as f64 / usual.len().max(1) as f64,
        requests_per_second: latencies.len() as f64 / elapsed.as_secs_f64(),
    })
}

fn repeat(probe: Probe, seed: u64, stop: &AtomicBool) -> Result<Vec<u64>> {
    be_punctual();
    let mut random = Random::new(seed + 1);
    let mut latencies = Vec::new();
    match probe {
        Probe::Read(path) => {
            let (file, size) = open_direct(path)?;
            let mut block = Box::new(Block([0; READ_BYTES as usize]));
            while !stop.load(Relaxed) {
                let offset = random.aligned_offset(size, READ_BYTES);
                let start = Instant::now();
                file.read_exact_at(&mut block.0, offset)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                latencies.push(start.elapsed().as_nanos() as u64);
            }
        }
        Probe::LookUp(directory) => {
            while !stop.load(Relaxed) {
                let name = directory.join(format!(".no-such-name-{:x}", random.number()));
                let start = Instant::now();
                // That it does not exist is the point.
                let _ = fs::symlink_metadata(&name);
                latencies.push(start.elapsed().as_nanos() as u64);
            }
        }
    }
    Ok(latencies)
}

/// The disk is measured, not the processor's other users: like the daemon, this thread runs before
/// ordinary ones, as far as it may.
fn be_punctual() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: acts on the calling thread alone; the pointer is to a value of our own.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
}

fn open_direct(path: &Path) -> Result<(File, u64)> {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .with_context(|| format!("cannot open {} for direct reads", path.display()))?;
    let size = file.seek(std::io::SeekFrom::End(0))?;
    Ok((file, size))
}
