//! Walks and scans among pages that have newly become present in a process: what can be told of its page
//! faults where nobody sees them.
//!
//! The kernel's `pagemap` says which pages are mapped, not when, in which order or by which thread. A fault
//! maps its page with what is cached of the 16 pages around it, and what the kernel has read around it is
//! cached by then. So a look at the mapping finds *runs* of pages that are new since the look before:
//!
//! - Runs that begin at equal distances are a *walk*: a column of a matrix, slices of a volume. Where
//!   distances are no whole pages they jitter by a page, and where they are no whole windows of 16 pages by
//!   such a window; then what each of the possible distances leads to is asked for.
//! - Runs that continue each other are a *scan*. A column whose rows are as long as what the kernel reads
//!   around each miss looks the same, and is served as one: no more is read than by the kernel alone.
//!
//! Places without order are neither: four of the latest 64 hardly ever lie at equal distances, nor do runs
//! continue each other.

use crate::PAGE;

/// Runs that are remembered, in which walks are looked for.
const REMEMBERED: usize = 64;

/// Runs at equal distances that make a walk. (Of random places of 1 GB four never are.)
const STEPS_LEAST: u32 = 3;
/// And where they are counted in windows, of which there are fewer.
const STEPS_OF_WINDOWS: u32 = 4;

/// Runs in between that belong to others, at most: one for each step. Where runs lie closer, equal distances
/// are chance.
const OTHERS: usize = 3;

/// What the kernel maps at once, in pages.
const WINDOW: u64 = 16;

/// Shorter steps, in pages or windows, are scans.
const STRIDE_LEAST: u64 = 2;

/// Steps that may be missing between two runs: pages that were present before, or a look that comes late.
const SKIPS: u32 = 64;

/// Steps ahead, at first, for windows at first, and at most, as for strides among faults.
const DEPTH_FIRST: u32 = 32;
const DEPTH_OF_WINDOWS: u32 = 8;
const DEPTH: u32 = crate::strides::DEPTH_MOST;

/// Pages between which a step may lie, at most: farther ahead nothing is asked for until the distance is
/// known better.
const UNSURE: i64 = 4;

/// Pages of a step, at most: longer runs are scans that follow each other.
const WIDTH: u64 = 256;

/// Steps that have more pages than the ones before, all of them, until these are asked for as well.
const MEASURED: u32 = 8;

/// A walk or scan that was not met in so many looks is over.
const FORGOTTEN: u64 = 64;

/// Pages of a scan before it is one: less than that two waits nearby may be. A process that has had a long
/// scan is believed as soon as a run has as many pages as the kernel reads around a miss.
const SCAN_LEAST: u64 = 4;
const LONG: u64 = 256;
const READ_AROUND: u64 = crate::drift::REQUEST / PAGE;

/// Pages ahead of a scan, at first and at most: 64 requests of 128 KB.
const AHEAD_FIRST: u64 = READ_AROUND;
const AHEAD: u64 = 64 * READ_AROUND;

const WALKS: usize = 8;
const SCANS: usize = 8;

/// Fractions of a page are counted in so many bits.
const FRACTION: u32 = 16;
const ONE: i64 = 1 << FRACTION;

/// Numbers of pages, from and up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub first: u64,
    pub end: u64,
}

/// Pages that come next: those of each step, from the nearest on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    from: u64,
    /// The distance is between these, in fractions of a page.
    low: i64,
    high: i64,
    first: u32,
    count: u32,
    width: u64,
    /// All of these are in so many pages.
    grain: u64,
}

impl Ask {
    pub fn steps(&self) -> impl Iterator<Item = Run> + use<> {
        let Ask { from, low, high, first, count, width, grain } = *self;
        (first..first.saturating_add(count)).map_while(move |step| {
            let (low, high) = reach(low, high, i64::from(step));
            let first = from.checked_add_signed(low)?.checked_mul(grain)?;
            let end = from.checked_add_signed(high)?.checked_add(width)?.checked_mul(grain)?;
            Some(Run { first, end })
        })
    }
}

