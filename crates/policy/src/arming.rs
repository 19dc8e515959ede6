//! When a program's page faults are watched.
//!
//! Watching a fault costs the program 0.2 to 0.6 us, 1.3 with its registers; a warm one takes 3. So they are watched
//! (*armed*) only after some faults that waited for the disk, which the kernel counts at no cost for all the
//! others, and only while that leads to pages asked for that the program then reaches. What does not pay is
//! tried again after a pause, which doubles.

/// Faults watched without any use after which watching ends: 1 ms of the program's time at most.
const PATIENCE: u32 = 2000;

/// Where a thread is found waiting once in so many faults there is much to gain: then so many times as many are watched.
/// (Of a gather from a file of which 90% are cached one fault in five waits, each as long as a hundred others take; it takes
/// speculation 30 ms until it is ahead, and after 2000 faults watching had ended, for 64 ms: 0.32 s for 0.29, 0.36 alone.)
const ONE_WAITS: u32 = 16;
const PROMISING: u32 = 3;

/// Where none of them waits for the disk, and nothing was of use so far, they count so many times: a program whose mapped
/// files are cached has been watched for a quarter of a ms. (At 2000 it took a warm gather 2 ms longer. Counted so
/// between two useful pages as well, it had a gather from a file of which 90% are cached watched for half of its faults.)
const NONE_WAITS: u32 = 8;

/// Without a fault for so long, ns, there is nothing to watch: several times what a slow disk takes.
const QUIET: u64 = 50_000_000;

/// The pause, ns: with 1 ms of watching in each, the first second costs 0.8%, each later one 0.1%. At least four
/// times what the watching took: 2000 faults that wait are 0.1 to 2 s.
const PAUSE_FIRST: u64 = 5_000_000;
const PAUSE_TIMES: u64 = 4;
const PAUSE_MOST: u64 = 1_000_000_000;

/// Where few of the faults waited, one of so many or less, what begins to wait later is another phase of the program: so many
/// waits end the pause, twice as many each time that nothing came of it. (NAS MG on a file writes to fresh pages first, 4 ms
/// for a thousand, then goes through its arrays: of 4 s with us one was such a pause.)
const FEW_WAIT: u32 = 32;
const WAITS_FIRST: u32 = 32;
const WAITS_MOST: u32 = 1 << 16;

/// Who hardly waits is left alone for as long as others, but not for longer than this, ns, and so many waits end it, however often
/// that was so before: what he waits for later is another phase. (Of a gather of which 98% are cached that is 70 ms on a local disk.)
const LITTLE_PAUSE_MOST: u64 = 250_000_000;
const LITTLE_WAITS: u32 = 512;

/// Useful pages, one for so many faults, make watching worth it.
const WORTH_ONE_IN: u32 = 32;

/// Faults in which the program merely follows speculation count as one for so many.
const FOLLOWED_FOR_ONE: u32 = 4;

/// What was seen since the look before.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Looked {
    pub faults: u32,
    /// Waits that were spared: a page that was asked for and is reached counts as one, the first of many that were asked for together
    /// as more (`strides`).
    pub useful: u32,
    /// Faults that speculation had foretold, whether the disk had to be asked or not; and steps of strides whose pages were
    /// there, where something has been asked for along strides since watching began.
    pub follows: u32,
    /// A thread waits for the disk.
    pub waits: bool,
    /// No thread has waited for long enough lately that there were something to gain.
    pub little: bool,
    /// All but a few faults were what speculation has foretold, and so many more may come before the next look without it having
    /// to wait for being told; 0: not so.
    pub slack: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Arming {
    /// Faults without use; below zero: uses to spare, for a stretch that is cached.
    useless: i32,
    /// Something was of use since watching began.
    pays: bool,
    /// Waits ended the pause before.
    waited: bool,
    quiet: u64,
    /// How long it has been watched, how many faults, and how many looks found a thread waiting.
    watched: u64,
    faults: u32,
    waits: u32,
    pause: u64,
    pause_waits: u32,
}

/// What is to be done after a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    Watch,
    /// Stop watching until the next faults that wait for the disk.
    Rest,
    /// Stop watching for so many ns, or until so many faults have waited.
    Pause {
        ns: u64,
        waits: Option<u32>,
    },
}

impl Default for Arming {
    fn default() -> Arming {
        Arming {
            useless: 0,
            pays: false,
            waited: false,
            quiet: 0,
            watched: 0,
            faults: 0,
            waits: 0,
            pause: PAUSE_FIRST,
            pause_waits: WAITS_FIRST,
        }
    }
}

