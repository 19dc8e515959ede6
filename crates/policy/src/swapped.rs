//! Constant strides among faults on memory that is on swap: a scan, too.
//!
//! A mapped file's scan is the kernel's own business: it reads megabytes ahead without waiting. Swap it reads a few
//! pages at a time (`page-cluster`, 8 pages), each time only when the program stands before them. So here scans are
//! followed like every other stride, far ahead.
//!
//! What is brought in lies in memory and not yet in the program's page tables: it faults on each page, without waiting,
//! so that its position shows. What is ahead grows with what it passes, two pages for one. (The kernel reads around a
//! page only while what it read around others was used; a burst of requests has it stop.)
//!
//! What is ahead is bounded by the room that the caller names, over all streams together: pages that come in push
//! others out.

use crate::PAGE;
use crate::strides::{Ask, place_of};

/// Steps of equal length after which a stream is believed.
const BELIEVED: u32 = 3;

/// Steps beyond what was asked for that may be missing between two faults: pages that were in memory.
const SKIPS_MOST: u32 = 64;

/// Steps ahead: at first, so that one request is left when the next is asked for, and while what was brought in is used. 1024 pages
/// are 2 ms of a program that adds up floats.
const DEPTH_FIRST: u32 = 2 * TOGETHER;
pub const DEPTH_MOST: u32 = 1024;

/// Steps that are asked for together: 128 KB of a scan, which the disk is asked for as one. (8, what the kernel reads at once
/// (`page-cluster`), were three times as many requests. Four passes over 256 MB in 96 MB: 3.0 s for 2.4 at 1 ms, 123 for 102 on four old disks.)
pub const TOGETHER: u32 = 32;

/// Streams of one thread: a loop over a few arrays, unrolled four times.
const STREAMS: usize = 16;

/// Faults after which a stream that was not met is over, and leaves its room to others.
const FORGOTTEN: u64 = 1024;

/// What follows from a fault.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The stream, for [`Streams::asked`].
    pub stream: usize,
    pub ask: Option<Ask>,
    /// Pages brought in earlier that the program has now passed.
    pub useful: u32,
    /// The fault is a step of a stream that is believed: it needs nobody else's help.
    pub served: bool,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    instruction: u64,
    last: u64,
    stride: i64,
    /// The latest step, if it was not the stride.
    candidate: i64,
    /// Steps in a row.
    run: u32,
    /// Steps that the program has made since it was asked last.
    passed: u32,
    /// Steps ahead that were asked for; of these, pages that were on swap.
    ahead: u32,
    fresh: u32,
    depth: u32,
    used: u64,
}

const NEW: Stream = Stream {
    instruction: 0,
    last: 0,
    stride: 0,
    candidate: 0,
    run: 0,
    passed: 0,
    ahead: 0,
    fresh: 0,
    depth: DEPTH_FIRST,
    used: 0,
};

/// The streams of one thread.
#[derive(Clone, Debug)]
pub struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams { streams: [NEW; STREAMS], clock: 0 }
    }
}

impl Streams {
    /// The instruction faulted at the address. `room`: pages that may be ahead of the thread in all.
    pub fn fault(&mut self, instruction: u64, address: u64, room: u32) -> Outcome {
        self.clock += 1;
        let (at, known) = self.place_of(instruction);
        let clock = self.clock;
        let Some(stream) = self.streams.get_mut(at) else { return Outcome::default() };
        if !known {
            *stream = Stream { instruction, last: address, used: clock, ..NEW };
            return Outcome::default();
        }
        if clock - stream.used >= FORGOTTEN {
            (stream.ahead, stream.fresh) = (0, 0);
        }
        stream.used = clock;
        let Some(useful) = stream.step(address) else { return Outcome::default() };
        let served = stream.run >= BELIEVED;
        let ask = if served { self.ask(at, useful > 0, room) } else { None };
        Outcome { stream: at, ask, useful, served }
    }