/// How far so many steps may lead, in pages.
fn reach(low: i64, high: i64, steps: i64) -> (i64, i64) {
    let up = high.saturating_mul(steps).saturating_add(ONE - 1);
    (low.saturating_mul(steps) >> FRACTION, up >> FRACTION)
}

#[derive(Clone, Copy, Debug)]
struct Walk {
    begun: u64,
    last: u64,
    /// Where the latest run ends.
    end: u64,
    /// Distances so far, and between what the distance is by them.
    steps: u32,
    low: i64,
    high: i64,
    /// Pages of each step, if all were alike.
    even: Option<i64>,
    /// Pages of a step; the least of the latest steps, and how many these are.
    width: u64,
    least: u64,
    measured: u32,
    /// Steps ahead that were asked for.
    ahead: u32,
    depth: u32,
    /// Steps since it was asked for more.
    lately: u32,
    /// The look in which it was met last; 0: there is no such walk.
    met: u64,
}

const NO_WALK: Walk = Walk {
    begun: 0,
    last: 0,
    end: 0,
    steps: 0,
    low: 0,
    high: 0,
    even: None,
    width: 1,
    least: WIDTH,
    measured: 0,
    ahead: 0,
    depth: DEPTH_FIRST,
    lately: 0,
    met: 0,
};

#[derive(Clone, Copy, Default, Debug)]
struct Scan {
    begun: u64,
    head: u64,
    /// Up to where was asked.
    asked: u64,
    ahead: u64,
    /// Looks in which it went on.
    looks: u32,
    met: u64,
}

/// A run, by where it began, how long it was, and in which look. 0: none.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    first: u64,
    length: u64,
    look: u64,
}

/// Walks whose steps are counted in so many pages.
#[derive(Clone, Debug)]
struct Grid {
    grain: u64,
    walks: [Walk; WALKS],
    /// Runs that belong to nothing yet.
    latest: [Seen; REMEMBERED],
    next: usize,
}

/// What is known of one process's pages.
#[derive(Clone, Debug)]
pub struct Presence {
    pages: Grid,
    windows: Grid,
    scans: [Scan; SCANS],
    /// Towards lower addresses: as if the last page were the first.
    falls: [Scan; SCANS],
    look: u64,
    /// A long scan towards higher addresses has been seen.
    scans_much: bool,
}

impl Default for Presence {
    fn default() -> Presence {
        Presence {
            pages: Grid::of(1),
            windows: Grid::of(WINDOW),
            scans: [Scan::default(); SCANS],
            falls: [Scan::default(); SCANS],
            look: 1,
            scans_much: false,
        }
    }
}

impl Presence {
    /// What arrives from now on was seen in another look.
    pub fn next_look(&mut self) {
        self.look += 1;
    }

    /// A run of the present look; those of one look come in the order of their addresses. Whether it belongs
    /// to a walk or to a scan.
    pub fn arrived(&mut self, run: Run) -> bool {
        let (look, trusted) = (self.look, self.scans_much);
        if self.pages.takes_in(run, look) || self.windows.takes_in(run, look) {
            return true;
        }
        if let Some(scan) = self.scans.iter_mut().find(|scan| scan.is_continued(run, look)) {
            scan.take_in(run, look);
            return scan.is_believed(trusted);
        }
        let is_window = run.end - run.first > 1;
        if self.pages.begins(run, look) || is_window && self.windows.begins(run, look) {
            return true;
        }
        Scan::begin(&mut self.scans, run, look).is_some_and(|scan| scan.is_believed(trusted))
    }

    /// A run that belongs to nothing so far; those of one look come in the order of their addresses, the last
    /// one first. Whether it belongs to a scan towards lower addresses.
    pub fn fell(&mut self, run: Run) -> bool {
        let (run, look) = (mirrored(run), self.look);
        if let Some(scan) = self.falls.iter_mut().find(|scan| scan.is_continued(run, look)) {
            scan.take_in(run, look);
            return scan.is_believed(false);
        }
        Scan::begin(&mut self.falls, run, look);
        false
    }

