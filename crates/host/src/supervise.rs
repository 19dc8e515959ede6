//! The host's loop: speculators for processes that attach, answers for agents that ask, the end.

use crate::counts::Counts;
use crate::installation::Installation;
use crate::report::Report;
use crate::session::Session;
use runahead_abi::session::{SLOTS, owner};
use runahead_sites::SiteFile;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long the host sleeps at most when nobody rings: it looks whether processes have ended. Shorter
/// while somebody is attached, since a speculator without a program is of no use.
const LOOK_ATTACHED: Duration = Duration::from_millis(50);
const LOOK_IDLE: Duration = Duration::from_millis(200);

/// How far a speculator steps back from the processor: a quarter of one that somebody else wants too.
///
/// Not the idle class. With both processors busy (load 8) grep over 9000 cold files took 0.96-1.16 s
/// alone, 0.52-0.71 s with a speculator at niceness 0, 5, 10 or 19, and **6.3-7.6 s** with one in the idle
/// class: preempted inside the kernel, it keeps what it holds (the program's mmap lock, a page that it
/// was about to read in) for as long as anybody else has anything to compute.
const SPECULATOR_NICENESS: i32 = 5;

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

/// What is to be done with the counts.
pub struct Wishes {
    pub stats: bool,
    pub report: Option<File>,
}

/// A process of the program and its speculator.
struct Attached {
    process: u32,
    handle: Option<OwnedFd>,
    speculator: Option<Child>,
}

pub struct Host {
    session: Session,
    /// Where the site file is; opened once the inherited descriptors are closed.
    site_path: PathBuf,
    sites: Option<SiteFile>,
    /// A directory to remove at the end.
    passing: Option<PathBuf>,
    installation: Installation,
    wishes: Wishes,
    command: Vec<OsString>,
    began: Instant,
    main: Option<OwnedFd>,
    attached: Vec<Option<Attached>>,
    counts: Counts,
    reported: bool,
}

