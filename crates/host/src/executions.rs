//! Puts the agent into programs that no loader brings it into, when one of the run's processes is about to execute one
//! (`runahead_abi::executions`, `runahead_insert`).
//!
//! Each request has a thread of its own: files may be slow to look at, and who traces a process must be one thread from the
//! beginning to the end.

use crate::processes::carries;
use crate::rights::Watched;
use crate::session::Shared;
use crate::supervise::wake;
use runahead_abi::environment::{self, SESSION, SWITCH, flags};
use runahead_abi::executions::{Executions as Mailbox, state};
use runahead_abi::kin;
use runahead_abi::release::What::Files;
use runahead_gate::Gate;
use runahead_insert::file::{self, Look};
use runahead_insert::{Bytes, Entrance, Fresh, Image, Refusal, Traced, bytes_at, string_at};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a process is traced at most: a program that is executed from a slow disk takes some time, one that cannot be
/// executed is let go then.
const TRACED_LONGEST: Duration = Duration::from_millis(500);

/// An answer that nobody has taken by then is for who is gone.
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
    agent: PathBuf,
    /// But for the host.
    address: environment::Session,
    main_process: u32,
    image: OnceLock<Option<Image>>,
    /// The command itself has been executed.
    has_begun: AtomicBool,
    /// Why nothing could be put into the command.
    refused: OnceLock<String>,
    /// The command runs without an agent, and whoever started it has said so.
    is_left: AtomicBool,
}

pub(crate) struct Executions {
    common: Arc<Common>,
    answered: Option<Instant>,
}

impl Executions {
    /// `address`: as the environment says it.
    pub(crate) fn new(
        session: Shared,
        gate: Gate,
        agent: PathBuf,
        address: environment::Session,
        main_process: u32,
    ) -> Executions {
        let common = Common {
            session,
            gate,
            agent,
            address,
            main_process,
            image: OnceLock::new(),
            has_begun: AtomicBool::new(false),
            refused: OnceLock::new(),
            is_left: AtomicBool::new(false),
        };
        Executions { common: Arc::new(common), answered: None }
    }

    /// Called in the host, whose process id nobody knew before.
    pub(crate) fn begin(&mut self) {
        if let Some(common) = Arc::get_mut(&mut self.common) {
            common.address.host = std::process::id();
        }
    }

    /// Why nothing could be put into the command, if that was to be.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.common.refused.get().map(String::as_str)
    }

    /// Whether the command has no agent, and its launcher has said why.
    pub(crate) fn is_left(&self) -> bool {
        self.common.is_left.load(Ordering::Acquire)
    }

    /// Has a request answered. `own`: what we are allowed; None: nobody is served.
    pub(crate) fn answer(&mut self, own: Option<&Arc<Watched>>) {
        let mailbox = &self.common.session.header().executions;
        match mailbox.state.load(Ordering::Acquire) {
            state::EMPTY => self.answered = None,
            state::ASKED => {
                let handed = own.is_some_and(|own| {
                    // Else the next look finds it unanswered, and hands it over again.
                    let taken = mailbox.state.compare_exchange(
                        state::ASKED,
                        state::TAKEN,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    );
                    let (common, own) = (self.common.clone(), own.clone());
                    let thread = std::thread::Builder::new().name("runahead-insert".into()).stack_size(STACK);
                    taken.is_ok() && thread.spawn(move || common.serve(&own)).is_ok()
                });
                if !handed {
                    say(mailbox, state::LEFT);
                }
            }
            _ => {
                let answered = *self.answered.get_or_insert_with(Instant::now);
                if answered.elapsed() > TAKEN_AFTER {
                    self.answered = None;
                    mailbox.state.store(state::EMPTY, Ordering::Relaxed);
                    mailbox.holder.store(0, Ordering::Release);
                }
            }
        }
    }
}

fn say(mailbox: &Mailbox, answer: u32) {
    mailbox.state.store(answer, Ordering::Release);
    wake(&mailbox.state);
}

/// A process that is about to execute something.
struct Request {
    process: u32,
    /// None: the launcher, whose environment names us.
    environment: Option<u64>,
    path: PathBuf,
}

impl Common {
    fn serve(&self, own: &Watched) {
        let mailbox = &self.session.header().executions;
        let rights = self.request(mailbox).and_then(|request| {
            let rights = Watched::begin(Path::new(&format!("/proc/{}", request.process)))?;
            (rights.is_as(own) && self.is_wanted(mailbox, &request)).then_some((request, rights))
        });
        let traced = rights
            .and_then(|(request, rights)| Some((Traced::seize(request.process).ok()?, request, rights)));
        let Some((traced, request, rights)) = traced else {
            if mailbox.holder.load(Ordering::Relaxed) == self.main_process
                && !self.has_begun.swap(true, Ordering::AcqRel)
            {
                self.is_left.store(true, Ordering::Release);
            }
            return say(mailbox, state::LEFT);
        };
        if request.environment.is_none() {
            self.has_begun.store(true, Ordering::Release);
        }
        say(mailbox, state::TRACED);
        let Some(fresh) = traced.wait_for_program(TRACED_LONGEST) else { return };
        if let Err(refusal) = self.put_in(fresh, &request, &rights)
            && request.environment.is_none()
        {
            let _ = self.refused.set(because(&refusal));
        }
    }

