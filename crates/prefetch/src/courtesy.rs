//! Courtesy: how many requests we may have in flight at a device that others read from, too.
//!
//! Somebody else's demand read stands in line behind our prefetches. Alone, a program may fill a device as deep
//! as it gains anything; beside others, prefetching gives way as a well-behaved sender does in a network: by
//! delay. The kernel counts what each disk has done and how long that took (`/sys/dev/block/*/stat`), for
//! everybody together. The least response time seen is the unloaded one; while the present one is more than a quarter
//! above it, requests stand in line, and the number allowed shrinks; else it grows. (The aim is a demand read
//! that takes at most 1.3 times as long.) Up to the device's concurrency that costs us nothing, since a
//! request that would only stand in line does that as well with us.
//!
//! *Others* read when the device has delivered more than our processes were given. What we have asked for
//! counts as ours at once, and as the device's only when it is done, so the difference swings below the truth by
//! what is in flight; its greatest value so far does not, and it grows only with others' reads.

use crate::PAGE;

/// Others are noticed when they have read something in each of the latest [`WINDOWS`] of so many samples (a
/// sample is some 20 ms). Once is a shell that starts, or our own part that was told late.
const WINDOW: usize = 4;
const WINDOWS: usize = 3;
const MEMORY: usize = WINDOW * WINDOWS;

/// What they must have read in a window: 4 pages. Whoever waits behind 16 of our requests at a disk with one arm gets
/// as much.
const NOTICED: u64 = 4 * PAGE;

/// And of what the device delivered, one part in so many: beside 512 of our requests in flight somebody who reads page by
/// page gets one in 513.
const NOTICED_PART: u64 = 1024;

/// Waiting in line, in eighths of the unloaded response time, that others are to bear.
const BEARABLE: u64 = 2;

/// The same while nobody was noticed: behind a line of hundreds nobody could be. A device that gains from a deep queue
/// loses nothing by this: the fast disk that we measure on gives its most, 110,000 reads a second, with a
/// response time of 11 times the unloaded one.
const BEARABLE_ALONE: u64 = 8 * 16;

/// And a line that nobody was noticed behind is short enough in any case if it takes less than this, ns: on a disk of
/// 75 us the bursts of a single tar took 17 times as long, a limit was in force half of the time, and tar took 0.56 s
/// instead of 0.27. A disk with one arm gets there with two requests.
const SHORT_LINE: u64 = 10_000_000;

/// While a limit is in force, a quarter of it is allowed for so many of so many samples: a device that was never seen
/// unloaded shows how fast it is. This costs a hundredth or two.
const PROBE: u32 = 2;
const PROBE_EVERY: u32 = 64;

/// Reads of a sample that say something about response times.
const LEAST_READS: u64 = 8;

/// What the counts were at some time. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// When, ns.
    pub at: u64,
    /// Reads that the device has completed, the bytes, and the sum of their response times, ns.
    pub reads: u64,
    pub bytes: u64,
    pub read_ns: u64,
    /// Bytes of them that our processes were given.
    pub ours: u64,
}

/// What is known of one device.
#[derive(Clone, Debug, Default)]
pub struct Courtesy {
    before: Option<Counts>,
    /// The greatest excess of the device's bytes over ours, and the latest values of that.
    excess: u64,
    excesses: [u64; MEMORY],
    delivered: [u64; MEMORY],
    samples: usize,
    /// Least response time, and the present one, ns; 0: not known.
    unloaded: u64,
    response: u64,
    /// Requests in flight, ours and others', on the average of the latest sample.
    in_flight: u64,
    /// The greatest throughput over response time so far, and the number in flight at which that was.
    power: u64,
    concurrency: u32,
    /// The greatest throughput, reads a second; forgotten like the least response time.
    rate: u64,
    allowed: Option<u32>,
    /// Others were noticed at the latest sample.
    others: bool,
    /// Samples since a limit is in force.
    in_force: u32,
}