impl Host {
    pub fn new(
        session: Session,
        site_path: PathBuf,
        passing: Option<PathBuf>,
        installation: Installation,
        wishes: Wishes,
        command: Vec<OsString>,
    ) -> Host {
        let attached = (0..SLOTS).map(|_| None).collect();
        let main = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).ok();
        Host {
            session,
            site_path,
            sites: None,
            passing,
            installation,
            wishes,
            command,
            began: Instant::now(),
            main,
            attached,
            counts: Counts::default(),
            reported: false,
        }
    }

    /// Serves until the command and everybody who attached have ended.
    pub fn serve(mut self) -> ! {
        self.leave_the_terminal();
        self.sites = SiteFile::open_or_create(&self.site_path).ok();
        loop {
            let doorbell = self.session.header().doorbell.load(Ordering::Acquire);
            self.answer_analysis();
            self.welcome();
            self.part();
            let main_left = self.main.as_ref().is_none_or(has_ended);
            if !self.reported && (main_left || self.session.header().main_leaves.load(Ordering::Acquire) != 0)
            {
                self.report();
            }
            if main_left && self.attached.iter().all(Option::is_none) {
                if let Some(directory) = &self.passing {
                    let _ = std::fs::remove_dir_all(directory);
                }
                std::process::exit(0)
            }
            let busy = self.attached.iter().any(Option::is_some);
            wait(&self.session.header().doorbell, doorbell, if busy { LOOK_ATTACHED } else { LOOK_IDLE });
        }
    }

    /// Own session, no standard streams (but stderr, while it is needed for the counts): whoever waits
    /// for the command's pipes to close must not wait for us.
    fn leave_the_terminal(&self) {
        let _ = rustix::process::setsid();
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            let last = if self.wishes.stats { 1 } else { 2 };
            for stream in 0..=last {
                // SAFETY: replaces a standard stream of this process; nobody here uses it.
                unsafe { libc::dup2(null.as_raw_fd(), stream) };
            }
        }
        let keep: Vec<i32> = [Some(&self.session.descriptor), self.main.as_ref()]
            .into_iter()
            .flatten()
            .map(AsRawFd::as_raw_fd)
            .chain(self.wishes.report.as_ref().map(AsRawFd::as_raw_fd))
            .collect();
        close_others(&keep);
        let _ = std::env::set_current_dir("/");
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM, libc::SIGPIPE] {
            // What ends the command must not end the report.
            // SAFETY: ignoring needs no handler.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }

    /// Analyses a file for an agent that waits.
    fn answer_analysis(&self) {
        let request = &self.session.header().analysis;
        if request.state.load(Ordering::Acquire) != 1 {
            return;
        }
        let bytes: Vec<u8> =
            request.path.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let length = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        use std::os::unix::ffi::OsStrExt;
        if let Some(sites) = &self.sites {
            let _ = sites.ensure(Path::new(std::ffi::OsStr::from_bytes(&bytes[..length])));
        }
        request.state.store(2, Ordering::Release);
        wake(&request.state);
    }

    /// Starts speculators for processes that have attached.
    fn welcome(&mut self) {
        for index in 0..SLOTS {
            let process = self.session.header().owners[index].load(Ordering::Acquire);
            if process == owner::FREE || process == owner::CLOSING || self.attached[index].is_some() {
                continue;
            }
            // The same process again: it has executed another program.
            for earlier in 0..SLOTS {
                if self.attached[earlier].as_ref().is_some_and(|a| a.process == process) {
                    self.dismiss(earlier);
                }
            }
            let handle =
                Pid::from_raw(process as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            let speculator = handle.is_some().then(|| self.start_speculator(process, index)).flatten();
            self.attached[index] = Some(Attached { process, handle, speculator });
        }
    }

    fn start_speculator(&self, process: u32, slot: usize) -> Option<Child> {
        let session = self.session.descriptor.as_raw_fd();
        let mut command = Command::new(&self.installation.speculator);
        command
            .arg(process.to_string())
            .arg(slot.to_string())
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: runs in the child between fork and exec: only system calls, no allocation.
        unsafe {
            command.pre_exec(move || {
                const SESSION_DESCRIPTOR: i32 = 3;
                if session == SESSION_DESCRIPTOR {
                    libc::fcntl(session, libc::F_SETFD, 0);
                } else if libc::dup2(session, SESSION_DESCRIPTOR) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                step_back();
                libc::syscall(libc::SYS_close_range, 4, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
                Ok(())
            });
        }
        command.spawn().ok()
    }

    /// Parts with processes that have ended.
    fn part(&mut self) {
        for index in 0..SLOTS {
            let ended = match &mut self.attached[index] {
                None => continue,
                Some(attached) => {
                    if let Some(child) = &mut attached.speculator {
                        // A speculator that has ended by itself or been killed: the program goes on
                        // plainly.
                        let _ = child.try_wait();
                    }
                    attached.handle.as_ref().is_none_or(has_ended)
                }
            };
            if ended {
                self.dismiss(index);
            }
        }
    }

    /// Ends the speculator of a slot, adds its counts, frees the slot.
    fn dismiss(&mut self, index: usize) {
        let Some(mut attached) = self.attached[index].take() else {
            return;
        };
        let owner = &self.session.header().owners[index];
        owner.store(owner::CLOSING, Ordering::Release);
        if let Some(child) = &mut attached.speculator {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.counts.add(self.session.slot(index));
        if self.session.clear_slot(index).is_ok() {
            owner.store(owner::FREE, Ordering::Release);
        }
    }

    fn report(&mut self) {
        self.reported = true;
        if self.wishes.stats || self.wishes.report.is_some() {
            let mut counts = self.counts.clone();
            for (index, attached) in self.attached.iter().enumerate() {
                if attached.is_some() {
                    counts.add(self.session.slot(index));
                }
            }
            let report = Report {
                version: 1,
                command: self.command.iter().map(|part| part.to_string_lossy().into_owned()).collect(),
                elapsed_ns: self.began.elapsed().as_nanos() as u64,
                plainly_because: None,
                counts,
            };
            if self.wishes.stats {
                eprint!("{}", report.to_text());
            }
            if let Some(mut file) = self.wishes.report.take() {
                let json = serde_json::to_string_pretty(&report).unwrap_or_default();
                let _ = writeln!(file, "{json}");
            }
            if let Ok(null) = File::options().write(true).open("/dev/null") {
                // SAFETY: as in `leave_the_terminal`.
                unsafe { libc::dup2(null.as_raw_fd(), 2) };
            }
        }
        let header = self.session.header();
        header.reported.store(1, Ordering::Release);
        wake(&header.reported);
    }
}

/// Closes every descriptor but the standard ones and `keep`.
fn close_others(keep: &[i32]) {
    let mut sorted = keep.to_vec();
    sorted.sort_unstable();
    let mut next = 3;
    for &fd in &sorted {
        close_range(next, fd - 1);
        next = fd + 1;
    }
    close_range(next, i32::MAX);
}

fn close_range(first: i32, last: i32) {
    if first <= last {
        // SAFETY: descriptors that nobody in this process uses any more.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut set = [PollFd::new(process, PollFlags::IN)];
    matches!(poll(&mut set, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
}

fn wait(word: &AtomicU32, expected: u32, longest: Duration) {
    let time = rustix::thread::futex::Timespec {
        tv_sec: longest.as_secs() as i64,
        tv_nsec: i64::from(longest.subsec_nanos()),
    };
    let _ = rustix::thread::futex::wait(word, rustix::thread::futex::Flags::empty(), expected, Some(&time));
}

fn wake(word: &AtomicU32) {
    let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), u32::MAX >> 1);
}
