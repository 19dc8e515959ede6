//! Reads: is the track right, would it wait, and what then.
//!
//! Three kinds. A read at a *given* offset has no side effect but its result: it is tried with
//! `RWF_NOWAIT`, and if complete that **is** the read. A read at the descriptor's *own position* moves
//! the position, which other processes may share; taking half of it and then the rest would tear what
//! must be one. So nothing of it is done here: the agent asks at the position whether it would wait,
//! and the program's own instruction reads. What is read *elsewhere* (copied to another descriptor) has
//! an effect there, so it is only asked about as well, at whichever offset.

use crate::arch::{self, Answer, Frame, thread_base};
use crate::aside::is_cached;
use crate::state::{Fixed, Inner, Lane, Lock, Process, count};
use crate::trace::{trace, trace_at};
use crate::{attach, opened, snapshots};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use runahead_abi::begun;
use runahead_abi::environment::flags;
use runahead_abi::log::{Prediction, kind, mark};
use runahead_abi::reads::{Length, Offset, of as read_call};
use runahead_abi::session::{
    self, LANES, LaneAnswer, LanePost, Slot, activity, companions, holding, names_ahead,
};
use runahead_abi::trace::{FORETOLD, FORETOLD_READ, kind as event};
use runahead_abi::{log, names, pace, post};
use runahead_kernel::files::{
    IoVec, RWF_NOWAIT, cached_pages, file_system_type, fstat, is_direct, known_regular,
    known_size_of_regular, position, preadv2, read_link, readahead,
};
use runahead_kernel::filesystem::FileSystem;
use runahead_kernel::process::{
    futex_wait, futex_wake, major_faults_of_thread, monotonic_ns, process_id, sleeps_and_blocks, thread_id,
    thread_ns,
};
use runahead_kernel::text::Text;
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, PAGE};
use runahead_policy::attention::Attention;
use runahead_policy::hold::Wait;
use runahead_policy::in_order::{self, Found, InOrder, Moment, Since, Waiting};
use runahead_policy::restart::{Machines, Past, Restart, Stall};
use runahead_policy::track::{Next, Passing};
use runahead_policy::untold::{self, Counted, Read};

/// Longer reads are left to the program's own call: the kernel refuses some of them for their length
/// alone, and by different rules for plain and vectored calls.
const LONGEST: usize = 1 << 30;

/// The most memory pieces of a vectored read that the agent looks at.
const PIECES: usize = 8;

/// `read(fd, _, length)`.
pub fn here(frame: &Frame, fd: i32, length: usize) -> Answer {
    let operation =
        Prediction { kind: kind::READ, marks: 0, file: 0, subject: fd, detail: length as u64, place: 0 };
    with_thread(frame, |visit| visit.ask_about(frame, operation, None));
    Answer::plain(frame)
}

/// `copy_file_range`, `sendfile`, `splice`: what is read goes to another descriptor.
pub fn elsewhere(frame: &Frame, number: u32, a: [usize; 6]) -> Answer {
    let Some(call) = read_call(number as usize) else { return Answer::plain(frame) };
    let (Length::Bytes(length), Offset::At(offset)) = (call.length, call.offset) else {
        return Answer::plain(frame);
    };
    let argument = |index: usize| a.get(index).copied().unwrap_or(0);
    let given = match argument(offset) {
        0 => None,
        // Where it is no address, or there is no such place, the call fails.
        address => match word_at(address) {
            Some(offset @ 0..) => Some(offset),
            _ => return Answer::plain(frame),
        },
    };
    let operation = Prediction {
        kind: if given.is_some() { kind::READ_AT } else { kind::READ },
        marks: 0,
        file: 0,
        subject: call.source(&a),
        detail: argument(length) as u64,
        place: given.unwrap_or(0) as u64,
    };
    with_thread(frame, |visit| visit.ask_about(frame, operation, given));
    Answer::plain(frame)
}

/// A small file is mapped (`mmap(address, length, protection, flags, fd, offset)`): if the program touches
/// it, it waits for that as for a read of the beginning.
pub fn mapped(frame: &Frame, a: [usize; 6]) -> Answer {
    let (length, fd, offset) = (a[1], a[4] as i32, a[5] as i64);
    let operation = reads(fd, length, offset);
    // A device's memory is nothing to be asked about.
    let is_file = || matches!(known_size_of_regular(fd), Ok(Some(1..)));
    let is_asked = offset >= 0 && is_file();
    with_thread(frame, |visit| match is_asked {
        true => visit.ask_about_mapping(frame, operation),
        false => visit.is_none_of_ours(),
    });
    Answer::plain(frame)
}

/// A word of the program's, copied through the kernel, so that a bad address is no fault.
fn word_at(address: usize) -> Option<i64> {
    let mut word = 0i64;
    let local = [IoVec { base: &raw mut word as usize, length: size_of::<i64>() }];
    let remote = [IoVec { base: address, length: size_of::<i64>() }];
    // SAFETY: the local piece is the word.
    let got = unsafe { runahead_kernel::memory::read_process(process_id(), &local, &remote) };
    (got == Ok(size_of::<i64>())).then_some(word)
}

/// `readv(fd, pieces, count)`.
pub fn vector_here(frame: &Frame, a: [usize; 6]) -> Answer {
    match pieces(a[1], a[2]) {
        Some((_, _, length)) => here(frame, a[0] as i32, length),
        None => Answer::plain(frame),
    }
}

/// `pread64(fd, buffer, length, offset)`.
pub fn at(frame: &Frame, fd: i32, buffer: usize, length: usize, offset: i64) -> Answer {
    read_at(frame, fd, &[IoVec { base: buffer, length }], offset)
}

/// `preadv` and `preadv2` (whose flags must be 0 for the agent to look; offset -1 means "here").
pub fn vector_at(frame: &Frame, a: [usize; 6]) -> Answer {
    let number = frame.rax as u32;
    let with_flags = number == n::__NR_preadv2 && a[5] as u32 != 0;
    let Some((copied, used, length)) = pieces(a[1], a[2]) else {
        return Answer::plain(frame);
    };
    if with_flags {
        return Answer::plain(frame);
    }
    if number == n::__NR_preadv2 && a[3] as i64 == -1 {
        return here(frame, a[0] as i32, length);
    }
    read_at(frame, a[0] as i32, copied.get(..used).unwrap_or(&[]), a[3] as i64)
}

/// Copies the pieces of a vectored read, through the kernel, so that a bad address is an error and no
/// fault. Returns the pieces, how many, and the bytes in all.
fn pieces(address: usize, count: usize) -> Option<([IoVec; PIECES], usize, usize)> {
    if count == 0 || count > PIECES {
        return None;
    }
    let mut copied = [IoVec { base: 0, length: 0 }; PIECES];
    let bytes = count * size_of::<IoVec>();
    let local = [IoVec { base: copied.as_mut_ptr() as usize, length: bytes }];
    let remote = [IoVec { base: address, length: bytes }];
    // SAFETY: the local piece is as long as said.
    let got = unsafe { runahead_kernel::memory::read_process(process_id(), &local, &remote) };
    if got != Ok(bytes) {
        return None;
    }
    let length = copied.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.length));
    Some((copied, count, length))
}

/// A read of so many bytes at a given place, as the log would have it.
fn reads(fd: i32, length: usize, offset: i64) -> Prediction {
    Prediction {
        kind: kind::READ_AT,
        marks: 0,
        file: 0,
        subject: fd,
        detail: length as u64,
        place: offset as u64,
    }
}

fn read_at(frame: &Frame, fd: i32, pieces: &[IoVec], offset: i64) -> Answer {
    let length = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.length));
    let operation = reads(fd, length, offset);
    let mut complete = None;
    // -1 would mean the descriptor's own position to preadv2; the program's own call knows better.
    if offset >= 0 && length > 0 && length <= LONGEST {
        with_thread(frame, |visit| complete = visit.read_at(frame, operation, pieces));
    }
    match complete {
        Some(bytes) => Answer::done(frame, bytes),
        None => Answer::plain(frame),
    }
}

/// Runs `action` with the process's state locked; not at all if another thread holds it.
pub fn with_process(frame: &Frame, action: impl FnOnce(&mut Visit)) {
    let state = frame.state();
    let process = state.process();
    if !process.lock.try_take() {
        return;
    }
    opened::look(state);
    // SAFETY: the lock is held.
    let inner = unsafe { process.inner() };
    visit(
        Visit {
            state,
            process,
            inner,
            lane: None,
            held: &process.lock,
            saw_a_stall: false,
            is_absent: false,
        },
        action,
    );
}

