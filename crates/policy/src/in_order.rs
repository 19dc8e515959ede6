//! Reads that go through a file from one end to the other: how far ahead of them to ask.
//!
//! The kernel asks for the next 128 KB or so of a file that is read in order, which hides what the program
//! takes for as much, and not the latency of most disks. Nothing need be speculated there. A program that is
//! seen to wait for a part of its time has more asked for. As long as it waits on it is twice as much, if the
//! latest doubling has made it quicker: else the disk or the program is as quick as it gets. No more is ever
//! asked for than the program has read of the file in order, so that one that stops has at most twice as much
//! read (as the kernel's own read-ahead grows: Fengguang et al., *On the design of a new Linux readahead
//! framework*, 2008).

use crate::PAGE;

/// Files that are gone through side by side by one thread (as by a comparison or a merge).
const STREAMS: usize = 3;

/// Files are gone through side by side that are read within so many reads.
const BESIDE: u32 = 2 * STREAMS as u32;

/// Bytes read in order before it is looked how the program fares: the kernel has got to its own full windows,
/// and has had one under way ahead of the program, by then.
const LEAST: u64 = 768 << 10;

/// Bytes over which it is measured for how much of its time a program waits: several of the kernel's windows.
const TRIAL: u64 = 768 << 10;

/// Bytes read in order after which who could not be measured is left alone.
const TAKES_TURNS: u64 = LEAST + 4 * TRIAL;

/// A program that has the processor for more than 3/4 of its time is left alone: what is asked for comes in
/// single pages, where the kernel's own read-ahead has large folios, and takes more of the processor.
const WORTH: u64 = 4;

/// How far ahead is asked for at first, bytes: twice what the kernel has under way, two windows of 128 KB,
/// or of 256 after POSIX_FADV_SEQUENTIAL.
const FIRST: u64 = 1 << 20;

/// The most that is asked for ahead, bytes: hides 1 ms at 4 GB/s, and 20 ms at 200 MB/s.
pub const MOST: u64 = 4 << 20;

/// The most of one call, bytes: pages for so many are found in some 0.2 ms.
const PIECE: u64 = 1 << 20;

/// What the kernel asks for at a time, as a rule, bytes. Less than that is not asked for.
const KERNELS: u64 = 128 << 10;

/// What comes with one wait alone, bytes: two of these windows are under way at a time.
const WAITED_FOR: u64 = 2 * KERNELS;

/// The most that the kernel reads in one call, bytes.
const LONGEST: u64 = 2 << 30;

/// Who was idle for longer, ns, has waited for something else than a disk.
const LONGEST_WAIT: u64 = 100_000_000;

/// A wait that is so many times as long as all others of a trial together is none for the disk.
const PAUSE: u64 = 4;

/// Calls that are none of a stream's and may pass unseen in any case: the stream may be over. After so many
/// looks at such calls it is taken to be.
const OTHERS: u32 = 7;
const OTHERS_MOST: u8 = 64;

/// Bytes at least over which a window is judged: long enough that a moment without the processor does not
/// decide it.
const JUDGED: u64 = 2 << 20;

/// A doubling that makes the program less than 5/4 as quick is taken back, and tried again after so many
/// windows: what is limited by latency gets twice as quick.
const RETRY: u64 = 32;

/// Bytes of reads that are looked at for a decision, at most: of some tries. And how often the distance to
/// the next one is doubled.
const UNDECIDED: u64 = 4 * (LEAST + TRIAL);
const RESTS_MOST: u8 = 6;

/// Parts in a row that were there already, after which nothing is asked for until it is tried again.
const THERE: u8 = 8;

/// What is to be left of a file, bytes, that one can gain by it: beyond what it takes to find that out.
const LONG: u64 = 4 << 20;

/// As the kernel counts what is brought in for a thread, bytes (getrusage(2)).
const BLOCK: u64 = 512;

/// A part of a file that is due to be asked for, bytes: whole pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// From here on it is to be looked what is there: a page that was read before, and what was asked for
    /// and has not been read yet.
    pub look: u64,
    pub from: u64,
    pub bytes: u64,
}

/// What is found when it is looked, before a part is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The file's number (the lower part of it), and its length in bytes.
    pub inode: u32,
    pub size: u64,
    /// Pages from [`Ask::look`] to the end of the part that are there or on their way; None, or 0, as one
    /// was read: that is not told.
    pub pages: Option<u64>,
    /// Blocks that were brought in for the thread so far.
    pub blocks: u32,
}

/// When a read waits, or has waited. Times in ns: now, and for how long its thread has run. A number that
/// tells the thread from others, and how many blocks were brought in for it so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moment {
    pub now: u64,
    pub busy: u64,
    pub thread: u32,
    pub blocks: u32,
}

/// What a thread has done since the latest look at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    Nothing,
    /// Slept, for whatever reason.
    Slept,
    /// Something was brought in for it.
    Waited,
}

/// What to do about a read that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// It is measured how the program fares: each read is to be looked at.
    Trial,
    /// Nothing: it is one whose program computes, or gains nothing.
    LeftAlone,
    /// It is asked ahead for.
    Served,
}

