//! The pool: threads that wait for the disk, so that nobody else has to.
//!
//! Jobs stand in *lines*, one for each device, in the order in which the manager put them. A thread takes
//! the next job of a device that may have one more request in flight; each job has one request in flight
//! at a time, so the number of jobs that run is the number in flight. How many a device may have is found by
//! its [`Device`], whose intervals end as jobs do, under the pool's one lock.
//!
//! Why threads: see docs/hints.md for what `readahead`, `posix_fadvise`, io_uring and threads took on each
//! file system. A thread is started when a job could run and all others wait for the disk, up to
//! [`THREADS`], and ends when it has had nothing to do for a while.

use crate::carry::{self, Failure, Fetched, File, Hole};
use crate::intake::Lookup;
use crate::usage::Own;
use runahead_prefetch::device::Device;
use runahead_prefetch::hint::{Hint, Subject};
use runahead_prefetch::{CHUNK_PAGES, PAGE};
use rustix::fd::AsFd;
use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most threads, hence most requests in flight of one program: twice what a cloud volume serves at once.
pub const THREADS: usize = 128;

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(2);

/// Devices with a line of their own; further ones share the last.
const LINES: usize = 8;

/// Virtual; some pages of it are used.
const STACK: usize = 128 << 10;

/// Names that one listing may bring.
const MOST_ENTRIES: usize = 4096;

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Work {
    /// Open a file, and fetch bytes `offset..offset + length`, as far as the job's pages go.
    Open {
        path: CString,
        offset: u64,
        length: u64,
    },
    Fetch {
        file: Arc<File>,
        first: u64,
        pages: u64,
    },
    Memory {
        /// The manager's number of the hint.
        number: u32,
        address: u64,
        length: u64,
    },
    Name {
        path: CString,
        lookup: Lookup,
    },
    Release {
        path: CString,
        offset: u64,
        length: u64,
    },
}

#[derive(Clone, Debug)]
pub struct Job {
    /// The manager's number of the file, if it is for one.
    pub entry: u32,
    /// Pages that it may bring, at most.
    pub pages: u64,
    /// Its hint's.
    pub token: u64,
    pub work: Work,
}

/// What came of a job.
#[derive(Debug)]
pub struct Done {
    pub entry: u32,
    /// As its job had it.
    pub pages: u64,
    pub file: Option<Arc<File>>,
    pub fetched: Fetched,
    /// Pages of the hint that a first chunk left over: first and count.
    pub rest: (u64, u64),
    pub released: u64,
    pub names: Vec<Vec<u8>>,
    /// Memory that is not there, of the hint with this number.
    pub hole: Option<(u32, Hole)>,
    pub failure: Option<Failure>,
}

impl Done {
    /// Nothing came of it, so far.
    fn of(job: &Job) -> Done {
        Done {
            entry: job.entry,
            pages: job.pages,
            file: None,
            fetched: Fetched::default(),
            rest: (0, 0),
            released: 0,
            names: Vec::new(),
            hole: None,
            failure: None,
        }
    }
}

/// A device and its line. Device 0 is for what has none: memory, names on unknown devices.
#[derive(Debug)]
pub struct Line {
    pub id: u64,
    pub device: Device,
    jobs: VecDeque<Job>,
    running: u32,
    /// This program's part, while others use the device too.
    pub share: Option<u32>,
}

impl Line {
    /// Jobs that may run at once.
    pub fn allowed(&self) -> u32 {
        self.share.unwrap_or_else(|| self.device.allowance())
    }

    /// Nothing waits and nothing runs.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.running == 0
    }

    pub fn waiting(&self) -> usize {
        self.jobs.len()
    }

    pub fn running(&self) -> u32 {
        self.running
    }
}

#[derive(Debug, Default)]
pub struct State {
    pub lines: Vec<Line>,
    done: Vec<Done>,
    threads: usize,
    idle: usize,
    running: u32,
    pub most_running: u32,
    next_line: usize,
}

