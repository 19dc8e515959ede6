//! Speculation that costs more memory than it is worth: it is ended, what it held is given back, and later it is tried
//! again. Where there is room, nobody is in its way. And what is worth it keeps within the group.

use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::compare::Outcome;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::needs;
use runahead_end_to_end::scenario::{ALONE, Mode, Scenario};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const REPORTED: Mode =
    Mode { name: "under, reported", options: Some(&["--report", "report.json"]), cold: true };

/// The program alone fits, with its own 24 MB and the file of 28 MB that it uses over and over; with the 8 MB of copies that
/// a speculation may have it would not.
const TIGHT: &str = "60M";
const AMPLE: &str = "1G";

/// The program's walk, how often it walks at least, and seconds for which it goes on. A pause lasts 14 s at most.
const CHAIN: [&str; 3] = ["chain", "3", "45"];
const CHAIN_SHORT: [&str; 3] = ["chain", "3", "0"];
const CHAIN_AMPLE: [&str; 3] = ["chain", "3", "4"];

/// Places all over a file of 64 MB: copies of all that they touch would be more than the group may hold.
const GATHER: [&str; 3] = ["gather", "800", "0"];
const CHANGE: [&str; 3] = ["change", "800", "0"];
const GATHER_LIMIT: &str = "36M";
/// KB that the speculator may hold at a time: half of the group.
const GATHER_HELD: u64 = 18 << 10;

/// The program that rests, and seconds after which it gives up.
const RESTS: [&str; 1] = ["20"];
/// It reads 24 MB, and a speculator that rests may hold so many KB.
const RESTING: u64 = 10 << 10;
/// How often it is run at most until a speculator has read more than that.
const TRIES: u32 = 4;

/// A group, and the MB that the program takes of it: less than the 8 MB are left at which speculators go, and enough for
/// everybody else. And seconds after which it gives up.
pub const FULL: &str = "128M";
const FILLS: [&str; 2] = ["122", "20"];
const FILLS_SHORT: [&str; 2] = ["122", "0"];

pub fn add(suite: &mut Suite) {
    let wants = ["root", "memory-cgroup"];
    suite.add(
        "memory::speculation that is not worth it ends, and is tried again",
        wants,
        ends_and_is_tried_again,
    );
    suite.add("memory::speculation is left alone where there is room", wants, is_left_alone);
    suite.add("memory::speculation that stays on track keeps within the group", wants, || {
        keeps_within(GATHER)
    });
    suite.add("memory::speculation that writes to a file keeps within the group", wants, || {
        keeps_within(CHANGE)
    });
    suite.add("memory::a speculator that rests has given back what it read", wants, gives_back);
    suite.add("memory::a program that just fits is not kept company", wants, gives_way);
}

fn ends_and_is_tried_again() -> Verdict {
    let group = Group::make("tight", TIGHT)?;
    let alone = run(&scenario("tight alone", CHAIN_SHORT, &group)?, &ALONE)?;
    let scenario = scenario("tight", CHAIN, &group)?;
    let enough = scenario.directory(&Runahead::built()?).join("enough");
    // On a busy machine it may have ended before for being late.
    for _ in 0..TRIES {
        let (outcome, seen) = watched(&scenario, |over| group.watch(&enough, over))?;
        if alone.stdout != outcome.stdout || alone.stdout.is_empty() {
            return Err("it printed something else than alone".to_owned());
        }
        let Some(counts) = counts(&outcome)? else { return Ok(()) };
        let memory = &counts["memory"];
        let count = |name: &str| memory[name].as_u64().unwrap_or(0);
        if count("pauses") == 0 && !seen.tried_again {
            eprintln!("its memory was not what ended it: {seen:?}, {}", counts["speculator"]);
            continue;
        }
        if seen != (Seen { held: true, given_back: true, tried_again: true }) {
            return Err(format!("{seen:?}; the report says {memory}"));
        }
        // Where memory is all but used up, or speculation idles, it is ended without counting what that adds
        // (`host::memory`).
        if count("pauses") > 0 && count("stalls_added") == 0 {
            eprintln!("what it adds was not counted: {memory}");
            continue;
        }
        if count("pauses") == 0 || count("paused_ns") < 500_000_000 {
            return Err(format!("the report does not say so: {memory}"));
        }
        return Ok(());
    }
    Err("its memory was not what ended it, each time".to_owned())
}