/// Runs `action` with the state of this thread's lane, if it has one, else with the process's.
fn with_thread(frame: &Frame, action: impl FnOnce(&mut Visit)) {
    let state = frame.state();
    let process = state.process();
    snapshots::take_if_wanted(frame, false);
    // To look is to read as well, and somebody is told of reads.
    if state.header().releasing.is_watched() {
        return with_process(frame, |visit| visit.is_none_of_ours());
    }
    let Some((index, lane)) = lane_of_this_thread(state, process) else {
        return with_process(frame, action);
    };
    if !lane.lock.try_take() {
        return;
    }
    if lane.thread.load(Ordering::Relaxed) != thread_base(state) {
        // Taken over a moment ago.
        lane.lock.release();
        return;
    }
    lane.visits.fetch_add(1, Ordering::Relaxed);
    note_company(process, index);
    // SAFETY: the lock is held.
    let inner = unsafe { process.lane_inner(lane, None) };
    visit(
        Visit {
            state,
            process,
            inner,
            lane: Some(index),
            held: &lane.lock,
            saw_a_stall: false,
            is_absent: false,
        },
        action,
    );
}

/// Lane `lane` is visited: of late by its own thread alone, or by others in between as well.
fn note_company(process: &Process, lane: usize) {
    let lane = lane as u32;
    if process.latest_lane.load(Ordering::Relaxed) != lane {
        process.latest_lane.store(lane, Ordering::Relaxed);
        process.company.store(COMPANY, Ordering::Relaxed);
    } else if let left @ 1.. = process.company.load(Ordering::Relaxed) {
        process.company.store(left - 1, Ordering::Relaxed);
    }
}

fn visit(mut visit: Visit, action: impl FnOnce(&mut Visit)) {
    action(&mut visit);
    visit.tell_track();
    visit.held.release();
}

fn lane_of_this_thread(state: &Fixed, process: &'static Process) -> Option<(usize, &'static Lane)> {
    let used = process.lanes_used.load(Ordering::Acquire) as usize;
    if used == 0 {
        return None;
    }
    let me = thread_base(state);
    let mine = |lane: &Lane| lane.thread.load(Ordering::Relaxed) == me;
    process.lanes.iter().enumerate().take(used).find(|(_, lane)| mine(lane))
}

/// One call, with the state of the process or of one of its lanes.
pub struct Visit<'a> {
    pub state: &'static Fixed,
    pub process: &'static Process,
    pub inner: &'a mut Inner,
    /// The thread's lane.
    lane: Option<usize>,
    /// The lock that is held: the process's, or the lane's.
    held: &'static Lock,
    /// A stall has ended with this call, and was measured.
    pub saw_a_stall: bool,
    /// Nothing of the read at hand was in the cache, not even on its way.
    is_absent: bool,
}

/// Lanes that are given to threads. (Where each post forks the program there is one copy of it.)
const LANES_OPEN: usize = if cfg!(feature = "forked") { 1 } else { LANES };

/// A thread that has done nothing for so many stalls gives its lane to one that stalls: within these bounds,
/// ns.
const STALLS_ASLEEP: u64 = 2;
const ASLEEP_LEAST_NS: u64 = 2_000_000;
const ASLEEP_MOST_NS: u64 = 200_000_000;

/// Visits of one lane in a row after which its thread is thought to be alone: several rounds of what it may
/// pass while another one waits for the disk.
const COMPANY: u32 = 4096;

/// Operations of a lane's log that threads which share their work may do for each other: ahead of the lane's
/// own thread, and behind it.
const SHARED_AHEAD: u32 = 128;
const SHARED_BEHIND: u32 = 32;

/// How often a thread that holds looks whether its data has come, ns.
const LOOK_NS: u64 = 250_000;

/// Calls of calm threads between two looks at those that are on track.
const LOOKS_AT_SLEEPERS: u32 = 64;

/// Bytes that the kernel takes in one `readahead` without truncating it.
const READAHEAD_MOST: u64 = 128 << 10;

/// How long the program is kept, at most, by what is asked for ahead of its reads in order, ns (but for one
/// call).
const ASKING_MOST_NS: u64 = 1_000_000;

/// A read that waits.
#[derive(Clone, Copy)]
struct Stalled {
    fd: i32,
    place: i64,
    /// As the log would have it.
    operation: Prediction,
    /// Bytes of it that nobody has asked the disk for; 0 where looking has started it.
    unasked: u64,
    /// The host is to be told of the file.
    tells: bool,
}

/// Whether a read would wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Residency {
    /// All (or the first page, where that is all that can be known) is there.
    Cached,
    Missing,
    /// Not to be asked about: a disk may lie below it.
    Untold,
    /// Not a file whose reads wait for a disk.
    Unknown,
}