/// What has been spared of late: waits, and ns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Spared {
    pub waits: u64,
    pub ns: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Stream {
    fd: i32,
    /// When it was last read, in reads; and how many other calls were looked at since.
    used: u32,
    others: u8,
    /// How long its latest and its longest reads are, bytes, and where the next one begins.
    bytes: u64,
    longest: u64,
    next: u64,
    /// Bytes up to there, without a gap.
    run: u64,
    /// The file's number when it was asked for last; 0: it was not.
    inode: u32,
    /// Up to where it has been asked for, and how far ahead is asked for; 0: not yet, or not at present.
    asked: u64,
    window: u64,
    /// Parts in a row that were there already.
    there: u8,
    /// Where it was asked for last, and the blocks that the thread had brought in itself by then.
    asked_at: u64,
    asked_blocks: u32,
    /// Blocks show what is brought in.
    shows_blocks: bool,
    /// Where and when the program was when the window became what it is, or when measuring began; the bytes
    /// that it came by in 1 ms before that.
    since_place: u64,
    since: Moment,
    rate: u32,
    is_settled: bool,
    /// For how long it has waited since measuring began, and its longest wait of these, which may be a
    /// pause that is none for the disk, ns. What 1 MB takes where nothing is asked for, and what of that is
    /// waiting, ns.
    waited: u64,
    longest_wait: u64,
    alone: u32,
    idle: u32,
    /// Up to where, and when, it was told what is spared; bytes that were brought in since it was asked, as
    /// far as that is not told of; waits since.
    told: u64,
    told_ns: u64,
    brought: u32,
    late: u32,
    is_long: bool,
    has_waited: bool,
    /// The program was found to compute for most of its time, or to gain nothing: it is tried again later.
    is_left: bool,
    /// Nothing is asked for any more: there is no memory for it, or it cannot be.
    is_over: bool,
}

/// What one thread reads in order. Zeros are its start.
#[derive(Clone, Copy, Default, Debug)]
pub struct InOrder {
    streams: [Stream; STREAMS],
    current: usize,
    reads: u32,
    /// Calls that may have passed unseen by the latest read.
    skipped: u32,
    /// What was counted for the thread at the latest look: sleeps and blocks, and for which; and the
    /// blocks that were brought in by asking.
    counted: (u32, u32, u32),
    by_asking: u32,
    /// When it was told last that a read has waited, and for how long the thread had run by then, ns.
    latest: (u64, u64),
    /// The latest call was a read that goes on in order, and without a gap that nobody explains.
    goes_on: bool,
    is_one_run: bool,
    /// The latest read waits, and it is measured how long.
    is_waiting: bool,
    /// Bytes of reads that were looked at, and nothing was decided; and how often in a row nothing came of
    /// it.
    undecided: u64,
    rests: u8,
}

impl InOrder {
    /// A read of so many bytes at `place`. `skipped`: how many of the process's calls may have passed
    /// unseen so far. Whether it is one of a file that is gone through, so that it is worth knowing whether
    /// it waits for a part of it.
    pub fn read(&mut self, fd: i32, place: u64, bytes: u64, skipped: u32) -> bool {
        let bytes = bytes.min(LONGEST);
        self.reads = self.reads.wrapping_add(1);
        let unseen = skipped.wrapping_sub(core::mem::replace(&mut self.skipped, skipped));
        let reads = self.reads;
        let age = |stream: &Stream| reads.wrapping_sub(stream.used);
        let known = self.streams.iter().position(|stream| stream.fd == fd && stream.run > 0);
        let oldest = || (0..STREAMS).max_by_key(|&index| self.streams.get(index).map(age));
        self.current = known.or_else(oldest).unwrap_or(0);
        (self.goes_on, self.is_one_run, self.is_waiting) = (false, false, false);
        let Some(stream) = self.streams.get_mut(self.current) else { return false };
        // A gap can only be what was passed unseen.
        let gap = place.wrapping_sub(stream.next);
        let is_close = place > 0 && place <= i64::MAX as u64 && place >= stream.next;
        let longest = bytes.max(stream.longest);
        let goes_on = known.is_some() && is_close && gap <= u64::from(unseen).saturating_mul(longest);
        // It is one run where nothing is missing, or lies within what was asked for.
        let is_one_run = goes_on && (gap == 0 || place < stream.asked || stream.is_left);
        if is_one_run {
            stream.run = stream.run.saturating_add(gap).saturating_add(bytes);
        } else {
            *stream = Stream { fd, run: bytes, longest, ..Stream::default() };
        }
        (stream.used, stream.others, stream.bytes) = (reads, 0, bytes);
        stream.longest = longest;
        stream.next = place.saturating_add(bytes);
        let is_tried = goes_on && stream.has_waited && stream.state() == Waiting::Trial;
        self.undecided = self.undecided.saturating_add(if is_tried { bytes } else { 0 });
        (self.goes_on, self.is_one_run) = (goes_on, is_one_run);
        goes_on
    }

    fn stream(&mut self) -> Option<&mut Stream> {
        self.streams.get_mut(self.current).filter(|stream| stream.run >= LEAST)
    }

