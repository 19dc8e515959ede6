//! How closely the agent watches: a program that only hits must hardly pay.
//!
//! Asking whether a read would wait costs some 0.3 us, a 4 KiB hit 0.25 us. So the agent looks at each
//! read only while there were stalls lately (*active*), and else at a sample (*calm*): the stub that
//! each intercepted call passes counts down, in 2 ns, and enters the agent when the count runs out.

/// Reads without a stall after which an active agent calms down: long enough to span a program's
/// computing between two cold files, short enough (0.1 ms) to be nothing for a warm one.
pub const CALM_AFTER: u32 = 256;

/// The first reads of a process, all looked at: a cold program stalls on one of these.
pub const FIRST_LOOK: u32 = 32;

/// Calls skipped between two looks when calm, in the mean; doubles from the first to the second with each calm
/// look. At 64 a look costs a 4 KiB read 2%; a stalling program is noticed within some 64 reads.
pub const SKIP_FIRST: u32 = 7;
pub const SKIP_MOST: u32 = 63;
/// The most that are skipped between two looks.
pub const SKIP_LONGEST: u32 = SKIP_MOST / 2 + SKIP_MOST;

/// Reads looked at once something may have waited unseen: as many as it takes to tell that reads wait where each is judged when the next
/// is made, and each second one is of a file's end.
pub const SUSPECT_LOOKS: u32 = 6;

/// Where the numbers that spread the looks begin; any but 0.
const SEED: u32 = 0x9E37_79B9;

/// The next of numbers that look like chance, all but 0, in a circle of 2^32 - 1 (Marsaglia, Xorshift RNGs,
/// 2003).
fn next(mut number: u32) -> u32 {
    number ^= number << 13;
    number ^= number >> 17;
    number ^ number << 5
}

const _: () =
    assert!(SUSPECT_LOOKS < FIRST_LOOK && CALM_AFTER < 1 << 12 && FIRST_LOOK < 1 << 12 && SKIP_MOST < 1 << 8);

#[derive(Clone, Copy, Debug)]
pub struct Attention {
    quiet: u32,
    limit: u32,
    skip: u32,
    /// Where in its range the latest skip was, of 2^32.
    spread: u32,
}

impl Default for Attention {
    fn default() -> Self {
        Self { quiet: 0, limit: FIRST_LOOK, skip: SKIP_FIRST, spread: SEED }
    }
}

impl Attention {
    /// As [`Attention::word`] has packed it; 0 is the start.
    pub fn of_word(word: u64) -> Self {
        match word {
            0 => Self::default(),
            _ => Self {
                quiet: word as u32 & 0xFFF,
                limit: (word >> 12) as u32 & 0xFFF,
                skip: (word >> 24) as u32 & 0xFF,
                spread: (word >> 32) as u32,
            },
        }
    }

    /// All of it in one word. Threads share it: one that is late overwrites what another has just seen, which
    /// costs some looks.
    pub fn word(&self) -> u64 {
        let quiet = u64::from(self.quiet.min(self.limit));
        quiet | u64::from(self.limit) << 12 | u64::from(self.skip) << 24 | u64::from(self.spread) << 32
    }

    /// True while every read is looked at.
    pub fn active(&self) -> bool {
        self.quiet < self.limit
    }

    /// A read was looked at and had all it wanted. Returns how many calls may pass unseen: half to one and a
    /// half times the mean. (A program that makes two calls for each file, one for its data and one for its
    /// end, had every 64th call seen, and that was always the end.)
    pub fn hit(&mut self) -> u32 {
        self.quiet = self.quiet.saturating_add(1);
        if self.active() {
            return 0;
        }
        let mean = self.skip;
        self.skip = (mean * 2 + 1).min(SKIP_MOST);
        self.spread = next(self.spread);
        mean / 2 + ((u64::from(self.spread) * u64::from(mean + 1)) >> 32) as u32
    }

    /// Something may have waited unseen.
    pub fn suspect(&mut self) {
        self.quiet = self.quiet.min(self.limit - SUSPECT_LOOKS);
    }

    /// A read had to wait, or would have had without its prefetch.
    pub fn stall(&mut self) {
        *self = Self { quiet: 0, limit: CALM_AFTER, skip: SKIP_FIRST, spread: self.spread };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_same_in_a_word() {
        let (mut whole, mut packed) = (Attention::default(), 0);
        for step in 0..3000 {
            let mut unpacked = Attention::of_word(packed);
            if step == 1000 {
                whole.stall();
                unpacked.stall();
            } else {
                assert_eq!(whole.hit(), unpacked.hit(), "at {step}");
            }
            packed = unpacked.word();
        }
    }

    fn calm() -> Attention {
        let mut attention = Attention::default();
        for _ in 1..FIRST_LOOK {
            assert_eq!(attention.hit(), 0);
        }
        attention
    }

    #[test]
    fn who_may_wait_unseen_is_looked_at_for_a_while() {
        let mut attention = calm();
        assert!(attention.hit() > 0);
        attention.suspect();
        for _ in 1..SUSPECT_LOOKS {
            assert_eq!(attention.hit(), 0);
        }
        assert!(is_about(attention.hit(), 15));
        attention.stall();
        attention.suspect();
        assert!((1..CALM_AFTER).all(|_| attention.hit() == 0));
    }

    fn is_about(skip: u32, mean: u32) -> bool {
        (mean / 2..=mean / 2 + mean).contains(&skip)
    }

    #[test]
    fn calms_down_by_and_by_and_wakes_at_once() {
        let mut attention = calm();
        assert!(is_about(attention.hit(), SKIP_FIRST));
        assert!(is_about(attention.hit(), 15));
        let skips: Vec<u32> = (0..1000).map(|_| attention.hit()).collect();
        assert!(skips[1..].iter().all(|&skip| is_about(skip, SKIP_MOST)));
        let mean = skips.iter().sum::<u32>() / 1000;
        assert!((SKIP_MOST - 1..=SKIP_MOST + 1).contains(&mean), "{mean}");
        attention.stall();
        assert!(attention.active());
        for _ in 1..CALM_AFTER {
            assert_eq!(attention.hit(), 0);
        }
        assert!(attention.hit() > 0);
    }

    /// Whatever a program does each time for a file, each of its calls is looked at once in a while.
    #[test]
    fn no_call_of_a_loop_is_never_looked_at() {
        for period in 2..=32 {
            for stalls in 0..3 {
                let mut attention = calm();
                for _ in 0..stalls {
                    attention.stall();
                    while attention.hit() == 0 {}
                }
                let (mut call, mut seen) = (0, vec![0; period as usize]);
                for _ in 0..16 * period {
                    call += attention.hit() + 1;
                    seen[(call % period) as usize] += 1;
                }
                assert!(seen.iter().all(|&seen| seen >= 4), "{period}: {seen:?}");
            }
        }
    }
}
