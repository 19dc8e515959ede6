//! Puts the agent into programs that no loader brings it into, when one of the run's processes is about to
//! execute one (`runahead_abi::executions`, `runahead_insert`).
//!
//! Each request has a thread of its own: files may be slow to look at, and who traces a process must be one
//! thread from the beginning to the end.

use crate::futex::wake;
use crate::processes::{self, carries};
use crate::rights::Watched;
use crate::run::{PutIn, Run};
use crate::session::Shared;
use crate::standing;
use crate::unasked::{self, Voids};
use crate::watchers::Watchers;
use runahead_abi::enabled::takes;
use runahead_abi::environment::{self, SESSION, SWITCH, flags, least};
use runahead_abi::executions::{Executions as Mailbox, Known, state};
use runahead_abi::kin;
use runahead_abi::owner;
use runahead_abi::release::What::{All, Files};
use runahead_gate::{Gate, Pass};
use runahead_insert::file::{self, Look};
use runahead_insert::{Bytes, Entrance, Fresh, Image, Reached, Refusal, Traced, Who, bytes_at, string_at};
use rustix::io::fcntl_dupfd_cloexec;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A mailbox that stands so for so long is somebody's who is gone.
const TAKEN_AFTER: Duration = Duration::from_secs(1);

const STACK: usize = 128 << 10;

/// Entries of an environment that are looked at, and bytes of each.
const ENTRIES_MOST: usize = 4096;
const ENTRY_MOST: usize = 64 << 10;

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// What every request needs.
struct Common {
    session: Shared,
    gate: Gate,
    watchers: Watchers,
    agent: PathBuf,
    /// But for the host.
    address: environment::Session,
    main_process: u32,
    /// Which programs are served, where not all are.
    rules: Vec<u8>,
    agent_file: Option<File>,
    image: OnceLock<Option<Image>>,
    /// The launcher has asked, or will not.
    has_begun: AtomicBool,
    /// Why nothing could be put into the command.
    refused: OnceLock<String>,
    lives: Mutex<Lives>,
    /// The command runs without an agent, and whoever started it has said so.
    is_left: AtomicBool,
}

pub(crate) struct Executions {
    common: Arc<Common>,
    /// What the mailbox has been like, and since when.
    stands: Option<(u32, Instant)>,
}

impl Executions {
    pub(crate) fn new(run: &mut Run, gate: Gate, watchers: Watchers) -> Executions {
        let PutIn { agent, refused, is_left } = std::mem::take(&mut run.put_in);
        let common = Common {
            session: run.session.share(),
            gate,
            watchers,
            agent: run.installation.agent.clone(),
            address: run.address,
            main_process: run.main_process,
            rules: Vec::new(),
            agent_file: agent.map(File::from),
            image: OnceLock::new(),
            has_begun: AtomicBool::new(!run.asks),
            refused: refused.map_or_else(OnceLock::new, OnceLock::from),
            lives: Mutex::default(),
            is_left: AtomicBool::new(is_left),
        };
        Executions { common: Arc::new(common), stands: None }
    }

    /// Called in the host, or in an attendant who serves its launcher, whose process id nobody knew before.
    /// `rules`: which programs are served ([`takes`]). Returns the session's address.
    pub(crate) fn begin(&mut self, rules: Vec<u8>) -> environment::Session {
        if let Some(common) = Arc::get_mut(&mut self.common) {
            common.address.host = std::process::id();
            let ours = || File::open(&common.agent).ok();
            // Not one of the standard numbers, where those are closed.
            let high = |file| fcntl_dupfd_cloexec(file, 3).ok().map(File::from);
            common.agent_file = common.agent_file.take().or_else(|| high(ours()?));
            common.rules = rules;
        }
        self.common.address
    }

    /// What is known of files and of who never waits is out of date.
    pub(crate) fn forget(&self) {
        self.common.session.header().executions.forget();
        *self.common.lives() = Lives::default();
    }

