//! One run, as the launcher leaves it to whoever serves it: in the same process image
//! ([`serve`](crate::serve)), or as words to another executable ([`Run::words`], [`Run::from_words`]).

use crate::installation::{Identity, Installation};
use crate::limits::Limits;
use crate::own_files;
use crate::program;
use crate::progress::Shown;
use crate::remembered::Remembering;
use crate::report::Detail;
use crate::session::Session;
use crate::start_files::Cold;
use crate::trace::Recorder;
use runahead_abi::environment;
use runahead_abi::session::MAGIC;
use runahead_sites::SiteFile;
use rustix::io::fcntl_dupfd_cloexec;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// What is to be told at the command's end.
pub struct Wishes {
    /// What was gained, on stderr.
    pub stats: Option<Detail>,
    /// Why the command ran plainly, or speculation did not last, on stderr.
    pub reasons: bool,
    /// The counts as JSON.
    pub report: Option<File>,
    /// A timeline.
    pub trace: Option<Box<dyn Recorder>>,
    /// How far it is, on the terminal.
    pub progress: Option<Box<dyn Shown>>,
}

impl Wishes {
    pub(crate) const NONE: Wishes =
        Wishes { stats: None, reasons: false, report: None, trace: None, progress: None };

    /// Whether anything may have to be said on stderr.
    pub(crate) fn speak(&self) -> bool {
        self.stats.is_some() || self.reasons
    }

    /// Whether anything is to be told at the end.
    pub(crate) fn any(&self) -> bool {
        self.speak() || self.report.is_some()
    }
}

/// The site file, which agents read through our descriptor.
pub enum Sites {
    /// Not open yet; the descriptor, which is of nothing that could be taken for it.
    Reserved(OwnedFd),
    Open(SiteFile),
    /// It is being opened, or could not be.
    Missing,
}

impl Sites {
    /// A descriptor whose number the environment can say before the file is open.
    ///
    /// Only calls that have been tried out under the command's filters ([`crate::filter`]). Where there is no
    /// `/dev`, it is the session's once more: agents do not open it before they are told.
    pub(crate) fn reserve(session: &Session) -> io::Result<Sites> {
        let descriptor = match File::open("/dev/null") {
            Ok(null) => null.into(),
            Err(_) => fcntl_dupfd_cloexec(&session.descriptor, 3)?,
        };
        Ok(Sites::Reserved(descriptor))
    }

    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        match self {
            Sites::Reserved(descriptor) => Some(descriptor.as_raw_fd()),
            Sites::Open(file) => Some(file.descriptor()),
            Sites::Missing => None,
        }
    }

    /// Where the file is, if it is open and not in memory.
    fn path(&self) -> Option<&Path> {
        match self {
            Sites::Open(file) => file.path(),
            Sites::Reserved(_) | Sites::Missing => None,
        }
    }

    /// The user's site file, under this number.
    fn open(self, known: PathBuf) -> Result<SiteFile, String> {
        let descriptor = match self {
            Sites::Open(file) => return Ok(file),
            Sites::Reserved(descriptor) => descriptor,
            Sites::Missing => return Err("it is given up".to_owned()),
        };
        let file = SiteFile::open_or_make().map_err(|error| error.to_string())?.with_known(known);
        own_files::ask_for(file.path());
        file.move_to(descriptor).map_err(|error| format!("cannot open the site file: {error}"))
    }
}

/// What an attendant, who has put the agent into the command, hands on to the host.
#[derive(Default)]
pub(crate) struct PutIn {
    /// The agent's file, which the command opens by our descriptor.
    pub(crate) agent: Option<OwnedFd>,
    /// Why it could not be put in.
    pub(crate) refused: Option<String>,
    /// The command has no agent, and its launcher says so.
    pub(crate) is_left: bool,
}

