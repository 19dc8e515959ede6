//! Events of a traced run (`runahead run --trace`), in the order in which each writer met them.
//!
//! A ring in each slot for the program's agent and one for its speculator, of events of one size.
//! Both are written only while the run is traced, so that their pages stay untouched otherwise.
//! Threads of one process may write at the same time. The host takes events out some fifty times a
//! second; a reader that is too slow loses the oldest, and knows how many. docs/trace.md says what
//! each event means; recorded, they can be played back to the policies.
//!
//! The reader takes everything here as untrusted: any words are an event, which is then looked at.

use crate::sync::{AtomicU64, Ordering, fence};

/// Events that a program's ring holds, and a speculator's: with what stands before them, whole
/// pages.
pub const AGENT_EVENTS: usize = 1023;
pub const SPECULATOR_EVENTS: usize = 511;

/// What an event says. Those up to 31 stand in rings, the others are the host's own.
pub mod kind {
    /// A thread begins to wait for a read. `a`: the place in the file; `b`: the descriptor, and
    /// [`FORETOLD`](super::FORETOLD).
    pub const READ_WAITS: u8 = 1;
    /// The wait of the thread is over, as it has made its next call. `a`: its time, ns.
    pub const READ_CAME: u8 = 2;
    /// Nobody will look at the end of the wait that has just begun. `a`: how long waits are at
    /// present, ns.
    pub const READ_UNSEEN: u8 = 3;
    /// A name was looked up, or a directory listed, and that waited. `a`: its time, ns.
    pub const NAME_WAITED: u8 = 4;
    /// Registers were handed over: speculation restarts. `a`: the epoch; `b`: what that cost the
    /// thread, ns.
    pub const RESTARTED: u8 = 5;
    /// The thread waited for the speculator. `a`: its time, ns; `b`: one of
    /// [`crate::session::holding`].
    pub const HELD: u8 = 6;
    /// The program did something else than foretold. `a`: the epoch; `b`: operations that it had
    /// passed.
    pub const LEFT_TRACK: u8 = 7;
    /// A read begins, where all are told ([`TRACE_READS`](crate::environment::flags::TRACE_READS)).
    /// `a`: the place in the file, and [`FORETOLD_READ`](super::FORETOLD_READ); `b`: bytes, and in the
    /// upper half by what the file is known.
    pub const READ: u8 = 8;

    /// The speculator is in step with a read, and runs on from there. `a`: the epoch; `b`: what the
    /// sync took, ns.
    pub const SYNCED: u8 = 16;
    /// The same with a page fault. `a`: the fault epoch.
    pub const SYNCED_TO_FAULT: u8 = 17;
    /// The speculation is over. `a`: one of [`crate::session::ended`]; `b`: the system call, or the
    /// signal.
    pub const ENDED: u8 = 18;
    /// The speculator is far enough ahead and sleeps. `a`: what it has written to the log, of the
    /// epoch.
    pub const SLEEPS_AHEAD: u8 = 19;
    /// It goes on.
    pub const GOES_ON: u8 = 20;

    /// `a`: operations that the log holds and the program has not passed; `b`: those that it has
    /// passed, of the epoch.
    pub const AHEAD: u8 = 34;
    /// `a`: pages of memory that the speculator has of its own.
    pub const MEMORY: u8 = 35;
    /// `a`: page faults of the process that had to read, so far.
    pub const FAULTS: u8 = 36;
    /// `a`: a device (`st_dev`); `b`: bytes that were asked of it ahead since the sample before, a
    /// second.
    pub const ASKED: u8 = 37;
    /// `a`: a device; `b`: requests that it has at present, whoever made them.
    pub const IN_FLIGHT: u8 = 38;
    /// `a`: names and listings looked up ahead so far.
    pub const NAMES_AHEAD: u8 = 39;
}

/// In `b` of [`kind::READ_WAITS`]: speculation had asked for it, and it was on its way.
pub const FORETOLD: u64 = 1 << 32;

/// In `a` of [`kind::READ`]: speculation had foretold it.
pub const FORETOLD_READ: u64 = 1 << 63;

/// One event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// CLOCK_MONOTONIC, ns.
    pub time: u64,
    /// One of [`kind`].
    pub kind: u8,
    /// The thread whose event it is; 0: it is the process's.
    pub thread: u32,
    pub a: u64,
    pub b: u64,
}

#[repr(C)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
struct Entry {
    /// The thread in the lower half; above it the kind, and the entry's number, of which
    /// [`NUMBER_BITS`] are kept. Stored last; 0 while the rest changes.
    what: AtomicU64,
    time: AtomicU64,
    a: AtomicU64,
    b: AtomicU64,
}

/// Bits of an entry's number that its first word holds.
const NUMBER_BITS: u32 = 24;

#[repr(C)]
#[derive(Debug)]
pub struct Ring<const EVENTS: usize> {
    /// Entries begun so far.
    begun: AtomicU64,
    _gap: [u64; 3],
    entries: [Entry; EVENTS],
}

/// What is found at a position of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Event(Event),
    /// It is being written, or its writer was killed over it.
    NotYet,
    /// A later one is there.
    Lost,
}

#[cfg(loom)]
impl<const EVENTS: usize> Default for Ring<EVENTS> {
    fn default() -> Self {
        Ring { begun: AtomicU64::new(0), _gap: [0; 3], entries: core::array::from_fn(|_| Entry::default()) }
    }
}

impl<const EVENTS: usize> Ring<EVENTS> {
    /// Position + 1, so that a fresh (zero) entry is valid nowhere.
    fn number(position: u64) -> u64 {
        let number = position.wrapping_add(1) % ((1 << NUMBER_BITS) - 1);
        number + 1
    }

