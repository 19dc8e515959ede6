//! Programs that watch who opens files (inotify(7), fanotify(7)) and whose calls nobody sees.
//!
//! A program that is helped says itself that it begins to watch, before it does (`agent::attach::watches`).
//! One that is left alone does not, so it is looked at by its descriptors: whoever was left alone in the run
//! ([`runahead_abi::session::Unseen`]), and the processes from which one has come that something is to be
//! opened for. A watch that begins after a look, and before the next, is missed.

use crate::futex::wake;
use crate::processes::{Stat, has_session};
use crate::run::Run;
use runahead_abi::environment::flags;
use runahead_abi::release::{SEEN_BY_FANOTIFY, SEEN_BY_INOTIFY, What};
use runahead_abi::session::Header;
use runahead_gate::Gate;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Processes above one that are looked at, at most.
const ABOVE_MOST: usize = 32;

/// Processes of which is kept when they were looked at.
const KEPT_MOST: usize = 256;

/// A process is not looked at again before so many times as long as that has taken: it may have thousands of
/// descriptors, and who watches for changes tells of each file.
const REST: u32 = 50;

/// But who is left alone and took no longer than this is looked at whenever something is to be opened.
const SHORT: Duration = Duration::from_micros(100);

/// And who has said that it is left alone, if it has no more descriptors and watches than this. (By time alone
/// it was now looked at and now not: looks at one program took 0.04 to 0.13 ms.)
const FEW: usize = 64;

/// How often at most those are looked at that were left alone.
const UNSEEN_EVERY: Duration = Duration::from_millis(5);

/// Who is looked for. All copies share what they know.
#[derive(Clone)]
pub(crate) struct Watchers(Arc<Shared>);

struct Shared {
    header: &'static Header,
    gate: Gate,
    /// The command, and when it was started, as [`Stat::start`]: who is older is nobody of the run's.
    main: u32,
    began: Option<u64>,
    /// Nobody is to be looked at (any more).
    is_over: AtomicBool,
    looked: Mutex<Looked>,
}

/// When processes were looked at.
#[derive(Default)]
struct Looked {
    each: HashMap<u32, Look>,
    /// When those may be again that were left alone.
    next: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Look {
    start: u64,
    next: Instant,
    /// It has said that it is left alone, and may have us in its memory all the same.
    is_left: bool,
    /// Nobody sees its calls.
    is_unseen: bool,
}

impl Watchers {
    /// Those of the run. Where all of a user's programs are served nobody goes without for one that watches.
    pub(crate) fn of(run: &Run, gate: Gate) -> Watchers {
        let (header, main) = (run.session.share().header(), run.main_process);
        let is_lasting = run.address.flags & flags::LASTING != 0;
        let began = Stat::of(main).ok().map(|told| told.start);
        let is_over = AtomicBool::new(is_lasting || began.is_none());
        Watchers(Arc::new(Shared { header, gate, main, began, is_over, looked: Mutex::default() }))
    }

    /// Nobody is looked at any more.
    pub(crate) fn end(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }

    /// Looks at those that were left alone, at `process` and at those from which it has come, before something
    /// is opened for it. If one watches nothing is opened from now on.
    pub(crate) fn look_above(&self, process: u32) {
        self.look_at_all_unseen();
        let mut next = process;
        for _ in 0..ABOVE_MOST {
            if !self.are_wanted() {
                return;
            }
            let Ok(told) = Stat::of(next) else { return };
            // Who takes the run's orphans in is older.
            if !self.is_of_the_run(&told) {
                return;
            }
            self.look_at(next, told.start, false);
            if next == self.0.main {
                return;
            }
            next = told.parent;
        }
    }

    /// Looks at those that were left alone, if it is time.
    pub(crate) fn look_at_unseen(&self) {
        if !self.are_wanted() {
            return;
        }
        let began = Instant::now();
        if self.looked().next.is_some_and(|next| began < next) {
            return;
        }
        self.look_at_all_unseen();
        self.looked().next = Some(Instant::now() + UNSEEN_EVERY.max(began.elapsed() * REST));
    }

    fn look_at_all_unseen(&self) {
        for place in &self.0.header.unseen.0 {
            let process = place.load(Ordering::Relaxed);
            if process == 0 || !self.are_wanted() {
                continue;
            }
            // Anybody may have written there.
            match Stat::of(process) {
                Ok(told) if self.is_of_the_run(&told) => self.look_at(process, told.start, true),
                Err(error) if !is_gone(&error) => {}
                _ => drop(place.compare_exchange(process, 0, Ordering::Relaxed, Ordering::Relaxed)),
            }
        }
        let began = Instant::now();
        let looked = self.looked();
        let found = looked.each.iter().filter(|(_, look)| look.is_unseen && look.next <= began);
        let found: Vec<u32> = found.map(|(&process, _)| process).collect();
        drop(looked);
        for process in found {
            match Stat::of(process) {
                Ok(told) if self.is_of_the_run(&told) => self.look_at(process, told.start, false),
                Err(error) if !is_gone(&error) => {}
                _ => drop(self.looked().each.remove(&process)),
            }
        }
    }

    fn are_wanted(&self) -> bool {
        !self.0.is_over.load(Ordering::Relaxed) && !self.0.gate.is_watched()
    }

    fn is_of_the_run(&self, told: &Stat) -> bool {
        self.0.began.is_some_and(|began| told.start >= began)
    }

