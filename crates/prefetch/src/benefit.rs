//! Cost and benefit of one prefetch, after Patterson (TIP, 1995): both in nanoseconds of the program's time.
//!
//! *Benefit.* A read that misses costs the device's latency. The prefetch of an access that is `distance`
//! accesses ahead has the time of those accesses to hide in, and what it hides is gained if the hint is
//! right. Beyond the *prefetch horizon*, where all of the latency is hidden, being earlier gains nothing more: it
//! would only take memory longer.
//!
//! The horizon in the papers is latency / (time between reads + hit + driver), for a device with as many
//! arms as needed. A real one serves a certain number at once, so for a program that waits for nothing but
//! the disk there is a second limit: its reads cannot come faster than the device completes them, latency /
//! concurrency apart. The horizon is then the concurrency itself, twice, since what completes is not always
//! what was asked for first.
//!
//! *Cost.* The processor's time to ask; the device's time, if the hint is wrong and somebody waits for the
//! device; the page that is displaced, if memory is short.

/// A share or probability in 1/65536.
pub type Share = u32;
pub const WHOLE: Share = 1 << 16;

/// Times of one program on one device, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// A request's response time on the unloaded device.
    pub latency: u64,
    /// How many the device serves at once.
    pub concurrency: u32,
    /// The program's own time between two reads, waiting excluded.
    pub gap: u64,
    /// A read from the page cache.
    pub hit: u64,
    /// Our own time to ask for a chunk.
    pub submit: u64,
}

/// Accesses beyond which an earlier prefetch gains nothing. At least 1.
pub fn horizon(times: &Times) -> u64 {
    let between = times.gap.saturating_add(times.hit).saturating_add(times.submit);
    let concurrency = u64::from(times.concurrency.max(1));
    let fastest = times.latency / concurrency;
    // The program keeps up with its prefetches: one latency ahead is enough. Else what limits is the device.
    let ahead = times.latency.div_ceil(between.max(fastest).max(1)).min(concurrency);
    (2 * ahead).max(1)
}

/// Nanoseconds that the program is expected to wait less, if the access `distance` ahead (0: it is the next)
/// is prefetched now by a source of this accuracy.
pub fn benefit(times: &Times, distance: u64, accuracy: Share) -> u64 {
    let between = times.gap.saturating_add(times.hit);
    // Something always stands between hint and access: ourselves.
    let hidden = times.latency.min(between.saturating_mul(distance.saturating_add(1)));
    scale(hidden, accuracy.min(WHOLE))
}

/// What presses on device and memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pressure {
    /// Share of the device's time that others want.
    pub device: Share,
    /// Probability that a page displaced now is read again.
    pub refault: Share,
}

/// Nanoseconds that one prefetch of this accuracy is expected to cost, to whoever pays.
pub fn cost(times: &Times, accuracy: Share, pressure: &Pressure) -> u64 {
    let occupied = times.latency / u64::from(times.concurrency.max(1));
    let wrong = WHOLE - accuracy.min(WHOLE);
    // A right prefetch takes the device's time only earlier; a wrong one takes it from others.
    let taken = scale(scale(occupied, wrong), pressure.device.min(WHOLE));
    times.submit.saturating_add(taken).saturating_add(scale(times.latency, pressure.refault.min(WHOLE)))
}

/// Whether the kernel's own sequential read-ahead, `window` bytes at a time, keeps up with a program that
/// needs `gap` ns for each page: then the rest of a long run is better left to it, which costs nobody
/// anything. It has two windows under way: one is read while the other is fetched.
pub fn read_ahead_suffices(times: &Times, window: u64) -> bool {
    let pages = (window / crate::PAGE).max(1);
    times.latency <= pages.saturating_mul(times.gap.saturating_add(times.hit))
}

fn scale(amount: u64, share: Share) -> u64 {
    ((u128::from(amount) * u128::from(share)) >> 16) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLOUD: Times = Times { latency: 1_000_000, concurrency: 64, gap: 2000, hit: 300, submit: 1300 };

    #[test]
    fn the_horizon_of_a_fast_program_is_what_the_device_can_serve() {
        assert_eq!(horizon(&CLOUD), 128);
        assert_eq!(horizon(&Times { concurrency: 1, ..CLOUD }), 2);
    }

    #[test]
    fn the_horizon_of_a_slow_program_is_its_latency_in_reads() {
        assert_eq!(horizon(&Times { gap: 500_000, ..CLOUD }), 4);
        assert_eq!(horizon(&Times { gap: 50_000_000, ..CLOUD }), 2);
        assert_eq!(horizon(&Times::default()), 1);
    }

    #[test]
    fn a_wrong_source_is_not_worth_it_and_a_right_one_is() {
        let busy = Pressure { device: WHOLE, refault: 0 };
        let worth = |accuracy| benefit(&CLOUD, 60, accuracy) > cost(&CLOUD, accuracy, &busy);
        assert!(worth(WHOLE));
        assert!(worth(WHOLE / 2));
        assert!(!worth(WHOLE / 64));
        assert!(!worth(0));
    }

    #[test]
    fn short_memory_speaks_against_far_prefetches_first() {
        let short = Pressure { device: 0, refault: WHOLE / 2 };
        let cost = cost(&CLOUD, WHOLE, &short);
        assert!(benefit(&CLOUD, 10, WHOLE) < cost);
        assert!(benefit(&CLOUD, 1000, WHOLE) > cost);
    }

    #[test]
    fn read_ahead_is_enough_for_a_fast_disk_or_a_slow_program() {
        let window = 128 << 10;
        assert!(!read_ahead_suffices(&CLOUD, window));
        assert!(read_ahead_suffices(&Times { latency: 60_000, ..CLOUD }, window));
        assert!(read_ahead_suffices(&Times { gap: 40_000, ..CLOUD }, window));
    }

    proptest! {
        #[test]
        fn never_panics_and_grows_with_accuracy(
            latency: u64, concurrency: u32, gap: u64, hit: u64, submit: u64, distance: u64,
            first: u32, second: u32, device: u32, refault: u32,
        ) {
            let times = Times { latency, concurrency, gap, hit, submit };
            let (low, high) = (first.min(second), first.max(second));
            prop_assert!(benefit(&times, distance, low) <= benefit(&times, distance, high));
            let pressure = Pressure { device, refault };
            prop_assert!(cost(&times, low, &pressure) >= cost(&times, high, &pressure));
            prop_assert!(benefit(&times, distance, high) <= latency);
            prop_assert!(horizon(&times) >= 1);
            read_ahead_suffices(&times, latency);
        }
    }
}
