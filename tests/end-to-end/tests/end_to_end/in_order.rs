//! Reads of a file from one end to the other: more of it is asked for ahead, where the program waits.

use crate::faults::guest;
use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use crate::untold::{NOBODY, OLDER_KERNEL, ORDINARY, on_an_overlay};
use runahead_end_to_end::Verdict;
use runahead_end_to_end::scenario::bytes;
use serde_json::Value;
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

const BYTES: usize = 32 << 20;

/// Of it, what must be asked for ahead where it is read in order; and the waits that this spares, of some
/// 120.
const ASKED: u64 = 8 << 20;
const SPARED: u64 = 24;

/// Reads that may be looked at of 8192 that need not be, and of the 256 before them that wait.
const LOOKED_AT: u64 = 2000;

/// What the guest reads where it stops; no more is asked for than was read.
const HEAD: u64 = 3 << 20;

/// Ways to read, of the guest `in_order`, in which the kernel has a part of each read under way when it
/// waits.
const SERVED: [&str; 6] = ["read4", "read64", "odd", "readv", "sendfile", "calls"];

/// Those in which it may wait for a whole read, so that speculation may come first.
const FORETOLD: [&str; 3] = ["pread", "merge", "advised"];

pub fn add(suite: &mut Suite) {
    let needs = || slow_disk::WANTS.into_iter().chain(["command gcc"]);
    let programs =
        [("wc", "command wc", &["wc", "-l"][..]), ("grep", "command grep", &["grep", "-c", "none of these"])];
    for (name, wants, words) in programs {
        suite.add(format!("in_order::{name}"), slow_disk::WANTS.into_iter().chain([wants]), move || {
            let words = |mount: &Path| words.iter().map(PathBuf::from).chain([mount.join("long")]).collect();
            disk(name)?.until(&words, 1, is_spared)
        });
    }
    for way in SERVED {
        suite.add(format!("in_order::{way} is asked ahead for"), needs(), move || {
            disk(way)?.until(&reader(way)?, 1, is_asked_for)
        });
    }
    for way in FORETOLD {
        suite.add(format!("in_order::{way} has waits spared"), needs(), move || {
            disk(way)?.until(&reader(way)?, 1, |counts| match number(counts, "full_prefetches")? {
                SPARED.. => Ok(()),
                _ => Err(format!("{counts}")),
            })
        });
    }
    suite.add("in_order::on an overlay", needs().chain(["command unshare"]), || {
        let reader = guest("in_order")?.build()?;
        let fill = |folder: &Path| fs::write(folder.join("long"), bytes(1, BYTES));
        on_an_overlay("in-order-overlay", fill, &format!("{} read64 long", reader.display()), is_spared)
    });
    suite.add("in_order::under an older kernel", needs(), || {
        disk("older")?.around([OLDER_KERNEL]).until(&reader("read64")?, 1, is_spared)
    });
    suite.add("in_order::of somebody else", needs().chain(["command setpriv"]), || {
        let theirs = |folder: &Path| {
            fs::write(folder.join("long"), bytes(1, BYTES))?;
            chown(folder.join("long"), Some(NOBODY), Some(NOBODY))
        };
        let disk = Disk::new("in-order-others", "cloud", theirs)?;
        disk.around(ORDINARY).until(&reader("read64")?, 1, is_spared)
    });
    suite.add(
        "in_order::what is there on an overlay is looked at by samples",
        needs().chain(["command unshare"]),
        || {
            let reader = guest("in_order")?.build()?;
            let fill = |folder: &Path| fs::write(folder.join("long"), bytes(1, BYTES));
            let line = format!("sh -c 'cat long > /dev/null; exec {} read4 long'", reader.display());
            on_an_overlay("in-order-samples", fill, &line, |counts| match number(counts, "reads")? {
                ..=LOOKED_AT => Ok(()),
                _ => Err(format!("{counts}")),
            })
        },
    );
    suite.add("in_order::no more is asked for than was read", needs(), || {
        disk("head")?.until(&reader("head")?, 3, |counts| match number(counts, "in_order_bytes")? {
            1..=HEAD => Ok(()),
            _ => Err(format!("{counts}")),
        })
    });
    suite.add("in_order::limits of the user's hold", needs(), || {
        let limit = |words: [&'static str; 2]| disk("limited").map(|disk| disk.around(words));
        limit(["env", "RUNAHEAD_MAX_BANDWIDTH=1G"])?.until(&reader("read64")?, 1, is_left)?;
        limit(["env", "RUNAHEAD_MAX_MEMORY=1G"])?.until(&reader("read64")?, 1, is_asked_for)
    });
    suite.add("in_order::what is there is not waited for", needs(), || {
        let disk = disk("there")?;
        let first = format!("cat {}/long > /dev/null; exec \"$@\"", disk.mount().display());
        disk.around(["sh", "-c", &first, "sh"]).until(&reader("read64")?, 3, |counts| {
            match number(counts, "stalls")? {
                0 => is_left(counts),
                _ => Err(format!("{counts}")),
            }
        })
    });
    suite.add("canary::what is not asked ahead for is noticed", needs(), || {
        disk("noticed")?.watched().until(&reader("read64")?, 1, |counts| {
            match (is_asked_for(counts), is_spared(counts), is_left(counts)) {
                (Err(_), Err(_), Ok(())) => Ok(()),
                other => Err(format!("it was not noticed: {other:?}")),
            }
        })
    });
}

fn disk(name: &'static str) -> Result<Disk<impl Fn(&Path) -> io::Result<()>>, String> {
    let name: &'static str = Box::leak(format!("in-order-{name}").into_boxed_str());
    Disk::new(name, "cloud", |folder| fs::write(folder.join("long"), bytes(1, BYTES)))
}

fn reader(way: &'static str) -> Result<impl Fn(&Path) -> Vec<PathBuf>, String> {
    let program = guest("in_order")?.build()?;
    Ok(move |mount: &Path| vec![program.clone(), way.into(), mount.join("long")])
}

fn is_asked_for(counts: &Value) -> Verdict {
    match number(counts, "in_order_bytes")? {
        ASKED.. => Ok(()),
        _ => Err(format!("{counts}")),
    }
}

fn is_spared(counts: &Value) -> Verdict {
    is_asked_for(counts)?;
    match number(counts, "full_prefetches")? {
        SPARED.. => Ok(()),
        _ => Err(format!("{counts}")),
    }
}

fn is_left(counts: &Value) -> Verdict {
    match number(counts, "in_order_bytes")? {
        0 => Ok(()),
        _ => Err(format!("{counts}")),
    }
}
