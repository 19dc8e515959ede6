//! A device: how many requests it can serve at once, from its completions alone.
//!
//! A spinning disk serves one request for each arm, a cloud volume some tens, a solid-state disk something
//! between that nobody documents. Too few in flight waste the device; too many only stand in its queue, and
//! a demand read stands behind them. Nothing is configured: the number is found by trying.
//!
//! *Levels* are numbers in flight, powers of two. While there is enough to send that a level is kept full,
//! intervals are timed, and a level's rate (completions in a second) is known. What is to be made great is
//! not the rate but Kleinrock's *power*, rate over response time; with n in flight the response time is
//! n / rate, so power is rate² / n. Doubling the level raises it only if the rate grows by more than
//! √2: an arm more gives twice the rate, a longer queue for the same arms gives some tens of percent by
//! better ordering, and costs every demand read twice the wait. On the papers' four-disk array, with 99,
//! 259, 365 and 393 requests a second at 1, 4, 16 and 64 in flight, power is greatest at 4: the arms.
//!
//! The search climbs while power grows, falls back where it did not, and tries its neighbours again now and
//! then, since other users of the device come and go.

/// log2 of the greatest level. 256 in flight: beyond what NVMe queues of one program ever gained from.
const TOP: usize = 8;

/// The level that a device starts at: all devices but one spinning disk serve four at once.
const START: usize = 2;

/// Completions in an interval: at least this many, and at least twice the level, so that the interval is
/// longer than what was in flight at its start.
const LEAST_COMPLETIONS: u32 = 32;

/// Intervals at the best level before a neighbour is tried again; every other time the lower one.
const PATIENCE: u32 = 24;

/// Measured rates differ by some percent from interval to interval: power has to grow by an eighth.
const BETTER: (u64, u64) = (9, 8);

/// An average that moves by 1/8 of the distance with each sample; the first sample is taken whole.
fn blend(average: u64, sample: u64) -> u64 {
    if average == 0 { sample } else { average - average / 8 + sample / 8 }
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    began: u64,
    completions: u32,
    /// Completions that found the device not kept at its level: they say nothing about the level.
    starved: u32,
}

/// What is known of one device. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Device {
    /// Completions per second at each level; 0: not known.
    rates: [u64; TOP + 1],
    best: usize,
    /// The level in force: `best` or a neighbour on trial.
    level: usize,
    intervals_at_best: u32,
    lower_next: bool,
    interval: Option<Interval>,
    in_flight: u32,
    /// Response time of requests that were sent while nothing else was in flight, and of all.
    unloaded: u64,
    response: u64,
}

impl Default for Device {
    fn default() -> Self {
        Self::new()
    }
}

impl Device {
    pub const fn new() -> Self {
        Self {
            rates: [0; TOP + 1],
            best: START,
            level: START,
            intervals_at_best: 0,
            lower_next: false,
            interval: None,
            in_flight: 0,
            unloaded: 0,
            response: 0,
        }
    }

    /// A device that others have measured already: the search begins there.
    pub fn with_concurrency(concurrency: u32) -> Self {
        let mut device = Self::new();
        device.best = (concurrency.max(1).ilog2() as usize).min(TOP);
        device.level = device.best;
        device
    }

    /// How many requests may be in flight now.
    pub fn allowance(&self) -> u32 {
        1 << self.level
    }