impl Courtesy {
    /// New counts; returns how many requests we may have in flight. None: as many as we like.
    pub fn sample(&mut self, now: Counts) -> Option<u32> {
        let Some(before) = self.before.replace(now) else {
            self.excess = now.bytes.saturating_sub(now.ours);
            self.excesses = [self.excess; MEMORY];
            self.delivered = [now.bytes; MEMORY];
            return None;
        };
        self.excess = self.excess.max(now.bytes.saturating_sub(now.ours));
        self.samples = (self.samples + 1) % MEMORY;
        let mut after = (self.excess, now.bytes);
        let mut noticed = true;
        for back in 1..=WINDOWS {
            let at = (self.samples + MEMORY - back * WINDOW) % MEMORY;
            let before = (self.excesses[at], self.delivered[at]);
            let part = after.1.saturating_sub(before.1) / NOTICED_PART;
            noticed &= after.0.saturating_sub(before.0) >= NOTICED.max(part);
            after = before;
        }
        self.others = noticed;
        self.excesses[self.samples] = self.excess;
        self.delivered[self.samples] = now.bytes;
        let reads = now.reads.saturating_sub(before.reads);
        let elapsed = now.at.saturating_sub(before.at).max(1);
        if reads >= LEAST_READS {
            self.measured(reads, now.read_ns.saturating_sub(before.read_ns), elapsed);
        }
        if reads >= LEAST_READS {
            let (bearable, short) = if noticed { (BEARABLE, 0) } else { (BEARABLE_ALONE, SHORT_LINE) };
            self.decide(bearable, short);
        }
        match self.allowed {
            Some(allowed) if self.in_force % PROBE_EVERY < PROBE => Some((allowed / 4).max(1)),
            allowed => allowed,
        }
    }

    fn measured(&mut self, reads: u64, read_ns: u64, elapsed: u64) {
        self.response = (read_ns / reads).max(1);
        self.in_flight = read_ns / elapsed;
        // Devices change (a volume is throttled, a laptop's disk spins down): the least one of an hour ago is
        // forgotten, at a rate that doubles it in a minute.
        let forgotten = self.unloaded.saturating_add(self.unloaded / 4096);
        self.unloaded = if self.unloaded == 0 { self.response } else { self.response.min(forgotten) };
        // In thousands of reads a second, for each ms of response time.
        let rate = u128::from(reads) * 1_000_000_000 / u128::from(elapsed);
        let forgotten = self.rate - self.rate / 4096;
        self.rate = u64::try_from(rate).unwrap_or(u64::MAX).max(forgotten);
        let power = u64::try_from(rate * 1_000_000 / u128::from(self.response)).unwrap_or(u64::MAX);
        if power >= self.power {
            self.power = power;
            self.concurrency = u32::try_from(self.in_flight).unwrap_or(u32::MAX).max(1);
        }
    }

    fn decide(&mut self, bearable: u64, short: u64) {
        let now = u32::try_from(self.in_flight).unwrap_or(u32::MAX).max(1);
        let line = self.response.saturating_sub(self.unloaded);
        let too_long = line > short && line / 8 > (self.unloaded / 64).saturating_mul(bearable);
        let Some(allowed) = self.allowed else {
            // What is in flight now is where giving way begins.
            self.allowed = too_long.then_some(now);
            self.in_force = 0;
            return;
        };
        self.in_force = self.in_force.wrapping_add(1);
        // What a probe did, and the sample after it, say nothing about the limit.
        if self.in_force % PROBE_EVERY <= PROBE {
            return;
        }
        self.allowed = if too_long {
            // As far as the line is too long, at most by half.
            let fits = u128::from(self.unloaded) * u128::from(8 + bearable) / 8;
            let fits = u128::from(allowed) * fits / u128::from(self.response);
            Some(u32::try_from(fits).unwrap_or(allowed).max(allowed / 2).max(self.filling()))
        } else if allowed / 4 > now {
            // It is not this limit that keeps us.
            None
        } else {
            Some(allowed.saturating_add(allowed.div_ceil(8)))
        };
    }

    /// How many in flight keep the device as busy as it ever was, if none stands in line (greatest rate times least
    /// response time). Less than that shortens nobody's line: what makes responses slow then is something else, a busy
    /// processor or a slow day. (Without this floor a busy machine talked the limit down to 1, and two programs that
    /// took 0.6 s took 16.)
    fn filling(&self) -> u32 {
        let many = u128::from(self.rate) * u128::from(self.unloaded) / 1_000_000_000;
        u32::try_from(many).unwrap_or(u32::MAX).max(1)
    }

    /// How many the device serves at once, as far as it was seen: where throughput over response time was greatest. 0: not
    /// known.
    pub fn concurrency(&self) -> u32 {
        self.concurrency
    }

    /// Whether others were seen to read from the device lately.
    pub fn others(&self) -> bool {
        self.others
    }

