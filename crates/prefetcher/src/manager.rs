//! The manager: the one thread that knows the queue.
//!
//! It takes hints from the intake as far as there is room, turns paths and descriptors into files, and
//! hands jobs to the pool, always a little more than what may be in flight, in the giver's order. All that
//! it knows of the program's progress is [`crate::usage`].
//!
//! *Window*: pages that are fetched and not yet used. A giver starts with 128 MB; while its pages are used
//! the window doubles up to the memory budget, and while they are not it shrinks, with the square of the
//! accuracy, down to a single chunk. Pages that nobody uses leave the window slowly, so a source with only
//! wrong hints ends at a chunk every few seconds, and can recover.
//!
//! The budget itself is kept to the page: a request that is longer than what is left waits, one that is longer than all of
//! it is cut.
//!
//! While there is work the manager looks about once a response time; then it sleeps until the next hint.

use crate::carry::{self, Failure, File, Hole};
use crate::files::{Entry, Files, Key, Piece};
use crate::intake::{Action, Batch, Cancel, Intake, Item, Lookup, add};
use crate::limits::{Group, Options};
use crate::pool::{Done, Job, Pool, Work};
use crate::usage::{Meter, Usage};
use crate::view::{Part, View, machine_now};
use runahead_prefetch::accounting::Accuracy;
use runahead_prefetch::benefit::{self, Share, Times, WHOLE};
use runahead_prefetch::budget::Bandwidth;
use runahead_prefetch::hint::{Hint, Refusal, Subject};
use runahead_prefetch::queue::{Chunk, Queue, Which};
use runahead_prefetch::shares::{Claim, DEVICES, Slot};
use runahead_prefetch::{CHUNK_PAGES, PAGE};
use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

/// Hints in the queue; what does not fit waits in the intake.
const QUEUE: usize = 4096;

/// Places that are kept for what opened files bring: the rest of each, and pieces that waited for it.
const RESERVED: usize = QUEUE / 2;

/// Pages that a giver may have fetched and not used before anything is known of it: 128 MB. A slow disk does
/// not get that far: what is not used within a quarter of a second speaks against its giver.
const START_WINDOW: u64 = 32_768;

/// How often the program's progress, the other programs and the memory limits are looked at (ns).
const USAGE_EVERY: u64 = 10_000_000;
const VIEW_EVERY: u64 = 5_000_000;
const LIMITS_EVERY: u64 = 250_000_000;

/// Runs longer than this (1 MB) may be left to the kernel's read-ahead, after their first two chunks.
const LONG_RUN: u64 = 256;

/// `read_ahead_kb` of a device that nobody has configured.
const KERNEL_WINDOW: u64 = 128 << 10;

/// Requests of one hint for memory that may meet a hole; for each the process's mappings are looked through. Nobody means
/// more: it is the whole address space, and its rest is dropped.
const HOLES: u32 = 1024;

/// Hints whose holes are counted: more than can be under way at once.
const HINTS_WITH_HOLES: usize = 1024;

/// Without work for this long, the manager sleeps until it is woken, which costs the waker 4 us.
const LINGER: u64 = 20_000_000;

/// How long to wait where only the program's progress, or time, can help.
const HELD_BACK: Duration = Duration::from_millis(5);

struct Manager<'a> {
    intake: &'a Intake,
    pool: Arc<Pool>,
    queue: Box<Queue<QUEUE>>,
    files: Files,
    /// A batch that has been taken in up to this item.
    current: Option<(Batch, usize)>,
    /// Cancellations that concern batches which may still come.
    cancels: Vec<(u64, Cancel)>,
    /// Device of the latest file: the best guess for the next path.
    device: u64,
    /// Pages fetched and not yet known to be used; pages of jobs under way.
    held: u64,
    under_way: u64,
    accuracy: Accuracy,
    budget: u64,
    bandwidth: Bandwidth,
    /// Number of the latest hint for memory, and the page behind its end.
    memory: (u32, u64),
    /// Numbers of the latest hints for memory that is not all there, each with the requests that met a hole.
    holes: VecDeque<(u32, u32)>,
    /// What the latest descriptor of the current batch was.
    descriptor: Option<(i32, Key)>,
    usage: Usage,
    group: Group,
    meter: Meter,
    view: Option<View>,
    options: Options,
    /// The program's time for each page that it reads, ns; 0: not known.
    gap: u64,
    used_since: u64,
    looked: [u64; 3],
    busy_at: u64,
}

