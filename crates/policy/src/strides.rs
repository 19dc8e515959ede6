//! Constant strides among page faults: columns of a matrix, fields of records in a mapped file.
//!
//! Where the addresses at which a program faults are evenly spaced, the next ones can be asked for without
//! running anything. Each instruction has a stream of its own, so that loops over several arrays do not mix.
//! Distances are in bytes, as rows need not be whole pages.
//!
//! A program that scans a mapped file from end to end looks the same: the kernel maps the 16 cached pages
//! around a fault with it, so its faults are 64 KB apart. There the kernel's own read-ahead is better, and
//! single pages in its way do harm. What tells the two apart is what lies *between* the pages asked for when
//! the program gets there: cached in a scan, not cached in a walk of which each step was served by us. (Before
//! anything is asked for it is cached in both, as the kernel reads around each miss.) So a stream is on trial
//! first; one that turns out to be a scan is left alone for a while.

use crate::PAGE;

/// Steps of equal length after which a stream is believed.
const BELIEVED: u32 = 3;

/// Steps of the same multiple of a stride in a row after which that is the stride. (After 3 rows that were cached made longer
/// strides of NAS FT's columns.)
const SKIPS_BELIEVED: u32 = 8;

/// Steps that may be missing between two faults: the kernel maps 16 pages at a time, and one fault's page may
/// be in memory for any other reason.
const SKIPS_MOST: i64 = 64;

/// What the kernel maps around a fault, bytes: of pages that are there, none in it faults.
const MAPPED_AROUND: u64 = 16 * PAGE;

/// Shorter steps, in bytes, are scans: read-ahead's business.
const STRIDE_LEAST: u64 = 2 * PAGE;
/// Steps ahead: at first, and while what was asked for is used. 256 pages are under way on a cloud disk, whose
/// 64 requests at a time want twice that to stay busy between two looks; more was not faster.
const DEPTH_FIRST: u32 = 32;
pub const DEPTH_MOST: u32 = 256;

/// Steps of the walk through pages asked for after which it is looked at, and looked at again. The first of them may be
/// misses: a program is some steps further when its first pages are asked for, and the kernel reads around what it misses.
/// (Looked at after 4 steps, and once, every other walk of columns on a disk of 75 us passed for a scan: 0.2 s or 0.5 to 0.8.)
const TRIAL: u32 = 16;
const TRIAL_AGAIN: u32 = 512;

/// Steps for which a scan is left alone: 64 MB of it at first. Doubles each time.
const SCAN_FIRST: u32 = 1024;
const SCAN_MOST: u32 = 1 << 16;

/// Where the next walk begins next door, its pages are wanted too: the columns of a matrix one after the other. So many are asked
/// for at each step then, as the kernel reads around a miss. (Page by page NAS FT took 81,000 reads for the 6100 that the kernel
/// alone made.) So many steps of them at a time: each is a request.
pub const WIDE: u32 = 32;
/// Pages from where a walk began to where the next one does next door, at most: what is asked for has to serve one more at least,
/// and of what is cached the kernel maps 16 pages at a time. (Slices of a volume 30 pages apart, 8 of them, took 67,000 pages
/// for 5200, and on a local disk 0.43 s for 0.31.)
const NEXT_DOOR: u64 = 16;
const WIDE_STEPS: u32 = 8;
/// Less than so many are no request of their own.
const BESIDE_LEAST: u32 = 8;
/// Waits that such a step saves: half of what the kernel reads around a miss lies behind it.
const WIDE_WORTH: u32 = 2;

/// Between steps longer than this, bytes, lies what neither the kernel's read-ahead nor a drift's blocks should bring in.
const FAR: u64 = 2 * WIDE as u64 * PAGE;

/// Streams of one thread: a loop over a few arrays, unrolled four times.
const STREAMS: usize = 16;

