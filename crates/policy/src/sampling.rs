//! When a process's mapped pages are looked at, where nobody sees its page faults.
//!
//! A look takes 10 us to some 100 us of the host's time and nothing of the program's. While nothing is found,
//! looks are paid from a budget that all processes of a run share ([`Budget`]); while what was asked for is
//! reached, each by what it gains. So the question is only when to begin (faults have waited), how soon to
//! look again, and when to leave it be.

/// Faults that have waited since the latest look, which make the next ones worth it.
pub const WAITS_LEAST: u64 = 2;

/// How long nobody looks, ns, while the program does not wait: only its counts of faults are read.
pub const REST: u64 = 10_000_000;

/// Between two looks, ns. While what was asked for is reached, as often as needed.
const LOOK_MOST: u64 = 4_000_000;
const LOOK_FIRST: u64 = 2_000_000;
const LOOK_LEAST: u64 = 500_000;

/// Pages reached in a look, of those that were ahead, of which so many make the next look come sooner.
const SOON: u64 = 3;

/// Looks in which the program waited, and nothing was of use: then it is left alone, for a time that doubles.
const PATIENCE: u32 = 24;
const PAUSE_FIRST: u64 = 50_000_000;
const PAUSE_MOST: u64 = 2_000_000_000;

/// Looks without a wait and without use: it rests.
const QUIET: u32 = 16;

/// Pages asked for that the program did not come to count against it: more than so many beyond those that it
/// did, and it pauses.
const WASTED_MOST: u64 = 1024;

/// What is looked at may take one part in so many of the time while it gains, and while it does not.
const SHARE_GAINING: u64 = 12;
pub const SHARE: u64 = 100;

/// What was seen since the look before.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Looked {
    /// Faults that have waited for the disk.
    pub waits: u64,
    /// Pages that were asked for: reached; known not to be; still ahead.
    pub used: u64,
    pub wasted: u64,
    pub ahead: u64,
    /// What it took of a processor, ns.
    pub cost: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// Look again in so many ns.
    Look(u64),
    /// Nothing waits: see again once something does.
    Rest,
    /// Leave it for so many ns.
    Pause(u64),
}

#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    useless: u32,
    quiet: u32,
    sleep: u64,
    pause: u64,
    /// Pages wasted beyond those used.
    balance: u64,
    /// Looks since one was of use; while these are few, what is looked at pays for itself.
    since_use: u32,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            useless: 0,
            quiet: 0,
            sleep: LOOK_FIRST,
            pause: PAUSE_FIRST,
            balance: 0,
            since_use: u32::MAX,
        }
    }
}

impl Sampling {
    pub fn looked(&mut self, looked: Looked) -> Then {
        let Looked { waits, used, wasted, ahead, cost } = looked;
        self.balance = self.balance.saturating_add(wasted).saturating_sub(used);
        if used > 0 {
            (self.useless, self.quiet, self.since_use) = (0, 0, 0);
            self.pause = PAUSE_FIRST;
            let soon = used.saturating_mul(SOON) >= ahead;
            self.sleep = if soon { self.sleep / 2 } else { self.sleep };
        } else {
            self.since_use = self.since_use.saturating_add(1);
            self.useless += u32::from(waits > 0);
            self.quiet = if waits > 0 { 0 } else { self.quiet + 1 };
            let most = if self.gains() { LOOK_FIRST } else { LOOK_MOST };
            self.sleep = (self.sleep + self.sleep / 4).min(most);
        }
        if self.useless >= PATIENCE || self.balance > WASTED_MOST {
            let pause = self.pause;
            *self = Sampling { pause: (pause * 2).min(PAUSE_MOST), ..Sampling::default() };
            return Then::Pause(pause);
        }
        if self.quiet >= QUIET {
            *self = Sampling { pause: self.pause, balance: self.balance, ..Sampling::default() };
            return Then::Rest;
        }
        if !self.gains() {
            self.sleep = self.sleep.max(LOOK_FIRST);
        }
        self.sleep = self.sleep.max(LOOK_LEAST);
        Then::Look(self.sleep.max(cost.saturating_mul(SHARE_GAINING)))
    }

    /// Whether looks pay for themselves at present.
    pub fn gains(&self) -> bool {
        self.since_use <= QUIET
    }
}

/// What looks without use may take of one processor, for all processes of a run together: one part in
/// [`SHARE`] in the long run, and somewhat more at a time.
#[derive(Clone, Copy, Default, Debug)]
pub struct Budget {
    spent: u64,
}

/// A process that begins to wait is looked at for so long without regard to the rest, ns.
const AT_ONCE: u64 = 10_000_000;

impl Budget {
    /// So much was spent, `now` ns after the run began. For how long nothing more may be.
    pub fn spend(&mut self, now: u64, ns: u64) -> u64 {
        let earned = now / SHARE + AT_ONCE;
        // What was not spent is not saved up.
        self.spent = self.spent.max(now / SHARE).saturating_add(ns);
        self.spent.saturating_sub(earned).saturating_mul(SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_at_random_is_looked_at_ever_less() {
        let mut sampling = Sampling::default();
        let mut pauses = Vec::new();
        for _ in 0..1000 {
            if let Then::Pause(ns) = sampling.looked(Looked { waits: 2, cost: 100_000, ..Looked::default() })
            {
                pauses.push(ns);
            }
        }
        assert_eq!(pauses.first(), Some(&PAUSE_FIRST));
        assert_eq!(pauses.last(), Some(&PAUSE_MOST));
        assert!(!sampling.gains());
    }

    #[test]
    fn what_is_of_use_is_looked_at_on_and_often_enough() {
        let mut sampling = Sampling::default();
        for _ in 0..1000 {
            let looked = Looked { used: 200, ahead: 56, cost: 1000, ..Looked::default() };
            assert!(matches!(sampling.looked(looked), Then::Look(_)));
        }
        assert!(sampling.gains());
        let looked = Looked { used: 200, ahead: 56, cost: 1000, ..Looked::default() };
        assert_eq!(sampling.looked(looked), Then::Look(LOOK_LEAST));
        let dear = Looked { used: 200, ahead: 56, cost: 1_000_000, ..Looked::default() };
        assert_eq!(sampling.looked(dear), Then::Look(SHARE_GAINING * 1_000_000));
    }

    #[test]
    fn who_waits_no_more_is_let_rest_and_what_is_wasted_ends_it() {
        let mut sampling = Sampling::default();
        let then = (0..QUIET).map(|_| sampling.looked(Looked::default())).last();
        assert_eq!(then, Some(Then::Rest));
        let wasted = Looked { used: 1, wasted: WASTED_MOST + 2, ..Looked::default() };
        assert!(matches!(sampling.looked(wasted), Then::Pause(_)));
    }

    #[test]
    fn looks_without_use_take_one_part_in_a_hundred_of_a_processor() {
        let mut budget = Budget::default();
        let (mut now, mut spent) = (0, 0);
        while now < 60_000_000_000 {
            spent += 300_000;
            now += 300_000 + budget.spend(now, 300_000);
        }
        assert!(spent <= now / SHARE + AT_ONCE + 300_000, "{spent} of {now}");
        // What was not spent for long is worth no more than a moment.
        let later = now + 3_600_000_000_000;
        let at_once = (0..1000).take_while(|_| budget.spend(later, 300_000) == 0).count();
        assert!((30..=34).contains(&at_once), "{at_once}");
    }
}
