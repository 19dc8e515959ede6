//! `runahead doctor`: what Runahead can do here, and what is in the way.
//!
//! - [`facts`]: gathered by trying; nothing is decided there;
//! - [`verdicts`]: pure, from facts to lines;
//! - [`line`]: lines as text and JSON; [`apart`]: each look in a process of its own, with a limit of time.
//!
//! Each fact is asked for as a run asks for it, by the same functions where there are any. Every line, and
//! what it means, is in docs/doctor.md.

mod apart;
mod facts;
mod line;
mod verdicts;

use apart::{apart, apart_within};
use facts::{command, machine, place};
use line::{Line, Verdict};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use verdicts::about;

/// What is looked at beside the machine.
#[derive(Debug)]
pub enum Subject {
    /// A folder, or a file.
    Place(PathBuf),
    /// A command and its arguments.
    Command(Vec<OsString>),
}

/// A program's libraries are analysed like itself, at their first time: some 10 ms for a C library.
const COMMAND_PATIENCE: Duration = Duration::from_secs(20);

/// Looks at everything and prints it; returns the exit status. `allowed` is
/// [`check_filters`](crate::check_filters)' answer.
pub fn examine(subject: Subject, allowed: Result<(), String>, json: bool) -> u8 {
    // SAFETY: a child's end is to be told, whatever we were started with.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let surroundings = machine::Surroundings::look(crate::standing::filters());
    let mut lines = begin(allowed, &surroundings);
    if !lines.iter().any(|line| ENDS.contains(&&line.about[..]) && line.verdict == Verdict::Stops) {
        lines.extend(of_machine(&surroundings));
        let traces = lines.iter().any(|line| line.about == about::TRACING && line.verdict == Verdict::Ok);
        lines.extend(of_subject(subject, traces, &surroundings));
    }
    let text = if json { line::to_json(&lines) } else { line::to_text(&lines) };
    let _ = std::io::stdout().write_all(text.as_bytes());
    line::status(&lines)
}

/// What stops by these makes all other looks misleading: whoever is ended for a call that a run makes must
/// not make it here, what fails for a limit alone says nothing of itself, and each look takes a process.
const ENDS: [&str; 3] = [about::FILTERS, about::RESOURCES, about::READING];

/// What is known without another process, and whether there may be one.
fn begin(allowed: Result<(), String>, surroundings: &machine::Surroundings) -> Vec<Line> {
    use verdicts::machine as say;
    let is_allowed = allowed.is_ok();
    let filters = say::filters(allowed, surroundings);
    if !is_allowed {
        return filters;
    }
    let mut lines = vec![say::kernel(machine::release())];
    lines.extend(say::standing(&machine::standing()));
    lines.extend(filters);
    let resources = machine::resources();
    let is_too_low = resources.too_low.is_some();
    lines.push(say::resources(resources));
    if !is_too_low {
        lines.extend(apart(about::READING, &|_| {}));
    }
    lines
}

fn of_subject(subject: Subject, traces: bool, surroundings: &machine::Surroundings) -> Vec<Line> {
    match subject {
        Subject::Place(path) => {
            let look = |say: &mut apart::Say| place::look(&path, surroundings, say);
            apart_within(apart::PATIENCE, about::PATH, &path.to_string_lossy(), &look)
        }
        Subject::Command(words) => {
            let look = |say: &mut apart::Say| command::look(&words, traces, say);
            apart_within(COMMAND_PATIENCE, about::COMMAND, "it", &look)
        }
    }
}

/// What takes a process of its own.
fn of_machine(surroundings: &machine::Surroundings) -> Vec<Line> {
    use verdicts::machine as say;
    let mut lines = Vec::new();
    let looks: [(&str, &dyn Fn() -> Vec<Line>); 7] = [
        (about::INSTALLATION, &|| vec![say::installation(machine::installation())]),
        (about::SHARED, &|| vec![say::shared(machine::shared(), surroundings)]),
        (about::MIRROR, &|| vec![say::mirror(&machine::mirror(), surroundings)]),
        (about::READING, &|| say::peers(&machine::peers(), surroundings)),
        (about::CACHE, &|| {
            machine::cachestat().map(|told| say::cachestat(told, surroundings)).into_iter().collect()
        }),
        (about::MEMORY, &|| vec![say::memory(&machine::memory(), surroundings)]),
        (about::KNOWN, &|| vec![say::known(machine::known())]),
    ];
    for (about, look) in looks {
        lines.extend(apart(about, &|to| look().iter().for_each(|line| to.line(line))));
    }
    lines.push(say::processors(machine::processors()));
    lines
}
