//! How much of its time a thread waits for something other than a processor.
//!
//! The kernel counts for every thread how long it has run and how long it has waited for a processor
//! (`/proc/PID/task/TID/schedstat`, kernel document `scheduler/sched-stats.rst`; whoever sees the process may read it).
//! What is left of the time, it waited for a disk or for somebody (or its processor was taken from it by interrupts or another virtual
//! machine). Of a thread that runs, the figures are up to a tick old; in a fault that waits they are exact.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// The figures of one thread at one time.
#[derive(Clone, Copy)]
struct Figures {
    at: Instant,
    /// ns on a processor, or waiting for one.
    runnable: u64,
}

/// A span of a thread's time, up to now.
pub struct Waits {
    file: File,
    since: Figures,
}

impl Waits {
    /// A span that begins now. None if the kernel does not count, or there is no such thread.
    pub fn begin(process: u32, thread: i32) -> Option<Waits> {
        let file = File::open(format!("/proc/{process}/task/{thread}/schedstat")).ok()?;
        let since = figures(&file)?;
        Some(Waits { file, since })
    }

    /// The length of the span so far, ns, and how much of it the thread has waited, which is not more, if it is at least so
    /// long.
    pub fn look(&self, least: u64) -> Option<(u64, u64)> {
        Some(self.until(self.now(least)?))
    }

    /// The same; then the next span begins.
    pub fn take(&mut self, least: u64) -> Option<(u64, u64)> {
        let now = self.now(least)?;
        let span = self.until(now);
        self.since = now;
        Some(span)
    }

    fn now(&self, least: u64) -> Option<Figures> {
        if (self.since.at.elapsed().as_nanos() as u64) < least { None } else { figures(&self.file) }
    }

    fn until(&self, now: Figures) -> (u64, u64) {
        let whole = now.at.duration_since(self.since.at).as_nanos() as u64;
        (whole, whole.saturating_sub(now.runnable.saturating_sub(self.since.runnable)))
    }
}

fn figures(file: &File) -> Option<Figures> {
    let mut line = [0; 96];
    let length = file.read_at(&mut line, 0).ok()?;
    let runnable = runnable(std::str::from_utf8(&line[..length]).ok()?)?;
    Some(Figures { at: Instant::now(), runnable })
}

/// Of a line `ran waited slices`, ns, the first two together. A thread that was never on a processor is one of a kernel that
/// does not count.
fn runnable(line: &str) -> Option<u64> {
    let mut words = line.split_ascii_whitespace().map(str::parse::<u64>);
    let (ran, waited) = (words.next()?.ok()?, words.next()?.ok()?);
    ran.checked_add(waited).filter(|_| ran > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn own() -> Option<Waits> {
        // SAFETY: takes no address.
        Waits::begin(std::process::id(), unsafe { libc::gettid() })
    }

    #[test]
    fn who_sleeps_waits_and_who_computes_does_not() {
        let Some(mut waits) = own() else { return eprintln!("SKIPPED: the kernel counts no thread's time") };
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!(waits.take(u64::MAX), None);
        let (whole, waited) = waits.take(1).unwrap();
        assert!(whole >= 40_000_000 && waited >= 35_000_000, "{waited} of {whole}");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(200) {
            std::hint::black_box(begun);
        }
        let (whole, waited) = waits.take(1).unwrap();
        // A tick is 10 ms at most, and another program's is not ours.
        assert!(whole >= 200_000_000 && waited <= 20_000_000, "{waited} of {whole}");
    }

    #[test]
    fn garbage_is_nothing() {
        for line in ["", "1", "a b c", "1 -2 3", "18446744073709551615 1 0", "0 0 0"] {
            assert_eq!(runnable(line), None, "{line}");
        }
        assert_eq!(runnable("5 7 1\n"), Some(12));
        assert!(Waits::begin(1 << 30, 1).is_none());
    }
}