/// Addresses to be asked for: `from + stride * k` for `count` values of k from `first` on; and at each that is not cached so
/// many pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    pub from: u64,
    pub stride: i64,
    pub first: u32,
    pub count: u32,
    pub width: u32,
}

impl Ask {
    /// The addresses; ends where there are none any more.
    pub fn addresses(&self) -> impl Iterator<Item = u64> + use<> {
        let Ask { from, stride, first, count, .. } = *self;
        (first..first.saturating_add(count))
            .map_while(move |step| from.checked_add_signed(stride.checked_mul(i64::from(step))?))
    }
}

/// What follows from a fault.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The stream, for [`Strides::asked`] and [`Strides::judged`].
    pub stream: usize,
    pub ask: Option<Ask>,
    /// What the walks next door will want beside this step: from where on, and how many pages. As a whole if the first is not cached.
    pub beside: Option<(u64, u32)>,
    /// Addresses from the first to below the second: are the pages there cached? ([`Strides::judged`])
    pub look: Option<(u64, u64)>,
    /// Waits that what was asked for earlier has spared: one for each such step, or [`WIDE_WORTH`] where many pages were asked for at each.
    pub useful: u32,
    /// Pages that were asked for with these steps.
    pub used: u32,
    /// The fault is a step of a stream that is believed: it needs nobody else's help.
    pub served: bool,
    /// The fault is as far from the one before as that was from its own, and nothing says yet that it is a scan.
    pub steady: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// So many steps through pages asked for are left until it is looked at.
    Trial(u32),
    Trusted(u32),
    /// A scan; so many steps are left until it is tried again.
    Scan(u32),
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
    /// Of so many strides was the latest step, and the ones before it, so many times in a row.
    skip: u32,
    skips: u32,
    /// Where this walk began, the steps since, and those of the walk before (0: unknown): rows of the matrix.
    begun: u64,
    steps: u32,
    length: u32,
    /// The walk began next door to the one before.
    next_door: bool,
    /// Steps ahead that were asked for.
    ahead: u32,
    /// Of these, how many pages were new.
    fresh: u32,
    depth: u32,
    standing: Standing,
    /// The latest look says that it is a scan.
    doubted: bool,
    scan_next: u32,
    used: u64,
}

const NEW: Stream = Stream {
    instruction: 0,
    last: 0,
    stride: 0,
    candidate: 0,
    run: 0,
    skip: 1,
    skips: 0,
    begun: 0,
    steps: 0,
    length: 0,
    next_door: false,
    ahead: 0,
    fresh: 0,
    depth: DEPTH_FIRST,
    standing: Standing::Trial(TRIAL),
    doubted: false,
    scan_next: SCAN_FIRST,
    used: 0,
};

/// The streams of one thread.
#[derive(Clone, Debug)]
pub struct Strides {
    streams: [Stream; STREAMS],
    clock: u64,
    has_asked: bool,
}

impl Default for Strides {
    fn default() -> Strides {
        Strides { streams: [NEW; STREAMS], clock: 0, has_asked: false }
    }
}

impl Strides {
    /// The instruction faulted at the address. `room`: pages that may be ahead, where more than one is asked for at a step.
    pub fn fault(&mut self, instruction: u64, address: u64, room: u32) -> Outcome {
        self.taken_in(instruction, address, room, false)
    }

    /// The same where a drift has asked for all around: what comes next is asked for only where it is far from here. (A
    /// column walk through NAS FT's array, taken for a drift, had each plane of it brought in for one row.)
    pub fn fault_amid(&mut self, instruction: u64, address: u64, room: u32) -> Outcome {
        self.taken_in(instruction, address, room, true)
    }

    fn taken_in(&mut self, instruction: u64, address: u64, room: u32, amid: bool) -> Outcome {
        self.clock += 1;
        let (at, known) = self.place_of(instruction);
        let Some(stream) = self.streams.get_mut(at) else { return Outcome::default() };
        if !known {
            *stream = Stream { instruction, last: address, begun: address, used: self.clock, ..NEW };
            return Outcome::default();
        }
        stream.used = self.clock;
        Outcome { stream: at, ..stream.step(address, room, amid) }
    }

