//! Which of a program's threads speculation runs ahead of where page faults say what is waited for.
//!
//! One speculation from faults runs for a process. Threads that share work wait in turn or together: the one that is run
//! ahead of is through with its share soon, and sleeps until the others are. So speculation goes over to a thread that
//! waits once the one that it is for has had no fault for a while.
//!
//! Rule: a thread that faults keeps it; what is lost by a wrong answer is one restart in [`QUIET_NS`].

/// Without a fault for so long, ns, a thread does not go through pages that are missing: it computes, or sleeps.
const QUIET_NS: u64 = 10_000_000;

/// Or it still waits in its latest one: for so many of the longest waits of late.
const WAITS: u64 = 4;

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Followed {
    /// The followed thread's latest fault, ns; 0: it has had none since it is followed.
    latest: u64,
    /// The longest of the waits of late, ns.
    longest: u64,
}

impl Followed {
    /// Some thread has waited so long in a fault.
    pub fn waited(&mut self, ns: u64) {
        self.longest = ns.max(self.longest - self.longest / 8);
    }

    /// It was looked at the faults, at this time (ns, never 0), and the followed thread has had some or not. True if
    /// speculation may go over to another thread that waits.
    pub fn looked(&mut self, now: u64, has_faulted: bool) -> bool {
        if has_faulted || self.latest == 0 {
            self.latest = now;
        }
        now.saturating_sub(self.latest) >= QUIET_NS.max(WAITS.saturating_mul(self.longest))
    }

    /// It goes over to another thread, which has just faulted.
    pub fn changes(&mut self, now: u64) {
        self.latest = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn who_faults_keeps_it_and_who_is_quiet_loses_it() {
        let mut followed = Followed::default();
        assert!((1..100).all(|at| !followed.looked(at * MS, at % 5 == 0)));
        assert!(!followed.looked(104 * MS, false));
        assert!(followed.looked(105 * MS, false));
        followed.changes(105 * MS);
        assert!(!followed.looked(114 * MS, false));
    }

    #[test]
    fn a_wait_on_a_slow_disk_is_no_sleep() {
        let mut followed = Followed::default();
        followed.waited(15 * MS);
        assert!(!followed.looked(MS, true) && !followed.looked(60 * MS, false));
        assert!(followed.looked(61 * MS, false));
        // Of late.
        (0..60).for_each(|_| followed.waited(MS));
        assert!(!followed.looked(70 * MS, true) && followed.looked(80 * MS, false));
    }

    proptest! {
        /// Changes are as rare as is said.
        #[test]
        fn rare(steps in prop::collection::vec((1u64..20 * MS, any::<bool>(), 0u64..9 * MS), 0..200)) {
            let (mut followed, mut now, mut changed) = (Followed::default(), 1, None::<u64>);
            for (step, has_faulted, waited) in steps {
                now += step;
                followed.waited(waited);
                if followed.looked(now, has_faulted) {
                    prop_assert!(changed.is_none_or(|at| now - at >= QUIET_NS));
                    followed.changes(now);
                    changed = Some(now);
                }
            }
        }
    }
}