    /// Of what was asked for last so many steps were taken, the first ones, and so many pages of them were on swap and
    /// are brought in.
    pub fn asked(&mut self, stream: usize, ask: Ask, taken: u32, brought: u32) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.ahead = ask.first.saturating_sub(1).saturating_add(taken.min(ask.count));
            stream.fresh = stream.fresh.saturating_add(brought);
        }
    }

    /// Pages that are asked for and that the thread has not passed.
    pub fn ahead(&self) -> u32 {
        let current = |stream: &&Stream| self.clock.saturating_sub(stream.used) < FORGOTTEN;
        self.streams.iter().filter(current).fold(0, |sum, stream| sum.saturating_add(stream.ahead))
    }

    fn ask(&mut self, at: usize, useful: bool, room: u32) -> Option<Ask> {
        let left = room.saturating_sub(self.ahead());
        let stream = self.streams.get_mut(at)?;
        if stream.passed < TOGETHER && stream.ahead > 0 {
            return None;
        }
        if useful {
            stream.depth = stream.depth.saturating_add(stream.passed).min(DEPTH_MOST);
        }
        // Half of the room at most: a second stream is to find some.
        let depth = stream.depth.min(room / 2);
        let count = depth.saturating_sub(stream.ahead).min(left) / TOGETHER * TOGETHER;
        if count == 0 {
            return None;
        }
        stream.passed = 0;
        let ask = Ask { from: stream.last, stride: stream.stride, first: stream.ahead + 1, count, width: 1 };
        stream.ahead += count;
        Some(ask)
    }

    fn place_of(&self, instruction: u64) -> (usize, bool) {
        place_of(self.streams.iter().map(|stream| (stream.instruction, stream.used)), instruction)
    }
}

impl Stream {
    /// Takes a fault in. Returns how many pages that were brought in have been passed; None if it was no step.
    fn step(&mut self, address: u64) -> Option<u32> {
        let delta = self.distance(address);
        if delta.unsigned_abs() < PAGE {
            // The same page again.
            return None;
        }
        self.last = address;
        let Some(steps) = self.steps(delta) else {
            self.leave(delta);
            return None;
        };
        self.run = self.run.saturating_add(1);
        self.candidate = 0;
        self.passed = self.passed.saturating_add(steps);
        let useful = steps.min(self.fresh);
        self.ahead = self.ahead.saturating_sub(steps);
        self.fresh -= useful;
        if self.ahead == 0 {
            self.fresh = 0;
        }
        Some(useful)
    }

    /// How far it is from the latest fault. In a scan a page is touched wherever its first word lies, so there whole pages
    /// count; else bytes, as rows need not be whole pages.
    fn distance(&self, address: u64) -> i64 {
        let pages = (address / PAGE).wrapping_sub(self.last / PAGE) as i64;
        if pages.unsigned_abs() <= 1 || self.stride.unsigned_abs() == PAGE {
            return pages.wrapping_mul(PAGE as i64);
        }
        address.wrapping_sub(self.last) as i64
    }

    /// How many strides the distance is.
    fn steps(&self, delta: i64) -> Option<u32> {
        let whole = delta.checked_rem(self.stride)? == 0;
        let steps = delta.checked_div(self.stride)?;
        (whole && (1..=i64::from(self.ahead + SKIPS_MOST)).contains(&steps)).then_some(steps as u32)
    }

