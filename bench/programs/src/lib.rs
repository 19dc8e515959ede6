//! What the measured programs share: a repeatable source of random numbers and a checksum.
//!
//! They are ordinary programs: they know nothing of Runahead, read with plain `pread` calls or through a
//! mapping, and print a checksum of all that they read, so that a wrong byte shows in the comparison of
//! outputs. Those that take `--hints` are then what a programmer makes of them by hand.

pub mod btree;

use std::fs::File;
use std::os::fd::AsRawFd;

/// Repeatable random numbers (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        scramble(self.0)
    }

    /// Below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }
}

/// Every bit of the result depends on every bit of `value` (splitmix64's finish).
pub fn scramble(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Discloses a read to come, as a programmer would by hand. The kernel may ignore it, and so may we.
pub fn hint(file: &File, offset: u64, length: u64) {
    // SAFETY: advice on an open descriptor touches no memory of ours.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset as i64, length as i64, libc::POSIX_FADV_WILLNEED) };
}

/// Depends on every byte and their order (FNV-1a over words of eight).
#[derive(Debug)]
pub struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Checksum {
        Checksum(0xCBF2_9CE4_8422_2325)
    }
}

impl Checksum {
    pub fn add(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            self.0 = (self.0 ^ u64::from_le_bytes(padded)).wrapping_mul(0x100_0000_01B3);
        }
    }

    pub fn value(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_sees_a_byte_and_the_order() {
        let sum = |parts: &[&[u8]]| {
            let mut sum = Checksum::default();
            parts.iter().for_each(|part| sum.add(part));
            sum.value()
        };
        assert_ne!(sum(&[b"12345678"]), sum(&[b"12345679"]));
        assert_ne!(sum(&[b"12345678", b"abcdefgh"]), sum(&[b"abcdefgh", b"12345678"]));
        assert_eq!(sum(&[b"12345678abcdefgh"]), sum(&[b"12345678", b"abcdefgh"]));
    }

    #[test]
    fn random_numbers_repeat_and_spread() {
        let mut first = Random::new(1);
        let mut second = Random::new(1);
        let numbers: Vec<u64> = (0..1000).map(|_| first.below(10)).collect();
        assert!(numbers.iter().all(|number| *number == second.below(10)));
        assert!((0..10).all(|digit| numbers.iter().filter(|number| **number == digit).count() > 50));
    }
}
