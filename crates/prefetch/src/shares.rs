//! Shares: several programs prefetch from one device, and into one memory.
//!
//! Each says in a *slot* what it wants and what it gains, and reads the others' slots; from these, each
//! works out its own share by the same arithmetic ([`divide`]), so nobody has to preside. The slots lie in
//! one place that all can read; how they get there (a file, a daemon's socket) is the front end's concern.
//!
//! Nothing in a slot is trusted. It is read into private memory first, has a check sum (a torn or scribbled
//! slot counts as empty), its figures are clamped, and they can move somebody else's share only between a
//! floor, half of an equal part, and the whole: a source that claims the greatest need and the greatest
//! gain gets the rest, never a program's floor. What a program allows itself is further bounded by its own
//! measurements, which are in its own memory.

use crate::benefit::{Share, WHOLE};

/// Devices that one program speaks of. Programs that read from more at once are rare; the rest is then
/// prefetched at the floor.
pub const DEVICES: usize = 4;

/// Bytes of an encoded slot.
pub const SLOT: usize = 256;

/// Greatest claim that is taken at face value: the greatest level of [`crate::device`].
const MOST: u32 = 256;

const MAGIC: u64 = 0x3130_6461_6568_6152; // "Rahead01", little-endian

/// What one program says of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Device number (`st_dev`); 0: nothing.
    pub device: u64,
    /// Requests that it would have in flight if it were alone.
    pub wants: u32,
    /// What the device serves at once, as this program has measured it; 0: not yet.
    pub concurrency: u32,
    /// Response time, unloaded, ns.
    pub latency: u64,
    /// Its accuracy: gain for each prefetch.
    pub accuracy: Share,
}

/// What one program says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// When it was written, ns; an old one is a program that sleeps, and wants nothing.
    pub written: u64,
    /// Pages prefetched and not yet used.
    pub pages: u64,
    pub claims: [Claim; DEVICES],
}

