//! Reads that go through a file from one end to the other: how far ahead of them to ask.
//!
//! The kernel asks for the next 128 KB or so of a file that is read in order, which hides what the program
//! takes for as much, and not the latency of most disks. Nothing need be speculated there. Who is seen to wait for
//! a part of his time has more asked for. As long as he waits on it is twice as much, if the latest doubling has
//! made him quicker: else the disk or the program is as quick as it gets. No more is ever asked for than the program has read of the
//! file in order, so that one that stops has at most twice as much read (as the kernel's own read-ahead grows:
//! Fengguang et al., *On the design of a new Linux readahead framework*, 2008).

/// Files that are gone through side by side by one thread (as `cmp` does, or who merges).
const STREAMS: usize = 4;

/// Bytes read in order before it is looked how the program fares: the kernel has got to its own full windows, and has
/// had one under way ahead of the program, by then.
const LEAST: u64 = 768 << 10;

/// Bytes over which it is measured for how much of its time a program waits: several of the kernel's windows.
const TRIAL: u64 = 768 << 10;

/// One that has the processor for more than 3/4 of its time is left alone: what is asked for comes in single pages,
/// where the kernel's own read-ahead has large folios, and `sha256sum` took 5% longer with these.
const WORTH: u64 = 4;

/// How far ahead is asked for at first, bytes: beyond the two windows of 128 KB that the kernel has under way.
const FIRST: u64 = 512 << 10;

/// The most that is asked for ahead, bytes: hides 1 ms at 4 GB/s, and 20 ms at 200 MB/s.
const MOST: u64 = 4 << 20;

/// The most of one call, bytes: pages for so many are found in some 0.2 ms.
const PIECE: u64 = 1 << 20;

/// What the kernel asks for at a time, as a rule, bytes.
const KERNELS: u64 = 128 << 10;

/// A doubling that makes the program less than 5/4 as quick is taken back, and tried again after so many windows:
/// what is limited by latency gets twice as quick.
const RETRY: u64 = 32;

/// A part of a file to be asked for, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    pub from: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Stream {
    fd: i32,
    /// When it was last read, in reads.
    used: u32,
    /// How long its latest read is, bytes, and where the next one begins.
    bytes: u64,
    next: u64,
    /// Bytes up to there, without a gap.
    run: u64,
    /// Up to where it has been asked for, and how far ahead is asked for; 0: not yet.
    asked: u64,
    window: u64,
    /// Where and when the program was when the window became what it is, or when measuring began, and for how
    /// long its thread had run by then, ns; the bytes that it came by in 1 ms before that.
    changed: u64,
    changed_ns: u64,
    changed_busy: u64,
    rate: u64,
    is_settled: bool,
    /// What 1 MB takes where nothing is asked for, ns. Up to where, and when, it was told what that has spared, and
    /// what has not been told, ns.
    alone: u64,
    told: u64,
    told_ns: u64,
    credit: u64,
}

/// What one thread reads in order. Zeros are its start.
#[derive(Clone, Copy, Default, Debug)]
pub struct InOrder {
    streams: [Stream; STREAMS],
    current: usize,
    reads: u32,
}

impl InOrder {
    /// A read of so many bytes at `place`; some before it may not have been seen. Whether it is one of a file
    /// that is gone through, so that it is worth knowing whether it waits for a part of it.
    pub fn read(&mut self, fd: i32, place: u64, bytes: u64) -> bool {
        self.reads = self.reads.wrapping_add(1);
        let reads = self.reads;
        let age = |stream: &Stream| reads.wrapping_sub(stream.used);
        let known = self.streams.iter().position(|stream| stream.fd == fd && stream.run > 0);
        let oldest = || (0..STREAMS).max_by_key(|&index| self.streams.get(index).map(age));
        self.current = known.or_else(oldest).unwrap_or(0);
        let Some(stream) = self.streams.get_mut(self.current) else { return false };
        let goes_on = known.is_some() && place > 0 && place >= stream.next;
        // While anything is asked for ahead, as many calls may pass unseen as keep within that.
        let is_seen = place == stream.next || place < stream.asked;
        if goes_on && is_seen {
            stream.run = stream.run.saturating_add(place - stream.next).saturating_add(bytes);
        } else {
            *stream = Stream { fd, run: bytes, ..Stream::default() };
        }
        (stream.used, stream.bytes) = (reads, bytes);
        stream.next = place.saturating_add(bytes);
        goes_on
    }

    fn stream(&mut self) -> Option<&mut Stream> {
        self.streams.get_mut(self.current).filter(|stream| stream.run >= LEAST)
    }

