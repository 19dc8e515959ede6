//! When would a disk of this kind have answered?
//!
//! A model is a pure function of the requests so far: [`Model::admit`] takes a request's arrival and
//! gives the instant of its answer. It never sleeps and knows no clock, so the same code answers for
//! the daemon in real time and predicts in virtual time ([`predict`]) what a measurement must show.
//!
//! Times are nanoseconds of any one clock, as long as it does not run backwards.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use crate::profile::{Kind, Spinning};

/// The state of a disk between requests.
pub enum Model {
    /// Answers at once: what pace "off" and the native disk use.
    Immediate,
    Fixed(Fixed),
    Capped(Fixed, Caps),
    Hydrating(Fixed, Hydration),
    Spinning(Vec<Disk>, Spinning),
}

/// So many servers of equal, constant speed.
pub struct Fixed {
    latency_ns: u64,
    /// When each server is free again, soonest first.
    free_at: BinaryHeap<Reverse<u64>>,
}

/// What a volume is sold with. Requests pass a gate one after the other, each as fast as both caps allow.
pub struct Caps {
    requests_per_second: u64,
    bytes_per_second: u64,
    open_at: u64,
}

/// Blocks that are yet to be brought from elsewhere at their first touch.
pub struct Hydration {
    first_ns: u64,
    block: u64,
    touched: HashSet<u64>,
}

/// One disk with an arm and a platter.
#[derive(Clone)]
pub struct Disk {
    free_at: u64,
    /// Where the arm stands: the byte of this disk behind the last one read or written.
    head: u64,
    /// Bytes on this disk; the arm's longest way.
    capacity: u64,
}

impl Model {
    /// `size`: bytes of the whole image. A small image is spread over the whole disk, so its arm
    /// moves as far as a full disk's would.
    pub fn new(kind: &Kind, size: u64) -> Model {
        match kind {
            Kind::Native => Model::Immediate,
            Kind::Fixed { latency_ns, parallel } | Kind::Names { latency_ns, parallel } => {
                Model::Fixed(Fixed::new(*latency_ns, *parallel))
            }
            Kind::Capped { latency_ns, parallel, requests_per_second, bytes_per_second } => Model::Capped(
                Fixed::new(*latency_ns, *parallel),
                Caps {
                    requests_per_second: *requests_per_second,
                    bytes_per_second: *bytes_per_second,
                    open_at: 0,
                },
            ),
            Kind::Hydrating { first_ns, block, latency_ns, parallel } => Model::Hydrating(
                Fixed::new(*latency_ns, *parallel),
                Hydration { first_ns: *first_ns, block: *block, touched: HashSet::new() },
            ),
            Kind::Spinning(figures) => {
                let capacity = (size / figures.disks as u64).max(1);
                Model::Spinning(vec![Disk { free_at: 0, head: 0, capacity }; figures.disks], figures.clone())
            }
        }
    }

    /// A request for `length` bytes at `offset` arrives at `now`: when is it answered?
    pub fn admit(&mut self, now: u64, offset: u64, length: u64) -> u64 {
        match self {
            Model::Immediate => now,
            Model::Fixed(fixed) => fixed.admit(now),
            Model::Capped(fixed, caps) => {
                let passes = caps.admit(now, length);
                fixed.admit(passes)
            }
            Model::Hydrating(fixed, blocks) => {
                let first = blocks.is_first(offset, length.max(1));
                fixed.serve(now, if first { blocks.first_ns } else { fixed.latency_ns })
            }
            Model::Spinning(disks, figures) => pieces(figures, offset, length.max(1))
                .into_iter()
                .map(|(disk, position, length)| disks[disk].admit(figures, now, position, length))
                .max()
                .unwrap_or(now),
        }
    }
}

impl Fixed {
    fn new(latency_ns: u64, parallel: usize) -> Fixed {
        Fixed { latency_ns, free_at: (0..parallel).map(|_| Reverse(0)).collect() }
    }

    fn admit(&mut self, now: u64) -> u64 {
        self.serve(now, self.latency_ns)
    }

    /// The same for a request that takes `takes` ns.
    fn serve(&mut self, now: u64, takes: u64) -> u64 {
        let Some(mut soonest) = self.free_at.peek_mut() else {
            return now;
        };
        let answered = soonest.0.max(now) + takes;
        *soonest = Reverse(answered);
        answered
    }
}

