//! Names that the program opens are entered for the host to remember (`runahead_abi::opened`).
//!
//! An open may wait for other reasons than the disk (a pipe's other end, a lease), so the program's own
//! instruction makes each. Nothing is entered, and sites pass the agent by, until the program has waited for
//! the disk, or the run is known to be cold. What should be entered and cannot be is counted ([`misses`]), so
//! that nobody takes the rest for all.

use crate::arch::{Answer, Frame};
use crate::attach;
use crate::names::copy;
use crate::reads::{Visit, with_process};
use crate::session;
use crate::state::Fixed;
use core::sync::atomic::Ordering;
use runahead_abi::environment::flags;
use runahead_abi::opened::{PATH_MOST, REPLAY_LONGEST_NS, ends_replay as say_over, kind};
use runahead_abi::session::remembering;
use runahead_kernel::process::{futex_wait, monotonic_ns};
use runahead_kernel::uapi::general as n;

/// Flags of what is not opened for what is in it.
const NOT_READ: u32 = n::O_CREAT | n::O_TRUNC | n::O_PATH | n::O_DIRECT;

/// Tries to get the lock of the ring of names, which its holder has for less than a microsecond.
const TRIES: u32 = 1000;

/// `open`, `openat`.
pub fn opens(frame: &Frame, directory: i32, path: usize, how: u32) -> Answer {
    let state = frame.state();
    if !enters(state) {
        unseen(state);
        return Answer::plain(frame);
    }
    // Their stubs have counted it down.
    seen(state);
    if how & (n::O_ACCMODE | NOT_READ) == n::O_RDONLY {
        let kind = if how & n::O_DIRECTORY != 0 { kind::LISTED } else { kind::OPENED };
        if state.slot().is_none() {
            with_process(frame, |visit| {
                // It may have waited enough already, while it was being loaded.
                if attach::slot(visit.state).is_some() {
                    attach::call_host(visit.state);
                }
            });
        }
        enter_at(state, kind, directory, path);
    }
    Answer::plain(frame)
}

/// The process has waited for the disk: from now on what it opens is of interest, if anything is.
pub fn has_waited(state: &Fixed) {
    if !state.has(flags::REMEMBERS) {
        return;
    }
    state.process().has_waited.store(1, Ordering::Relaxed);
    if enters(state) {
        seen(state);
    }
}

/// To be called at the start.
pub fn begins(state: &Fixed) {
    if enters(state) { seen(state) } else { unseen(state) }
}

/// Whether the host has come to want all that is opened, since.
pub fn look(state: &Fixed) {
    if state.has(flags::REMEMBERS)
        && state.header().remembering.load(Ordering::Relaxed) == remembering::ALL
        && state.openings.load(Ordering::Relaxed) >= 0
    {
        seen(state);
    }
}

/// Openings pass by that were wanted: not all that the run opens is known to the host.
pub fn misses(state: &Fixed) {
    if state.has(flags::REMEMBERS) {
        state.header().openings_missed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether what this process opens is entered.
pub fn enters(state: &Fixed) -> bool {
    state.has(flags::REMEMBERS) && wants(state)
}

fn wants(state: &Fixed) -> bool {
    match state.header().remembering.load(Ordering::Relaxed) {
        remembering::ALL => true,
        remembering::WAITING => state.process().has_waited.load(Ordering::Relaxed) != 0,
        _ => false,
    }
}

fn seen(state: &Fixed) {
    state.openings.store(-1, Ordering::Relaxed);
}

fn unseen(state: &Fixed) {
    state.openings.store(i32::MAX, Ordering::Relaxed);
}

/// Enters the path at `path`, if it is one.
fn enter_at(state: &Fixed, kind: u32, directory: i32, path: usize) {
    let mut copied = [0u8; PATH_MOST];
    let got = copy(path, &mut copied);
    let path = copied.get(..got).unwrap_or_default();
    match path.iter().position(|&byte| byte == 0) {
        Some(0) => {}
        Some(end) => enter(state, kind, directory, path.get(..end).unwrap_or_default()),
        None if got == PATH_MOST => misses(state),
        // No path: the call fails.
        None => {}
    }
}

fn enter(state: &Fixed, kind: u32, directory: i32, path: &[u8]) {
    let lock = &state.process().opened_lock;
    let has_lock = || {
        (0..TRIES).any(|_| {
            core::hint::spin_loop();
            lock.try_take()
        })
    };
    match state.slot().filter(|_| has_lock()) {
        Some(slot) => {
            let is_much = slot.agent.opened.write(kind, directory, path);
            lock.release();
            if is_much {
                attach::ring_host(state);
            }
        }
        None => misses(state),
    }
}

impl Visit<'_> {
    /// The program has waited for the look-up of a name.
    pub fn enter_waited(&self, directory: i32, path: &[u8]) {
        // The visit has the process's lock.
        if enters(self.state) && attach::slot(self.state).is_some() {
            enter(self.state, kind::LOOKED_UP, directory, path);
        }
    }
}

/// The process bears nobody who opens files: what was opened in an earlier run is not opened any more when
/// this returns, or [`REPLAY_LONGEST_NS`] after this was said first.
pub fn ends_replay(state: &Fixed) {
    if !state.has(flags::REMEMBERS) {
        return;
    }
    let (header, now) = (state.header(), monotonic_ns());
    say_over(&header.remembering);
    let since = match header.over_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => now,
        Err(since) => since.min(now),
    };
    wait_for_replay(state, since.saturating_add(REPLAY_LONGEST_NS));
}

/// The main process ends: nothing is opened any more that was opened in an earlier run, when this returns. A
/// host that is there is waited for beyond `end` (monotonic ns), as each of its threads waits in the disk's
/// queue; one that is stopped or gone is not.
pub fn ends(state: &Fixed, mut end: u64) {
    const LONGEST_NS: u64 = 2_000_000_000;
    const LOOK_AGAIN_NS: u64 = 50_000_000;
    let replaying = &state.header().replaying;
    say_over(&state.header().remembering);
    if replaying.load(Ordering::Acquire) == 0 {
        return;
    }
    let last = monotonic_ns().saturating_add(LONGEST_NS);
    while let (now, left @ 1..) = (monotonic_ns(), replaying.load(Ordering::Acquire)) {
        if now >= end {
            if now >= last || !session::host_runs(&state.address) {
                return;
            }
            end = now.saturating_add(LOOK_AGAIN_NS);
        }
        futex_wait(replaying, left, Some(AGAIN_NS));
    }
}

/// The same, and nothing is waited for.
pub fn says_over(state: &Fixed) {
    say_over(&state.header().remembering);
}

/// How long one waits at a time: the host wakes nobody but at the last one.
const AGAIN_NS: u64 = 1_000_000;

fn wait_for_replay(state: &Fixed, end: u64) {
    let replaying = &state.header().replaying;
    while let (now, left @ 1..) = (monotonic_ns(), replaying.load(Ordering::Acquire)) {
        if now >= end {
            return;
        }
        futex_wait(replaying, left, Some(AGAIN_NS));
    }
}