    /// Whether the latest read goes on in order for as long as it takes to ask ahead.
    pub fn is_served(&mut self) -> bool {
        self.stream().is_some()
    }

    /// The latest read waits. `now`, and for how long the thread has run: ns.
    pub fn waits(&mut self, now: u64, busy: u64) -> Option<Ask> {
        let stream = self.stream()?;
        if stream.changed_ns == 0 {
            stream.changes(now, busy, 0);
            return None;
        }
        let (come, took) =
            (stream.next.saturating_sub(stream.changed), now.saturating_sub(stream.changed_ns));
        let rate = come.saturating_mul(1_000_000) / took.max(1);
        let idle = took.saturating_sub(busy.saturating_sub(stream.changed_busy));
        let due = match (stream.window, stream.is_settled) {
            (0, _) => TRIAL,
            (window, true) => RETRY * window,
            (window, false) => 2 * window,
        };
        if come >= due {
            if stream.window == 0 {
                (stream.told, stream.told_ns) = (stream.next, now);
                stream.alone = took.saturating_mul(1 << 20).checked_div(come).unwrap_or(0);
            }
            let goes_back = !stream.is_settled && stream.window > 0 && rate < stream.rate / 4 * 5;
            stream.window = match stream.window {
                0 if idle < took / WORTH => 0,
                window if goes_back => (window / 2).max(FIRST),
                window => (2 * window).clamp(FIRST, MOST),
            };
            stream.is_settled = goes_back;
            stream.changes(now, busy, rate);
        }
        stream.ask()
    }

    /// The latest read has what it wants.
    pub fn passes(&mut self) -> Option<Ask> {
        let stream = self.stream()?;
        let is_near = stream.asked.saturating_sub(stream.next) < stream.window / 2;
        if is_near { stream.ask() } else { None }
    }

    /// How many waits of `whole` ns have been spared since it was asked last: by as much as what was read since has
    /// taken less than it did before anything was asked for.
    pub fn spared(&mut self, now: u64, whole: u64) -> u64 {
        let Some(stream) = self.stream().filter(|stream| stream.window > 0) else { return 0 };
        let come = stream.next.saturating_sub(stream.told);
        if come < KERNELS {
            return 0;
        }
        let alone = u64::try_from((u128::from(come) * u128::from(stream.alone)) >> 20).unwrap_or(0);
        stream.credit =
            stream.credit.saturating_add(alone.saturating_sub(now.saturating_sub(stream.told_ns)));
        (stream.told, stream.told_ns) = (stream.next, now);
        let spared = stream.credit.checked_div(whole).unwrap_or(0);
        stream.credit -= spared * whole;
        spared
    }

    /// How many reads as the latest may pass unseen before it is time to ask again.
    pub fn unseen_most(&mut self) -> u32 {
        match self.stream().filter(|stream| stream.window > 0) {
            Some(stream) => {
                let left = stream.asked.saturating_sub(stream.next).saturating_sub(stream.window / 4);
                u32::try_from(left / stream.bytes.max(1) / 2).unwrap_or(u32::MAX)
            }
            None => u32::MAX,
        }
    }
}

impl Stream {
    fn changes(&mut self, now: u64, busy: u64, rate: u64) {
        (self.changed, self.changed_ns, self.changed_busy, self.rate) = (self.next, now, busy, rate);
    }