/// The manager's life. Ends when the intake is closed, or at once where it cannot have descriptors of its own.
pub(crate) fn run(intake: &Intake, options: Options) {
    crate::global::becomes_ours();
    if !carry::own_descriptors() {
        return;
    }
    carry::lower_priority();
    intake.serve();
    let pool = Pool::new(options.in_flight);
    let usage = Usage::new(&pool.own);
    let now = pool.now();
    let mut manager = Manager {
        intake,
        queue: Box::new(Queue::new()),
        files: Files::default(),
        current: None,
        cancels: Vec::new(),
        device: 0,
        held: 0,
        under_way: 0,
        accuracy: Accuracy::default(),
        budget: 0,
        bandwidth: match options.bandwidth {
            u64::MAX => Bandwidth::UNLIMITED,
            rate => Bandwidth::new(rate, now),
        },
        memory: (0, 0),
        holes: VecDeque::new(),
        descriptor: None,
        usage,
        group: Group::find(),
        meter: Meter::new(),
        view: View::join(),
        options,
        gap: 0,
        used_since: now,
        looked: [0; 3],
        busy_at: now,
        pool,
    };
    manager.budget = manager.group.memory(options.memory).pages();
    while !intake.is_closed() {
        manager.turn();
    }
    manager.pool.withdraw(|_| true);
}

