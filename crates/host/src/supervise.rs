//! The host's loop: speculators for processes that attach, answers for agents that ask, the end.

use crate::apart::{leave_stderr, nowhere};
use crate::checks::Background;
use crate::child;
use crate::counts::Counts;
use crate::ends::Ends;
use crate::executions::Executions;
use crate::faults::Faults;
use crate::futex::{wait, wake};
use crate::installation::{Identity, Installation};
use crate::limits::{self, Limits, Running};
use crate::memory::Costs;
use crate::names::{Names, Notes, Taken};
use crate::own_files;
use crate::processes::{
    Standing, counted, has_ended, may_be_the_programs, may_write, pid_of, processor_time, standing,
};
use crate::program;
use crate::progress::SoFar;
use crate::reasons::{
    BLIND, BLIND_LATER, GAVE_UP_RIGHTS, MEMORY_SHORT, NOT_BEGUN, NOT_READY, NOTICED, OTHER_RIGHTS, REPLACED,
    UNKNOWN, refused_because,
};
use crate::remembered::{self, Begin, Remembered, Remembering};
use crate::report::{Report, VERSION};
use crate::rights::{Look, Watched};
use crate::run::{Run, Sites, Wishes};
use crate::session::{Session, Stuck, say_gone, say_that_nobody_comes};
use crate::trace::Recorder;
use crate::watchers::Watchers;
use runahead_abi::environment;
use runahead_abi::release::What::{All, Files};
use runahead_abi::session::{SLOTS, Slot, activity, care, reported, retire};
use runahead_abi::{owner, post};
use runahead_faults::BlockCosts;
use runahead_gate::{Gate, Pass};
use runahead_kernel::process::monotonic_ns;
use runahead_policy::memory::Then;
use runahead_remembered::look;
use runahead_sites::SiteFile;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use std::cell::{Cell, OnceCell};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZero;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

/// How long the host sleeps at most when nobody rings: it looks whether processes have ended. Shorter
/// while somebody is attached, since a speculator without a program is of no use.
const LOOK_ATTACHED: Duration = Duration::from_millis(50);
const LOOK_IDLE: Duration = Duration::from_millis(200);

/// Process id of who ends all others of its namespace with itself (pid_namespaces(7)).
const FIRST_PROCESS: u32 = 1;

/// How long the report waits at most for a speculator's last counts.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// How long the host sleeps at most while a program gives something back.
const LOOK_RELEASING: Duration = Duration::from_millis(1);

/// Speculators that want a processor at a time, for each that there is: one that runs, and one whose page
/// or process is being made ready meanwhile. Who stands in line behind these gets ahead of no program, and
/// where so many programs wait the disk is busy (docs/design/start-up.md).
const SPECULATORS_PER_PROCESSOR: usize = 2;

/// How often it is looked at least whether a process is still allowed what it was: some 15 us each time.
const RIGHTS_EVERY: Duration = Duration::from_millis(20);

/// How far a speculator steps back from the processor: a quarter of one that somebody else wants too.
///
/// Not the idle class. With both processors busy (load 8) grep over 9000 cold files took 0.96-1.16 s
/// alone, 0.52-0.71 s with a speculator at niceness 0, 5, 10 or 19, and **6.3-7.6 s** with one in the idle
/// class: preempted inside the kernel, it keeps what it holds (the program's mmap lock, a page that it
/// was about to read in) for as long as anybody else has anything to compute.
const SPECULATOR_NICENESS: i32 = 5;

/// How long a speculator is not started as something is being given back, by others all the time say.
const POSTPONED_LONGEST: Duration = Duration::from_millis(100);

/// Makes the calling process (a speculator to be) nice. Only system calls: runs between fork and exec.
fn step_back() {
    // SAFETY: each call affects this process alone; the strings are terminated.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, SPECULATOR_NICENESS);
        // A session of its own is a scheduling group of its own where the kernel groups by session, and
        // niceness only counts inside a group: the group has to be nice as a whole.
        libc::setsid();
        let group = libc::open(c"/proc/self/autogroup".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if group >= 0 {
            let niceness = [b'0' + SPECULATOR_NICENESS as u8];
            libc::write(group, niceness.as_ptr().cast(), niceness.len());
            libc::close(group);
        }
    }
}

/// What a host without a command goes by: it lives on from one command to the next.
pub trait Lasting {
    /// What it has open and is to keep.
    fn descriptor(&self) -> RawFd;
    /// Which programs are served ([`runahead_abi::enabled::takes`]).
    fn rules(&self) -> Vec<u8>;
    /// Says where the session is.
    fn publish(&mut self, address: &environment::Session) -> io::Result<()>;
    /// Whether it is still wanted. Asked often.
    fn look(&mut self) -> Next;
    /// Nobody is served any more.
    fn end(&mut self, is_short_of_memory: bool, next: Next) -> !;
}

/// What becomes of a host without a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    GoOn,
    End,
    /// As another one, with a session of its own.
    BeginAnew,
}

/// How much there was to do for a host without a command.
struct Use {
    /// Changes with whatever a program or a speculator does that we are concerned with.
    mark: u64,
    since: Instant,
    /// What was learned of programs meanwhile has been forgotten.
    is_forgotten: bool,
    /// Processes that have attached.
    attached: usize,
    /// Slots that nobody will ever have again.
    lost: usize,
}

impl Use {
    fn begin() -> Use {
        Use { mark: 0, since: Instant::now(), is_forgotten: true, attached: 0, lost: 0 }
    }
}

/// When nothing has happened for so long the command is over: the next one is met as by a host of its own.
const QUIET: Duration = Duration::from_secs(1);