    /// None: it is not one of the run's processes, or what it says makes no sense.
    fn request(&self, mailbox: &Mailbox) -> Option<Request> {
        let process = mailbox.holder.load(Ordering::Acquire);
        let word = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        let address = word(&mailbox.state_address);
        let is_launcher =
            address == 0 && process == self.main_process && !self.has_begun.load(Ordering::Acquire);
        if !is_launcher && !carries(process, address, self.address.cookie) {
            return None;
        }
        let memory = Bytes(i32::try_from(process).ok()?);
        let path = string_at(memory, word(&mailbox.path), libc::PATH_MAX as usize).ok()?;
        let directory = mailbox.directory.load(Ordering::Relaxed).cast_signed();
        Some(Request {
            process,
            environment: (!is_launcher).then(|| word(&mailbox.environment)),
            path: seen_from(process, directory, &path),
        })
    }

    /// Whether the agent is to be put in, as far as the file and the environment tell. Notes what is known of the file.
    fn is_wanted(&self, mailbox: &Mailbox, request: &Request) -> bool {
        let Some(_pass) = self.gate.pass(Files) else { return false };
        let Ok(told) = std::fs::metadata(&request.path) else { return false };
        let key = kin::key(told.dev(), told.ino());
        let Some((entrance, _)) = file::program_of(&request.path) else {
            mailbox.note(key, false);
            return false;
        };
        let has_loader = entrance == Entrance::Loader;
        mailbox.note(key, !has_loader);
        let Some(environment) = request.environment else { return !has_loader };
        let Some(entries) = environment_at(request.process, environment) else { return false };
        !is_off(&entries) && !(has_loader && self.is_named_in(&entries))
    }

    /// Whether the environment names the agent and a session.
    fn is_named_in(&self, entries: &[Vec<u8>]) -> bool {
        let agent = self.agent.as_os_str().as_bytes();
        let begins = |value: &[u8]| value.split(|&byte| byte == b':').next() == Some(agent);
        preloaded(entries).is_some_and(begins) && value_of(entries, SESSION).is_some()
    }

    /// The program is there and has not begun.
    fn put_in(&self, fresh: Fresh, request: &Request, rights: &Watched) -> Result<(), Refusal> {
        // Nobody is served who is allowed more now, or less.
        if !rights.still_is() {
            return Err(Refusal::NotForUs);
        }
        let entries = fresh.environment()?;
        if is_off(&entries) {
            return Ok(());
        }
        // Not what was asked about: that may have become another file since.
        let directory = format!("/proc/{}", request.process);
        let look = {
            let Some(_pass) = self.gate.pass(Files) else { return Err(Refusal::NotForUs) };
            let executable = Path::new(&directory).join("exe");
            let name = std::fs::read_link(&executable)?;
            let file = std::fs::File::open(&executable)?;
            file::look_at(&file, name.file_name().unwrap_or_default())
        };
        match look {
            Look::Program(Entrance::Loader) if self.is_named_in(&entries) => Ok(()),
            Look::Program(Entrance::Loader) => {
                let hidden =
                    environment::Session { flags: self.address.flags | flags::HIDDEN, ..self.address };
                let session = format!("{SESSION}={hidden}");
                let mut preload = [PRELOAD, self.agent.as_os_str().as_bytes()].concat();
                if let Some(theirs) = preloaded(&entries).filter(|theirs| !theirs.is_empty()) {
                    preload.push(b':');
                    preload.extend_from_slice(theirs);
                }
                fresh.add_variables([session.as_bytes(), &preload])
            }
            Look::Program(Entrance::Image(_)) => {
                let image = self.image.get_or_init(|| Image::read(&self.agent).ok());
                let image = image.as_ref().ok_or(Refusal::NoPlace)?;
                fresh.put_in(image, &self.address.to_string())
            }
            Look::Script(_) | Look::Other => Err(Refusal::NotForUs),
        }
    }
}

/// The path that a process means, from here.
fn seen_from(process: u32, directory: i32, path: &[u8]) -> PathBuf {
    let path = Path::new(OsStr::from_bytes(path));
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

/// What the launcher says of itself before it becomes the command: that has no loader that would bring the agent in. True: it
/// is going to be put in.
pub(crate) fn ask_for_command(session: Shared, host: u32, path: &Path) -> bool {
    let header = session.header();
    let mailbox = &header.executions;
    let Ok(path) = std::ffi::CString::new(OsString::from(path).into_vec()) else { return false };
    // Yama's scope 1 lets only those trace a process whom it names.
    // SAFETY: names a process; changes nothing else.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(host)) };
    mailbox.holder.store(std::process::id(), Ordering::Relaxed);
    mailbox.state_address.store(0, Ordering::Relaxed);
    mailbox.directory.store(libc::AT_FDCWD.cast_unsigned(), Ordering::Relaxed);
    mailbox.path.store(path.as_ptr() as u64, Ordering::Relaxed);
    mailbox.state.store(state::ASKED, Ordering::Release);
    header.doorbell.fetch_add(1, Ordering::Release);
    wake(&header.doorbell);
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        match mailbox.state.load(Ordering::Acquire) {
            seen @ (state::ASKED | state::TAKEN) if Instant::now() < end => {
                crate::supervise::wait(&mailbox.state, seen, Duration::from_millis(100));
            }
            seen => {
                mailbox.state.store(state::EMPTY, Ordering::Relaxed);
                mailbox.holder.store(0, Ordering::Release);
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
