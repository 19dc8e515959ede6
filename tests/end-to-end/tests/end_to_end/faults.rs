//! Is it run ahead of page faults at all, and into memory that is new, are files beside others asked for, and is what was of
//! no use to others left? The guests
//! compare a program under Runahead with the same one alone, and would pass if nobody did.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{Mode, Scenario, bytes};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a loaded machine may keep us from any of it.
const LONGEST: Duration = Duration::from_secs(60);

/// Counts of the report that must not be zero, each in some run.
const GATHER: &[&str] = &["/faults/seen", "/faults/posts", "/faults/foretold_pages"];
/// Blocks of which most is cached are mapped, which the kernel allows since this version.
const VIEWS: &[&str] = &["/faults/posts", "/speculator/views"];
const VIEWS_SINCE: (u32, u32) = (6, 15);
/// Its walks are so short that a watcher on a busy machine comes too late to ask for anything.
const MAPPED: &[&str] = &["/faults/seen"];
/// Bytes of the mapped file that has lost its name; to open it by its mapping takes privilege.
const MAPPED_BYTES: usize = 24 << 20;

/// Looks at the disk after which others would have been noticed.
const LOOKS: u64 = 14;

const WORDS_BYTES: usize = 48 << 20;

/// Asked for before the program came, or at least while it came.
const GROWN: &[&str] = &["/speculator/prefetches", "/full_prefetches"];
const BESIDE: &[&str] = &["/companions", "/companions_used"];

pub fn add(suite: &mut Suite) {
    let guests: [(&str, &[&str], _); 5] = [
        ("grown_heap", &[], GROWN),
        ("beside", &["plain"], BESIDE),
        ("faults_gather", &[], GATHER),
        ("faults_gather", &["private"], GATHER),
        ("faults_mapped", &[], MAPPED),
    ];
    let views: (&str, &[&str], _) = ("faults_mostly_cached", &[], VIEWS);
    for (guest, arguments, counts) in guests.into_iter().chain(has_views().then_some(views)) {
        let words = [&[guest], arguments].concat().join("::");
        let name = format!("faults::{words} is run ahead of");
        suite.add_plain(name, move || is_run_ahead_of(guest, arguments, counts));
    }
    suite.add_plain("kin::speculation that was of no use to others is not tried by each", kin_are_heard);
    suite.add("faults::what is asked for together comes", slow_disk::WANTS, mapped_come_together);
    suite.add("faults::what is mapped as code is watched", slow_disk::WANTS, mapped_as_code);
    suite.add("reads::what is asked for together comes", slow_disk::WANTS, reads_come_together);
    suite.add("faults::faults_nameless is run ahead of", slow_disk::WANTS, nameless);
    suite.add(
        "faults::a long run ahead is not taken for others at the disk",
        slow_disk::WANTS,
        alone_at_the_disk,
    );
}

/// Whether the kernel is new enough for them; if it does not say, it is taken for one.
fn has_views() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    let new_enough = version.is_none_or(|version| version >= VIEWS_SINCE);
    if !new_enough {
        eprintln!("SKIPPED views of mapped files: Linux {} has none", release.trim());
    }
    new_enough
}

/// On a disk of its own, where each of its waits takes 1 ms: a machine's own disk may have brought in the 24 MB by three
/// read-aheads before anybody could look.
fn nameless() -> Verdict {
    let program = guest("faults_nameless")?.build()?;
    let line = format!("cd $0 && exec {}", program.display());
    let disk =
        Disk::new("nameless", "cloud", |folder| fs::write(folder.join("cold.bin"), bytes(1, MAPPED_BYTES)))?;
    let words = |mount: &Path| vec!["sh".into(), "-c".into(), line.clone().into(), mount.to_owned()];
    disk.until(&words, 1, |counts| {
        let faults = &counts["faults"];
        let (asked, useful) = (number(faults, "prefetched_pages")?, number(faults, "useful_pages")?);
        match asked > 0 && useful > 0 {
            true => Ok(()),
            false => Err(format!("{asked} pages asked for, {useful} of use")),
        }
    })
}

/// Words at computed places, for which speculation asks by sixteens. If nobody sent what is held back, speculation would go on as
/// before, and the program wait for each page that it held back. (They lie so far apart that nobody asks for whole blocks.)
const TOGETHER: u64 = 1000;

fn words_of(count: u64, last: &str) -> Result<impl Fn(&Path) -> Vec<PathBuf>, String> {
    let program = guest("words")?.build()?;
    let (count, last) = (count.to_string(), last.to_owned());
    Ok(move |mount: &Path| {
        vec![program.clone(), mount.join("cold.bin"), count.clone().into(), last.clone().into()]
    })
}

fn disk_of_words(
    name: &'static str,
    profile: &'static str,
) -> Result<Disk<impl Fn(&Path) -> io::Result<()>>, String> {
    Disk::new(name, profile, |folder| fs::write(folder.join("cold.bin"), bytes(1, WORDS_BYTES)))
}

