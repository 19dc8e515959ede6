//! The recorded programs: what the policies make of them is what is expected.

use runahead_replay::device::DISKS;
use runahead_replay::expected::{self, Verdict};
use runahead_replay::synthetic;
use runahead_replay::trace::{Trace, What};

/// All recorded programs together, bytes.
const MOST_BYTES: u64 = 1 << 20;

fn recorded() -> Vec<Trace> {
    expected::recorded().unwrap()
}

#[test]
fn there_are_thirty_of_many_kinds_and_they_are_small() {
    let traces = recorded();
    assert!(traces.len() >= 30, "{}", traces.len());
    let has = |what: fn(&Trace) -> bool| traces.iter().any(what);
    assert!(
        has(|trace| trace.threads.len() > 1) && has(|trace| trace.warm) && has(|trace| trace.processors == 1)
    );
    let names =
        |trace: &Trace| trace.threads.iter().flatten().any(|step| matches!(step.what, What::Name { .. }));
    assert!(has(names));
    let mut bytes = 0;
    for entry in std::fs::read_dir(expected::folder()).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains('/'), "{} tells a path", path.display());
        bytes += text.len() as u64;
    }
    assert!(bytes < MOST_BYTES, "{bytes}");
}

/// `./x replay` prints the same as a table. Where a difference is meant, `./x replay --expect`, and the
/// commit says what got better and what worse.
#[test]
fn the_policies_do_what_is_expected_of_them() {
    let (traces, stored) =
        (recorded().into_iter().chain(synthetic::all()).collect::<Vec<_>>(), expected::stored());
    let (stored, found) = (stored.unwrap(), expected::found(&traces).unwrap());
    assert_eq!(found.len(), traces.len() * DISKS.len());
    let differ: Vec<String> = found
        .iter()
        .map(|(line, _)| (expected::verdict(line, &stored), line))
        .filter(|(verdict, _)| *verdict != Verdict::AsExpected)
        .map(|(verdict, line)| format!("{verdict:?}: {line:?}"))
        .collect();
    assert!(differ.is_empty(), "see ./x replay:\n{}", differ.join("\n"));
    let gone = stored.iter().find(|line| found.iter().all(|(other, _)| other.name != line.name));
    assert_eq!(gone, None, "expected of a program that is not there");
}

#[test]
fn the_same_input_gives_the_same_outcome_to_the_bit() {
    for trace in recorded().iter().take(8) {
        for disk in DISKS {
            assert_eq!(expected::play(trace, disk), expected::play(trace, disk), "{} on {disk}", trace.name);
        }
    }
}

/// Where nothing stands in line, nobody is slower than alone by more than looks, restarts and holds.
#[test]
fn on_disks_that_serve_many_nobody_is_slower() {
    for trace in recorded().iter().filter(|trace| trace.processors as usize > trace.threads.len()) {
        for disk in ["local", "cloud"] {
            let (alone, ours) = expected::play(trace, disk).unwrap();
            let most = alone.elapsed + ours.looked + ours.held;
            // A full line of 64 at the most.
            assert!(
                ours.elapsed <= most + most / 50,
                "{} on {disk}: {} for {most}",
                trace.name,
                ours.elapsed
            );
        }
    }
}
