//! Places that move through a mapped file in no constant steps: a scan with gaps.
//!
//! git finds the objects of a commit in its pack roughly in the order in which they lie there, and skips most: no stride
//! tells the next place, and speculation ends at the first blank object. The kernel reads 128 KB around each
//! miss, each time only when the program stands before it. But where three of the last sixteen waits lay within 2 MB,
//! a good part of the rest is wanted soon, and what lies behind it as well. (Three on a disk that answers many requests as soon as one;
//! more where a block takes as long as that many waits: [`Cost`].)
//!
//! So such a block is asked for as a whole, and as the program comes near to the end of what was asked for, the next ones:
//! twice as many each time, while each block that it went through has seen as many faults as made it a *drift*.
//! Waits without order are seldom so near to each other: of 4000 in a file of 1 GB it happens some six times.

use crate::PAGE;

/// Bytes that are asked for as one.
pub const BLOCK: u64 = 2 << 20;

/// Bytes that are asked for at a time: of more, some file systems drop the rest. As many as the kernel reads around a miss.
pub const REQUEST: u64 = 128 * 1024;

/// Waits in one block, among the latest so many, which make it a drift, at least; and faults in each block that keep it one.
const DENSE: u32 = 3;
const LATEST: usize = 16;

/// And at most: with more it would be the whole block.
const DENSE_MOST: u32 = 12;

/// And as long as no block of the disk was measured, but some waits there were: too many cost a disk that answers many at once these waits,
/// and too few another one 2 MB for each array that is begun before the first block has come, which is all that a compiler's start is.
/// (Six on any disk: a program that waits in six blocks of code in turn, each time for 1 ms, is through before one has so many.)
const DENSE_GUESSED_MOST: u64 = 6;

/// What a block takes beyond its first request, in ns, as long as none was measured: 1 GB/s.
const BLOCK_GUESSED: u64 = 2_000_000;

/// Waits of which the median counts then. Some are short, for what was on its way, and some long, for what the program did afterwards.
const WAITED: usize = 8;

/// No disk answers sooner, ns: who seems to wait for less fills a hole of a file, or finds what was on its way.
const WAIT_LEAST: u64 = 50_000;

/// How often a disk is measured: it may be busy with something else each time. The median counts.
const MEASURED: usize = 3;

/// Waits of so many quarters of a block's time make it a drift. Who waits until the block has cost him as much as it would cost as a whole never
/// pays more than twice; but who has come so far wants the rest more often than not. (A disk of 71 us a page, where a block takes 6 to 12 times as
/// long as a program waits for one request: a compiler's start takes 49 ms alone, 69 with three waits, 53 to 57 with seven or eight; git's pack
/// 0.20 s alone, 0.23 with three, 0.18 to 0.19 with five to seven. With three quarters its blocks were often worth twelve.)
const WANTED_QUARTERS: u64 = 2;

/// What a block costs on one disk.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cost {
    /// The waits that a block's time is worth, each time that it was measured.
    waits: [u32; MEASURED],
    measured: usize,
    /// The first waits for one request, in ns.
    waited: [u64; WAITED],
    known: usize,
}

impl Cost {
    /// So many requests were sent together, and all of them had been answered after so many ns. What one takes, the program's waits tell.
    /// (The first of them does not: it may be for a hole, or for what was on its way already, and is answered at once, which made a block of the
    /// 1 ms disk worth twelve waits, and NAS MG took 10 s in every third run for 4. Or a disk answers all of them together.)
    pub fn measured(&mut self, requests: u64, all: u64) {
        let Some(one) = self.usual_wait() else { return };
        let others = requests.saturating_sub(1).max(1);
        let each = all.saturating_sub(one) / others;
        let block = one.saturating_add(each.saturating_mul(BLOCK / REQUEST - 1));
        let quarters = block.saturating_mul(WANTED_QUARTERS) / one;
        if let Some(place) = self.waits.get_mut(self.measured) {
            *place = u32::try_from(quarters / 4).unwrap_or(DENSE_MOST);
            self.measured += 1;
        }
    }