    fn looked(&self) -> std::sync::MutexGuard<'_, Looked> {
        self.0.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a process, if it is time. `is_left`: as [`Look::is_left`].
    fn look_at(&self, process: u32, start: u64, is_left: bool) {
        let now = Instant::now();
        let earlier = self.looked().each.get(&process).filter(|look| look.start == start).copied();
        // How it was found before it said that it is left alone tells nothing of what it does since.
        let is_news = is_left && earlier.is_some_and(|look| !look.is_left);
        if !is_news && earlier.is_some_and(|look| now < look.next) {
            return;
        }
        let is_left = is_left || earlier.is_some_and(|look| look.is_left);
        let is_unseen = is_left || has_session(process) == Some(false);
        let Descriptors { lines, watch: does } = if is_unseen {
            // To look means to hold for a moment what it has open.
            let Some(_pass) = self.0.gate.pass_to_our_own(What::All) else { return };
            Descriptors::of(process).unwrap_or_default()
        } else {
            Descriptors::default()
        };
        let took = now.elapsed();
        let is_short = is_unseen && took <= SHORT || is_left && lines <= FEW;
        let rest = if is_short { Duration::ZERO } else { took * REST };
        let mut looked = self.looked();
        if looked.each.len() >= KEPT_MOST {
            looked.each.retain(|_, look| look.is_unseen || look.next > now);
        }
        if looked.each.len() < KEPT_MOST {
            looked.each.insert(process, Look { start, next: now + took + rest, is_left, is_unseen });
        }
        drop(looked);
        if does {
            self.0.header.releasing.begins_to_watch();
            self.0.header.doorbell.fetch_add(1, Ordering::Release);
            wake(&self.0.header.doorbell);
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// What is told of a process's descriptors.
#[derive(Default)]
struct Descriptors {
    /// A line for each, and for each watch.
    lines: usize,
    /// By one of them it is told who opens files.
    watch: bool,
}

impl Descriptors {
    /// Looks up to the first by which it is told. An error if it may not be looked into.
    fn of(process: u32) -> io::Result<Descriptors> {
        /// Bytes of what is told of one descriptor: of a thousand watches.
        const MOST: u64 = 128 << 10;
        let directory = Path::new("/proc").join(process.to_string());
        let mut lines = 0;
        for entry in fs::read_dir(directory.join("fd"))? {
            let entry = entry?;
            lines += 1;
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            if !matches!(
                target.as_os_str().as_encoded_bytes(),
                b"anon_inode:inotify" | b"anon_inode:[fanotify]"
            ) {
                continue;
            }
            let mut told = String::new();
            if let Ok(file) = fs::File::open(directory.join("fdinfo").join(entry.file_name())) {
                // What is cut off ends in a line that is not whole.
                let _ = file.take(MOST).read_to_string(&mut told);
            }
            if told.lines().any(is_seen_by) {
                return Ok(Descriptors { lines, watch: true });
            }
            lines += told.lines().count();
        }
        Ok(Descriptors { lines, watch: false })
    }
}

/// Whether a line of `/proc/<pid>/fdinfo/<fd>` is a mark of one who is told of openings (the kernel's
/// Documentation/filesystems/proc.rst).
fn is_seen_by(line: &str) -> bool {
    let Some((kind, _)) = line.split_once(' ') else { return false };
    let seen = match kind {
        "inotify" => u64::from(SEEN_BY_INOTIFY),
        "fanotify" => SEEN_BY_FANOTIFY,
        _ => return false,
    };
    let mask = line.split(' ').find_map(|field| field.strip_prefix("mask:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & seen != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn lines_of_marks_tell_who_watches() {
        assert!(is_seen_by("inotify wd:1 ino:2 sdev:3 mask:20 ignored_mask:0"));
        assert!(!is_seen_by("inotify wd:1 ino:2 sdev:3 mask:2 ignored_mask:20"));
        assert!(
            !is_seen_by("inotify wd:3 ino:9e7e sdev:80 mask:800fce ignored_mask:0 fhandle-bytes:8"),
            "changes"
        );
        assert!(is_seen_by("fanotify mnt_id:12 mflags:0 mask:10000 ignored_mask:0"));
        assert!(is_seen_by("fanotify ino:4f9 sdev:8 mflags:0 mask:1 ignored_mask:20 fhandle-bytes:8"));
        assert!(is_seen_by("fanotify sdev:800013 mflags:0 mask:20 ignored_mask:0"));
        assert!(!is_seen_by("fanotify sdev:800013 mflags:40 mask:0 ignored_mask:20"));
        assert!(!is_seen_by("fanotify flags:10 event-flags:20") && !is_seen_by("pos:\t0") && !is_seen_by(""));
    }

    #[test]
    fn who_watches_is_found() {
        let us = std::process::id();
        let watches = || Descriptors::of(us).map(|told| told.watch).unwrap();
        assert!(!watches());
        // SAFETY: takes no pointer.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_CLOEXEC) };
        assert!(descriptor >= 0 && !watches(), "it watches nothing yet");
        let place = CString::new("/").unwrap();
        // SAFETY: a string that lives as long as the call.
        assert!(unsafe { libc::inotify_add_watch(descriptor, place.as_ptr(), libc::IN_OPEN) } > 0);
        assert!(watches());
        // SAFETY: as above, twice for one directory, and for another.
        let added = [c"/", c"/proc"]
            .map(|place| unsafe { libc::inotify_add_watch(descriptor, place.as_ptr(), libc::IN_CREATE) });
        let alone = Descriptors::of(us).unwrap();
        assert!(added.iter().all(|&watch| watch > 0) && !alone.watch && alone.lines >= 6, "{}", alone.lines);
        // SAFETY: ours.
        unsafe { libc::close(descriptor) };
        assert!(Descriptors::of(u32::MAX >> 1).is_err_and(|error| is_gone(&error)));
    }
}