pub struct Run {
    pub session: Session,
    pub sites: Sites,
    pub installation: Installation,
    /// Its files when the run began, or when this process was executed to serve it.
    pub(crate) installed: Identity,
    pub wishes: Wishes,
    pub limits: Limits,
    /// Whether files may be asked for that nobody has foretold.
    pub guesses: bool,
    /// The command, if it is not in the cache.
    pub cold: Option<Cold>,
    /// How the run is remembered, if it is. Where a profile is read or written who becomes the command starts
    /// the host at once, and does not hand the run on.
    pub remember: Option<Remembering>,
    /// Number of the command among this process's arguments, for the report.
    pub command: usize,
    /// As the environment says it, but for the host, whose process id is known to itself.
    pub address: environment::Session,
    /// Whether the launcher asks that the agent be put into the command.
    pub asks: bool,
    /// What has become of that, once it has been asked.
    pub(crate) put_in: PutIn,
    /// When the run began, ns of the monotonic clock.
    pub began: u64,
    pub main: Option<OwnedFd>,
    pub main_process: u32,
}

/// Words before the command's.
const WORDS: usize = 12;

/// In the place of a number or a path.
const NONE: &str = "-";

impl Run {
    /// Whether anything may have to be said on stderr.
    pub(crate) fn may_speak(&self) -> bool {
        self.wishes.speak() || self.remember.as_ref().is_some_and(|remembering| remembering.how.records())
    }