    /// A process has attached: it has waited for something.
    pub(crate) fn has_attached(&self, process: u32) {
        self.common.lives().have_a_use(process);
    }

    /// Why nothing could be put into the command, if that was to be.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.common.refused.get().map(String::as_str)
    }

    /// Whether the command has no agent, and its launcher has said why.
    pub(crate) fn is_left(&self) -> bool {
        self.common.is_left.load(Ordering::Acquire)
    }

    /// Answers who asks about a program that is to be left to its loader, which takes no tracer: for an
    /// attendant, who is one for its launcher only. Whether somebody asks about another one, which is left
    /// to the host.
    pub(crate) fn need_tracer(&mut self) -> bool {
        let mailbox = &self.common.session.header().executions;
        let word = mailbox.state.load(Ordering::Acquire);
        if state::of(word) != state::ASKED {
            self.takes_back(word);
            return false;
        }
        self.stands = None;
        let process = mailbox.holder.load(Ordering::Acquire);
        let is_program =
            carries(process, mailbox.state_address.load(Ordering::Relaxed), self.common.address.cookie);
        let request = if is_program { request(mailbox, process, false) } else { None };
        if request.is_some_and(|request| self.common.is_possible(mailbox, &request)) {
            return true;
        }
        if step(mailbox, word, state::TAKEN) {
            step(mailbox, state::to(word, state::TAKEN), state::LEFT);
        }
        false
    }

    /// Answers the launcher, for an attendant who has [begun](Executions::begin), and waits until the
    /// command is there: as long as its execution takes. True once it has asked; then what is to be [handed
    /// on](Executions::hand_on).
    pub(crate) fn serve_launcher(&mut self) -> bool {
        let mailbox = &self.common.session.header().executions;
        let word = mailbox.state.load(Ordering::Acquire);
        if state::of(word) != state::ASKED || !step(mailbox, word, state::TAKEN) {
            self.takes_back(word);
            return false;
        }
        let common = &self.common;
        let is_served = Watched::ourselves().is_some_and(|own| {
            std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().stack_size(STACK);
                let served = thread.spawn_scoped(scope, move || common.serve(word, &own));
                served.is_ok_and(|thread| thread.join().is_ok())
            })
        });
        if !is_served {
            common.is_left.store(true, Ordering::Release);
            step(mailbox, state::to(word, state::TAKEN), state::LEFT);
        }
        true
    }

    /// What a host goes on with that comes after us.
    pub(crate) fn hand_on(&mut self) -> PutIn {
        let Some(common) = Arc::get_mut(&mut self.common) else { return PutIn::default() };
        PutIn {
            agent: common.agent_file.take().map(Into::into),
            refused: common.refused.take(),
            is_left: *common.is_left.get_mut(),
        }
    }

    /// Has a request answered. `own`: what we are allowed; None: nobody is served.
    pub(crate) fn answer(&mut self, own: Option<&Arc<Watched>>) {
        let mailbox = &self.common.session.header().executions;
        let word = mailbox.state.load(Ordering::Acquire);
        if state::of(word) == state::ASKED {
            self.stands = None;
            if !step(mailbox, word, state::TAKEN) {
                return;
            }
            let handed = own.is_some_and(|own| {
                let (common, own) = (self.common.clone(), own.clone());
                let thread = std::thread::Builder::new().name("runahead-insert".into()).stack_size(STACK);
                thread.spawn(move || common.serve(word, &own)).is_ok()
            });
            if !handed {
                step(mailbox, state::to(word, state::TAKEN), state::LEFT);
            }
            return;
        }
        self.takes_back(word);
    }

    /// Frees the mailbox where it stands so for long: an answer that nobody takes, or a mailbox that was taken and
    /// never used.
    fn takes_back(&mut self, word: u32) {
        let mailbox = &self.common.session.header().executions;
        let is_idle = mailbox.holder.load(Ordering::Acquire) == 0;
        match self.stands {
            _ if is_idle => self.stands = None,
            Some((seen, since)) if seen == word => {
                if since.elapsed() > TAKEN_AFTER && state::of(word) != state::TRACING {
                    self.stands = None;
                    mailbox.state.store(state::EMPTY, Ordering::Relaxed);
                    mailbox.holder.store(0, Ordering::Release);
                }
            }
            _ => self.stands = Some((word, Instant::now())),
        }
    }
}