    /// A program waited for one request, for so many ns at most.
    pub fn waited(&mut self, ns: u64) {
        if ns < WAIT_LEAST {
            return;
        }
        if let Some(place) = self.waited.get_mut(self.known) {
            *place = ns;
            self.known += 1;
        }
    }

    fn usual_wait(&self) -> Option<u64> {
        let mut waited = self.waited;
        let known = waited.get_mut(..self.known)?;
        known.sort_unstable();
        known.get(known.len() / 2).copied()
    }

    /// What a block is worth by the waits so far.
    fn guessed(&self) -> u32 {
        let request = self.usual_wait().unwrap_or(u64::MAX);
        let quarters = WANTED_QUARTERS + BLOCK_GUESSED * WANTED_QUARTERS / request;
        (quarters / 4).min(DENSE_GUESSED_MOST) as u32
    }

    /// Whether it is known well enough.
    pub fn is_known(&self) -> bool {
        self.measured == MEASURED
    }

    /// Waits in one block that make it a drift.
    pub fn dense(&self) -> u32 {
        let mut waits = self.waits;
        let known = waits.get_mut(..self.measured).unwrap_or_default();
        known.sort_unstable();
        known.get(known.len() / 2).copied().unwrap_or_else(|| self.guessed()).clamp(DENSE, DENSE_MOST)
    }
}

/// What a drift may do: blocks that may be ahead, of all that go on together; and waits in a block that make it one.
#[derive(Clone, Copy, Debug)]
pub struct Leave {
    pub blocks: u64,
    pub dense: u32,
}

/// Blocks that are asked for one after the other at most: 64 requests of 128 KB, as many as a cloud disk answers at a time.
const AHEAD_MOST: u64 = 4;

/// Blocks behind the program that still belong to its drift, as deltas lead back to their bases. What lies farther back is
/// another pass. (Where a drift held all that it had ever asked for, the next pass over an array was taken for a part of it,
/// and nothing was asked for: NAS MG on a file, 1 ms disk, waited 300 times in each half second of such passes.)
const BEHIND: u64 = 2;

/// Blocks beyond what was asked for in which the program has overtaken its drift, and not left it. (Where it had to begin anew with
/// three waits, NAS FT's scans of three arrays were taken for strides of 64 KB, and 4 MB of each passed page by page.)
const OVERTAKEN: u64 = 2;

/// Drifts of one thread: through some arrays, or through a pack and the bases of its deltas.
const DRIFTS: usize = 4;

/// Faults after which a drift that was not met is over: what comes back to its block then is chance.
const FORGOTTEN: u64 = 64;

/// Of the latest 64 faults so many in drifts are scans: one of three that go on together has begun its drift.
const SCANS: u32 = 16;

/// Where all but a few of the latest 64 faults were in drifts, the latest of them all, the next ones will be too; and where a
/// block has many faults, one of so many tells as much. A block of a scan that reads has 32, which are few enough, of one that writes 512.
/// (Each that is recorded costs the program 0.5 us, and the watcher as much: NAS FT and MG on a file have 200,000 of them.)
const ONE_IN: u64 = 8;
const NEARLY_ALL: u32 = 60;
const LATEST_ALL: u64 = 0xff;
const MANY: u64 = 128;

/// What the kernel maps around a fault of pages that are there, bytes.
const MAPPED_AROUND: u64 = 64 * 1024;

/// No block has this number.
const NOWHERE: u64 = u64::MAX;

/// What follows from a fault.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Blocks to be asked for: the first, and how many.
    pub ask: Option<(u64, u64)>,
    /// It lies where blocks were asked for.
    pub served: bool,
    /// Pages of these that the program has come to with it.
    pub used: u32,
}

#[derive(Clone, Copy, Default, Debug)]
struct Drift {
    /// Blocks that were asked for, from and up to; and up to where they are to be, one with each fault. (Asked for at once,
    /// 8 MB kept the watcher from its other drifts for 10 ms where memory was short.)
    first: u64,
    end: u64,
    goal: u64,
    /// How many of them the goal moved on the last time.
    ahead: u64,
    /// Where the program was then, and its faults since.
    from: u64,
    faults: u32,
    /// The block of the latest fault, the faults in it so far, and those in the one before.
    block: u64,
    in_block: u64,
    in_latest: u64,
    /// What the kernel maps around the latest fault, by its number.
    around: u64,
    used: u64,
}