    /// Once all runs of a look have arrived: what comes next. To be called until there is nothing more.
    /// `room`: pages that each walk and scan may be ahead.
    pub fn next_ask(&mut self, room: u64) -> Option<Ask> {
        let (look, trusted) = (self.look, self.scans_much);
        let of_walks = self.pages.next_ask(room, look).or_else(|| self.windows.next_ask(room, look));
        of_walks.or_else(|| {
            let up = Scan::next_ask(&mut self.scans, room, (look, trusted), &mut self.scans_much);
            up.or_else(|| {
                let down = Scan::next_ask(&mut self.falls, room, (look, false), &mut false)?;
                // Its pieces end where they would begin.
                let from = (!down.from).checked_sub(READ_AROUND - 1)?;
                Some(Ask { from, low: -down.low, high: -down.high, ..down })
            })
        })
    }

    /// Where the next runs are expected, and what they are to be looked for in.
    pub fn expected(&self) -> impl Iterator<Item = Run> + '_ {
        let look = self.look;
        let walks = self.pages.expected(look).chain(self.windows.expected(look));
        let goes = move |scan: &&Scan| scan.is_alive(look) && scan.ahead > 0;
        let scans = self.scans.iter().filter(goes).map(Scan::expected);
        walks.chain(scans).chain(self.falls.iter().filter(goes).map(Scan::expected).map(mirrored))
    }
}

/// The same with the last page as the first.
fn mirrored(run: Run) -> Run {
    Run { first: (!run.end).saturating_add(1), end: (!run.first).saturating_add(1) }
}

impl Grid {
    fn of(grain: u64) -> Grid {
        Grid { grain, walks: [NO_WALK; WALKS], latest: [Seen::default(); REMEMBERED], next: 0 }
    }

    /// What a run covers.
    fn covered(&self, run: Run) -> Run {
        Run { first: run.first / self.grain, end: run.end.div_ceil(self.grain) }
    }

    fn takes_in(&mut self, run: Run, look: u64) -> bool {
        let run = self.covered(run);
        self.walks.iter_mut().any(|walk| walk.is_alive(look) && walk.takes_in(run, look))
    }

    /// Whether a walk begins with the run. Else it is remembered.
    fn begins(&mut self, run: Run, look: u64) -> bool {
        let run = self.covered(run);
        if let Some(walk) = self.found(run, look) {
            if let Some(place) = self.walks.iter_mut().min_by_key(|walk| walk.met) {
                *place = walk;
            }
            return true;
        }
        // What the kernel has mapped at once may be two runs: a page is left out that marks where it is to
        // read on.
        let is_same = |seen: &&Seen| {
            seen.look == look && seen.first * self.grain / WINDOW == run.first * self.grain / WINDOW
        };
        if !self.latest.iter().any(|seen| is_same(&seen)) {
            if let Some(place) = self.latest.get_mut(self.next) {
                *place = Seen { first: run.first, length: run.end - run.first, look };
            }
            self.next = (self.next + 1) % REMEMBERED;
        }
        false
    }

    fn next_ask(&mut self, room: u64, look: u64) -> Option<Ask> {
        let (room, grain) = (room / self.grain, self.grain);
        let mut walks = self.walks.iter_mut().filter(|walk| walk.met == look);
        walks.find_map(|walk| walk.go_on(room, grain))
    }

