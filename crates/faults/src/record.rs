//! Records in a perf ring.
//!
//! The kernel writes records one after the other into a ring of bytes; a record may wrap. Each begins with its
//! kind and size (perf_event_open(2)). Only samples are looked at; what is malformed ends the reading.

/// One page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub instruction: u64,
    pub address: u64,
}

const SAMPLE: u32 = 9;
const HEADER: usize = 8;
/// The instruction and the address follow the header.
const SAMPLE_BYTES: usize = HEADER + 2 * 8;

/// Takes the records from `tail` to `head` (bytes, only ever growing) out of the ring.
pub fn faults(ring: &[u8], tail: u64, head: u64, mut each: impl FnMut(Fault)) {
    let mut at = tail;
    // Of more than the ring holds nothing can be made sense of.
    if ring.is_empty() || head.wrapping_sub(tail) > ring.len() as u64 {
        return;
    }
    while head.wrapping_sub(at) >= HEADER as u64 {
        let word = word(ring, at);
        let (kind, size) = (word as u32, (word >> 48) as usize);
        if size < HEADER || size as u64 > head.wrapping_sub(at) {
            return;
        }
        if kind == SAMPLE && size >= SAMPLE_BYTES {
            let instruction = self::word(ring, at.wrapping_add(8));
            each(Fault { instruction, address: self::word(ring, at.wrapping_add(16)) });
        }
        at = at.wrapping_add(size as u64);
    }
}

/// Eight bytes of the ring, from anywhere in it.
fn word(ring: &[u8], at: u64) -> u64 {
    let mut bytes = [0; 8];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = ring[(at.wrapping_add(index as u64) % ring.len() as u64) as usize];
    }
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(ring: &mut [u8], at: u64, kind: u32, words: &[u64]) -> u64 {
        let size = HEADER + 8 * words.len();
        let header = u64::from(kind) | (size as u64) << 48;
        let all = std::iter::once(&header).chain(words).flat_map(|word| word.to_le_bytes());
        for (index, byte) in all.enumerate() {
            ring[(at as usize + index) % ring.len()] = byte;
        }
        at + size as u64
    }

    #[test]
    fn samples_are_found_around_the_end_of_the_ring() {
        let mut ring = [0; 64];
        let at = write(&mut ring, 40, SAMPLE, &[1, 2]);
        let at = write(&mut ring, at, 2, &[5]);
        let head = write(&mut ring, at, SAMPLE, &[3, 4]);
        let mut found = Vec::new();
        faults(&ring, 40, head, |fault| found.push(fault));
        let fault = |instruction, address| Fault { instruction, address };
        assert_eq!(found, [fault(1, 2), fault(3, 4)]);
    }

    proptest! {
        /// Whatever is there: no more samples than fit, and no panic.
        #[test]
        fn garbage_is_survived(ring in prop::collection::vec(any::<u8>(), 0..256), tail: u64, ahead in 0u64..600) {
            let mut found = 0;
            faults(&ring, tail, tail.wrapping_add(ahead), |_| found += 1);
            prop_assert!(found * SAMPLE_BYTES <= ring.len());
        }
    }
}
