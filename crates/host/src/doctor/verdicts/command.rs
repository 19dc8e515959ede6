//! A command.

use super::about;
use crate::doctor::facts::command::{Calls, Facts, Found, Kind, Rights};
use crate::doctor::line::{Line, errno};
use crate::reasons;
use runahead_insert::file::{Entrance, Reason};
use runahead_remedies as remedies;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub fn found(name: &OsStr, found: &Found) -> Line {
    let name = name.to_string_lossy();
    match found {
        Found::Nothing => {
            let line = Line::stops(about::COMMAND, format!("{name}: not found ({})", errno(libc::ENOENT)));
            let remedy = if name.contains('/') {
                "another path"
            } else {
                "name it by its path, or add its folder to PATH"
            };
            line.mended_by(remedy)
        }
        Found::Forbidden(path) => {
            let path = path.display();
            let found = format!("{path}: cannot be executed ({})", errno(libc::EACCES));
            Line::stops(about::COMMAND, found).mended_by(format!("chmod +x {path}"))
        }
        Found::NoInterpreter(script, interpreter) => Line::stops(
            about::COMMAND,
            format!("{}: its interpreter {} is not there", script.display(), interpreter.display()),
        ),
        Found::Program { chain } => {
            let names: Vec<String> = chain.iter().map(|path| path.display().to_string()).collect();
            Line::ok(about::COMMAND, names.join(", a script for "))
        }
    }
}

/// What the program's file tells. `traces`: processes may be traced here.
pub fn program(path: &Path, facts: &Facts, traces: bool) -> Vec<Line> {
    let mut lines = vec![kind(facts, traces)];
    lines.extend(facts.rights.map(|rights| gains(path, rights)));
    lines
}

fn kind(facts: &Facts, traces: bool) -> Line {
    let go = if facts.is_go { ", Go" } else { "" };
    let loader = facts.loader.as_deref().map_or(String::new(), |loader| loader.display().to_string());
    match facts.kind {
        Kind::Ours(Entrance::Loader) => {
            Line::ok(about::PROGRAM, format!("dynamically linked, glibc{go}: the loader brings the agent in"))
        }
        Kind::Ours(Entrance::Image(reason)) => {
            let how = match reason {
                Reason::Static => format!("statically linked{go}"),
                Reason::OtherLoader => format!("dynamically linked{go}, by {loader}"),
            };
            if traces {
                Line::ok(about::PROGRAM, format!("{how}: the agent is put in by tracing"))
            } else {
                let found = format!("{how}, and tracing is not allowed (above): it runs plainly");
                Line::stops(about::PROGRAM, found)
            }
        }
        Kind::Narrow => {
            Line::stops(about::PROGRAM, "a 32-bit program: it runs plainly").mended_by(remedies::WIDE)
        }
        Kind::Other => Line::stops(about::PROGRAM, "no program for this machine that could be looked into"),
        Kind::Unread => Line::stops(about::PROGRAM, format!("it cannot be read ({})", errno(libc::EACCES)))
            .mended_by("sudo runahead run -- COMMAND"),
    }
}

fn gains(path: &Path, rights: Rights) -> Line {
    let plainly = "it runs plainly";
    match rights {
        Rights::User(user) => {
            let line = Line::stops(about::FILE_RIGHTS, format!("setuid, as user {user}: {plainly}"));
            // Who is that user already gets nothing by it.
            match user {
                0 => line.mended_by(format!("sudo runahead run -- {} ...", path.display())),
                user => line.mended_by(format!("sudo -u '#{user}' runahead run -- {} ...", path.display())),
            }
        }
        Rights::Group(group) => {
            Line::stops(about::FILE_RIGHTS, format!("setgid, as group {group}: {plainly}"))
                .mended_by(format!("sudo -g '#{group}' runahead run -- {} ...", path.display()))
        }
        Rights::Capabilities => {
            let line = Line::stops(about::FILE_RIGHTS, format!("file capabilities: {plainly}"));
            line.mended_by(format!("sudo runahead run -- {} ...", path.display()))
        }
    }
}