    /// Response time of the unloaded device, as far as it was seen, ns. 0: not known.
    pub fn unloaded(&self) -> u64 {
        self.unloaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: u64 = 20_000_000;

    /// A device that serves `servers` at once in 1 ms each, us with as many in flight as we are allowed (512 else),
    /// and somebody who reads one page after another, if `others`.
    struct Fake {
        servers: u64,
        counts: Counts,
        courtesy: Courtesy,
    }

    impl Fake {
        fn new(servers: u64) -> Fake {
            Fake { servers, counts: Counts::default(), courtesy: Courtesy::default() }
        }

        /// Returns what is allowed and the response time.
        fn tick(&mut self, allowed: Option<u32>, others: bool) -> (Option<u32>, u64) {
            let ours = u64::from(allowed.unwrap_or(512).min(512));
            let in_flight = ours + u64::from(others);
            let response = 1_000_000 * in_flight.max(self.servers) / self.servers;
            let reads = in_flight * TICK / response;
            self.counts.at += TICK;
            self.counts.reads += reads;
            self.counts.read_ns += reads * response;
            self.counts.bytes += reads * PAGE;
            // What is in flight counts as ours already, more of it at some times than at others.
            let asked = (reads - reads / in_flight * u64::from(others)) * PAGE;
            self.counts.ours += asked;
            let mut counts = self.counts;
            counts.ours += self.counts.at / TICK % 4 * ours / 4 * PAGE;
            (self.courtesy.sample(counts), response)
        }
    }

    #[test]
    fn alone_there_is_no_limit_but_a_deep_one() {
        let mut fake = Fake::new(64);
        for _ in 0..200 {
            assert_eq!(fake.tick(None, false).0, None);
        }
        let mut fake = Fake::new(1);
        for _ in 0..3 {
            fake.tick(Some(1), false);
        }
        let mut allowed = None;
        for _ in 0..200 {
            (allowed, _) = fake.tick(allowed, false);
        }
        assert!(allowed.is_some_and(|allowed| (12..=22).contains(&allowed)), "{allowed:?}");
    }

    #[test]
    fn beside_others_the_line_goes_away_and_the_device_stays_full() {
        for servers in [1, 4, 64] {
            let mut fake = Fake::new(servers);
            // Somebody was there before us, so the unloaded response time is known.
            for _ in 0..20 {
                fake.tick(Some(0), true);
            }
            let mut allowed = None;
            for _ in 0..100 {
                (allowed, _) = fake.tick(allowed, true);
            }
            let (mut worst, mut full) = (0, 0);
            for _ in 0..100 {
                let (next, response) = fake.tick(allowed, true);
                full += u64::from(u64::from(next.unwrap()) + 1 >= servers);
                (allowed, worst) = (next, worst.max(response));
            }
            assert!(full >= 90, "{servers}: {full}");
            let most = if servers < 8 { 2_000_000 } else { 1_450_000 };
            assert!(worst <= most, "{servers}: {worst}");
            // They leave, and so does the limit.
            for _ in 0..5 * MEMORY {
                (allowed, worst) = fake.tick(allowed, false);
            }
            let deep = u64::from(allowed.unwrap_or(512).min(512));
            assert!(deep >= (16 * servers).min(512), "{servers}: {allowed:?}, {worst}");
        }
    }

    /// Others who read from a device that nobody has to wait for there are no reason for anything.
    #[test]
    fn without_a_line_there_is_no_limit() {
        let mut fake = Fake::new(64);
        for _ in 0..200 {
            assert_eq!(fake.tick(Some(60), true).0, None);
        }
    }

    /// Responses that are slow for another reason are none to stop for.
    #[test]
    fn a_busy_machine_does_not_talk_us_down_to_nothing() {
        let mut fake = Fake::new(64);
        for _ in 0..10 {
            fake.tick(Some(40), true);
        }
        let mut allowed = None;
        for _ in 0..300 {
            let before = fake.counts;
            (allowed, _) = fake.tick(Some(allowed.unwrap_or(40).min(40)), true);
            // Everything took twice as long, whatever was in flight.
            fake.counts.read_ns += fake.counts.read_ns - before.read_ns;
        }
        assert!(allowed.is_none_or(|allowed| allowed >= 10), "{allowed:?}");
    }

    /// What was never unloaded is learnt by giving way.
    #[test]
    fn finds_the_unloaded_response_time_from_a_full_device() {
        let mut fake = Fake::new(64);
        for _ in 0..10 {
            fake.tick(Some(200), true);
        }
        let mut allowed = None;
        for _ in 0..300 {
            (allowed, _) = fake.tick(allowed, true);
        }
        assert!((1_000_000..1_050_000).contains(&fake.courtesy.unloaded()));
        assert!((60..=90).contains(&allowed.unwrap()), "{allowed:?}");
    }

    proptest! {
        #[test]
        fn never_panics_whatever_the_counts(
            counts in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..40),
        ) {
            let mut courtesy = Courtesy::default();
            for (at, reads, bytes, read_ns, ours) in counts {
                if let Some(allowed) = courtesy.sample(Counts { at, reads, bytes, read_ns, ours }) {
                    prop_assert!(allowed >= 1);
                }
            }
        }
    }
}
