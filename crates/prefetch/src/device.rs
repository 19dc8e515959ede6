//! A device: how many requests it can serve at once, from its completions alone.
//!
//! A spinning disk serves one request for each arm, a cloud volume some tens, a solid-state disk something
//! between that nobody documents. Too few in flight waste the device; too many only stand in its queue, and
//! a demand read stands behind them. Nothing is configured: the number is found by trying.
//!
//! *Levels* are numbers in flight, powers of two. While there is enough to send that a level is kept full,
//! response times are gathered, and the level's usual one is known. What is to be made great is not the rate
//! but Kleinrock's *power*, rate over response time; by Little's law the rate is n / R with n in flight and a
//! response time of R, so power is n / R². Doubling the level raises it only if the response time grows by less
//! than √2: an arm more serves twice as much in the same time, a longer queue for the same arms gives some tens
//! of percent by better ordering, and costs every demand read twice the wait. On the papers' four-disk array,
//! with 99, 259, 365 and 393 requests a second at 1, 4, 16 and 64 in flight, power is greatest at 4: the arms.
//!
//! Rates are not measured: what is in flight *with us* may spend most of its time before its request (a file is
//! opened, a name looked up, the processors are busy). Judged by completions in a second, one slow trial of 8
//! in flight held a device that serves 64 at 4 for half a second, and a search with hints took 1.3 s instead of
//! 0.4. The longest eighth of the times is left out, since a thread that waits for a processor
//! makes some of them ten times as long.
//!
//! The search climbs while power grows, falls back where it did not, and tries its neighbours again now and
//! then, since other users of the device come and go: soon after a failed trial, then less and less often.

/// log2 of the greatest level. 256 in flight: beyond what NVMe queues of one program ever gained from.
const TOP: usize = 8;

/// The level that a device starts at: all devices but one spinning disk serve four at once.
const START: usize = 2;

/// Completions in an interval: at least twice the level, so that the interval is longer than what was in flight
/// at its start, and at least this many: with 24, four arms that are hit at random passed for 8 on the average of
/// twenty runs, with 48 for 4.
const LEAST_COMPLETIONS: u32 = 48;

/// On the first way up so many will do where the answers come too soon to be a spinning disk's: half a turn of
/// the fastest takes 2 ms, and the arm has to get there. A job may look names up for longer than its request
/// takes, so a search of 9000 files on a cloud volume stood at 4 for 47 ms and reached 64 after 90.
const FIRST_COMPLETIONS: u32 = 16;
const NO_ARM: u64 = 2_500_000;

/// Intervals at the best level before a neighbour is tried again (every other time the lower one): the first
/// figure, doubled with each trial that failed, up to the second.
const PATIENCE: (u32, u32) = (2, 16);

/// Response times differ by some percent from interval to interval: power has to grow by an eighth.
const BETTER: (u128, u128) = (9, 8);

/// Response times of an interval that are kept, the latest.
const SAMPLES: usize = 64;

/// An average that moves by 1/8 of the distance with each sample; the first sample is taken whole.
fn blend(average: u64, sample: u64) -> u64 {
    if average == 0 { sample } else { average - average / 8 + sample / 8 }
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    completions: u32,
    /// Completions that found the device not kept at its level: they say nothing about the level.
    starved: u32,
    responses: [u64; SAMPLES],
}

impl Interval {
    const NEW: Interval = Interval { completions: 0, starved: 0, responses: [0; SAMPLES] };

    /// The mean without the longest eighth.
    fn usual(&mut self) -> u64 {
        let count = (self.completions as usize).min(SAMPLES);
        let Some(responses) = self.responses.get_mut(..count) else { return 0 };
        responses.sort_unstable();
        let kept = count - count / 8;
        let sum = responses.iter().take(kept).fold(0u64, |sum, response| sum.saturating_add(*response));
        sum / (kept as u64).max(1)
    }
}

