//! Page faults where perf events are refused, as to ordinary users of many systems and in containers: seen by
//! what is present afterwards. What a program does is compared, and whether anything is asked for ahead of
//! it.

use crate::faults::guest;
use crate::mirror_ways::confiner;
use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::bytes;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Guests whose page faults wait.
const WAIT_IN_FAULTS: &[&str] = &["faults_", "maps_large", "sampled", "user_faults", "protected_buffers"];

const BYTES: usize = 40 << 20;

/// Waits that must be spared of the 640 of a column with rows of 64 KB, and of the 320 of a scan. (Where the
/// files are cached there are none.)
const LEAST: u64 = 60;

/// Pages of the 10,000 that may be asked for ahead of 500 places each of which is found in the one before.
const MOST: u64 = 300;

/// Of the 500 places that are computed, and of the 1500 before each of which something is read, pages that
/// must have been asked for ahead of the program.
const FORETOLD: u64 = 250;

pub fn add(suite: &mut Suite) {
    let guests = Guest::all().unwrap_or_default();
    let wait = |guest: &Arc<Guest>| WAIT_IN_FAULTS.iter().any(|name| guest.name().starts_with(name));
    for guest in guests.into_iter().filter(wait) {
        for run in guest.runs() {
            let (guest, name) = (Arc::clone(&guest), format!("sampled::{}", run.name));
            let needs = guest.needs().into_iter().chain(["command gcc".into()]);
            suite.add(name.clone(), needs, move || {
                let own = run.name.replace(|letter: char| !letter.is_alphanumeric(), "-");
                let mut scenario = guest.scenario(&run)?.around(confiner(&own, "events")?);
                // The guest has a test of that name already.
                scenario.name = name.clone();
                scenario.check(&Runahead::built()?)
            });
        }
    }
    let needs = || slow_disk::WANTS.into_iter().chain(["command gcc"]);
    for way in ["column", "scan", "tensors", "threads"] {
        suite.add(format!("sampled::of {way} waits are spared"), needs(), move || {
            disk(way, "events")?.until(&words(way)?, 1, are_spared)
        });
    }
    let from =
        [("places", "the call before"), ("later", "a mapping after waits for reads"), ("between", "a read")];
    for (way, from) in from {
        suite.add(
            format!("sampled::places without order are run ahead of from {from}"),
            needs(),
            move || disk(way, "events")?.until(&words(way)?, 1, are_foretold),
        );
    }
    suite.add("sampled::little is asked for where each place is found in the one before", needs(), || {
        disk("chain", "events")?.until(&words("chain")?, 3, is_left)
    });
    suite.add("canary::waits that are not spared are noticed", needs(), || {
        noticed("noticed", "events", "chain", "seen by pagemap")
    });
    suite.add("canary::faults that perf events show are told from others", needs(), || {
        noticed("events", "guards", "column", "seen by perf events")
    });
}

/// A run in which no waits are spared by what pagemap tells. (Where the disk's files are still cached nobody
/// waits, and nobody looks.)
fn noticed(of: &str, way: &str, words_of: &'static str, as_what: &str) -> Verdict {
    disk(of, way)?.until(&words(words_of)?, 1, |counts| match are_spared(counts) {
        Err(said) if said.starts_with(as_what) => Ok(()),
        other => Err(format!("it was not noticed: {other:?}")),
    })
}

fn disk(of: &str, way: &str) -> Result<Disk<impl Fn(&Path) -> io::Result<()>>, String> {
    let name: &'static str = Box::leak(format!("sampled-{of}").into_boxed_str());
    let disk = Disk::new(name, "cloud", |folder| fs::write(folder.join("cold.bin"), bytes(1, BYTES)))?;
    Ok(disk.around(confiner(name, way)?))
}

fn words(way: &'static str) -> Result<impl Fn(&Path) -> Vec<PathBuf>, String> {
    let program = guest("sampled")?.build()?;
    Ok(move |mount: &Path| vec![program.clone(), way.into(), mount.join("cold.bin")])
}

fn are_spared(counts: &Value) -> Verdict {
    let faults = &counts["faults"];
    let (asked, spared) = (number(faults, "prefetched_pages")?, number(faults, "useful_pages")?);
    let seen_by = faults["seen_by"].as_str().unwrap_or("nobody");
    match seen_by == "pagemap" && asked > 0 && spared >= LEAST {
        true => Ok(()),
        false => Err(format!("seen by {seen_by}: {spared} waits spared; {faults}")),
    }
}

fn are_foretold(counts: &Value) -> Verdict {
    let faults = &counts["faults"];
    match (faults["seen_by"].as_str(), number(faults, "foretold_pages")?) {
        (Some("pagemap"), FORETOLD..) => Ok(()),
        _ => Err(format!("{faults}; {}", counts["speculator"])),
    }
}

fn is_left(counts: &Value) -> Verdict {
    let (faults, speculator) = (&counts["faults"], &counts["speculator"]);
    let asked = number(faults, "prefetched_pages")? + number(speculator, "prefetched_pages").unwrap_or(0);
    match (faults["seen_by"].as_str(), number(faults, "watched")?, asked) {
        (Some("pagemap"), 1.., ..=MOST) => Ok(()),
        _ => Err(format!("{faults}; {speculator}")),
    }
}