    /// The descriptors that the host needs.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let wishes = &self.wishes;
        [
            Some(self.session.descriptor.as_raw_fd()),
            self.sites.descriptor(),
            self.main.as_ref().map(AsRawFd::as_raw_fd),
            wishes.report.as_ref().map(AsRawFd::as_raw_fd),
            wishes.trace.as_ref().map(|trace| trace.descriptor()),
            wishes.progress.as_ref().map(|shown| shown.descriptor()),
            self.remember.as_ref().and_then(|remembering| remembering.how.descriptor()),
            self.put_in.agent.as_ref().map(AsRawFd::as_raw_fd),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Has the site file opened, and agents told; `meanwhile` is done at the same time, if there is anything
    /// to do. `begins` then says whether the command begins with what is remembered of it. Or says why there
    /// is no site file.
    pub(crate) fn open_sites(
        &mut self,
        begins: &AtomicBool,
        meanwhile: Option<impl FnOnce()>,
    ) -> Result<(), String> {
        let sites = std::mem::replace(&mut self.sites, Sites::Missing);
        let (session, known) = (self.session.share(), self.installation.known.clone());
        let remember = self.remember.clone();
        let open = move || {
            let opened = sites.open(known);
            if let (Some(remember), Ok(file)) = (&remember, &opened) {
                remember.tell(&session, file.path());
            }
            session.tell_of_sites(opened.is_ok());
            if let (Some(remember), Ok(file)) = (&remember, &opened) {
                begins.store(remember.begins_cold(&session, file.path()), Ordering::Relaxed);
            }
            opened
        };
        let opened = match meanwhile {
            None => open(),
            // Where there can be no thread, one after the other.
            Some(meanwhile) => {
                let open = Mutex::new(Some(open));
                let once = || open.lock().unwrap_or_else(PoisonError::into_inner).take().map(|open| open());
                std::thread::scope(|scope| {
                    let opening = std::thread::Builder::new().spawn_scoped(scope, once);
                    let at_once = if opening.is_ok() { None } else { once() };
                    meanwhile();
                    opening.ok().and_then(|thread| thread.join().ok().flatten()).or(at_once)
                })
                .unwrap_or_else(|| Err("it was given up".to_owned()))
            }
        };
        match opened {
            Ok(file) => {
                self.sites = Sites::Open(file);
                Ok(())
            }
            Err(why) => {
                session.tell_of_sites(false);
                Err(why)
            }
        }
    }

    /// What makes the same run of the other executable, which has inherited the
    /// [descriptors](Run::descriptors) and the environment; the latter says the limits and the session's
    /// address, as to the programs: arguments are everybody's to read, and the cookie is not. A trace,
    /// progress on the terminal and limits from a command line are not handed on.
    /// `most`: words of the command, which is told of in a report only.
    pub(crate) fn words(&self, most: usize) -> Vec<OsString> {
        let number = |descriptor: Option<RawFd>| descriptor.map_or(NONE.into(), |number| number.to_string());
        let stats = match self.wishes.stats {
            None => NONE,
            Some(detail) => detail.word(),
        };
        let is_left = self.put_in.is_left;
        let switches = [(self.wishes.reasons, 'r'), (self.guesses, 'g'), (self.asks, 'a'), (is_left, 'l')];
        let switches: String = switches.iter().filter(|(on, _)| *on).map(|(_, letter)| letter).collect();
        let [remembered, executable] = Remembering::words(self.remember.as_ref());
        let mut words: Vec<OsString> = vec![
            "runahead-host".into(),
            format!("{MAGIC:x}").into(),
            format!("{}:{}", self.main_process, number(self.main.as_ref().map(AsRawFd::as_raw_fd))).into(),
            self.began.to_string().into(),
            format!("{stats}:{switches}").into(),
            number(self.wishes.report.as_ref().map(AsRawFd::as_raw_fd)).into(),
            self.sites.path().map_or(NONE.into(), |path| path.as_os_str().to_owned()),
            // As the launcher has found it: the agent's path is known to the programs by its bytes.
            self.installation.folder().into(),
            remembered,
            executable,
            number(self.put_in.agent.as_ref().map(AsRawFd::as_raw_fd)).into(),
            self.put_in.refused.as_deref().unwrap_or(NONE).into(),
        ];
        assert_eq!(words.len(), WORDS, "as many as are read");
        if self.wishes.any() {
            words.extend(program::arguments().skip(self.command).take(most).map(OsStr::to_owned));
        }
        words
    }

    /// The variable that goes with the [words](Run::words).
    pub(crate) fn variable(&self) -> (OsString, OsString) {
        (environment::SESSION.into(), self.address.to_string().into())
    }

    /// The run that this process was executed to serve, at `address`. None: these are no such words, or
    /// another version's, or the session is not there.
    ///
    /// # Safety
    /// The descriptors that the words name are this process's, and nobody else uses them.
    pub(crate) unsafe fn from_words(words: &[&OsStr], address: &OsStr) -> Option<Run> {
        let text = |at: usize| words.get(at)?.to_str();
        (u64::from_str_radix(text(1)?, 16) == Ok(MAGIC)).then_some(())?;
        let address = environment::Session::parse(address.as_bytes())?;
        let (main_process, main) = text(2)?.split_once(':')?;
        let (stats, switches) = text(4)?.split_once(':')?;
        let (main, report, agent) = (numbered(main)?, numbered(text(5)?)?, numbered(text(10)?)?);
        let session = descriptor(address.descriptor.cast_signed())?;
        let session = Session::open(session, address.cookie).ok()?;
        let place = (words.get(6)? != &NONE).then(|| PathBuf::from(words[6]));
        let sites = SiteFile::inherit(place, File::from(descriptor(address.sites.cast_signed())?)).ok()?;
        let installation = Installation::in_folder(Path::new(words.get(7)?));
        let installed = installation.identity();
        let wishes = Wishes {
            stats: Detail::of_word(stats),
            reasons: switches.contains('r'),
            report: report.and_then(descriptor).map(File::from),
            ..Wishes::NONE
        };
        Some(Run {
            session,
            sites: Sites::Open(sites.with_known(installation.known.clone())),
            installation,
            installed,
            wishes,
            limits: Limits::new(crate::Limits::from_environment()),
            guesses: switches.contains('g'),
            cold: None,
            remember: Remembering::from_words(words.get(8)?, words.get(9)?),
            command: WORDS,
            address,
            asks: switches.contains('a'),
            put_in: PutIn {
                agent: agent.and_then(descriptor),
                refused: Some(text(11)?).filter(|&why| why != NONE).map(str::to_owned),
                is_left: switches.contains('l'),
            },
            began: text(3)?.parse().ok()?,
            main: main.and_then(descriptor),
            main_process: main_process.parse().ok()?,
        })
    }
}

/// A descriptor's number, or that there is none.
fn numbered(word: &str) -> Option<Option<RawFd>> {
    if word == NONE { Some(None) } else { word.parse().ok().map(Some) }
}

/// An open descriptor of this number, which this takes over and which is not inherited any more.
fn descriptor(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: of this process alone; an error if it is not open.
    let open = number > 2 && unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
    // SAFETY: the caller's caller promises that nobody else has it.
    open.then(|| unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::fcntl_dupfd_cloexec;

    fn run() -> Run {
        let session = Session::create().unwrap();
        let sites = SiteFile::in_memory().unwrap();
        let address = environment::Session {
            host: 0,
            descriptor: session.descriptor.as_raw_fd().cast_unsigned(),
            flags: 5,
            filters: 1,
            cookie: session.cookie,
            sites: sites.descriptor().cast_unsigned(),
        };
        Run {
            session,
            sites: Sites::Open(sites),
            installation: Installation::in_folder(Path::new("/usr/bin/../lib/runahead")),
            installed: Installation::in_folder(Path::new("/usr/bin/../lib/runahead")).identity(),
            wishes: Wishes { stats: Some(Detail::Words), ..Wishes::NONE },
            limits: Limits::new(crate::Limits::default()),
            guesses: true,
            cold: None,
            remember: None,
            command: 0,
            address,
            asks: false,
            put_in: PutIn { agent: None, refused: Some("it may not".into()), is_left: true },
            began: 12,
            main: None,
            main_process: 34,
        }
    }

    /// What the other executable makes of it: it has the descriptors to itself.
    fn handed_on(run: &Run) -> Option<Run> {
        let duplicate = |number: u32| {
            // SAFETY: open as long as the run lives.
            let open = unsafe { std::os::fd::BorrowedFd::borrow_raw(number.cast_signed()) };
            std::os::fd::IntoRawFd::into_raw_fd(fcntl_dupfd_cloexec(open, 3).unwrap()).cast_unsigned()
        };
        let environment::Session { descriptor, sites, .. } = run.address;
        let address = environment::Session {
            descriptor: duplicate(descriptor),
            sites: duplicate(sites),
            ..run.address
        };
        let words = run.words(usize::MAX);
        let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
        // SAFETY: nobody else has the copies.
        unsafe { Run::from_words(&words, OsStr::new(&address.to_string())) }
    }

    #[test]
    fn another_executable_serves_the_same_run() {
        let run = run();
        let other = handed_on(&run).unwrap();
        assert_eq!(other.installation.agent, run.installation.agent);
        assert_eq!((other.began, other.main_process, other.guesses, other.asks), (12, 34, true, false));
        assert_eq!((other.session.cookie, other.address.flags), (run.session.cookie, 5));
        assert_eq!((other.put_in.refused.as_deref(), other.put_in.is_left), (Some("it may not"), true));
        assert!(other.main.is_none() && matches!(other.wishes.stats, Some(Detail::Words)));
    }

    #[test]
    fn what_programs_write_into_the_session_changes_nothing() {
        let run = run();
        // As a program may: through a mapping of its own.
        rustix::io::pwrite(&run.session.descriptor, &[0x55; 4096], 0).unwrap();
        assert!(handed_on(&run).is_some());
    }

    #[test]
    fn the_cookie_is_not_among_what_everybody_may_read() {
        let run = run();
        let (_, address) = run.variable();
        let cookie = format!("{:016x}", run.session.cookie[0]);
        assert!(address.to_string_lossy().contains(&cookie));
        assert!(run.words(usize::MAX).iter().all(|word| !word.to_string_lossy().contains(&cookie)));
    }
}