pub fn calls(calls: &Calls) -> Line {
    if let Some(first) = calls.blind.first() {
        let more = match calls.blind.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return Line::stops(
            about::CALLS,
            format!("{}{more}: {}, so it runs plainly", first.display(), reasons::BLIND),
        );
    }
    if let Some(first) = calls.unread.first() {
        return Line::stops(about::CALLS, format!("{} cannot be read, so it runs plainly", first.display()))
            .mended_by(format!("chmod a+r {}", first.display()));
    }
    let files = if calls.looked == 1 { "its file".into() } else { format!("{} files", calls.looked) };
    Line::ok(about::CALLS, format!("all of {files} can be seen; libraries loaded later were not looked at"))
}

pub fn preloads(preloaded: &[PathBuf]) -> Line {
    let names: Vec<String> = preloaded.iter().map(|path| path.display().to_string()).collect();
    Line::ok(about::PRELOAD, format!("{}, loaded behind the agent", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::line::Verdict;

    fn facts(kind: Kind) -> Facts {
        Facts { kind, rights: None, loader: Some("/lib/ld.so".into()), is_go: false }
    }

    fn verdict(kind: Kind, traces: bool) -> Verdict {
        let lines = program(Path::new("/bin/x"), &facts(kind), traces);
        assert_eq!(lines.len(), 1);
        lines[0].verdict
    }

    #[test]
    fn names_that_lead_nowhere_stop() {
        let line = |found: &Found| super::found(OsStr::new("x"), found);
        assert_eq!(line(&Found::Nothing).verdict, Verdict::Stops);
        let forbidden = line(&Found::Forbidden("/bin/x".into()));
        assert_eq!(forbidden.remedy.as_deref(), Some("chmod +x /bin/x"));
        assert_eq!(line(&Found::NoInterpreter("/x".into(), "/y".into())).verdict, Verdict::Stops);
        let script = line(&Found::Program { chain: vec!["/bin/x".into(), "/bin/sh".into()] });
        assert_eq!((script.verdict, &script.found[..]), (Verdict::Ok, "/bin/x, a script for /bin/sh"));
    }

    #[test]
    fn programs_are_told_by_how_the_agent_comes_in() {
        assert_eq!(verdict(Kind::Ours(Entrance::Loader), false), Verdict::Ok);
        for reason in [Reason::Static, Reason::OtherLoader] {
            assert_eq!(verdict(Kind::Ours(Entrance::Image(reason)), true), Verdict::Ok);
            assert_eq!(verdict(Kind::Ours(Entrance::Image(reason)), false), Verdict::Stops);
        }
        for kind in [Kind::Narrow, Kind::Other, Kind::Unread] {
            assert_eq!(verdict(kind, true), Verdict::Stops);
        }
        let go = Facts { is_go: true, ..facts(Kind::Ours(Entrance::Image(Reason::Static))) };
        assert!(program(Path::new("/x"), &go, true)[0].found.contains("Go"));
    }

    #[test]
    fn rights_stop_and_who_has_them_already_is_named() {
        for (rights, helps) in [
            (Rights::User(0), "sudo runahead run -- /bin/x"),
            (Rights::User(7), "sudo -u '#7' runahead run"),
            (Rights::Group(8), "sudo -g '#8' runahead run"),
            (Rights::Capabilities, "sudo runahead run"),
        ] {
            let facts = Facts { rights: Some(rights), ..facts(Kind::Ours(Entrance::Loader)) };
            let lines = program(Path::new("/bin/x"), &facts, true);
            assert_eq!((lines.len(), lines[1].verdict), (2, Verdict::Stops));
            assert!(lines[1].remedy.as_deref().unwrap().starts_with(helps), "{lines:?}");
        }
    }

    #[test]
    fn one_file_that_cannot_be_seen_stops() {
        let calls = |blind: &[&str], unread: &[&str]| {
            let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect();
            super::calls(&Calls { looked: 3, blind: paths(blind), unread: paths(unread) })
        };
        assert_eq!(calls(&[], &[]).verdict, Verdict::Ok);
        let line = calls(&["/lib/a.so", "/lib/b.so"], &[]);
        assert!(line.verdict == Verdict::Stops && line.found.starts_with("/lib/a.so and 1 more"), "{line:?}");
        assert_eq!(calls(&[], &["/lib/a.so"]).remedy.as_deref(), Some("chmod a+r /lib/a.so"));
    }
}