    /// What a thread (never 0) has done since this was asked last: so many sleeps and blocks were counted
    /// for it by now. (A read that waits sleeps; so does one who waits for something else.)
    pub fn since(&mut self, thread: u32, sleeps: u32, blocks: u32) -> Since {
        let now = (sleeps, blocks, thread);
        let (slept, brought, counted) = core::mem::replace(&mut self.counted, now);
        let is_known = counted == thread;
        if is_known && brought != blocks {
            Since::Waited
        } else if is_known && slept != sleeps {
            Since::Slept
        } else {
            Since::Nothing
        }
    }

    /// Whether so much was read in order that it is measured how the program fares.
    pub fn is_tried(&mut self) -> bool {
        self.stream().is_some()
    }

    /// Whether it is asked ahead for.
    pub fn is_served(&mut self) -> bool {
        self.stream().is_some_and(|stream| stream.window > 0)
    }

    /// A read since the latest look has waited, nobody knows for how long. And for how long the thread has
    /// been idle since this was told last, ns.
    pub fn waited(&mut self, at: Moment) -> (Waiting, u64) {
        if let Some(stream) = self.stream() {
            (stream.waited, stream.longest_wait) = (u64::MAX, 0);
        }
        let (now, busy) = core::mem::replace(&mut self.latest, (at.now, at.busy));
        let idle = at.now.saturating_sub(now).saturating_sub(at.busy.saturating_sub(busy));
        let waiting = self.waits(at);
        self.is_waiting = false;
        (waiting, if now == 0 { 0 } else { idle.min(LONGEST_WAIT) })
    }

    /// The latest read waits.
    pub fn waits(&mut self, at: Moment) -> Waiting {
        self.is_waiting = true;
        let (undecided, rests) = (self.undecided, self.rests.min(RESTS_MOST));
        let mut was_left = false;
        if let Some(stream) = self.streams.get_mut(self.current) {
            was_left = stream.is_left;
            stream.has_waited = true;
            if undecided >= UNDECIDED && stream.state() == Waiting::Trial {
                stream.leaves();
            }
        }
        let waiting = self.judges(at, rests);
        let is_left = self.streams.get(self.current).is_some_and(|stream| stream.is_left);
        if waiting == Waiting::Served {
            (self.undecided, self.rests) = (0, 0);
        } else if is_left && !was_left {
            (self.undecided, self.rests) = (0, rests + 1);
        }
        waiting
    }

    fn judges(&mut self, at: Moment, rests: u8) -> Waiting {
        let Some(stream) = self.stream() else { return Waiting::Trial };
        // The kernel asks for as much as one read wants.
        if stream.is_over || stream.bytes > PIECE {
            return Waiting::LeftAlone;
        }
        stream.late += 1;
        // (A child of fork, or another thread, has a clock of its own.)
        if stream.since.now == 0 || at.thread != stream.since.thread || at.busy < stream.since.busy {
            // Threads that take turns are never measured.
            if stream.since.now != 0 && stream.window == 0 && stream.run >= TAKES_TURNS {
                stream.leaves();
            }
            stream.changes(at, 0);
            return stream.state();
        }
        let come = stream.next.saturating_sub(stream.since_place);
        let took = at.now.saturating_sub(stream.since.now);
        if stream.is_left {
            if come >= (RETRY * FIRST) << rests {
                stream.is_left = false;
                stream.changes(at, 0);
            }
            return stream.state();
        }
        let rate = at_most(come.saturating_mul(1_000_000) / took.max(1));
        if stream.window == 0 {
            if come < TRIAL {
                return Waiting::Trial;
            }
            // The thread may have waited for something else, too.
            let others = stream.waited.saturating_sub(stream.longest_wait);
            let is_pause = stream.longest_wait / PAUSE > others;
            let waited = if is_pause { others } else { stream.waited };
            let idle = took.saturating_sub(at.busy.saturating_sub(stream.since.busy)).min(waited);
            (stream.told, stream.told_ns, stream.late) = (stream.next, at.now, 0);
            let of_a_megabyte = |ns: u64| at_most(ns.saturating_mul(1 << 20).checked_div(come).unwrap_or(0));
            (stream.alone, stream.idle) = (of_a_megabyte(took), of_a_megabyte(idle));
            stream.is_left = idle < took / WORTH;
            stream.window = if stream.is_left { 0 } else { FIRST };
            stream.is_settled = false;
            stream.shows_blocks = at.blocks != stream.since.blocks;
            stream.changes(at, rate);
            return stream.state();
        }
        let span = stream.window.saturating_mul(if stream.is_settled { RETRY } else { 2 });
        if come >= span.max(JUDGED) {
            if !stream.is_settled && rate < (stream.rate / 4).saturating_mul(5) {
                stream.narrows();
                stream.is_left = stream.window == 0;
                stream.is_settled = true;
            } else {
                stream.is_settled = stream.window >= MOST;
                stream.window = stream.window.saturating_mul(2).min(MOST);
            }
            stream.changes(at, rate);
        }
        stream.state()
    }