fn mapped_come_together() -> Verdict {
    let (disk, words) = (disk_of_words("together", "cloud")?, words_of(TOGETHER, "waits")?);
    let began = Instant::now();
    let mut seen = Vec::new();
    while began.elapsed() < LONGEST {
        let Some((_, outcome)) = disk.counts_and_outcome(&words)? else { return Ok(()) };
        let entry = outcome.tree.get(Path::new("waits")).ok_or("it has not said how often it waited")?;
        let said = String::from_utf8_lossy(&entry.contents).trim().to_owned();
        if said.parse::<u64>().map_err(|error| format!("{said}: {error}"))? < TOGETHER / 8 {
            return Ok(());
        }
        seen.push(said);
    }
    Err(format!("of {TOGETHER} words, waits: {seen:?}"))
}

/// As the saved memory of a run-time system (SBCL's cores) is mapped. The first of the two programs
/// runs until its code is known.
fn mapped_as_code() -> Verdict {
    let program = guest("words")?.build()?;
    let line = format!(
        "cd $0; {0} cold.bin 300 code; sleep 1; exec {0} cold.bin {TOGETHER} code",
        program.display()
    );
    let words = |mount: &Path| vec!["bash".into(), "-c".into(), line.clone().into(), mount.to_owned()];
    disk_of_words("code", "cloud")?.until(&words, 1, |counts| match number(&counts["faults"], "seen")? {
        0 => Err("none was seen".to_owned()),
        _ => Ok(()),
    })
}

fn reads_come_together() -> Verdict {
    disk_of_words("reads", "cloud")?.until(&words_of(TOGETHER, "read")?, 1, |counts| {
        let (full, partial) = (number(counts, "full_prefetches")?, number(counts, "partial_prefetches")?);
        let stalls = number(counts, "stalls")?;
        match full + partial > TOGETHER / 2 && stalls < TOGETHER / 2 {
            true => Ok(()),
            false => Err(format!("{full} full, {partial} partial, {stalls} stalls")),
        }
    })
}

/// On ten disks that take 14 ms for a page: half a second, twice what it takes to notice others. Nobody else reads from them.
fn alone_at_the_disk() -> Verdict {
    const WORDS: u64 = 600;
    disk_of_words("alone", "disk10")?.until(&words_of(WORDS, "waits")?, 1, |counts| {
        let (looks, others) = (number(&counts["disks"], "looks")?, number(&counts["disks"], "others")?);
        let foretold = number(&counts["faults"], "foretold_pages")?;
        match looks >= LOOKS && foretold > 0 && others == 0 {
            true => Ok(()),
            false => Err(format!("{foretold} pages foretold, others at {others} of {looks} looks")),
        }
    })
}

fn is_run_ahead_of(name: &str, arguments: &[&str], counts: &[&str]) -> Verdict {
    let runahead = Runahead::built()?;
    let began = Instant::now();
    let mut missing = counts.to_vec();
    while began.elapsed() < LONGEST {
        let report = report_of(name, arguments)?;
        let said = &report["counts"];
        if !said["faults"].is_object() && runahead.environment.is_empty() {
            return Err(format!("the report says nothing of faults: {report}"));
        }
        if !said["faults"].is_object() {
            eprintln!("SKIPPED faults of {name}: a stand-in has nothing to say of them");
            return Ok(());
        }
        if let Some(reason) = said["faults"]["unseen_because"].as_str() {
            eprintln!("SKIPPED faults of {name}: {reason}");
            return Ok(());
        }
        missing.retain(|count| said.pointer(count).and_then(serde_json::Value::as_u64).unwrap_or(0) == 0);
        if missing.is_empty() {
            return Ok(());
        }
    }
    Err(format!("{name}: always 0: {missing:?}"))
}

/// Ten processes of one executable, none of whose reads can be foretold. (On a busy machine a stall seems long, and what little was
/// foretold worth it: so it has to hold once.)
fn kin_are_heard() -> Verdict {
    let began = Instant::now();
    let mut seen = Vec::new();
    while began.elapsed() < LONGEST {
        let report = report_of("kin", &["10"])?;
        let count = |name: &str| report["counts"][name].as_u64().ok_or(format!("the report has no {name}"));
        // Stalls at which a process posted, or had posted and waited for what comes. Three of the ten have to find out that it
        // is no use; if all tried it, all but some of their first stalls would be such.
        let (stalls, tried) = (count("stalls")?, count("posts")? + count("lags")?);
        if tried > 0 && tried * 2 <= stalls {
            return Ok(());
        }
        seen.push(format!("{tried} of {stalls}"));
    }
    Err(format!("speculation at most stalls: {seen:?}"))
}

fn report_of(name: &str, arguments: &[&str]) -> Result<serde_json::Value, String> {
    let runahead = Runahead::built()?;
    let mode = Mode { name: "under, reported", options: Some(&["--report", "report.json"]), cold: true };
    let outcome = scenario(name, arguments)?.run(&mode, &runahead).map_err(|error| error.to_string())?;
    let entry = outcome.tree.get(Path::new("report.json")).ok_or("no report was written")?;
    serde_json::from_slice(&entry.contents).map_err(|error| format!("not JSON: {error}"))
}

pub fn guest(name: &str) -> Result<Arc<Guest>, String> {
    let guest = Guest::all()?.into_iter().find(|guest| guest.name() == name);
    guest.ok_or_else(|| format!("there is no guest '{name}'"))
}

fn scenario(name: &str, arguments: &[&str]) -> Result<Scenario, String> {
    let guest = guest(name)?;
    let mut scenario = guest.scenario(&guest.run_with(arguments))?;
    scenario.name = format!("run ahead {name} {}", arguments.concat());
    Ok(scenario)
}
