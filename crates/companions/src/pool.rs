//! The threads: one takes in where the program has waited (it opens and lists directories, which may wait for the disk),
//! the others ask for files. They are made when they are needed, and sleep.

use crate::choice::{Choice, File};
use crate::cousins::{self, Level, What};
use crate::disks::{Ask, Disks};
use crate::files::{self, Asked, Even, Place, Wait};
use runahead_abi::release::What as Given;
use runahead_abi::release::What::{All, Files};
use runahead_gate::{Gate, Pass};
use runahead_names::look;
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Threads that ask. Each waits for a directory entry or an inode at a time.
const THREADS: usize = 16;

/// Bytes of a thread's stack; a listing's buffer is 32 KiB of it.
const STACK: usize = 128 * 1024;

/// How long a thread sleeps before it goes: each takes some 30 KB of the program's memory control group.
const IDLE_MOST: Duration = Duration::from_secs(1);

/// Waits that have not been taken in; more are dropped, as the program is past the oldest then.
const WAITS: usize = 64;

/// A directory that is open, counted until it is closed.
struct Directory(OwnedFd, #[expect(dead_code, reason = "dropped behind the descriptor")] Pass);

enum Job {
    /// A file of this directory, as that lists it.
    File { directory: Arc<Directory>, file: File, name: CString },
    /// A cousin: what to ask for in the directory that `below` leads to from `above`.
    Cousin { above: Arc<Directory>, device: u64, id: cousins::Id, below: Vec<CString>, what: What },
}

impl Job {
    fn device(&self) -> u64 {
        match self {
            Job::File { file, .. } => file.device,
            Job::Cousin { device, .. } => *device,
        }
    }
}

/// What the first thread takes in.
enum News {
    /// A process has waited for a file.
    Waited(u32, Place),
    /// More cousins may be asked for, as the process has used some.
    Used(u32, cousins::Id),
}

#[derive(Default)]
struct State {
    choice: Choice,
    disks: Disks,
    jobs: VecDeque<Job>,
    /// Threads that open or list something now.
    busy: usize,
    threads: usize,
    /// Threads that sleep, and those of them that have been called.
    sleeping: usize,
    called: usize,
    /// How often all was stopped: what was begun before is not to go on.
    stops: u64,
    /// As [`Gate::generation`] was when this was last looked at.
    generation: u32,
    ending: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    called: Condvar,
    idle: Condvar,
    gate: Gate,
}

/// What is of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// The files that the program waits for.
    Waits,
    /// Those, and all that it begins to read.
    Begun,
    Nothing,
}

/// Asks for the companions of what programs wait for. Nothing here waits for a disk but the threads.
#[derive(Default)]
pub struct Companions {
    shared: Arc<Shared>,
    news: Option<SyncSender<(News, u64)>>,
}

impl Companions {
    /// Whatever is opened goes through `gate`.
    pub fn new(gate: Gate) -> Companions {
        Companions { shared: Arc::new(Shared { gate, ..Shared::default() }), news: None }
    }

    /// The process has waited for the first bytes of the file at `path` (absolute; as it says), or, where it says
    /// nothing, behind its descriptor. That is to be called while it still waits: it may close the file
    /// afterwards. `generation`: the gate's as it may have said so. True if that may lead to guesses.
    pub fn waited(&mut self, process: u32, descriptor: i32, path: &[u8], generation: u32) -> bool {
        self.shared.lock().choice.counts_wait();
        let Some(_pass) = self.shared.gate.pass(Files) else { return false };
        if self.shared.gate.generation() != generation {
            return false;
        }
        let Some(place) = files::place(process, descriptor, path) else { return false };
        let more = self.used(place.file);
        self.tell(News::Waited(process, place), generation);
        if let Some(more) = more {
            self.goes_on(process, more, generation);
        }
        true
    }

    /// A program begins to read a file. What to hand to [`Companions::goes_on`] then.
    pub fn used(&self, file: File) -> Option<cousins::Id> {
        self.shared.lock().choice.used(file)
    }

    /// More cousins of what the process reads may be asked for. `generation`: as for [`Companions::waited`].
    pub fn goes_on(&mut self, process: u32, more: cousins::Id, generation: u32) {
        if !self.tell(News::Used(process, more), generation) {
            self.shared.lock().choice.cousins.not_told(more);
        }
    }

    /// False if nobody will take it in.
    fn tell(&mut self, news: News, generation: u32) -> bool {
        if self.news.is_none() {
            let (sender, receiver) = sync_channel(WAITS);
            let shared = self.shared.clone();
            let intake = thread::Builder::new().name("runahead-beside".into()).stack_size(STACK);
            if intake.spawn(move || shared.take_in(&receiver)).is_ok() {
                self.news = Some(sender);
            }
        }
        let Some(sender) = &self.news else { return false };
        let state = self.shared.lock();
        state.generation == generation && sender.try_send((news, state.stops)).is_ok()
    }