    /// A step of another length: the end of an array, or another stride altogether if it comes twice.
    fn leave(&mut self, delta: i64) {
        (self.ahead, self.fresh) = (0, 0);
        if delta == self.candidate {
            let (instruction, last, used) = (self.instruction, self.last, self.used);
            *self = Stream { instruction, last, used, stride: delta, run: BELIEVED - 1, ..NEW };
        } else {
            self.candidate = delta;
            // One more step of the old length is enough to go on with it.
            self.run = self.run.min(BELIEVED - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const ROOM: u32 = 4096;
    const START: u64 = 1 << 30;

    /// A program whose memory is all on swap, and what was brought in for it.
    #[derive(Default)]
    struct Made {
        streams: Streams,
        brought: HashSet<u64>,
        waits: u32,
        useful: u32,
        most: u32,
    }

    impl Made {
        fn touch(&mut self, address: u64) {
            self.waits += u32::from(!self.brought.contains(&(address / PAGE)));
            let outcome = self.streams.fault(7, address, ROOM);
            self.useful += outcome.useful;
            let Some(ask) = outcome.ask else { return };
            self.most = self.most.max(ask.count);
            self.brought.extend(ask.addresses().map(|address| address / PAGE));
            self.streams.asked(outcome.stream, ask, ask.count, ask.count);
        }
    }

    fn walk(stride: i64, offset: impl Fn(u64) -> u64, steps: u64) -> Made {
        let mut made = Made::default();
        (0..steps)
            .for_each(|step| made.touch(START.wrapping_add_signed(stride * step as i64) + offset(step)));
        made
    }

    #[test]
    fn a_scan_waits_at_its_beginning_only() {
        for (stride, offset) in [(4096, 0), (-4096, 0), (4096, 40), (65536, 0), (5000 * 8, 0)] {
            let made = walk(stride, |step| step * offset % 4000, 20_000);
            assert!(made.waits < 8, "{stride}: {}", made.waits);
            assert!(made.useful > 19_900, "{stride}: {}", made.useful);
            assert_eq!(made.streams.ahead() / TOGETHER, DEPTH_MOST / TOGETHER - 1);
        }
    }

    #[test]
    fn a_stride_is_believed_at_its_third_step() {
        let mut streams = Streams::default();
        // The first two steps tell the stride.
        let served: Vec<bool> =
            (0..6).map(|step| streams.fault(7, START + step * PAGE, ROOM).served).collect();
        assert_eq!(served, [false, false, false, true, true, true]);
        assert!(!streams.fault(8, START + 6 * PAGE, ROOM).served, "another instruction");
    }

    #[test]
    fn it_is_not_asked_in_bursts() {
        assert!(walk(4096, |_| 0, 20_000).most <= DEPTH_FIRST);
    }

    #[test]
    fn random_places_ask_for_nothing() {
        let mut made = Made::default();
        let mut state = 1u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            made.touch(state >> 20);
        }
        assert_eq!((made.waits, made.useful), (10_000, 0));
    }

    #[test]
    fn the_next_pass_goes_on_at_once() {
        let mut made = walk(4096, |_| 0, 10_000);
        made.brought.clear();
        made.waits = 0;
        (0..10_000).for_each(|step| made.touch(START + step * PAGE));
        assert!(made.waits < 8, "{}", made.waits);
    }

    #[test]
    fn where_nothing_is_on_swap_it_stays_shallow() {
        let mut streams = Streams::default();
        for step in 0..10_000u64 {
            let outcome = streams.fault(7, START + step * PAGE, ROOM);
            if let Some(ask) = outcome.ask {
                streams.asked(outcome.stream, ask, ask.count, 0);
            }
            assert!(streams.ahead() <= DEPTH_FIRST);
        }
    }

    #[test]
    fn a_full_queue_is_asked_again_from_where_it_ended() {
        let mut streams = Streams::default();
        let mut asked = Vec::new();
        for step in 0..200u64 {
            let outcome = streams.fault(7, START + step * PAGE, ROOM);
            let Some(ask) = outcome.ask else { continue };
            asked.extend(ask.addresses().take(2));
            streams.asked(outcome.stream, ask, 2, 2);
        }
        assert!(asked.windows(2).all(|pair| pair[0] < pair[1]), "{asked:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever faults, and whatever becomes of it: no more is ahead than there is room for.
        #[test]
        fn room_is_kept(
            faults in prop::collection::vec((0u64..24, 0u64..6, 1u64..4), 0..2000),
            room in 0u32..3000,
        ) {
            let mut streams = Streams::default();
            let mut places = [0u64; 24];
            for (instruction, kind, jump) in faults {
                let place = &mut places[instruction as usize];
                *place += if kind == 0 { jump << 30 } else { PAGE * jump.min(kind) };
                let outcome = streams.fault(instruction, (instruction << 44) + *place, room);
                if let Some(ask) = outcome.ask {
                    prop_assert!(ask.count > 0);
                    streams.asked(outcome.stream, ask, ask.count, ask.count);
                }
                prop_assert!(streams.ahead() <= room, "{} of {room}", streams.ahead());
            }
        }

        /// No address, however odd, is more than it can stand.
        #[test]
        fn garbage_is_survived(faults in prop::collection::vec((0u64..4, any::<u64>()), 0..500), room: u32) {
            let mut streams = Streams::default();
            for (instruction, address) in faults {
                let outcome = streams.fault(instruction, address, room);
                if let Some(ask) = outcome.ask {
                    streams.asked(outcome.stream, ask, u32::MAX, u32::MAX);
                }
            }
        }
    }
}
