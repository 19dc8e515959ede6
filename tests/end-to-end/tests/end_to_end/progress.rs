//! `--progress`: on a terminal of its own, in all the ways in which nothing may be written there. What is
//! written is compared with the run alone.

use crate::suite::Suite;
use nix::pty::{OpenptyResult, Winsize, openpty};
use runahead_end_to_end::Verdict;
use runahead_end_to_end::locate::Runahead;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn add(suite: &mut Suite) {
    suite.add_plain("progress::it is said to who is not disturbed by it", on_terminals);
}

/// Longer than anything has to be to say something: the terminal was made in some block of eight seconds, in
/// which nothing is said therefore; in the next one it is time in the last second.
const SECONDS: u32 = 17;

struct Case {
    name: &'static str,
    /// A shell's line, in which `SECONDS` stand for how long.
    line: &'static str,
    term: &'static str,
    columns: u16,
    /// Whether something is to be said.
    says: bool,
    /// What is typed after three seconds.
    types: &'static [u8],
    /// Standard error goes elsewhere, or standard output does.
    redirected: bool,
    output_elsewhere: bool,
    /// The terminal goes away after six seconds.
    leaves: bool,
}

const CASE: Case = Case {
    name: "",
    line: "sleep SECONDS",
    term: "xterm",
    columns: 100,
    says: false,
    types: b"",
    redirected: false,
    output_elsewhere: false,
    leaves: false,
};

const CASES: [Case; 12] = [
    Case { name: "quiet", line: "echo begins; sleep SECONDS; echo ends", says: true, ..CASE },
    Case {
        name: "a line without an end",
        line: "printf 'go on? '; sleep SECONDS; echo ends",
        says: true,
        ..CASE
    },
    Case { name: "output elsewhere", output_elsewhere: true, says: true, ..CASE },
    Case { name: "prints", line: "for n in $(seq SECONDS); do echo $n; sleep 1; done", ..CASE },
    Case { name: "raw", line: "stty raw; sleep SECONDS", ..CASE },
    Case { name: "a password", line: "stty -echo; sleep SECONDS", ..CASE },
    Case {
        name: "a child in a session of its own",
        line: "setsid -w sleep SECONDS; sleep 0.1",
        says: true,
        ..CASE
    },
    Case { name: "dumb", term: "dumb", ..CASE },
    Case { name: "narrow", columns: 60, ..CASE },
    Case { name: "held by its user", types: b"\x13", ..CASE },
    Case { name: "redirected", redirected: true, ..CASE },
    Case { name: "gone", line: "trap '' HUP; sleep SECONDS", leaves: true, ..CASE },
];

/// What came out of the terminal, and standard error where that goes elsewhere.
struct Seen {
    terminal: Vec<u8>,
    elsewhere: Vec<u8>,
    took: Duration,
    status: Option<i32>,
}