/// Brings a request on, from the word as it was. False: whoever has asked does not wait any more.
fn step(mailbox: &Mailbox, from: u32, to: u32) -> bool {
    let to = state::to(from, to);
    let stepped = mailbox.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if stepped {
        wake(&mailbox.state);
    }
    stepped
}

/// A process that is about to execute something.
struct Request {
    process: u32,
    /// None: the launcher, whose environment names us.
    environment: Option<u64>,
    path: PathBuf,
    /// Device and inode of the file, as the process sees it.
    file: (u64, u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// Who is about to become the command.
    Launcher,
    /// One of the run's processes.
    Program,
    Stranger,
}

/// None: what it says makes no sense.
fn request(mailbox: &Mailbox, process: u32, is_launcher: bool) -> Option<Request> {
    let memory = Bytes(i32::try_from(process).ok()?);
    let path = string_at(memory, mailbox.path.load(Ordering::Relaxed), libc::PATH_MAX as usize).ok()?;
    let directory = mailbox.directory.load(Ordering::Relaxed).cast_signed();
    let environment = (!is_launcher).then(|| mailbox.environment.load(Ordering::Relaxed));
    let file = (mailbox.device.load(Ordering::Relaxed), mailbox.inode.load(Ordering::Relaxed));
    Some(Request { process, environment, path: seen_from(process, directory, &path), file })
}

/// Processes that the agent was put into, and how many of each file have ended since one of them waited for
/// something.
#[derive(Default)]
struct Lives {
    files: HashMap<u64, u32>,
    processes: HashMap<u32, Life>,
}

#[derive(Clone, Copy)]
struct Life {
    /// Of its file.
    key: u64,
    /// The process owned a slot as it began: what it executed before has waited.
    had_slot: bool,
}

/// How many that never waited are enough: the agent's coming costs such a process more than it will ever save
/// it.
const USELESS: u32 = 3;

impl Lives {
    /// `owners`: the processes that own slots.
    fn begin(&mut self, process: u32, key: u64, mut owners: impl Iterator<Item = u32>) {
        let had_slot = owners.any(|owner| owner == process);
        // One of that number that is still here has ended.
        if let Some(before) = self.processes.insert(process, Life { key, had_slot }) {
            *self.files.entry(before.key).or_default() += 1;
        }
    }

    /// Whether processes of the file are to be left alone. Each question stands for one that is let in all
    /// the same later. (Those that run may wait yet: of a parallel build all begin at once.) Who has
    /// attached is among the `owners` of slots until the host has looked at it, and may have ended before
    /// that.
    fn is_useless(
        &mut self,
        key: u64,
        owners: impl Iterator<Item = u32>,
        is_there: impl Fn(u32) -> bool,
    ) -> bool {
        for process in owners {
            if self.processes.get(&process).is_some_and(|life| !life.had_slot) {
                self.have_a_use(process);
            }
        }
        let before = self.processes.len();
        self.processes.retain(|&process, life| life.key != key || is_there(process));
        let ended = (before - self.processes.len()) as u32;
        let count = self.files.entry(key).or_default();
        *count += ended;
        if *count < USELESS {
            return false;
        }
        *count -= 1;
        true
    }