    /// So much of the file is left behind the latest read, which waits, bytes. Nothing is speculated for a
    /// long one while it is tried whether to ask ahead for it.
    pub fn has_left(&mut self, bytes: u64) {
        if let Some(stream) = self.streams.get_mut(self.current) {
            stream.is_long = bytes >= LONG;
        }
    }

    /// Whether the latest read goes on in a long file that is tried, or asked ahead for.
    pub fn is_at_it(&self) -> bool {
        let stream = self.streams.get(self.current);
        self.is_one_run && stream.is_some_and(|stream| stream.is_long && !stream.is_left && !stream.is_over)
    }

    /// The wait of the latest read is over, and was so long, ns.
    pub fn came(&mut self, ns: u64) {
        if core::mem::take(&mut self.is_waiting)
            && let Some(stream) = self.stream()
            && stream.window == 0
        {
            stream.waited = stream.waited.saturating_add(ns);
            stream.longest_wait = stream.longest_wait.max(ns);
        }
    }

    /// The latest read has what it wants. Whether there is something to ask for, or to tell.
    pub fn passes(&mut self) -> bool {
        let Some(stream) = self.stream().filter(|stream| stream.window > 0) else { return false };
        let is_near = stream.asked.saturating_sub(stream.next) < stream.window / 2;
        is_near || stream.next.saturating_sub(stream.told) >= PIECE
    }

    /// What is to be asked for now, of at most so many bytes ahead. [`InOrder::found`] is to be told what is
    /// there of it.
    pub fn ask(&mut self, most: u64) -> Option<Ask> {
        let stream = self.stream().filter(|stream| stream.window > 0)?;
        stream.window = stream.window.min(most / PAGE * PAGE);
        if stream.window < KERNELS {
            stream.leaves();
        }
        stream.ask()
    }

    /// What was found of the part that is due: how many bytes of it are to be asked for.
    /// [`InOrder::brought`] is to be told what that has brought in.
    pub fn found(&mut self, ask: Ask, found: Found) -> u64 {
        let own_blocks = found.blocks.wrapping_sub(self.by_asking);
        let Some(stream) = self.stream().filter(|stream| stream.window > 0) else { return 0 };
        if stream.inode != 0 && stream.inode != found.inode {
            let Stream { fd, used, bytes, longest, next, .. } = *stream;
            *stream = Stream { fd, used, bytes, longest, next, run: bytes, ..Stream::default() };
            return 0;
        }
        stream.inode = found.inode;
        let end = ask.from.saturating_add(ask.bytes).min(found.size.next_multiple_of(PAGE));
        let bytes = end.saturating_sub(ask.from);
        let come = stream.next.saturating_sub(stream.asked_at);
        let own = u64::from(own_blocks.wrapping_sub(stream.asked_blocks)) * BLOCK;
        let is_first = core::mem::replace(&mut stream.asked_at, stream.next) == 0;
        stream.asked_blocks = own_blocks;
        if bytes == 0 {
            return 0;
        }
        let before = ask.from.saturating_sub(ask.look) / PAGE;
        let is_gone = match found.pages {
            // (Some programs drop what they have read.)
            Some(there @ 1..) => there + 1 < before,
            _ if stream.shows_blocks => !is_first && own > 0 && own >= come,
            // Nothing is told of this file at all.
            _ => {
                stream.leaves();
                return 0;
            }
        };
        // It was asked for, and has been taken back: there is no memory for so much.
        if is_gone {
            stream.narrows();
            stream.is_settled = true;
            (stream.asked, stream.asked_at) = (stream.next, 0);
            stream.since = Moment::default();
            if stream.window == 0 {
                stream.leaves();
            }
            return 0;
        }
        match found.pages {
            Some(there) if there >= before + bytes / PAGE => {
                stream.was_there();
                0
            }
            _ => bytes,
        }
    }

    /// What was asked for has brought in so much, for all that is known, and this many blocks were brought
    /// in for the thread so far. The bytes that were not there.
    pub fn brought(&mut self, ask: Ask, found: Found, asked: u64, blocks: u32) -> u64 {
        let come = blocks.wrapping_sub(found.blocks);
        self.by_asking = self.by_asking.wrapping_add(come);
        self.counted.1 = blocks;
        let Some(stream) = self.stream() else { return 0 };
        let before = ask.from.saturating_sub(ask.look) / PAGE;
        let absent = match found.pages {
            Some(there @ 1..) => (asked / PAGE).saturating_sub(there.saturating_sub(before)) * PAGE,
            _ => (u64::from(come) * BLOCK).min(asked),
        };
        stream.brought = stream.brought.saturating_add(at_most(absent));
        if absent > 0 {
            stream.there = 0;
        } else if stream.shows_blocks {
            stream.was_there();
        }
        absent
    }

    /// No more than up to here was asked for, at present.
    pub fn asked_up_to(&mut self, place: u64) {
        if let Some(stream) = self.stream() {
            stream.asked = stream.asked.min(place);
        }
    }

    /// What could not be asked for: nothing of this file can.
    pub fn refused(&mut self) {
        if let Some(stream) = self.stream() {
            (stream.window, stream.is_over) = (0, true);
        }
    }