/// The drifts of one thread.
#[derive(Clone, Debug)]
pub struct Drifts {
    latest: [u64; LATEST],
    next: usize,
    /// Of the latest 64 faults, which lay in a drift.
    served: u64,
    drifts: [Drift; DRIFTS],
    clock: u64,
    one_in: u64,
}

impl Default for Drifts {
    fn default() -> Drifts {
        let drifts = [Drift::default(); DRIFTS];
        Drifts { latest: [NOWHERE; LATEST], next: 0, served: 0, drifts, clock: 0, one_in: 1 }
    }
}

impl Drifts {
    /// A fault at the address. `waits`: for the disk, and where no stride begins (a column of a matrix with rows of 64 KB begins
    /// with three waits in one block).
    pub fn fault(&mut self, address: u64, waits: bool, leave: Leave) -> Outcome {
        let Leave { blocks: room, dense } = leave;
        let block = address / BLOCK;
        self.clock += 1;
        let clock = self.clock;
        let drifts = self.drifts.iter().filter(|drift| drift.goes_on(clock)).count() as u64;
        let met = self.drifts.iter_mut().find(|drift| drift.is_met(block, clock));
        self.served = self.served << 1 | u64::from(met.is_some());
        if let Some(drift) = met {
            drift.used = clock;
            drift.count(block, self.one_in);
            // Three scans at once of arrays that are written, each 8 MB ahead in 128 MB, lost a tenth before they came there.
            let share = room.checked_div(drifts).map_or(room, |share| share.max(room.min(1)));
            let used = drift.come_to(address);
            return Outcome { ask: drift.go_on(block, Leave { blocks: share, dense }), served: true, used };
        }
        if !waits || room == 0 || !self.is_dense(block, dense) {
            return Outcome::default();
        }
        let oldest = self.drifts.iter_mut().min_by_key(|drift| drift.used);
        if let Some(drift) = oldest {
            let (first, end) = (block, block + 1);
            *drift = Drift { first, end, goal: end, ahead: 1, from: block, used: clock, ..Drift::default() };
        }
        Outcome { ask: Some((block, 1)), ..Outcome::default() }
    }

    /// Whether the program is in the midst of scans, so that a wait elsewhere is most likely another one's. (That some drift goes
    /// on says little: 1500 look-ups by an index of 90 MB meet one by chance each 64 faults, and sqlite was run ahead of 32 to
    /// 146 times for 195 to 312; on a disk of 1 ms it took 1.7 s for 1.3.)
    pub fn are_scans(&self) -> bool {
        self.served.count_ones() >= SCANS
    }

    /// Whether the address lies in a drift, so that all around it has been asked for: no short stride's step is wanted there. (NAS FT's scans
    /// of a file, taken for strides until the trial showed what they were, made 24,000 reads for 15,000; alone it makes 7,500.)
    pub fn holds(&self, address: u64) -> bool {
        self.drifts.iter().any(|drift| drift.is_met(address / BLOCK, self.clock + 1))
    }

    /// Of how many faults one is to be looked at from now on.
    pub fn one_in(&mut self) -> u64 {
        let all = self.served & LATEST_ALL == LATEST_ALL && self.served.count_ones() >= NEARLY_ALL;
        let mut drifts = self.drifts.iter().filter(|drift| drift.goes_on(self.clock));
        self.one_in = if all && drifts.all(|drift| drift.in_latest >= MANY) { ONE_IN } else { 1 };
        self.one_in
    }

    /// Speculation has foretold a place: waits of before it are no sign of a drift. (Look-ups by an index in sqlite wait in its
    /// 90 MB often enough to look like one; asked for in blocks, on a disk of 1 ms, they took twice as long.)
    pub fn foretold(&mut self) {
        (self.latest, self.served) = ([NOWHERE; LATEST], 0);
    }

    /// Whether the latest waits lay near this one, which is taken in.
    fn is_dense(&mut self, block: u64, dense: u32) -> bool {
        if let Some(place) = self.latest.get_mut(self.next) {
            *place = block;
        }
        self.next = (self.next + 1) % LATEST;
        self.latest.iter().filter(|&&one| one == block).count() >= dense as usize
    }
}