    fn expected(&self, look: u64) -> impl Iterator<Item = Run> + '_ {
        let in_pages = |run: Run| Run {
            first: run.first.saturating_mul(self.grain),
            end: run.end.saturating_mul(self.grain),
        };
        self.walks.iter().filter(move |walk| walk.is_alive(look)).map(move |walk| in_pages(walk.expected()))
    }

    /// A walk of which the run is the latest step.
    fn found(&self, run: Run, look: u64) -> Option<Walk> {
        // The nearest first: it is the step before, if anything is.
        let mut best: Option<Walk> = None;
        for before in self.latest.iter().filter(|seen| seen.look != 0) {
            let stride = run.first.wrapping_sub(before.first) as i64;
            let is_less = |walk: &Walk| {
                stride.unsigned_abs() < walk.last.abs_diff(walk.begun) / u64::from(walk.steps.max(1))
            };
            if stride.unsigned_abs() < STRIDE_LEAST || !best.as_ref().is_none_or(is_less) {
                continue;
            }
            best = self.walk_of(run, stride, *before, look).or(best);
        }
        best
    }

    /// The same, if the step before it was there.
    fn walk_of(&self, run: Run, stride: i64, before: Seen, look: u64) -> Option<Walk> {
        let (depth, steps) = match self.grain {
            1 => (DEPTH_FIRST, STEPS_LEAST),
            _ => (DEPTH_OF_WINDOWS, STEPS_OF_WINDOWS),
        };
        let mut at = before;
        let mut width = at.length.min(run.end - run.first);
        let (mut low, mut high, mut even) = (stride, stride, true);
        for _ in 1..steps {
            let step = |seen: &Seen| at.first.wrapping_sub(seen.first) as i64;
            let near =
                |seen: &&Seen| seen.look != 0 && seen.look <= at.look && step(seen).abs_diff(stride) <= 1;
            let exact = self.latest.iter().find(|seen| near(seen) && step(seen) == stride);
            let found = exact.or_else(|| self.latest.iter().find(near))?;
            let step = step(found);
            (low, high, even) = (low.min(step), high.max(step), even && step == stride);
            width = width.min(found.length);
            at = *found;
        }
        // In one look any order is possible; and distances that differ by more than one are none.
        if at.look >= look || high - low > 1 || low.unsigned_abs().min(high.unsigned_abs()) < STRIDE_LEAST {
            return None;
        }
        let (near, far) = (at.first.min(run.first), at.first.max(run.first));
        let between = |seen: &&Seen| seen.look != 0 && (near + 1..far).contains(&seen.first);
        if self.latest.iter().filter(between).count() > OTHERS + steps as usize - 1 {
            return None;
        }
        let mut walk = Walk {
            begun: at.first,
            last: run.first,
            end: run.end,
            steps,
            even: even.then_some(stride),
            width: width.min(WIDTH),
            met: look,
            low: i64::MIN,
            high: i64::MAX,
            depth,
            ..NO_WALK
        };
        walk.narrow();
        Some(walk)
    }
}

impl Walk {
    fn is_alive(&self, look: u64) -> bool {
        self.met != 0 && look - self.met <= FORGOTTEN
    }

    /// What the distance is between, by where it began.
    fn narrow(&mut self) {
        let whole = (self.last.wrapping_sub(self.begun) as i64).saturating_mul(ONE);
        let steps = i64::from(self.steps.max(1));
        self.low = self.low.max((whole - ONE).div_euclid(steps));
        self.high = self.high.min((whole + ONE).div_euclid(steps) + 1);
        if self.low > self.high {
            // It is none of constant steps.
            self.met = 0;
        }
    }