    /// How many the device can serve at once, as far as it is known; without the level on trial.
    pub fn concurrency(&self) -> u32 {
        1 << self.best
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Response time of a request that waits for no other; an estimate from loaded ones as long as there was
    /// none. 0: nothing known.
    pub fn latency(&self) -> u64 {
        if self.unloaded > 0 { self.unloaded } else { self.response }
    }

    /// Response time under the present load. 0: nothing known.
    pub fn response(&self) -> u64 {
        self.response
    }

    /// A request was sent.
    pub fn sent(&mut self, now: u64) {
        self.in_flight = self.in_flight.saturating_add(1);
        if self.interval.is_none() && self.in_flight >= self.allowance() {
            self.interval = Some(Interval { began: now, completions: 0, starved: 0 });
        }
    }

    /// A request that was sent at `sent_at` is complete; `alone`: nothing else was in flight when it was
    /// sent. `more`: something waits that would be sent if it were allowed.
    pub fn completed(&mut self, sent_at: u64, now: u64, alone: bool, more: bool) {
        // More is in flight than is counted only if the caller errs.
        let full = self.in_flight >= self.allowance();
        self.in_flight = self.in_flight.saturating_sub(1);
        let took = now.saturating_sub(sent_at).max(1);
        self.response = blend(self.response, took);
        if alone {
            self.unloaded = blend(self.unloaded, took);
        }
        let needed = LEAST_COMPLETIONS.max(2 * self.allowance());
        let Some(interval) = &mut self.interval else { return };
        interval.completions += 1;
        // Completions come in bunches, so "full" has to hold for most, not for all.
        interval.starved += u32::from(!full && !more);
        if interval.completions < needed {
            return;
        }
        let Interval { began, completions, starved } = *interval;
        self.interval = None;
        if starved * 4 <= completions {
            let elapsed = now.saturating_sub(began).max(1);
            self.measured((u128::from(completions) * 1_000_000_000 / u128::from(elapsed)) as u64);
        }
    }

    /// A request came to nothing (the file was gone): it says nothing about the device.
    pub fn abandoned(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    fn power(&self, level: usize) -> u64 {
        let rate = u128::from(self.rates[level]);
        u64::try_from((rate * rate) >> level).unwrap_or(u64::MAX)
    }

    fn better(&self, level: usize, than: usize) -> bool {
        u128::from(self.power(level)) * u128::from(BETTER.1)
            > u128::from(self.power(than)) * u128::from(BETTER.0)
    }

    /// The level in force has this rate.
    fn measured(&mut self, rate: u64) {
        // A level on trial is judged by its present rate, not by one of long ago.
        let trial = self.level != self.best;
        self.rates[self.level] = if trial { rate } else { blend(self.rates[self.level], rate) };
        if trial {
            // A lower level that is as good is better: whoever else reads waits less.
            let wins = if self.level > self.best {
                self.better(self.level, self.best)
            } else {
                !self.better(self.best, self.level)
            };
            if wins {
                self.best = self.level;
                self.intervals_at_best = PATIENCE;
                // On in the same direction.
            } else {
                self.level = self.best;
                self.intervals_at_best = 0;
                return;
            }
        }
        self.intervals_at_best += 1;
        if self.best < TOP && self.rates[self.best + 1] == 0 {
            self.level = self.best + 1;
        } else if self.intervals_at_best > PATIENCE {
            self.intervals_at_best = 0;
            self.lower_next = !self.lower_next;
            self.level = if self.lower_next { self.best.saturating_sub(1) } else { (self.best + 1).min(TOP) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device told what to do: `servers` at once, each request `service` ns at one of them (drawn by a
    /// seeded generator within a spread), and a manager that always has more to send.
    struct Fake {
        servers: Vec<u64>,
        service: u64,
        spread: u64,
        seed: u64,
        random_server: bool,
    }

    impl Fake {
        fn new(servers: usize, service: u64, spread: u64, random_server: bool) -> Self {
            Fake { servers: vec![0; servers], service, spread, seed: 1, random_server }
        }

        fn draw(&mut self, below: u64) -> u64 {
            self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.seed >> 33) % below.max(1)
        }

        /// When a request sent at `now` is complete.
        fn send(&mut self, now: u64) -> u64 {
            let service = self.service - self.spread + self.draw(2 * self.spread + 1);
            let at = if self.random_server {
                self.draw(self.servers.len() as u64) as usize
            } else {
                (0..self.servers.len()).min_by_key(|&s| self.servers[s]).unwrap()
            };
            self.servers[at] = self.servers[at].max(now) + service;
            self.servers[at]
        }
    }

    /// Drives `requests` through; returns the mean number allowed over the last half.
    fn drive(fake: &mut Fake, device: &mut Device, requests: u32) -> f64 {
        let mut flying: Vec<(u64, u64, bool)> = Vec::new();
        let mut now = 0;
        let mut sum = 0;
        for done in 0..requests {
            while device.in_flight() < device.allowance() {
                let alone = device.in_flight() == 0;
                device.sent(now);
                flying.push((fake.send(now), now, alone));
            }
            let first = (0..flying.len()).min_by_key(|&i| flying[i].0).unwrap();
            let (at, sent, alone) = flying.swap_remove(first);
            now = at;
            device.completed(sent, now, alone, true);
            if done >= requests / 2 {
                sum += u64::from(device.concurrency());
            }
        }
        sum as f64 / f64::from(requests / 2)
    }

    #[test]
    fn a_cloud_volume_takes_64() {
        let mut fake = Fake::new(64, 1_000_000, 50_000, false);
        let mean = drive(&mut fake, &mut Device::new(), 20_000);
        assert!((60.0..70.0).contains(&mean), "{mean}");
    }

    #[test]
    fn one_arm_takes_one() {
        let mut fake = Fake::new(1, 14_000_000, 6_000_000, false);
        let mean = drive(&mut fake, &mut Device::new(), 4000);
        assert!(mean < 1.6, "{mean}");
    }

    /// Requests go to the arm where the data lies: with 4 in flight some arms have two and some none.
    #[test]
    fn four_arms_take_about_four() {
        let mut fake = Fake::new(4, 14_000_000, 6_000_000, true);
        let mean = drive(&mut fake, &mut Device::new(), 8000);
        assert!((2.0..8.0).contains(&mean), "{mean}");
    }

    #[test]
    fn climbs_quickly() {
        let mut fake = Fake::new(64, 1_000_000, 10_000, false);
        let mut device = Device::new();
        drive(&mut fake, &mut device, 500);
        assert!(device.concurrency() >= 32, "{}", device.concurrency());
    }

    #[test]
    fn notices_when_the_device_shrinks_and_grows() {
        let mut device = Device::new();
        let mean = drive(&mut Fake::new(64, 1_000_000, 10_000, false), &mut device, 10_000);
        assert!(mean > 60.0, "{mean}");
        // The clock goes back to 0 with the next fake, which costs one interval.
        device.in_flight = 0;
        drive(&mut Fake::new(4, 1_000_000, 10_000, false), &mut device, 60_000);
        assert!(device.concurrency() <= 8, "{}", device.concurrency());
        device.in_flight = 0;
        drive(&mut Fake::new(64, 1_000_000, 10_000, false), &mut device, 60_000);
        assert!(device.concurrency() >= 32, "{}", device.concurrency());
    }

    /// A giver with little to send says nothing about what the device could do.
    #[test]
    fn a_trickle_changes_nothing() {
        let mut device = Device::new();
        let mut now = 0;
        for _ in 0..10_000 {
            device.sent(now);
            now += 1_000_000;
            device.completed(now - 1_000_000, now, true, false);
        }
        assert_eq!(device.concurrency(), 1 << START);
        assert!(device.latency().abs_diff(1_000_000) < 1000, "{}", device.latency());
    }

    #[test]
    fn nor_do_bursts_that_end() {
        let mut device = Device::new();
        for burst in 0..10_000 {
            let now = burst * 2_000_000;
            (0..4).for_each(|_| device.sent(now));
            (0..4).for_each(|_| device.completed(now, now + 1_000_000, false, false));
        }
        assert_eq!(device.allowance(), 1 << START);
        assert_eq!(device.rates, [0; TOP + 1]);
    }

    #[test]
    fn too_many_completions_do_no_harm() {
        let mut device = Device::new();
        device.completed(5, 0, false, true);
        device.abandoned();
        assert_eq!(device.in_flight(), 0);
        assert_eq!(Device::with_concurrency(u32::MAX).concurrency(), 1 << TOP);
        assert_eq!(Device::with_concurrency(0).concurrency(), 1);
    }
}