impl Arming {
    /// A look, `elapsed` ns after the one before.
    pub fn looked(&mut self, elapsed: u64, looked: Looked) -> Then {
        let Looked { faults, useful, follows, waits, little, .. } = looked;
        if useful > 0 {
            let worth = useful.saturating_mul(WORTH_ONE_IN).min(PATIENCE) as i32;
            self.useless = (self.useless - worth).max(-(PATIENCE as i32));
            self.pays = true;
            (self.pause, self.pause_waits) = (PAUSE_FIRST, WAITS_FIRST);
        }
        self.watched = self.watched.saturating_add(elapsed);
        self.faults = self.faults.saturating_add(faults);
        self.waits = self.waits.saturating_add(u32::from(waits));
        let weight = if waits || self.pays || self.waited { 1 } else { NONE_WAITS };
        // Faults that were foretold and found in memory: in the layers of an index, what the run before has fetched; along strides, what
        // another instruction's stream has.
        let counted = faults.saturating_sub(follows).saturating_add(follows.min(faults) / FOLLOWED_FOR_ONE);
        let useless = i32::try_from(counted.saturating_mul(weight)).unwrap_or(i32::MAX);
        self.useless = self.useless.saturating_add(useless);
        self.quiet = if faults > 0 { 0 } else { self.quiet.saturating_add(elapsed) };
        let promising = self.waits.saturating_mul(ONE_WAITS) >= self.faults;
        let patience = if promising { PATIENCE * PROMISING } else { PATIENCE };
        if little && !self.pays && self.faults > 0 {
            let pause = self.pause.max(self.watched.saturating_mul(PAUSE_TIMES)).min(LITTLE_PAUSE_MOST);
            self.pause = (pause * 2).min(PAUSE_MOST);
            self.begin();
            Then::Pause { ns: pause, waits: Some(LITTLE_WAITS) }
        } else if self.useless >= patience as i32 {
            let pause = self.pause.max(self.watched.saturating_mul(PAUSE_TIMES)).min(PAUSE_MOST);
            self.pause = (pause * 2).min(PAUSE_MOST);
            let few = self.waits.saturating_mul(FEW_WAIT) <= self.faults;
            let waits = few.then_some(self.pause_waits);
            self.pause_waits = (self.pause_waits * 2).min(WAITS_MOST);
            self.begin();
            Then::Pause { ns: pause, waits }
        } else if self.quiet >= QUIET {
            (self.waited, self.quiet, self.watched, self.faults, self.waits) = (false, 0, 0, 0, 0);
            Then::Rest
        } else {
            Then::Watch
        }
    }

    /// Waits have ended the pause: that none waits now says little. (FT's columns wait in each 32nd only.)
    pub fn waits_came(&mut self) {
        self.waited = true;
    }

    /// What was seen before a pause counts no more.
    fn begin(&mut self) {
        let Arming { pause, pause_waits, .. } = *self;
        *self = Arming { pause, pause_waits, ..Arming::default() };
    }
}

/// How long to sleep between two looks, ns. Never none: a reader that spins costs the program as much as the
/// records do.
pub const LOOK_LEAST: u64 = 20_000;
pub const LOOK_MOST: u64 = 1_000_000;

/// The least while watching has not paid lately: each look is a wake-up, on a processor that others may want.
const LOOK_DOUBTFUL: u64 = 100_000;

/// The most while speculation is on track, unless faults come more slowly: a program that overtakes it is to be seen soon.
const LOOK_ON_TRACK: u64 = 200_000;

