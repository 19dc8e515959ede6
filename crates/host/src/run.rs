//! One run, as the launcher leaves it to whoever serves it: in the same process image ([`serve`](crate::serve)),
//! or as words to another executable ([`Run::words`], [`Run::from_words`]).

use crate::installation::Installation;
use crate::limits::Limits;
use crate::own_files;
use crate::program;
use crate::progress::Shown;
use crate::report::Detail;
use crate::session::Session;
use crate::start_files::Cold;
use crate::trace::Recorder;
use runahead_abi::environment;
use runahead_abi::session::MAGIC;
use runahead_sites::SiteFile;
use rustix::event::{EventfdFlags, eventfd};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

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
    pub(crate) fn reserve() -> io::Result<Sites> {
        Ok(Sites::Reserved(eventfd(0, EventfdFlags::CLOEXEC)?))
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

pub struct Run {
    pub session: Session,
    pub sites: Sites,
    pub installation: Installation,
    pub wishes: Wishes,
    pub limits: Limits,
    /// Whether files may be asked for that nobody has foretold.
    pub guesses: bool,
    /// The command, if it is not in the cache.
    pub cold: Option<Cold>,
    /// Number of the command among this process's arguments, for the report.
    pub command: usize,
    /// As the environment says it, but for the host, whose process id is known to itself.
    pub address: environment::Session,
    /// Whether the launcher asks that the agent be put into the command.
    pub asks: bool,
    /// When the run began, ns of the monotonic clock.
    pub began: u64,
    pub main: Option<OwnedFd>,
    pub main_process: u32,
}

/// Words before the command's.
const WORDS: usize = 7;

/// In the place of a number or a path.
const NONE: &str = "-";

impl Run {
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
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Has the site file opened, and agents told; `meanwhile` is done at the same time, if there is anything to do.
    /// Or says why there is no site file.
    pub(crate) fn open_sites(mut self, meanwhile: Option<impl FnOnce()>) -> Result<Run, (Run, String)> {
        let sites = std::mem::replace(&mut self.sites, Sites::Missing);
        let (session, known) = (self.session.share(), self.installation.known.clone());
        let open = move || {
            let opened = sites.open(known);
            session.tell_of_sites(opened.is_ok());
            opened
        };
        let opened = match meanwhile {
            None => open(),
            Some(meanwhile) => {
                let opening = std::thread::Builder::new().spawn(open);
                meanwhile();
                let of_a_panic = |_| Err("a panic".to_owned());
                opening
                    .map_err(|error| error.to_string())
                    .and_then(|thread| thread.join().unwrap_or_else(of_a_panic))
            }
        };
        match opened {
            Ok(file) => Ok(Run { sites: Sites::Open(file), ..self }),
            Err(why) => {
                session.tell_of_sites(false);
                Err((self, why))
            }
        }
    }

    /// What makes the same run of the other executable, which has inherited the [descriptors](Run::descriptors) and
    /// the environment; the latter says the limits. A trace, progress on the terminal and limits from a command line
    /// are not handed on.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let number = |descriptor: Option<RawFd>| descriptor.map_or(NONE.into(), |number| number.to_string());
        let stats = match self.wishes.stats {
            None => NONE,
            Some(detail) => detail.word(),
        };
        let switches = [(self.wishes.reasons, 'r'), (self.guesses, 'g'), (self.asks, 'a')];
        let switches: String = switches.iter().filter(|(on, _)| *on).map(|(_, letter)| letter).collect();
        let mut words: Vec<OsString> = vec![
            "runahead-host".into(),
            format!("{MAGIC:x}:{}", self.address).into(),
            format!("{}:{}", self.main_process, number(self.main.as_ref().map(AsRawFd::as_raw_fd))).into(),
            self.began.to_string().into(),
            format!("{stats}:{switches}").into(),
            number(self.wishes.report.as_ref().map(AsRawFd::as_raw_fd)).into(),
            self.sites.path().map_or(NONE.into(), |path| path.as_os_str().to_owned()),
        ];
        assert_eq!(words.len(), WORDS, "as many as are read");
        // It is told of in a report only.
        if self.wishes.any() {
            words.extend(program::arguments().skip(self.command).map(OsStr::to_owned));
        }
        words
    }

    /// The run that this process was executed to serve. None: these are no such words, or another version's, or the
    /// session is not there.
    ///
    /// # Safety
    /// The descriptors that the words name are this process's, and nobody else uses them.
    pub(crate) unsafe fn from_words(words: &[&OsStr]) -> Option<Run> {
        let text = |at: usize| words.get(at)?.to_str();
        let (magic, address) = text(1)?.split_once(':')?;
        let address = environment::Session::parse(address.as_bytes())?;
        (u64::from_str_radix(magic, 16) == Ok(MAGIC)).then_some(())?;
        let (main_process, main) = text(2)?.split_once(':')?;
        let (stats, switches) = text(4)?.split_once(':')?;
        let (main, report) = (numbered(main)?, numbered(text(5)?)?);
        let session = descriptor(address.descriptor.cast_signed())?;
        let session = Session::open(session, address.cookie).ok()?;
        let place = (words.get(6)? != &NONE).then(|| PathBuf::from(words[6]));
        let sites = SiteFile::inherit(place, File::from(descriptor(address.sites.cast_signed())?)).ok()?;
        let installation = Installation::find().ok()?;
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
            wishes,
            limits: Limits::new(crate::Limits::from_environment()),
            guesses: switches.contains('g'),
            cold: None,
            command: WORDS,
            address,
            asks: switches.contains('a'),
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