    fn have_a_use(&mut self, process: u32) {
        if let Some(life) = self.processes.remove(&process) {
            self.files.remove(&life.key);
        }
    }
}

impl Common {
    fn lives(&self) -> MutexGuard<'_, Lives> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `word`: the mailbox's when it was asked.
    fn serve(&self, word: u32, own: &Watched) {
        let mailbox = &self.session.header().executions;
        let taken = state::to(word, state::TAKEN);
        // Read once: anybody in the run may write there.
        let process = mailbox.holder.load(Ordering::Acquire);
        let asks = self.who_asks(process, mailbox.state_address.load(Ordering::Relaxed));
        let is_launcher = asks == Asks::Launcher;
        let request = match asks {
            Asks::Stranger => None,
            Asks::Launcher | Asks::Program => request(mailbox, process, is_launcher),
        };
        let served = request.and_then(|request| {
            let rights = Watched::begin(Path::new(&format!("/proc/{}", request.process)))?;
            let wanted = rights.is_as(own) && self.is_wanted(mailbox, &request);
            let traced = wanted.then(|| Traced::seize(request.process).ok()).flatten()?;
            Some((traced, request, rights))
        });
        let Some((traced, request, rights)) = served else {
            self.is_left.fetch_or(is_launcher, Ordering::AcqRel);
            if is_launcher {
                self.goes_without(process, Voids::All);
            }
            step(mailbox, taken, state::LEFT);
            return;
        };
        // From here on it waits for us, and only then may it be stopped.
        let tracing = state::to(word, state::TRACING);
        let stops = step(mailbox, taken, state::TRACING) && traced.stop();
        if !stops {
            self.is_left.fetch_or(is_launcher, Ordering::AcqRel);
            if is_launcher {
                self.goes_without(process, Voids::All);
            }
            step(mailbox, tracing, state::LEFT);
            return;
        }
        step(mailbox, tracing, state::TRACED);
        let who = if is_launcher { Who::Launcher } else { Who::Program };
        // It stands still as long as these live.
        let fresh = match traced.wait_for_program(who) {
            Reached::Program(fresh) => fresh,
            Reached::Other(_held) => return self.goes_without(request.process, Voids::All),
            Reached::Nothing => return,
        };
        let put_in = self.put_in(&fresh, &request, &rights);
        match put_in {
            Ok(Comes::Surely) => {}
            // One of all of a user's programs is not to cost the others what is guessed for them.
            Ok(Comes::Perhaps) if self.address.flags & flags::LASTING != 0 => {
                self.goes_without(process, Voids::Nothing);
            }
            _ => self.goes_without(process, Voids::All),
        }
        drop(fresh);
        match put_in {
            Ok(_) => {
                self.lives().begin(request.process, kin::key(request.file.0, request.file.1), self.owners())
            }
            Err(refusal) if is_launcher => {
                let _ = self.refused.set(because(&refusal));
            }
            Err(_) => {}
        }
    }

    /// Nobody will ask for what the process gives back: the agent that was to be put in has left that to us,
    /// and the process stands still.
    fn goes_without(&self, process: u32, voids: Voids) {
        if processes::is_there(process) {
            unasked::lets_all_go(self.session.header(), process, voids);
        }
    }

    fn who_asks(&self, process: u32, address: u64) -> Asks {
        // Only the first of the main process's can be its launcher's.
        let is_first = process == self.main_process && !self.has_begun.swap(true, Ordering::AcqRel);
        match address {
            0 if is_first => Asks::Launcher,
            _ if carries(process, address, self.address.cookie) => Asks::Program,
            _ => Asks::Stranger,
        }
    }