impl Drift {
    fn goes_on(&self, clock: u64) -> bool {
        self.used != 0 && clock - self.used <= FORGOTTEN
    }

    fn is_met(&self, block: u64, clock: u64) -> bool {
        // One that has not gone on yet may be chance.
        let beyond = if self.end > self.first + 1 { OVERTAKEN } else { 0 };
        self.goes_on(clock) && (self.first..self.end.saturating_add(beyond)).contains(&block)
    }

    /// Pages that the program has come to with a fault here: those that the kernel maps with it, unless it is there already.
    fn come_to(&mut self, address: u64) -> u32 {
        let around = address / MAPPED_AROUND;
        let is_new = core::mem::replace(&mut self.around, around) != around;
        if is_new { (MAPPED_AROUND / PAGE) as u32 } else { 0 }
    }

    /// Takes in a fault, which stands for so many.
    fn count(&mut self, block: u64, faults: u64) {
        if block != self.block {
            (self.block, self.in_latest, self.in_block) = (block, self.in_block, 0);
        }
        self.in_block += faults;
    }

    /// A fault in what was asked for: more is to be, when half of it or less is left.
    fn go_on(&mut self, block: u64, leave: Leave) -> Option<(u64, u64)> {
        self.faults = self.faults.saturating_add(1);
        let left = self.goal.saturating_sub(block + 1);
        let passed = block.saturating_sub(self.from).max(1);
        let ahead = (self.ahead * 2).min(AHEAD_MOST).min(leave.blocks);
        let is_dense = u64::from(self.faults) >= u64::from(leave.dense).saturating_mul(passed);
        if left * 2 <= self.ahead && is_dense && ahead > 0 {
            let goal = self.goal.max(block) + ahead;
            (self.goal, self.ahead, self.from, self.faults) = (goal, ahead, block, 0);
            self.first = self.first.max(block.saturating_sub(BEHIND));
        }
        // Where the program has come so far by itself, the rest of its block is next.
        let next = self.end.max(block);
        (next < self.goal).then(|| {
            self.end = next + 1;
            (next, 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// On a disk that answers many requests as soon as one.
    fn leave(blocks: u64) -> Leave {
        Leave { blocks, dense: DENSE }
    }

    #[test]
    fn a_block_is_worth_more_waits_where_it_takes_longer() {
        let dense = |one, all| {
            let mut cost = Cost::default();
            cost.waited(one);
            cost.measured(16, all);
            cost.dense()
        };
        assert_eq!(Cost::default().dense(), DENSE, "nothing is known");
        assert_eq!(dense(1_000_000, 1_300_000), DENSE, "many at once");
        assert_eq!(dense(128_000, 1_060_000), 4, "8 times as long as one");
        assert_eq!(dense(100_000, 1_600_000), 8, "one after the other");
        assert_eq!(dense(1_000_000, 30_000), DENSE, "holes");
        assert_eq!(dense(0, u64::MAX), DENSE, "nobody has waited");
        assert_eq!(dense(u64::MAX, 0), DENSE);
        assert_eq!(dense(WAIT_LEAST, u64::MAX), DENSE_MOST);
    }

    #[test]
    fn before_a_block_was_measured_the_waits_tell_what_it_is_worth() {
        let guessed = |waits: &[u64]| {
            let mut cost = Cost::default();
            waits.iter().for_each(|&us| cost.waited(us * 1000));
            cost
        };
        assert_eq!(guessed(&[130, 9000, 170, 160]).dense(), 6, "a quick disk, and once the program was busy");
        assert_eq!(
            guessed(&[1100, 20, 1200, 1050]).dense(),
            DENSE,
            "a cloud disk, and once it was on its way"
        );
        assert_eq!(guessed(&[12_000]).dense(), DENSE);
        assert_eq!(guessed(&[49; 100]).dense(), DENSE, "holes");
        assert_eq!(guessed(&[50; 100]).dense(), 6);
        let mut cost = guessed(&[130]);
        cost.measured(16, 140_000);
        assert_eq!(cost.dense(), DENSE, "a measurement counts more");
    }

    #[test]
    fn of_several_measurements_of_a_disk_the_median_counts() {
        let mut cost = Cost::default();
        cost.waited(128_000);
        for all in [16_000_000, 1_060_000, 1_100_000, 9_000_000] {
            assert_eq!(cost.is_known(), all == 9_000_000);
            cost.measured(16, all);
        }
        assert_eq!(cost.dense(), 4);
    }

    #[test]
    fn where_a_block_takes_long_it_is_asked_for_after_more_waits() {
        let asked_after = |dense| {
            let mut drifts = Drifts::default();
            (1..).find(|n| drifts.fault((1 << 40) + n * 4096, true, Leave { blocks: 4, dense }).ask.is_some())
        };
        assert_eq!(asked_after(3), Some(3));
        assert_eq!(asked_after(6), Some(6));
    }

    /// A program, and the blocks that were brought in for it.
    #[derive(Default)]
    struct Made {
        drifts: Drifts,
        brought: HashSet<u64>,
        waits: u32,
    }

    impl Made {
        fn touch(&mut self, address: u64) {
            let waits = !self.brought.contains(&(address / BLOCK));
            self.waits += u32::from(waits);
            if let Some((first, count)) = self.drifts.fault(address, waits, leave(AHEAD_MOST)).ask {
                self.brought.extend(first..first + count);
            }
        }
    }

    #[test]
    fn of_a_scan_that_writes_few_faults_are_looked_at() {
        let looked = |pages: u64| {
            let mut made = Made::default();
            let (mut looked, mut one_in, mut waits) = (0, 1, 0);
            for number in 0..20_000 {
                let address = (1 << 40) + number * pages * 4096;
                if number % one_in == 0 {
                    made.touch(address);
                    one_in = made.drifts.one_in();
                    looked += 1;
                } else {
                    waits += u32::from(!made.brought.contains(&(address / BLOCK)));
                }
            }
            assert!(made.waits + waits < 8, "{} {waits}", made.waits);
            made.touch(1 << 50);
            assert_eq!(made.drifts.one_in(), 1, "something else begins");
            looked
        };
        assert_eq!(looked(16), 20_000, "the kernel maps 16 pages that are read");
        assert!(looked(1) < 20_000 / ONE_IN + 1500, "{}", looked(1));
    }

    /// Steps of 1 to 400 KB without order.
    fn step(number: u64) -> u64 {
        1024 + number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (400 << 10)
    }

    #[test]
    fn a_scan_with_gaps_waits_at_its_beginning_only() {
        let mut made = Made::default();
        let mut at = 1 << 40;
        for number in 0..2000 {
            at += step(number);
            made.touch(at);
        }
        assert!(made.waits < 20, "{}", made.waits);
    }

    #[test]
    fn the_next_pass_is_asked_for_like_the_first() {
        let mut made = Made::default();
        let mut waits = Vec::new();
        for _ in 0..3 {
            made.brought.clear();
            made.waits = 0;
            (0..8000).for_each(|page| made.touch((1 << 40) + page * 4096));
            waits.push(made.waits);
        }
        assert!(waits.iter().all(|&waits| waits < 5), "{waits:?}");
    }

    #[test]
    fn a_program_that_overtakes_its_drift_is_still_in_it() {
        let mut drifts = Drifts::default();
        // Of eight pages each waits, so slow is the disk; nothing is left out.
        let asked: Vec<(u64, u64)> = (0..4096)
            .filter_map(|step| drifts.fault((1 << 40) + step * 2 * 4096, true, leave(1)).ask)
            .map(|(first, count)| (first - (1 << 40) / BLOCK, count))
            .collect();
        assert!(asked.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1), "{asked:?}");
        // Two blocks farther at once.
        let last = asked.last().unwrap().0;
        let jump = ((1 << 40) / BLOCK + last + 2) * BLOCK;
        assert_eq!(
            drifts.fault(jump, true, leave(1)).ask,
            Some((jump / BLOCK, 1)),
            "the rest of where it is"
        );
        assert_eq!(drifts.fault(jump + 20 * BLOCK, true, leave(1)).ask, None, "that is somewhere else");
    }

    #[test]
    fn what_is_asked_for_is_wanted() {
        let mut made = Made::default();
        let mut touched = HashSet::new();
        let mut at = 1 << 40;
        for number in 0..2000 {
            at += step(number);
            touched.insert(at / BLOCK);
            made.touch(at);
        }
        assert!(made.brought.difference(&touched).count() <= 2 * AHEAD_MOST as usize);
    }

    #[test]
    fn places_without_order_ask_for_next_to_nothing() {
        let mut made = Made::default();
        let mut state = 1u64;
        for _ in 0..4000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            made.touch((1 << 40) + (state >> 34));
        }
        assert!(made.brought.len() < 24, "{}", made.brought.len());
    }

    #[test]
    fn rare_places_in_what_was_asked_for_lead_no_further() {
        let mut made = Made::default();
        (0..3).for_each(|page| made.touch(page * 4096));
        assert_eq!(made.brought.len(), 1);
        // One fault in each block is what a stride of 2 MB makes.
        (1..50).for_each(|block| made.touch(block * BLOCK));
        assert!(made.brought.len() <= 3, "{:?}", made.brought);
    }

    #[test]
    fn where_speculation_foretells_nothing_is_asked_for_in_blocks() {
        let mut drifts = Drifts::default();
        for page in 0..1000 {
            assert!(drifts.fault(page * 4096, true, leave(AHEAD_MOST)).ask.is_none(), "{page}");
            if page % 2 == 1 {
                drifts.foretold();
            }
        }
    }

    #[test]
    fn scans_are_seen_as_such_and_chance_is_not() {
        // Three arrays, of which the kernel maps 64 KB at a time.
        let mut made = Made::default();
        let seen = (0..96).filter(|number| {
            made.touch(((number % 3) << 40) + number / 3 * 65536);
            made.drifts.are_scans()
        });
        assert!(seen.count() > 32);
        made.drifts.foretold();
        assert!(!made.drifts.are_scans(), "speculation says otherwise");

        // Look-ups by an index of 90 MB in a table of 1 GB.
        let mut made = Made::default();
        let mut state = 1u64;
        let amid = (0..3000).filter(|number| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (start, length) = if number % 2 == 0 { (0, 90 << 20) } else { (1 << 40, 1 << 30) };
            made.touch(start + (state >> 20) % length);
            made.drifts.are_scans()
        });
        assert_eq!(amid.count(), 0);
    }

    #[test]
    fn without_room_nothing_is_asked_for() {
        let mut drifts = Drifts::default();
        assert!((0..100).all(|page| drifts.fault(page * 4096, true, leave(0)).ask.is_none()));
    }

    #[test]
    fn no_more_is_ahead_than_there_is_room_for() {
        let mut drifts = Drifts::default();
        for number in 0..100_000 {
            let at = number * 1000;
            if let Some((first, count)) = drifts.fault(at, true, leave(2)).ask {
                assert!(first + count <= at / BLOCK + 4 && count <= 2, "{at}: {first} {count}");
            }
        }
    }

    #[test]
    fn drifts_that_go_on_together_share_the_room() {
        // How far ahead of the program it is asked for at most, in each of so many arrays that are gone through together.
        let farthest = |arrays: u64, room: u64| {
            let mut drifts = Drifts::default();
            let mut farthest = 0;
            for place in 0..100_000 {
                for array in 0..arrays {
                    let at = (array << 40) + place * 1000;
                    if let Some((first, count)) = drifts.fault(at, true, leave(room)).ask {
                        farthest = farthest.max(first + count - 1 - at / BLOCK);
                    }
                }
            }
            farthest
        };
        let (alone, of_two, of_four) = (farthest(1, 8), farthest(2, 4), farthest(4, 4));
        assert!(of_two < alone && of_four < of_two && of_four > 0, "{alone} {of_two} {of_four}");
    }

    #[test]
    fn the_end_of_all_addresses_is_survived() {
        let mut drifts = Drifts::default();
        assert!(
            (0..100).filter_map(|page| drifts.fault(u64::MAX - page, true, leave(AHEAD_MOST)).ask).count()
                > 0
        );
    }
}