    /// What has been spared since this was asked last: of what had to be asked for, a wait for each two of
    /// the kernel's windows of it that were gone through without one; and the time that this took less than
    /// as much had before anything was asked for, of which no more than what was waiting then.
    pub fn spared(&mut self, now: u64) -> Spared {
        let Some(stream) = self.stream() else { return Spared::default() };
        let come = stream.next.saturating_sub(stream.told);
        if come < WAITED_FOR {
            return Spared::default();
        }
        // What is begun of the next window is told of with that.
        let begun = come % WAITED_FOR;
        let windows = (come / WAITED_FOR).min(u64::from(stream.brought) / WAITED_FOR);
        let told = windows * WAITED_FOR;
        let took = now.saturating_sub(stream.told_ns);
        let part = |ns: u64, bytes: u64, of: u64| {
            u64::try_from(u128::from(ns) * u128::from(bytes) / u128::from(of)).unwrap_or(0)
        };
        let took_begun = part(took, begun, come);
        let alone = part(stream.alone.into(), told, 1 << 20);
        let ns = alone.saturating_sub(took - took_begun).min(part(stream.idle.into(), told, 1 << 20));
        let waits = windows.saturating_sub(stream.late.into());
        stream.brought -= at_most(told);
        (stream.told, stream.late) = (stream.next.saturating_sub(begun), 0);
        stream.told_ns = now.saturating_sub(took_begun);
        Spared { waits, ns }
    }

    /// How many calls may pass unseen: of reads as the latest, up to where it is time to ask again; none
    /// while it is measured how the program fares. Other calls are no reads, mostly.
    pub fn unseen_most(&mut self) -> u32 {
        let is_read = core::mem::take(&mut self.goes_on);
        // A file beside is to be looked at until it is known what to do about it.
        let (current, reads) = (self.current, self.reads);
        let is_begun = |stream: &Stream| {
            stream.has_waited
                && (KERNELS..LEAST + 2 * TRIAL).contains(&stream.run)
                && stream.state() == Waiting::Trial
                && reads.wrapping_sub(stream.used) <= BESIDE
        };
        if is_read && self.streams.iter().enumerate().any(|(at, beside)| at != current && is_begun(beside)) {
            return 0;
        }
        let Some(stream) = self.stream().filter(|stream| !stream.is_over) else { return u32::MAX };
        if stream.window == 0 {
            let come = stream.next.saturating_sub(stream.since_place);
            let is_tried = !stream.is_left && stream.since.now != 0 && come < TRIAL;
            return if is_read && is_tried { 0 } else { u32::MAX };
        }
        let left = stream.asked.saturating_sub(stream.next).saturating_sub(stream.window / 4);
        let reads = u32::try_from(left / stream.bytes.max(1) / 2).unwrap_or(u32::MAX);
        if is_read {
            return reads;
        }
        stream.others = stream.others.saturating_add(1);
        if stream.others > OTHERS_MOST { u32::MAX } else { reads.max(OTHERS) }
    }
}

impl Stream {
    fn state(&self) -> Waiting {
        match self.window {
            0 if self.is_left || self.is_over => Waiting::LeftAlone,
            0 => Waiting::Trial,
            _ => Waiting::Served,
        }
    }

    fn changes(&mut self, at: Moment, rate: u32) {
        (self.waited, self.longest_wait) = (0, 0);
        (self.since_place, self.since, self.rate) = (self.next, at, rate);
    }

    fn narrows(&mut self) {
        self.window = if self.window > FIRST { self.window / 2 } else { 0 };
    }

    /// Nothing is asked for until it is tried again.
    fn leaves(&mut self) {
        (self.window, self.is_left, self.there) = (0, true, 0);
        self.since_place = self.next;
    }

    fn was_there(&mut self) {
        self.there += 1;
        if self.there >= THERE {
            self.leaves();
        }
    }

    fn ask(&mut self) -> Option<Ask> {
        // What the latest read waits for comes first.
        let first = self.next.saturating_sub(self.bytes);
        let from = self.asked.max(first).min(i64::MAX as u64);
        let end = self.next.saturating_add(self.window.min(self.run));
        // From and up to whole pages: a page that the program has read a part of is there.
        let (from, end) = (from.next_multiple_of(PAGE), end / PAGE * PAGE);
        if self.window == 0 || end < from.saturating_add(KERNELS) {
            return None;
        }
        let bytes = (end - from).min(PIECE);
        self.asked = from + bytes;
        let look = first.saturating_sub(1) / PAGE * PAGE;
        Some(Ask { look, from, bytes })
    }
}

