//! `./x replay`: what the policies make of the recorded programs.
//!
//! ```text runahead-replay [--all] [NAME...]        what differs from what is expected, or all; exit status 1
//! if it does runahead-replay --expect                 what is found is what is expected from now on
//! runahead-replay agreement                beside what was measured runahead-replay under FLAGS COMMAND...
//! runs a command whose agent has these flags of a session's besides ```

use runahead_replay::expected::{self, Verdict};
use runahead_replay::synthetic;
use runahead_replay::trace::Trace;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "under") {
        return under(&words[1..]);
    }
    let (options, names): (Vec<String>, Vec<String>) =
        words.into_iter().partition(|word| word.starts_with("--"));
    let has = |name: &str| options.iter().any(|option| option == name);
    let done = match names.first().map(String::as_str) {
        Some("agreement") => agreement(),
        _ if has("--expect") => expect(),
        _ => table(&names, has("--all")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("runahead-replay: {error}");
            ExitCode::from(2)
        }
    }
}

/// The session's third field holds the flags.
fn under(words: &[String]) -> ExitCode {
    let [flags, program, arguments @ ..] = words else {
        eprintln!("runahead-replay: under FLAGS COMMAND...");
        return ExitCode::from(2);
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let session = std::env::var("RUNAHEAD_SESSION").unwrap_or_default();
    let mut fields: Vec<String> = session.split(':').map(str::to_owned).collect();
    if let (Some(field), Ok(more)) = (fields.get_mut(2), flags.parse::<u32>()) {
        *field = (field.parse::<u32>().unwrap_or(0) | more).to_string();
        command.env("RUNAHEAD_SESSION", fields.join(":"));
    }
    eprintln!("runahead-replay: {program}: {}", command.exec());
    ExitCode::from(127)
}

/// Those recorded, and those made up.
fn programs() -> Result<Vec<Trace>, String> {
    Ok(expected::recorded()?.into_iter().chain(synthetic::all()).collect())
}

fn expect() -> Result<bool, String> {
    let found = expected::found(&programs()?)?;
    let text = expected::text(found.iter().map(|(line, _)| line));
    std::fs::write(expected::path(), text).map_err(|error| error.to_string())?;
    Ok(true)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The programs on the disks. False if something is not as expected.
fn table(names: &[String], all: bool) -> Result<bool, String> {
    let stored = expected::stored()?;
    let mut programs = programs()?;
    programs.retain(|trace| names.is_empty() || names.contains(&trace.name));
    println!(
        "{:<18} {:<9} {:>8} {:>8} {:>6} {:>8} {:>9} {:>9} {:>8} {:>7}",
        "program",
        "disk",
        "alone s",
        "ours s",
        "times",
        "requests",
        "restarts",
        "foretold",
        "unused",
        "cpu ms"
    );
    let mut as_expected = true;
    for (line, ours) in expected::found(&programs)? {
        let verdict = expected::verdict(&line, &stored);
        as_expected &= verdict == Verdict::AsExpected;
        if verdict == Verdict::AsExpected && !all {
            continue;
        }
        let before = stored.iter().find(|other| (&other.name, &other.disk) == (&line.name, &line.disk));
        let said = match (verdict, before) {
            (Verdict::AsExpected, _) => String::new(),
            (Verdict::New, _) | (_, None) => "new".to_owned(),
            (Verdict::Other, Some(before)) => format!("alone it was {:.3} s", seconds(before.alone)),
            (_, Some(before)) => format!(
                "{}: {:.3} s, {} requests, {:.1} ms before",
                if verdict == Verdict::Worse { "WORSE" } else { "better" },
                seconds(before.ours),
                before.requests,
                before.spent as f64 / 1e6
            ),
        };
        println!(
            "{:<18} {:<9} {:>8.3} {:>8.3} {:>6.2} {:>8} {:>9} {:>9} {:>8} {:>7.1} {said}",
            line.name,
            line.disk,
            seconds(line.alone),
            seconds(line.ours),
            line.alone as f64 / line.ours.max(1) as f64,
            line.requests,
            ours.restarts,
            ours.foretold,
            ours.unused,
            line.spent as f64 / 1e6
        );
    }
    Ok(as_expected)
}

/// What was measured on slowdisk, beside what the replay makes of it.
fn agreement() -> Result<bool, String> {
    println!(
        "{:<18} {:<6} {:>9} {:>9} {:>9} {:>9}",
        "program", "disk", "alone s", "replayed", "ours s", "replayed"
    );
    for trace in expected::recorded()? {
        for measured in &trace.measured {
            let (alone, ours) = expected::play(&trace, &measured.disk)?;
            println!(
                "{:<18} {:<6} {:>9.3} {:>9.3} {:>9.3} {:>9.3}",
                trace.name,
                measured.disk,
                seconds(measured.alone),
                seconds(alone.elapsed),
                seconds(measured.ours),
                seconds(ours.elapsed)
            );
        }
    }
    Ok(true)
}