    fn ask(&mut self) -> Option<Ask> {
        let from = self.asked.max(self.next);
        let end = self.next.saturating_add(self.window.min(self.run));
        // From and up to whole pages: a page that the program has read a part of is there.
        let (from, end) = (from.next_multiple_of(crate::PAGE), end / crate::PAGE * crate::PAGE);
        if self.window == 0 || end <= from {
            return None;
        }
        let bytes = (end - from).min(PIECE);
        self.asked = from + bytes;
        Some(Ask { from, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u64 = 32 << 10;

    /// A program that takes so long for each read, on a disk that takes `latency` for each request and reads
    /// `rate` bytes in 1 ms, and a kernel that asks for 128 KB ahead. What it takes for so many reads, ns, and
    /// the furthest that was asked for ahead, bytes.
    fn takes(
        computes: u64,
        latency: u64,
        rate: u64,
        reads: u64,
        mut order: Option<&mut InOrder>,
    ) -> (u64, u64) {
        let (mut now, mut idle, mut furthest) = (1, 0u64, 0);
        let mut here: Vec<u64> = Vec::new();
        let mut ask = |here: &mut Vec<u64>, now: u64, from: u64, end: u64| {
            for _ in (here.len() as u64 * READ).max(from).div_ceil(READ)..end.div_ceil(READ) {
                idle = idle.max(now) + READ * 1_000_000 / rate;
                here.push(idle.max(now + latency));
            }
        };
        for read in 0..reads {
            let place = read * READ;
            if place.is_multiple_of(KERNELS) {
                ask(&mut here, now, place, place + 2 * KERNELS);
            }
            let there = here[read as usize];
            if let Some(order) = order.as_deref_mut() {
                order.read(3, place, READ);
                let asked = if there > now { order.waits(now, read * computes) } else { order.passes() };
                if let Some(Ask { from, bytes }) = asked {
                    ask(&mut here, now, from, from + bytes);
                    furthest = furthest.max(from + bytes - place);
                }
            }
            now = now.max(there) + computes;
        }
        (now, furthest)
    }

    #[test]
    fn who_waits_for_each_window_soon_waits_no_more() {
        let (alone, _) = takes(10_000, 1_000_000, 4 << 20, 4000, None);
        let (ours, _) = takes(10_000, 1_000_000, 4 << 20, 4000, Some(&mut InOrder::default()));
        assert!(ours * 4 < alone, "{ours} {alone}");
    }

    #[test]
    fn where_the_disk_is_as_quick_as_it_gets_little_is_asked_for() {
        for rate in [100 << 10, 15 << 10] {
            let (alone, _) = takes(10_000, 100_000, rate, 4000, None);
            let (ours, furthest) = takes(10_000, 100_000, rate, 4000, Some(&mut InOrder::default()));
            assert!(ours <= alone && furthest <= 2 * FIRST + READ, "{ours} {alone} {furthest}");
        }
    }

    #[test]
    fn who_computes_for_most_of_the_time_is_left_alone() {
        let (_, furthest) = takes(230_000, 1_000_000, 4 << 20, 4000, Some(&mut InOrder::default()));
        assert_eq!(furthest, 0);
        let (_, furthest) = takes(60_000, 1_000_000, 4 << 20, 4000, Some(&mut InOrder::default()));
        assert!(furthest > 0);
    }

    #[test]
    fn no_more_is_asked_for_than_has_been_read() {
        let mut order = InOrder::default();
        let mut asked = 0;
        for read in 0..1000 {
            order.read(3, read * READ, READ);
            if let Some(Ask { from, bytes }) = order.waits(1 + read * 1_000, 0) {
                assert_eq!((from % 4096, bytes % 4096), (0, 0));
                assert!(from + bytes <= 2 * (read + 1) * READ);
                asked += bytes;
            }
        }
        assert!(asked > 500 * READ);
    }

    #[test]
    fn who_does_not_wait_has_nothing_asked_for() {
        let mut order = InOrder::default();
        for read in 0..1000 {
            assert_eq!(order.read(3, read * READ, READ), read > 0);
            assert_eq!(order.passes(), None);
            assert_eq!(order.unseen_most(), u32::MAX);
        }
    }

    #[test]
    fn places_out_of_order_begin_anew() {
        let mut order = InOrder::default();
        for read in 0..1000u64 {
            order.read(3, (read * 7919 % 1000) * READ, READ);
            assert_eq!(order.waits(1 + read, 0), None);
        }
        // Every second part, as of an archive whose members are passed over.
        for read in 0..1000 {
            order.read(3, 2 * read * READ, READ);
            assert_eq!(order.waits(1 + read, 0), None);
        }
    }

    #[test]
    fn several_files_side_by_side_are_each_asked_for() {
        let mut order = InOrder::default();
        let mut asked = [0; STREAMS];
        for read in 0..100 {
            for (fd, asked) in asked.iter_mut().enumerate() {
                order.read(fd as i32, read * READ, READ);
                *asked += order.waits(1 + read * 100, 0).map_or(0, |ask| ask.bytes);
            }
        }
        assert!(asked.iter().all(|&asked| asked > 20 * READ), "{asked:?}");
    }

    #[test]
    fn calls_that_pass_unseen_stay_within_what_was_asked_for() {
        let mut order = InOrder::default();
        let mut place = 0;
        for read in 0..200 {
            order.read(3, place, READ);
            place += READ;
            order.waits(1 + read * 1_000, 0);
        }
        let (begun, mut spared, mut now) = (place, 0, 200_000);
        for _ in 0..200 {
            let unseen = order.unseen_most();
            assert!(unseen < 1 << 10);
            place += u64::from(unseen) * READ;
            order.read(3, place, READ);
            place += READ;
            order.passes();
            now += 500 * u64::from(unseen + 1);
            spared += order.spared(now, 1_000);
        }
        // It took 1 us for each before, and now half of that.
        let half = (place - begun) / READ / 2;
        assert!(spared.abs_diff(half) < 8, "{spared} {half}");
    }
}
