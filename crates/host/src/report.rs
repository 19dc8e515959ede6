//! The report of a run: JSON (`--report`), and a helper that tells it to people (`--stats`, `crates/page`).

use crate::apart::nowhere;
use crate::child;
use crate::counts::Counts;
use crate::reasons::MEMORY_SHORT;
use crate::standing;
use runahead_gate::Gate;
use runahead_remedies::Surroundings;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Serialize;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::iter;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Version of the JSON document's layout: it stays when a field is added.
pub const VERSION: u32 = 1;

/// How long it is waited for a moment in which nothing is given back.
const PASS_AGAIN: Duration = Duration::from_millis(1);
const PASS_TRIES: usize = 20;

/// How much of it is told to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What waited, what was gained, and why not more.
    Words,
    /// Every count.
    Full,
}

impl Detail {
    /// As it is called among processes of ours.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Detail::Words => "words",
            Detail::Full => "full",
        }
    }

    /// None: no such word.
    pub(crate) fn of_word(word: &str) -> Option<Detail> {
        [Detail::Words, Detail::Full].into_iter().find(|detail| detail.word() == word)
    }
}

/// The JSON document; documented in docs/report.md.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this document's layout.
    pub version: u32,
    pub command: Vec<Cow<'static, str>>,
    /// From the start of the command to the report.
    pub elapsed_ns: u64,
    /// Why nothing was speculated, where something prevented it.
    pub plainly_because: Option<String>,
    /// Why the command was left alone before its end, where it was; then all this is of the time until then.
    pub left_because: Option<String>,
    /// False: it was only watched.
    pub speculated: bool,
    /// What the kernel has counted; None where nobody could be asked any more.
    pub program: Option<ProgramCounts>,
    pub counts: Counts,
}

/// What the kernel has counted of the command's process and of its children that it has waited for.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct ProgramCounts {
    pub processor_ns: u64,
    /// Time that its first thread was ready to run and had no processor.
    pub queued_ns: u64,
    /// Page faults that had to read.
    pub major_faults: u64,
    /// Bytes that came from disks for it; what came ahead of it is not among them. Zero where the kernel
    /// counts none.
    pub device_bytes: u64,
    /// What may come at once for one that waits.
    pub read_ahead_bytes: u64,
}

/// Text that a terminal shows and does not obey.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|shown| if shown.is_control() { '\u{fffd}' } else { shown }).collect()
}

impl Report {
    /// The JSON document.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Writes the JSON document. A disk that is full by now must not harm the command: errors are passed over.
    pub fn write_json(&self, to: &mut File) {
        let _ = to.write_all(self.json().as_bytes());
    }

    /// The same into a regular file, where it is written again later; `long`: the bytes that were, 0: none
    /// yet. Returns how many there are now. The later one is no shorter, filled up with blanks, mostly no
    /// longer, and written in one piece: who reads meanwhile finds the one or the other (but for the moment of
    /// writing: the kernel copies page by page).
    pub fn write_json_in_place(&self, to: &File, long: usize) -> usize {
        const ROOM: usize = 1024;
        let json = self.json();
        let wanted = if long == 0 { json.len() + ROOM } else { long.max(json.len()) };
        let filled = format!("{:<1$}\n", json.trim_end(), wanted - 1);
        to.write_at(filled.as_bytes(), 0).unwrap_or(0)
    }

    /// What kept all or a part of speculation from the command, a line each; empty if nothing did.
    pub fn reasons(&self) -> String {
        let told = [
            ("the command ran plainly", &self.plainly_because),
            ("the command was left alone", &self.left_because),
            ("there was no speculator", &self.counts.speculator.refused_because),
            ("page faults were not seen", &self.counts.faults.unseen_because),
            ("memory was left on swap", &self.counts.faults.swap_left_because),
            ("nothing is remembered", &self.counts.remembered.left_because),
            ("the profile is not used", &self.counts.remembered.profile_because),
        ];
        let line =
            |(what, why): (&str, &Option<String>)| Some(format!("runahead: {what}: {}\n", why.as_ref()?));
        told.into_iter().filter_map(line).collect()
    }

    /// Tells it on stderr by the helper that has words for it. What kept speculation from the command is told
    /// where there is none, and where the command was left alone in want of memory: there is no room for
    /// another process.
    pub(crate) fn tell(&self, helper: &Path, detail: Detail, gate: Gate) {
        let short = self.left_because.as_deref() == Some(MEMORY_SHORT);
        if short || !self.was_told(helper, detail, gate).is_ok_and(|told| told) {
            // Nobody may be listening.
            let _ = std::io::stderr().write_all(self.reasons_and_remedies(short, helper).as_bytes());
        }
    }

    fn reasons_and_remedies(&self, short: bool, helper: &Path) -> String {
        let around = Surroundings::look(standing::filters());
        let mut text = String::new();
        for line in self.reasons().lines() {
            let remedy = runahead_remedies::of(line, &around);
            let remedy = remedy.map_or(String::new(), |remedy| format!("runahead: try: {remedy}\n"));
            text += &format!("{line}\n{remedy}");
        }
        if !short {
            text += &format!("runahead: {} cannot tell more\n", helper.display());
        }
        text
    }

    /// A process of its own: the host is in the program's memory control group, and words take more than the
    /// counts.
    fn was_told(&self, helper: &Path, detail: Detail, gate: Gate) -> io::Result<bool> {
        // In a file that no limit on files concerns, and of which nobody waits for the other end.
        let mut file = File::from(memfd_create("runahead-report", MemfdFlags::CLOEXEC)?);
        self.write_json(&mut file);
        file.rewind()?;
        let mut command = Command::new(helper);
        command.arg(detail.word()).env_clear().stdin(file).stdout(nowhere()?);
        // What decides which remedy helps.
        for name in ["container", "INVOCATION_ID", "PATH"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        let pass = iter::repeat_with(|| {
            std::thread::sleep(PASS_AGAIN);
            child::pass(gate)
        });
        let pass = child::pass(gate).or_else(|| pass.take(PASS_TRIES).flatten().next());
        // Who gives something back all the time is not waited for.
        let pass = pass.or_else(|| child::pass(Gate::default())).ok_or(io::ErrorKind::WouldBlock)?;
        // SAFETY: calls nothing.
        let mut child = unsafe { child::start(command, pass, || Ok(3), || {}) }?;
        Ok(child.wait()?.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_told_what_to_do() {
        assert_eq!(printable("grep \u{1b}[31m a\nb é"), "grep \u{fffd}[31m a\u{fffd}b é");
    }
}
