//! The stepper: a guest's calls, interrupted at each instruction of Runahead's in turn.
//!
//! The guest `stepped` makes the same call again and again. The stepper stops it before each
//! (`begin_call`), goes through it instruction by instruction, counts those that are ours (the agent's
//! text, stubs, rewritten sites), and at the wanted one sends the guest's thread a signal. Sent and not
//! injected: a mask is honoured, and a signal that is blocked there comes later. Then the guest runs
//! on, checks itself, and tells at `end_call` whether anything is wrong.

use crate::trace::{self, Stop, Tracee};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What is to be done.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Plan {
    /// The words before the guest: how it runs under Runahead.
    pub under: Vec<String>,
    pub guest: Vec<String>,
    pub directory: PathBuf,
    /// Children of the guest make the call, and not itself.
    pub in_children: bool,
    /// At which of our instructions of a call the signal comes.
    pub places: Places,
    pub seed: u64,
    /// No more calls are made after that.
    pub seconds: u64,
}

#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub enum Places {
    /// At each, from the first to the last.
    Every,
    /// At so many, taken by chance.
    Some(u32),
}

/// What was seen.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Report {
    pub calls: u32,
    /// Calls with a signal.
    pub interrupted: u32,
    /// Most instructions of ours in a call.
    pub longest: u32,
    /// Different instructions at which a signal came.
    pub places: u32,
    /// Every place was come to, or as many as were to be.
    pub complete: bool,
    pub stdout: String,
    /// What went wrong, with the place.
    pub complaints: Vec<String>,
}

/// How many calls in a row must be shorter than the wanted place before it is given up: how long a
/// call is depends on what the disk and the other processes do.
const SHORTER_CALLS: u32 = 12;
/// Calls that are only looked at first, to learn how long they are.
const MEASURED_CALLS: u32 = 6;
/// A call comes back to the program for good: so many of the program's own instructions are none of a call.
const OWN_STEPS: u32 = 150;
/// Complaints after which there is nothing more to learn.
const MOST_COMPLAINTS: usize = 5;
/// Seconds that a call may take, stepped.
const LONGEST_CALL: u32 = 30;

/// Offsets in the guest's `struct control`.
mod control {
    pub const GO: u64 = 0;
    pub const STOP: u64 = 4;
    pub const SENT: u64 = 8;
    pub const WRONG: u64 = 16;
}

/// One call, while it is stepped through.
struct Call {
    thread: Tracee,
    /// The program's own instructions since the last of ours.
    own: u32,
    ours: u32,
    /// Where the signal was sent.
    sent_at: Option<u64>,
}

struct Stepper {
    guest: Tracee,
    control: u64,
    begin: u64,
    end: u64,
    code: OurCode,
    places: Places,
    random: u64,
    /// The instruction at which the next call is interrupted; 0: it is only measured.
    wanted: u32,
    shorter: u32,
    call: Option<Call>,
    seen: BTreeSet<u64>,
    wrong: u32,
    report: Report,
    deadline: std::time::Instant,
}