/// Runs it, and beside it what watches until it is over.
fn watched<T: Send>(
    scenario: &Scenario,
    watch: impl FnOnce(&AtomicBool) -> T + Send,
) -> Result<(Outcome, T), String> {
    watched_as(scenario, &REPORTED, watch)
}

fn watched_as<T: Send>(
    scenario: &Scenario,
    mode: &Mode,
    watch: impl FnOnce(&AtomicBool) -> T + Send,
) -> Result<(Outcome, T), String> {
    let over = AtomicBool::new(false);
    let (outcome, seen) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&over));
        let outcome = run(scenario, mode);
        over.store(true, Ordering::Release);
        (outcome, watcher.join())
    });
    Ok((outcome?, seen.map_err(|_| "the watcher panicked")?))
}

fn is_left_alone() -> Verdict {
    let group = Group::make("ample", AMPLE)?;
    let outcome = run(&scenario("ample", CHAIN_AMPLE, &group)?, &REPORTED)?;
    let Some(counts) = counts(&outcome)? else { return Ok(()) };
    match counts["memory"].as_object() {
        Some(memory) if memory.values().all(|count| count.as_u64() == Some(0)) => Ok(()),
        other => Err(format!("there was room, but: {other:?}")),
    }
}

fn keeps_within(places: [&str; 3]) -> Verdict {
    let name = format!("within {}", places[0]);
    let group = Group::make(places[0], GATHER_LIMIT)?;
    let alone = run(&scenario(&format!("{name} alone"), places, &group)?, &ALONE)?;
    let scenario = scenario(&name, places, &group)?;
    let (outcome, held) = watched(&scenario, |over| group.watch_most(over))?;
    let cold = Path::new("cold.bin");
    if alone.stdout != outcome.stdout
        || alone.stdout.is_empty()
        || alone.tree.get(cold) != outcome.tree.get(cold)
    {
        return Err("it printed something else than alone, or left another file".to_owned());
    }
    let Some(counts) = counts(&outcome)? else { return Ok(()) };
    let killed = group.killed()?;
    if killed > 0 || held == 0 || held > GATHER_HELD {
        let speculator = &counts["speculator"];
        return Err(format!("{killed} processes were killed, and it held {held} KB; {speculator}"));
    }
    Ok(())
}

fn gives_back() -> Verdict {
    let group = Group::make("rests", AMPLE)?;
    let scenario = scenario_of("rests", "rests", &RESTS, &group)?;
    let directory = scenario.directory(&Runahead::built()?);
    // How much is run ahead of hangs on the disk, and on who else wants the processors.
    for _ in 0..TRIES {
        let (outcome, held) = watched(&scenario, |over| group.watch_rest(&directory, over))?;
        let Some(counts) = counts(&outcome)? else { return Ok(()) };
        if counts["speculator"]["read_bytes"].as_u64().is_some_and(|bytes| bytes >= RESTING << 10) {
            return match held {
                Some(held) if held <= RESTING => Ok(()),
                held => Err(format!("it still held {held:?} KB")),
            };
        }
        eprintln!("it has read too little to tell: {}", counts["speculator"]);
    }
    Err("it has read too little to tell, each time".to_owned())
}

fn gives_way() -> Verdict {
    let group = Group::make("full", FULL)?;
    group.has_no_swap(FULL);
    let alone = run(&scenario_of("fills_memory", "full alone", &FILLS_SHORT, &group)?, &ALONE)?;
    let scenario = scenario_of("fills_memory", "full", &FILLS, &group)?;
    let directory = scenario.directory(&Runahead::built()?);
    let (outcome, seen) = watched(&scenario, |over| group.watch_full(&directory, over))?;
    if alone.stdout != outcome.stdout || alone.stdout.is_empty() || group.killed()? > 0 {
        return Err(format!("it did not end as alone: {:?}", outcome.stderr));
    }
    let Some(counts) = counts(&outcome)? else { return Ok(()) };
    if seen != (Seen { held: true, given_back: true, tried_again: false }) {
        return Err(format!("{seen:?}; {}", counts["speculator"]));
    }
    match report(&outcome)?["left_because"].as_str() {
        Some(_) => Ok(()),
        None => Err("the report does not say that the program was left alone".to_owned()),
    }
}