fn on_terminals() -> Verdict {
    let runahead = Runahead::built()?;
    let runs: Vec<_> = CASES
        .iter()
        .flat_map(|case| [(case, false), (case, true)])
        .map(|(case, under)| {
            let command = runahead.command.clone();
            std::thread::spawn(move || case.run(under.then_some(command)))
        })
        .collect();
    let mut runs = runs.into_iter().map(|run| run.join().map_err(|_| "a run has panicked".to_owned())?);
    let mut complaints = Vec::new();
    for case in &CASES {
        let (Some(alone), Some(under)) = (runs.next(), runs.next()) else {
            return Err("a run is missing".into());
        };
        if let Err(why) = case.compare(&alone?, &under?, runahead.label == "built") {
            complaints.push(format!("{}: {why}", case.name));
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}

impl Case {
    fn run(&self, under: Option<String>) -> Result<Seen, String> {
        let size = Winsize { ws_row: 24, ws_col: self.columns, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(&size, None).map_err(|error| error.to_string())?;
        let of_terminal = || slave.try_clone().map(Stdio::from).map_err(|error| error.to_string());
        let mut words: Vec<String> = under
            .into_iter()
            .flat_map(|command| [command.as_str(), "run", "--progress", "--"].map(str::to_owned))
            .collect();
        words.extend(["sh", "-c", &self.line.replace("SECONDS", &SECONDS.to_string())].map(str::to_owned));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("TERM", self.term).stdin(of_terminal()?).stdout(of_terminal()?);
        if self.output_elsewhere {
            command.stdout(Stdio::null());
        }
        command.stderr(if self.redirected { Stdio::piped() } else { of_terminal()? });
        // SAFETY: system calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // Whoever leads a session on a terminal is in its foreground.
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let began = Instant::now();
        let mut child = command.spawn().map_err(|error| format!("{words:?}: {error}"))?;
        // It holds what it was given; the terminal is to end with those who have it open.
        drop((command, slave));
        let types = typing(&master, self.types)?;
        let leaves = self.leaves.then_some(Duration::from_secs(6));
        let terminal = all_of(master, began, leaves)?;
        let mut elsewhere = Vec::new();
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_end(&mut elsewhere).map_err(|error| error.to_string())?;
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        drop(types);
        Ok(Seen { terminal, elsewhere, took: began.elapsed(), status: status.code() })
    }

    fn compare(&self, alone: &Seen, under: &Seen, is_built: bool) -> Verdict {
        let shown = |seen: &Seen| String::from_utf8_lossy(&seen.terminal).escape_debug().to_string();
        let plain = without_words(&under.terminal);
        let differs = || format!("alone '{}', with it '{}'", shown(alone), shown(under));
        if plain != alone.terminal || under.status != alone.status || !under.elsewhere.is_empty() {
            return Err(format!("{}, {:?} and {:?}", differs(), alone.status, under.status));
        }
        if is_built && self.says != (under.terminal != alone.terminal) {
            return Err(format!("something is to be said: {}; {}", self.says, differs()));
        }
        // What is said is taken away: at once where the program's output may come there, else at the end.
        let times = |what: &[u8]| under.terminal.windows(what.len()).filter(|bytes| *bytes == what).count();
        let (said, taken) = (times(b"runahead: "), times(b"\x1b[K\x1b8"));
        let wanted = if self.output_elsewhere { 1 } else { said };
        if is_built && self.says && (said == 0 || taken != wanted) {
            return Err(format!("said {said} times, taken away {taken} times: {}", differs()));
        }
        if under.took > alone.took + Duration::from_secs(2) {
            return Err(format!("alone {:?}, with it {:?}", alone.took, under.took));
        }
        Ok(())
    }
}

/// Types after three seconds.
fn typing(master: &OwnedFd, types: &'static [u8]) -> Result<std::thread::JoinHandle<()>, String> {
    let mut keyboard = File::from(master.try_clone().map_err(|error| error.to_string())?);
    Ok(std::thread::spawn(move || {
        if !types.is_empty() {
            std::thread::sleep(Duration::from_secs(3));
            let _ = keyboard.write_all(types);
        }
    }))
}

/// What comes out until nobody has the terminal open any more, or until it `leaves`.
fn all_of(master: OwnedFd, began: Instant, leaves: Option<Duration>) -> Result<Vec<u8>, String> {
    let mut seen = Vec::new();
    let mut file = File::from(master);
    loop {
        let mut ready = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure of ours.
        unsafe { libc::poll(&raw mut ready, 1, 100) };
        if leaves.is_some_and(|after| began.elapsed() > after) || began.elapsed() > Duration::from_secs(60) {
            return Ok(seen);
        }
        if ready.revents == 0 {
            continue;
        }
        let mut buffer = [0; 4096];
        match file.read(&mut buffer) {
            Ok(0) | Err(_) => return Ok(seen),
            Ok(length) => seen.extend_from_slice(&buffer[..length]),
        }
    }
}

/// The terminal's output without what stands between saving the cursor and getting it back.
fn without_words(bytes: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::new(), bytes);
    while let Some(begin) = rest.windows(2).position(|two| two == b"\x1b7") {
        plain.extend_from_slice(&rest[..begin]);
        rest = &rest[begin..];
        let Some(end) = rest.windows(2).position(|two| two == b"\x1b8") else { break };
        rest = &rest[end + 2..];
    }
    plain.extend_from_slice(rest);
    plain
}
