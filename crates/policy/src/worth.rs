//! Whether posting pays: "never slower" as an experiment.
//!
//! Most programs either follow their speculation for long stretches (no question) or gain by many short
//! runs, in layers. But a program whose next place depends on the data just read gets nothing from a post,
//! and on a disk that answers in 35 us the post, the speculator's processor time and its wrong requests
//! made a pure chain of reads 2.3 times slower. No property of the reads tells the one from the other
//! (half of an "every second read depends" program's time is saved on a slow disk, and lost on a fast one),
//! so it is tried out: while few reads are foretold for each post, stretches of reads with posting and
//! stretches without it alternate, the wall time of both is compared, and the better way is kept for a
//! while. All is counted in reads that the agent looked at, and in ns of wall time.
//!
//! While a verdict against posting stands there is little to look at either: what a read is found to be changes nothing.
//! So the agent *looks away* most of the time. What passes unseen is a part of the verdict's length, as if it were reads on files; the next
//! experiment comes as soon as it would, or sooner where much of it was not. How long a stall is must be known all the time, since that ends a verdict too; so
//! between two times one stall is looked at from its beginning to the call behind it.

use crate::depth;
use crate::toll::Toll;

/// Foretold reads for each post from which on there is nothing to ask. GNU ld has 5 and sqlite 35, both gain
/// on a slow disk; a chain has 0.2, python with a torn mirror 0.1.
const CLEARLY: u32 = 8;

/// The running mean of foretold reads for each post is kept in sixteenths; each post weighs an eighth.
const SIXTEENTHS: u32 = 16;
const WEIGHT: u32 = 8;
/// Where the mean starts: some 16 posts without any foretold read make it low.
const BENEFIT_OF_THE_DOUBT: u32 = 64 * SIXTEENTHS;

/// Stalls longer than this, ns, are not experimented with, unless a sync is much longer: a post costs a fraction of one, and
/// programs whose reads differ from each other made the comparison wrong too often (GNU ld and sqlite on a disk of 1 ms
/// lost half and two thirds of their gain). Where a sync takes several times as long, most starts are torn and
/// all are dear: python importing numpy and pandas on that disk, syncs of 2.8 ms, took 1.19 s with 200 posts, 1.09 alone.
/// (Once as long is not enough: GNU ld, syncs of 1.3 ms, gained 1.8 times instead of 2.35.)
pub const LONG_STALL: u64 = 150_000;
const LONG_SYNC: u64 = 3;

/// On a disk that has arms to move ([`depth::is_slow`]) requests in vain stand in line before the program's own. So there long stalls are
/// experimented with as well: where hardly anything is foretold (less for each post than the first figure, in sixteenths), and where little is
/// (the second; ld has five reads there) and stalls have become so much longer, in percent, than the least that they were lately.
/// Of 300 reads on one spinning disk, 3.9 s alone, a chain took 20.8 s and one with every second read dependent, one read foretold for each
/// post, 30.7; on four such disks 7.2 and 5.6 for 4.0. (With the second figure alone PostgreSQL's look-ups on four disks, which come upon a few posts in
/// vain at times, took 21 s instead of 15.)
/// Where the kernel does not tell what is cached ([`crate::untold`]) each speculation begins with blanks, and nothing comes in layers: there
/// stalls of a middling disk are experimented with too, below the first figure. (1500 look-ups by an index in sqlite, an overlay on
/// the 1 ms disk: 0.2 reads foretold for each of 3400 posts, 3.74 s for 3.51 alone.)
const NOTHING: u32 = SIXTEENTHS / 2;
const LITTLE: u32 = 2 * SIXTEENTHS;
const LENGTHENED: u64 = 150;
/// Of the least stall one part in so many is forgotten with each read: a disk that has become three times as slow
/// is one after 300 reads.
const FORGOTTEN: u64 = 256;