/// What is known of one device. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Device {
    /// Usual response time at each level; 0: not known.
    responses: [u64; TOP + 1],
    best: usize,
    /// The level in force: `best` or a neighbour on trial.
    level: usize,
    intervals_at_best: u32,
    patience: u32,
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
            responses: [0; TOP + 1],
            best: START,
            level: START,
            intervals_at_best: 0,
            patience: PATIENCE.0,
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
    pub fn sent(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
        if self.interval.is_none() && self.in_flight >= self.allowance() {
            self.interval = Some(Interval::NEW);
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
        let needed = self.needed_completions();
        let Some(interval) = &mut self.interval else { return };
        interval.responses[interval.completions as usize % SAMPLES] = took;
        interval.completions += 1;
        // Completions come in bunches, so "full" has to hold for most, not for all.
        interval.starved += u32::from(!full && !more);
        if interval.completions < needed {
            return;
        }
        let says_something = interval.starved * 4 <= interval.completions;
        let usual = interval.usual();
        self.interval = None;
        if says_something {
            self.measured(usual);
        }
    }

    /// Completions that make an interval.
    fn needed_completions(&self) -> u32 {
        let first_way_up = self.responses.get(self.level + 1).is_some_and(|above| *above == 0);
        let least =
            if first_way_up && self.response < NO_ARM { FIRST_COMPLETIONS } else { LEAST_COMPLETIONS };
        least.max(2 * self.allowance())
    }

    /// A request came to nothing (the file was gone): it says nothing about the device.
    pub fn abandoned(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Whether the power at `level` is greater than that at another one by enough to be believed.
    fn better(&self, level: usize, than: usize) -> bool {
        // n / R² on both sides, multiplied out; in microseconds, so that nothing overflows.
        let square = |level: usize| u128::from((self.responses[level] / 1000).clamp(1, 1 << 40)).pow(2);
        (square(than) << level) * BETTER.1 > (square(level) << than) * BETTER.0
    }

    /// The level in force has this usual response time.
    fn measured(&mut self, response: u64) {
        // A level on trial is judged by its present response time, not by one of long ago.
        let trial = self.level != self.best;
        let known = &mut self.responses[self.level];
        *known = if trial { response } else { blend(*known, response) };
        if trial {
            // A lower level that is as good is better: whoever else reads waits less.
            let wins = if self.level > self.best {
                self.better(self.level, self.best)
            } else {
                !self.better(self.best, self.level)
            };
            if wins {
                // On in the same direction.
                self.lower_next = self.level > self.best;
                self.best = self.level;
                self.patience = PATIENCE.0;
                self.intervals_at_best = self.patience;
            } else {
                self.level = self.best;
                self.intervals_at_best = 0;
                self.patience = (2 * self.patience).min(PATIENCE.1);
                return;
            }
        }
        self.intervals_at_best += 1;
        if self.best < TOP && self.responses[self.best + 1] == 0 {
            self.level = self.best + 1;
        } else if self.intervals_at_best > self.patience {
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
                device.sent();
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
        let seeds = 1..=20;
        let means = seeds.map(|seed| {
            let mut fake = Fake { seed, ..Fake::new(4, 14_000_000, 6_000_000, true) };
            drive(&mut fake, &mut Device::new(), 8000)
        });
        let means: Vec<f64> = means.collect();
        let mean = means.iter().sum::<f64>() / 20.0;
        assert!((2.0..8.0).contains(&mean), "{means:?}");
    }

    #[test]
    fn climbs_quickly() {
        let mut fake = Fake::new(64, 1_000_000, 10_000, false);
        let mut device = Device::new();
        drive(&mut fake, &mut device, 260);
        assert_eq!(device.concurrency(), 64);
    }

    /// What answers as slowly as a spinning disk is looked at for longer.
    #[test]
    fn climbs_slowly_where_there_may_be_arms() {
        let mut fake = Fake::new(64, 5_000_000, 10_000, false);
        let mut device = Device::new();
        drive(&mut fake, &mut device, 48);
        assert_eq!(device.concurrency(), 1 << START);
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

    /// Jobs that do something else before their request, and at times for long: the device is as good as before.
    #[test]
    fn a_slow_job_is_no_slow_device() {
        let mut device = Device::new();
        let mut fake = Fake::new(1, 1_000_000, 20_000, false);
        let mut now = 0;
        for round in 0..400 {
            let level = device.allowance();
            (0..level).for_each(|_| device.sent());
            // The second trial stands still for 20 ms.
            now += 1_000_000 + if (2..20).contains(&round) { 20_000_000 } else { 500_000 };
            for _ in 0..level {
                let took = 1_000_000 + fake.draw(20_000);
                device.completed(now - took, now, false, true);
            }
            if round == 40 {
                assert!(device.concurrency() >= 16, "{}", device.concurrency());
            }
        }
        assert!(device.concurrency() >= 64, "{}", device.concurrency());
    }

    /// A giver with little to send says nothing about what the device could do.
    #[test]
    fn a_trickle_changes_nothing() {
        let mut device = Device::new();
        let mut now = 0;
        for _ in 0..10_000 {
            device.sent();
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
            (0..4).for_each(|_| device.sent());
            (0..4).for_each(|_| device.completed(now, now + 1_000_000, false, false));
        }
        assert_eq!(device.allowance(), 1 << START);
        assert_eq!(device.responses, [0; TOP + 1]);
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
