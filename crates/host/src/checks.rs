//! Looks at the code of processes that run meanwhile ([`runahead_abi::check`]).
//!
//! One thread, with the least claim to a processor, and only from the first check on. Nothing of a process's
//! is open but while a piece of a file is read, and then neither while a program gives something back
//! ([`Gate`]) nor once the process has said that it ends.

use crate::futex::wake;
use crate::processes::{self, has_ended, pid_of};
use crate::session::Shared;
use crate::unasked::{self, Voids};
use crate::watchers::Watchers;
use runahead_abi::check::{CHECKS, CODE_UNKNOWN, Check, Checks, verdict};
use runahead_abi::release::What::Files;
use runahead_abi::session::{Header, care};
use runahead_abi::sites::BLIND;
use runahead_gate::{Gate, Pass};
use runahead_kernel::memory::{self, PROT_EXEC};
use runahead_kernel::text::{self, MapsLine};
use runahead_sites::{Outcome, SiteFile, Turns};
use rustix::process::{PidfdFlags, pidfd_open};
use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// How nice the thread is: a check is never waited for.
const NICENESS: i32 = 10;

/// How often it is looked at least and at most whether a process has mapped something more, while it has not
/// taken its answer.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_secs(1);

/// What the analysis of a file takes for each of its bytes, ns: 1 to 3 ms for a MB that is cached.
const NS_A_BYTE: u64 = 2;

/// How long the thread sleeps while a program gives something back.
const GIVEN_BACK: Duration = Duration::from_micros(200);

/// How often a file that has only just been written is tried, and after what time: in all longer than that is
/// called so (`sites::site_file`).
const TRIES: u32 = 5;
const UNSETTLED: Duration = Duration::from_millis(8);

/// How often it is looked at least whether a process still has a file mapped that is being read.
const LOOK_AGAIN: Duration = Duration::from_millis(4);

/// The host's side of the checks.
pub struct Background {
    seen: u32,
    own: Option<FileIdentity>,
    thread: Option<Sender<()>>,
    watchers: Watchers,
}

impl Background {
    /// `agent`: its file. Where that is mapped once more, as musl's loader does for LD_PRELOAD beside the one
    /// that was put in, nothing of it makes a call.
    pub fn new(agent: &Path, watchers: Watchers) -> Background {
        let own = fs::metadata(agent).ok().map(|told| identity(&told));
        Background { seen: 0, own, thread: None, watchers }
    }