/// Reads of a stretch. A post's cost is some 40 us on a fast disk: with 8 reads it stands out of the noise
/// of a single pair.
const STRETCH: u32 = 8;
/// Reads at its beginning that are not counted where requests of the stretch before may stand in line.
const SETTLES: u32 = 2;
/// Pairs of stretches after which a clear difference decides, and after which any does.
const PAIRS_LEAST: u32 = 2;
const PAIRS_MOST: u32 = 16;
/// What is clear, in percent of the better way's time.
const CLEAR: u64 = 150;

/// Foretold reads for each post below which posting has to prove itself, in sixteenths: it is kept only if it took
/// less than this part of the time without, in percent, and the experiment ends early where it does not look
/// like it. (With any difference for proof, noise kept a chain's posts up for one verdict in three.)
const HARDLY_ANY: u32 = SIXTEENTHS;
const PROOF: u64 = 90;
const PAIRS_WITHOUT_PROMISE: u32 = 4;
/// Where a verdict against posting is only looked at again, so many are enough.
const PAIRS_TO_CONFIRM: u32 = 2;
/// And where requests stand in line: a stretch with posts is dear there, and ended as soon as it is.
const PAIRS_TO_CONFIRM_IN_LINE: u32 = 1;

/// Reads for which a verdict stands at first; doubles each time that it is confirmed. At most 2048, since
/// programs change: 2 s on a cloud disk; an experiment's 16 reads with posts are less than 1% of them.
const STANDS_FIRST: u32 = 512;
const STANDS_MOST: u32 = 2048;

/// Where each wait from the first on had requests of ours before it nobody knows what one without takes. After so many posts
/// so many stalls in a row are left alone: the last of them have nothing before them.
const UNKNOWN_MOST: u8 = 8;
const LEFT_ALONE: u8 = 3;

/// Calls that may pass unseen at a time while a verdict against posting stands. Looking at one costs some 2 us, passing a stub
/// 2 ns. A disk that has become slow is noticed after some hundred calls (`hold` comes to believe it over five or so stalls).
const UNSEEN: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Enough is foretold, or nobody knows yet: post.
    Unasked,
    /// A stretch of the experiment.
    Stretch { posting: bool, left: u32, pairs: u32 },
    /// The verdict, for this many more reads.
    Verdict { posting: bool, left: u32 },
}

/// How a disk answers, and so where there is a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pace {
    /// A post costs as much as a stall, or a sync several.
    Quick,
    /// A post costs a fraction of a stall, and what is in vain costs nothing unless it stands in line.
    Middling,
    /// What is in vain stands in line.
    Arms,
}