/// A run of a program that fills the group. None where page faults are not to be seen, or a stand-in runs.
pub fn fills(group: &Group, mode: &Mode) -> Result<Option<Outcome>, String> {
    if Runahead::built()?.label != "built" {
        return Ok(None);
    }
    group.has_no_swap(FULL);
    let scenario = scenario_of("fills_memory", "fills", &FILLS, group)?;
    let directory = scenario.directory(&Runahead::built()?);
    let (outcome, _) = watched_as(&scenario, mode, |over| group.watch_full(&directory, over))?;
    Ok(Some(outcome))
}

fn scenario(name: &str, walk: [&str; 3], group: &Group) -> Result<Scenario, String> {
    scenario_of("memory_pressed", name, &walk, group)
}

fn scenario_of(guest: &str, name: &str, arguments: &[&str], group: &Group) -> Result<Scenario, String> {
    let found = Guest::all()?.into_iter().find(|one| one.name() == guest);
    let guest = found.ok_or_else(|| format!("there is no guest '{guest}'"))?;
    let mut scenario = guest.scenario(&guest.run_with(arguments))?;
    scenario.name = format!("memory {name}");
    Ok(scenario.around(group.entrance()).timeout(Duration::from_secs(180)))
}

pub fn run(scenario: &Scenario, mode: &Mode) -> Result<Outcome, String> {
    scenario.run(mode, &Runahead::built()?).map_err(|error| error.to_string())
}

/// The report's counts; None where page faults are not to be seen, or a stand-in runs.
fn counts(outcome: &Outcome) -> Result<Option<Value>, String> {
    let report = report(outcome)?;
    let counts = &report["counts"];
    let why = match &counts["faults"] {
        Value::Object(faults) => faults["unseen_because"].as_str(),
        _ => Some("a stand-in has nothing to say of them"),
    };
    if let Some(why) = why {
        eprintln!("SKIPPED memory: no page faults: {why}");
        return Ok(None);
    }
    Ok(Some(counts.clone()))
}

fn report(outcome: &Outcome) -> Result<Value, String> {
    let report = outcome.tree.get(Path::new("report.json")).ok_or("no report was written")?;
    serde_json::from_slice(&report.contents).map_err(|error| format!("not JSON: {error}"))
}

/// A memory control group of the test's own.
pub struct Group {
    folder: PathBuf,
    limit_file: &'static str,
}

/// What was seen of the speculator, in this order: it held memory; it was gone; it was there again.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Seen {
    held: bool,
    given_back: bool,
    tried_again: bool,
}

/// KB that a speculator must hold before its end gives anything back.
const HELD: u64 = 1024;