impl Manager<'_> {
    fn turn(&mut self) {
        for done in self.pool.collect() {
            self.done(done);
        }
        self.cancel();
        self.take_in();
        let held_back = self.dispatch();
        let now = self.pool.now();
        if now.saturating_sub(self.looked[0]) >= USAGE_EVERY {
            self.look_at_usage(now);
        }
        if now.saturating_sub(self.looked[1]) >= VIEW_EVERY {
            self.looked[1] = now;
            self.look_at_others();
        }
        if now.saturating_sub(self.looked[2]) >= LIMITS_EVERY {
            self.looked[2] = now;
            self.budget = self.group.memory(self.options.memory).pages();
            self.fade();
        }
        self.sleep(now, held_back);
    }

    fn sleep(&mut self, now: u64, held_back: bool) {
        let state = self.pool.lock();
        let working = state.is_working();
        let latency = state.lines.iter().map(|line| line.device.response()).max().unwrap_or(0);
        let most = u64::from(state.most_running);
        drop(state);
        self.intake.counts.most_in_flight.store(most, std::sync::atomic::Ordering::Relaxed);
        if working || self.current.is_some() || !self.queue.is_empty() {
            self.busy_at = now;
        }
        let nap = if held_back { HELD_BACK } else { Duration::from_nanos(latency.clamp(100_000, 1_000_000)) };
        if now.saturating_sub(self.busy_at) < LINGER {
            // Not to be woken by each hint: it comes up for air soon enough.
            std::thread::sleep(nap);
        } else if self.held > 0 {
            // Somebody may still use what was fetched. A file that stays open could not be deleted, its disk not be
            // unmounted, and what takes its name's place would not be seen.
            self.files.clear();
            self.intake.sleep(Some(Duration::from_nanos(LIMITS_EVERY)));
        } else {
            self.files.clear();
            self.look_at_others();
            self.intake.sleep(None);
        }
    }

    /// Hints from the intake into the queue, as far as there is room.
    fn take_in(&mut self) {
        while self.queue.room() > RESERVED {
            if self.current.is_none() {
                self.current = self.intake.next().map(|batch| (batch, 0));
                self.descriptor = None;
            }
            let Some((batch, index)) = self.current.take() else { break };
            let Some(&item) = batch.items.get(index) else { continue };
            if self.is_cancelled(&batch, index) {
                add(&self.intake.counts.cancelled, 1);
            } else if !self.item(item, batch.path(index)) {
                self.current = Some((batch, index));
                break;
            }
            self.current = Some((batch, index + 1));
        }
        if self.current.is_none() && self.intake.is_empty() {
            self.cancels.clear();
        }
    }

    fn is_cancelled(&self, batch: &Batch, index: usize) -> bool {
        let item = &batch.items[index];
        self.cancels.iter().any(|(number, cancel)| {
            batch.number < *number
                && match cancel {
                    Cancel::All => true,
                    Cancel::Token(token) => item.token == *token,
                    Cancel::Path(path) => item.action == Action::Path && batch.path(index) == path,
                }
        })
    }

    /// False: it has to wait, until the file that it is for has been opened.
    fn item(&mut self, item: Item, path: &[u8]) -> bool {
        let Item { action, offset, length, token, .. } = item;
        let piece = Piece { offset, length, token };
        match action {
            Action::Path => return self.file(Key::Path(path.to_vec()), path, piece),
            Action::Descriptor(number) => {
                let path = descriptor_path(number);
                if self.descriptor.as_ref().is_none_or(|(latest, _)| *latest != number) {
                    // Looked at through the process's first thread, whose table is the program's.
                    self.descriptor = rustix::fs::stat(&path)
                        .ok()
                        .map(|status| (number, Key::Descriptor(number, status.st_dev, status.st_ino)));
                }
                match self.descriptor.clone() {
                    Some((_, key)) => return self.file(key, path.as_bytes(), piece),
                    None => add(&self.intake.counts.unreadable, 1),
                }
            }
            Action::Memory => {
                let first = offset / PAGE;
                let end = offset.saturating_add(length.max(1)).div_ceil(PAGE);
                // One number as long as they adjoin, so that they merge.
                if self.memory.1 != first {
                    self.memory.0 = self.memory.0.wrapping_add(1);
                }
                self.memory.1 = end;
                let subject = Subject::Mapping(self.memory.0.into());
                self.put(Hint { subject, first, pages: end - first, token });
            }
            Action::Name(lookup) => {
                if let Ok(path) = CString::new(path) {
                    let number = self.files.add(Entry::Name { path, lookup }, None);
                    self.put(Hint::name(u64::from(number), token));
                }
            }
            Action::ReleasePath => self.release(path, offset, length),
            Action::ReleaseDescriptor(number) => {
                self.release(descriptor_path(number).as_bytes(), offset, length)
            }
        }
        true
    }

    /// False: too many pieces wait for this file already.
    fn file(&mut self, key: Key, path: &[u8], piece: Piece) -> bool {
        match self.files.find(&key) {
            Some(number) => match self.files.get(number) {
                Some(Entry::Open(file)) => {
                    let file = Arc::clone(file);
                    self.piece(number, &file, piece);
                }
                _ => return self.files.add_piece(number, piece),
            },
            None => {
                let Ok(path) = CString::new(path) else { return true };
                let number = self.files.add(Entry::ToOpen { path, pieces: vec![piece] }, Some(key));
                self.put(Hint::name(u64::from(number), piece.token));
            }
        }
        true
    }

    /// A piece of an open file.
    fn piece(&mut self, number: u32, file: &File, piece: Piece) {
        let subject = Subject::File(u64::from(number));
        // It may have grown since it was opened.
        let to_the_end = piece.length == 0 || piece.offset.saturating_add(piece.length) > file.size;
        let size = if to_the_end { file.size_now() } else { file.size };
        match Hint::segment(subject, piece.offset, piece.length, size, piece.token) {
            Ok(hint) => self.put(hint),
            Err(_) => add(&self.intake.counts.absurd, 1),
        }
    }

    fn put(&mut self, hint: Hint) {
        if self.queue.put(hint) == Err(Refusal::Full) {
            add(&self.intake.counts.overflowed, 1);
            if let Subject::Name(number) = hint.subject {
                self.files.remove(number as u32);
            }
        }
    }

    fn release(&mut self, path: &[u8], offset: u64, length: u64) {
        if let Ok(path) = CString::new(path) {
            let job = Job { entry: 0, pages: 0, token: 0, work: Work::Release { path, offset, length } };
            self.pool.put(self.device, std::iter::once(job));
        }
    }

    /// Jobs for the pool: for each device twice what may be in flight, so that its threads never wait for us.
    /// Returns whether there are hints that memory or bandwidth do not allow now.
    fn dispatch(&mut self) -> bool {
        let window = window(self.accuracy.share(), self.budget);
        while let Some(chunk) = self.queue.peek() {
            if self.held + self.under_way >= window {
                return true;
            }
            let device = self.device_of(&chunk);
            {
                let mut state = self.pool.lock();
                let line = state.line(device);
                if line.waiting() >= 2 * line.allowed() as usize {
                    break;
                }
            }
            let pages = self.pages_of(&chunk).min(self.budget);
            if self.held + self.under_way + pages > self.budget {
                return true;
            }
            if !self.bandwidth.take(pages * PAGE, self.pool.now()) {
                return true;
            }
            self.leave_long_run(device);
            let Some(chunk) = self.queue.take_up_to(pages) else { break };
            match self.work(&chunk) {
                Some((entry, work)) => {
                    self.under_way += pages;
                    self.pool.put(device, std::iter::once(Job { entry, pages, token: chunk.token, work }));
                }
                None => self.bandwidth.refund(pages * PAGE),
            }
        }
        false
    }

    fn device_of(&mut self, chunk: &Chunk) -> u64 {
        match chunk.subject {
            Subject::File(number) => match self.files.get(number as u32) {
                Some(Entry::Open(file)) => file.device,
                _ => self.device,
            },
            Subject::Mapping(_) => 0,
            Subject::Name(_) => self.device,
        }
    }

    /// Pages that a chunk may bring.
    fn pages_of(&mut self, chunk: &Chunk) -> u64 {
        match chunk.subject {
            Subject::Name(number) => match self.files.get(number as u32) {
                Some(Entry::ToOpen { pieces, .. }) => match pieces.first() {
                    Some(piece) if piece.length > 0 => {
                        let end = piece.offset.saturating_add(piece.length);
                        (end.div_ceil(PAGE) - piece.offset / PAGE).min(CHUNK_PAGES)
                    }
                    _ => CHUNK_PAGES,
                },
                _ => 0,
            },
            _ => chunk.pages,
        }
    }

    fn leave_long_run(&mut self, device: u64) {
        if self.gap == 0 || self.queue.front_pages() <= LONG_RUN {
            return;
        }
        let latency = self.pool.lock().line(device).device.latency();
        let times = Times { latency, gap: self.gap, ..Times::default() };
        if latency > 0 && benefit::read_ahead_suffices(&times, KERNEL_WINDOW) {
            add(&self.intake.counts.left_pages, self.queue.leave_rest(2 * CHUNK_PAGES));
        }
    }

    fn work(&mut self, chunk: &Chunk) -> Option<(u32, Work)> {
        let number = match chunk.subject {
            Subject::Mapping(number) => {
                let (address, length) = (chunk.first * PAGE, chunk.pages * PAGE);
                return Some((0, Work::Memory { number: number as u32, address, length }));
            }
            Subject::File(number) | Subject::Name(number) => number as u32,
        };
        match self.files.get(number) {
            Some(Entry::Open(file)) => {
                let work = Work::Fetch { file: Arc::clone(file), first: chunk.first, pages: chunk.pages };
                Some((number, work))
            }
            Some(entry @ Entry::ToOpen { .. }) => {
                let Entry::ToOpen { path, mut pieces } =
                    std::mem::replace(entry, Entry::Opening { begun: None, pieces: Vec::new() })
                else {
                    return None;
                };
                let first = if pieces.is_empty() { return None } else { pieces.remove(0) };
                *entry = Entry::Opening { begun: Some(first.token), pieces };
                Some((number, Work::Open { path, offset: first.offset, length: first.length }))
            }
            Some(entry @ Entry::Name { .. }) => {
                let Entry::Name { path, lookup } =
                    std::mem::replace(entry, Entry::LookingUp(Some(chunk.token)))
                else {
                    return None;
                };
                add(&self.intake.counts.names, 1);
                Some((number, Work::Name { path, lookup }))
            }
            // Closed again before its turn came: the giver is far ahead of itself.
            Some(Entry::Opening { .. } | Entry::LookingUp(_)) | None => {
                add(&self.intake.counts.overflowed, 1);
                None
            }
        }
    }

    fn done(&mut self, done: Done) {
        let intake = self.intake;
        let counts = &intake.counts;
        add(&counts.jobs, 1);
        add(&counts.asked_pages, done.fetched.asked);
        add(&counts.cached_pages, done.fetched.cached);
        add(&counts.released_pages, done.released);
        self.under_way = self.under_way.saturating_sub(done.pages);
        self.held = (self.held + done.fetched.asked).saturating_sub(done.released);
        self.bandwidth.refund(done.pages.saturating_sub(done.fetched.asked) * PAGE);
        match done.failure {
            Some(Failure::Unreadable) => add(&counts.unreadable, 1),
            Some(Failure::NotAFile) => add(&counts.not_a_file, 1),
            Some(Failure::BehindEnd) => add(&counts.absurd, 1),
            None => {}
        }
        if let Some((number, hole)) = done.hole {
            self.hole(number, hole);
        }
        if let Some(file) = done.file {
            self.device = file.device;
            if let Some(&mut Entry::Opening { begun, .. }) = self.files.get(done.entry) {
                let (first, pages) = done.rest;
                if let (Some(token), 1..) = (begun, pages) {
                    let subject = Subject::File(u64::from(done.entry));
                    // Its turn is now, before all that came after it.
                    if self.queue.put_first(Hint { subject, first, pages, token }).is_err() {
                        add(&self.intake.counts.overflowed, 1);
                    }
                }
                for piece in self.files.opened(done.entry, Arc::clone(&file)) {
                    self.piece(done.entry, &file, piece);
                }
            }
            return;
        }
        match self.files.remove(done.entry) {
            Some(Entry::Opening { pieces, .. }) => add(&counts.unreadable, pieces.len() as u64),
            Some(Entry::LookingUp(Some(token))) => {
                for path in done.names.into_iter().filter_map(|name| CString::new(name).ok()) {
                    let number = self.files.add(Entry::Name { path, lookup: Lookup::Stat }, None);
                    self.put(Hint::name(u64::from(number), token));
                }
            }
            _ => {}
        }
    }

    /// Nothing is mapped at a part of the memory that a hint named: it goes on behind that.
    fn hole(&mut self, number: u32, hole: Hole) {
        let subject = Subject::Mapping(number.into());
        let known = self.holes.iter().position(|(of, _)| *of == number);
        let at = known.unwrap_or_else(|| {
            add(&self.intake.counts.absurd, 1);
            self.holes.push_back((number, 0));
            if self.holes.len() > HINTS_WITH_HOLES {
                self.holes.pop_front();
            }
            self.holes.len() - 1
        });
        self.holes[at].1 += 1;
        add(&self.intake.counts.unmapped_pages, hole.pages + self.queue.skip(subject, hole.next));
        if self.holes[at].1 >= HOLES && self.queue.cancel(Which::Of(subject)) > 0 {
            add(&self.intake.counts.overflowed, 1);
        }
    }

    fn cancel(&mut self) {
        while let Some((number, cancel)) = self.intake.next_cancel() {
            // What is not needed any more is no hint: it stays, unless everything goes.
            let is_hint = |job: &Job| !matches!(job.work, Work::Release { .. });
            let (pages, jobs) = match &cancel {
                Cancel::All => {
                    self.files.clear();
                    (self.queue.cancel(Which::All), self.withdraw(|_| true))
                }
                Cancel::Token(token) => {
                    let pages = self.queue.cancel(Which::Token(*token));
                    for (number, token) in self.files.cancel_token(*token) {
                        self.put(Hint::name(u64::from(number), token));
                    }
                    (pages, self.withdraw(|job| job.token == *token && is_hint(job)))
                }
                Cancel::Path(path) => match self.files.find(&Key::Path(path.clone())) {
                    Some(number) => {
                        self.files.cancel_file(number);
                        let pages = self.queue.cancel(Which::Of(Subject::Name(number.into())))
                            + self.queue.cancel(Which::Of(Subject::File(number.into())));
                        (pages, self.withdraw(|job| job.entry == number && is_hint(job)))
                    }
                    None => (0, 0),
                },
            };
            add(&self.intake.counts.cancelled, (pages + jobs).min(1));
            self.cancels.push((number, cancel));
            // What is kept of them is bounded; forgetting a cancellation costs some needless prefetches.
            if self.cancels.len() > 64 {
                self.cancels.remove(0);
            }
        }
    }

    /// Takes back jobs that wait for a thread; returns how many.
    fn withdraw(&mut self, is_meant: impl Fn(&Job) -> bool) -> u64 {
        let jobs = self.pool.withdraw(is_meant);
        let count = jobs.len() as u64;
        for Job { entry, pages, work, .. } in jobs {
            self.under_way = self.under_way.saturating_sub(pages);
            self.bandwidth.refund(pages * PAGE);
            match work {
                Work::Open { path, .. } => {
                    if let Some(token) = self.files.not_opened(entry, path) {
                        self.put(Hint::name(u64::from(entry), token));
                    }
                }
                Work::Name { .. } => drop(self.files.remove(entry)),
                Work::Fetch { .. } | Work::Memory { .. } | Work::Release { .. } => {}
            }
        }
        count
    }

    /// What the program has read from the cache since the last look.
    fn look_at_usage(&mut self, now: u64) {
        self.looked[0] = now;
        self.meter.settle(&self.pool.own);
        let Some(bytes) = self.usage.hits(&self.pool.own) else { return };
        let used = (bytes / PAGE).min(self.held);
        if used == 0 {
            return;
        }
        self.held -= used;
        add(&self.intake.counts.used_pages, used);
        for _ in 0..used.min(256) {
            self.accuracy.judged(true);
        }
        // A page now and then is somebody's small file, and says nothing about the program's pace.
        if used >= CHUNK_PAGES {
            let gap = now.saturating_sub(self.used_since) / (bytes / PAGE).max(1);
            self.gap = if self.gap == 0 { gap } else { self.gap - self.gap / 8 + gap / 8 };
        }
        if used >= CHUNK_PAGES.min(self.held / 64) {
            self.used_since = now;
        }
    }

    /// An eighth of what nobody has used for a while counts as never to be used.
    fn fade(&mut self) {
        if self.pool.now().saturating_sub(self.used_since) < LIMITS_EVERY {
            return;
        }
        let lost = self.held.div_ceil(8);
        self.held -= lost;
        add(&self.intake.counts.unused_pages, lost);
        for _ in 0..lost.min(64) {
            self.accuracy.judged(false);
        }
    }

    /// Says what we want of each device, and learns what we may have.
    fn look_at_others(&mut self) {
        let Some(view) = &self.view else { return };
        let mut mine = Slot { written: machine_now(), pages: self.held, claims: Default::default() };
        let mut state = self.pool.lock();
        let busy = state.lines.iter().filter(|line| line.id != 0 && !line.is_idle());
        for (claim, line) in mine.claims.iter_mut().zip(busy) {
            *claim = Claim {
                device: line.id,
                wants: line.device.allowance(),
                concurrency: line.device.concurrency(),
                latency: line.device.latency(),
                accuracy: self.accuracy.share(),
            };
        }
        drop(state);
        let parts: [Part; DEVICES] = view.exchange(&mine);
        state = self.pool.lock();
        for line in &mut state.lines {
            line.share = None;
        }
        for (claim, part) in mine.claims.iter().zip(parts) {
            if let (true, Part::Of(part)) = (claim.device != 0, part) {
                state.line(claim.device).share = Some(part);
            }
        }
    }
}

/// Pages that may be fetched and not yet used.
fn window(accuracy: Share, budget: u64) -> u64 {
    let half = WHOLE / 2;
    let window = if accuracy <= half {
        let share = u64::from(accuracy);
        (START_WINDOW * share / u64::from(half)) * share / u64::from(half)
    } else {
        // Eight doublings from half to whole.
        START_WINDOW << ((accuracy - half) / (WHOLE / 16))
    };
    window.max(CHUNK_PAGES).min(budget)
}

fn descriptor_path(number: i32) -> String {
    format!("/proc/self/fd/{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_the_accuracy() {
        let plenty = u64::MAX;
        assert_eq!(window(0, plenty), CHUNK_PAGES);
        assert_eq!(window(WHOLE / 2, plenty), START_WINDOW);
        assert_eq!(window(WHOLE, plenty), START_WINDOW << 8);
        assert_eq!(window(WHOLE, 100), 100);
        assert_eq!(window(0, 0), 0);
        assert!(window(WHOLE / 8, plenty) < START_WINDOW / 10);
    }
}