    /// Whether the run is one of the next steps, which it is then, or belongs to one that was met.
    fn takes_in(&mut self, run: Run, look: u64) -> bool {
        // One more of the same step.
        if (self.last..=self.end).contains(&run.first) && self.end - self.last < WIDTH {
            self.end = self.end.max(run.end);
            self.met = look;
            return true;
        }
        let middle = (self.low / 2 + self.high / 2).clamp(self.low, self.high);
        let distance = (run.first.wrapping_sub(self.last) as i64).saturating_mul(ONE);
        let Some(nearest) =
            distance.saturating_add(middle.saturating_abs() / 2 * distance.signum()).checked_div(middle)
        else {
            return false;
        };
        if nearest <= 0 {
            return self.is_behind(run, nearest);
        }
        let Some(steps) = u32::try_from(nearest).ok().filter(|&steps| steps <= SKIPS.max(self.ahead + 1))
        else {
            return false;
        };
        let (low, high) = reach(self.low, self.high, nearest);
        let is_at = |page: Option<u64>, least: u64| page.is_some_and(|page| page >= least);
        let meets = is_at(self.last.checked_add_signed(high), run.first)
            && self.last.checked_add_signed(low).is_some_and(|page| page < run.end);
        if !meets {
            return false;
        }
        // What is mapped around a page that was found cached may begin before it.
        let exact = self.even.and_then(|even| self.last.checked_add_signed(even.checked_mul(nearest)?));
        let exact = exact.filter(|page| (run.first..run.end).contains(page));
        let page = match exact {
            Some(page) => page,
            None => {
                if self.even.take().is_some() {
                    // What was asked for leads elsewhere.
                    self.ahead = 0;
                }
                run.first
            }
        };
        self.measure();
        (self.last, self.end) = (page, run.end);
        self.steps = self.steps.saturating_add(steps);
        self.ahead = self.ahead.saturating_sub(steps);
        self.lately = self.lately.saturating_add(steps);
        self.met = look;
        self.narrow();
        true
    }

    /// Takes in how many pages the latest step has, now that it is over. With a page that it finds cached the
    /// kernel maps what is cached around, be it not wanted; so only what none of the steps goes without is
    /// theirs. (The widest, asked for at each, was mapped at each: a column became the whole matrix.)
    fn measure(&mut self) {
        self.least = self.least.min(self.end - self.last);
        self.width = self.width.min(self.least);
        self.measured += 1;
        if self.measured == MEASURED {
            (self.width, self.least, self.measured) = (self.least, WIDTH, 0);
        }
    }

    /// Whether it is a step that was passed over: one of a walk towards lower addresses, whose runs come in
    /// the order of theirs.
    fn is_behind(&self, run: Run, steps: i64) -> bool {
        let (low, high) = reach(self.low, self.high, steps);
        let (low, high) = (low.min(high), low.max(high));
        let near = self.last.checked_add_signed(low).zip(self.last.checked_add_signed(high));
        steps >= -i64::from(SKIPS) && near.is_some_and(|(low, high)| low <= run.first && run.first <= high)
    }

    fn go_on(&mut self, room: u64, grain: u64) -> Option<Ask> {
        if self.met == 0 {
            return None;
        }
        let (low, high) = match self.even {
            Some(even) => (even.saturating_mul(ONE), even.saturating_mul(ONE)),
            None => (self.low, self.high),
        };
        if self.ahead > 0 && self.lately >= self.ahead || self.lately >= self.depth {
            // The program came along far before this look.
            self.depth = (self.depth * 2).min(DEPTH);
        }
        self.lately = 0;
        let unsure = high.abs_diff(low);
        let sure = ((UNSURE * ONE) as u64).checked_div(unsure).unwrap_or(u64::MAX);
        let pages = self.width + u64::from(unsure != 0);
        let depth = u64::from(self.depth).min(sure).min(room / pages.max(1));
        let count = u32::try_from(depth).unwrap_or(self.depth).saturating_sub(self.ahead);
        // So few are no request of their own, as long as there are others.
        if count == 0 || self.ahead > 0 && count < self.depth / 8 {
            return None;
        }
        let first = self.ahead + 1;
        self.ahead += count;
        Some(Ask { from: self.last, low, high, first, count, width: self.width, grain })
    }

    fn expected(&self) -> Run {
        let (low, high) = reach(self.low, self.high, i64::from(self.ahead.max(SKIPS)));
        let ends = [self.last.saturating_add_signed(low), self.last.saturating_add_signed(high), self.last];
        let first = ends.iter().copied().min().unwrap_or(self.last);
        let end = ends.iter().copied().max().unwrap_or(self.last);
        Run { first, end: end.saturating_add(self.width + 1) }
    }
}

impl Scan {
    fn is_alive(&self, look: u64) -> bool {
        self.met != 0 && look - self.met <= FORGOTTEN
    }

