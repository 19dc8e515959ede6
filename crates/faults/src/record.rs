//! Records in a perf ring.
//!
//! The kernel writes records one after the other into a ring of bytes; a record may wrap. Each begins with its
//! kind and size (perf_event_open(2)). Only samples are looked at; what is malformed ends the reading.

/// One page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub instruction: u64,
    /// When it began, in ns of the kernel's own clock, which begins anywhere.
    pub time: u64,
    pub address: u64,
    /// The registers at the instruction, in the order of [`REGISTERS`]; None where the kernel has none (32 bits).
    pub registers: Option<[u64; REGISTERS_COUNT]>,
}

/// The registers that are recorded, as bits of `enum perf_event_x86_regs`: ax bx cx dx si di bp sp ip flags, and r8
/// to r15.
pub const REGISTERS: u64 = 0xff_03ff;
pub const REGISTERS_COUNT: usize = 18;

/// What the record says of the registers: there are those of a 64-bit program.
const ABI_64: u64 = 2;

const SAMPLE: u32 = 9;
const HEADER: usize = 8;
/// The instruction, the time and the address follow the header.
const SAMPLE_BYTES: usize = HEADER + 3 * 8;
const WITH_REGISTERS: usize = SAMPLE_BYTES + 8 + 8 * REGISTERS_COUNT;

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
            let time = self::word(ring, at.wrapping_add(16));
            let address = self::word(ring, at.wrapping_add(24));
            let whole = size >= WITH_REGISTERS && self::word(ring, at.wrapping_add(32)) == ABI_64;
            let register = |number: usize| self::word(ring, at.wrapping_add(40 + 8 * number as u64));
            let registers = whole.then(|| std::array::from_fn(register));
            each(Fault { instruction, time, address, registers });
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
        let mut ring = [0; 80];
        let at = write(&mut ring, 56, SAMPLE, &[1, 7, 2]);
        let at = write(&mut ring, at, 2, &[5]);
        let head = write(&mut ring, at, SAMPLE, &[3, 8, 4]);
        let mut found = Vec::new();
        faults(&ring, 56, head, |fault| found.push(fault));
        let fault = |instruction, time, address| Fault { instruction, time, address, registers: None };
        assert_eq!(found, [fault(1, 7, 2), fault(3, 8, 4)]);
    }

    #[test]
    fn registers_follow_the_address() {
        let mut ring = [0; 512];
        let words: Vec<u64> = [1, 7, 2, ABI_64].into_iter().chain(10..10 + REGISTERS_COUNT as u64).collect();
        let head = write(&mut ring, 0, SAMPLE, &words);
        let mut found = Vec::new();
        faults(&ring, 0, head, |fault| found.push(fault));
        assert_eq!(found[0].registers, Some(std::array::from_fn(|at| 10 + at as u64)));
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