    /// A pass to look at the file that is executed. Others may just be giving something back, which is over
    /// soon.
    fn pass(&self) -> Option<Pass> {
        const LONGEST: Duration = Duration::from_millis(50);
        const AGAIN: Duration = Duration::from_micros(200);
        let began = Instant::now();
        loop {
            let pass = self.gate.pass_to_code(Files);
            if pass.is_some() || self.gate.is_watched() || began.elapsed() >= LONGEST {
                return pass;
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Whether the agent is to be put in: that is possible, and has not been of no use too often.
    fn is_wanted(&self, mailbox: &Mailbox, request: &Request) -> bool {
        let key = kin::key(request.file.0, request.file.1);
        let is_possible = self.is_possible(mailbox, request);
        if is_possible && self.lives().is_useless(key, self.owners(), processes::is_there) {
            mailbox.note(key, Known::LeaveAlone);
            return false;
        }
        is_possible
    }

    /// The processes that own slots.
    fn owners(&self) -> impl Iterator<Item = u32> + '_ {
        self.session.header().owners.iter().filter_map(owner::process)
    }

    /// Whether the agent may be put in, as far as the file and the environment tell. Notes what is known of
    /// the file.
    fn is_possible(&self, mailbox: &Mailbox, request: &Request) -> bool {
        self.watchers.look_above(request.process);
        let Some(_pass) = self.pass() else { return false };
        let Ok(told) = std::fs::metadata(&request.path) else { return false };
        // Some names mean another file from here (`/proc/self/exe`).
        if (told.dev(), told.ino()) != request.file {
            return false;
        }
        let key = kin::key(told.dev(), told.ino());
        let Some(entrance) = file::program_of(&request.path) else {
            let directory = PathBuf::from(format!("/proc/{}/cwd", request.process));
            let known =
                if file::is_foreign(&request.path, &directory) { Known::Narrow } else { Known::ByItself };
            mailbox.note(key, known);
            return false;
        };
        let has_loader = entrance == Entrance::Loader;
        // Where the loader brings the agent in, that asks for itself.
        let real =
            request.path.starts_with("/proc").then(|| std::fs::canonicalize(&request.path).ok()).flatten();
        let name = real.as_ref().unwrap_or(&request.path).file_name().unwrap_or_default().as_bytes();
        if !takes(&self.rules, [name].into_iter()) {
            if !has_loader {
                mailbox.note(key, Known::LeaveAlone);
            }
            return false;
        }
        mailbox.note(key, if has_loader { Known::ByItself } else { Known::ToBePutIn });
        match request.environment {
            None => !has_loader,
            Some(environment) => environment_at(request.process, environment).is_some_and(|entries| {
                let is_served = has_loader && self.is_named_in(&entries);
                !is_off(&entries) && !is_served && (!has_loader || self.may_be_named(request, &entries))
            }),
        }
    }

    /// Whether the loader will bring the agent in, and quietly, if it is named: else the program would see
    /// what is not taken away again.
    fn may_be_named(&self, request: &Request, entries: &[Vec<u8>]) -> bool {
        let is_quiet = !TALKS.iter().any(|name| value_of(entries, name).is_some());
        let directory = PathBuf::from(format!("/proc/{}", request.process));
        let there = self.agent.strip_prefix("/").ok().and_then(|agent| {
            let found = std::fs::metadata(directory.join("root").join(agent)).ok()?;
            Some((found.dev(), found.ino()))
        });
        let ours = std::fs::metadata(&self.agent).ok().map(|found| (found.dev(), found.ino()));
        is_quiet && has_room(request.process) && ours.is_some() && there == ours
    }

    /// Whether an agent that the program is to map will work there: it has room, finds the file where we
    /// have it open, is under no more filters than we are, and in the same security domain. One of all of a
    /// user's programs may leave again by itself.
    fn comes(&self, process: u32) -> Comes {
        let identity = |path: &str| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let domain = |process: &str| std::fs::read(format!("/proc/{process}/attr/current")).ok();
        let Some(file) = &self.agent_file else { return Comes::Perhaps };
        let Some(_pass) = self.gate.pass_to_our_own(All) else { return Comes::Perhaps };
        let ours = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let seen = identity(&format!("/proc/{process}/root{ours}"));
        let is_sure = self.address.flags & flags::LASTING == 0
            && has_room(process)
            && seen.is_some()
            && seen == identity(&ours)
            && standing::filters_of(process).is_some_and(|filters| filters <= self.address.filters)
            && domain(&process.to_string()) == domain("self");
        if is_sure { Comes::Surely } else { Comes::Perhaps }
    }

    /// Whether the environment names the agent and a session.
    fn is_named_in(&self, entries: &[Vec<u8>]) -> bool {
        let agent = self.agent.as_os_str().as_bytes();
        let names = |value: &[u8]| environment::find_preloaded(value, |name| name == agent).is_some();
        preloaded(entries).is_some_and(names) && value_of(entries, SESSION).is_some()
    }

    /// The program is there and has not begun.
    fn put_in(&self, fresh: &Fresh, request: &Request, rights: &Watched) -> Result<Comes, Refusal> {
        // Nobody is served who is allowed more now, or less.
        if !rights.still_is() {
            return Err(Refusal::NotForUs);
        }
        let entries = fresh.environment()?;
        if is_off(&entries) {
            return Ok(Comes::Perhaps);
        }
        // Not what was asked about: that may have become another file since.
        let directory = format!("/proc/{}", request.process);
        self.watchers.look_above(request.process);
        let (look, is_loader) = {
            let Some(_pass) = self.pass() else { return Err(Refusal::NotForUs) };
            let executable = Path::new(&directory).join("exe");
            let name = std::fs::read_link(&executable)?;
            let file = std::fs::File::open(&executable)?;
            let name = name.file_name().unwrap_or_default();
            (file::look_at(&file, name), file::is_loader(name))
        };
        match look {
            // Nobody has looked whether it can.
            Look::Program(Entrance::Loader) if self.is_named_in(&entries) => Ok(Comes::Perhaps),
            // The loader itself is asked for something, or something has changed.
            Look::Program(Entrance::Loader) if is_loader || !self.may_be_named(request, &entries) => {
                Err(Refusal::NotForUs)
            }
            Look::Program(Entrance::Loader) => {
                let hidden =
                    environment::Session { flags: self.address.flags | flags::HIDDEN, ..self.address };
                let session = format!("{SESSION}={hidden}");
                let mut preload = [PRELOAD, self.agent.as_os_str().as_bytes()].concat();
                if let Some(theirs) = preloaded(&entries).filter(|theirs| !theirs.is_empty()) {
                    preload.push(b':');
                    preload.extend_from_slice(theirs);
                }
                fresh.add_variables([session.as_bytes(), &preload])?;
                Ok(self.comes(request.process))
            }
            Look::Program(Entrance::Image(_)) => {
                let image = self.image.get_or_init(|| {
                    // By its descriptor: what has its name may be another file one day.
                    let file = self.agent_file.as_ref()?;
                    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
                    Image::read(Path::new(&path)).ok()
                });
                let image = image.as_ref().ok_or(Refusal::NoPlace)?;
                fresh.put_in(image, &self.address.to_string())?;
                Ok(self.comes(request.process))
            }
            Look::Script(_) | Look::Other => Err(Refusal::NotForUs),
        }
    }
}

/// Variables that have glibc's loader tell what it loads, or load more that is asked.
const TALKS: [&str; 7] = [
    "LD_TRACE_LOADED_OBJECTS",
    "LD_DEBUG",
    "LD_VERBOSE",
    "LD_SHOW_AUXV",
    "LD_AUDIT",
    "LD_PROFILE",
    "LD_PREFER_MAP_32BIT_EXEC",
];

/// Files that a loader may have open at a time, beside those that are.
const FILES_SPARE: usize = 8;

/// Whether an agent that is put into the program will come.
enum Comes {
    Surely,
    /// It may not get what it needs there, or is not wanted.
    Perhaps,
}

/// Whether a loader, or a program that maps the agent itself, has the room that this takes.
fn has_room(process: u32) -> bool {
    limits_of(process).is_some_and(|limits| {
        let open = std::fs::read_dir(format!("/proc/{process}/fd")).map_or(usize::MAX, Iterator::count);
        limits.files > open.saturating_add(FILES_SPARE) as u64
            && limits.addresses >= least::ADDRESSES
            && limits.data >= least::DATA
    })
}

struct Limits {
    files: u64,
    addresses: u64,
    data: u64,
}

fn limits_of(process: u32) -> Option<Limits> {
    let limit = |resource| {
        let mut told = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: asks, into a structure of ours.
        let got = unsafe { libc::prlimit(process as libc::pid_t, resource, std::ptr::null(), &mut told) };
        (got == 0).then_some(told.rlim_cur)
    };
    Some(Limits {
        files: limit(libc::RLIMIT_NOFILE)?,
        addresses: limit(libc::RLIMIT_AS)?,
        data: limit(libc::RLIMIT_DATA)?,
    })
}

/// The path that a process means, from here.
fn seen_from(process: u32, directory: i32, path: &[u8]) -> PathBuf {
    let path = Path::new(OsStr::from_bytes(path));
    // Where a shell executes itself for what is a part of it.
    if let Ok(own) = path.strip_prefix("/proc/self") {
        return Path::new(&format!("/proc/{process}")).join(own);
    }
    let base = match directory {
        _ if path.is_absolute() => return path.to_owned(),
        libc::AT_FDCWD => format!("/proc/{process}/cwd"),
        number => format!("/proc/{process}/fd/{number}"),
    };
    let base = Path::new(&base);
    if path.as_os_str().is_empty() { base.to_owned() } else { base.join(path) }
}

/// The environment at an address of the process's. None: there is none, or garbage.
fn environment_at(process: u32, address: u64) -> Option<Vec<Vec<u8>>> {
    let memory = Bytes(i32::try_from(process).ok()?);
    let mut entries = Vec::new();
    if address == 0 {
        return Some(entries);
    }
    for index in 0..ENTRIES_MOST as u64 {
        let word = bytes_at(memory, address.wrapping_add(8 * index), 8).ok()?;
        let entry = u64::from_le_bytes(word.try_into().ok()?);
        if entry == 0 {
            return Some(entries);
        }
        entries.push(string_at(memory, entry, ENTRY_MOST).ok()?);
    }
    None
}

fn value_of<'a>(entries: &'a [Vec<u8>], name: &str) -> Option<&'a [u8]> {
    entries.iter().find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// What is preloaded: the loader believes the last of several.
fn preloaded(entries: &[Vec<u8>]) -> Option<&[u8]> {
    entries.iter().rev().find_map(|entry| entry.strip_prefix(PRELOAD))
}

fn is_off(entries: &[Vec<u8>]) -> bool {
    value_of(entries, SWITCH) == Some(b"off")
}

fn because(refusal: &Refusal) -> String {
    let what = match refusal {
        Refusal::Forbidden(error) => format!("it may not be traced or changed ({error})"),
        Refusal::NotForUs => "it has other rights, or is no program for this machine".to_owned(),
        Refusal::NoPlace => "there is no place for our instructions in it".to_owned(),
        Refusal::NoRoom => "its arguments and its environment leave no room".to_owned(),
    };
    format!("no loader brings the agent in, and it could not be put in: {what}")
}

/// What the launcher says of itself before it becomes the command: that has no loader that would bring the
/// agent in. True: it is going to be put in.
pub(crate) fn ask_for_command(session: Shared, host: u32, path: &Path) -> bool {
    let header = session.header();
    let mailbox = &header.executions;
    let Ok(path) = std::ffi::CString::new(OsString::from(path).into_vec()) else { return false };
    // Yama's scope 1 lets only those trace a process whom it names.
    // SAFETY: names a process; changes nothing else.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(host)) };
    let Ok(told) = std::fs::metadata(OsStr::from_bytes(path.to_bytes())) else { return false };
    if mailbox.holder.compare_exchange(0, std::process::id(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return false;
    }
    mailbox.state_address.store(0, Ordering::Relaxed);
    mailbox.directory.store(libc::AT_FDCWD.cast_unsigned(), Ordering::Relaxed);
    mailbox.path.store(path.as_ptr() as u64, Ordering::Relaxed);
    mailbox.device.store(told.dev(), Ordering::Relaxed);
    mailbox.inode.store(told.ino(), Ordering::Relaxed);
    mailbox.state.store(state::word(0, state::ASKED), Ordering::Release);
    mailbox.number.store(1, Ordering::Relaxed);
    header.doorbell.fetch_add(1, Ordering::Release);
    wake(&header.doorbell);
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        let word = mailbox.state.load(Ordering::Acquire);
        match state::of(word) {
            state::ASKED | state::TAKEN | state::TRACING if Instant::now() < end => {
                crate::futex::wait(&mailbox.state, word, Duration::from_millis(100));
            }
            seen => {
                mailbox.state.store(state::EMPTY, Ordering::Relaxed);
                // Who is beside us has it for good, if he cannot serve.
                let me = std::process::id();
                let _ = mailbox.holder.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Relaxed);
                return seen == state::TRACED;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_that_is_meant_is_found() {
        assert_eq!(seen_from(7, libc::AT_FDCWD, b"/bin/a"), Path::new("/bin/a"));
        assert_eq!(seen_from(7, libc::AT_FDCWD, b"a"), Path::new("/proc/7/cwd/a"));
        assert_eq!(seen_from(7, 5, b"a"), Path::new("/proc/7/fd/5/a"));
        assert_eq!(seen_from(7, 5, b""), Path::new("/proc/7/fd/5"));
        assert_eq!(seen_from(7, 5, b"/proc/self/exe"), Path::new("/proc/7/exe"));
        assert_eq!(seen_from(7, 5, b"/proc/selfish"), Path::new("/proc/selfish"));
    }

    #[test]
    fn files_whose_processes_never_wait_are_left_alone_and_tried_again() {
        let mut lives = Lives::default();
        let (ended, none) = (|_| false, std::iter::empty::<u32>);
        for process in 1..=USELESS {
            assert!(!lives.is_useless(7, none(), ended));
            lives.begin(process, 7, none());
        }
        assert!(lives.is_useless(7, none(), ended) && !lives.is_useless(8, none(), ended));
        // Once more, later.
        assert!(!lives.is_useless(7, none(), ended));
        lives.begin(9, 7, none());
        assert!(lives.is_useless(7, none(), ended));
        lives.begin(10, 7, none());
        lives.have_a_use(10);
        assert!(!lives.is_useless(7, none(), ended));
        // Those that run may wait yet.
        (11..20).for_each(|process| lives.begin(process, 7, none()));
        assert!(!lives.is_useless(7, none(), |_| true) && lives.is_useless(7, none(), ended));
    }

    #[test]
    fn who_has_attached_and_ended_before_the_host_has_looked_has_waited() {
        let mut lives = Lives::default();
        let (ended, none) = (|_| false, std::iter::empty::<u32>);
        for process in 1..=USELESS {
            lives.begin(process, 7, none());
        }
        assert!(!lives.is_useless(7, [USELESS].into_iter(), ended));
        // What such a process executed before is another file.
        for process in 11..=10 + USELESS {
            lives.begin(process, 7, [process].into_iter());
        }
        assert!(lives.is_useless(7, [11].into_iter(), ended));
    }

    #[test]
    fn the_last_of_several_is_preloaded() {
        let entries: Vec<Vec<u8>> =
            ["LD_PRELOAD=a", "X=1", "LD_PRELOAD=b:c", "RUNAHEAD=off"].map(|entry| entry.into()).to_vec();
        assert_eq!(preloaded(&entries), Some(&b"b:c"[..]));
        assert!(is_off(&entries) && !is_off(&entries[..3]));
        assert_eq!(value_of(&entries, "X"), Some(&b"1"[..]));
    }
}