/// How long a host without a command sleeps at most while nothing happens, if somebody is attached, and if
/// nobody is.
const LOOK_QUIET: Duration = Duration::from_millis(250);
const LOOK_ALONE: Duration = Duration::from_secs(1);

/// How long a process that lives on must have done nothing before its speculator goes, with its memory.
const SPECULATOR_KEPT: Duration = Duration::from_secs(20);

/// After so many lost slots, or processes, a host without a command begins anew as soon as nobody is attached
/// or half of the slots are lost.
const LOST_MOST: usize = SLOTS / 8;
const ATTACHED_MOST: usize = 10_000;

/// A process of the program and its speculator.
struct Attached {
    process: u32,
    handle: OwnedFd,
    /// From the first stalled read on.
    speculator: Option<Child>,
    speculator_started: bool,
    /// It was not worth its memory lately, and is gone for some time.
    paused: bool,
    /// It is to begin again when nothing is being given back.
    resumes_later: bool,
    /// Since when it was to be started, and something was being given back.
    postponed: Option<Instant>,
    /// Where a host has no command: what the process had done when it did something last, and when that was.
    mark: u64,
    moved: Instant,
    /// Its speculator was sent away as it did nothing.
    is_aside: bool,
    /// What the process is allowed. None: it is not what we are, or has not been at some time, and nobody acts for it any more.
    rights: Option<Watched>,
    rights_looked: Instant,
    /// Of its notes about names and files.
    taken: Taken,
    /// Of what it has opened.
    opened: remembered::Taken,
    faults: Faults,
}

pub struct Host {
    session: Session,
    gate: Gate,
    /// Agents read it through our descriptor.
    sites: Arc<SiteFile>,
    checks: Background,
    watchers: Watchers,
    installation: Installation,
    installed: Identity,
    wishes: Wishes,
    /// Number of the command among our own arguments, for the report.
    command: usize,
    /// Ns of the monotonic clock.
    began: u64,
    main: Option<OwnedFd>,
    main_process: u32,
    /// That we may run on, asked when it first matters: that reads files of the control group.
    processors: OnceCell<usize>,
    /// What the watchers of page faults have learned of the disks.
    block_costs: Arc<BlockCosts>,
    /// Boxed, as nearly all of them are empty: 60 KB of the program's memory control group else.
    attached: Vec<Option<Box<Attached>>>,
    /// Speculators that were ended and are not gone yet, with their slots.
    leaving: Vec<(usize, Child)>,
    counts: Counts,
    names: Names,
    limits: Limits,
    remember: Option<Remembering>,
    /// From the start of the loop on, if anything is remembered.
    remembered: Option<Box<Remembered>>,
    /// From the first speculator on.
    costs: Option<Costs>,
    /// Until the report is out.
    trace: Option<Box<dyn Recorder>>,
    /// Something was not done in this turn because something is being given back.
    postponed: bool,
    /// Processes whose ends we are told of.
    ends: Ends,
    reported: bool,
    /// Whose mailbox of analyses may have to be freed.
    stuck: Cell<Stuck>,
    /// Bytes of the report that was written before the end.
    in_advance: Option<usize>,
    /// What we are allowed.
    own_rights: Option<Arc<Watched>>,
    /// Programs that processes of the run are about to execute.
    executions: Executions,
    /// Why processes are not served, or not any more, if there are such.
    barred: Option<&'static str>,
    /// Why a speculator could not begin, of the first that could not.
    refused: Option<String>,
    watches_only: bool,
    /// A process has given up rights and can still write here: nobody is served any more.
    compromised: bool,
    guesses: bool,
    /// There is no command.
    lasting: Option<Box<dyn Lasting>>,
    uses: Use,
}

impl Host {
    /// None: the run's site file is not open.
    pub fn new(mut run: Run) -> Option<Host> {
        let attached = (0..SLOTS).map(|_| None).collect();
        let gate = run.session.gate();
        let mut names = Names::new(run.session.share(), gate);
        let guesses = run.guesses;
        if guesses {
            names.guess();
        }
        let watches_only = run.address.flags & environment::flags::NO_SPECULATION != 0;
        let watchers = Watchers::of(&run, gate);
        let executions = Executions::new(&mut run, gate, watchers.clone());
        let checks = Background::new(&run.installation.agent, watchers.clone());
        let Run { session, sites, installation, installed, wishes, limits, remember, command, .. } = run;
        let Run { began, main, main_process, .. } = run;
        let Sites::Open(sites) = sites else { return None };
        Some(Host {
            session,
            gate,
            watchers,
            sites: Arc::new(sites),
            checks,
            installation,
            installed,
            wishes,
            command,
            began,
            main,
            main_process,
            processors: OnceCell::new(),
            block_costs: Arc::default(),
            attached,
            leaving: Vec::new(),
            counts: Counts::default(),
            names,
            limits,
            remember,
            remembered: None,
            costs: None,
            trace: None,
            postponed: false,
            ends: Ends::default(),
            reported: false,
            in_advance: None,
            stuck: Cell::new(None),
            own_rights: None,
            executions,
            barred: None,
            refused: None,
            watches_only,
            compromised: false,
            guesses,
            lasting: None,
            uses: Use::begin(),
        })
    }

    /// Serves from one command to the next.
    pub fn lasting(self, lasting: Box<dyn Lasting>) -> Host {
        Host { lasting: Some(lasting), main: None, reported: true, ..self }
    }

