//! What is expected of the recorded programs, stored beside them: a line for each on each disk.
//!
//! What a program takes alone is the model's and the recording's, and is to be the same to the ns. What it
//! takes with speculation, asks for and computes is the policies', and may differ by [`TOLERANCE`].

use crate::device::{DISKS, Device};
use crate::engine::{Clock, Outcome, replay};
use crate::trace::Trace;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Percent.
pub const TOLERANCE: u64 = 2;

/// Below that a difference is none, ns.
const LEAST: u64 = 200_000;

/// One program on one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub name: String,
    pub disk: String,
    /// ns.
    pub alone: u64,
    pub ours: u64,
    pub requests: u64,
    /// Processor time of speculation, ns.
    pub spent: u64,
}

/// How a line compares with what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    AsExpected,
    Better,
    Worse,
    /// Alone it takes another time: the recording or the model is another one.
    Other,
    /// Nothing is expected.
    New,
}

/// Where the recorded programs are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces")
}

/// All that is recorded, by name.
pub fn recorded() -> Result<Vec<Trace>, String> {
    let entries = std::fs::read_dir(folder()).map_err(|error| error.to_string())?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "trace"));
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        text.and_then(|text| Trace::parse(&text)).map_err(|error| format!("{}: {error}", path.display()))
    };
    paths.iter().map(read).collect()
}

/// Plays a program on a disk, alone and with speculation.
pub fn play(trace: &Trace, disk: &str) -> Result<(Outcome, Outcome), String> {
    let one = |speculates| -> Result<Outcome, String> {
        Ok(replay(trace, Device::named(disk)?, speculates, &Clock::default()))
    };
    Ok((one(false)?, one(true)?))
}

/// Plays all on all disks.
pub fn found(traces: &[Trace]) -> Result<Vec<(Line, Outcome)>, String> {
    let mut lines = Vec::new();
    for trace in traces {
        for disk in DISKS {
            let (alone, ours) = play(trace, disk)?;
            let line = Line {
                name: trace.name.clone(),
                disk: disk.to_owned(),
                alone: alone.elapsed,
                ours: ours.elapsed,
                requests: ours.requests,
                spent: ours.spent + ours.faults_spent,
            };
            lines.push((line, ours));
        }
    }
    Ok(lines)
}

/// The lines as they are stored.
pub fn text<'a>(lines: impl Iterator<Item = &'a Line>) -> String {
    lines.fold(String::new(), |mut text, line| {
        let Line { name, disk, alone, ours, requests, spent } = line;
        let _ = writeln!(text, "{name} {disk} {alone} {ours} {requests} {spent}");
        text
    })
}

/// Where they are stored.
pub fn path() -> PathBuf {
    folder().join("expected")
}

/// What is stored.
pub fn stored() -> Result<Vec<Line>, String> {
    let text = std::fs::read_to_string(path()).map_err(|error| error.to_string())?;
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, disk, numbers @ ..] = words.as_slice() else { return None };
        let numbers: Option<Vec<u64>> = numbers.iter().map(|number| number.parse().ok()).collect();
        let &[alone, ours, requests, spent] = numbers?.as_slice() else { return None };
        Some(Line { name: (*name).to_owned(), disk: (*disk).to_owned(), alone, ours, requests, spent })
    };
    text.lines().map(|text| line(text).ok_or_else(|| format!("'{text}' is not to be read"))).collect()
}

/// What is to be said of a line.
pub fn verdict(line: &Line, stored: &[Line]) -> Verdict {
    let same = |other: &&Line| (&other.name, &other.disk) == (&line.name, &line.disk);
    let Some(expected) = stored.iter().find(same) else { return Verdict::New };
    if expected.alone != line.alone {
        return Verdict::Other;
    }
    let differs =
        |one: u64, other: u64, least: u64| one.abs_diff(other) > (other * TOLERANCE / 100).max(least);
    if differs(line.ours, expected.ours, LEAST) {
        return if line.ours > expected.ours { Verdict::Worse } else { Verdict::Better };
    }
    // As quick, for another price.
    let price = |one: u64, other: u64, least| differs(one, other, least).then_some(one > other);
    match (price(line.spent, expected.spent, 5 * LEAST), price(line.requests, expected.requests, 4)) {
        (Some(true), _) | (None, Some(true)) => Verdict::Worse,
        (Some(false), _) | (None, Some(false)) => Verdict::Better,
        (None, None) => Verdict::AsExpected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(alone: u64, ours: u64, requests: u64, spent: u64) -> Line {
        Line { name: "some".to_owned(), disk: "cloud".to_owned(), alone, ours, requests, spent }
    }

    #[test]
    fn what_is_worse_is_seen() {
        let before = [line(1_000_000_000, 500_000_000, 1000, 100_000_000)];
        for (now, expected) in [
            (line(1_000_000_000, 509_000_000, 1015, 101_000_000), Verdict::AsExpected),
            (line(1_000_000_000, 511_000_000, 900, 90_000_000), Verdict::Worse),
            (line(1_000_000_000, 489_000_000, 1000, 100_000_000), Verdict::Better),
            (line(1_000_000_001, 500_000_000, 1000, 100_000_000), Verdict::Other),
            (line(1_000_000_000, 500_000_000, 1021, 100_000_000), Verdict::Worse),
            (line(1_000_000_000, 500_000_000, 1000, 103_000_000), Verdict::Worse),
            (line(1_000_000_000, 500_000_000, 1000, 97_000_000), Verdict::Better),
        ] {
            assert_eq!(verdict(&now, &before), expected, "{now:?}");
        }
        assert_eq!(verdict(&before[0], &[]), Verdict::New);
    }
}