fn at_most(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u64 = 32 << 10;

    const FOUND: Found = Found { inode: 1, size: 1 << 40, pages: None, blocks: 0 };

    fn at(now: u64, busy: u64) -> Moment {
        Moment { now, busy, thread: 1, blocks: 0 }
    }

    /// What is asked for of a part of which nothing is there but what was asked for before.
    fn due(order: &mut InOrder) -> Option<Ask> {
        let ask = order.ask(MOST)?;
        let before = (ask.from - ask.look) / PAGE;
        let found = Found { pages: Some(before), ..FOUND };
        let bytes = order.found(ask, found);
        order.brought(ask, found, bytes, 0);
        (bytes == ask.bytes).then_some(ask)
    }

    /// A read that waits for so long, ns, from `now` on, and what is asked for then.
    fn waits(order: &mut InOrder, now: u64, busy: u64, ns: u64) -> Option<Ask> {
        let waiting = order.waits(at(now, busy));
        let ask = if waiting == Waiting::Served { due(order) } else { None };
        order.came(ns);
        ask
    }

    fn passes(order: &mut InOrder) -> Option<Ask> {
        if order.passes() { due(order) } else { None }
    }

    /// A program that takes so long for each read, on a disk that takes `latency` for each request and
    /// reads `rate` bytes in 1 ms, and a kernel that asks for 128 KB ahead. What it takes for so many
    /// reads, ns, and the furthest that was asked for ahead, bytes.
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
                order.read(3, place, READ, 0);
                let busy = read * computes;
                let asked = if there > now { waits(order, now, busy, there - now) } else { passes(order) };
                if let Some(Ask { from, bytes, .. }) = asked {
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
            assert!(ours <= alone && furthest <= FIRST + READ, "{ours} {alone} {furthest}");
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
        let mut all = 0;
        let mut now = 1;
        for read in 0..1000 {
            order.read(3, read * READ, READ, 0);
            // What is asked ahead for comes quicker.
            now += if all == 0 { 1_000 } else { 500 };
            if let Some(Ask { from, bytes, .. }) = waits(&mut order, now, 0, 500) {
                assert_eq!((from % 4096, bytes % 4096), (0, 0));
                assert!(from + bytes <= 2 * (read + 1) * READ);
                all += bytes;
            }
        }
        assert!(all > 500 * READ);
    }

    #[test]
    fn who_does_not_wait_has_nothing_asked_for() {
        let mut order = InOrder::default();
        for read in 0..1000 {
            assert_eq!(order.read(3, read * READ, READ, 0), read > 0);
            assert_eq!((order.passes(), order.ask(MOST)), (false, None));
            assert_eq!(order.unseen_most(), u32::MAX);
        }
    }

    #[test]
    fn places_out_of_order_begin_anew() {
        let mut order = InOrder::default();
        for read in 0..1000u64 {
            order.read(3, (read * 7919 % 1000) * READ, READ, 0);
            assert_eq!(waits(&mut order, 1 + read, 0, 1), None);
        }
        // Every second part, as of an archive whose members are passed over.
        for read in 0..1000 {
            order.read(3, 2 * read * READ, READ, 0);
            assert_eq!(waits(&mut order, 1 + read, 0, 1), None);
        }
    }

    #[test]
    fn several_files_side_by_side_are_each_asked_for() {
        let mut order = InOrder::default();
        let mut all = [0; STREAMS];
        for read in 0..100 {
            for (fd, all) in all.iter_mut().enumerate() {
                order.read(fd as i32, read * READ, READ, 0);
                *all += waits(&mut order, 1 + read * 100, 0, 100).map_or(0, |ask| ask.bytes);
            }
        }
        assert!(all.iter().all(|&all| all > 20 * READ), "{all:?}");
    }

    /// Has read so much that it is asked ahead for: 1 us for each read, all of it waiting. Where it is, and
    /// when.
    fn served(order: &mut InOrder) -> (u64, u64) {
        for read in 0..50 {
            order.read(3, read * READ, READ, 0);
            waits(order, 1 + read * 1_000, 0, 1_000);
        }
        assert_eq!(order.waits(at(50_000, 0)), Waiting::Served);
        order.came(0);
        (50 * READ, 50_000)
    }

    #[test]
    fn calls_that_pass_unseen_stay_within_what_was_asked_for() {
        let mut order = InOrder::default();
        let (mut place, mut now) = served(&mut order);
        let (mut begun, mut spared) = (None, Spared::default());
        let mut skipped = 0u32;
        for _ in 0..400 {
            let unseen = order.unseen_most();
            assert!(unseen < 1 << 10);
            skipped += unseen;
            place += u64::from(unseen) * READ;
            assert!(order.read(3, place, READ, skipped));
            place += READ;
            passes(&mut order);
            now += 500 * u64::from(unseen + 1);
            let told = order.spared(now);
            begun = begun.or((told.waits > 0).then_some(place));
            (spared.waits, spared.ns) = (spared.waits + told.waits, spared.ns + told.ns);
        }
        // It took 1 us for each before, and now half of that.
        let gone = place - begun.expect("something was spared");
        let (half, windows) = (gone / READ * 500, gone / WAITED_FOR);
        assert!(spared.ns.abs_diff(half) < half / 10, "{spared:?} {half}");
        assert!(spared.waits.abs_diff(windows) < windows / 10 + 4, "{spared:?} {windows}");
    }

    #[test]
    fn what_blocks_show_is_as_good_as_pages() {
        let serve = |own: u32| {
            let mut order = InOrder::default();
            let (mut place, mut blocks, mut absent, mut furthest) = (0, 0u32, 0, 0);
            for read in 0..4000u64 {
                order.read(3, place, READ, 0);
                place += READ;
                blocks += if absent == 0 { 64 } else { own };
                // What is asked for ahead comes twice as quickly, for each doubling.
                let moment = Moment { blocks, ..at(1 + read * 1_000 - absent / READ * 700, 0) };
                if order.waited(moment).0 == Waiting::Served
                    && let Some(ask) = order.ask(MOST)
                {
                    let found = Found { blocks, ..FOUND };
                    let bytes = order.found(ask, found);
                    blocks += (bytes / BLOCK) as u32;
                    absent += order.brought(ask, found, bytes, blocks);
                    furthest = furthest.max(ask.from + bytes - place);
                }
            }
            (absent, furthest)
        };
        let (absent, furthest) = serve(0);
        assert!(absent > 3000 * READ && furthest > 2 * FIRST, "{absent} {furthest}");
        // Each is read once more: what was asked for does not stay.
        let (absent, furthest) = serve(64);
        assert!(absent < 200 * READ && furthest <= FIRST, "{absent} {furthest}");
    }

    #[test]
    fn what_is_counted_before_the_first_look_says_nothing() {
        let mut order = InOrder::default();
        assert_eq!(order.since(1, 5, 7), Since::Nothing);
        assert_eq!(order.since(1, 5, 7), Since::Nothing);
        assert_eq!(order.since(1, 6, 7), Since::Slept);
        assert_eq!(order.since(1, 7, 8), Since::Waited);
        assert_eq!(order.since(1, 7, 8), Since::Nothing);
        assert_eq!(order.since(2, 9, 9), Since::Nothing);
    }

    #[test]
    fn threads_that_take_turns_are_left_alone() {
        let mut order = InOrder::default();
        let mut waiting = Waiting::Trial;
        for read in 0..400u64 {
            order.read(3, read * READ, READ, 0);
            order.has_left(1 << 30);
            waiting = order.waits(Moment { thread: (read % 2) as u32, ..at(1 + read * 1_000, 0) });
        }
        assert_eq!((waiting, order.is_at_it()), (Waiting::LeftAlone, false));
    }

    #[test]
    fn a_gap_that_nobody_explains_is_left_to_speculation() {
        let mut order = InOrder::default();
        order.read(3, 0, READ, 0);
        order.read(3, READ, READ, 0);
        order.has_left(1 << 30);
        assert!(order.is_at_it());
        assert!(order.read(3, 4 * READ, READ, 9));
        order.has_left(1 << 30);
        assert!(!order.is_at_it());
    }

    #[test]
    fn a_pause_is_no_wait_and_few_waits_are_some() {
        let serve = |long: u64| {
            let mut order = InOrder::default();
            let mut now = 1;
            (0..60u64).any(|read| {
                order.read(3, read * READ, READ, 0);
                now += 10_000;
                // The kernel's windows are of 256 KB.
                let ns = if read == 28 { long } else { 500_000 };
                if !read.is_multiple_of(8) && read != 28 {
                    return false;
                }
                now += ns;
                let waiting = order.waits(at(now - ns, read * 10_000));
                order.came(ns);
                waiting == Waiting::Served
            })
        };
        assert!(serve(500_000));
        assert!(serve(900_000));
        assert!(!serve(10_000_000_000));
    }

    #[test]
    fn a_file_beside_one_that_is_served_is_looked_at_until_it_is_served_too() {
        let mut order = InOrder::default();
        let (place, now) = served(&mut order);
        for read in 0..KERNELS / READ {
            order.read(4, read * READ, READ, 0);
        }
        order.waits(at(now, 0));
        order.read(3, place, READ, 0);
        assert_eq!(order.unseen_most(), 0);
        for read in 1..9 {
            order.read(3, place + read * READ, READ, 0);
        }
        assert!(order.unseen_most() > 0);
    }

    #[test]
    fn who_is_looked_at_in_vain_is_looked_at_ever_less() {
        let mut order = InOrder::default();
        let (mut skipped, mut looks, mut place) = (0u32, 0, 0u64);
        while place < 4 << 30 {
            order.read(3, place, 4096, skipped);
            place += 4096;
            looks += 1;
            // It waits for 1/10 of its time.
            if place.is_multiple_of(128 << 10) {
                order.waits(at(1 + place / 4, place / 40 * 9));
                order.came(3_000);
            }
            let unseen = order.unseen_most().min(if order.is_tried() { 64 } else { 0 });
            skipped += unseen;
            place += u64::from(unseen) * 4096;
        }
        assert!(looks < 60_000, "{looks}");
    }

    #[test]
    fn small_reads_are_served_as_well() {
        for size in [100, 512, 4096] {
            let mut order = InOrder::default();
            let is_served = (0..(4 << 20) / size).any(|read| {
                order.read(3, read * size, size, 0);
                let waiting = order.waits(at(1 + read * 1_000, 0));
                order.came(1_000);
                waiting == Waiting::Served
            });
            assert!(is_served, "{size}");
        }
    }

    #[test]
    fn one_loss_is_no_end() {
        let mut order = InOrder::default();
        let (mut place, mut now) = served(&mut order);
        let (mut asked, mut is_lost) = (0, false);
        for read in 0..4000 {
            order.read(3, place, READ, 0);
            place += READ;
            now += if read < 500 || asked > 0 { 500 } else { 1_000 };
            if order.waits(at(now, 0)) == Waiting::Served
                && let Some(ask) = order.ask(MOST)
            {
                let before = (ask.from - ask.look) / PAGE;
                let is_loss = read >= 500 && !core::mem::replace(&mut is_lost, read >= 500);
                let found = Found { pages: Some(if is_loss { 1 } else { before }), ..FOUND };
                let bytes = order.found(ask, found);
                order.brought(ask, found, bytes, 0);
                asked += if is_lost { bytes } else { 0 };
            }
            order.came(500);
        }
        assert!(is_lost && asked > 1000 * READ, "{asked}");
    }

    #[test]
    fn who_makes_other_calls_for_long_reads_no_more() {
        let mut order = InOrder::default();
        served(&mut order);
        order.unseen_most();
        let looks = (0..1000).take_while(|_| order.unseen_most() < 1 << 20).count();
        assert!((1..100).contains(&looks), "{looks}");
    }

    #[test]
    fn what_is_there_already_is_not_asked_for_and_not_told_of() {
        let mut order = InOrder::default();
        let (mut place, now) = served(&mut order);
        let (mut asked, mut told) = (0u8, Spared::default());
        for read in 0..1000 {
            order.read(3, place, READ, 0);
            place += READ;
            if order.passes()
                && let Some(ask) = order.ask(MOST)
            {
                asked += 1;
                let pages = Some((ask.from + ask.bytes - ask.look) / PAGE);
                assert_eq!(order.found(ask, Found { pages, ..FOUND }), 0);
            }
            told.waits += order.spared(now + read).waits;
        }
        // What had to be asked for before.
        assert!(told.waits <= FIRST / KERNELS, "{told:?}");
        assert!((1..=THERE).contains(&asked), "{asked}");
    }

    #[test]
    fn another_file_of_that_number_begins_anew() {
        let mut order = InOrder::default();
        let (place, _) = served(&mut order);
        order.read(3, place, READ, 0);
        let found = |inode| Found { inode, ..FOUND };
        let ask = order.ask(MOST).expect("more to ask for");
        order.found(ask, Found { pages: Some(1), ..found(1) });
        order.read(3, place + READ, READ, 0);
        assert_eq!(order.found(ask, found(2)), 0);
        assert_eq!((order.passes(), order.ask(MOST)), (false, None));
    }

    #[test]
    fn where_nothing_is_told_nothing_is_asked_for() {
        let mut order = InOrder::default();
        let (place, now) = served(&mut order);
        order.read(3, place, READ, 0);
        let ask = order.ask(MOST).expect("more to ask for");
        assert_eq!(order.found(ask, FOUND), 0);
        assert_eq!(order.waits(at(now, 0)), Waiting::LeftAlone);
    }

    #[test]
    fn no_more_than_may_be_is_asked_for_nor_past_the_end() {
        let mut order = InOrder::default();
        let (place, _) = served(&mut order);
        order.read(3, place, READ, 0);
        let most = 5 * KERNELS + 1;
        order.asked_up_to(0);
        let ask = order.ask(most).expect("a little");
        assert!(ask.from + ask.bytes <= place + READ + most);
        order.asked_up_to(0);
        let size = ask.from + 2 * PAGE + 1;
        let pages = Some((ask.from - ask.look) / PAGE);
        assert_eq!(order.found(ask, Found { size, pages, ..FOUND }), 3 * PAGE);
        assert_eq!(order.ask(KERNELS - 1), None);
        assert_eq!(order.waits(at(60_000, 0)), Waiting::LeftAlone);
    }

    #[test]
    fn what_is_passed_over_is_not_asked_for() {
        let mut order = InOrder::default();
        let (mut place, mut all) = (0, 0);
        for read in 0..200 {
            order.read(3, place, READ, 0);
            place += READ;
            all += waits(&mut order, 1 + read * 1_000, 0, 1_000).map_or(0, |ask| ask.bytes);
        }
        assert!(all > 0);
        // Places that are skipped though each call is seen.
        for _ in 0..200 {
            place += 4 * READ;
            assert!(!order.read(3, place, READ, 0));
            assert_eq!((order.passes(), order.waits(at(1, 0))), (false, Waiting::Trial));
            place += READ;
        }
    }

    #[test]
    fn who_has_no_memory_for_it_has_less_asked_for_and_then_nothing() {
        let mut order = InOrder::default();
        let (mut place, mut now) = served(&mut order);
        let mut asks = 0;
        for _ in 0..400 {
            order.read(3, place, READ, 0);
            place += READ;
            now += 1_000;
            if order.waits(at(now, 0)) == Waiting::Served
                && let Some(ask) = order.ask(MOST)
            {
                asks += 1;
                // Nothing of what was asked for is there any more.
                order.found(ask, Found { pages: Some(1), ..FOUND });
            }
        }
        assert!((1..10).contains(&asks), "{asks}");
        assert_eq!(order.waits(at(now, 0)), Waiting::LeftAlone);
    }
}