    /// Serves until the command and everybody who attached have ended.
    pub fn serve(mut self) -> ! {
        self.trace = self.wishes.trace.take();
        if let Some(trace) = &mut self.trace {
            trace.begins();
        }
        self.session.header().serves.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.remembered = self.remember.take().map(|remembering| {
            let begin = Begin {
                session: self.session.share(),
                gate: self.gate,
                agent: self.installation.agent.clone(),
                main_process: self.main_process,
                site_file: self.sites.path(),
            };
            Box::new(Remembered::begin(begin, remembering))
        });
        let rules = self.lasting.as_ref().map(|lasting| lasting.rules()).unwrap_or_default();
        let address = self.executions.begin(rules);
        self.own_rights = Watched::ourselves().map(Arc::new);
        if let Some(main) = &self.main {
            self.ends.watch(&self.session.share(), main);
        }
        if let Some(lasting) = &mut self.lasting
            && lasting.publish(&address).is_err()
        {
            lasting.end(false, Next::End)
        }
        loop {
            let doorbell = self.session.header().doorbell.load(Ordering::Acquire);
            self.session.header().rounds.fetch_add(1, Ordering::Release);
            self.watchers.look_at_unseen();
            self.let_go();
            self.answer_analysis();
            if !self.compromised {
                self.checks.attend(&self.session.share(), &self.sites, self.gate);
            }
            let own = self.own_rights.as_ref().filter(|_| !self.compromised);
            self.executions.answer(own);
            self.welcome();
            self.attend();
            self.part();
            let speculating = self.limit();
            self.look_for_trace();
            self.say_how_far();
            self.report_in_advance();
            if self.costs.as_ref().is_some_and(Costs::is_hopeless) {
                self.leave(Some(MEMORY_SHORT), Next::BeginAnew);
            }
            let next = self.lasting.as_mut().map_or(Next::GoOn, |lasting| lasting.look());
            if next != Next::GoOn {
                self.leave(None, next);
            }
            let main_left = self.main.as_ref().is_none_or(has_ended);
            if main_left && let Some(remembered) = &mut self.remembered {
                remembered.stop();
            }
            if !self.reported && (main_left || self.session.header().main_leaves.load(Ordering::Acquire) != 0)
            {
                self.report(None);
            }
            if self.lasting.is_none() && main_left && self.attached.iter().all(Option::is_none) {
                self.limits.end();
                // Who outlives the command is not to wait for answers.
                self.session.shut();
                std::process::exit(0)
            }
            let is_quiet = self.is_quiet();
            let longest = match self.attached.iter().any(Option::is_some) {
                _ if std::mem::take(&mut self.postponed) || self.gate.is_closed(Files) => LOOK_RELEASING,
                true if is_quiet => LOOK_QUIET,
                false if is_quiet => LOOK_ALONE,
                _ if speculating => limits::LOOK,
                true if self.trace.is_some() => limits::LOOK,
                true => LOOK_ATTACHED,
                false => LOOK_IDLE,
            };
            wait(&self.session.header().doorbell, doorbell, longest);
        }
    }

    /// Looks after a host without a command, whose programs come and go. Whether nothing happens at present.
    fn is_quiet(&mut self) -> bool {
        if self.lasting.is_none() {
            return false;
        }
        let is_any = self.attached.iter().any(Option::is_some);
        let is_spent = self.uses.lost >= LOST_MOST || self.uses.attached >= ATTACHED_MOST;
        if self.compromised || self.uses.lost >= SLOTS / 2 || is_spent && !is_any {
            self.leave(None, Next::BeginAnew);
        }
        let mut mark = u64::from(self.session.header().doorbell.load(Ordering::Relaxed));
        for index in 0..SLOTS {
            mark = mark.wrapping_add(self.keep_or_put_aside(index));
        }
        if mark != self.uses.mark {
            self.uses = Use { mark, since: Instant::now(), is_forgotten: false, ..self.uses };
        }
        if self.uses.since.elapsed() < QUIET {
            return false;
        }
        if !std::mem::replace(&mut self.uses.is_forgotten, true) {
            self.forget_programs();
        }
        true
    }

    /// Sends the speculator of a process away that does nothing, and has it come again when it waits once
    /// more. Returns what changes as the process does something.
    fn keep_or_put_aside(&mut self, index: usize) -> u64 {
        let Some(attached) = &mut self.attached[index] else { return 0 };
        let counts = &self.session.slot(index).agent.counts;
        let all = [&counts.reads, &counts.stalls, &counts.names, &counts.posts];
        let mark = all.iter().fold(0u64, |sum, count| sum.wrapping_add(count.load(Ordering::Relaxed)));
        let has_moved = std::mem::replace(&mut attached.mark, mark) != mark;
        if has_moved {
            attached.moved = Instant::now();
        }
        if attached.is_aside && has_moved && self.session.header().releasing.noticing() == 0 {
            attached.is_aside = false;
            self.resume(index);
        } else if attached.speculator.is_some() && attached.moved.elapsed() >= SPECULATOR_KEPT {
            attached.is_aside = true;
            self.pause(index);
        }
        mark
    }

    /// What was learned of the programs so far says nothing of what comes next.
    fn forget_programs(&mut self) {
        let releasing = &self.session.header().releasing;
        // Where all of a user's programs are served only leases count.
        let noticing = releasing.noticing();
        if noticing != 0 && !look::leases() {
            releasing.forget_noticing(noticing);
            // They come again when their programs wait.
            for attached in self.attached.iter_mut().flatten().filter(|attached| attached.paused) {
                attached.is_aside = true;
            }
        }
        self.names.begin_anew(self.session.share(), self.guesses);
        self.session.header().kin.clear();
        self.session.header().lives.forget();
        self.executions.forget();
        self.counts = Counts::default();
        self.costs = None;
    }