    fn is_continued(&self, run: Run, look: u64) -> bool {
        // A page is left out where the kernel is to read on; single pages leave none out.
        let gap = if run.end - run.first > 1 { 2 * WINDOW } else { 0 };
        let within = self.head.saturating_add(gap).max(self.asked);
        // One that was passed over in the same look is a part of it.
        let from = if self.met == look { self.begun } else { self.head };
        self.is_alive(look) && (from..=within).contains(&run.first)
    }

    fn take_in(&mut self, run: Run, look: u64) {
        self.looks += u32::from(self.met != look);
        (self.head, self.met) = (self.head.max(run.end), look);
    }

    fn begin(scans: &mut [Scan], run: Run, look: u64) -> Option<&Scan> {
        let scan = scans.iter_mut().min_by_key(|scan| scan.met)?;
        *scan = Scan { begun: run.first, head: run.end, met: look, ..Scan::default() };
        Some(scan)
    }

    fn next_ask(scans: &mut [Scan], room: u64, (look, trusted): (u64, bool), much: &mut bool) -> Option<Ask> {
        let mut scans = scans.iter_mut().filter(|scan| scan.met == look && scan.is_believed(trusted));
        scans.find_map(|scan| {
            *much |= scan.head - scan.begun >= LONG;
            scan.go_on(room)
        })
    }

    fn is_believed(&self, trusted: bool) -> bool {
        let length = self.head - self.begun;
        self.ahead > 0 || self.looks >= 2 && length >= SCAN_LEAST || trusted && length >= READ_AROUND
    }

    fn go_on(&mut self, room: u64) -> Option<Ask> {
        let left = self.asked.saturating_sub(self.head);
        if self.ahead > 0 && left * 2 > self.ahead {
            return None;
        }
        self.ahead = if self.ahead == 0 { AHEAD_FIRST } else { self.ahead * 2 }.max(self.lately()).min(AHEAD);
        let first = self.asked.max(self.head);
        let end = self.head.saturating_add(self.ahead.min(room));
        let count = u32::try_from(end.saturating_sub(first).div_ceil(READ_AROUND)).unwrap_or(0);
        self.asked = first.saturating_add(u64::from(count) * READ_AROUND);
        let step = (READ_AROUND as i64) * ONE;
        // A step of so many pages from where it begins.
        let from = first.checked_sub(READ_AROUND)?;
        (count > 0).then_some(Ask {
            from,
            low: step,
            high: step,
            first: 1,
            count,
            width: READ_AROUND,
            grain: 1,
        })
    }

    /// As much as it has come along in each look.
    fn lately(&self) -> u64 {
        (self.head - self.begun).checked_div(u64::from(self.looks)).unwrap_or(0)
    }