/// Carries out `plan`. An error is one of the stepper's own.
pub fn step(plan: &Plan) -> Result<Report, String> {
    let mut words = plan.under.iter().chain(&plan.guest);
    let program = words.next().ok_or("no guest")?;
    let mut child = Command::new(program)
        .args(words)
        .current_dir(&plan.directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let result = run(plan, &mut child);
    // What is left ends. Its threads are ours to wait for, before it is over.
    let _ = child.kill();
    while let Ok(Some(_)) = trace::wait() {}
    result
}

fn run(plan: &Plan, child: &mut Child) -> Result<Report, String> {
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut line = String::new();
    output.read_line(&mut line).map_err(|error| error.to_string())?;
    let numbers: Vec<u64> =
        line.split_whitespace().skip(1).filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
    let &[control, begin, end] = &numbers[..] else {
        return Err(format!("the guest is not ready: '{line}'"));
    };
    let guest = Tracee(child.id() as i32);
    let code = OurCode::find(guest)?;
    trace::seize(guest, plan.in_children)?;
    trace::share_processor(guest)?;
    for place in [begin, end] {
        guest.write(place, &[0xcc])?;
    }
    guest.write(control + control::GO, &1u32.to_ne_bytes())?;
    let mut stepper = Stepper {
        guest,
        control,
        begin,
        end,
        code,
        places: plan.places,
        random: plan.seed | 1,
        wanted: 0,
        shorter: 0,
        call: None,
        seen: BTreeSet::new(),
        wrong: 0,
        report: Report::default(),
        deadline: std::time::Instant::now() + std::time::Duration::from_secs(plan.seconds),
    };
    stepper.until_the_end()?;
    let mut report = stepper.report;
    report.places = stepper.seen.len() as u32;
    if report.complaints.is_empty() {
        output.read_to_string(&mut report.stdout).map_err(|error| error.to_string())?;
    }
    Ok(report)
}

impl Stepper {
    fn until_the_end(&mut self) -> Result<(), String> {
        trace::catch_alarm();
        trace::set_alarm(LONGEST_CALL);
        loop {
            let Some((thread, stop)) = trace::wait()? else {
                let complaint = format!("hangs {}", self.place());
                self.report.complaints.push(complaint);
                return Ok(());
            };
            match stop {
                Stop::Ended { status } if thread == self.guest => {
                    if status != 0 {
                        let complaint = format!("ended with wait status {status:#x} {}", self.place());
                        self.report.complaints.push(complaint);
                    }
                    return Ok(());
                }
                Stop::Ended { .. } => {}
                Stop::Group => thread.listen()?,
                Stop::New => thread.resume(0)?,
                Stop::Trap => self.trapped(thread)?,
                Stop::Signal(number) => thread.resume(number)?,
            }
            if self.report.complaints.len() >= MOST_COMPLAINTS {
                return Ok(());
            }
        }
    }

    fn trapped(&mut self, thread: Tracee) -> Result<(), String> {
        let at = thread.instruction()?;
        if at == self.begin + 1 {
            trace::set_alarm(LONGEST_CALL);
            self.call = Some(Call { thread, own: 0, ours: 0, sent_at: None });
            return thread.step();
        }
        if at == self.end + 1 {
            self.ended()?;
            return thread.resume(0);
        }
        let Some(call) = self.call.as_mut().filter(|call| call.thread == thread) else {
            // A trap of the guest's own, or of a step that a signal overtook.
            return thread.resume(0);
        };
        call.own += 1;
        if self.code.has(thread, at)? {
            call.own = 0;
            call.ours += 1;
            if call.ours == self.wanted {
                self.guest.write(self.control + control::SENT, &1u32.to_ne_bytes())?;
                thread.send(libc::SIGUSR1)?;
                call.sent_at = Some(at);
                self.seen.insert(at);
                self.report.interrupted += 1;
                return thread.resume(0);
            }
        }
        if call.own > OWN_STEPS { thread.resume(0) } else { thread.step() }
    }

    /// The guest has looked at what its call has left behind.
    fn ended(&mut self) -> Result<(), String> {
        let wrong = self.guest.read_word(self.control + control::WRONG)?;
        if wrong != self.wrong {
            self.wrong = wrong;
            let complaint = format!("wrong {}", self.place());
            self.report.complaints.push(complaint);
        }
        let Some(call) = self.call.take() else {
            return Ok(());
        };
        self.report.calls += 1;
        self.report.longest = self.report.longest.max(call.ours);
        self.shorter = if call.sent_at.is_some() || self.wanted == 0 { 0 } else { self.shorter + 1 };
        let is_over = self.choose(call.sent_at.is_some());
        if is_over || std::time::Instant::now() > self.deadline {
            self.report.complete = is_over;
            self.guest.write(self.control + control::STOP, &1u32.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Where the next call is interrupted. True: there is nothing more to do.
    fn choose(&mut self, was_there: bool) -> bool {
        if self.report.calls < MEASURED_CALLS {
            return false;
        }
        match self.places {
            Places::Every => {
                if was_there || self.wanted == 0 {
                    self.wanted += 1;
                }
                self.shorter > SHORTER_CALLS
            }
            Places::Some(count) => {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                self.wanted = (self.random % u64::from(self.report.longest.max(1))) as u32 + 1;
                self.report.interrupted >= count || self.shorter > 8 * SHORTER_CALLS
            }
        }
    }

    /// In words, where the present call was interrupted.
    fn place(&self) -> String {
        match self.call.as_ref().and_then(|call| Some((call, call.sent_at?))) {
            Some((call, at)) => {
                format!("after a signal at our instruction {} of a call, {}", call.ours, self.code.name(at))
            }
            None => "without a signal".to_owned(),
        }
    }
}

/// Which of the guest's instructions are Runahead's.
struct OurCode {
    /// End, whether it is ours, and what is mapped there, by the start.
    ranges: BTreeMap<u64, (u64, bool, String)>,
    /// Bytes of the program's own files that are not as the files have them.
    rewritten: BTreeSet<u64>,
}

impl OurCode {
    fn find(guest: Tracee) -> Result<OurCode, String> {
        let mut code = OurCode { ranges: BTreeMap::new(), rewritten: BTreeSet::new() };
        for (start, end, offset, name) in code.look(guest)? {
            let mut bytes = vec![0; (end - start) as usize];
            let Ok(file) = fs::read(Path::new(&name)) else {
                continue;
            };
            guest.read(start, &mut bytes)?;
            let in_file = file.get(offset as usize..).unwrap_or(&[]);
            for (at, _) in bytes.iter().zip(in_file).enumerate().filter(|(_, (memory, file))| memory != file)
            {
                code.rewritten.insert(start + at as u64);
            }
        }
        Ok(code)
    }

    /// Reads where code is mapped now; returns the program's own files': start, end, offset and name.
    fn look(&mut self, guest: Tracee) -> Result<Vec<(u64, u64, u64, String)>, String> {
        let maps =
            fs::read_to_string(format!("/proc/{}/maps", guest.0)).map_err(|error| error.to_string())?;
        let mut own = Vec::new();
        self.ranges.clear();
        for line in maps.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [range, protection, offset, _, _, ..] = words[..] else {
                continue;
            };
            let name = words.get(5).copied().unwrap_or("");
            let hex = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
            let (start, end) = range.split_once('-').map_or((0, 0), |(start, end)| (hex(start), hex(end)));
            if !protection.contains('x') {
                continue;
            }
            let is_ours = name.is_empty()
                || name.starts_with("/memfd:")
                || name.ends_with("/librunahead_agent.so")
                || name.ends_with("/stand-ins/agent.so");
            self.ranges.insert(start, (end, is_ours, name.to_owned()));
            if !is_ours && name.starts_with('/') {
                own.push((start, end, hex(offset), name.to_owned()));
            }
        }
        Ok(own)
    }

    fn range(&self, at: u64) -> Option<(u64, &(u64, bool, String))> {
        let (start, range) = self.ranges.range(..=at).next_back()?;
        (at < range.0).then_some((*start, range))
    }

    fn has(&mut self, thread: Tracee, at: u64) -> Result<bool, String> {
        if self.rewritten.contains(&at) {
            return Ok(true);
        }
        if self.range(at).is_none() {
            self.look(thread)?;
        }
        Ok(self.range(at).is_some_and(|(_, range)| range.1))
    }

    fn name(&self, at: u64) -> String {
        match self.range(at) {
            Some((start, (_, _, name))) => format!("{at:#x} ({name}, mapping + {:#x})", at - start),
            None => format!("{at:#x}"),
        }
    }
}