impl Caps {
    /// When a request of so many bytes that arrives at `now` may be served.
    fn admit(&mut self, now: u64, length: u64) -> u64 {
        let passes = self.open_at.max(now);
        let takes =
            (1_000_000_000 / self.requests_per_second).max(length * 1_000_000_000 / self.bytes_per_second);
        self.open_at = passes + takes;
        passes
    }
}

impl Hydration {
    /// Whether one of the blocks is touched for the first time.
    fn is_first(&mut self, offset: u64, length: u64) -> bool {
        let blocks = offset / self.block..=(offset + length - 1) / self.block;
        // Each is touched, not only up to the first that is new.
        blocks.filter(|&block| self.touched.insert(block)).count() > 0
    }
}

impl Disk {
    fn admit(&mut self, figures: &Spinning, now: u64, position: u64, length: u64) -> u64 {
        let start = self.free_at.max(now);
        // What follows the last request comes from the disk's own buffer, which has read on.
        let positioned = if position == self.head { start } else { self.position(figures, start, position) };
        self.head = position + length;
        self.free_at = positioned + length * 1_000_000_000 / figures.bytes_per_second;
        self.free_at
    }

    /// Moves the arm, then waits until the platter has turned to the place.
    fn position(&self, figures: &Spinning, start: u64, position: u64) -> u64 {
        let way = self.head.abs_diff(position) as f64 / self.capacity as f64;
        let span = (figures.seek_max_ns - figures.seek_min_ns) as f64;
        let arrived = start + figures.seek_min_ns + (span * way.min(1.0).sqrt()) as u64;
        let track =
            (figures.bytes_per_second as u128 * figures.turn_ns as u128 / 1_000_000_000).max(1) as u64;
        let wanted = (position % track) as u128 * figures.turn_ns as u128 / track as u128;
        let angle = arrived % figures.turn_ns;
        arrived + (wanted as u64 + figures.turn_ns - angle) % figures.turn_ns
    }
}

/// Cuts a request at the stripes: (disk, position on it, length), what is adjacent on a disk joined.
fn pieces(figures: &Spinning, offset: u64, length: u64) -> Vec<(usize, u64, u64)> {
    let mut found: Vec<(usize, u64, u64)> = Vec::new();
    let (mut at, end) = (offset, offset + length);
    while at < end {
        let stripe = at / figures.stripe;
        let within = at % figures.stripe;
        let take = (figures.stripe - within).min(end - at);
        let disk = (stripe % figures.disks as u64) as usize;
        let position = stripe / figures.disks as u64 * figures.stripe + within;
        match found.iter_mut().find(|piece| piece.0 == disk && piece.1 + piece.2 == position) {
            Some(piece) => piece.2 += take,
            None => found.push((disk, position, take)),
        }
        at += take;
    }
    found
}

/// What a measurement of random reads should show.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Prediction {
    pub mean_latency_ns: f64,
    pub reads_per_second: f64,
}

/// Runs random reads of `length` bytes through the model in virtual time, `depth` always in flight.
pub fn predict(kind: &Kind, size: u64, length: u64, depth: usize, reads: usize) -> Prediction {
    let mut model = Model::new(kind, size);
    let mut random = Random::new(1);
    let mut in_flight: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(0)).collect();
    let (mut waited, mut last) = (0u128, 0);
    for _ in 0..reads {
        let Some(Reverse(now)) = in_flight.pop() else {
            break;
        };
        let answered = model.admit(now, random.aligned_offset(size, length), length);
        waited += u128::from(answered - now);
        last = last.max(answered);
        in_flight.push(Reverse(answered));
    }
    Prediction {
        mean_latency_ns: waited as f64 / reads as f64,
        reads_per_second: reads as f64 * 1e9 / last.max(1) as f64,
    }
}

/// A small, repeatable source of random numbers (xorshift64*); statistics need no more.
pub struct Random(u64);

