//! Does speculation say what the program does, or does it only run after it?
//!
//! Being on track is not enough: a speculator that lags behind is on track for as long as it gains on the program, and one
//! that dies young (Python's import) is restarted again and again, on track each time. What counts is how many reads
//! were foretold lately. Where few were, files beside those that the program waits for are worth a guess; where most
//! were, speculation knows better, and guessing as well cost git grep on a fast disk a sixth of its time.

/// Reads in a row that were not foretold after which speculation is thought to say nothing. (It takes so many to be born
/// on a fast disk.)
const SILENT: u32 = 48;

/// A foretold read counts as much as so many that were not.
const FORETOLD: u32 = 4;

/// Zeros are its start: speculation is given the time to begin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Following {
    unforetold: u32,
}

impl Following {
    pub fn read(&mut self, foretold: bool) {
        self.unforetold = match foretold {
            true => self.unforetold.saturating_sub(FORETOLD),
            false => (self.unforetold + 1).min(SILENT + FORETOLD),
        };
    }

    /// True if speculation has said little of late.
    pub fn is_silent(&self) -> bool {
        self.unforetold >= SILENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pattern: impl Iterator<Item = bool>) -> bool {
        let mut following = Following::default();
        pattern.for_each(|foretold| following.read(foretold));
        following.is_silent()
    }

    #[test]
    fn silence_takes_time_and_a_few_words_end_it() {
        assert!(!after((0..47).map(|_| false)));
        assert!(after((0..48).map(|_| false)));
        assert!(!after((0..1002).map(|step| step >= 1000)));
        // One in a hundred is as good as none, one in four is not.
        assert!(after((0..1000).map(|step| step % 100 == 0)));
        assert!(!after((0..1000).map(|step| step % 4 == 0)));
    }
}