    /// Enters an event. True: the ring is half full since the time before, and the reader may want
    /// to know. Async-signal-safe; several threads may write at the same time.
    pub fn write(&self, event: &Event) -> bool {
        let position = self.begun.fetch_add(1, Ordering::Relaxed);
        let entry = &self.entries[(position % EVENTS as u64) as usize];
        entry.what.store(0, Ordering::Relaxed);
        // Whoever finds one of the words below finds the zero as well.
        fence(Ordering::Release);
        entry.time.store(event.time, Ordering::Relaxed);
        entry.a.store(event.a, Ordering::Relaxed);
        entry.b.store(event.b, Ordering::Relaxed);
        let what = Self::number(position) << 40 | u64::from(event.kind) << 32 | u64::from(event.thread);
        entry.what.store(what, Ordering::Release);
        position.is_multiple_of((EVENTS as u64 / 2).max(1))
    }

    /// Entries begun so far.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// What is at `position`, which is below [`Ring::begun`].
    pub fn read(&self, position: u64) -> Found {
        let entry = &self.entries[(position % EVENTS as u64) as usize];
        let what = entry.what.load(Ordering::Acquire);
        let event = Event {
            time: entry.time.load(Ordering::Relaxed),
            kind: (what >> 32) as u8,
            thread: what as u32,
            a: entry.a.load(Ordering::Relaxed),
            b: entry.b.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let is_whole = what >> 40 == Self::number(position) && entry.what.load(Ordering::Relaxed) == what;
        match is_whole {
            true => Found::Event(event),
            false if self.begun().wrapping_sub(position) > EVENTS as u64 => Found::Lost,
            false => Found::NotYet,
        }
    }
}

/// How far a ring was read, on the reader's side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    next: u64,
    /// The position at which the latest look ended, as the event there was not whole; plus 1.
    waited_at: u64,
    /// Events that were lost.
    pub lost: u64,
}

impl Cursor {
    /// Takes out what has come since. Whatever is in the ring, no more than it holds comes out.
    pub fn take<const EVENTS: usize>(&mut self, ring: &Ring<EVENTS>, mut each: impl FnMut(&Event)) {
        let begun = ring.begun();
        let held = EVENTS as u64;
        if begun < self.next {
            // No writer of ours goes back.
            self.next = begun;
        }
        let behind = begun - self.next;
        if behind > held {
            self.lost = self.lost.saturating_add(behind - held);
            self.next = begun - held;
        }
        while self.next < begun {
            match ring.read(self.next) {
                Found::Event(event) => each(&event),
                // A writer is at it; one that was there at the latest look as well will not come
                // back.
                Found::NotYet if self.waited_at != self.next + 1 => {
                    self.waited_at = self.next + 1;
                    return;
                }
                Found::NotYet | Found::Lost => self.lost = self.lost.saturating_add(1),
            }
            self.next += 1;
        }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Ring<AGENT_EVENTS>>() == 8 * 4096);
#[cfg(not(loom))]
const _: () = assert!(size_of::<Ring<SPECULATOR_EVENTS>>() == 4 * 4096);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ring() -> Box<Ring<7>> {
        // SAFETY: zeros are the ring's start.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn event(number: u64) -> Event {
        Event { time: number, kind: kind::READ_CAME, thread: 40, a: number, b: !number }
    }

    fn taken(cursor: &mut Cursor, ring: &Ring<7>) -> Vec<u64> {
        let mut numbers = Vec::new();
        cursor.take(ring, |taken| {
            assert_eq!(*taken, event(taken.a));
            numbers.push(taken.a);
        });
        numbers
    }

    #[test]
    fn events_come_out_once_in_order_and_the_oldest_are_lost() {
        let (ring, mut cursor) = (ring(), Cursor::default());
        for number in 0..3 {
            ring.write(&event(number));
        }
        assert_eq!(taken(&mut cursor, &ring), [0, 1, 2]);
        assert_eq!(taken(&mut cursor, &ring), [0; 0]);
        for number in 3..20 {
            ring.write(&event(number));
        }
        assert_eq!((taken(&mut cursor, &ring), cursor.lost), ((13..20).collect(), 10));
        // Numbers that are kept in 24 bits go round.
        for number in 20..(1 << NUMBER_BITS) + 50 {
            ring.write(&event(number));
            assert_eq!(taken(&mut cursor, &ring), [number]);
        }
        assert_eq!(cursor.lost, 10);
    }

    #[test]
    fn an_event_that_is_never_finished_is_waited_for_once() {
        let (ring, mut cursor) = (ring(), Cursor::default());
        ring.write(&event(0));
        ring.begun.fetch_add(1, Ordering::Relaxed);
        ring.write(&event(2));
        assert_eq!(taken(&mut cursor, &ring), [0]);
        assert_eq!((taken(&mut cursor, &ring), cursor.lost), (vec![2], 1));
    }

    #[test]
    fn nothing_that_is_scribbled_there_makes_it_endless() {
        for begun in [u64::MAX, u64::MAX - 3, 1 << 40, 5] {
            let (ring, mut cursor) = (ring(), Cursor::default());
            cursor.next = 9;
            ring.begun.store(begun, Ordering::Relaxed);
            ring.entries[0].what.store(u64::MAX, Ordering::Relaxed);
            let mut count = 0;
            for _ in 0..3 {
                cursor.take(&ring, |_| count += 1);
            }
            assert!(count <= 7, "{begun}");
        }
    }
}