    /// Has new checks looked at. Where there can be no thread they are never answered, and those processes
    /// left alone.
    pub fn attend(&mut self, session: &Shared, sites: &Arc<SiteFile>, gate: Gate) {
        let asked = session.header().checks.asked.load(Ordering::Acquire);
        if asked == self.seen {
            return;
        }
        self.seen = asked;
        for check in &session.header().checks.each {
            look_first(check);
        }
        if self.thread.is_none() {
            let (sender, bell) = mpsc::channel();
            let (session, sites, own, watchers) = (*session, sites.clone(), self.own, self.watchers.clone());
            let begun = std::thread::Builder::new().name("runahead-check".into()).spawn(move || {
                // SAFETY: on Linux this concerns the calling thread alone.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
                while bell.recv().is_ok() {
                    work(session.header(), &sites, own, (gate, &watchers), &bell);
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
fn work(
    header: &'static Header,
    sites: &SiteFile,
    own: Option<FileIdentity>,
    (gate, watchers): (Gate, &Watchers),
    bell: &Receiver<()>,
) {
    let checks = &header.checks;
    let mut pause = SHORTEST;
    // For each, the turn that was last put off, and how often.
    let mut put_off = [(0, 0); CHECKS];
    // For each, who asks and since when that has been known.
    let mut since = [(0, Instant::now()); CHECKS];
    loop {
        let mut is_any = false;
        let mut next = LONGEST;
        for ((check, put_off), since) in checks.each.iter().zip(&mut put_off).zip(&mut since) {
            let turn = check.turn();
            let Some(process) = check.asker() else { continue };
            is_any = true;
            let maps = fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
            if !has_image(&maps, check) {
                // It is over, has executed another program, or nobody may look at it.
                check.free(process);
                continue;
            }
            if check.verdict(turn).is_some() {
                continue;
            }
            if since.0 != process {
                *since = (process, Instant::now());
            }
            // Not before the process has lived for as long: what is short is not kept from the disk, and what
            // it costs is no more than what has passed.
            let takes = Duration::from_nanos(unknown_bytes(&maps, check, sites).saturating_mul(NS_A_BYTE));
            let early = takes.saturating_sub(since.1.elapsed());
            if !early.is_zero() {
                next = next.min(early);
                continue;
            }
            pause = SHORTEST;
            let is_last = *put_off == (turn, TRIES);
            watchers.look_above(process);
            match judge(&maps, (checks, check), process, (sites, own), gate, is_last) {
                None if !is_last => {
                    *put_off = if put_off.0 == turn { (turn, put_off.1 + 1) } else { (turn, 1) };
                    next = next.min(UNSETTLED);
                }
                verdict => {
                    let verdict = verdict.unwrap_or(verdict::UNSEEN);
                    let is_main = process == header.main_process.load(Ordering::Relaxed);
                    // Of who has ended meanwhile not all has been looked at.
                    let is_told = verdict == verdict::UNSEEN && is_main && check.asker() == Some(process);
                    // Who has ended, executed something else or mapped more since is not meant.
                    let is_meant = check.asker() == Some(process) && check.turn() == turn;
                    if verdict == verdict::UNSEEN && is_meant && processes::is_there(process) {
                        unasked::lets_all_go(header, process, Voids::All);
                    }
                    if is_told {
                        tell(header, care::NOT_READY);
                    }
                    if !check.say(verdict, turn) && is_told {
                        header.care.store(care::NONE, Ordering::Release);
                    }
                }
            }
        }
        if !is_any {
            return;
        }
        let wait = if next == LONGEST { pause } else { next.max(SHORTEST) };
        let is_told = bell.recv_timeout(wait).is_ok();
        pause = if is_told { SHORTEST } else { LONGEST.min(pause * 2) };
    }
}

/// Says what becomes of the command, and waits until the host has come by at it: nobody sees the command's end
/// from then on, so its report is written now.
fn tell(header: &Header, care: u32) {
    const LONGEST: Duration = Duration::from_millis(200);
    const AGAIN: Duration = Duration::from_micros(500);
    header.care.store(care, Ordering::Release);
    let (rounds, began) = (header.rounds.load(Ordering::Acquire), Instant::now());
    // The one under way may have passed it.
    while header.rounds.load(Ordering::Acquire).wrapping_sub(rounds) < 2 && began.elapsed() < LONGEST {
        header.doorbell.fetch_add(1, Ordering::Release);
        wake(&header.doorbell);
        std::thread::sleep(AGAIN);
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

/// Where a process does not know how much code there has to be, that is what is there now. It waits for this:
/// what it has just mapped may be gone again soon.
fn look_first(check: &'static Check) {
    let Some(process) = check.asker() else { return };
    let code = check.code.load(Ordering::Acquire);
    if code & CODE_UNKNOWN == 0 {
        return;
    }
    let maps = fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
    if check
        .code
        .compare_exchange(code, bytes_of_code(&maps, check), Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
    {
        wake(&check.ready);
    }
}

/// Private mappings of files' code but the agent's, as the agent finds them at the start (`agent::patch`).
fn code<'a>(maps: &'a [u8], check: &'a Check) -> impl Iterator<Item = MapsLine<'a>> {
    lines(maps).filter(|line| {
        line.protection & PROT_EXEC != 0
            && !line.shared
            && line.name.first() == Some(&b'/')
            && !memory::overlap(&(line.start..line.end), &image(check))
    })
}

/// The code whose sites the agent has not rewritten: there are to be none.
fn unwritten<'a>(maps: &'a [u8], check: &'a Check) -> impl Iterator<Item = MapsLine<'a>> {
    code(maps, check).filter(|line| {
        let start = line.start as u64;
        check.rewritten.iter().all(|word| word.load(Ordering::Relaxed) != start)
    })
}

/// The sizes of its files that are not known yet, bytes.
fn unknown_bytes(maps: &[u8], check: &Check, sites: &SiteFile) -> u64 {
    let mut last = 0;
    let unknown = unwritten(maps, check).filter_map(|line| {
        let is_first = std::mem::replace(&mut last, line.inode) != line.inode;
        is_first.then(|| sites.unknown_size(Path::new(OsStr::from_bytes(line.name))))
    });
    unknown.sum()
}

fn bytes_of_code(maps: &[u8], check: &Check) -> u64 {
    code(maps, check).map(|line| (line.end - line.start) as u64).sum()
}

/// What is to be said of the process with these mappings. None: a file was written, or something mapped, a
/// moment ago, and it is not the last try.
fn judge(
    maps: &[u8],
    (checks, check): (&'static Checks, &'static Check),
    process: u32,
    (sites, own): (&SiteFile, Option<FileIdentity>),
    gate: Gate,
    is_last: bool,
) -> Option<u32> {
    let is_all_there = check.code.load(Ordering::Acquire) == bytes_of_code(maps, check);
    if !is_all_there && !is_last {
        return None;
    }
    // Some code has come and gone: a loader maps all of a library as its first segment, and then the others
    // over that; where the first is code nobody knows what was there.
    let mut says = if is_all_there { verdict::CLEAN } else { verdict::UNSEEN };
    for line in unwritten(maps, check) {
        let path = Path::new(OsStr::from_bytes(line.name));
        let Some(metadata) = the_same(path, &line, process) else {
            says = verdict::UNSEEN;
            continue;
        };
        if own == Some(identity(&metadata)) {
            continue;
        }
        let stays = fs::metadata("/").is_ok_and(|root| root.dev() == metadata.dev());
        let turns = Rc::new(InTurn {
            checks,
            check,
            process,
            mapping: (line.start, line.inode),
            looked: Cell::new(Instant::now()),
            handle: pid_of(process).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            stays,
            gate,
            pass: RefCell::default(),
        });
        match sites.ensure_in_turns(path, turns) {
            Ok(Outcome::Known { sites: 0, unproven } | Outcome::Analysed { sites: 0, unproven })
                if unproven & BLIND == 0 => {}
            Ok(Outcome::Unsettled) if !is_last => return None,
            // The rest is looked at all the same, so that the next process need not wait for it.
            Ok(_) | Err(_) => says = verdict::UNSEEN,
        }
    }
    Some(says)
}

/// Device and inode.
type FileIdentity = (u64, u64);

fn identity(told: &Metadata) -> FileIdentity {
    (told.dev(), told.ino())
}

/// What is said of the file at `path`, if that is what the process has mapped: it may have another root, or
/// other mounts.
fn the_same(path: &Path, line: &MapsLine, process: u32) -> Option<Metadata> {
    let metadata = fs::metadata(path).ok().filter(|metadata| metadata.ino() == line.inode)?;
    let mut there = OsString::from(format!("/proc/{process}/root"));
    there.push(path);
    (identity(&fs::metadata(there).ok()?) == identity(&metadata)).then_some(metadata)
}

/// A file is held while a piece of it is read.
struct InTurn {
    checks: &'static Checks,
    check: &'static Check,
    /// Whose check it is.
    process: u32,
    /// Where it is mapped there, and its inode.
    mapping: (usize, u64),
    /// When it was last seen to be.
    looked: Cell<Instant>,
    handle: Option<OwnedFd>,
    /// The file is on our root file system, which nobody unmounts while we run: it is looked at to its end
    /// while the run lasts, for the next process that has it mapped.
    stays: bool,
    gate: Gate,
    pass: RefCell<Option<Pass>>,
}

impl InTurn {
    fn is_asked(&self) -> bool {
        self.check.asker() == Some(self.process)
    }

    /// Whether the process has it mapped: it may have been killed, or have executed something else.
    fn is_mapped(&self) -> bool {
        if self.handle.as_ref().is_none_or(has_ended) {
            return false;
        }
        if self.looked.get().elapsed() < LOOK_AGAIN {
            return true;
        }
        self.looked.set(Instant::now());
        let (start, inode) = self.mapping;
        let maps = fs::read(format!("/proc/{}/maps", self.process)).unwrap_or_default();
        lines(&maps).any(|line| line.start == start && line.inode == inode)
    }
}

impl Turns for InTurn {
    fn begin(&self) -> bool {
        let held = &self.checks.held;
        loop {
            // Said before it is asked whether it is wanted still: one of us sees the other.
            held.store(self.process, Ordering::Release);
            fence(Ordering::SeqCst);
            if !self.stays && !self.is_mapped() {
                let_go(held);
                return false;
            }
            if !self.is_asked() {
                // Nobody waits.
                let_go(held);
                if !self.stays || self.checks.over.load(Ordering::Acquire) != 0 {
                    return false;
                }
            }
            if let Some(pass) = self.gate.pass_to_code(Files) {
                self.pass.replace(Some(pass));
                return true;
            }
            let_go(held);
            // It will not be looked at any more in this run.
            if self.gate.is_watched() {
                return false;
            }
            std::thread::sleep(GIVEN_BACK);
        }
    }

    fn end(&self) {
        self.pass.replace(None);
        let_go(&self.checks.held);
    }
}

fn let_go(held: &AtomicU32) {
    if held.swap(0, Ordering::AcqRel) != 0 {
        wake(held);
    }
}
