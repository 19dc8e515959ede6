//! Memory on swap: in a control group that holds a third of what the program uses, and swap for the rest, is it run ahead
//! of, and is everything as it is alone? Also where swap is all but full, and where it goes away during the run.
//!
//! Swap is the whole machine's, so one test does everything, with a file that is gone with it.

use crate::memory::{Group, run};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::compare::Outcome;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::build_folder;
use runahead_end_to_end::scenario::{ALONE, Mode, Scenario};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const REPORTED: Mode =
    Mode { name: "under, reported", options: Some(&["--report", "report.json"]), cold: true };

const LIMIT: &str = "48M";
/// More than what the program uses.
const AMPLE: &str = "1G";

/// What the guest does, with how many MB, how often.
type Run = [&'static str; 3];
const SCAN: Run = ["scan", "144", "2"];
const GATHER: Run = ["gather", "144", "8000"];
const GATHER_HEAP: Run = ["gather-heap", "144", "8000"];
/// With 48 MB in memory they leave little of the smaller swap.
const SCAN_TIGHT: Run = ["scan", "104", "2"];
const GATHER_LONG: Run = ["gather", "144", "60000"];

/// MB of swap.
const ENOUGH: u64 = 256;
const TIGHT: u64 = 80;

/// How long a loaded machine may keep us from any of it.
const LONGEST: Duration = Duration::from_secs(60);

pub fn add(suite: &mut Suite) {
    let wants = ["root", "memory-cgroup", "command mkswap", "command swapon"];
    suite.add("swap::memory on swap is run ahead of", wants, is_run_ahead_of);
}

fn is_run_ahead_of() -> Verdict {
    let Some(swap) = Swap::on(ENOUGH) else { return Ok(()) };
    // Strides alone serve the one, speculation the other.
    foretells(SCAN, "/faults/prefetched_pages")?;
    foretells(GATHER, "/faults/foretold_pages")?;
    foretells(GATHER_HEAP, "/faults/foretold_pages")?;
    ends_during_the_run(swap)?;
    let Some(_swap) = Swap::on(TIGHT) else { return Ok(()) };
    is_as_alone(SCAN_TIGHT, LIMIT).map(drop)
}

/// The guest prints what it prints alone, and some of its pages were asked for ahead.
fn foretells(what: Run, count: &str) -> Verdict {
    let began = Instant::now();
    loop {
        let outcome = is_as_alone(what, LIMIT)?;
        let entry = outcome.tree.get(Path::new("report.json")).ok_or("no report was written")?;
        let report: Value =
            serde_json::from_slice(&entry.contents).map_err(|error| format!("not JSON: {error}"))?;
        let faults = &report["counts"]["faults"];
        let why = match faults {
            Value::Object(_) => faults["unseen_because"].as_str().or(faults["swap_left_because"].as_str()),
            _ => Some("a stand-in has nothing to say of them"),
        };
        if let Some(why) = why {
            eprintln!("SKIPPED {what:?} on swap: {why}");
            return Ok(());
        }
        let counted = report["counts"].pointer(count).and_then(Value::as_u64).unwrap_or(0);
        if counted > 0 && faults["useful_pages"].as_u64().unwrap_or(0) > 0 {
            return Ok(());
        }
        if began.elapsed() > LONGEST {
            return Err(format!("{what:?}: no page was asked for ahead: {faults}"));
        }
    }
}

/// Runs it alone and under Runahead, in a group with that limit.
fn is_as_alone(what: Run, limit: &str) -> Result<Outcome, String> {
    let group = Group::make("swap", limit)?;
    let alone = alone(what, &group)?;
    let killed_alone = group.killed()?;
    let outcome = run(&scenario("under", what, &group)?, &REPORTED)?;
    let killed = group.killed()? - killed_alone;
    if alone.stdout != outcome.stdout {
        let printed = String::from_utf8_lossy(&outcome.stdout);
        return Err(format!(
            "{what:?}: it did not print what it prints alone, but {printed:?}; {killed} processes were killed for want of memory"
        ));
    }
    match killed {
        0 => Ok(outcome),
        count => Err(format!("{what:?}: {count} processes were killed for want of memory")),
    }
}

/// The guest's outcome alone. (In one of four runs of this test the kernel killed it for want of memory that was there, on
/// swap, with nothing of ours about.)
fn alone(what: Run, group: &Group) -> Result<Outcome, String> {
    for _ in 0..5 {
        let alone = run(&scenario("alone", what, group)?, &ALONE)?;
        if !alone.stdout.is_empty() {
            return Ok(alone);
        }
    }
    Err(format!("{what:?}: it cannot be run here, alone as it is"))
}

/// Swap is turned off while pages are asked for from it; then there is room.
fn ends_during_the_run(swap: Swap) -> Verdict {
    let group = Group::make("swapoff", LIMIT)?;
    let alone = alone(GATHER_LONG, &group)?;
    let killed_alone = group.killed()?;
    let scenario = scenario("without", GATHER_LONG, &group)?;
    let (outcome, swapped) = std::thread::scope(|scope| {
        let off = scope.spawn(|| {
            let swapped = group.waits_for_swap();
            std::thread::sleep(Duration::from_millis(100));
            let widened = group.limit(AMPLE);
            drop(swap);
            widened.map(|()| swapped)
        });
        let outcome = run(&scenario, &REPORTED);
        (outcome, off.join())
    });
    let (outcome, swapped) = (outcome?, swapped.map_err(|_| "the thread panicked")??);
    if !swapped {
        return Err("nothing ever went to swap".to_owned());
    }
    if alone.stdout != outcome.stdout {
        let killed = group.killed()? - killed_alone;
        let (printed, alone) =
            (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&alone.stdout));
        return Err(format!("as swap went away it printed {printed:?} for {alone:?}; {killed} were killed"));
    }
    Ok(())
}

fn scenario(name: &str, what: Run, group: &Group) -> Result<Scenario, String> {
    let guest = Guest::all()?.into_iter().find(|guest| guest.name() == "swapped");
    let guest = guest.ok_or("there is no guest 'swapped'")?;
    let mut scenario = guest.scenario(&guest.run_with(&what))?;
    scenario.name = format!("swap {} {name}", what.join(" "));
    Ok(scenario.around(group.entrance()).timeout(Duration::from_secs(180)))
}

/// A swap file of the test's own, off and gone with the value.
struct Swap(PathBuf);

impl Swap {
    /// None, and said why, where there is none to be had.
    fn on(megabytes: u64) -> Option<Swap> {
        let folder = build_folder();
        let _ = fs::create_dir_all(&folder);
        let swap = Swap(folder.join(format!("runahead-test-{}.swap", std::process::id())));
        let made = swap.fill(megabytes).map_err(|error| error.to_string());
        let tool = |name: &str, more: &[&str]| match Command::new(name).args(more).arg(&swap.0).output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        };
        // Before whatever other swap there is.
        let first = ["--priority", "32767"];
        match made.and_then(|()| tool("mkswap", &[])).and_then(|()| tool("swapon", &first)) {
            Ok(()) => Some(swap),
            Err(why) => {
                eprintln!("SKIPPED swap: no swap file can be had here: {}", why.trim());
                None
            }
        }
    }

    /// Written out, as holes are not allowed.
    fn fill(&self, megabytes: u64) -> std::io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&self.0)?;
        let zeros = vec![0; 1 << 20];
        (0..megabytes).try_for_each(|_| file.write_all(&zeros))?;
        file.sync_all()
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(&self.0).output();
        let _ = fs::remove_file(&self.0);
    }
}
