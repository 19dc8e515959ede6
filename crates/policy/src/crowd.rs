//! Does a program look names up in many threads at once, and when is the host told?
//!
//! Who does waits in parallel already. The agent leaves no notes of such waits, as look-ups ahead only take the program's processors. But
//! what the host has begun before goes on, so it hears of the crowd: now, and later and later for as long as it lasts.

/// Threads in look-ups beside one that waits from which on the program helps itself. (git status looks names up in 20 threads. Of 9000
/// names the host looked 1858 up beside it without this, 612 with; on a disk of 75 us it is slower than alone all the same, 82 to 93 ms
/// for 60.)
const BESIDE: u32 = 3;

/// Waits after such a one for which the program is still thought to.
const LASTS: u32 = 64;

/// Waits of a crowd until the host is told, and at least from one time to the next; then half as many as there were so far. What the
/// disk does from one time to the next tells whether it is quick, and a program that goes on for hours is not to wake the host for each few.
const TOLD_EVERY: u32 = 32;

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crowd {
    lasts: u32,
    /// Waits with so many beside, since it is one.
    waits: u32,
    due: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Nobody else waits: worth a note.
    Alone,
    Crowd,
    /// A crowd's, of which the host is to hear.
    Tell,
}

impl Crowd {
    /// A look-up has waited; so many other threads were in one when it began.
    pub fn waited(&mut self, beside: u32) -> Wait {
        if beside >= BESIDE {
            self.lasts = LASTS;
            self.waits = self.waits.saturating_add(1);
            if self.waits < self.due.max(TOLD_EVERY) {
                return Wait::Crowd;
            }
            self.due = self.waits.saturating_add((self.waits / 2).max(TOLD_EVERY));
            return Wait::Tell;
        }
        self.lasts = self.lasts.saturating_sub(1);
        if self.lasts > 0 {
            return Wait::Crowd;
        }
        *self = Crowd::default();
        Wait::Alone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_told_of_later_and_later() {
        let mut crowd = Crowd::default();
        let told: Vec<u32> = (1..=1_000_000).filter(|_| crowd.waited(BESIDE) == Wait::Tell).collect();
        assert_eq!(told[..5], [32, 64, 96, 144, 216]);
        assert!(told.len() < 30, "{}", told.len());
    }

    #[test]
    fn a_coincidence_is_no_crowd() {
        let mut crowd = Crowd::default();
        assert_eq!(crowd.waited(BESIDE), Wait::Crowd);
        for _ in 1..LASTS {
            assert_eq!(crowd.waited(0), Wait::Crowd);
        }
        assert!((0..10_000).all(|_| crowd.waited(BESIDE - 1) == Wait::Alone));
        // Nor do rare ones add up.
        for _ in 0..1000 {
            assert_eq!(crowd.waited(BESIDE), Wait::Crowd);
            assert!((0..LASTS).all(|_| crowd.waited(0) != Wait::Tell));
        }
    }
}
