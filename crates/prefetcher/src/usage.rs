//! Whether the program reads what was fetched, as far as it can be seen from within, without intercepting
//! anything.
//!
//! The kernel counts for each process the bytes that its read calls returned (`rchar`) and the bytes that
//! devices delivered for it (`read_bytes`). Less our own threads' part, what the program read and no device
//! had to deliver for it came from the page cache: from us, as far as we have fetched. A program whose hints
//! are wrong waits for its devices as before, and the two counts grow together.
//!
//! It is an estimate: a program that reads something else from the cache meanwhile looks as if it used its
//! hints, and one that reads through mappings as if it used none.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of our own threads, to be left out.
#[derive(Debug, Default)]
pub struct Own {
    read: AtomicU64,
    delivered: AtomicU64,
}

/// One thread's share of [`Own`].
#[derive(Debug)]
pub struct Meter {
    file: Option<OwnedFd>,
    settled: (u64, u64),
    jobs: u32,
}

/// Jobs between two looks (1 us each).
const OFTEN: u32 = 16;

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

impl Meter {
    /// For the calling thread.
    pub fn new() -> Self {
        let file =
            rustix::fs::open("/proc/thread-self/io", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        let settled = file.as_ref().and_then(counts).unwrap_or_default();
        Meter { file, settled, jobs: 0 }
    }

    pub fn worked(&mut self, own: &Own) {
        self.jobs += 1;
        if self.jobs.is_multiple_of(OFTEN) {
            self.settle(own);
        }
    }

    /// Adds what came since the last time.
    pub fn settle(&mut self, own: &Own) {
        if let Some(now) = self.file.as_ref().and_then(counts) {
            own.read.fetch_add(now.0.saturating_sub(self.settled.0), Ordering::Relaxed);
            own.delivered.fetch_add(now.1.saturating_sub(self.settled.1), Ordering::Relaxed);
            self.settled = now;
        }
    }
}

/// The whole process, watched by the manager.
#[derive(Debug)]
pub struct Usage {
    file: Option<OwnedFd>,
    hits: u64,
}

impl Usage {
    pub fn new(own: &Own) -> Self {
        let file = rustix::fs::open("/proc/self/io", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        let mut usage = Usage { file, hits: 0 };
        usage.hits = usage.cached_bytes(own).unwrap_or(0);
        usage
    }

    /// Bytes that the program has read from the page cache since the last time; None: not to be known.
    pub fn hits(&mut self, own: &Own) -> Option<u64> {
        let now = self.cached_bytes(own)?;
        // Our own counts come late, so the difference may go back for a moment.
        let hits = now.saturating_sub(self.hits);
        self.hits = self.hits.max(now);
        Some(hits)
    }

    fn cached_bytes(&self, own: &Own) -> Option<u64> {
        let (read, delivered) = counts(self.file.as_ref()?)?;
        let read = read.saturating_sub(own.read.load(Ordering::Relaxed));
        Some(read.saturating_sub(delivered.saturating_sub(own.delivered.load(Ordering::Relaxed))))
    }
}

/// `rchar` and `read_bytes` of a `/proc/.../io` file.
fn counts(file: &OwnedFd) -> Option<(u64, u64)> {
    let mut buffer = [0; 256];
    let length = rustix::io::pread(file, &mut buffer, 0).ok()?;
    let text = std::str::from_utf8(&buffer[..length]).ok()?;
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse::<u64>().ok())
    };
    Some((field("rchar")?, field("read_bytes")?))
}
