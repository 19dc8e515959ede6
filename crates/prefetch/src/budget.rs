//! Budgets: how much memory prefetched pages may take before they are used, and how many bytes a second may
//! be asked for.
//!
//! *Memory.* What a control group may still take is its limit less what it uses, plus the file pages that it
//! would give up; of that a quarter, since the program's own pages have to live there too: at a limit of a
//! quarter of the data, prefetching into all of it evicts what was prefetched before it is read. Under
//! pressure (PSI: the share of time in which somebody waited for memory) the budget shrinks with it, to
//! nothing at 20%. The arithmetic is here; whoever drives it reads the files.
//!
//! *Bandwidth.* A token bucket, filled at the given rate, never fuller than a tenth of a second's worth: users
//! who cap bandwidth want an even stream, not a burst after each pause.

use crate::PAGE;

/// What is known of the memory that prefetched pages would take. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The tightest limit above us: of the control groups, else of the machine.
    pub limit: u64,
    /// Used below that limit, the page cache included.
    pub used: u64,
    /// File pages within `used` that nobody has touched lately.
    pub reclaimable: u64,
    /// Share of the last ten seconds in which some task waited for memory, in hundredths of a percent;
    /// 0 where the kernel does not say.
    pub pressure: u32,
    /// What the user allows us at most.
    pub most: u64,
}

/// What the kernel says of waiting for memory (PSI, the last ten seconds), in hundredths of a percent.
///
/// Waiting alone does not say that memory is short. The machine's figure counts what goes on inside every limited
/// group, and every page that is read again after something gave it up while there was room: one container
/// that fills its own limit, or a kernel that pages idle cache out by itself, would stop prefetching everywhere.
/// (It did: on a machine with 23 of 24 GB available the figure stood at 15 to 25% while it compiled, and a search with
/// hints took 13 seconds instead of half a one.) So our own group's figure counts, in which our own waiting shows whoever
/// causes it, and the machine's only where memory that we could take is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Of our own control group; None: there is none, or it does not say.
    pub own: Option<u32>,
    /// Of the machine; None: it does not say.
    pub machine: Option<u32>,
    /// The machine is short of memory ([`is_short`]).
    pub machine_short: bool,
    /// The tightest group above us is, which matters where that cannot be asked for its own figure.
    pub group_short: bool,
}

impl Pressure {
    /// The pressure that concerns us.
    pub fn counts(&self) -> u32 {
        let machine = self.machine.unwrap_or(0);
        match self.own {
            Some(own) if self.machine_short => own.max(machine),
            Some(own) => own,
            None if self.machine_short || self.group_short => machine,
            None => 0,
        }
    }
}

/// Whether less than an eighth of a limit is left: waiting for memory may then be for this one. (The kernel begins to
/// reclaim when some percent are left, and looks at this are a quarter of a second apart.)
pub fn is_short(limit: u64, left: u64) -> bool {
    left < limit / 8
}

/// Bytes that are left at the edge, at most, and of which part of the limit. (A speech recogniser of 97.5 MB in a group of 100 MB
/// took all that was left within a second; a speculator of 2.6 MB slept beside it, and the kernel killed the program.)
const EDGE_MOST: u64 = 8 << 20;
const EDGE_PART: u64 = 16;

/// Whether of a limit so few bytes are left, counting what could be evicted, that the program may be killed for want of what we hold.
pub fn is_at_the_edge(limit: u64, left: u64) -> bool {
    left < (limit / EDGE_PART).min(EDGE_MOST)
}

/// Whether a limit is reached, or nearly: what is brought in pushes something out. (Of a group that reclaims, less than a
/// MB is free.)
pub fn is_full(limit: u64, used: u64) -> bool {
    limit > 0 && limit.saturating_sub(used) < limit / 16
}

/// Pressure at which nothing is prefetched any more: 20% of the time somebody waits for memory already.
const TOO_MUCH: u32 = 2000;

/// Pages that a prefetcher may hold even in the tightest group: one chunk for each of two reads.
const FLOOR: u64 = 2 * crate::CHUNK_PAGES;

impl Memory {
    /// Bytes that are free or would be given up.
    pub fn free(&self) -> u64 {
        let free = self.limit.saturating_sub(self.used).saturating_add(self.reclaimable.min(self.used));
        free.min(self.limit)
    }

    /// Pages that may be prefetched and not yet used.
    pub fn pages(&self) -> u64 {
        if self.pressure >= TOO_MUCH {
            return 0;
        }
        let calm = u64::from(TOO_MUCH - self.pressure);
        let quarter = self.free() / 4 / PAGE;
        let allowed = (u128::from(quarter) * u128::from(calm) / u128::from(TOO_MUCH)) as u64;
        allowed.max(FLOOR).min(self.most / PAGE)
    }
}

/// Bytes that may be asked for, as time goes on.
#[derive(Clone, Copy, Debug)]
pub struct Bandwidth {
    /// Bytes a second; `u64::MAX`: no limit.
    rate: u64,
    tokens: u64,
    last: u64,
}

impl Bandwidth {
    pub const UNLIMITED: Bandwidth = Bandwidth { rate: u64::MAX, tokens: 0, last: 0 };