    /// Leaves the command alone before its end, for good: there is not even room for us (`short`), or nobody
    /// wants us any more. Its processes find nobody to wait for, and those that come find no session.
    fn leave(&mut self, short: Option<&'static str>, next: Next) -> ! {
        self.session.shut();
        if !self.reported {
            self.report(short);
        }
        for index in 0..SLOTS {
            let slot = self.session.slot(index);
            if let Some(mut attached) = self.attached[index].take() {
                attached.faults.stop();
                if let Some(child) = &mut attached.speculator {
                    let _ = child.kill();
                    let _ = child.wait();
                    self.session.holds_nothing(index);
                }
                self.names.retire(slot, &attached.taken);
            }
        }
        self.session.say_that_nobody_comes();
        self.limits.end();
        match &mut self.lasting {
            Some(lasting) => lasting.end(short.is_some(), next),
            None => std::process::exit(0),
        }
    }

    /// Sees to it that everybody lets go of what a program gives back: those who sleep are woken, and those who do not come
    /// forward in time are ended.
    fn let_go(&mut self) {
        // What speculation reads it opens: there is none as long as somebody notices that.
        if self.session.header().releasing.noticing() != 0 {
            self.barred = self.barred.or(Some(NOTICED));
            for index in 0..SLOTS {
                self.put_away(index);
            }
        }
        let header = self.session.header();
        header.releasing.forget_overdue(monotonic_ns());
        if self.gate.is_closed(All) {
            self.names.let_go();
        }
        let late = header.overdue.swap(0, Ordering::AcqRel).checked_sub(1).map(|index| index as usize);
        if late.is_none() && !self.gate.is_closed(Files) {
            return;
        }
        for index in 0..SLOTS {
            let Some(attached) = &mut self.attached[index] else { continue };
            let slot = self.session.slot(index);
            // Where nothing is given back whoever is late is not to act for its program any more. What it
            // holds it holds until it is gone ([`Host::part`]).
            let is_late = late == Some(index)
                && (self.gate.is_closed(Files) || slot.agent.retire.load(Ordering::Acquire) != 0);
            if is_late && let Some(child) = &mut attached.speculator {
                let _ = child.kill();
            }
            if header.holders.speculators[index].is_any() {
                ring(&slot.agent.bell);
                wake(&slot.faults.passed);
            }
        }
    }