    /// What was asked for last: that many of the pages were not cached, and have been asked for.
    pub fn asked(&mut self, stream: usize, new: u32) {
        self.has_asked |= new > 0;
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.fresh = stream.fresh.saturating_add(new);
        }
    }

    /// Whether anything had to be asked for yet, for any stream: else all that the program walks through was there before.
    pub fn has_asked(&self) -> bool {
        self.has_asked
    }

    /// Whether the pages that were to be looked at are cached, most of them. Twice in a row makes it a scan: once may be
    /// a place where the program came before what was asked for.
    pub fn judged(&mut self, stream: usize, cached: bool) {
        if let Some(stream) = self.streams.get_mut(stream) {
            let before = core::mem::replace(&mut stream.doubted, cached);
            if cached && !before {
                stream.standing = Standing::Trial(TRIAL);
            } else if cached {
                stream.standing = Standing::Scan(stream.scan_next);
                stream.scan_next = (stream.scan_next * 2).min(SCAN_MOST);
                (stream.ahead, stream.fresh, stream.depth) = (0, 0, DEPTH_FIRST);
            } else {
                stream.standing = Standing::Trusted(TRIAL_AGAIN);
            }
        }
    }

    fn place_of(&self, instruction: u64) -> (usize, bool) {
        place_of(self.streams.iter().map(|stream| (stream.instruction, stream.used)), instruction)
    }
}

impl Stream {
    fn step(&mut self, address: u64, room: u32, amid: bool) -> Outcome {
        let delta = address.wrapping_sub(self.last) as i64;
        if delta.unsigned_abs() < PAGE {
            // The same page again: written to after it was read, or lost since.
            return Outcome::default();
        }
        let before = self.last;
        self.last = address;
        let is_near = |stride: i64| amid && stride.unsigned_abs() <= FAR;
        let Some(steps) = self.steps(delta) else {
            let steady = self.leave(delta) && !is_near(delta);
            return Outcome { steady, ..Outcome::default() };
        };
        if self.skips_on(steps, delta) {
            let (ahead, fresh) = (self.ahead / steps, self.fresh / steps);
            self.begin(delta, BELIEVED);
            (self.ahead, self.fresh) = (ahead.saturating_sub(1), fresh);
            return Outcome { steady: !is_near(delta), ..Outcome::default() };
        }
        self.run = self.run.saturating_add(1);
        self.steps = self.steps.saturating_add(steps);
        self.candidate = 0;
        self.ahead = self.ahead.saturating_sub(steps);
        let useful = steps.min(self.fresh);
        self.fresh -= useful;
        if is_near(self.stride) {
            // What goes on amid a drift is a scan, also where the program comes out of what the drift has asked for.
            self.standing = Standing::Scan(SCAN_FIRST);
            return Outcome::default();
        }
        let is_long = self.stride.unsigned_abs() >= STRIDE_LEAST;
        let steady = is_long && !matches!(self.standing, Standing::Scan(_));
        let served = self.run >= BELIEVED && steady;
        let (worth, width) = if self.is_wide() { (WIDE_WORTH, WIDE) } else { (1, 1) };
        let (used, useful_waits) = (useful * width, useful * worth);
        let mut outcome = Outcome { useful: useful_waits, used, served, steady, ..Outcome::default() };
        match &mut self.standing {
            Standing::Scan(left) => {
                *left = left.saturating_sub(steps);
                if *left == 0 {
                    self.standing = Standing::Trial(TRIAL);
                }
                return outcome;
            }
            Standing::Trial(left) | Standing::Trusted(left) => {
                *left = left.saturating_sub(useful);
                if *left == 0 && useful > 0 {
                    *left = TRIAL;
                    outcome.look = between(before, address);
                }
            }
        }
        if matches!(self.standing, Standing::Trusted(_)) && useful > 0 && self.ahead < self.depth / 2 {
            // The program came close before the next look: further ahead.
            self.depth = (self.depth * 2).min(DEPTH_MOST);
        }
        if self.run >= BELIEVED && is_long {
            outcome.beside = self.beside(address, room);
            outcome.ask = self.go_on(address, room);
        }
        outcome
    }