impl State {
    /// Something waits, runs, or is done and not yet collected. (A job may be done before the manager that gave it
    /// gets to looking: on a busy machine it is, and a manager that sleeps then never learns of it.)
    pub fn is_working(&self) -> bool {
        !self.done.is_empty() || self.lines.iter().any(|line| !line.is_idle())
    }

    /// The line of a device.
    pub fn line(&mut self, id: u64) -> &mut Line {
        let at = match self.lines.iter().position(|line| line.id == id) {
            Some(at) => at,
            None if self.lines.len() < LINES => {
                let device = Device::new();
                self.lines.push(Line { id, device, jobs: VecDeque::new(), running: 0, share: None });
                self.lines.len() - 1
            }
            None => LINES - 1,
        };
        &mut self.lines[at]
    }

    /// A thread could not be started. If there is none at all, nobody will do what waits: it has failed, or the
    /// manager would look for its results for ever.
    fn without_a_thread(&mut self) {
        self.threads -= 1;
        if self.threads == 0 {
            let waiting = self.lines.iter_mut().flat_map(|line| line.jobs.drain(..));
            let failure = Some(Failure::Unreadable);
            self.done.extend(waiting.map(|job| Done { failure, ..Done::of(&job) }));
        }
    }

    /// A line whose next job may run.
    fn runnable(&self, most: u32) -> Option<usize> {
        if self.running >= most {
            return None;
        }
        let count = self.lines.len();
        (0..count).map(|step| (self.next_line + step) % count).find(|&at| {
            let line = &self.lines[at];
            !line.jobs.is_empty() && line.running < line.allowed()
        })
    }
}

#[derive(Debug)]
pub struct Pool {
    state: Mutex<State>,
    work: Condvar,
    /// Requests in flight at all devices together.
    most: u32,
    began: Instant,
    stack: usize,
    pub own: Own,
}

impl Pool {
    pub fn new(most: u32) -> Arc<Pool> {
        Self::with_stacks(most, STACK)
    }

    fn with_stacks(most: u32, stack: usize) -> Arc<Pool> {
        Arc::new(Pool {
            stack,
            state: Mutex::default(),
            work: Condvar::new(),
            most: most.clamp(1, THREADS as u32),
            began: Instant::now(),
            own: Own::default(),
        })
    }

    /// Nanoseconds since the pool began.
    pub fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts jobs into a device's line and sees to threads. Must be called by a thread with descriptors of its own,
    /// which the pool's threads then share.
    pub fn put(self: &Arc<Self>, device: u64, jobs: impl Iterator<Item = Job>) {
        let mut state = self.lock();
        state.line(device).jobs.extend(jobs);
        let runnable: usize = state
            .lines
            .iter()
            .map(|line| line.jobs.len().min(line.allowed().saturating_sub(line.running) as usize))
            .sum::<usize>()
            .min(self.most.saturating_sub(state.running) as usize);
        let missing = runnable
            .saturating_sub(state.idle)
            .min(self.most as usize - state.threads.min(self.most as usize));
        let wake = runnable.min(state.idle);
        state.threads += missing;
        drop(state);
        (0..wake).for_each(|_| self.work.notify_one());
        for _ in 0..missing {
            let pool = Arc::clone(self);
            let builder = std::thread::Builder::new().name("runahead".into()).stack_size(self.stack);
            if builder.spawn(move || pool.serve()).is_err() {
                // No more threads to be had: those that are there do the work.
                self.lock().without_a_thread();
            }
        }
    }

    /// Takes back what waits in the lines, as far as it is meant.
    pub fn withdraw(&self, is_meant: impl Fn(&Job) -> bool) -> Vec<Job> {
        let mut withdrawn = Vec::new();
        for line in &mut self.lock().lines {
            let (meant, others) = line.jobs.drain(..).partition(&is_meant);
            line.jobs = others;
            withdrawn.extend::<VecDeque<Job>>(meant);
        }
        withdrawn
    }

    /// What has been done since the last time.
    pub fn collect(&self) -> Vec<Done> {
        std::mem::take(&mut self.lock().done)
    }

