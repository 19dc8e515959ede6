//! `runahead-report`: tells what a run has gained. The host starts it with a report on its standard input and
//! what is to be told (`words`, `full`); `runahead report` becomes it (`[--trace TRACE] page FILE [PAGE]`).
//!
//! A program of its own, so that neither the command nor the host, which is in the program's memory control
//! group, has any of it.

mod full;
mod page;
mod plot;
mod report;
mod timeline;
mod trace;
mod units;
mod waits;
mod why;
mod words;

use report::Report;
use runahead_remedies::Surroundings;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::process::ExitCode;
use trace::Trace;

/// As the command's own line being wrong.
const USAGE: u8 = 125;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let arguments: Vec<&OsStr> = arguments.iter().map(|word| word.as_os_str()).collect();
    let pair = (OsStr::new("--trace"), OsStr::new("page"));
    let told = match arguments.as_slice() {
        [how] if *how == "words" => tell(|report| {
            let around = Surroundings::look(filters());
            words::text(report, &around, gains_rights(report))
        }),
        [how] if *how == "full" => tell(full::text),
        [how, file] if *how == "page" => make_page(file, None, None),
        [how, file, page] if *how == "page" => make_page(file, None, Some(page)),
        [option, trace, how, file] if (*option, *how) == pair => make_page(file, Some(trace), None),
        [option, trace, how, file, page] if (*option, *how) == pair => {
            make_page(file, Some(trace), Some(page))
        }
        _ => return usage(),
    };
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "runahead: {why}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    let _ = writeln!(io::stderr(), "runahead: say: runahead report FILE [--trace TRACE] [-o PAGE]");
    ExitCode::from(USAGE)
}

/// Nothing is left behind where it fails.
fn make_page(file: &OsStr, trace: Option<&OsStr>, page: Option<&OsStr>) -> Result<(), String> {
    let (report, document) = read(file, Report::read)?;
    let trace = trace.map(|trace| read(trace, Trace::read)).transpose()?;
    let html = page::html(&report, &document, trace.as_ref(), &Surroundings::look(filters()));
    match page {
        None => io::stdout().write_all(html.as_bytes()).map_err(|error| error.to_string()),
        Some(page) => std::fs::write(page, html)
            .map_err(|error| format!("{}: {error}", units::printable(&page.to_string_lossy()))),
    }
}

fn read<What>(file: &OsStr, how: impl FnOnce(File) -> Result<What, String>) -> Result<What, String> {
    let name = units::printable(&file.to_string_lossy());
    let opened = File::open(file).map_err(|error| format!("{name}: {error}"))?;
    how(opened).map_err(|why| format!("{name}: {why}"))
}

/// On stderr in one piece, so that it stands together. Nobody may be listening.
fn tell(text: impl Fn(&Report) -> String) -> Result<(), String> {
    let (report, _) = Report::read(io::stdin().lock())?;
    let _ = io::stderr().write_all(text(&report).as_bytes());
    Ok(())
}

/// Whether the command's file is one that gets rights at its start.
fn gains_rights(report: &Report) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Some(name) = report.command.first() else { return false };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = match name.contains('/') {
        true => Some(name.into()),
        false => std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file()),
    };
    let mode = found.and_then(|file: std::path::PathBuf| file.metadata().ok()).map_or(0, |told| told.mode());
    mode & (libc::S_ISUID | libc::S_ISGID) != 0
}

/// Filters of system calls that we are under, and the program was.
fn filters() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    number("Seccomp_filters:").or_else(|| number("Seccomp:")).unwrap_or(0)
}