impl Group {
    pub fn make(name: &str, limit: &str) -> Result<Group, String> {
        let (parent, limit_file) = needs::memory_cgroup().ok_or("the memory cgroup has gone")?;
        let folder = parent.join(format!("runahead-test-{name}-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let group = Group { folder, limit_file };
        group.limit(limit)?;
        Ok(group)
    }

    pub fn limit(&self, limit: &str) -> Verdict {
        let file = self.limit_file;
        fs::write(self.folder.join(file), limit).map_err(|error| format!("{file}: {error}"))
    }

    /// What runs a command inside, to be put before it.
    pub fn entrance(&self) -> [String; 4] {
        let join = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", self.folder.display());
        ["bash".to_owned(), "-c".to_owned(), join, "bash".to_owned()]
    }

    /// Waits until a process in it has memory on swap; false if none ever has.
    pub fn waits_for_swap(&self) -> bool {
        let end = Instant::now() + Duration::from_secs(30);
        let swapped = |process: &str| {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmSwap:"));
            line.is_some_and(|line| !line.trim().starts_with("0 "))
        };
        while Instant::now() < end {
            let processes = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
            if processes.lines().any(swapped) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Watches until all has been seen, which it says to the program by a file, or the run is over.
    fn watch(&self, enough: &Path, over: &AtomicBool) -> Seen {
        let mut seen = Seen::default();
        while !over.load(Ordering::Acquire) {
            match self.speculator() {
                Some(held) if held >= HELD => seen.held = true,
                None if seen.held => seen.given_back = true,
                _ => {}
            }
            if seen.given_back && self.speculator().is_some() {
                seen.tried_again = true;
                // The run may be over in this moment.
                let _ = fs::write(enough, "");
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        seen
    }

    /// KB of its own that a speculator holds at most while it is looked.
    fn watch_most(&self, over: &AtomicBool) -> u64 {
        let mut most = 0;
        while !over.load(Ordering::Acquire) {
            most = most.max(self.field_of("runahead-specul", "RssAnon:").unwrap_or(0));
            std::thread::sleep(Duration::from_millis(2));
        }
        most
    }

    /// Waits until the program in `directory` rests, and its speculator holds little, which it says to the program; returns
    /// the KB that it held last.
    fn watch_rest(&self, directory: &Path, over: &AtomicBool) -> Option<u64> {
        let mut held = None;
        while !over.load(Ordering::Acquire) {
            if directory.join("rests").exists() {
                held = self.speculator().or(held);
            }
            if held.is_some_and(|held| held <= RESTING) {
                // The run may be over in this moment.
                let _ = fs::write(directory.join("enough"), "");
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        held
    }

    /// Watches until the program in `directory` has filled the group and nobody of ours is beside it any more, which it says
    /// to the program.
    fn watch_full(&self, directory: &Path, over: &AtomicBool) -> Seen {
        let mut seen = Seen::default();
        while !over.load(Ordering::Acquire) && !seen.given_back {
            let (full, held) = (directory.join("full").exists(), self.speculator());
            seen.held |= held.is_some();
            seen.given_back = full && held.is_none() && self.held_by("runahead").is_none();
            std::thread::sleep(Duration::from_millis(5));
        }
        // The run may be over in this moment.
        let _ = fs::write(directory.join("enough"), "");
        seen
    }

    /// Sees to it that all of it must be in memory, where there is swap. `limit`: the group's own.
    fn has_no_swap(&self, limit: &str) {
        // Of version 2 and of version 1; the other one's does not exist.
        let _ = fs::write(self.folder.join("memory.swap.max"), "0");
        let _ = fs::write(self.folder.join("memory.memsw.limit_in_bytes"), limit);
    }

    /// Processes that the kernel killed as the group was full.
    pub fn killed(&self) -> Result<u64, String> {
        let files = ["memory.events", "memory.oom_control"].map(|name| self.folder.join(name));
        let text = files.iter().find_map(|path| fs::read_to_string(path).ok());
        let text = text.ok_or("the group does not say whom the kernel killed")?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
        count.ok_or_else(|| format!("no count of the killed: {text}"))
    }

    /// KB that a speculator in the group holds.
    fn speculator(&self) -> Option<u64> {
        // The kernel keeps 15 letters of a name.
        self.held_by("runahead-specul")
    }

    /// KB that a process of this name in the group holds.
    fn held_by(&self, name: &str) -> Option<u64> {
        self.field_of(name, "VmRSS:")
    }

    /// KB of which proc(5) tells for a process of this name in the group.
    fn field_of(&self, name: &str, what: &str) -> Option<u64> {
        let processes = fs::read_to_string(self.folder.join("cgroup.procs")).ok()?;
        processes.lines().find_map(|process| {
            let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            field("Name:").filter(|found| *found == name)?;
            field(what)?.split(' ').next()?.parse().ok()
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel takes a moment to let go of the last process.
        let end = Instant::now() + Duration::from_secs(2);
        while fs::remove_dir(&self.folder).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
