//! What a speculator may have asked for and its program not yet passed: requests, and pages.
//!
//! [`crate::depth`] says how many operations ahead are of use to the program. This says how many are
//! bearable for everybody else: the host works it out from the memory that is left, the user's options, and
//! who else reads from the device. An operation may need no request (what it reads is cached) or several.
//!
//! While the device is what the program waits for, what was asked for and not passed is what is in flight: the
//! program passes an operation as soon as its pages arrive. While it is not, some of it has arrived already,
//! and a limit on requests is stricter than it sounds; but then the device is idle half of the time, too.
//!
//! One operation ahead is always allowed, whatever it needs: less would be no speculation.

/// Pages in a request at most (128 KB).
const REQUEST_PAGES: u32 = 32;

/// Requests and pages: those allowed, or those asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    pub requests: u32,
    pub pages: u32,
}

impl Amount {
    pub const NONE: Amount = Amount { requests: 0, pages: 0 };
    pub const UNLIMITED: Amount = Amount { requests: u32::MAX, pages: u32::MAX };

    /// `pages` more were asked for, in requests as long as may be. (Wraps: only differences count.)
    pub fn asked(&mut self, pages: u32) {
        self.requests = self.requests.wrapping_add(pages.div_ceil(REQUEST_PAGES));
        self.pages = self.pages.wrapping_add(pages);
    }

    /// What was asked for since `earlier`.
    pub fn since(&self, earlier: Amount) -> Amount {
        Amount {
            requests: self.requests.wrapping_sub(earlier.requests),
            pages: self.pages.wrapping_sub(earlier.pages),
        }
    }

    /// Whether this much is all that `allowed` allows.
    pub fn exhausts(&self, allowed: Amount) -> bool {
        self.requests >= allowed.requests || self.pages >= allowed.pages
    }

    /// How far what is ahead may have come down before more is asked for: an eighth, since each time costs the
    /// program a wake-up. (By half, a limit that just fills a device left it half empty every other time: 20,000
    /// random reads took 0.76 s, and 0.53 without a limit, on a busy machine.)
    pub fn low(&self) -> Amount {
        let low = |most: u32| most - most / 8;
        Amount { requests: low(self.requests), pages: low(self.pages) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_long_as_may_be() {
        let mut asked = Amount::NONE;
        asked.asked(0);
        assert_eq!(asked, Amount::NONE);
        asked.asked(1);
        asked.asked(33);
        assert_eq!(asked, Amount { requests: 3, pages: 34 });
        assert!(!asked.exhausts(Amount { requests: 4, pages: 35 }));
        assert!(asked.exhausts(Amount { requests: 3, pages: 100 }));
        assert!(asked.exhausts(Amount { requests: 100, pages: 34 }));
        assert!(!asked.exhausts(Amount::UNLIMITED));
    }

    #[test]
    fn differences_survive_the_turn_of_the_numbers() {
        let before = Amount { requests: u32::MAX, pages: u32::MAX - 1 };
        let mut now = before;
        now.asked(40);
        assert_eq!(now.since(before), Amount { requests: 2, pages: 40 });
    }

    #[test]
    fn what_is_little_has_to_be_used_up_by_one() {
        assert_eq!(Amount { requests: 1, pages: 64 }.low(), Amount { requests: 1, pages: 56 });
    }
}