impl Slot {
    pub fn encode(&self) -> [u8; SLOT] {
        let mut words = [0u64; SLOT / 8];
        words[0] = MAGIC;
        words[2] = self.written;
        words[3] = self.pages;
        for (claim, words) in self.claims.iter().zip(words[4..].chunks_exact_mut(4)) {
            words[0] = claim.device;
            words[1] = u64::from(claim.wants) | u64::from(claim.concurrency) << 32;
            words[2] = claim.latency;
            words[3] = u64::from(claim.accuracy);
        }
        words[1] = check(&words);
        let mut bytes = [0; SLOT];
        for (word, bytes) in words.iter().zip(bytes.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// None if there is no slot in these bytes. Figures come out clamped.
    pub fn decode(bytes: &[u8]) -> Option<Slot> {
        let mut words = [0u64; SLOT / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.get(..SLOT)?.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        if words[0] != MAGIC || words[1] != check(&words) {
            return None;
        }
        let mut slot = Slot { written: words[2], pages: words[3], ..Slot::default() };
        for (claim, words) in slot.claims.iter_mut().zip(words[4..].chunks_exact(4)) {
            *claim = Claim {
                device: words[0],
                wants: (words[1] as u32).min(MOST),
                concurrency: ((words[1] >> 32) as u32).min(MOST),
                latency: words[2],
                accuracy: words[3].min(u64::from(WHOLE)) as Share,
            };
        }
        Some(slot)
    }

    /// What this program says of a device.
    pub fn claim(&self, device: u64) -> Option<&Claim> {
        self.claims.iter().find(|claim| device != 0 && claim.device == device)
    }
}

/// Every word but the check itself. No protection against malice, which clamping is for.
fn check(words: &[u64; SLOT / 8]) -> u64 {
    words.iter().enumerate().filter(|(at, _)| *at != 1).fold(0xcbf2_9ce4_8422_2325, |sum, (_, word)| {
        (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

/// What a device serves at once, from one's own measurement and the others' claims: the greatest, but no
/// more than twice one's own, so that a liar can at most double a queue.
pub fn capacity(own: u32, others: impl Iterator<Item = u32>) -> u32 {
    let own = own.clamp(1, MOST);
    others.map(|claimed| claimed.min(2 * own)).fold(own, u32::max)
}

/// Divides `capacity` requests in flight among programs with these `wants` and weights (their accuracies);
/// writes each one's part to `parts`. The slices' common length counts.
///
/// Everyone who wants something gets half of an equal part first, as far as he wants it; the rest goes by
/// weight, and what somebody does not want goes to the others. Where there are more programs than requests
/// (a spinning disk), they take turns: `turn` is a number that all know and that changes with time.
pub fn divide(capacity: u32, wants: &[u32], weights: &[Share], turn: u64, parts: &mut [u32]) {
    let count = wants.len().min(weights.len()).min(parts.len());
    let (wants, weights, parts) = (&wants[..count], &weights[..count], &mut parts[..count]);
    parts.fill(0);
    let active = wants.iter().filter(|&&wants| wants > 0).count() as u32;
    if active == 0 {
        return;
    }
    if active > capacity {
        let waiting = parts.iter_mut().zip(wants).filter(|(_, wants)| **wants > 0);
        for (nth, (part, _)) in (0u64..).zip(waiting) {
            let place = (nth + u64::from(active) - turn % u64::from(active)) % u64::from(active);
            *part = u32::from(place < u64::from(capacity));
        }
        return;
    }
    let floor = (capacity / (2 * active)).max(1);
    let mut left = capacity;
    for (part, wants) in parts.iter_mut().zip(wants) {
        *part = floor.min(*wants);
        left -= *part;
    }
    // One at a time to whoever has least for his weight: at most 256 steps, and nothing to round.
    while left > 0 {
        let next = (0..count).filter(|&at| parts[at] < wants[at]).min_by_key(|&at| {
            let weight = u64::from(weights[at].clamp(1, WHOLE));
            ((u64::from(parts[at]) + 1) << 32) / weight
        });
        let Some(next) = next else { return };
        parts[next] += 1;
        left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn divided(capacity: u32, wants: &[u32], weights: &[Share]) -> Vec<u32> {
        let mut parts = vec![0; wants.len()];
        divide(capacity, wants, weights, 0, &mut parts);
        parts
    }

    #[test]
    fn equals_get_equal_parts_and_what_one_leaves_goes_to_the_other() {
        assert_eq!(divided(64, &[64, 64], &[WHOLE, WHOLE]), [32, 32]);
        assert_eq!(divided(64, &[64, 8], &[WHOLE, WHOLE]), [56, 8]);
        assert_eq!(divided(64, &[64, 0], &[WHOLE, WHOLE]), [64, 0]);
        assert_eq!(divided(64, &[256], &[0]), [64]);
    }

    #[test]
    fn a_wrong_source_gets_the_floor_and_a_greedy_one_cannot_take_it() {
        assert_eq!(divided(64, &[64, 64], &[WHOLE, 0]), [48, 16]);
        assert_eq!(divided(64, &[u32::MAX, 64], &[u32::MAX, WHOLE / 2]), [43, 21]);
    }

    #[test]
    fn on_one_arm_they_take_turns() {
        let mut totals = [0; 3];
        for turn in 0..30 {
            let mut parts = [0; 4];
            divide(1, &[5, 0, 5, 5], &[WHOLE; 4], turn, &mut parts);
            assert_eq!(parts.iter().sum::<u32>(), 1);
            for (total, at) in totals.iter_mut().zip([0, 2, 3]) {
                *total += parts[at];
            }
        }
        assert_eq!(totals, [10, 10, 10]);
    }

    #[test]
    fn a_liar_can_at_most_double_a_queue() {
        assert_eq!(capacity(4, [256, 3].into_iter()), 8);
        assert_eq!(capacity(64, [16].into_iter()), 64);
        assert_eq!(capacity(0, [].into_iter()), 1);
    }

    fn claim() -> impl Strategy<Value = Claim> {
        (any::<u64>(), 0..=MOST, 0..=MOST, any::<u64>(), 0..=WHOLE).prop_map(
            |(device, wants, concurrency, latency, accuracy)| Claim {
                device,
                wants,
                concurrency,
                latency,
                accuracy,
            },
        )
    }

    proptest! {
        #[test]
        fn nobody_starves_and_nothing_is_given_twice(
            capacity in 0..300u32,
            claims in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..40),
            turn: u64,
        ) {
            let (wants, weights): (Vec<u32>, Vec<u32>) = claims.into_iter().unzip();
            let mut parts = vec![0; wants.len()];
            divide(capacity, &wants, &weights, turn, &mut parts);
            prop_assert!(parts.iter().map(|p| u64::from(*p)).sum::<u64>() <= u64::from(capacity));
            let active = wants.iter().filter(|w| **w > 0).count() as u32;
            for (part, wants) in parts.iter().zip(&wants) {
                prop_assert!(part <= wants);
                if active <= capacity && *wants > 0 {
                    prop_assert!(*part >= (*wants).min((capacity / (2 * active)).max(1)));
                }
            }
        }

        #[test]
        fn slots_come_out_as_they_went_in(
            written: u64, pages: u64, claims in proptest::array::uniform4(claim()),
        ) {
            let slot = Slot { written, pages, claims };
            prop_assert_eq!(Slot::decode(&slot.encode()), Some(slot));
        }

        #[test]
        fn a_scribbled_slot_counts_as_empty(at in 0..160usize, with in 1..=255u8) {
            let mut bytes = Slot { written: 7, ..Slot::default() }.encode();
            bytes[at] ^= with;
            prop_assert_eq!(Slot::decode(&bytes), None);
        }

        #[test]
        fn bytes_of_any_number_are_no_slot_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Slot::decode(&bytes).is_none());
        }
    }

    /// Someone who knows the check sum can claim anything, and gets it clamped.
    #[test]
    fn figures_are_clamped() {
        let greedy =
            Claim { device: 1, wants: u32::MAX, concurrency: u32::MAX, latency: 1, accuracy: u32::MAX };
        let slot = Slot { claims: [greedy; DEVICES], ..Slot::default() };
        let read = Slot::decode(&slot.encode()).unwrap();
        assert_eq!(
            *read.claim(1).unwrap(),
            Claim { wants: MOST, concurrency: MOST, accuracy: WHOLE, ..greedy }
        );
        assert_eq!(read.claim(0), None);
    }
}
