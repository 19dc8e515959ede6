//! What the doctor says: lines, as text and as JSON.

use crate::report::printable;
use serde::Serialize;
use std::fmt::Write as _;

/// What a finding means for what Runahead can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    /// It works and gains less.
    Limits,
    /// It gains nothing.
    Stops,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Limits => "limits",
            Verdict::Stops => "stops",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    pub about: String,
    pub verdict: Verdict,
    pub found: String,
    /// A command, or what else mends it. None: there is nothing to mend, or nothing mends it.
    pub remedy: Option<String>,
}

impl Line {
    /// Out of line, as all that lines are made with: the launcher is to be small.
    #[inline(never)]
    fn new(about: &str, verdict: Verdict, found: String) -> Line {
        Line { about: about.into(), verdict, found, remedy: None }
    }

    pub fn ok(about: &str, found: impl Into<String>) -> Line {
        Line::new(about, Verdict::Ok, found.into())
    }

    pub fn limits(about: &str, found: impl Into<String>) -> Line {
        Line::new(about, Verdict::Limits, found.into())
    }

    pub fn stops(about: &str, found: impl Into<String>) -> Line {
        Line::new(about, Verdict::Stops, found.into())
    }

    pub fn mended_by(self, remedy: impl Into<String>) -> Line {
        self.with(Some(remedy.into()))
    }

    pub fn perhaps_mended_by(self, remedy: Option<impl Into<String>>) -> Line {
        self.with(remedy.map(Into::into))
    }

    #[inline(never)]
    fn with(mut self, remedy: Option<String>) -> Line {
        self.remedy = remedy;
        self
    }
}

/// Version of the JSON document's layout: it stays when a field is added.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    status: u8,
    lines: &'a [Line],
}

/// The exit status: 0 all is well, 1 something limits, 2 something stops.
pub fn status(lines: &[Line]) -> u8 {
    match lines.iter().map(|line| line.verdict).max() {
        None | Some(Verdict::Ok) => 0,
        Some(Verdict::Limits) => 1,
        Some(Verdict::Stops) => 2,
    }
}

pub fn to_json(lines: &[Line]) -> String {
    let document = Document { version: VERSION, status: status(lines), lines };
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

/// Widths: of all, of the verdict and of what a line is about, with a gap behind each.
const WIDTH: usize = 98;
const VERDICT_WIDTH: usize = 8;
const ABOUT_WIDTH: usize = 16;
const MARK: &str = "try: ";

pub fn to_text(lines: &[Line]) -> String {
    let mut text = String::new();
    let indent = VERDICT_WIDTH + ABOUT_WIDTH;
    for line in lines {
        let start = format!("{:<VERDICT_WIDTH$}{:<ABOUT_WIDTH$}", line.verdict.word(), line.about);
        wrap(&mut text, &start, &printable(&line.found), indent);
        if let Some(remedy) = &line.remedy {
            // Not wrapped: it is to be pasted.
            let _ = writeln!(text, "{:indent$}{MARK}{}", "", printable(remedy));
        }
    }
    text.push('\n');
    text.push_str(match status(lines) {
        0 => "Nothing is in Runahead's way here.\n",
        1 => "Runahead works here; what limits it stands above.\n",
        _ => "Runahead gains nothing here as long as there is what stops it.\n",
    });
    text
}

/// Adds words behind `start`, in as many lines as they need, all but the first of them indented.
#[inline(never)]
fn wrap(text: &mut String, start: &str, words: &str, indent: usize) {
    text.push_str(start);
    let mut column = start.chars().count();
    let mut at_start = true;
    for word in words.split(' ') {
        let length = word.chars().count();
        if !at_start && column + 1 + length > WIDTH {
            let _ = write!(text, "\n{:indent$}", "");
            (column, at_start) = (indent, true);
        }
        if !at_start {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
        at_start = false;
    }
    text.push('\n');
}

/// How an error's number is called, and what it says.
#[inline(never)]
pub fn errno(number: i32) -> String {
    const NAMES: [(i32, &str); 28] = [
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::EIO, "EIO"),
        (libc::ENXIO, "ENXIO"),
        (libc::ENOEXEC, "ENOEXEC"),
        (libc::EBADF, "EBADF"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::ENODEV, "ENODEV"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EINVAL, "EINVAL"),
        (libc::ENFILE, "ENFILE"),
        (libc::EMFILE, "EMFILE"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EROFS, "EROFS"),
        (libc::ELOOP, "ELOOP"),
        (libc::ENAMETOOLONG, "ENAMETOOLONG"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::ENOTCONN, "ENOTCONN"),
        (libc::ESTALE, "ESTALE"),
        (libc::EDQUOT, "EDQUOT"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
    ];
    let name = NAMES.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned());
    name.unwrap_or_else(|| format!("error {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<Line> {
        vec![
            Line::ok("kernel", "Linux 6.18"),
            Line::limits("page faults", "word ".repeat(40)).mended_by("sysctl a=b"),
        ]
    }

    #[test]
    fn the_worst_line_is_the_status() {
        assert_eq!(status(&[]), 0);
        assert_eq!(status(&lines()[..1]), 0);
        assert_eq!(status(&lines()), 1);
        let stopped = [lines(), vec![Line::stops("x", "y"), Line::ok("z", "")]].concat();
        assert_eq!(status(&stopped), 2);
    }

    #[test]
    fn text_is_aligned_and_no_wider_than_a_screen() {
        let text = to_text(&lines());
        assert!(text.starts_with("ok      kernel          Linux 6.18\nlimits  page faults     word word"));
        assert!(text.contains("\n                        try: sysctl a=b\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert_eq!(text.matches("word").count(), 40);
        assert!(text.ends_with("what limits it stands above.\n"));
    }

    #[test]
    fn what_a_file_is_called_does_not_command_the_terminal() {
        let text = to_text(&[Line::ok("command", "\x1b[2Ja\nb")]);
        assert!(!text.contains('\x1b') && !text.contains("a\nb"), "{text}");
    }

    #[test]
    fn json_has_the_same_lines() {
        let told: serde_json::Value = serde_json::from_str(&to_json(&lines())).unwrap();
        assert_eq!((&told["version"], &told["status"]), (&1.into(), &1.into()));
        assert_eq!(told["lines"][0]["verdict"], "ok");
        assert!(told["lines"][0]["remedy"].is_null());
        assert_eq!(told["lines"][1]["remedy"], "sysctl a=b");
    }

    #[test]
    fn errors_are_named() {
        assert_eq!(errno(libc::EPERM), "EPERM");
        assert_eq!(errno(9999), "error 9999");
    }
}