    /// Files asked for so far, and those of them that programs have begun to read.
    pub fn counts(&self) -> (u64, u64) {
        self.shared.lock().choice.counts()
    }

    /// What it wants to know of a program that has lately waited.
    pub fn wants(&self) -> Wants {
        let choice = &self.shared.lock().choice;
        match (choice.is_hopeless(), choice.is_open()) {
            (true, _) => Wants::Nothing,
            (false, true) => Wants::Begun,
            (false, false) => Wants::Waits,
        }
    }

    /// Forgets what was to be asked for and waits, at most so long, until nothing is held open. True if so.
    pub fn stop(&self, longest: Duration) -> bool {
        let mut state = self.shared.lock();
        state.forget_all();
        let stopped = self.shared.idle.wait_timeout_while(state, longest, |state| {
            state.drop_jobs();
            state.busy > 0
        });
        !stopped.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// A program gives a file system back: forgets what was to be asked for. What is under way ends by itself.
    pub fn let_go(&self) {
        self.shared.lock().forget_all();
    }
}

impl State {
    /// What was begun is not to go on.
    fn forget_all(&mut self) {
        self.stops += 1;
        self.drop_jobs();
    }

    fn drop_jobs(&mut self) {
        for job in std::mem::take(&mut self.jobs) {
            self.is_dropped(&job);
        }
    }

    /// A job that was chosen is not done.
    fn is_dropped(&mut self, job: &Job) {
        match job {
            Job::File { file, .. } => self.choice.not_asked(*file),
            Job::Cousin { id, what: What::Named(_), .. } => self.choice.cousins.not_asked(*id),
            Job::Cousin { id, what: What::Ending(_), .. } => self.choice.cousins.not_listed(*id),
        }
    }

    /// The first job that may be done now. Those on disks that are not worth it are dropped.
    fn next_job(&mut self) -> Option<(Job, Wait)> {
        let mut at = 0;
        while let Some(job) = self.jobs.get(at) {
            match self.disks.ask(job.device()) {
                Ask::AndGoOn => return Some((self.jobs.remove(at)?, Wait::No)),
                Ask::AndWait => return Some((self.jobs.remove(at)?, Wait::ForTheBeginning)),
                Ask::Later => at += 1,
                Ask::Never => {
                    let job = self.jobs.remove(at)?;
                    self.is_dropped(&job);
                }
            }
        }
        None
    }
}

impl Drop for Companions {
    fn drop(&mut self) {
        self.shared.lock().ending = true;
        self.shared.called.notify_all();
    }
}

impl Shared {
    /// A panic in another thread leaves counts that are off, no more.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.gate.generation();
        if std::mem::replace(&mut state.generation, generation) != generation {
            state.forget_all();
        }
        state
    }

    /// A pass for what was begun as it had been stopped so often.
    fn pass(&self, what: Given, stops: u64) -> Option<Pass> {
        let pass = self.gate.pass(what)?;
        (self.lock().stops == stops).then_some(pass)
    }

    fn take_in(self: Arc<Self>, news: &Receiver<(News, u64)>) {
        while let Ok((news, stops)) = news.recv() {
            let is_stopped = self.lock().stops != stops;
            // One may have been taken since the last time. (Asked before we are busy, and without the lock: the
            // kernel may let us wait for a grace period of RCU, 4 to 14 ms, and a program that ends meanwhile is
            // not to wait for that.)
            let may_ask = !is_stopped && !files::leases();
            {
                let mut state = self.lock();
                if !may_ask || state.stops != stops {
                    if let News::Used(_, id) = news {
                        state.choice.cousins.not_told(id);
                    }
                    continue;
                }
                state.busy += 1;
            }
            match news {
                News::Waited(process, place) => {
                    self.take(process, &place, stops);
                    self.take_levels(process, &place, stops);
                }
                News::Used(process, id) => {
                    if self.choose_cousins(process, id, None, stops).is_none() {
                        self.lock().choice.cousins.not_told(id);
                    }
                }
            }
            self.done_with_one(&mut self.lock());
        }
    }

    /// The program has waited for a file: its cousins, near and far.
    fn take_levels(self: &Arc<Self>, process: u32, place: &Place, stops: u64) {
        for level in Level::of(&place.directory) {
            let ids = {
                let mut state = self.lock();
                if state.stops != stops || state.disks.is_left(place.file.device) {
                    return;
                }
                state.choice.cousins.waited(place.file.device, level, &place.name)
            };
            for id in ids {
                let _ = self.choose_cousins(process, id, Some(level.sibling), stops);
            }
        }
    }

