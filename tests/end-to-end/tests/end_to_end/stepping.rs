//! The agent, interrupted at each of its instructions by a signal whose handler reads, forks, throws,
//! jumps, is cancelled, or never returns: see the library's `stepping` and the guest `stepped`.
//!
//! A bounded run takes some places of every path and every handler by chance, and every place of one
//! path. `RUNAHEAD_STEPPING_SECONDS` says how long each pair may take to go through all its places.

use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::{Guest, stand_in};
use runahead_end_to_end::locate::{self, Runahead};
use runahead_end_to_end::scenario::{PATH, bytes};
use runahead_end_to_end::stepping::{Places, Plan, Report};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the guest calls. `calm` is a hit of an agent that looks at each 64th call only.
const PATHS: [&str; 13] = [
    "calm",
    "hit",
    "stall",
    "read",
    "readv",
    "stat",
    "getdents",
    "map",
    "close",
    "sigaltstack",
    "library",
    "cancellable",
    "exit",
];

/// What its handler does.
const HANDLERS: [&str; 12] = [
    "quiet",
    "reads",
    "forks",
    "goes-on",
    "throws",
    "jumps",
    "cancels",
    "alternate",
    "alternate-in-use",
    "deep",
    "nested",
    "exits",
];

/// Handlers that do not come back: a child of the guest's makes each call, as the guest itself does it.
const IN_CHILDREN: [&str; 4] = ["exits", "throws", "jumps", "cancels"];

/// Calls that need not pass through Runahead at all.
const PERHAPS_NOT_OURS: [&str; 2] = ["close", "sigaltstack"];

/// Places by chance of each path and handler in a bounded run.
const PLACES_OF_PAIR: u32 = 10;
/// Seconds that a pair may take then.
const SECONDS_OF_PAIR: u64 = 15;

pub fn add(suite: &mut Suite) {
    for path in PATHS {
        suite.add(format!("stepping::{path}"), ["command gcc"], move || all_handlers(path));
    }
    suite.add("stepping::every instruction of a hit", ["command gcc"], || {
        let (runahead, places) = (Runahead::built()?, Places::Every);
        let seconds = full_seconds().unwrap_or(90);
        let report = stepped(&runahead, "hit", "reads", places, seed(), seconds)?;
        if report.complete { Ok(()) } else { Err(format!("not in {seconds} s: {report:?}")) }
    });
    suite.add("canary::stepping notices a signal that is lost", ["command gcc"], || {
        noticed("lost-signal", "quiet", "handled")
    });
    suite.add("canary::stepping notices what cannot be unwound", ["command gcc"], || {
        noticed("unwinding", "throws", "a child's end")
    });
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn full_seconds() -> Option<u64> {
    number_from("RUNAHEAD_STEPPING_SECONDS")
}

/// Another one each time, and named when a check fails.
fn seed() -> u64 {
    number_from("RUNAHEAD_STEPPING_SEED").unwrap_or_else(|| std::process::id().into())
}

fn all_handlers(path: &str) -> Verdict {
    let runahead = Runahead::built()?;
    let mut complaints = Vec::new();
    for handler in HANDLERS {
        let full = full_seconds();
        let places = full.map_or(Places::Some(PLACES_OF_PAIR), |_| Places::Every);
        match stepped(&runahead, path, handler, places, seed(), full.unwrap_or(SECONDS_OF_PAIR)) {
            Ok(report) if full.is_some() => {
                eprintln!(
                    "stepping {path}, {handler}: {} calls, {} interrupted at {} places, the longest of {} instructions{}",
                    report.calls,
                    report.interrupted,
                    report.places,
                    report.longest,
                    if report.complete { "" } else { ", out of time" }
                );
            }
            Ok(_) => {}
            Err(why) => complaints.push(why),
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}

/// Steps through calls of the guest under `runahead`; an error if anything is not as alone.
fn stepped(
    runahead: &Runahead,
    path: &str,
    handler: &str,
    places: Places,
    seed: u64,
    seconds: u64,
) -> Result<Report, String> {
    let name = format!("{path}, {handler}, seed {seed}");
    let broken = |error: std::io::Error| format!("{name}: {error}");
    let label = &runahead.label;
    let directory = locate::scratch().join(format!("stepping {label} {path} {handler} {places:?}"));
    fs::create_dir_all(&directory).map_err(broken)?;
    fs::write(directory.join("cold.bin"), bytes(1, 1 << 20)).map_err(broken)?;
    let guest = guest()?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let library = text(&guest.with_file_name("sites.so"));
    let stepper = env!("CARGO_BIN_EXE_stepper");
    let mut under = vec![runahead.command.clone(), "run".to_owned(), "--".to_owned()];
    if path != "calm" {
        under.extend([stepper.to_owned(), "--active".to_owned()]);
    }
    let words = [&text(&guest), &library, path, handler];
    let mut traced: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    traced.push("stepped".to_owned());
    let plan = Plan {
        under,
        guest: traced,
        directory: directory.clone(),
        in_children: path == "exit" || IN_CHILDREN.contains(&handler),
        places,
        seed,
        seconds,
    };
    let file = directory.join("plan.json");
    fs::write(&file, serde_json::to_string(&plan).map_err(|error| error.to_string())?).map_err(broken)?;
    let alone = command(words[0], &directory).args(&words[1..]).output().map_err(broken)?;
    if !alone.status.success() {
        return Err(format!("{name}: the run alone, our model, is wrong: {}", said(&alone.stderr)));
    }
    let mut said_by_guest = String::new();
    let mut report = Report::default();
    // A library that nobody has met yet is known a moment later, so there may be nothing of ours at first.
    for _ in 0..2 {
        let mut stepping = command(stepper, &directory);
        let output =
            stepping.envs(runahead.environment.iter().cloned()).arg(&file).output().map_err(broken)?;
        said_by_guest = said(&output.stderr);
        report = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("{name}: {error}: {said_by_guest}"))?;
        if report.longest > 0 {
            break;
        }
    }
    if !report.complaints.is_empty() {
        return Err(format!("{name}: {}\n{}", report.complaints.join("\n"), said_by_guest));
    }
    if report.stdout.as_bytes() != alone.stdout {
        return Err(format!("{name}: printed '{}', alone '{}'", report.stdout, said(&alone.stdout)));
    }
    if report.interrupted == 0 && label != "none" && !PERHAPS_NOT_OURS.contains(&path) {
        return Err(format!("{name}: no instruction was ours, so nothing is proven: {report:?}"));
    }
    let _ = fs::remove_dir_all(&directory);
    Ok(report)
}

fn said(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().take(12).collect::<Vec<_>>().join("\n")
}

fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(directory)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", directory)
        .env("TMPDIR", directory)
        .env("XDG_CACHE_HOME", locate::scratch().join("cache"))
        .env("XDG_RUNTIME_DIR", directory);
    command
}

fn guest() -> Result<PathBuf, String> {
    let all = Guest::all()?;
    all.iter().find(|guest| guest.name() == "stepped").ok_or("there is no guest 'stepped'")?.build()
}

/// The false Runahead must be found out, and for what it does.
fn noticed(broken: &str, handler: &str, complaint: &str) -> Verdict {
    match stepped(&stand_in(broken)?, "library", handler, Places::Every, 1, SECONDS_OF_PAIR) {
        Ok(report) => Err(format!("'{broken}' was not noticed: {report:?}")),
        Err(why) if why.contains(complaint) => Ok(()),
        Err(why) => Err(format!("noticed, but without '{complaint}': {why}")),
    }
}
