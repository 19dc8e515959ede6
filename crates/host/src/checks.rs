//! Looks at the code of processes that run meanwhile ([`runahead_abi::check`]).
//!
//! One thread, with the least claim to a processor, and only from the first check on. Nothing of a process's is open but
//! while a piece of a file is read, and then neither while a program gives something back ([`Gate`]) nor once the
//! process has said that it ends.

use crate::session::Shared;
use crate::supervise::wake;
use runahead_abi::check::{Check, Checks, verdict};
use runahead_abi::release::What::Files;
use runahead_abi::session::{Header, care};
use runahead_abi::sites::BLIND;
use runahead_gate::{Gate, Pass};
use runahead_kernel::memory::{self, PROT_EXEC};
use runahead_kernel::text::{self, MapsLine};
use runahead_sites::{Outcome, SiteFile, Turns};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// How nice the thread is: a check is never waited for.
const NICENESS: i32 = 10;

/// How often it is looked at least and at most whether a process has mapped something more, while it has not taken its
/// answer.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_secs(1);

/// How long the thread sleeps while a program gives something back.
const GIVEN_BACK: Duration = Duration::from_micros(200);

/// How often a file that has only just been written is tried.
const TRIES: u32 = 5;

/// The host's side of the checks.
pub struct Background {
    seen: u32,
    thread: Option<Sender<()>>,
}

impl Background {
    pub fn new() -> Background {
        Background { seen: 0, thread: None }
    }

    /// Has new checks looked at. Where there can be no thread they are never answered, and those processes left alone.
    pub fn attend(&mut self, session: &Shared, sites: &Arc<SiteFile>, gate: Gate) {
        let asked = session.header().checks.asked.load(Ordering::Acquire);
        if asked == self.seen {
            return;
        }
        self.seen = asked;
        if self.thread.is_none() {
            let (sender, bell) = mpsc::channel();
            let (session, sites) = (*session, sites.clone());
            let begun = std::thread::Builder::new().name("runahead-check".into()).spawn(move || {
                // SAFETY: on Linux this concerns the calling thread alone.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
                while bell.recv().is_ok() {
                    work(session.header(), &sites, gate, &bell);
                }
            });
            self.thread = begun.is_ok().then_some(sender);
        }
        if let Some(thread) = &self.thread {
            let _ = thread.send(());
        }
    }
}

/// Answers until no check is open any more. `bell`: there are new ones.
fn work(header: &'static Header, sites: &SiteFile, gate: Gate, bell: &Receiver<()>) {
    let checks = &header.checks;
    let mut pause = SHORTEST;
    let mut tries = 0;
    loop {
        let mut is_any = false;
        for check in &checks.each {
            let Some(process) = check.asker() else { continue };
            is_any = true;
            let mapped = check.mapped.load(Ordering::Acquire);
            let Ok(maps) = fs::read(format!("/proc/{process}/maps")) else {
                // It is over, or nobody may look at it.
                check.free(process);
                continue;
            };
            if check.answered.load(Ordering::Acquire) == mapped.wrapping_add(1) {
                if !has_image(&maps, check) {
                    check.free(process);
                }
                continue;
            }
            pause = SHORTEST;
            match judge(&maps, (checks, check), process, sites, gate) {
                None if tries < TRIES => tries += 1,
                verdict => {
                    let verdict = verdict.unwrap_or(verdict::UNSEEN);
                    check.say(verdict, mapped);
                    if verdict == verdict::UNSEEN && process == header.main_process.load(Ordering::Relaxed) {
                        header.care.store(care::NOT_READY, Ordering::Release);
                    }
                }
            }
        }
        if !is_any {
            return;
        }
        let is_told = bell.recv_timeout(pause).is_ok();
        pause = if is_told { SHORTEST } else { LONGEST.min(pause * 2) };
    }
}

fn lines(maps: &[u8]) -> impl Iterator<Item = MapsLine<'_>> {
    maps.split(|&byte| byte == b'\n').filter_map(text::maps_line)
}

fn image(check: &Check) -> std::ops::Range<usize> {
    let [start, end] = [0, 1].map(|at| check.image[at].load(Ordering::Relaxed) as usize);
    start..end
}

/// Whether the agent that has asked is still there: the process may have executed another program.
fn has_image(maps: &[u8], check: &Check) -> bool {
    lines(maps).any(|line| memory::overlap(&(line.start..line.end), &image(check)))
}

/// What is to be said of the process with these mappings. None: a file was written a moment ago.
fn judge(
    maps: &[u8],
    (checks, check): (&'static Checks, &'static Check),
    process: u32,
    sites: &SiteFile,
    gate: Gate,
) -> Option<u32> {
    let rewritten = |line: &MapsLine| {
        let start = line.start as u64;
        check.rewritten.iter().any(|word| word.load(Ordering::Relaxed) == start)
    };
    // As the agent does at the start (`agent::patch`).
    let is_code = |line: &MapsLine| {
        line.protection & PROT_EXEC != 0 && !line.shared && line.name.first() == Some(&b'/')
    };
    let is_ours = |line: &MapsLine| memory::overlap(&(line.start..line.end), &image(check));
    for line in lines(maps).filter(|line| is_code(line) && !is_ours(line) && !rewritten(line)) {
        let path = Path::new(OsStr::from_bytes(line.name));
        let metadata = fs::metadata(path).ok().filter(|metadata| metadata.ino() == line.inode);
        let Some(metadata) = metadata else { return Some(verdict::UNSEEN) };
        let stays = fs::metadata("/").is_ok_and(|root| root.dev() == metadata.dev());
        let turns =
            Rc::new(InTurn { checks, asker: (check, process), stays, gate, pass: RefCell::default() });
        match sites.ensure_in_turns(path, turns) {
            Ok(Outcome::Known { sites: 0, unproven } | Outcome::Analysed { sites: 0, unproven })
                if unproven & BLIND == 0 => {}
            Ok(Outcome::Unsettled) => return None,
            Ok(_) | Err(_) => return Some(verdict::UNSEEN),
        }
    }
    Some(verdict::CLEAN)
}

/// A file is held while a piece of it is read.
struct InTurn {
    checks: &'static Checks,
    /// Whose check it is.
    asker: (&'static Check, u32),
    /// The file is on the root file system, which nobody can be kept from unmounting: it is looked at to its end while the
    /// run lasts, for the next process that has it mapped.
    stays: bool,
    gate: Gate,
    pass: RefCell<Option<Pass>>,
}

impl InTurn {
    fn is_wanted(&self) -> bool {
        let (check, process) = self.asker;
        check.asker() == Some(process) || self.stays && self.checks.over.load(Ordering::Acquire) == 0
    }
}

impl Turns for InTurn {
    fn begin(&self) -> bool {
        let held = &self.checks.held;
        loop {
            // Said before it is asked whether it is wanted still: one of us sees the other.
            held.store(1, Ordering::Release);
            fence(Ordering::SeqCst);
            if !self.is_wanted() {
                let_go(held);
                return false;
            }
            if let Some(pass) = self.gate.pass(Files) {
                self.pass.replace(Some(pass));
                return true;
            }
            let_go(held);
            std::thread::sleep(GIVEN_BACK);
        }
    }

    fn end(&self) {
        self.pass.replace(None);
        let_go(&self.checks.held);
    }
}

fn let_go(held: &AtomicU32) {
    held.store(0, Ordering::Release);
    wake(held);
}
