//! What `./x demo` shows: one real program, alone and under Runahead.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::configuration::Builds;
use crate::data;
use crate::plan::{self, Asked};
use crate::results::Record;
use crate::session::{self, Options};

/// Of each, in turn: enough for a median, and the whole demonstration stays under five minutes.
const RUNS: usize = 3;

/// agrep over 9000 kernel source files, on the disk of 1 ms where it can be emulated, else on the
/// machine's own.
pub fn demo(checkout: &Path, builds: Builds) -> Result<String> {
    let missing = slowdisk::system::missing();
    if let Some(reason) = &missing {
        eprintln!("demo: on this machine's own disk, since a slower one cannot be emulated: {reason}");
    }
    let profiles = [if missing.is_none() { "cloud" } else { "native" }.to_string()];
    let configurations = ["alone", "runahead"].map(String::from);
    let asked = Asked { profiles: &profiles, configurations: &configurations, pattern: None };
    let parts = plan::plan(&["agrep".to_string()], &asked)?;
    let part = parts.first().context("nothing to measure")?;
    let outcome = session::run(&Options {
        checkout: checkout.to_path_buf(),
        builds,
        profile: part.profile.clone(),
        filesystem: "ext4".into(),
        read_ahead_kb: 128,
        jobs: part.jobs.clone(),
        runs: RUNS,
        most_runs: RUNS,
        replays: 0,
        // A show is no result: it stays beside the data.
        results: data::root(checkout).join("demo.jsonl"),
        patience: Duration::from_secs(300),
    })?;
    Ok(show(outcome.records.first().with_context(|| outcome.failed.join("; "))?))
}

fn show(record: &Record) -> String {
    let figures = |name: &str| record.summary.configurations.get(name).cloned().unwrap_or_default();
    let (alone, ours) = (figures("alone"), figures("runahead"));
    let disk = match record.disk.profile.as_str() {
        "cloud" => "an emulated cloud disk (1 ms a request, 64 at once)",
        _ => "this machine's own disk",
    };
    let mut text = format!("\nagrep for a word in 9000 kernel source files, nothing cached, on {disk}:\n\n");
    for (name, figures) in [("alone", &alone), ("under Runahead", &ours)] {
        let _ = writeln!(
            text,
            "  {name:<16}{:>8.2} s   ({:.2} to {:.2}, {} runs)",
            figures.median, figures.least, figures.most, figures.runs
        );
    }
    let bytes = record.runs.first().map_or(0, |run| run.measured.output_bytes);
    let equal = record.runs.iter().all(|run| run.measured.same);
    let _ = writeln!(text, "\n  {:.1} times as fast", ours.ratio.unwrap_or(0.0));
    text += &match equal {
        true => format!("  outputs of all {} runs compared: equal, {bytes} bytes\n", record.runs.len()),
        false => "  THE OUTPUTS DIFFER\n".to_string(),
    };
    for mark in &record.marks {
        let _ = writeln!(text, "  note: {mark}");
    }
    text
}