impl Random {
    /// `seed` 0 is taken as 1, the one value that this generator cannot leave.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).max(1))
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// An offset at which a block of `length` bytes, aligned to its own length, fits in `size`.
    pub fn aligned_offset(&mut self, size: u64, length: u64) -> u64 {
        (self.number() % (size / length).max(1)) * length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    const SIZE: u64 = 1 << 30;

    fn kind(name: &str) -> Kind {
        Profile::by_name(name).unwrap().kind
    }

    #[test]
    fn fixed_latency_is_the_same_up_to_the_parallel_limit_and_queues_beyond() {
        let mut model = Model::new(&Kind::Fixed { latency_ns: 10, parallel: 2 }, SIZE);
        assert_eq!(model.admit(100, 0, 4096), 110);
        assert_eq!(model.admit(100, 0, 4096), 110);
        assert_eq!(model.admit(100, 0, 4096), 120);
        assert_eq!(model.admit(200, 0, 4096), 210);
    }

    #[test]
    fn a_capped_volume_serves_its_requests_and_bytes_a_second_and_no_more() {
        let mean = |depth, length| predict(&kind("gp3"), SIZE, length, depth, 20_000);
        assert_eq!(mean(1, 4096).mean_latency_ns.round(), 700_000.0);
        let requests = mean(64, 4096).reads_per_second;
        assert!((2_950.0..=3_001.0).contains(&requests), "{requests}");
        let bytes = mean(64, 128 << 10).reads_per_second * f64::from(128 << 10);
        assert!((123e6..=125.1e6).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_hydrating_volume_is_slow_at_the_first_touch_of_each_block() {
        let kind = Kind::Hydrating { first_ns: 40, block: 512 << 10, latency_ns: 1, parallel: 4 };
        let mut model = Model::new(&kind, SIZE);
        assert_eq!(model.admit(0, 4096, 4096), 40);
        assert_eq!(model.admit(100, 0, 4096), 101);
        // Over the edge of a block that was touched and one that was not.
        assert_eq!(model.admit(200, (512 << 10) - 4096, 8192), 240);
    }

    #[test]
    fn cloud_is_predicted_at_its_own_figures() {
        assert_eq!(predict(&kind("cloud"), SIZE, 4096, 1, 1000).reads_per_second.round(), 1000.0);
        assert_eq!(predict(&kind("cloud"), SIZE, 4096, 16, 16_000).reads_per_second.round(), 16_000.0);
        let saturated = predict(&kind("cloud"), SIZE, 4096, 256, 64_000).reads_per_second.round();
        assert_eq!(saturated, 64_000.0);
    }

    #[test]
    fn the_papers_disk_answers_in_12_to_15_ms_on_average() {
        for length in [4096, 8192] {
            let mean = predict(&kind("disk1"), SIZE, length, 1, 20_000).mean_latency_ns / 1e6;
            assert!((12.0..=15.0).contains(&mean), "{length} bytes: {mean} ms");
        }
    }

    #[test]
    fn four_disks_serve_up_to_four_times_the_reads_and_no_more() {
        let one = predict(&kind("array4"), SIZE, 4096, 1, 5_000).reads_per_second;
        let many = predict(&kind("array4"), SIZE, 4096, 64, 20_000).reads_per_second;
        assert!((3.5..=4.1).contains(&(many / one)), "{one} {many}");
    }

    #[test]
    fn a_sequential_read_pays_transfer_alone() {
        let mut model = Model::new(&kind("disk1"), SIZE);
        let first = model.admit(0, 1 << 20, 65536);
        assert_eq!(model.admit(first, (1 << 20) + 65536, 4000) - first, 1_000_000);
    }

    #[test]
    fn a_request_over_a_stripe_boundary_is_served_by_both_disks() {
        let Kind::Spinning(figures) = kind("array4") else { panic!("array4 spins") };
        let across = pieces(&figures, 65536 - 4096, 8192);
        assert_eq!(across, vec![(0, 65536 - 4096, 4096), (1, 0, 4096)]);
        let whole_row = pieces(&figures, 0, 8 * 65536);
        assert_eq!(whole_row.len(), 4);
        assert!(whole_row.iter().all(|piece| piece.2 == 2 * 65536));
    }

    #[test]
    fn answers_never_precede_their_requests() {
        for (name, _) in crate::profile::KNOWN {
            let mut model = Model::new(&kind(name), SIZE);
            let mut random = Random::new(7);
            let mut now = 0;
            for _ in 0..10_000 {
                now += random.number() % 3_000_000;
                let length = 1 + random.number() % (256 << 10);
                assert!(model.admit(now, random.number() % (SIZE - length), length) >= now);
            }
        }
    }
}
