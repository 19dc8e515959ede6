//! Does a read that may not wait (`RWF_NOWAIT`) start the read of what it misses?
//!
//! Newer kernels start it. Older ones (5.10, 6.1) only say that it is missing: who takes that for a
//! prefetch has asked the disk for nothing. No flag and no call tells the two apart, but the bytes do
//! that devices were asked for on the process's account. Until that is known, what is missed is
//! requested besides, which is harmless where it is on its way already.
//!
//! Errs towards requesting twice: that costs 1 us, where a request too few costs the whole gain.

/// Misses of which the account told nothing (it may not be kept, or the pages were on their way),
/// after which nobody looks any more.
const MAX_UNCLEAR: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// No miss has been met: nothing is to be looked at, so that where no file system tells of misses
    /// nobody pays for it.
    Unmet,
    Unknown {
        unclear: u8,
    },
    Starts,
    OnlyTells,
}

#[derive(Clone, Copy, Debug)]
pub struct Misses {
    kernel: Kernel,
}

impl Misses {
    pub const fn new() -> Misses {
        Misses { kernel: Kernel::Unmet }
    }

    /// Whether the account is to be looked at before and behind the next read.
    pub fn is_unknown(&self) -> bool {
        matches!(self.kernel, Kernel::Unknown { .. })
    }

    /// Whether a miss is known to start the read.
    pub fn starts(&self) -> bool {
        self.kernel == Kernel::Starts
    }

    /// A read has missed, and was not looked at.
    pub fn met(&mut self) {
        if self.kernel == Kernel::Unmet {
            self.kernel = Kernel::Unknown { unclear: 0 };
        }
    }

    /// A read has missed: devices were asked for so many bytes by the read itself, and for so many by
    /// a request for the same that followed it.
    pub fn saw(&mut self, by_read: u64, by_request: u64) {
        let Kernel::Unknown { unclear } = self.kernel else { return };
        self.kernel = match (by_read, by_request) {
            (1.., _) => Kernel::Starts,
            (0, 1..) => Kernel::OnlyTells,
            _ if unclear + 1 >= MAX_UNCLEAR => Kernel::OnlyTells,
            _ => Kernel::Unknown { unclear: unclear + 1 },
        };
    }
}

impl Default for Misses {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_asked_the_device_starts_it() {
        let mut misses = Misses::new();
        assert!(!misses.is_unknown() && !misses.starts());
        misses.met();
        assert!(misses.is_unknown() && !misses.starts());
        misses.saw(4096, 0);
        assert!(misses.starts() && !misses.is_unknown());
        // Once known it is not looked at any more.
        misses.saw(0, 4096);
        assert!(misses.starts());
    }

    #[test]
    fn a_request_that_had_to_ask_shows_that_the_read_did_not() {
        let mut misses = Misses::new();
        misses.met();
        misses.saw(0, 4096);
        assert!(!misses.starts() && !misses.is_unknown());
    }

    #[test]
    fn pages_on_their_way_tell_nothing() {
        let mut misses = Misses::new();
        misses.met();
        for _ in 1..MAX_UNCLEAR {
            misses.saw(0, 0);
            assert!(misses.is_unknown());
        }
        let mut late = misses;
        late.saw(4096, 0);
        assert!(late.starts());
        misses.saw(0, 0);
        assert!(!misses.is_unknown() && !misses.starts());
    }
}