    fn expected(&self) -> Run {
        Run {
            first: self.head.saturating_sub(1),
            end: self.asked.max(self.head).saturating_add(2 * READ_AROUND),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const ROOM: u64 = 1 << 20;

    fn one(page: u64) -> Run {
        Run { first: page, end: page + 1 }
    }

    /// Goes through places, so many in each look, and tells which of them had been asked for before.
    fn served(
        presence: &mut Presence,
        places: impl IntoIterator<Item = Run>,
        in_look: usize,
    ) -> (usize, usize) {
        let places: Vec<Run> = places.into_iter().collect();
        let (mut asked, mut served) = (HashSet::new(), 0);
        for runs in places.chunks(in_look) {
            served += runs.iter().filter(|run| asked.contains(&run.first)).count();
            let mut runs = runs.to_vec();
            runs.sort_by_key(|run| run.first);
            // As whoever looks tells of them.
            runs.dedup_by(|next, run| {
                let continues = next.first == run.end;
                run.end = if continues { next.end } else { run.end };
                continues
            });
            presence.next_look();
            runs.retain(|&run| !presence.arrived(run));
            for run in runs.into_iter().rev() {
                presence.fell(run);
            }
            while let Some(ask) = presence.next_ask(ROOM) {
                ask.steps().for_each(|step| asked.extend(step.first..step.end));
            }
        }
        (served, asked.len())
    }

    #[test]
    fn a_column_is_asked_for_after_four_rows_and_nothing_between_its_rows() {
        for in_look in [1, 2, 3, 20, 60] {
            let mut presence = Presence::default();
            let (served, asked) = served(&mut presence, (0..2000).map(|row| one(100 + row * 16)), in_look);
            assert!(served >= 2000 - 3 * in_look.max(4), "{served} with {in_look} in a look");
            assert!(asked <= 2000 + DEPTH as usize, "{asked} with {in_look} in a look");
        }
    }

    #[test]
    fn a_column_towards_lower_addresses_is_one_too() {
        for in_look in [1, 3, 20] {
            let mut presence = Presence::default();
            let (served, _) = served(&mut presence, (0..2000).map(|row| one(1_000_000 - row * 16)), in_look);
            assert!(served >= 2000 - 3 * in_look.max(8), "{served} with {in_look} in a look");
        }
    }

    #[test]
    fn rows_of_no_whole_pages_are_asked_for_with_few_pages_more() {
        for bytes in [100_000u64, 65_544, 12_345_678, 9000] {
            let mut presence = Presence::default();
            let places = (0..2000).map(|row| one(77 + row * bytes / 4096));
            let (served, asked) = served(&mut presence, places, 2);
            assert!(served >= 1900, "{served} of rows of {bytes} bytes");
            assert!(asked <= 3 * 2000 + 600, "{asked} of rows of {bytes} bytes");
        }
    }

    /// As the kernel maps a fault that has waited, with what it has read around it: to the page that marks
    /// where it is to read on, and from there on.
    fn mapped(page: u64) -> [Run; 2] {
        let (first, end) = (page / 16 * 16, page / 16 * 16 + 16);
        let marked = (page + 8).min(end);
        [Run { first, end: marked }, Run { first: (marked + 1).min(end), end }]
    }

    #[test]
    fn rows_with_what_is_mapped_around_them_are_found_too() {
        for bytes in [1 << 20, 262_144, 300_000, 1_234_567] {
            let mut presence = Presence::default();
            let (mut asked, mut served) = (HashSet::new(), 0);
            for row in 0..1000 {
                let page = 3 + row * bytes / 4096;
                presence.next_look();
                let runs =
                    if asked.contains(&page) { [one(page), Run { first: 0, end: 0 }] } else { mapped(page) };
                served += u32::from(asked.contains(&page));
                for run in runs.into_iter().filter(|run| run.end > run.first) {
                    presence.arrived(run);
                }
                while let Some(ask) = presence.next_ask(ROOM) {
                    ask.steps().for_each(|step| asked.extend(step.first..step.end));
                }
            }
            assert!(served > 900, "{served} of rows of {bytes} bytes");
            assert!(asked.len() < 40 * 1300, "{} of rows of {bytes} bytes", asked.len());
        }
    }

    #[test]
    fn two_threads_walk_each_by_itself() {
        let places = (0..1000).flat_map(|row| [one(50 + row * 16), one(300_000 + row * 24)]);
        let (served, asked) = served(&mut Presence::default(), places, 4);
        assert!(served >= 1980 && asked <= 2600, "{served} {asked}");
    }

    #[test]
    fn slices_of_several_pages_are_asked_for_as_a_whole() {
        let slice = |row: u64| Run { first: 9 + row * 256, end: 9 + row * 256 + 6 };
        let mut presence = Presence::default();
        let mut asked = HashSet::new();
        for row in 0..40 {
            presence.next_look();
            presence.arrived(slice(row));
            while let Some(ask) = presence.next_ask(ROOM) {
                ask.steps().for_each(|step| asked.extend(step.first..step.end));
            }
        }
        assert!((slice(41).first..slice(41).end).all(|page| asked.contains(&page)));
        assert!(!asked.contains(&slice(41).end) && !asked.contains(&(slice(41).first - 1)));
    }

    #[test]
    fn what_is_mapped_around_what_was_asked_for_is_not_asked_for() {
        let (mut presence, mut asked) = (Presence::default(), HashSet::new());
        for row in 0..400 {
            presence.next_look();
            let page = 160 + row * 16;
            // Some rows are found cached, and the rest of their window with them.
            let end = if row % 7 == 3 { page + 15 } else { page + 1 };
            presence.arrived(Run { first: page, end });
            while let Some(ask) = presence.next_ask(ROOM) {
                ask.steps().for_each(|step| asked.extend(step.first..step.end));
            }
        }
        assert!(asked.len() < 800, "{}", asked.len());
    }

    #[test]
    fn a_scan_is_asked_for_as_far_as_it_is_followed() {
        for pages in [1, 2, 30, 200] {
            let mut presence = Presence::default();
            let runs = (0..60).map(|at| Run { first: 1000 + at * pages, end: 1000 + (at + 1) * pages });
            let (served, asked) = served(&mut presence, runs, 1);
            assert!(served >= 50, "{served} of 60 runs of {pages} pages");
            assert!(asked as u64 <= 60 * pages * 3 + AHEAD_FIRST, "{asked} for {pages}");
        }
    }

    #[test]
    fn a_scan_towards_lower_addresses_is_one_too() {
        for (pages, in_look) in [(1, 1), (2, 1), (17, 3), (30, 2)] {
            let mut presence = Presence::default();
            let runs = (0..60).map(|at| Run { first: 9000 - (at + 1) * pages, end: 9000 - at * pages });
            let (served, asked) = served(&mut presence, runs, in_look);
            assert!(served >= 60 - 5 * in_look - 5, "{served} of 60 runs of {pages} pages");
            assert!(asked as u64 <= 60 * pages * 3 + AHEAD_FIRST, "{asked} for {pages}");
        }
        assert_eq!(mirrored(mirrored(Run { first: 3, end: 9 })), Run { first: 3, end: 9 });
    }

    #[test]
    fn tensors_after_a_long_scan_are_asked_for_at_once() {
        let mut presence = Presence::default();
        served(&mut presence, (0..20).map(|at| Run { first: 1000 + at * 100, end: 1100 + at * 100 }), 1);
        presence.next_look();
        assert!(presence.arrived(Run { first: 90_000, end: 90_040 }));
        assert!(presence.next_ask(ROOM).is_some());
        let (other, run) = (&mut Presence::default(), Run { first: 90_000, end: 90_040 });
        other.next_look();
        assert!(!other.arrived(run) && other.next_ask(ROOM).is_none());
    }

    #[test]
    fn random_places_are_asked_nothing_for() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % 262_144
        };
        for in_look in [1, 2, 10, 40] {
            let places: Vec<Run> = (0..20_000).map(|_| one(1 + next())).collect();
            let (_, asked) = served(&mut Presence::default(), places, in_look);
            assert!(asked < 1500, "{asked} pages with {in_look} in a look");
        }
    }

    #[test]
    fn nothing_is_asked_for_without_room() {
        let mut presence = Presence::default();
        for row in 0..100 {
            presence.next_look();
            presence.arrived(one(row * 16));
            let begin = (1 << 20) + row * 64;
            presence.arrived(Run { first: begin, end: begin + 64 });
            assert_eq!(presence.next_ask(0).map_or(0, |ask| ask.steps().count()), 0);
        }
    }

    #[test]
    fn the_ends_of_all_addresses_do_no_harm() {
        let mut presence = Presence::default();
        for at in [0, 1, u64::MAX - 1, u64::MAX / 2, 3, u64::MAX - 100] {
            presence.next_look();
            presence.arrived(Run { first: at, end: at.saturating_add(1) });
            (0..99).map_while(|_| presence.next_ask(ROOM)).flat_map(|ask| ask.steps()).for_each(drop);
            presence.expected().for_each(drop);
        }
    }
}