    /// As many pages as there is room for in all rows, so many before the program comes there. (Asked for with the walk that wants
    /// them first, 128 rows of NAS FT's were a burst of 16 MB after 32 columns that asked for nothing, and half of the time went
    /// with waiting for it.)
    fn beside(&self, address: u64, room: u32) -> Option<(u64, u32)> {
        let pages = room.checked_div(self.length)?.min(WIDE);
        let from = address.checked_add(u64::from(pages) * PAGE)?;
        (self.is_wide() && pages >= BESIDE_LEAST).then_some((from, pages))
    }

    /// What is to be asked for now that the program is at the address.
    fn go_on(&mut self, from: u64, room: u32) -> Option<Ask> {
        let is_wide = self.is_wide();
        let width = if is_wide { WIDE } else { 1 };
        // Behind the last row there is something else. (128 rows of FT's, and 128 pages of other arrays at each column.)
        let left = self.length.checked_sub(self.steps).filter(|_| self.length > 0).unwrap_or(u32::MAX);
        let depth = self.depth.min(left).min(if is_wide { room / WIDE } else { u32::MAX });
        let count = depth.saturating_sub(self.ahead).min(if is_wide { WIDE_STEPS } else { u32::MAX });
        let first = self.ahead + 1;
        self.ahead += count;
        (count > 0).then_some(Ask { from, stride: self.stride, first, count, width })
    }

    fn is_wide(&self) -> bool {
        self.next_door && self.stride.unsigned_abs() > FAR
    }

    /// How many strides the distance is.
    fn steps(&self, delta: i64) -> Option<u32> {
        let whole = delta.checked_rem(self.stride)? == 0;
        let steps = delta.checked_div(self.stride)?;
        (whole && (1..=SKIPS_MOST).contains(&steps)).then_some(steps as u32)
    }

    /// Whether a step of so many strides, and the ones before it, say that the stride is longer than was thought. Within what the
    /// kernel maps around a fault nothing says so. (NAS FT goes from a scan, in steps of 64 KB, to columns with rows of 1 MB: at
    /// each step 15 pages for nothing were asked for, 10,000 in all.)
    fn skips_on(&mut self, steps: u32, delta: i64) -> bool {
        self.skips = if steps == self.skip { self.skips.saturating_add(1) } else { 1 };
        self.skip = steps;
        steps > 1
            && self.skips >= SKIPS_BELIEVED
            && delta.unsigned_abs() > MAPPED_AROUND + self.stride.unsigned_abs()
    }

    /// Another stride, of which so many steps have been seen.
    fn begin(&mut self, stride: i64, run: u32) {
        let Stream { instruction, last, used, .. } = *self;
        let begun = last.wrapping_sub_signed(stride.wrapping_mul(i64::from(run)));
        *self = Stream { instruction, last, used, begun, steps: run, stride, run, ..NEW };
    }

    /// A step of another length: the end of a column, or another stride altogether if it comes twice (true).
    fn leave(&mut self, delta: i64) -> bool {
        (self.ahead, self.fresh) = (0, 0);
        let twice = delta == self.candidate;
        if twice {
            self.begin(delta, BELIEVED - 1);
        } else {
            self.candidate = delta;
            // One more step of the old length is enough to go on with it.
            self.run = self.run.min(BELIEVED - 1);
            // The first rows may be cached in either walk. (NAS FT's second walk through columns, of which a part was in memory, made
            // 10,000 requests of a page for 1000 of 32.)
            let whole = self.last.wrapping_sub(self.begun) as i64;
            let apart = whole.checked_rem_euclid(self.stride).unwrap_or(whole);
            let within =
                whole.unsigned_abs() <= self.stride.unsigned_abs().saturating_mul(u64::from(self.steps));
            self.next_door = self.steps >= BELIEVED && within && apart <= (NEXT_DOOR * PAGE) as i64;
            (self.begun, self.length, self.steps) = (self.last, self.steps, 0);
        }
        twice && delta.unsigned_abs() >= STRIDE_LEAST
    }
}