    fn serve(&self) {
        crate::global::becomes_ours();
        carry::lower_priority();
        let mut meter = crate::usage::Meter::new();
        let mut state = self.lock();
        loop {
            let Some(at) = state.runnable(self.most) else {
                state.idle += 1;
                let (woken, time) =
                    self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
                state = woken;
                state.idle -= 1;
                if time.timed_out() && state.runnable(self.most).is_none() {
                    state.threads -= 1;
                    drop(state);
                    meter.settle(&self.own);
                    return;
                }
                continue;
            };
            state.next_line = at + 1;
            let Some(job) = state.lines[at].jobs.pop_front() else { continue };
            state.running += 1;
            state.most_running = state.most_running.max(state.running);
            let line = &mut state.lines[at];
            let id = line.id;
            line.running += 1;
            let alone = line.running == 1;
            line.device.sent();
            drop(state);

            let mut done = Done::of(&job);
            let asked_at = self.carry_out(job.work, &mut done);
            meter.worked(&self.own);

            let now = self.now();
            state = self.lock();
            state.running -= 1;
            let line = state.line(id);
            line.running -= 1;
            // What the cache had, and what came to nothing, tells nothing about the device; a name may or
            // may not have been cached, so it counts if it took longer than any cache.
            let more = !line.jobs.is_empty();
            let real = done.fetched.asked > 0 || now.saturating_sub(asked_at) > 30_000;
            if real && done.failure.is_none() {
                line.device.completed(asked_at, now, alone, more);
            } else {
                line.device.abandoned();
            }
            state.done.push(done);
        }
    }

    /// Does it; returns when the device was asked.
    fn carry_out(&self, work: Work, done: &mut Done) -> u64 {
        let mut asked_at = self.now();
        match work {
            Work::Open { path, offset, length } => match carry::open(&path) {
                Ok(file) => {
                    asked_at = self.now();
                    match Hint::segment(Subject::File(0), offset, length, file.size, 0) {
                        Ok(hint) => {
                            let pages = hint.pages.min(done.pages);
                            done.fetched = carry::fetch(file.descriptor.as_fd(), hint.first, pages);
                            done.rest = (hint.first + pages, hint.pages - pages);
                        }
                        Err(_) => done.failure = Some(Failure::BehindEnd),
                    }
                    done.file = Some(Arc::new(file));
                }
                Err(failure) => done.failure = Some(failure),
            },
            Work::Fetch { file, first, pages } => {
                done.fetched = carry::fetch(file.descriptor.as_fd(), first, pages);
                done.file = Some(file);
            }
            Work::Memory { number, address, length } => {
                let (fetched, hole) = carry::fetch_memory(address, length.min(CHUNK_PAGES * PAGE));
                done.fetched = fetched;
                done.hole = hole.map(|hole| (number, hole));
            }
            Work::Name { path, lookup } => match carry::look_up(&path, lookup, MOST_ENTRIES) {
                Ok(names) => done.names = names,
                Err(failure) => done.failure = Some(failure),
            },
            Work::Release { path, offset, length } => match carry::open(&path) {
                Ok(file) => done.released = carry::release(&file, offset, length),
                Err(failure) => done.failure = Some(failure),
            },
        }
        asked_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_thread_is_to_be_had_what_waits_has_failed() {
        // No address space has room for such a stack.
        let pool = Pool::with_stacks(2, 1 << 60);
        let work = Work::Memory { number: 1, address: 4096, length: 4096 };
        pool.put(1, (0..5).map(|entry| Job { entry, pages: 1, token: 0, work: work.clone() }));
        let done = pool.collect();
        assert_eq!(done.len(), 5);
        assert!(done.iter().all(|done| done.failure == Some(Failure::Unreadable)));
        assert!(!pool.lock().is_working());
    }

    #[test]
    fn what_is_done_and_not_collected_is_work() {
        let pool = Pool::new(1);
        let work = Work::Release { path: c"/not/there".into(), offset: 0, length: 0 };
        pool.put(1, std::iter::once(Job { entry: 0, pages: 0, token: 0, work }));
        while pool.lock().lines.iter().any(|line| !line.is_idle()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(pool.lock().is_working());
        assert_eq!(pool.collect().len(), 1);
        assert!(!pool.lock().is_working());
    }
}