impl Arming {
    /// The next sleep after one of `last` ns. Speculation that is on track needs to hear of the program only before it is as far ahead as
    /// it may be. (Looking whenever a fault or two had come, every 95 us, took 20 us of a processor each time, the speculator's
    /// more often than not: a gather took 0.55 s where it takes 0.39 with this, everything of ours on one of two processors.)
    pub fn next_look(&self, last: u64, looked: Looked) -> u64 {
        let Looked { faults, slack, .. } = looked;
        let next = match faults {
            0 => last * 2,
            _ if faults * 2 <= slack => last.max((last * 2).min(LOOK_ON_TRACK)),
            _ if faults <= slack => last,
            1..=4 => last,
            _ => last / 2,
        };
        let least = if self.useless > PATIENCE as i32 / 4 { LOOK_DOUBTFUL } else { LOOK_LEAST };
        next.clamp(least, LOOK_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(faults: u32, useful: u32, waits: bool) -> Looked {
        Looked { faults, useful, follows: 0, waits, little: false, slack: 0 }
    }

    #[test]
    fn nothing_to_predict_costs_ever_less() {
        let mut arming = Arming::default();
        let mut pauses = Vec::new();
        for _ in 0..2000 {
            if let Then::Pause { ns, .. } = arming.looked(20_000, seen(100, 0, true)) {
                pauses.push(ns);
            }
        }
        assert!(pauses.windows(2).all(|pair| pair[1] == (pair[0] * 2).min(PAUSE_MOST)));
        assert_eq!(pauses.last(), Some(&PAUSE_MOST));
    }

    #[test]
    fn who_hardly_waits_is_left_alone_at_once_unless_that_is_our_doing() {
        let little = |useful| Looked { little: true, ..seen(20, useful, true) };
        let mut arming = Arming::default();
        for _ in 0..20 {
            match arming.looked(20_000, little(0)) {
                Then::Pause { ns, waits } => assert!(ns <= LITTLE_PAUSE_MOST && waits == Some(LITTLE_WAITS)),
                then => panic!("{then:?}"),
            }
        }
        let nothing = Looked { little: true, ..seen(0, 0, false) };
        assert_eq!(Arming::default().looked(20_000, nothing), Then::Watch);
        let mut arming = Arming::default();
        assert_eq!(arming.looked(20_000, little(1)), Then::Watch);
        assert_eq!(arming.looked(20_000, little(0)), Then::Watch);
    }

    #[test]
    fn waits_end_a_pause_where_few_had_waited_before() {
        let mut arming = Arming::default();
        let mut pause = |waits: u32| {
            let looks = (0..1000).map(|look| arming.looked(20_000, seen(20, 0, look < waits)));
            looks.into_iter().find(|then| *then != Then::Watch)
        };
        assert!(matches!(pause(0), Some(Then::Pause { waits: Some(WAITS_FIRST), .. })));
        assert!(matches!(pause(2), Some(Then::Pause { waits: Some(64), .. })), "and ever more of them");
        assert!(matches!(pause(100), Some(Then::Pause { waits: None, .. })));
    }

    #[test]
    fn what_pays_is_watched_on() {
        let mut arming = Arming::default();
        for _ in 0..10_000 {
            assert_eq!(arming.looked(20_000, seen(16, 1, true)), Then::Watch);
        }
    }

    #[test]
    fn what_pays_now_and_then_is_watched_through_what_is_cached() {
        let mut arming = Arming::default();
        for look in 0..10_000 {
            let useful = u32::from(look % 3 == 0);
            assert_eq!(arming.looked(20_000, seen(5, useful, false)), Then::Watch, "{look}");
        }
    }

    #[test]
    fn uses_of_long_ago_are_worth_as_much_as_patience_once() {
        let mut arming = Arming::default();
        (0..10_000).for_each(|_| assert_eq!(arming.looked(20_000, seen(1, 1, true)), Then::Watch));
        let looks = (0..1000).position(|_| arming.looked(20_000, seen(20, 0, true)) != Then::Watch);
        assert_eq!(looks, Some(((1 + PROMISING) * PATIENCE / 20) as usize - 1));
    }

    #[test]
    fn where_few_wait_it_ends_sooner_than_where_many_do() {
        let faults = |one_waits: u32| {
            let mut arming = Arming { waited: true, ..Arming::default() };
            (0..).find(|at| arming.looked(20_000, seen(1, 0, at % one_waits == 0)) != Then::Watch).unwrap()
        };
        assert_eq!(faults(ONE_WAITS - 1) + 1, PROMISING * PATIENCE);
        assert_eq!(faults(2 * ONE_WAITS) + 1, PATIENCE);
    }

    #[test]
    fn where_nothing_waits_it_ends_soon() {
        let looks = |waits, came| {
            let mut arming = Arming { waited: came, ..Arming::default() };
            (0..1000).position(|_| arming.looked(20_000, seen(20, 0, waits)) != Then::Watch)
        };
        assert_eq!(looks(true, false), Some((PATIENCE / 20) as usize - 1));
        assert_eq!(looks(false, false), Some((PATIENCE / 20 / NONE_WAITS) as usize));
        assert_eq!(looks(false, true), Some((PATIENCE / 20) as usize - 1), "waits came before");
    }

    #[test]
    fn silence_ends_it_without_a_pause() {
        let mut arming = Arming::default();
        let looks = (0..100)
            .map(|_| arming.looked(1_000_000, seen(0, 0, false)))
            .position(|then| then != Then::Watch);
        assert_eq!(looks, Some((QUIET / 1_000_000) as usize - 1));
    }

    #[test]
    fn speculation_on_track_is_looked_at_as_seldom_as_it_bears() {
        let settled = |each_us: u64, slack: u32| {
            let mut sleep = LOOK_LEAST;
            for _ in 0..50 {
                let faults = (sleep / 1000 / each_us) as u32;
                sleep = Arming::default().next_look(sleep, Looked { slack, ..seen(faults, faults, true) });
            }
            sleep / 1000 / each_us
        };
        assert!((16..=20).contains(&settled(10, 32)), "{}", settled(10, 32));
        assert!(settled(10, 0) <= 4);
        assert!(settled(1000, 32) <= 1);
    }

    #[test]
    fn sleeps_stay_within_their_bounds() {
        let mut sleep = LOOK_LEAST;
        for faults in [0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 1] {
            sleep = Arming::default().next_look(sleep, seen(faults, 0, false));
            assert!((LOOK_LEAST..=LOOK_MOST).contains(&sleep));
        }
    }
}