impl Pace {
    fn of(stall: u64, sync: u64) -> Pace {
        if depth::is_slow(stall) {
            Pace::Arms
        } else if stall > LONG_STALL && sync <= stall.saturating_mul(LONG_SYNC) {
            Pace::Middling
        } else {
            Pace::Quick
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Worth {
    phase: Phase,
    /// Mean of foretold reads for each post, in sixteenths.
    foretold: u32,
    /// Foretold since the latest post.
    since_post: u32,
    pace: Pace,
    /// The latest post was at a read of which the kernel does not tell whether it waits.
    untold: bool,
    /// What a stall takes at present, and the least that it took lately at this pace, ns.
    stall: u64,
    least_stall: u64,
    /// When the present stretch began, ns.
    began: u64,
    /// Wall time of the stretches without and with posts, ns.
    without: u64,
    with: u64,
    /// The latest verdict and how long it stood.
    latest: Option<bool>,
    stands: u32,
    /// Wall time of the latest stretch without, ns.
    latest_without: u64,
    toll: Toll,
    /// Posts and stalls left alone while no wait was known that had nothing of ours before it.
    unknown: u8,
    left_alone: u8,
    /// The present stall is one of these.
    leaves_alone: bool,
}

impl Default for Worth {
    fn default() -> Self {
        Self {
            phase: Phase::Unasked,
            foretold: BENEFIT_OF_THE_DOUBT,
            since_post: 0,
            pace: Pace::Quick,
            untold: false,
            stall: 0,
            least_stall: 0,
            began: 0,
            without: 0,
            with: 0,
            latest: None,
            stands: STANDS_FIRST,
            latest_without: 0,
            toll: Toll::new(),
            unknown: 0,
            left_alone: 0,
            leaves_alone: false,
        }
    }
}

impl Worth {
    /// A stall may be posted.
    pub fn posting(&self) -> bool {
        match self.phase {
            Phase::Unasked => !self.leaves_alone,
            Phase::Stretch { posting, .. } | Phase::Verdict { posting, .. } => posting,
        }
    }

    /// The program is going to wait, while speculation has `done` so much: [`Toll::waits`].
    pub fn waits(&mut self, done: u64) {
        self.toll.waits(done);
        self.leaves_alone =
            self.toll.clean().is_none() && self.unknown >= UNKNOWN_MOST && self.left_alone < LEFT_ALONE;
    }

    /// It has waited for so long: [`Toll::waited`].
    pub fn waited(&mut self, ns: u64, is_whole: bool, done: u64) {
        self.left_alone += u8::from(core::mem::take(&mut self.leaves_alone) && is_whole);
        self.toll.waited(ns, is_whole, done);
    }

    /// It need not wait: [`Toll::spared`].
    pub fn spared(&mut self) {
        self.toll.spared();
    }

    /// What is asked for in vain stands in line on this disk.
    pub fn is_crowded(&self) -> bool {
        self.pace == Pace::Middling && self.toll.is_crowded()
    }

    /// How many calls may pass unseen from here, where a stall has just been seen to its end. They are thought to pass.
    /// `stall`: what a stall takes at present, ns.
    pub fn look_away(&mut self, stall: u64) -> u32 {
        match &mut self.phase {
            Phase::Verdict { posting: false, left } if stall <= LONG_STALL => {
                let unseen = UNSEEN.min(left.saturating_sub(1));
                *left -= unseen;
                unseen
            }
            _ => 0,
        }
    }

    /// `untold`: the kernel does not tell whether this read waits.
    pub fn posted(&mut self, untold: bool) {
        self.untold = untold;
        self.unknown = self.unknown.saturating_add(1);
        self.leaves_alone = false;
        self.foretold = self.foretold - self.foretold / WEIGHT + self.since_post * SIXTEENTHS / WEIGHT;
        self.since_post = 0;
    }

    /// The agent looked at a read. `stall`: what a stall takes at present, `sync`: what the latest sync took, ns.
    /// `now` tells the time in ns; it is asked only where a stretch ends.
    pub fn read(&mut self, foretold: bool, stall: u64, sync: u64, now: impl FnOnce() -> u64) {
        if foretold {
            // What is far above clear says no more.
            self.since_post = (self.since_post + 1).min(1 << 16);
        }
        self.keeps_pace(stall, sync);
        // Whatever was found out before: this speculation is being followed.
        if self.since_post >= CLEARLY && self.phase != Phase::Unasked && !self.is_dear() {
            self.foretold = self.foretold.max(2 * CLEARLY * SIXTEENTHS);
            self.phase = Phase::Unasked;
        }
        if let Phase::Stretch { posting, left: left @ 2.., pairs } = self.phase
            && self.is_in_line()
        {
            return self.goes_on_in_line(posting, left, pairs, foretold, now());
        }
        if matches!(self.phase, Phase::Verdict { posting: true, .. }) && self.is_dear() {
            return self.begin_experiment(now());
        }
        match &mut self.phase {
            Phase::Unasked => {
                if self.foretold < self.enough() {
                    self.begin_experiment(now());
                }
            }
            Phase::Stretch { left, .. } | Phase::Verdict { left, .. } if *left > 1 => *left -= 1,
            &mut Phase::Stretch { posting, pairs, .. } => self.end_stretch(posting, pairs, now()),
            &mut Phase::Verdict { posting, .. } => self.end_verdict(posting, now),
        }
    }

    fn keeps_pace(&mut self, stall: u64, sync: u64) {
        // What stands in line behind requests of ours is no slow disk.
        let pace = Pace::of(stall.min(self.toll.clean().unwrap_or(stall)), sync);
        if pace != self.pace {
            // What was found out was about another disk.
            self.pace = pace;
            self.phase = Phase::Unasked;
            self.least_stall = stall;
        }
        self.stall = stall;
        self.least_stall = stall.min(self.least_stall.saturating_add(self.least_stall / FORGOTTEN + 1));
    }

    /// Foretold reads for each post, in sixteenths, from which on there is nothing to ask.
    fn enough(&self) -> u32 {
        match self.pace {
            Pace::Quick => CLEARLY * SIXTEENTHS,
            Pace::Middling | Pace::Arms if self.toll.is_too_dear() => u32::MAX,
            Pace::Middling if self.untold => NOTHING,
            Pace::Middling => 0,
            Pace::Arms if self.stall > self.least_stall.saturating_mul(LENGTHENED) / 100 => LITTLE,
            Pace::Arms => NOTHING,
        }
    }

    fn pairs_to_confirm(&self) -> u32 {
        let stands_in_line = self.pace == Pace::Arms || self.is_crowded();
        if stands_in_line { PAIRS_TO_CONFIRM_IN_LINE } else { PAIRS_TO_CONFIRM }
    }

    fn is_dear(&self) -> bool {
        self.pace != Pace::Quick && self.toll.is_too_dear()
    }

    /// Requests in vain may stand in line: those of one stretch still do when the next begins.
    fn is_in_line(&self) -> bool {
        self.pace != Pace::Quick
    }

    /// A read of a stretch that is not to be its last one, unless it has taken so long that the rest has nothing to add.
    fn goes_on_in_line(&mut self, posting: bool, left: u32, pairs: u32, foretold: bool, now: u64) {
        if left <= STRETCH && posting {
            let most = self.latest_without.saturating_mul(CLEAR) / 100;
            if now.saturating_sub(self.began) > most {
                return self.end_stretch(posting, pairs, now);
            }
        }
        let still_follows = !posting && foretold && left > STRETCH;
        self.phase = Phase::Stretch { posting, left: if still_follows { left } else { left - 1 }, pairs };
        if left > STRETCH {
            self.began = now;
        }
    }

    fn begin_experiment(&mut self, now: u64) {
        self.without = 0;
        self.with = 0;
        self.begin_stretch(false, 0, now);
    }

    fn begin_stretch(&mut self, posting: bool, pairs: u32, now: u64) {
        self.began = now;
        let left = if self.is_in_line() { SETTLES + STRETCH } else { STRETCH };
        self.phase = Phase::Stretch { posting, left, pairs };
    }

    fn end_stretch(&mut self, posting: bool, pairs: u32, now: u64) {
        let took = now.saturating_sub(self.began);
        if !posting {
            self.without += took;
            self.latest_without = took;
            return self.begin_stretch(true, pairs, now);
        }
        self.with += took;
        let pairs = pairs + 1;
        let (less, more) = (self.with.min(self.without), self.with.max(self.without));
        let clear = pairs >= PAIRS_LEAST && more >= less.saturating_mul(CLEAR) / 100;
        let proof = if self.foretold < HARDLY_ANY || self.is_in_line() { PROOF } else { 100 };
        let pays = self.with < self.without.saturating_mul(proof) / 100;
        let enough = if self.latest == Some(false) { self.pairs_to_confirm() } else { PAIRS_WITHOUT_PROMISE };
        let futile = proof < 100 && pairs >= enough && !pays;
        if clear || futile || pairs >= PAIRS_MOST {
            self.decide(pays);
        } else {
            self.begin_stretch(false, pairs, now);
        }
    }

    fn decide(&mut self, posting: bool) {
        self.stands =
            if self.latest == Some(posting) { (self.stands * 2).min(STANDS_MOST) } else { STANDS_FIRST };
        self.latest = Some(posting);
        self.toll.answered(posting);
        self.phase = Phase::Verdict { posting, left: self.stands };
    }

    fn end_verdict(&mut self, posting: bool, now: impl FnOnce() -> u64) {
        if posting && self.foretold >= self.enough() {
            self.phase = Phase::Unasked;
        } else {
            self.begin_experiment(now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program all of whose reads stall: `with` and `without` posts a read takes so many ns. Returns the
    /// reads with posts and all ns.
    fn run(worth: &mut Worth, reads: u32, with: u64, without: u64, foretold: bool) -> (u32, u64) {
        let mut now = 1;
        let mut posts = 0;
        for _ in 0..reads {
            let posting = worth.posting();
            if posting {
                posts += 1;
                worth.posted(false);
            }
            now += if posting { with } else { without };
            worth.read(foretold && posting, 34_000, 10_000, || now);
        }
        (posts, now)
    }

    #[test]
    fn a_chain_on_a_fast_disk_loses_less_than_two_percent() {
        let (posts, took) = run(&mut Worth::default(), 20_000, 78_000, 34_000, false);
        assert!(posts < 250, "{posts}");
        assert!(took < 20_000 * 34_000 / 100 * 102, "{took}");
    }

    /// A post that costs a quarter of a read is not clearly dear, and yet no reason to look at it for long.
    #[test]
    fn a_verdict_against_posting_is_confirmed_cheaply() {
        let (posts, _) = run(&mut Worth::default(), 20_000, 43_000, 34_000, false);
        // 17 until it is asked, four pairs for the first verdict, two for each of the eleven that confirm it.
        assert!(posts <= 17 + 4 * 8 + 11 * 16, "{posts}");
    }

    /// Like `run`, by an agent that looks away wherever it may. Returns the posts and the calls that it looked at.
    fn run_looking_away(worth: &mut Worth, reads: u32, with: u64, without: u64) -> (u32, u32) {
        let (mut now, mut posts, mut seen, mut unseen) = (1, 0, 0, 0);
        for _ in 0..reads {
            let posting = worth.posting();
            if unseen > 0 {
                assert!(!posting, "it looks away where it should post");
                unseen -= 1;
                now += without;
                continue;
            }
            seen += 1;
            if posting {
                posts += 1;
                worth.posted(false);
            }
            now += if posting { with } else { without };
            worth.read(false, 34_000, 10_000, || now);
            unseen = worth.look_away(34_000);
        }
        (posts, seen)
    }

    /// A disk that serves one request at a time, `service` ns each; each post asks for `wasted` in vain. `foretold`: the read
    /// behind each post is. Returns the posts and all ns.
    fn run_in_line(worth: &mut Worth, reads: u32, service: u64, wasted: u64, foretold: bool) -> (u32, u64) {
        let (mut now, mut posts, mut stall) = (1, 0, service);
        let mut posted = false;
        for _ in 0..reads {
            let known = foretold && posted;
            let takes = service + if posted { wasted * service } else { 0 };
            posted = worth.posting() && !known;
            if posted {
                posts += 1;
                worth.posted(false);
            }
            stall = stall - stall / 8 + takes / 8;
            now += takes;
            worth.read(known, stall, 200_000, || now);
        }
        (posts, now)
    }

    /// Four arms, say: what is in vain lengthens a stall by a tenth, which shows in none of them.
    #[test]
    fn where_nothing_is_foretold_posting_is_tried_out_too() {
        let posts = posts(20_000, (13_000_000, 200_000), 14_300_000, 13_000_000);
        assert!(posts < 300, "{posts}");
    }

    #[test]
    fn where_requests_stand_in_line_posting_is_tried_out() {
        for foretold in [false, true] {
            let (posts, took) = run_in_line(&mut Worth::default(), 20_000, 13_000_000, 2, foretold);
            assert!(posts < 400, "{posts}");
            assert!(took < 20_000 * 13_000_000 / 100 * 104, "{took}");
        }
    }

    /// A volume that answers after `latency` ns, one request each `spaced` ns at most; each post asks for `wasted` in vain, and with `foretold`
    /// for the read behind it. Returns the posts and all ns.
    fn run_capped(reads: u32, (latency, spaced): (u64, u64), wasted: u64, foretold: bool) -> (u32, u64) {
        let mut worth = Worth::default();
        let (mut now, mut posts, mut done, mut line) = (1u64, 0, 0, 0u64);
        let (mut stall, mut is_known) = (latency, false);
        for _ in 0..reads {
            let known = core::mem::take(&mut is_known);
            worth.read(known, stall, 200_000, || now);
            if known {
                // It was asked for together with the one before.
                worth.spared();
                continue;
            }
            worth.waits(done);
            let takes = latency.max((line + 1) * spaced);
            line = 0;
            if worth.posting() {
                posts += 1;
                worth.posted(false);
                // Where it is crowded no more is asked for in doubt.
                let wasted = if worth.is_crowded() { wasted.min(2) } else { wasted };
                (line, is_known) = (wasted, foretold);
                done += wasted + u64::from(foretold);
            }
            now += takes;
            stall = stall - stall / 8 + takes / 8;
            // What a post asks for counts from the wait on.
            worth.waited(takes, true, done);
        }
        (posts, now)
    }

    #[test]
    fn on_a_capped_volume_what_is_in_vain_is_given_up_soon() {
        for (wasted, foretold) in [(4, false), (16, false), (8, true), (16, true)] {
            let reads = 4_000;
            let (posts, took) = run_capped(reads, (700_000, 333_333), wasted, foretold);
            let alone = u64::from(reads) * 700_000;
            assert!(
                took <= alone / 100 * 103 + 2 * wasted * 333_333,
                "{wasted} {foretold} {posts} {took} {alone}"
            );
        }
    }

    #[test]
    fn where_what_is_in_vain_costs_nothing_every_stall_is_posted() {
        let (posts, _) = run_capped(4_000, (1_000_000, 15_000), 16, false);
        let left_alone = u32::from(LEFT_ALONE);
        assert_eq!(posts, 4_000 - left_alone);
        let (posts, _) = run_capped(4_000, (1_000_000, 15_000), 16, true);
        assert!((2_000 - left_alone..=2_000).contains(&posts), "{posts}");
    }

    /// One wasted request with each useful one: two stand in line, and half of the waits are spared.
    #[test]
    fn what_pays_on_a_capped_volume_is_kept() {
        let (posts, took) = run_capped(4_000, (700_000, 333_333), 1, true);
        assert!(posts > 1_900 && took < 4_000 * 700_000 / 100 * 55, "{posts} {took}");
    }

    #[test]
    fn while_a_verdict_stands_most_calls_pass_unseen() {
        let (_, seen) = run_looking_away(&mut Worth::default(), 20_000, 78_000, 34_000);
        assert!(seen < 20_000 / 8, "{seen}");
    }

    /// Who looks away tries posting out as often as who does not.
    #[test]
    fn what_passes_unseen_is_a_part_of_the_verdict() {
        let (looked_at, _) = run(&mut Worth::default(), 20_000, 78_000, 34_000, false);
        let (posts, _) = run_looking_away(&mut Worth::default(), 20_000, 78_000, 34_000);
        assert_eq!(posts, looked_at);
    }

    #[test]
    fn nobody_looks_away_but_from_short_stalls_under_a_verdict_against_posting() {
        let mut worth = Worth::default();
        assert_eq!(worth.look_away(34_000), 0);
        let mut now = 1;
        while worth.latest.is_none() {
            assert_eq!(worth.look_away(34_000), 0);
            let posting = worth.posting();
            if posting {
                worth.posted(false);
            }
            now += if posting { 78_000 } else { 34_000 };
            worth.read(false, 34_000, 10_000, || now);
        }
        assert_eq!(worth.latest, Some(false));
        assert_eq!(worth.look_away(LONG_STALL + 1), 0);
        assert_eq!(worth.look_away(LONG_STALL), UNSEEN);
        let mut kept = Worth::default();
        run(&mut kept, 400, 20_000, 34_000, false);
        assert_eq!(kept.latest, Some(true));
        assert_eq!(kept.look_away(34_000), 0);
    }

    #[test]
    fn short_runs_that_pay_are_kept() {
        let (posts, _) = run(&mut Worth::default(), 20_000, 500_000, 1_000_000, true);
        assert!(posts > 18_000, "{posts}");
    }

    #[test]
    fn long_stalls_are_always_posted() {
        let mut worth = Worth::default();
        for _ in 0..10_000 {
            worth.posted(false);
            worth.read(false, 1_000_000, 200_000, || panic!("no experiment"));
            assert!(worth.posting());
        }
    }

    #[test]
    fn but_not_where_the_kernel_does_not_tell_and_nothing_is_foretold() {
        let (mut worth, mut now, mut posts) = (Worth::default(), 1, 0);
        for _ in 0..4_000 {
            let posting = worth.posting();
            if posting {
                posts += 1;
                worth.posted(true);
            }
            now += if posting { 1_070_000 } else { 1_000_000 };
            worth.read(false, 1_000_000, 200_000, || now);
        }
        assert!(posts < 150, "{posts}");
    }

    #[test]
    fn another_disk_is_another_question() {
        let mut worth = Worth::default();
        run_in_line(&mut worth, 1000, 13_000_000, 2, false);
        assert!(!worth.posting());
        // Reads of five for each post, as ld's, on a disk that nobody stands in line for.
        for _ in 0..1000 {
            worth.posted(false);
            for _ in 0..5 {
                worth.read(true, 1_000_000, 200_000, || panic!("no experiment"));
                assert!(worth.posting());
            }
        }
        // And back on the slow one nothing of its verdict is left to these.
        for _ in 0..1000 {
            worth.posted(false);
            for _ in 0..5 {
                worth.read(true, 13_000_000, 200_000, || panic!("no experiment"));
            }
        }
    }

    /// The posts of a program nothing of which is foretold, by stalls and syncs of so many ns; a read takes so many with and without.
    fn posts(reads: u32, (stall, sync): (u64, u64), with: u64, without: u64) -> u32 {
        let (mut worth, mut now, mut posts) = (Worth::default(), 1, 0);
        for _ in 0..reads {
            let posting = worth.posting();
            if posting {
                posts += 1;
                worth.posted(false);
            }
            now += if posting { with } else { without };
            worth.read(false, stall, sync, || now);
        }
        posts
    }

    #[test]
    fn long_stalls_with_longer_syncs_are_tried_out() {
        let posts = posts(4_000, (1_000_000, 3_500_000), 1_200_000, 1_000_000);
        assert!(posts < 150, "{posts}");
    }

    #[test]
    fn what_is_foretold_clearly_is_not_asked() {
        let mut worth = Worth::default();
        for _ in 0..10_000 {
            worth.posted(false);
            for _ in 0..20 {
                worth.read(true, 34_000, 10_000, || panic!("no experiment"));
            }
            assert!(worth.posting());
        }
    }

    /// A post that was paid for otherwise (an investment) may find a future that the experiment has given up.
    #[test]
    fn what_is_followed_ends_a_verdict() {
        let mut worth = Worth::default();
        run(&mut worth, 2_000, 78_000, 34_000, false);
        assert!(!worth.posting());
        worth.posted(false);
        for _ in 0..CLEARLY {
            worth.read(true, 34_000, 10_000, || 1);
        }
        assert!(worth.posting());
        // And stays so while it is followed.
        for _ in 0..3 {
            worth.posted(false);
            for _ in 0..20 {
                worth.read(true, 34_000, 10_000, || panic!("no experiment"));
            }
        }
    }

    #[test]
    fn a_program_that_changes_is_found_out() {
        let mut worth = Worth::default();
        run(&mut worth, 20_000, 78_000, 34_000, false);
        let (posts, _) = run(&mut worth, 3_000, 500_000, 1_000_000, true);
        assert!(posts > 500, "{posts}");
    }
}
