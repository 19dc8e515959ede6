//! What is compared of two runs, and how a difference is told.

use crate::supervise::{Ending, RunReport};
use crate::tree::{self, Tree};

/// Everything observable of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub tree: Tree,
    pub report: RunReport,
}

/// How the run alone must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    Exit(i32),
    Signal(i32),
}

impl Expectation {
    /// Why the outcome is not as expected.
    pub fn complaint(&self, outcome: &Outcome) -> Option<String> {
        let met = match (&outcome.report.ending, self) {
            (Ending::Exited(code), Expectation::Exit(expected)) => code == expected,
            (Ending::Signalled { signal, .. }, Expectation::Signal(expected)) => signal == expected,
            _ => false,
        };
        (!met).then(|| {
            format!(
                "expected {self:?}, got {:?}\nstdout: {}\nstderr: {}",
                outcome.report.ending,
                tail(&outcome.stdout),
                tail(&outcome.stderr)
            )
        })
    }
}

/// How much later than alone the output's end may come: a descriptor kept by a stray process shows
/// as the length of that process's life, a busy machine as some tens of milliseconds.
const OUTPUT_CLOSED_SLACK_MS: u64 = 500;

/// Everything that differs, one line or block each; empty if nothing does.
pub fn differences(alone: &Outcome, under: &Outcome) -> Vec<String> {
    let mut found = Vec::new();
    if alone.report.ending != under.report.ending {
        found.push(format!("ending: alone {:?}, under {:?}", alone.report.ending, under.report.ending));
    }
    if alone.report.stops != under.report.stops {
        found.push(format!(
            "stopped by signals: alone {:?}, under {:?}",
            alone.report.stops, under.report.stops
        ));
    }
    found.extend(text_difference("stdout", &alone.stdout, &under.stdout));
    found.extend(text_difference("stderr", &alone.stderr, &under.stderr));
    found.extend(tree::differences(&alone.tree, &under.tree));
    let (early, late) = (alone.report.output_closed_after_ms, under.report.output_closed_after_ms);
    if late > early + OUTPUT_CLOSED_SLACK_MS {
        found.push(format!(
            "output held open: the last writer went {late} ms after the program, alone {early} ms"
        ));
    }
    if alone.report.left_processes != under.report.left_processes {
        found.push(format!(
            "processes left behind: alone {:?}, under {:?}",
            alone.report.left_processes, under.report.left_processes
        ));
    }
    if alone.report.left_files != under.report.left_files {
        found.push(format!(
            "temporary files left behind: alone {:?}, under {:?}",
            alone.report.left_files, under.report.left_files
        ));
    }
    found
}

/// The first lines that differ, with a line of context before.
fn text_difference(what: &str, alone: &[u8], under: &[u8]) -> Option<String> {
    if alone == under {
        return None;
    }
    let lines = |bytes: &[u8]| -> Vec<String> { bytes.split(|byte| *byte == b'\n').map(printable).collect() };
    let (alone, under) = (lines(alone), lines(under));
    let count = alone.len().max(under.len());
    let differing: Vec<usize> = (0..count).filter(|at| alone.get(*at) != under.get(*at)).collect();
    let mut text = format!("{what}: {} of {count} lines differ", differing.len());
    for at in differing.iter().take(12) {
        if *at > 0 && !differing.contains(&(at - 1)) {
            text += &format!("\n    line {:5}: {}", at, alone[at - 1]);
        }
        let show = |lines: &[String]| lines.get(*at).cloned().unwrap_or("(no such line)".into());
        text += &format!("\n  - line {:5}: {}", at + 1, show(&alone));
        text += &format!("\n  + line {:5}: {}", at + 1, show(&under));
    }
    Some(text)
}

fn printable(line: &[u8]) -> String {
    let text: String = line.iter().take(240).flat_map(|byte| byte.escape_ascii()).map(char::from).collect();
    if line.len() > 240 { text + "…" } else { text }
}

fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n        ")
}