impl Visit<'_> {
    /// A read that the program's own instruction does, at the descriptor's position or at a `given` place.
    fn ask_about(&mut self, frame: &Frame, operation: Prediction, given: Option<i64>) {
        self.end_of_stall();
        if self.passes_by() {
            return;
        }
        let fd = operation.subject;
        let foretold = self.compare(&operation);
        // What speculation found in the cache is there: no need to ask.
        if matches!(foretold, Some(foretold) if foretold.marks & mark::PREFETCHED == 0) {
            self.counted(&operation, foretold, None);
            if self.tells_all_files() && given.map_or_else(|| position(fd), Ok) == Ok(0) {
                self.begins(fd, 0);
            }
            return;
        }
        let Ok(place) = given.map_or_else(|| position(fd), Ok) else {
            // A pipe, a socket, a terminal: not part of the log, and none of our business.
            self.is_none_of_ours();
            return;
        };
        if foretold.is_none() {
            self.follow_track(&operation);
        }
        let residency = if foretold.is_some() {
            self.probe_started(fd, place)
        } else {
            self.probe(fd, place, operation.detail as usize)
        };
        self.counted(&Prediction { place: place as u64, ..operation }, foretold, None);
        if foretold.is_none() && self.goes_in_order(fd, place, operation.detail, residency) {
            return;
        }
        let unasked = if residency == Residency::Untold { operation.detail } else { 0 };
        let residency = if unasked > 0 { self.untold(frame, fd, place, foretold) } else { residency };
        match residency {
            Residency::Unknown | Residency::Untold => self.is_none_of_ours(),
            Residency::Cached => {
                self.begins(fd, place);
                self.hit(foretold);
            }
            Residency::Missing => {
                self.stall(frame, foretold, Stalled { fd, place, operation, unasked, tells: false })
            }
        }
    }

    /// A mapping. Nothing of it is asked for here, unless the program is known to wait for what it maps: it
    /// may touch nothing.
    fn ask_about_mapping(&mut self, frame: &Frame, operation: Prediction) {
        self.end_of_stall();
        let thread = thread_base(self.state);
        if self.inner.mapped.is_open(thread) {
            self.inner.mapped.ends(thread, major_faults_of_thread() as u32);
        }
        if self.passes_by() {
            return;
        }
        let (fd, place) = (operation.subject, operation.place as i64);
        let foretold = self.compare(&operation);
        if foretold.is_none() {
            self.follow_track(&operation);
        }
        self.counted(&operation, foretold, None);
        let is_hinted = |foretold: Prediction| foretold.marks & mark::PREFETCHED != 0;
        let may_wait = foretold.is_none_or(is_hinted);
        let cached = may_wait && self.counts_as_cached(fd, place);
        let residency = if !may_wait {
            Residency::Cached
        } else if foretold.is_some() {
            // Asked for where speculation touched it, which need not be here.
            if cached { self.probe_started(fd, place) } else { Residency::Unknown }
        } else if cached {
            Residency::Cached
        } else {
            self.inner.mapped.begins(thread, major_faults_of_thread() as u32);
            match self.inner.mapped.is_waited_for() {
                true => self.probe_started(fd, place),
                false => Residency::Unknown,
            }
        };
        let is_untold = residency == Residency::Untold;
        let residency = if is_untold { self.untold(frame, fd, place, foretold) } else { residency };
        match residency {
            Residency::Unknown | Residency::Untold => self.is_none_of_ours(),
            Residency::Cached => {
                self.begins(fd, place);
                self.hit(foretold);
            }
            Residency::Missing => {
                let unasked = if is_untold { operation.detail } else { 0 };
                self.stall(frame, foretold, Stalled { fd, place, operation, unasked, tells: false });
            }
        }
    }

    /// Returns the number of bytes if the read is done.
    fn read_at(&mut self, frame: &Frame, operation: Prediction, pieces: &[IoVec]) -> Option<usize> {
        self.end_of_stall();
        if self.passes_by() {
            return None;
        }
        let place = operation.place as i64;
        let (fd, length) = (operation.subject, operation.detail);
        // SAFETY: the program's own buffers, which this read may fill: the program asked for it.
        match unsafe { preadv2(fd, pieces, place, RWF_NOWAIT) } {
            Ok(bytes) if bytes as u64 == length => {
                let foretold = self.compare_and_follow(&operation);
                self.counted(&operation, foretold, Some(length));
                self.begins(fd, place);
                if foretold.is_none() && self.reads_in_order(fd, place as u64, length) {
                    self.passes_in_order(fd);
                }
                self.hit(foretold);
                Some(bytes)
            }
            // Short: the end of the file, or the rest is not there. The program's own call finds out.
            Ok(_) => {
                let foretold = self.compare_and_follow(&operation);
                self.counted(&operation, foretold, None);
                self.begins(fd, place);
                if foretold.is_none() {
                    self.goes_in_order(fd, place, length, Residency::Cached);
                }
                None
            }
            Err(Errno::EAGAIN) => {
                let foretold = self.compare_and_follow(&operation);
                self.counted(&operation, foretold, None);
                if foretold.is_none() && self.goes_in_order(fd, place, length, Residency::Missing) {
                    return None;
                }
                let stalled = Stalled { fd: operation.subject, place, operation, unasked: 0, tells: false };
                self.stall(frame, foretold, stalled);
                None
            }
            Err(Errno::EOPNOTSUPP) => {
                let foretold = self.compare_and_follow(&operation);
                self.counted(&operation, foretold, None);
                if foretold.is_none() && self.goes_in_order(fd, place, length, Residency::Untold) {
                    return None;
                }
                let stalled = Stalled {
                    fd: operation.subject,
                    place,
                    operation,
                    unasked: operation.detail,
                    tells: false,
                };
                match self.untold(frame, operation.subject, place, foretold) {
                    Residency::Missing => self.stall(frame, foretold, stalled),
                    _ => {
                        self.begins(operation.subject, place);
                        self.hit(foretold);
                    }
                }
                None
            }
            Err(_) => {
                self.is_none_of_ours();
                None
            }
        }
    }

    /// A call that cannot wait for a disk: like one that has not waited, it is a reason to look at fewer.
    fn is_none_of_ours(&mut self) {
        self.calms_down();
    }

    /// Nothing has waited: a reason to look at fewer calls.
    pub fn calms_down(&mut self) {
        let skip = self.attention_hit();
        self.leave_sleepers(skip);
        self.set_calm(skip);
    }

    /// The stall that was being measured is over: the program is back.
    fn end_of_stall(&mut self) {
        if self.inner.stall_began == 0 {
            return;
        }
        let ns = monotonic_ns().saturating_sub(self.inner.stall_began);
        self.inner.stall_began = 0;
        self.in_order().came(ns);
        trace(self.state, event::READ_CAME, ns, 0);
        // What is on its way already for a read in order says nothing of what another wait takes.
        if core::mem::take(&mut self.inner.stall_is_in_order) {
            if let Some(slot) = self.state.slot() {
                count(&slot.agent.counts.in_order_stall_ns, ns);
                attach::has_waited(self.state, ns);
            }
            return;
        }
        self.saw_a_stall = true;
        self.inner.hold.stalled(ns);
        if let Some(slot) = self.state.slot() {
            self.inner.worth.waited(ns, self.inner.stall_is_whole, pages_asked_for(slot));
            count(&slot.agent.counts.stall_ns, ns);
            if self.inner.stall_is_whole {
                count(&slot.agent.counts.whole_stall_ns, ns);
            }
            slot.agent.expected_stall_ns.store(self.inner.hold.expected_stall(), Ordering::Relaxed);
            slot.agent.is_crowded.store(self.inner.worth.is_crowded().into(), Ordering::Relaxed);
            attach::has_waited(self.state, ns);
        }
    }

    /// A thread without a lane that finds its data: while others must be seen at each call, it need not be.
    fn passes_by(&mut self) -> bool {
        let passes =
            self.lane.is_none() && self.inner.unseen > 0 && self.others_on_track() && !self.tells_all_files();
        if passes {
            self.inner.unseen -= 1;
        }
        passes
    }

    fn others_on_track(&self) -> bool {
        let own = self.lane.map_or(0, |lane| 1 << lane);
        self.process.on_track.load(Ordering::Relaxed) & !own != 0
    }

    /// Says whether each read of this lane's must be seen, for the other threads and for names.
    fn tell_track(&self) {
        let Some(lane) = self.lane else { return };
        let (is, bit) = (self.inner.track.is_on() || self.inner.served.watches(), 1 << lane);
        let told = self.process.on_track.load(Ordering::Relaxed) & bit != 0;
        if is && !told {
            self.process.on_track.fetch_or(bit, Ordering::Relaxed);
        } else if !is && told {
            self.process.on_track.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    pub fn attention_stall(&mut self) {
        let mut attention = Attention::of_word(self.process.attention.load(Ordering::Relaxed));
        attention.stall();
        self.process.attention.store(attention.word(), Ordering::Relaxed);
    }

    fn is_attentive(&self) -> bool {
        Attention::of_word(self.process.attention.load(Ordering::Relaxed)).active()
    }

    fn attention_suspects(&mut self) {
        let mut attention = Attention::of_word(self.process.attention.load(Ordering::Relaxed));
        attention.suspect();
        self.process.attention.store(attention.word(), Ordering::Relaxed);
    }

    pub fn attention_hit(&mut self) -> u32 {
        let mut attention = Attention::of_word(self.process.attention.load(Ordering::Relaxed));
        let skip = attention.hit();
        self.process.attention.store(attention.word(), Ordering::Relaxed);
        skip
    }

    /// The words of this thread's lane.
    fn words<'s>(&self, slot: &'s Slot) -> Option<(&'s LanePost, &'s LaneAnswer)> {
        let lane = self.lane?;
        Some((slot.agent.lanes.get(lane)?, slot.speculator.lanes.get(lane)?))
    }

    /// What the log has next for this thread.
    fn next(&self, slot: &Slot) -> Option<Prediction> {
        slot.log.read_lane(self.lane?, self.inner.epoch, self.inner.passed)
    }

    /// What the log says about `operation`, if it foretold it. Goes up to there, beyond what other threads
    /// have done instead.
    fn compare(&mut self, operation: &Prediction) -> Option<Prediction> {
        let slot = self.state.slot()?;
        if !self.inner.track.is_on() {
            return None;
        }
        let mut predicted = self.next(slot)?;
        // The same place of another file under the same number is no chance: that need not be asked.
        let is_place = operation.kind == kind::READ_AT && operation.same_operation(&predicted);
        let operation = if is_place { *operation } else { self.with_file(operation) };
        if !operation.same_read(&predicted) {
            if !self.has_company() {
                return None;
            }
            let (lane, epoch, passed) = (self.lane?, self.inner.epoch, self.inner.passed);
            let ahead = (1..SHARED_AHEAD).map_while(|ahead| {
                let predicted = slot.log.read_lane(lane, epoch, passed.wrapping_add(ahead))?;
                Some((ahead, predicted))
            });
            let mut same = ahead.filter(|(_, predicted)| operation.same_read(predicted));
            let (skipped, found) = same.next()?;
            self.inner.passed = passed.wrapping_add(skipped);
            predicted = found;
        }
        self.follow(slot, Next::Foretold);
        Some(predicted)
    }

    /// `operation` with its file, where threads may share their work. Nobody is asked what is not known here:
    /// a server would notice, and the program wait for it.
    fn with_file(&self, operation: &Prediction) -> Prediction {
        let known = if self.has_company() { known_regular(operation.subject) } else { Ok(None) };
        let file = known.ok().flatten().map_or(0, |file| {
            let (major, minor) = file.device;
            log::file_mark(names::device_number(major, minor), file.inode)
        });
        Prediction { file, ..*operation }
    }

    /// Whether a read that waits is foretold in another thread's lane: that one runs ahead of the work that
    /// they share.
    fn is_foretold_elsewhere(&self, slot: &Slot, operation: &Prediction) -> bool {
        if !self.has_company() {
            return false;
        }
        let operation = self.with_file(operation);
        if operation.file == 0 {
            return false;
        }
        slot.agent.lanes.iter().enumerate().filter(|(lane, _)| self.lane != Some(*lane)).any(
            |(lane, post)| {
                let Some(posted) = post::latest(&post.posted) else { return false };
                let passed = post.passed.load(Ordering::Relaxed);
                (passed.saturating_sub(SHARED_BEHIND)..passed.saturating_add(SHARED_AHEAD)).any(|position| {
                    let predicted = slot.log.read_lane(lane, post::epoch_of(posted), position);
                    predicted.is_some_and(|predicted| operation.same_read(&predicted))
                })
            },
        )
    }

    fn compare_and_follow(&mut self, operation: &Prediction) -> Option<Prediction> {
        let foretold = self.compare(operation);
        if foretold.is_none() {
            self.follow_track(operation);
        }
        foretold
    }

    /// The operation was not foretold: is the log late, or wrong?
    fn follow_track(&mut self, operation: &Prediction) {
        let Some(slot) = self.state.slot() else {
            return;
        };
        if !self.inner.track.is_on() {
            return;
        }
        let next = match self.next(slot) {
            Some(predicted) if self.with_file(operation).same_read(&predicted) => Next::Foretold,
            Some(predicted) => {
                note_mismatch(slot, operation, &predicted);
                Next::Different
            }
            None if self.speculator_stopped(slot) => Next::Never,
            None => Next::NotYet,
        };
        self.follow(slot, next);
    }

    /// Nothing more will be written in this epoch.
    fn speculator_stopped(&self, slot: &Slot) -> bool {
        let Some((_, answer)) = self.words(slot) else { return true };
        slot.speculator.activity.load(Ordering::Acquire) == activity::GONE
            || (answer.over.load(Ordering::Acquire) == self.inner.epoch && self.ahead(slot) == 0)
    }

    fn follow(&mut self, slot: &Slot, next: Next) {
        match self.inner.track.passes(next) {
            Passing::Pass => {
                self.inner.passed = self.inner.passed.wrapping_add(1);
                let Some((post, answer)) = self.words(slot) else { return };
                if pace::pass(&post.passed, self.inner.passed, &answer.wake_at) {
                    ring_speculator(slot);
                }
            }
            Passing::Off { cancel } => {
                if cancel {
                    count(&slot.agent.counts.mismatches, 1);
                    trace(self.state, event::LEFT_TRACK, self.inner.epoch.into(), self.inner.passed.into());
                    self.cancel(slot);
                }
            }
        }
    }

    /// Nothing more is to be predicted in this epoch.
    fn cancel(&self, slot: &Slot) {
        if let Some((post, _)) = self.words(slot) {
            post.cancelled.store(self.inner.epoch, Ordering::Release);
            ring_speculator(slot);
        }
    }

    /// Speculation that may well be right is of no use at present.
    fn leaves_track(&mut self, slot: &Slot) {
        if self.inner.track.leaves() {
            self.cancel(slot);
        }
    }

    /// `operation`: with the place of the read, if that is known. `came`: its bytes, if they are known.
    fn counted(&mut self, operation: &Prediction, foretold: Option<Prediction>, came: Option<u64>) {
        if self.state.has(flags::TRACE_READS) {
            self.tell_read(operation, foretold.is_some());
        }
        let Some(slot) = self.state.slot() else {
            return;
        };
        let foretold_bytes = || foretold.and_then(|foretold| operation.bytes_foretold(&foretold));
        // What was not foretold is for the report only.
        let may_ask = foretold.is_some() || self.state.has(flags::REPORT);
        let bytes = came.or_else(foretold_bytes).unwrap_or_else(|| match may_ask {
            true => can_come(operation.subject, operation.place, operation.detail),
            false => operation.detail,
        });
        let counts = &slot.agent.counts;
        count(&counts.reads, 1);
        count(&counts.read_bytes, bytes);
        if foretold.is_some() {
            count(&counts.reads_hinted, 1);
            count(&counts.read_bytes_hinted, bytes);
        }
        let sync = slot.speculator.sync_cost_ns.load(Ordering::Relaxed);
        self.machines().read(foretold.is_some(), operation.detail, sync, monotonic_ns);
        let server = slot.speculator.server.load(Ordering::Relaxed);
        if server != 0 {
            let ahead = if self.inner.track.is_on() { self.ahead(slot) } else { 0 };
            if self.inner.served.read(server, ahead, monotonic_ns) {
                self.leaves_track(slot);
            }
        }
    }

    /// An event for a read, where each is told. The host has to be there for them.
    #[cold]
    #[inline(never)]
    fn tell_read(&self, operation: &Prediction, foretold: bool) {
        let fd = operation.subject;
        let place = match operation.kind {
            kind::READ => position(fd).map_or(operation.place, |place| place as u64),
            _ => operation.place,
        };
        let Ok(Some(file)) = known_regular(fd) else { return };
        let is_new = self.state.slot().is_none();
        if self.alone_slot().is_some() && is_new {
            attach::ring_host(self.state);
        }
        let bytes = can_come(fd, place, operation.detail).min(u64::from(u32::MAX));
        let (major, minor) = file.device;
        let mixed = file.inode ^ names::device_number(major, minor).rotate_left(32);
        let known_by = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !u64::from(u32::MAX);
        let mark = if foretold { FORETOLD_READ } else { 0 };
        trace(self.state, event::READ, place & !FORETOLD_READ | mark, known_by | bytes);
    }

    /// The slot, claimed where the process's lock is held.
    fn alone_slot(&self) -> Option<&'static Slot> {
        match self.lane {
            None => attach::slot(self.state),
            Some(_) => self.state.slot(),
        }
    }

    /// Whether a read of `length` bytes at `place` would wait; starts it if so, the way that the read
    /// itself would (the kernel sizes its read-ahead by the request).
    fn probe(&mut self, fd: i32, place: i64, length: usize) -> Residency {
        let thread = thread_base(self.state);
        if self.inner.untold.is_open(thread) {
            self.judge_untold(thread, counted_of_thread());
        }
        if self.state.no_cachestat.load(Ordering::Relaxed) == 0 {
            match cached_pages(fd, place as u64, length.min(PAGE) as u64) {
                Ok(0) => self.is_absent = true,
                Ok(_) => return Residency::Cached,
                Err(Errno::ENOSYS) => self.state.no_cachestat.store(1, Ordering::Relaxed),
                // EPERM: kernels of 2025 and later tell only those who own a file or may write to it (CVE-2025-21691).
                Err(_) => {}
            }
        }
        // The first byte only, but as part of the whole request: the second piece is the first page of
        // memory, which never is mapped, so the copy ends there.
        let mut first = 0u8;
        let pieces = [
            IoVec { base: &raw mut first as usize, length: 1 },
            IoVec { base: 0, length: length.saturating_sub(1).min(1 << 30) },
        ];
        // SAFETY: one byte of ours may be overwritten.
        outcome(unsafe { preadv2(fd, &pieces, place, RWF_NOWAIT) })
    }

    /// Whether a read would wait where the file system does not tell.
    #[inline(never)]
    fn untold(&mut self, frame: &Frame, fd: i32, place: i64, foretold: Option<Prediction>) -> Residency {
        let (thread, counted) = (thread_base(self.state), counted_of_thread());
        let is_judged = self.judge_untold(thread, counted);
        let since = self.inner.untold.looks(thread, counted);
        // Asking on costs ten times as much: too much for a sample of reads that do not wait.
        if since == untold::Since::Nothing && !self.is_attentive() {
            if !is_judged {
                self.inner.untold.passes(thread);
            }
            return Residency::Cached;
        }
        // What is read past the page cache is not to be brought into it.
        let Ok(Some(file)) = known_regular(fd) else { return Residency::Cached };
        let (size, (major, minor)) = (file.size, file.device);
        let device = names::device_number(major, minor);
        if is_direct(fd) || self.is_unpacked(fd, file.device) {
            return Residency::Cached;
        }
        if since == untold::Since::Waited {
            self.attention_suspects();
        }
        // The end of a file is known.
        if place as u64 >= size {
            return Residency::Cached;
        }
        self.inner.untold_device = device;
        // All of these but overlays count what is cached. What was foretold begins nothing, whether it
        // waits or not.
        if self.counts_as_cached(fd, place) {
            return Residency::Cached;
        }
        let expects = self.inner.untold.expects(thread);
        let may = || self.inner.asking.may(expects, since, monotonic_ns());
        let asks = foretold.is_none() && may();
        match asks.then(|| self.is_cached_aside(frame, fd, place as u64, size)).flatten() {
            Some(true) => {
                self.inner.untold.hits(thread);
                return Residency::Cached;
            }
            Some(false) => self.attention_suspects(),
            None => {}
        }
        let read = Read { fd, inode: file.inode as u32, place };
        let waits = self.inner.untold.begins(thread, read);
        if waits { Residency::Missing } else { Residency::Cached }
    }

    fn is_cached_aside(&mut self, frame: &Frame, fd: i32, place: u64, size: u64) -> Option<bool> {
        let began = monotonic_ns();
        let told = is_cached(frame, fd, place, size);
        self.inner.asking.asked(began, monotonic_ns());
        told
    }

    /// Whether a file lies on squashfs: it keeps a few unpacked blocks only, of many files each. What is read
    /// ahead there is unpacked once more, by the processors that the program wants, and drops what it reads
    /// next.
    fn is_unpacked(&mut self, fd: i32, (major, minor): (u32, u32)) -> bool {
        // What has a number without a disk may be a server's, which is not to be asked what it is.
        if major == 0 {
            return false;
        }
        let device = names::device_number(major, minor);
        if self.inner.asked_device != device {
            self.inner.asked_device = device;
            self.inner.is_unpacked =
                file_system_type(fd).is_ok_and(|kind| FileSystem::of(kind).is_unpacked());
        }
        self.inner.is_unpacked
    }

    /// Judges whether this thread's latest read of which the file system did not tell has waited. True if
    /// there was one to judge.
    fn judge_untold(&mut self, thread: usize, counted: Counted) -> bool {
        if !self.inner.untold.is_open(thread) {
            return false;
        }
        let can_tell = self.state.no_cachestat.load(Ordering::Relaxed) == 0;
        // Whose descriptor is another file's by now cannot be asked, and was not cached before it was read.
        let is_another =
            |read: Read| !matches!(known_regular(read.fd), Ok(Some(file)) if file.inode as u32 == read.inode);
        let is_cached = |read: Read| cached_pages(read.fd, read.place as u64, 1).is_ok_and(|pages| pages > 0);
        let came = |read| can_tell && (is_cached(read) || is_another(read));
        if self.inner.untold.ends(thread, counted, came) {
            self.attention_suspects();
        }
        true
    }

    fn counts_as_cached(&self, fd: i32, place: i64) -> bool {
        self.state.no_cachestat.load(Ordering::Relaxed) == 0
            && matches!(cached_pages(fd, place as u64, 1), Ok(1..))
    }

    fn in_order(&mut self) -> &mut InOrder {
        // SAFETY: `held` is the lock of this lane's, or the process's where there is none.
        unsafe { self.state.in_order(self.lane) }
    }

    /// A read that is there, or of which it is not known yet: whether it is one of a file that is gone
    /// through.
    fn reads_in_order(&mut self, fd: i32, place: u64, length: u64) -> bool {
        let skipped = self.state.skipped.load(Ordering::Relaxed);
        self.in_order().read(fd, place, length, skipped)
    }

    /// A read that nobody foretold, and of whose first page so much is known. True: it may wait, and is one
    /// of a file that is gone through in order and asked ahead for. False: it is to be taken as any other;
    /// if it has what it wants and goes on in order, more was asked for as well.
    fn goes_in_order(&mut self, fd: i32, place: i64, length: u64, first: Residency) -> bool {
        let may_ask = self.state.header().in_order_most.load(Ordering::Relaxed) > 0;
        if !may_ask || first == Residency::Unknown || !self.reads_in_order(fd, place as u64, length) {
            return false;
        }
        // (The bases of two threads are further apart.)
        let thread = (thread_base(self.state) >> 6) as u32;
        let told = match first {
            Residency::Missing => Some(true),
            Residency::Cached => self.waits_for_its_end(fd, place as u64, length),
            _ => None,
        };
        // What nobody tells beforehand shows afterwards: whether the reads before this one have waited.
        let since = told.is_none().then(|| {
            let (sleeps, blocks) = sleeps_and_blocks();
            self.in_order().since(thread, sleeps as u32, blocks as u32)
        });
        let waits = match since {
            None => told == Some(true),
            // It may have been for something else, unless it is for what was asked ahead for. Where blocks are
            // counted who waits for the disk has some brought in otherwise.
            Some(Since::Slept) => {
                self.in_order().is_served()
                    || self.in_order().is_tried() && self.counts_as_cached(fd, place.saturating_sub(1))
            }
            Some(since) => since == Since::Waited,
        };
        if !waits {
            self.passes_in_order(fd);
            let is_at_it = told.is_none() && !self.inner.track.is_on() && self.in_order().is_at_it();
            if is_at_it {
                self.begins(fd, place);
                self.hit(None);
            }
            return is_at_it;
        }
        // On track speculation knows better. What is read past the page cache is not to be brought into it.
        let is_left = self.state.has(flags::NO_SPECULATION) || self.inner.track.is_on() || is_direct(fd);
        let file = if is_left { None } else { known_regular(fd).ok().flatten() };
        let Some(file) = file.filter(|file| !self.is_unpacked(fd, file.device)) else { return false };
        self.in_order().has_left(file.size.saturating_sub(place as u64));
        if told.is_none() && !self.in_order().is_tried() {
            // Something was brought in; who is at the beginning of a long file is left to it.
            let is_at_it = self.in_order().is_at_it();
            if is_at_it {
                self.attention_stall();
                self.begins(fd, place);
            }
            return is_at_it;
        }
        let Some(slot) = attach::slot(self.state) else { return false };
        if self.may_ask_ahead(slot) == 0 {
            return false;
        }
        let now = monotonic_ns();
        let blocks = sleeps_and_blocks().1 as u32;
        let moment = Moment { now, busy: thread_ns(), thread, blocks };
        if told.is_none() {
            return self.has_waited_in_order(slot, (fd, place), moment, since == Some(Since::Waited));
        }
        match self.in_order().waits(moment) {
            Waiting::LeftAlone => false,
            Waiting::Trial if first == Residency::Cached => {
                self.attention_stall();
                self.begins_stall_in_order(slot, (fd, place), now);
                false
            }
            Waiting::Trial if !self.in_order().is_at_it() => {
                self.attention_stall();
                false
            }
            Waiting::Trial | Waiting::Served => {
                self.waits_in_order(slot, (fd, place), now);
                true
            }
        }
    }

    /// A read of a file that is gone through in order, at such a place; those before it have waited,
    /// certainly where something `was_brought` in. As [`Visit::goes_in_order`].
    fn has_waited_in_order(
        &mut self,
        slot: &Slot,
        (fd, place): (i32, i64),
        moment: Moment,
        was_brought: bool,
    ) -> bool {
        let (waiting, idle) = self.in_order().waited(moment);
        if waiting == Waiting::LeftAlone || (waiting == Waiting::Trial && !self.in_order().is_at_it()) {
            return false;
        }
        if was_brought || waiting == Waiting::Served {
            self.attention_stall();
            opened::has_waited(self.state);
            count(&slot.agent.counts.in_order_stalls, 1);
            count(&slot.agent.counts.in_order_stall_ns, idle);
            attach::has_waited(self.state, idle);
        }
        if self.lane.is_none() {
            // By which others' lanes are judged. This wait is over.
            self.inner.stall_began = moment.now;
            self.take_lane(slot);
            self.inner.stall_began = 0;
        }
        self.begins(fd, place);
        self.asks_ahead(slot, fd);
        true
    }

    /// How many bytes may be asked for ahead of reads in order at present: by the user's limits, and by
    /// what the host leaves to speculation.
    fn may_ask_ahead(&self, slot: &Slot) -> u64 {
        let allowance = &slot.speculator.allowance;
        if allowance.off.load(Ordering::Relaxed) != 0 {
            return 0;
        }
        let left = |count: &AtomicU32, bytes| match count.load(Ordering::Relaxed) {
            0 => u64::MAX,
            count => u64::from(count) * bytes,
        };
        let most = self.state.header().in_order_most.load(Ordering::Relaxed);
        let left = left(&allowance.requests, READAHEAD_MOST).min(left(&allowance.pages, PAGE as u64));
        most.min(left).min(in_order::MOST)
    }

    /// Whether a part of a read, of which the first page is there or on its way, is not there yet; None:
    /// that is not told. Asked about the last byte, as the disk is asked for a file's pages in order.
    fn waits_for_its_end(&self, fd: i32, place: u64, length: u64) -> Option<bool> {
        let last = place.saturating_add(length.saturating_sub(1));
        // What was not in the cache a moment ago and has come without a wait lies on no disk.
        if self.is_absent {
            return Some(false);
        }
        let is_started = |place: u64| match self.probe_started(fd, place as i64) {
            Residency::Missing => Some(true),
            Residency::Untold => None,
            Residency::Cached | Residency::Unknown => Some(false),
        };
        // (That is there, or on its way.)
        if last / PAGE as u64 == place / PAGE as u64 {
            return is_started(last);
        }
        if self.state.no_cachestat.load(Ordering::Relaxed) != 0 {
            return None;
        }
        match cached_pages(fd, last, 1) {
            // To ask otherwise would have the kernel begin to read there, out of order. The first page is
            // asked for whether the file tells at all.
            Ok(0) => {
                is_started(place)?;
                Some(known_regular(fd).is_ok_and(|file| file.is_some_and(|file| last < file.size)))
            }
            Ok(_) => is_started(last),
            Err(_) => None,
        }
    }

    fn passes_in_order(&mut self, fd: i32) {
        // On track speculation knows better.
        if self.in_order().passes()
            && !self.inner.track.is_on()
            && let Some(slot) = self.state.slot()
        {
            self.asks_ahead(slot, fd);
        }
    }

    /// The program is going to wait, since `now`, for a read of a file that is gone through in order and
    /// asked ahead for. Nothing is posted: what it reads next is known.
    fn waits_in_order(&mut self, slot: &Slot, read: (i32, i64), now: u64) {
        let fd = read.0;
        self.attention_stall();
        self.inner.pieces.stall();
        self.inner.bystander.stall();
        self.inner.unseen = 0;
        self.begins_stall_in_order(slot, read, now);
        if self.lane.is_none() {
            self.take_lane(slot);
        }
        self.state.calm.store(0, Ordering::Relaxed);
        opened::has_waited(self.state);
        self.asks_ahead(slot, fd);
    }

    fn begins_stall_in_order(&mut self, slot: &Slot, read: (i32, i64), now: u64) {
        let (fd, place) = read;
        self.inner.stall_began = now;
        self.inner.stall_is_whole = true;
        self.inner.stall_is_in_order = true;
        count(&slot.agent.counts.in_order_stalls, 1);
        trace_at(self.state, now, event::READ_WAITS, place as u64, u64::from(fd as u32));
    }

    /// Asks for what is due of a file that is gone through in order, and tells what this has spared so far.
    /// By the program's own descriptor: what this takes, the program would take for it later on.
    fn asks_ahead(&mut self, slot: &Slot, fd: i32) {
        let began = monotonic_ns();
        let counts = &slot.agent.counts;
        let spared = self.in_order().spared(began);
        count(&counts.in_order, spared.waits);
        count(&counts.in_order_ns, spared.ns);
        let most = self.may_ask_ahead(slot);
        let Some(ask) = self.in_order().ask(most) else { return };
        let Ok(Some(file)) = known_regular(fd) else { return self.in_order().refused() };
        let length = ask.from.saturating_add(ask.bytes).saturating_sub(ask.look);
        let can_tell = self.state.no_cachestat.load(Ordering::Relaxed) == 0;
        let pages = if can_tell { cached_pages(fd, ask.look, length).ok() } else { None };
        let blocks = || sleeps_and_blocks().1 as u32;
        let found = Found { inode: file.inode as u32, size: file.size, pages, blocks: blocks() };
        let bytes = self.in_order().found(ask, found);
        if bytes == 0 {
            return;
        }
        let end = ask.from.saturating_add(bytes);
        let mut from = ask.from;
        while from < end {
            let bytes = READAHEAD_MOST.min(end - from);
            if readahead(fd, from, bytes).is_err() {
                return self.in_order().refused();
            }
            from = from.saturating_add(bytes);
            // The disk's queue is full, or memory has to be found first: the program is not to wait for that.
            if from < end && monotonic_ns().saturating_sub(began) > ASKING_MOST_NS {
                self.in_order().asked_up_to(from);
                break;
            }
        }
        let absent = self.in_order().brought(ask, found, from - ask.from, blocks());
        count(&counts.in_order_bytes, absent);
    }

    /// Whether the read that speculation has started at `place` has arrived.
    fn probe_started(&self, fd: i32, place: i64) -> Residency {
        let mut first = 0u8;
        let piece = [IoVec { base: &raw mut first as usize, length: 1 }];
        // SAFETY: one byte of ours may be overwritten.
        outcome(unsafe { preadv2(fd, &piece, place, RWF_NOWAIT) })
    }

    fn hit(&mut self, foretold: Option<Prediction>) {
        if let Some(foretold) = foretold
            && foretold.marks & mark::PREFETCHED != 0
        {
            if foretold.marks & mark::SPARES != 0
                && let Some(slot) = self.state.slot()
            {
                count(&slot.agent.counts.full, 1);
            }
            // Without the prefetch this might have been a stall: stay awake.
            self.attention_stall();
            self.inner.hold.saved();
            self.inner.worth.spared();
            self.inner.pieces.stall();
        }
        if self.is_in_pieces()
            && self.inner.track.is_on()
            && let Some(slot) = self.state.slot()
        {
            self.leaves_track(slot);
        }
        if self.lane.is_none() {
            self.inner.unseen = self.inner.bystander.hit();
        }
        let skip = self.attention_hit();
        self.leave_sleepers(skip);
        let away = if skip == 0 { self.look_away() } else { 0 };
        self.set_calm(skip.max(away));
    }

    /// How many calls may pass unseen though there are stalls.
    fn look_away(&mut self) -> u32 {
        if !self.saw_a_stall || self.must_see() {
            return 0;
        }
        match self.inner.served.look_away() {
            0 => self.inner.worth.look_away(self.inner.hold.expected_stall()),
            unseen => unseen,
        }
    }

    /// To look at each of such small reads costs more than the stalls that may be avoided.
    fn is_in_pieces(&self) -> bool {
        self.inner.pieces.cost_more(self.inner.hold.expected_stall())
    }

    /// Lets so many calls pass unseen, unless each must be seen, and no more than what is read in order may
    /// do without.
    pub fn set_calm(&mut self, skip: u32) {
        let skip = if self.must_see() { 0 } else { skip.min(self.in_order().unseen_most()) };
        self.state.skipped.fetch_add(skip, Ordering::Relaxed);
        self.state.calm.store(skip as i32, Ordering::Relaxed);
    }

    /// On track every read must be seen, or the log and the program part ways; and whoever looks names up
    /// ahead must know how far the program is. So must whoever guesses at files, but not for each byte of one.
    fn must_see(&self) -> bool {
        let names = self
            .state
            .slot()
            .is_some_and(|slot| slot.speculator.names_ahead.load(Ordering::Relaxed) == names_ahead::BUSY);
        let compared = self.inner.track.is_on() || self.others_on_track() || self.inner.served.watches();
        let files = self.tells_all_files() && !self.is_in_pieces();
        compared || names || files || self.state.has(flags::ALWAYS_ACTIVE)
    }

    /// The program is going to wait for this read.
    fn stall(&mut self, frame: &Frame, foretold: Option<Prediction>, stalled: Stalled) {
        let Stalled { fd, place, .. } = stalled;
        self.attention_stall();
        self.inner.pieces.stall();
        self.inner.bystander.stall();
        self.inner.unseen = 0;
        self.state.calm.store(0, Ordering::Relaxed);
        opened::has_waited(self.state);
        let Some(slot) = attach::slot(self.state) else {
            self.state.stand_down();
            return;
        };
        count(&slot.agent.counts.stalls, 1);
        if foretold.is_some() {
            count(&slot.agent.counts.partial, 1);
        }
        self.inner.stall_began = monotonic_ns();
        self.inner.stall_is_whole = foretold.is_none();
        self.inner.stall_is_in_order = false;
        let waits = u64::from(fd as u32) | foretold.map_or(0, |_| FORETOLD);
        trace_at(self.state, self.inner.stall_began, event::READ_WAITS, place as u64, waits);
        if self.state.has(flags::NO_SPECULATION) {
            return;
        }
        // Whoever runs ahead of the work that threads share does it for all of them.
        let is_done = foretold.is_none()
            && (!self.inner.track.is_on() || self.waits_for_turn(slot))
            && self.is_foretold_elsewhere(slot, &stalled.operation);
        if is_done {
            count(&slot.agent.counts.partial, 1);
            self.inner.stall_is_whole = false;
            self.leaves_track(slot);
            self.begins(fd, place);
            return;
        }
        let has_lane = self.lane.is_some() || self.take_lane(slot);
        self.inner.worth.waits(pages_asked_for(slot));
        // While speculation is on track and says what comes, it knows better.
        let says_little = !self.inner.track.is_on() || self.inner.following.is_silent();
        let untold = if stalled.unasked > 0 { self.inner.untold_device } else { 0 };
        self.inner.served.stalls(untold);
        let may = self.inner.served.may_restart(untold) && self.may_ask_server(slot, untold);
        let tells = place == 0 && foretold.is_none() && says_little && may;
        if !tells {
            self.begins(fd, place);
        }
        let gone = slot.speculator.activity.load(Ordering::Relaxed) == activity::GONE;
        if has_lane && !gone && !self.is_patient(slot) {
            let stall = Stall {
                foretold: foretold.is_some(),
                gap: self.gap(slot),
                waits_for_turn: self.waits_for_turn(slot),
                has_company: self.has_company(),
                sync: slot.speculator.sync_cost_ns.load(Ordering::Relaxed),
                may,
            };
            match self.machines().at_stall(stall) {
                Restart::Post(wait) => {
                    return self.post(frame, slot, Stalled { tells, ..stalled }, wait);
                }
                Restart::Late => count(&slot.agent.counts.lags, 1),
                Restart::No => {}
            }
        }
        if tells {
            self.waits_for_file(slot, fd);
        }
        let away = self.look_away();
        if away > 0 {
            self.set_calm(away);
            // Its end will not be seen: taken for as long as those are whose ends are.
            self.inner.stall_began = 0;
            let expected = self.inner.hold.expected_stall();
            trace(self.state, event::READ_UNSEEN, expected, 0);
            count(&slot.agent.counts.stall_ns, expected);
            attach::has_waited(self.state, expected);
            if self.inner.stall_is_whole {
                count(&slot.agent.counts.whole_stall_ns, expected);
            }
        }
    }

    /// Whether speculation is to wait yet, as the run has hardly waited, it was of no use to earlier
    /// processes of this executable, or it has taken as much as may be lost by it.
    fn is_patient(&self, slot: &Slot) -> bool {
        past(slot, self.process.patience.load(Ordering::Relaxed)).is_patient()
            || !attach::is_worth_a_call(self.state)
    }

    /// What decides for this thread.
    fn machines(&mut self) -> Machines<'_> {
        let Inner { track, following, pieces, hold, worth, futile, .. } = &mut *self.inner;
        Machines { track, following, pieces, hold, worth, futile }
    }

    /// Waits until the speculator's `word` reaches `epoch`, at most `longest` ns, and not much longer than
    /// the read takes: how long a stall lasts is measured to the thread's next call, and with several threads
    /// it may wait for another one by then.
    fn wait_while_data_is_under_way(&self, word: &AtomicU32, epoch: u32, longest: u64, read: (i32, i64)) {
        let end = monotonic_ns().saturating_add(longest);
        loop {
            let now = monotonic_ns();
            let is_there = word.load(Ordering::Acquire) == epoch;
            if is_there || now >= end || self.probe_started(read.0, read.1) != Residency::Missing {
                return;
            }
            wait_for_epoch(word, epoch, (end - now).min(LOOK_NS));
        }
    }

    /// Whether more than one thread of the program reads from the disk at present.
    fn has_company(&self) -> bool {
        self.process.company.load(Ordering::Relaxed) > 0
    }

    /// Whether other threads have had their turns since this one has posted: it has gone on, so the post is a
    /// wrong one by now.
    fn waits_for_turn(&self, slot: &Slot) -> bool {
        let taken = |answer: &LaneAnswer| answer.taken.load(Ordering::Acquire);
        self.has_company() && self.words(slot).is_some_and(|(_, answer)| taken(answer) != self.inner.epoch)
    }

    /// Whether the host wants to know of every file that the program begins to read.
    fn tells_all_files(&self) -> bool {
        let slot = self.state.slot();
        slot.is_some_and(|slot| slot.speculator.companions.load(Ordering::Relaxed) == companions::ALL)
    }

    fn generation(&self) -> u32 {
        self.state.header().releasing.generation()
    }

    /// The program begins to read a file that is there: says so, if the host wants to know.
    fn begins(&self, fd: i32, place: i64) {
        if place == 0
            && self.tells_all_files()
            && let Some(slot) = self.state.slot()
            && let Ok(stat) = fstat(fd)
        {
            let file = begun::File { device: stat.st_dev, inode: stat.st_ino };
            self.alone_in_process(|| slot.agent.begun.write(file, self.generation()));
            // A program that waits for nothing, as all was guessed, is come by at as well.
            if slot.agent.begun.written().is_multiple_of(begun::CALLED_EVERY) {
                attach::call_host(self.state);
            }
        }
    }

    /// The program will wait for the first bytes of a file that was not foretold: the host may know what stands
    /// beside it. It is told the file's path, as the descriptor may be closed by then (of a file that is mapped
    /// it is at once).
    fn waits_for_file(&self, slot: &Slot, fd: i32) {
        if slot.speculator.companions.load(Ordering::Relaxed) != companions::NONE {
            let link = Text::<48>::new().push(b"/proc/thread-self/fd/").push_number(fd as u64);
            let mut path = [0u8; names::PATH_BYTES];
            let path = read_link(link.as_c_str(), &mut path).unwrap_or_default();
            // What may have been cut says nothing.
            let path = if path.len() < names::PATH_BYTES { path } else { &[] };
            self.alone_in_process(|| slot.agent.names.write(names::kind::READ, fd, path, self.generation()));
            attach::call_host(self.state);
        }
    }

    /// Does what one thread may do at a time; not at all while another one holds the process's lock.
    fn alone_in_process(&self, action: impl FnOnce()) {
        if self.lane.is_none() {
            action();
        } else if self.process.lock.try_take() {
            action();
            self.process.lock.release();
        }
    }

    /// Gives this thread, which has stalled, a lane of its own: one that was never used, or that of a thread
    /// which has done nothing for as long as a stall lasts.
    fn take_lane(&mut self, slot: &Slot) -> bool {
        let now = self.inner.stall_began;
        let asleep =
            (STALLS_ASLEEP * self.inner.hold.expected_stall()).clamp(ASLEEP_LEAST_NS, ASLEEP_MOST_NS);
        let free = |lane: &Lane| lane.thread.load(Ordering::Relaxed) == 0;
        let lanes = self.process.lanes.iter().enumerate().take(LANES_OPEN);
        let found = lanes.clone().find(|(_, lane)| free(lane));
        // All are looked at, so that each is known to sleep when it does.
        let found = lanes
            .filter(|(_, lane)| !free(lane) && slept(lane, now) >= asleep)
            .last()
            .filter(|_| found.is_none())
            .or(found);
        let Some((index, lane)) = found else { return false };
        if !lane.lock.try_take() {
            return false;
        }
        let in_order = core::mem::take(self.in_order());
        // SAFETY: the lane's lock is held, and the process's.
        let inner = unsafe { self.process.lane_inner(lane, Some(self.inner)) };
        let common = core::mem::replace(&mut self.inner, inner);
        self.lane = Some(index);
        lane.thread.store(thread_base(self.state), Ordering::Relaxed);
        lane.visits.fetch_add(1, Ordering::Relaxed);
        note_company(self.process, index);
        self.process.lanes_used.fetch_max(index as u32 + 1, Ordering::Release);
        self.leaves_track(slot);
        // What has been found of the read at hand.
        self.inner.stall_began = core::mem::take(&mut common.stall_began);
        self.inner.stall_is_whole = common.stall_is_whole;
        self.inner.stall_is_in_order = core::mem::take(&mut common.stall_is_in_order);
        (self.inner.untold, self.inner.mapped) = (common.untold, common.mapped);
        self.inner.asking = common.asking;
        self.inner.untold_device = common.untold_device;
        *self.in_order() = in_order;
        core::mem::replace(&mut self.held, &lane.lock).release();
        true
    }

    /// Whether this thread may post at a read on `device`, of which the kernel does not tell whether it
    /// waits. Where a server is behind it one thread may at a time: whether that pays is told by the time
    /// that reads of one thread take.
    fn may_ask_server(&self, slot: &Slot, device: u64) -> bool {
        if device == 0 || device != slot.speculator.server.load(Ordering::Relaxed) {
            return true;
        }
        let Some(own) = self.lane.map(|lane| lane as u32 + 1) else { return false };
        let owner = self.process.server_lane.load(Ordering::Relaxed);
        let sleeps = |lane: &Lane| slept(lane, self.inner.stall_began) >= ASLEEP_MOST_NS;
        let is_free = match (owner as usize).checked_sub(1) {
            Some(index) => self.process.lanes.get(index).is_none_or(sleeps),
            None => true,
        };
        let server_lane = &self.process.server_lane;
        let took = || server_lane.compare_exchange(owner, own, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        owner == own || (is_free && took())
    }

    /// Threads that are on track and have done nothing for long: the others need not be seen at each call for
    /// their sake. `skip`: how many calls might pass unseen, were there none.
    fn leave_sleepers(&mut self, skip: u32) {
        if skip == 0 || !self.others_on_track() {
            return;
        }
        self.inner.sleepers_unseen = self.inner.sleepers_unseen.wrapping_add(1);
        if !self.inner.sleepers_unseen.is_multiple_of(LOOKS_AT_SLEEPERS) {
            return;
        }
        let Some(slot) = self.state.slot() else { return };
        let now = monotonic_ns();
        let on_track = self.process.on_track.load(Ordering::Relaxed);
        for (index, lane) in self.process.lanes.iter().enumerate() {
            let is_other = self.lane != Some(index) && on_track & (1 << index) != 0;
            if !is_other || slept(lane, now) < ASLEEP_MOST_NS || !lane.lock.try_take() {
                continue;
            }
            // SAFETY: the lane's lock is held.
            let inner = unsafe { self.process.lane_inner(lane, None) };
            let mut sleeper = Visit {
                inner,
                lane: Some(index),
                held: &lane.lock,
                saw_a_stall: false,
                is_absent: false,
                ..*self
            };
            sleeper.leaves_track(slot);
            sleeper.tell_track();
            lane.lock.release();
        }
    }

    /// Operations that the log holds and the program has not passed yet.
    fn ahead(&self, slot: &Slot) -> u32 {
        self.written(slot).saturating_sub(self.inner.passed)
    }

    /// Operations that the program has passed and the log does not hold yet.
    fn gap(&self, slot: &Slot) -> u32 {
        self.inner.passed.saturating_sub(self.written(slot))
    }

    /// Operations that the log holds for this thread in the present epoch.
    fn written(&self, slot: &Slot) -> u32 {
        let Some((_, answer)) = self.words(slot) else { return 0 };
        let present = answer.synced.load(Ordering::Acquire) == self.inner.epoch;
        if present { answer.written.load(Ordering::Acquire) } else { 0 }
    }

    /// Hands the present registers to the speculator, and waits for it where that pays.
    fn post(&mut self, frame: &Frame, slot: &'static Slot, stalled: Stalled, wait: Wait) {
        let Stalled { fd, place, unasked, tells, .. } = stalled;
        let Some((lane, answer)) = self.words(slot) else { return };
        let agent = &slot.agent;
        let began = self.inner.stall_began;
        let renews = self.waits_for_turn(slot);
        let epoch = post::next_epoch(&self.process.epochs);
        let before = core::mem::replace(&mut self.inner.epoch, epoch);
        self.inner.passed = 0;
        self.inner.track.posted();
        // A post before the first sync says nothing: the speculator is being born.
        let is_served = answer.synced.load(Ordering::Relaxed) != 0;
        // Nor does one that nobody has taken: nothing was tried.
        if is_served && !renews {
            self.inner.worth.posted(unasked > 0);
        }
        if !renews {
            self.inner.futile.restarts(speculation_done(slot), is_served);
        }
        self.tell_track();

        if agent.speculator_wanted.swap(1, Ordering::Relaxed) == 0 {
            attach::ring_host(self.state);
        }
        // First, as in the paper: speculation begins when the copy is made.
        #[cfg(feature = "forked")]
        crate::forked::sync(self.process);
        post::begin(&lane.posted, epoch);
        if !renews {
            // Else the latest epoch that was speculated in is that of the post before.
            lane.epoch_before.store(before, Ordering::Relaxed);
            lane.passed_before.store(lane.passed.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        lane.passed.store(0, Ordering::Relaxed);
        lane.posted_voids.store(agent.voids.load(Ordering::Relaxed), Ordering::Relaxed);
        lane.reason.store(session::stalled::READ, Ordering::Relaxed);
        lane.thread.store(thread_id() as u32, Ordering::Relaxed);
        lane.position.store(place as u64, Ordering::Relaxed);
        let program_break = program_break();
        lane.program_break.store(program_break, Ordering::Relaxed);
        agent.program_break.store(program_break, Ordering::Relaxed);
        lane.names_before.store(agent.counts.names.load(Ordering::Relaxed), Ordering::Relaxed);
        let until = match wait {
            Wait::Not => holding::NOTHING,
            Wait::Within(_) => holding::SYNC,
            Wait::Invest(_) => holding::SETTLED,
        };
        lane.holding.store(until, Ordering::Relaxed);
        // SAFETY: the agent's own part of the slot; the odd number above tells readers to stay away.
        unsafe {
            lane.registers.0.get().write_volatile(frame.registers());
            arch::save_vector_state(lane.vector_state.0.get().cast::<u8>(), &frame.sse);
        }
        // The stalled read is itself the first operation of the log: it is passed already.
        self.follow(slot, Next::NotYet);
        post::publish(&lane.posted, epoch);
        ring_speculator(slot);
        if slot.speculator.activity.load(Ordering::Relaxed) == activity::AHEAD {
            // It may be asleep ahead of a fault.
            futex_wake(&slot.faults.passed);
        }
        count(&agent.counts.posts, 1);
        let posted = monotonic_ns();
        count(&agent.counts.post_ns, posted.saturating_sub(began));
        agent.counts.post_lengths.count(posted.saturating_sub(began));
        trace_at(self.state, posted, event::RESTARTED, epoch.into(), posted.saturating_sub(began));
        // The speculator has what it needs; the host can wait for some us, but not until the file is closed again.
        if tells {
            self.waits_for_file(slot, fd);
        }
        if until != holding::NOTHING {
            if unasked > 0 {
                // Or the hold would come on top of the wait.
                let _ = readahead(fd, place as u64, unasked.min(READAHEAD_MOST));
            }
            let invests = until == holding::SETTLED;
            self.process.holds.fetch_add(1, Ordering::Relaxed);
            let word = if invests { &answer.settled } else { &answer.synced };
            if self.has_company() {
                self.wait_while_data_is_under_way(word, epoch, wait.longest(), (fd, place));
            } else {
                wait_for_epoch(word, epoch, wait.longest());
            }
            self.process.holds.fetch_sub(1, Ordering::Relaxed);
            lane.holding.store(holding::NOTHING, Ordering::Relaxed);
            count(&agent.counts.holds, 1);
            let held = monotonic_ns().saturating_sub(posted);
            count(&agent.counts.hold_ns, held);
            trace(self.state, event::HELD, held, until.into());
            if invests {
                self.inner.hold.invested(held);
            } else if self.probe_started(fd, place) == Residency::Cached {
                self.inner.hold.outlasted(held);
            }
        }
    }
}

/// There is something new for the speculator.
pub fn ring_speculator(slot: &Slot) {
    post::ring(&slot.agent.bell);
    futex_wake(&slot.agent.bell);
}

/// The lower halves of what the kernel counts for this thread.
fn counted_of_thread() -> Counted {
    let (sleeps, blocks) = sleeps_and_blocks();
    Counted { sleeps: sleeps as u32, blocks: blocks as u32 }
}

/// For how long a lane's thread has done nothing, ns, as far as the looks at it tell.
fn slept(lane: &Lane, now: u64) -> u64 {
    let visits = lane.visits.load(Ordering::Relaxed);
    if lane.visits_seen.load(Ordering::Acquire) != visits {
        // First: another thread that looks now takes it for awake.
        lane.seen_at.store(now, Ordering::Relaxed);
        lane.visits_seen.store(visits, Ordering::Release);
    }
    now.saturating_sub(lane.seen_at.load(Ordering::Relaxed))
}

/// Waits until the speculator's `word` reaches `epoch`, at most `longest` ns.
fn wait_for_epoch(word: &AtomicU32, epoch: u32, longest: u64) {
    let end = monotonic_ns().saturating_add(longest);
    loop {
        let seen = word.load(Ordering::Acquire);
        let now = monotonic_ns();
        if seen == epoch || now >= end {
            return;
        }
        if !futex_wait(word, seen, Some(end - now)) {
            return; // time out
        }
    }
}

/// How many of `asked` bytes at `place` a read can give: a file ends.
fn can_come(fd: i32, place: u64, asked: u64) -> u64 {
    match known_size_of_regular(fd) {
        Ok(Some(size)) => asked.min(size.saturating_sub(place)),
        _ => asked,
    }
}

/// What the process and its speculators have been through. `patience`: stalls that are let pass.
fn past(slot: &Slot, patience: u32) -> Past {
    let [stalls, present, before, waited] = [
        &slot.agent.counts.stalls,
        &slot.speculator.counts.processor_ns,
        &slot.speculator.allowance.processor_before_ns,
        &slot.agent.counts.whole_stall_ns,
    ]
    .map(|count| count.load(Ordering::Relaxed));
    let saved = slot.agent.counts.saved_ns();
    Past { stalls, patience, spent: present.saturating_add(before), waited, saved }
}

/// Pages that speculation has asked the disk for so far.
fn pages_asked_for(slot: &Slot) -> u64 {
    slot.speculator.counts.prefetched_pages.load(Ordering::Relaxed)
}

/// What all speculation has done so far for a program that followed none of it: pages that it has asked the
/// disk for, and names that it has looked up.
fn speculation_done(slot: &Slot) -> u64 {
    let counts = &slot.speculator.counts;
    let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    counted(&counts.prefetched_pages).wrapping_add(counted(&counts.names_noted))
}

/// Leaves word of what was foretold instead of what happened, for the report.
fn note_mismatch(slot: &Slot, operation: &Prediction, predicted: &Prediction) {
    let place = |p: &Prediction| if p.kind == kind::READ { 0 } else { p.place };
    let words = |p: &Prediction| [u64::from(p.kind), p.subject as u64, p.detail, place(p)];
    let all = words(operation).into_iter().chain(words(predicted));
    for (place, word) in slot.agent.mismatch.iter().zip(all) {
        place.store(word, Ordering::Relaxed);
    }
}

fn outcome(probed: runahead_kernel::Result<usize>) -> Residency {
    match probed {
        Ok(_) => Residency::Cached,
        Err(Errno::EAGAIN) => Residency::Missing,
        Err(Errno::EOPNOTSUPP) => Residency::Untold,
        Err(_) => Residency::Unknown,
    }
}

pub fn program_break() -> u64 {
    // SAFETY: asking with 0 changes nothing.
    unsafe { runahead_kernel::arch::syscall(n::__NR_brk as usize, [0; 6]) as u64 }
}
