//! Reads of a file from one end to the other: more of it is asked for ahead, where the program waits, and nothing is
//! speculated for that.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::scenario::bytes;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const BYTES: usize = 32 << 20;

/// Waits that are to be spared, of some 120 that each of these has alone.
const SPARED: u64 = 24;

pub fn add(suite: &mut Suite) {
    // By 16320 bytes, with advice; by 96 KB, without.
    for (name, words) in [("wc", &["wc", "-l"][..]), ("grep", &["grep", "-c", "none of these"])] {
        let needs =
            slow_disk::WANTS.into_iter().chain([if name == "wc" { "command wc" } else { "command grep" }]);
        suite.add(format!("in_order::{name}"), needs, move || scan(name, words));
    }
}

fn scan(name: &'static str, words: &'static [&str]) -> Verdict {
    let fill = |folder: &Path| fs::write(folder.join("long"), bytes(1, BYTES));
    let all = |mount: &Path| words.iter().map(PathBuf::from).chain([mount.join("long")]).collect();
    Disk::new(name, "cloud", fill)?.until(&all, 1, is_spared)
}

fn is_spared(counts: &Value) -> Verdict {
    match number(counts, "full_prefetches")? {
        SPARED.. => Ok(()),
        _ => Err(format!("{counts}")),
    }
}