    /// Asks for more cousins, those behind the directory `beside` first. None: they were not even chosen.
    fn choose_cousins(
        self: &Arc<Self>,
        process: u32,
        id: cousins::Id,
        beside: Option<&[u8]>,
        stops: u64,
    ) -> Option<()> {
        let pass = self.pass(All, stops)?;
        let place = self
            .lock()
            .choice
            .cousins
            .place(id)
            .map(|(above, device, is_new)| (files::path_from_here(process, above), device, is_new));
        let (above, device, is_new) = place?;
        // What is mounted there may be served by somebody, who is not even asked; or the process has another
        // root.
        if look::device(&above) != Some(device) {
            return None;
        }
        let (above, identity) = files::open_directory(&above)?;
        if identity.device != device || look::is_served(&above) {
            return None;
        }
        let siblings = is_new.then(|| files::directories(above.as_fd()));
        let above = Arc::new(Directory(above, pass));
        let mut state = self.lock();
        if state.stops != stops || self.gate.is_closed(All) {
            return None;
        }
        if let Some(siblings) = siblings {
            state.choice.cousins.siblings(id, siblings);
        }
        let Some(chosen) = state.choice.cousins.choose(id, beside) else { return Some(()) };
        for sibling in chosen.siblings {
            let below = std::iter::once(sibling).chain(chosen.through.iter().cloned()).collect();
            let what = chosen.what.clone();
            state.jobs.push_back(Job::Cousin { above: above.clone(), device, id, below, what });
            self.call_one(&mut state);
        }
        Some(())
    }

    fn take(self: &Arc<Self>, process: u32, place: &Place, stops: u64) {
        let Some(pass) = self.pass(All, stops) else { return };
        // Who serves a file system is not even asked to open the directory.
        if self.lock().disks.is_left(place.file.device) {
            return;
        }
        let directory = files::path_from_here(process, &place.directory);
        let Some((directory, identity)) = files::open_directory(&directory) else { return };
        if look::is_served(&directory) {
            return self.lock().disks.is_served(identity.device);
        }
        let directory = Directory(directory, pass);
        if files::is_library(&place.name)
            && let Ok(name) = CString::new(place.name.clone())
            && let Some(_pass) = self.pass(Files, stops)
        {
            let _ = files::ask(directory.0.as_fd(), &name, Even::IfWarm, Wait::No);
        }
        let list = {
            let mut state = self.lock();
            state.choice.waited(identity, &place.name)
        };
        if list {
            let names = look::list(directory.0.as_fd());
            self.lock().choice.listed(identity, &place.name, names);
        }
        let directory = Arc::new(directory);
        let mut state = self.lock();
        if state.stops != stops || self.gate.is_closed(All) {
            return;
        }
        let disk_takes = state.disks.takes(identity.device);
        state.choice.disk_takes(disk_takes);
        for (file, name) in state.choice.companions(identity, &place.name) {
            state.jobs.push_back(Job::File { directory: directory.clone(), file, name });
            self.call_one(&mut state);
        }
    }

    /// Calls one more thread, if there are to be more.
    fn call_one(self: &Arc<Self>, state: &mut State) {
        if state.sleeping > state.called {
            state.called += 1;
            self.called.notify_one();
        } else if state.threads < THREADS {
            let shared = self.clone();
            let spawned = thread::Builder::new()
                .name("runahead-beside".into())
                .stack_size(STACK)
                .spawn(move || shared.work());
            state.threads += usize::from(spawned.is_ok());
        }
    }

    fn work(self: Arc<Self>) {
        let mut state = self.lock();
        while !state.ending {
            let Some((job, wait)) = state.next_job() else {
                state.sleeping += 1;
                let slept =
                    self.called.wait_timeout(state, IDLE_MOST).unwrap_or_else(PoisonError::into_inner);
                state = slept.0;
                state.sleeping -= 1;
                state.called = state.called.saturating_sub(1);
                if slept.1.timed_out() && state.jobs.is_empty() {
                    state.threads -= 1;
                    break;
                }
                continue;
            };
            state.busy += 1;
            let stops = state.stops;
            drop(state);
            state = match job {
                Job::File { directory, file, name } => self.ask_for(directory, file, &name, (wait, stops)),
                Job::Cousin { above, device, id, below, what } => {
                    let below: Vec<&CStr> = below.iter().map(CString::as_c_str).collect();
                    self.ask_for_cousin(&above, (device, id), &below, what, (wait, stops))
                }
            };
            self.done_with_one(&mut state);
        }
    }