    /// Analyses a file for an agent that waits.
    fn answer_analysis(&self) {
        self.session.share().free_analysis(&self.stuck);
        let request = &self.session.header().analysis;
        if request.state.load(Ordering::Acquire) != 1 {
            return;
        }
        // Who has given it up meanwhile has left the mailbox to us.
        let answered = || {
            let _ = request.state.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Relaxed);
            wake(&request.state);
        };
        // Who asked may not have seen that somebody watches.
        if self.compromised || self.gate.is_watched() {
            answered();
            return;
        }
        self.watchers.look_above(request.holder.load(Ordering::Acquire));
        // Else at the next turn, which comes soon.
        let Some(_pass) = self.gate.pass_to_code(Files) else { return };
        let bytes: Vec<u8> =
            request.path.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let length = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        use std::os::unix::ffi::OsStrExt;
        let _ = self.sites.ensure(Path::new(std::ffi::OsStr::from_bytes(&bytes[..length])));
        answered();
    }

    /// Starts speculators for processes that have attached.
    fn welcome(&mut self) {
        for index in 0..SLOTS {
            let word = &self.session.header().owners[index];
            let Some(process) = owner::process(word) else { continue };
            if self.attached[index].is_some() {
                continue;
            }
            self.executions.has_attached(process);
            let handle = match pid_of(process).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
                Some(Ok(handle)) => Some(handle),
                None => None,
                // We may have no more files open, and it goes on: its slot stays its own. At the next turn there
                // may be room, and until then it waits for nobody.
                Some(Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                    say_that_nobody_comes(self.session.slot(index));
                    continue;
                }
                Some(Err(_)) => None,
            };
            let Some(handle) = handle.filter(|handle| !has_ended(handle)) else {
                // It has ended already, or there never was such a process.
                if let Some(remembered) = &mut self.remembered {
                    remembered.take_ended(self.session.slot(index));
                }
                owner::close(word);
                if self.session.slot(index).agent.state_address.load(Ordering::Relaxed) != 0 {
                    self.counts.add(self.session.slot(index));
                    if let Some(trace) = &mut self.trace {
                        trace.attached(index, process);
                        trace.parted(index, self.session.slot(index));
                    }
                }
                self.free(index);
                continue;
            };
            let standing = standing(process, self.session.slot(index), self.session.cookie);
            match standing {
                Standing::NotReady => continue,
                Standing::Unreadable if !may_be_the_programs(process, self.main_process) => {
                    self.uses.lost += 1;
                    owner::close(word);
                    continue;
                }
                // Nobody to be waited for. It may be writing there all the same: the slot is lost.
                Standing::Stranger => {
                    self.uses.lost += 1;
                    owner::close(word);
                    continue;
                }
                Standing::Program | Standing::Unreadable => {}
            }
            self.uses.attached += 1;
            self.watchers.look_above(process);
            // The same process again: it has executed another program.
            for earlier in 0..SLOTS {
                if self.attached[earlier].as_ref().is_some_and(|a| a.process == process) {
                    self.dismiss(earlier);
                }
            }
            self.ends.watch(&self.session.share(), &handle);
            let faults = Faults::new(self.block_costs.clone(), self.gate);
            let told = Watched::begin(Path::new(&format!("/proc/{process}"))).filter(|_| !self.compromised);
            let is_told = told.is_some();
            let rights = told.filter(|rights| self.is_as_we_are(rights));
            let attached = Attached {
                process,
                handle,
                speculator: None,
                speculator_started: false,
                paused: false,
                resumes_later: false,
                postponed: None,
                mark: 0,
                moved: Instant::now(),
                is_aside: false,
                taken: Taken::default(),
                opened: remembered::Taken::default(),
                faults,
                rights,
                rights_looked: Instant::now(),
            };
            // The kernel tells nothing of an exiting process either, but its memory is gone by then.
            let is_alive = || {
                self::standing(process, self.session.slot(index), self.session.cookie) == Standing::Program
            };
            if attached.rights.is_none() && standing == Standing::Program && (is_told || is_alive()) {
                self.barred = self.barred.or(Some(OTHER_RIGHTS));
            }
            if attached.rights.is_none() {
                say_that_nobody_comes(self.session.slot(index));
            }
            self.attached[index] = Some(Box::new(attached));
            if let Some(trace) = &mut self.trace {
                trace.attached(index, process);
            }
        }
    }

    /// Does what the attached processes want: a speculator, page faults watched, names looked up.
    fn attend(&mut self) {
        let mut room = None;
        for index in 0..SLOTS {
            let Some(mut attached) = self.attached[index].take() else { continue };
            let slot = self.session.slot(index);
            let wanted = slot.agent.speculator_wanted.load(Ordering::Acquire) != 0
                || slot.faults.speculator_wanted.load(Ordering::Acquire) != 0;
            let retires = slot.agent.retire.load(Ordering::Acquire) != 0;
            // Taken before it is asked what the process is allowed: so it was left by one who was.
            let notes = if retires { Notes::default() } else { self.names.notes(slot, &mut attached.taken) };
            let starts = wanted
                && !retires
                && self.session.header().releasing.noticing() == 0
                && !attached.speculator_started
                && *room.get_or_insert_with(|| self.room_for_speculators()) > 0;
            let mut known = true;
            if attached.rights.is_some()
                && (starts || !notes.is_empty() || attached.rights_looked.elapsed() >= RIGHTS_EVERY)
            {
                attached.rights_looked = Instant::now();
                let look = attached.rights.as_ref().map(Watched::look);
                if look == Some(Look::Changed) {
                    self.bar(&mut attached, index);
                }
                known &= look == Some(Look::Same);
            }
            let slot = self.session.slot(index);
            if !retires && (!known || attached.rights.is_none() || self.compromised) {
                self.attached[index] = Some(attached);
                continue;
            }
            let command = starts.then(|| self.speculator_command(attached.process, index));
            attached.postponed = attached.postponed.filter(|_| starts);
            let pass = if starts { self.pass_for_child(&mut attached.postponed) } else { None };
            self.postponed |= starts && pass.is_none();
            if let (Some(command), Some(pass)) = (command, pass)
                && begins_to_start(slot)
            {
                room = room.map(|room| room.saturating_sub(1));
                attached.speculator_started = true;
                self.limits.begin(slot);
                attached.speculator = match command.and_then(|command| self.start_speculator(command, pass)) {
                    Ok(child) => Some(child),
                    Err(error) => {
                        let refused = || format!("it cannot be started: {error}");
                        self.refused.get_or_insert_with(refused);
                        None
                    }
                };
                if attached.speculator.is_none() {
                    // Or the program waits for it at its end.
                    say_gone(slot);
                }
            }
            // Who retires may be one whose rights are not ours.
            if attached.rights.is_some()
                && known
                && !self.compromised
                && let Some(remembered) = &mut self.remembered
            {
                remembered.take(attached.process, slot, &mut attached.opened);
            }
            attached.faults.attend(attached.process, &self.session, index, self.limits.memory());
            if !retires {
                self.names.take(attached.process, slot, &mut attached.taken, notes);
            } else {
                self.names.retire(slot, &attached.taken);
            }
            self.attached[index] = Some(attached);
        }
        if self.compromised {
            self.serve_nobody();
        }
    }

    /// How many speculators may be started now. Those that wait, for their program or for a post, are in
    /// nobody's way.
    fn room_for_speculators(&self) -> usize {
        let wants_processor = |running: &&Running| {
            let activity = running.slot.speculator.activity.load(Ordering::Relaxed);
            matches!(activity, activity::STARTING | activity::RUNNING)
        };
        let all = running(&self.attached, &self.session, |attached| attached.speculator.is_some());
        let wanting = all.iter().filter(wants_processor).count();
        let count = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let most = self.processors.get_or_init(count) * SPECULATORS_PER_PROCESSOR;
        most.saturating_sub(wanting)
    }

    /// Whether a process is allowed what we are.
    fn is_as_we_are(&self, rights: &Watched) -> bool {
        self.own_rights.as_ref().is_some_and(|own| rights.is_as(own))
    }

    /// A process has given up rights. If its agent has not seen it (that would have left the session before), the session may
    /// be in other hands now.
    fn bar(&mut self, attached: &mut Attached, index: usize) {
        self.barred = Some(GAVE_UP_RIGHTS);
        self.compromised |= may_write(attached.process);
        if self.compromised {
            self.watchers.end();
        }
        self.dismiss_all_of(attached, index);
    }

    /// Ends for good what acts for a process. Its slot stays its own until it ends.
    fn dismiss_all_of(&mut self, attached: &mut Attached, index: usize) {
        attached.rights = None;
        attached.paused = false;
        attached.resumes_later = false;
        attached.faults.stop();
        if let Some(mut child) = attached.speculator.take() {
            self.session.ends(&mut child);
            self.session.holds_nothing(index);
        }
        let slot = self.session.slot(index);
        slot.agent.retire.fetch_max(retire::BEARS_NOBODY, Ordering::SeqCst);
        self.names.retire(slot, &attached.taken);
        say_that_nobody_comes(slot);
    }

    /// Whatever is in the session may be written by who is not allowed what we are.
    fn serve_nobody(&mut self) {
        for index in 0..SLOTS {
            let Some(mut attached) = self.attached[index].take() else { continue };
            if attached.rights.is_some() {
                self.dismiss_all_of(&mut attached, index);
            }
            self.attached[index] = Some(attached);
        }
    }

    /// Tells the speculators what they may ask for; returns whether there are any.
    fn limit(&mut self) -> bool {
        let running = running(&self.attached, &self.session, |attached| attached.speculator.is_some());
        self.limits.look(&running);
        let any = !running.is_empty();
        for index in 0..SLOTS {
            if self.attached[index].as_ref().is_some_and(|attached| attached.resumes_later) {
                self.resume(index);
            }
        }
        for (index, then) in self.weigh() {
            match then {
                Then::Stop => self.pause(index),
                Then::Resume => self.resume(index),
                Then::AsBefore => {}
            }
        }
        any
    }

    /// Which speculators are not worth their memory any more, or may try again.
    fn weigh(&mut self) -> Vec<(usize, Then)> {
        let which = |attached: &Attached| attached.speculator.is_some() || attached.paused;
        let all = running(&self.attached, &self.session, which);
        if all.is_empty() {
            return Vec::new();
        }
        let costs = self.costs.get_or_insert_with(Costs::new);
        costs.look(&all, |device| self.limits.unloaded(device))
    }

    /// Ends a speculator for some time, as memory is short: its own goes with it.
    fn pause(&mut self, index: usize) {
        if self.put_away(index) {
            self.session.slot(index).speculator.allowance.pauses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends a speculator for some time; false if there was none.
    fn put_away(&mut self, index: usize) -> bool {
        let slot = self.session.slot(index);
        let Some(attached) = &mut self.attached[index] else { return false };
        (attached.resumes_later, attached.postponed) = (false, None);
        let Some(mut child) = attached.speculator.take() else { return false };
        let processor = processor_time(child.id());
        self.session.ends(&mut child);
        self.session.holds_nothing(index);
        attached.paused = true;
        let allowance = &slot.speculator.allowance;
        allowance.off.store(1, Ordering::Relaxed);
        // It has not said it itself since its latest sleep.
        let said = slot.speculator.counts.processor_ns.swap(0, Ordering::Relaxed);
        allowance.processor_before_ns.fetch_add(processor.unwrap_or(said), Ordering::Relaxed);
        // The next one counts from zero; what is not counted there would be taken for others' reading.
        slot.speculator.delivered.store(0, Ordering::Relaxed);
        say_gone(slot);
        true
    }

    fn resume(&mut self, index: usize) {
        let slot = self.session.slot(index);
        if self.session.header().releasing.noticing() != 0 {
            return;
        }
        let Some(mut attached) = self.attached[index].take() else { return };
        let command = self.speculator_command(attached.process, index);
        // It may have been asked for twice.
        let is_there = attached.speculator.is_some();
        let pass = if is_there { None } else { self.pass_for_child(&mut attached.postponed) };
        let attached = self.attached[index].insert(attached);
        if is_there {
            (attached.resumes_later, attached.is_aside) = (false, false);
            return;
        }
        let Some(pass) = pass else {
            attached.resumes_later = true;
            self.postponed = true;
            return;
        };
        attached.resumes_later = false;
        attached.paused = false;
        slot.speculator.allowance.off.store(0, Ordering::Relaxed);
        if slot.agent.retire.load(Ordering::Acquire) != 0 || attached.rights.is_none() {
            return;
        }
        // Nobody posts to a speculator that is gone, so these are old.
        let allowance = &slot.speculator.allowance;
        for (stale, lane) in allowance.stale_posts.iter().zip(&slot.agent.lanes) {
            stale.store(lane.posted.load(Ordering::Acquire), Ordering::Relaxed);
        }
        allowance.stale_fault.store(slot.faults.posted.load(Ordering::Acquire), Ordering::Relaxed);
        slot.speculator.activity.store(activity::STARTING, Ordering::Release);
        let is_replaced = self.installation.identity() != self.installed;
        if is_replaced {
            self.barred = self.barred.or(Some(REPLACED));
        }
        let speculator = match command {
            Ok(command) if !is_replaced => self.start_speculator(command, pass).ok(),
            _ => None,
        };
        if speculator.is_none() {
            say_gone(slot);
        }
        if let Some(attached) = &mut self.attached[index] {
            attached.speculator = speculator;
        }
    }

    /// A pass for a child that is about to be started, in vain since `postponed`; for who has tried for long
    /// enough it is one to what is not held.
    fn pass_for_child(&self, postponed: &mut Option<Instant>) -> Option<Pass> {
        let late = postponed.is_some_and(|since| since.elapsed() >= POSTPONED_LONGEST);
        let pass = child::pass(self.gate).or_else(|| late.then(|| child::pass(Gate::default())).flatten());
        *postponed = if pass.is_some() { None } else { postponed.or_else(|| Some(Instant::now())) };
        pass
    }

    /// What starts a speculator.
    fn speculator_command(&self, process: u32, slot: usize) -> io::Result<Command> {
        // Many a short program never waits for one.
        own_files::ask_for([self.installation.speculator.as_path()]);
        let mut command = Command::new(&self.installation.speculator);
        command
            .arg(process.to_string())
            .arg(slot.to_string())
            .env_clear()
            .stdin(nowhere()?)
            .stdout(nowhere()?)
            .stderr(nowhere()?);
        Ok(command)
    }

    fn start_speculator(&self, command: Command, pass: Pass) -> io::Result<Child> {
        let (session, host) = (self.session.descriptor.as_raw_fd(), std::process::id());
        let keep = move || {
            const SESSION_DESCRIPTOR: RawFd = 3;
            // SAFETY: these concern the child alone.
            unsafe {
                // It dies with us; if we have died already, nobody would ever end it.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() as u32 != host {
                    libc::_exit(1);
                }
                if session == SESSION_DESCRIPTOR {
                    libc::fcntl(session, libc::F_SETFD, 0);
                } else if libc::dup2(session, SESSION_DESCRIPTOR) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(SESSION_DESCRIPTOR + 1)
        };
        // SAFETY: only system calls, no allocation.
        unsafe { child::start(command, pass, keep, step_back) }
    }

    /// Parts with processes that have ended.
    fn part(&mut self) {
        self.see_off();
        for index in 0..SLOTS {
            let Some(attached) = &mut self.attached[index] else { continue };
            // A speculator that has ended by itself or been killed: the program goes on plainly.
            if let Some(child) = &mut attached.speculator
                && let ended @ (Ok(Some(_)) | Err(_)) = child.try_wait()
            {
                let status = ended.ok().flatten();
                self.refused = self.refused.take().or_else(|| status.and_then(refused_because));
                attached.speculator = None;
                self.session.holds_nothing(index);
                say_gone(self.session.slot(index));
            }
            if self.attached[index].as_ref().is_some_and(|a| has_ended(&a.handle)) {
                self.dismiss(index);
            }
        }
    }

    /// Ends the speculator of a slot, adds its counts, frees the slot.
    fn dismiss(&mut self, index: usize) {
        let Some(mut attached) = self.attached[index].take() else {
            return;
        };
        owner::close(&self.session.header().owners[index]);
        if attached.rights.is_some()
            && let Some(remembered) = &mut self.remembered
        {
            remembered.take(attached.process, self.session.slot(index), &mut attached.opened);
        }
        attached.faults.stop();
        // It closes what it holds open, and counts. (One that is killed may keep files open for 30 ms more, and disks busy.)
        if attached.speculator.is_some() {
            self.retire(index);
        }
        self.counts.add(self.session.slot(index));
        if let Some(trace) = &mut self.trace {
            trace.parted(index, self.session.slot(index));
        }
        self.names.part(self.session.slot(index));
        match attached.speculator.take() {
            Some(mut child) => {
                let _ = child.kill();
                self.leaving.push((index, child));
                self.see_off();
            }
            None => self.free(index),
        }
    }

    /// Frees the slots of speculators that are gone. They may write to them until then, and some take 30 ms, which nobody who
    /// attaches meanwhile is to wait for.
    fn see_off(&mut self) {
        let is_gone = |(_, child): &mut (usize, Child)| !matches!(child.try_wait(), Ok(None));
        let gone: Vec<_> = self.leaving.extract_if(.., is_gone).collect();
        gone.iter().for_each(|(index, _)| self.free(*index));
    }

    /// Clears a slot that is closing, for the next one. A slot that cannot be cleared stays closed.
    fn free(&mut self, index: usize) {
        self.session.holds_nothing(index);
        if self.session.clear_slot(index).is_ok() {
            owner::release(&self.session.header().owners[index]);
        } else {
            self.uses.lost += 1;
        }
    }

    /// Lets a speculator that is no longer needed bring its counts up to date.
    fn retire(&self, index: usize) {
        let slot = self.session.slot(index);
        let gone = || slot.speculator.activity.load(Ordering::Acquire) == activity::GONE;
        slot.agent.retire.fetch_max(retire::BEARS_NOBODY, Ordering::Release);
        ring(&slot.agent.bell);
        wake(&slot.faults.passed);
        let end = Instant::now() + LAST_WORDS;
        while !gone() && Instant::now() < end {
            let now = slot.speculator.activity.load(Ordering::Acquire);
            if now != activity::GONE {
                wait(&slot.speculator.activity, now, LAST_WORDS);
            }
        }
    }

    /// Takes events into the trace, if there is one.
    fn look_for_trace(&mut self) {
        if let Some(trace) = &mut self.trace {
            let names = self.names.looked_up();
            trace.look(&self.session, &running(&self.attached, &self.session, |_| true), names);
        }
    }

    /// Says how far it is, if that is wanted and it is time.
    fn say_how_far(&mut self) {
        let Some(mut progress) = self.wishes.progress.take() else { return };
        let so_far = || {
            let counts = self.counts_so_far();
            let waited_ns = counts.stall_ns.saturating_add(counts.name_stall_ns);
            SoFar { read_bytes: counts.read_bytes, waited_ns, gained_ns: counts.saved_ns }
        };
        let stays = progress.look(self.main_process, &so_far);
        self.wishes.progress = stays.then_some(progress);
    }

    /// The counts of those who have ended and of those who have not.
    fn counts_so_far(&self) -> Counts {
        let mut counts = self.counts.clone();
        for (index, _) in self.attached.iter().enumerate().filter(|(_, attached)| attached.is_some()) {
            counts.add(self.session.slot(index));
        }
        counts
    }

    /// Completes the trace, if there is one; why it is not whole.
    fn end_trace(&mut self) -> Option<String> {
        let trace = self.trace.take()?;
        trace.finish(&self.session, &running(&self.attached, &self.session, |_| true))
    }

    /// The main process waits at its end, if it does: what it has wanted is looked at.
    fn remember(&mut self) {
        let header = self.session.header();
        let is_leaving = header.main_leaves.load(Ordering::Acquire) != 0;
        if is_leaving && let Some(remembered) = &mut self.remembered {
            let elapsed = Duration::from_nanos(monotonic_ns().saturating_sub(self.began));
            remembered.finish(self.main_process, elapsed);
            // Who is the first of its processes ends all others with itself.
            if self.wishes.any() || self.main_process == FIRST_PROCESS {
                remembered.write();
            }
        }
    }

    /// What the run has been through so far. `left`: as in [`Host::report`].
    fn told(&self, left: Option<&str>) -> Report {
        let mut counts = self.counts_so_far();
        counts.names_looked_ahead = self.names.looked_up();
        counts.kept_open = self.session.header().kept_open.load(Ordering::Relaxed).into();
        (counts.companions, counts.companions_used) = self.names.companions();
        counts.disks = self.limits.looks();
        counts.remembered =
            self.remembered.as_ref().map(|remembered| remembered.counts()).unwrap_or_default();
        counts.speculator.refused_because = self.refused.clone();
        let not_begun = self.executions.refused().unwrap_or(NOT_BEGUN);
        let (plainly, later) = match self.session.header().care.load(Ordering::Acquire) {
            // What it has started may have been helped all the same.
            care::NONE if left.is_none() && counts.processes == 0 => (Some(not_begun), None),
            care::BLIND_AT_START => (Some(BLIND), None),
            care::UNKNOWN_AT_START => (Some(UNKNOWN), None),
            care::BLIND_LATER => (None, Some(BLIND_LATER)),
            care::NOT_READY => (None, Some(NOT_READY)),
            care::WITHOUT_RIGHTS => (None, Some(GAVE_UP_RIGHTS)),
            _ => (None, None),
        };
        Report {
            version: VERSION,
            command: program::arguments().skip(self.command).map(OsStr::to_string_lossy).collect(),
            elapsed_ns: monotonic_ns().saturating_sub(self.began),
            plainly_because: plainly.map(str::to_owned),
            left_because: left.or(self.barred).or(later).map(str::to_owned),
            speculated: !self.watches_only,
            program: counted(self.main_process),
            counts,
        }
    }

    /// Writes the report of who is left alone by now: nobody sees its end, so nobody waits there until the
    /// report is written. It is written once more then.
    fn report_in_advance(&mut self) {
        let care = self.session.header().care.load(Ordering::Acquire);
        let at_start = matches!(care, care::BLIND_AT_START | care::UNKNOWN_AT_START);
        let sees_no_end =
            at_start || matches!(care, care::BLIND_LATER | care::NOT_READY | care::WITHOUT_RIGHTS);
        if self.reported || !sees_no_end || self.executions.is_left() {
            return;
        }
        // In these words there is nothing that changes yet.
        if at_start && self.wishes.stats.is_none() && std::mem::take(&mut self.wishes.reasons) {
            let _ = io::stderr().write_all(self.told(None).reasons().as_bytes());
            if self.trace.is_none() {
                leave_stderr();
            }
        }
        if self.in_advance.is_some() {
            return;
        }
        let is_regular = |file: &&File| file.metadata().is_ok_and(|told| told.is_file());
        if let Some(file) = self.wishes.report.as_ref().filter(is_regular) {
            self.in_advance = Some(self.told(None).write_json_in_place(file, 0));
        }
    }

    /// `left`: why the command is left alone before its end.
    fn report(&mut self, left: Option<&str>) {
        self.reported = true;
        self.remember();
        if let Some(progress) = self.wishes.progress.take() {
            progress.end(self.main_process);
        }
        if self.wishes.any() || self.trace.is_some() {
            let main = self.main_process;
            for index in 0..SLOTS {
                let Some(attached) = &self.attached[index] else { continue };
                if attached.process == main && attached.speculator.is_some() {
                    self.retire(index);
                }
            }
            let unwritten = self.end_trace();
            if self.executions.is_left() {
                // Said already, by who became the command.
                self.wishes = Wishes::NONE;
            }
            let report = self.told(left);
            if let Some(mut file) = self.wishes.report.take() {
                match self.in_advance {
                    Some(long) => _ = report.write_json_in_place(&file, long),
                    None => report.write_json(&mut file),
                }
            }
            match (self.wishes.stats, self.wishes.reasons) {
                (Some(detail), _) => report.tell(&self.installation.teller, detail, self.gate),
                // Nobody may be listening.
                (None, true) => drop(io::stderr().write_all(report.reasons().as_bytes())),
                (None, false) => {}
            }
            if let Some(why) = unwritten.filter(|_| self.wishes.speak()) {
                let _ = writeln!(io::stderr(), "runahead: {why}");
            }
            leave_stderr();
        }
        let header = self.session.header();
        let has_threads = self.remembered.as_ref().is_some_and(|remembered| remembered.ended_with_threads());
        let done = if has_threads { reported::DONE_WITH_THREADS } else { reported::DONE };
        header.reported.store(done, Ordering::Release);
        wake(&header.reported);
        if let Some(remembered) = &mut self.remembered {
            remembered.write();
        }
    }
}

/// Processes with their slots.
fn running<'a>(
    attached: &[Option<Box<Attached>>],
    session: &'a Session,
    which: impl Fn(&Attached) -> bool,
) -> Vec<Running<'a>> {
    let which = |(index, attached): (usize, &Option<Box<Attached>>)| {
        let attached = attached.as_ref().filter(|attached| which(attached))?;
        let speculator = attached.speculator.as_ref().map(Child::id);
        Some(Running { index, process: attached.process, speculator, slot: session.slot(index) })
    };
    attached.iter().enumerate().filter_map(which).collect()
}

/// Says that a speculator is about to be started. False: its program has sent everybody away, and need not
/// wait for it. (Each says its own and then looks at the other's, so one of us sees the other.)
fn begins_to_start(slot: &Slot) -> bool {
    slot.speculator.activity.store(activity::STARTING, Ordering::SeqCst);
    let stays = slot.agent.retire.load(Ordering::SeqCst) == 0;
    if !stays {
        say_gone(slot);
    }
    stays
}

/// There is something for a speculator to look at.
fn ring(bell: &AtomicU32) {
    post::ring(bell);
    wake(bell);
}