    /// `rate` bytes a second, from `now` (ns) on.
    pub const fn new(rate: u64, now: u64) -> Self {
        Self { rate, tokens: 0, last: now }
    }

    /// Takes `bytes` if they are there.
    pub fn take(&mut self, bytes: u64, now: u64) -> bool {
        if self.rate == u64::MAX {
            return true;
        }
        let passed = now.saturating_sub(self.last);
        let earned = (u128::from(self.rate) * u128::from(passed) / 1_000_000_000) as u64;
        if earned > 0 {
            self.last = now;
        }
        // Room for one chunk at least, or a low rate would never pay for one.
        let most = (self.rate / 10).max(crate::CHUNK_PAGES * PAGE);
        self.tokens = self.tokens.saturating_add(earned).min(most);
        if self.tokens < bytes {
            return false;
        }
        self.tokens -= bytes;
        true
    }

    /// Gives back what was taken and not used.
    pub fn refund(&mut self, bytes: u64) {
        self.tokens = self.tokens.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MEGABYTE: u64 = 1 << 20;
    const MEMORY: Memory = Memory {
        limit: 1024 * MEGABYTE,
        used: 512 * MEGABYTE,
        reclaimable: 128 * MEGABYTE,
        pressure: 0,
        most: u64::MAX,
    };

    #[test]
    fn the_edge_is_a_part_of_small_limits() {
        assert!(is_at_the_edge(100 << 20, 6 << 20) && !is_at_the_edge(100 << 20, 7 << 20));
        assert!(is_at_the_edge(4 << 20, 255 << 10) && !is_at_the_edge(4 << 20, 257 << 10));
        assert!(is_at_the_edge(u64::MAX, 4 << 20) && !is_at_the_edge(u64::MAX, 8 << 20));
    }

    #[test]
    fn a_quarter_of_what_is_free_or_would_be_given_up() {
        assert_eq!(MEMORY.pages(), 160 * MEGABYTE / PAGE);
        assert_eq!(Memory { most: MEGABYTE, ..MEMORY }.pages(), 256);
        assert_eq!(Memory { most: 0, ..MEMORY }.pages(), 0);
    }

    #[test]
    fn pressure_shrinks_it_to_nothing() {
        assert_eq!(Memory { pressure: 1000, ..MEMORY }.pages(), 80 * MEGABYTE / PAGE);
        assert_eq!(Memory { pressure: 2000, ..MEMORY }.pages(), 0);
        assert_eq!(Memory { pressure: 10_000, ..MEMORY }.pages(), 0);
    }

    #[test]
    fn somebody_elses_full_group_is_not_our_pressure() {
        let calm = Pressure { own: Some(5), machine: Some(9000), ..Pressure::default() };
        assert_eq!(calm.counts(), 5);
        assert_eq!(Pressure { own: None, ..calm }.counts(), 0);
        // Unless memory that we could take is short.
        assert_eq!(Pressure { machine_short: true, ..calm }.counts(), 9000);
        assert_eq!(Pressure { own: None, group_short: true, ..calm }.counts(), 9000);
        assert_eq!(Pressure { own: Some(300), machine: None, machine_short: true, ..calm }.counts(), 300);
        assert!(is_short(800, 99) && !is_short(800, 100));
        assert_eq!(Pressure::default().counts(), 0);
    }

    #[test]
    fn a_full_group_leaves_the_floor() {
        assert_eq!(Memory { used: 1024 * MEGABYTE, reclaimable: 0, ..MEMORY }.pages(), FLOOR);
    }

    #[test]
    fn bandwidth_is_kept_and_does_not_pile_up() {
        let mut bandwidth = Bandwidth::new(100 * MEGABYTE, 0);
        let mut taken = 0;
        for now in (0..1_000_000_000).step_by(100_000) {
            while bandwidth.take(PAGE, now) {
                taken += PAGE;
            }
        }
        assert!((98 * MEGABYTE..=100 * MEGABYTE).contains(&taken), "{taken}");
        let mut burst = 0;
        while bandwidth.take(PAGE, 1_000_000_000_000) {
            burst += PAGE;
        }
        assert!(burst <= 10 * MEGABYTE, "{burst}");
    }

    #[test]
    fn a_very_low_rate_still_pays_for_a_chunk_at_times() {
        let mut bandwidth = Bandwidth::new(1000, 0);
        assert!(!bandwidth.take(crate::CHUNK_PAGES * PAGE, 1_000_000_000));
        assert!(bandwidth.take(crate::CHUNK_PAGES * PAGE, 200_000_000_000));
        let mut unlimited = Bandwidth::UNLIMITED;
        assert!(unlimited.take(u64::MAX, 0));
    }

    proptest! {
        #[test]
        fn never_panics_nor_exceeds_what_is_allowed(
            limit: u64, used: u64, reclaimable: u64, pressure: u32, most: u64,
        ) {
            let pages = Memory { limit, used, reclaimable, pressure, most }.pages();
            prop_assert!(pages <= most / PAGE);
            prop_assert!(pages <= (limit / 4 / PAGE).max(FLOOR));
        }
    }
}