    fn ask_for(
        self: &Arc<Self>,
        directory: Arc<Directory>,
        listed: File,
        name: &CStr,
        (wait, stops): (Wait, u64),
    ) -> MutexGuard<'_, State> {
        let asked = self
            .pass(Files, stops)
            .and_then(|_pass| files::ask(directory.0.as_fd(), name, Even::IfCold, wait));
        drop(directory);
        let mut state = self.lock();
        match &asked {
            Some(asked) if asked.cold => state.choice.is_really(listed, asked.file),
            _ => state.choice.not_asked(listed),
        }
        if wait == Wait::ForTheBeginning {
            self.waited(&mut state, listed.device, asked);
        }
        state
    }

    fn ask_for_cousin(
        self: &Arc<Self>,
        above: &Directory,
        (device, id): (u64, cousins::Id),
        below: &[&CStr],
        what: What,
        (wait, stops): (Wait, u64),
    ) -> MutexGuard<'_, State> {
        let reached = self.pass(All, stops).and_then(|pass| {
            let (directory, identity) = files::open_below(above.0.as_fd(), below, device)?;
            Some((Directory(directory, pass), identity))
        });
        match (what, reached) {
            (What::Named(name), reached) => {
                let mut may = true;
                let asked = reached.and_then(|(directory, _)| {
                    let pass = self.pass(Files, stops);
                    may = pass.is_some();
                    pass.and_then(|_pass| files::ask(directory.0.as_fd(), &name, Even::IfCold, wait))
                });
                let mut state = self.lock();
                match &asked {
                    Some(asked) if asked.cold => state.choice.cousin_is(id, asked.file),
                    Some(_) => state.choice.cousins.not_asked(id),
                    None if !may || state.stops != stops => state.choice.cousins.not_asked(id),
                    // To find that out has cost as much as a wrong guess.
                    None => {}
                }
                if wait == Wait::ForTheBeginning {
                    self.waited(&mut state, device, asked);
                }
                state
            }
            (What::Ending(ending), reached) => {
                let listed = reached.map(|(directory, identity)| {
                    let names = files::names_beside(directory.0.as_fd());
                    (Arc::new(directory), identity, names)
                });
                let mut state = self.lock();
                if wait == Wait::ForTheBeginning {
                    self.waited(&mut state, device, None);
                }
                match listed {
                    Some((directory, identity, names))
                        if state.stops == stops && !self.gate.is_closed(All) =>
                    {
                        for (file, name) in state.choice.cousins(id, identity, &ending, names) {
                            state.jobs.push_back(Job::File { directory: directory.clone(), file, name });
                            self.call_one(&mut state);
                        }
                    }
                    _ => state.choice.cousins.not_listed(id),
                }
                state
            }
        }
    }

    /// A file was asked for and waited for, to know its disk. Once that is known the others may be asked for.
    fn waited(self: &Arc<Self>, state: &mut State, device: u64, asked: Option<Asked>) {
        match asked {
            Some(Asked { cold: true, answered, .. }) => state.disks.answered(device, answered),
            _ => state.disks.not_asked(device),
        }
        if state.disks.is_worth_it(device) {
            (0..state.jobs.len().min(THREADS)).for_each(|_| self.call_one(state));
        }
    }

    fn done_with_one(&self, state: &mut State) {
        state.busy -= 1;
        if state.busy == 0 {
            self.idle.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_opened_behind_a_program_that_does_not_ask() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, "x").unwrap();
        let words = runahead_gate::Words::unshared();
        let mut companions = Companions::new(Gate::new(words));
        let mut waited = |generation| {
            companions.waited(std::process::id(), -1, path.as_os_str().as_encoded_bytes(), generation)
        };
        assert!(waited(0));
        words.releasing.begins_unasked();
        assert!(!waited(0) && waited(1));
        let shared = companions.shared.clone();
        let directory =
            || Directory(std::fs::File::open(folder.path()).unwrap().into(), shared.gate.pass(All).unwrap());
        let file = File { device: 1, inode: 1 };
        let job = |directory| Job::File { directory: Arc::new(directory), file, name: c"file".into() };
        let mut state = shared.lock();
        let stops = state.stops;
        state.jobs.push_back(job(directory()));
        drop(state);
        assert!(shared.pass(Files, stops).is_some() && words.places.is_any());
        words.releasing.begins_unasked();
        assert!(shared.pass(Files, stops).is_none());
        assert!(shared.lock().jobs.is_empty() && !words.files.is_any());
    }
}