/// Which of the streams, each with its instruction and when it was used last (0: never), is the instruction's, and true; or
/// the one that was not used for longest, and false.
pub(crate) fn place_of(streams: impl Iterator<Item = (u64, u64)>, instruction: u64) -> (usize, bool) {
    let mut oldest = (0, u64::MAX);
    for (at, (owner, used)) in streams.enumerate() {
        if used != 0 && owner == instruction {
            return (at, true);
        }
        if used < oldest.1 {
            oldest = (at, used);
        }
    }
    (oldest.0, false)
}

/// The whole pages strictly between two addresses' pages.
fn between(one: u64, other: u64) -> Option<(u64, u64)> {
    let low = (one.min(other) / PAGE + 1) * PAGE;
    let high = one.max(other) / PAGE * PAGE;
    (low < high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: u64 = 65536;

    #[test]
    fn a_walk_is_served_from_the_step_on_that_it_is_believed_at() {
        let mut strides = Strides::default();
        let (steady, served): (Vec<bool>, Vec<bool>) = (0..6)
            .map(|step| strides.fault(7, ROW * step, 0))
            .map(|outcome| (outcome.steady, outcome.served))
            .unzip();
        assert_eq!(served, [false, false, false, true, true, true]);
        assert_eq!(steady, [false, false, true, true, true, true]);
        // Another stream, another step, and a scan are not.
        assert!(!strides.fault(8, ROW * 6, 0).served);
        assert!(!strides.fault(7, ROW * 7 + 24 * PAGE, 0).served);
        let mut scan = Strides::default();
        walk(&mut scan, 0, ROW as i64, 60, true);
        let found_out = scan.fault(7, ROW * 60, 0);
        assert!(!found_out.served && !found_out.steady);
    }

    /// Walks so many steps; returns the addresses asked for. `cached`: what the pages between are.
    fn walk(strides: &mut Strides, start: u64, stride: i64, steps: u64, cached: bool) -> Vec<u64> {
        let mut asked = Vec::new();
        for step in 0..steps {
            let outcome = strides.fault(7, start.wrapping_add_signed(stride * step as i64), 0);
            if outcome.look.is_some() {
                strides.judged(outcome.stream, cached);
            }
            if let Some(ask) = outcome.ask {
                asked.extend(ask.addresses());
                strides.asked(outcome.stream, ask.count);
            }
        }
        asked
    }

    #[test]
    fn a_walk_is_asked_for_once_each_and_in_order() {
        let asked = walk(&mut Strides::default(), 1 << 30, ROW as i64, 1000, false);
        let first = (asked[0] - (1 << 30)) / ROW;
        assert!(first <= 5, "{first}");
        assert!(asked.windows(2).all(|pair| pair[1] == pair[0] + ROW));
        assert!(asked.len() > 1000 && asked.len() < 1000 + DEPTH_MOST as usize + 2, "{}", asked.len());
    }

    #[test]
    fn where_all_is_cached_nothing_has_been_asked_for() {
        let mut strides = Strides::default();
        for step in 0..100 {
            let outcome = strides.fault(7, ROW * step, 0);
            strides.asked(outcome.stream, 0);
        }
        assert!(!strides.has_asked());
        strides.asked(0, 1);
        strides.asked(1, 0);
        assert!(strides.has_asked(), "another stream may walk through the same pages");
    }

    #[test]
    fn a_scan_is_found_out_and_left_alone() {
        let asked = walk(&mut Strides::default(), 1 << 30, 65536, 1000, true);
        assert!(asked.len() <= 2 * DEPTH_FIRST as usize, "{}", asked.len());
    }

    #[test]
    fn small_steps_are_left_alone() {
        assert!(walk(&mut Strides::default(), 1 << 30, 4096, 1000, false).is_empty());
    }

    #[test]
    fn the_next_column_goes_on_at_once() {
        let mut strides = Strides::default();
        walk(&mut strides, 1 << 30, ROW as i64, 200, false);
        let asked = walk(&mut strides, (1 << 30) + 4, ROW as i64, 3, false);
        assert!(!asked.is_empty());
    }

    /// A matrix of 100 rows of 1 MB, page columns one after the other; the kernel reads on where the program waits.
    #[test]
    fn columns_next_door_are_asked_for_together_and_no_farther_than_the_last_row() {
        let (waits, asks, beside) = columns(64 * WIDE);
        // The first row of each is left to the program.
        assert!(waits <= 512 / WIDE && asks < 256 && beside > 200 * 100, "{waits} {asks} {beside}");
        // Of 100 rows there is room for no request of any size beside each.
        let (waits, asks, beside) = columns(7 * 100);
        assert!(waits < 256 / WIDE * 8, "{waits}");
        assert!(asks < 256 / WIDE * 100 * 2, "{asks}");
        assert_eq!(beside, 0);
    }

    /// How many waits there are, requests for steps ahead, and pages asked for beside.
    fn columns(room: u32) -> (u32, u32, u64) {
        let mut strides = Strides::default();
        let mut brought = std::collections::HashSet::new();
        let (mut waits, mut asks, mut farthest, mut beside) = (0, 0, 0, 0);
        for (column, row) in (0..256u64).flat_map(|column| (0..100u64).map(move |row| (column, row))) {
            let address = (1 << 40) + (row << 20) + column * PAGE;
            let is_late = column >= 2;
            if !brought.contains(&(address / PAGE)) {
                waits += u32::from(is_late);
                brought.extend((0..u64::from(WIDE / 2)).map(|page| address / PAGE + page));
            }
            let outcome = strides.fault(7, address, room);
            if outcome.look.is_some() {
                strides.judged(outcome.stream, false);
            }
            if let Some((from, pages)) = outcome.beside
                && !brought.contains(&(from / PAGE))
            {
                brought.extend((0..u64::from(pages)).map(|page| from / PAGE + page));
                beside += u64::from(pages);
            }
            let Some(ask) = outcome.ask else { continue };
            let mut new = 0;
            for at in ask.addresses() {
                let is_new = !brought.contains(&(at / PAGE));
                brought.extend((0..u64::from(ask.width)).filter(|_| is_new).map(|page| at / PAGE + page));
                new += u32::from(is_new);
                farthest = farthest.max(if is_late { at } else { 0 });
            }
            asks += u32::from(is_late) * new;
            strides.asked(outcome.stream, new);
        }
        assert!(farthest < (1 << 40) + (100 << 20), "{}", (farthest - (1 << 40)) >> 20);
        (waits, asks, beside)
    }

    #[test]
    fn columns_of_which_the_first_rows_are_cached_are_next_door_too() {
        let mut strides = Strides::default();
        let mut wide = 0;
        for (column, row) in (0..8u64).flat_map(|column| (column % 3..100).map(move |row| (column, row))) {
            let outcome = strides.fault(7, (1 << 40) + (row << 20) + column * PAGE, 64 * WIDE);
            if outcome.look.is_some() {
                strides.judged(outcome.stream, false);
            }
            let Some(ask) = outcome.ask else { continue };
            assert!(ask.width == WIDE || column < 1, "column {column}, row {row}");
            wide += u32::from(ask.width == WIDE);
            strides.asked(outcome.stream, ask.count);
        }
        assert!(wide > 200, "{wide}");
    }

    #[test]
    fn slices_that_are_not_next_door_are_asked_for_page_by_page() {
        let mut strides = Strides::default();
        // 30 pages and a half apart: what the kernel reads around a miss is no part of the next.
        for (slice, row) in (0..8u64).flat_map(|slice| (0..100u64).map(move |row| (slice, row))) {
            let outcome = strides.fault(7, (1 << 40) + (row << 20) + slice * 61 * (PAGE / 2), 64 * WIDE);
            if outcome.look.is_some() {
                strides.judged(outcome.stream, false);
            }
            if let Some(ask) = outcome.ask {
                assert_eq!(ask.width, 1, "slice {slice}, row {row}");
                strides.asked(outcome.stream, ask.count);
            }
        }
    }

    #[test]
    fn a_scan_that_becomes_a_walk_of_longer_steps_is_asked_for_in_those() {
        let mut strides = Strides::default();
        walk(&mut strides, 1 << 30, ROW as i64, 40, false);
        let row = 16 * ROW;
        let asked = walk(&mut strides, 1 << 40, row as i64, 100, false);
        let useless = asked.iter().filter(|&&at| (at - (1 << 40)) % row != 0).count();
        assert!(useless < 2 * DEPTH_MOST as usize, "{useless}");
        assert!(asked.len() - useless > 90, "{} {useless}", asked.len());
    }

    #[test]
    fn steps_of_which_the_kernel_maps_several_at_once_stay_what_they_are() {
        let mut strides = Strides::default();
        // Every fourth page, of which the faults show one in four once they are asked for.
        walk(&mut strides, 1 << 30, 4 * PAGE as i64, 10, false);
        let asked = walk(&mut strides, (1 << 30) + 11 * 4 * PAGE, 16 * PAGE as i64, 200, false);
        assert!(asked.windows(2).all(|pair| pair[1] == pair[0] + 4 * PAGE));
        assert!(asked.len() > 700, "{}", asked.len());
    }

    #[test]
    fn amid_a_drift_only_long_steps_are_followed() {
        let followed = |stride: u64| {
            let mut strides = Strides::default();
            let step = |step: u64| strides.fault_amid(7, (1 << 40) + step * stride, 64 * WIDE);
            let seen: Vec<Outcome> = (0..40).map(step).collect();
            let count = |is: fn(&Outcome) -> bool| seen.iter().filter(|&one| is(one)).count();
            (count(|one| one.served || one.steady), count(|one| one.ask.is_some()))
        };
        assert_eq!(followed(ROW), (0, 0));
        assert_eq!(followed(FAR), (0, 0));
        let mut strides = Strides::default();
        (0..20).for_each(|step| _ = strides.fault_amid(7, (1 << 40) + step * ROW, 0));
        let outside: Vec<Outcome> =
            (20..40).map(|step| strides.fault(7, (1 << 40) + step * ROW, 0)).collect();
        assert!(outside.iter().all(|one| !one.served && !one.steady && one.ask.is_none()), "a scan still");
        let (served, asked) = followed(2 * FAR);
        assert!(served > 30 && asked > 30, "{served} {asked}");
    }

    #[test]
    fn random_places_ask_for_nothing() {
        let mut strides = Strides::default();
        let mut state = 1u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            assert_eq!(strides.fault(7, state >> 20, 0).ask, None);
        }
    }

    #[test]
    fn interleaved_instructions_do_not_disturb_each_other() {
        let mut strides = Strides::default();
        let mut asks = 0;
        for step in 0..100u64 {
            for instruction in 0..4u64 {
                let address = (instruction << 32) + step * (3 + instruction) * 4096;
                asks += u32::from(strides.fault(instruction, address, 0).ask.is_some());
            }
        }
        assert!(asks >= 4, "{asks}");
    }
}
