//! Programs of several threads: each that stalls is run ahead of, and one that sleeps hides nobody.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::scenario::bytes;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that the guest reads of its file.
const READ: usize = 16 << 20;

pub fn add(suite: &mut Suite) {
    suite.add("threads::two that stall at a time", slow_disk::WANTS, || are_run_ahead_of("2", "threads-2"));
    suite.add("threads::four that stall at a time", slow_disk::WANTS, || are_run_ahead_of("4", "threads-4"));
    suite.add("threads::what is asked for is passed", slow_disk::WANTS, are_passed);
    suite.add("threads::more than can be served, who compute", slow_disk::WANTS, || {
        share_is_run_ahead_of("computing", "threads-computing")
    });
    suite.add("threads::one that sleeps hides nobody", slow_disk::WANTS, || {
        are_run_ahead_of("sleeper", "threads-sleeper")
    });
    suite.add("threads::those of a pool", slow_disk::WANTS, pool);
}

fn reads(how: &str, disk: &'static str, good: impl Fn(&Value) -> Verdict) -> Verdict {
    let program = Guest::named("thread_pools")?.build()?;
    let fill = |folder: &Path| fs::write(folder.join("cold.bin"), bytes(1, READ));
    let disk = Disk::new(disk, "cloud", fill)?;
    let words = |mount: &Path| -> Vec<PathBuf> {
        let line = format!("cd {} && exec {} {how}", mount.display(), program.display());
        ["bash", "-c", &line].map(PathBuf::from).to_vec()
    };
    disk.until(&words, 1, good)
}

/// Of the 1600 reads, of all threads together, three quarters are foretold. (One thread of two makes half of
/// them.)
fn are_run_ahead_of(how: &str, disk: &'static str) -> Verdict {
    reads(how, disk, |counts| match (number(counts, "reads")?, number(counts, "reads_hinted")?) {
        (_, hinted) if hinted > 1200 => Ok(()),
        (reads, hinted) => Err(format!("{hinted} of {reads} reads foretold")),
    })
}

/// What four threads have asked for is wanted by them: little of it is judged a waste, in whichever order
/// they post.
fn are_passed() -> Verdict {
    reads("4", "threads-passed", |counts| {
        let of_speculator = &counts["speculator"];
        let asked = number(of_speculator, "prefetched_pages")?;
        match number(of_speculator, "unused_pages")? {
            unused if asked > 1000 && unused < asked / 16 => Ok(()),
            unused => Err(format!("{unused} of {asked} pages unused")),
        }
    })
}

/// Of the 800 reads of eight threads more than a third are foretold: those of four keep what was done for
/// them.
fn share_is_run_ahead_of(how: &str, disk: &'static str) -> Verdict {
    reads(how, disk, |counts| match (number(counts, "reads")?, number(counts, "reads_hinted")?) {
        (_, hinted) if hinted > 280 => Ok(()),
        (reads, hinted) => Err(format!("{hinted} of {reads} reads foretold")),
    })
}

/// Who takes which place is chance; but what is asked for is there when any of them comes.
fn pool() -> Verdict {
    reads("pool", "threads-pool", |counts| match (number(counts, "reads")?, number(counts, "stalls")?) {
        (reads, stalls) if reads > 1500 && stalls < reads / 2 => Ok(()),
        (reads, stalls) => Err(format!("{stalls} of {reads} reads waited")),
    })
}
