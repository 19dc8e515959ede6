//! Does the program wait for the small files that it maps?
//!
//! To map a file waits for nothing: what waits is the first touch of a page that is not there, if one comes.
//! Many a program maps more than it touches (look-ups in one of many tables, libraries). So a mapping of a
//! cold file is taken for the beginning of a wait if page faults of its thread have waited for the disk after
//! one of the latest such mappings: the kernel counts these faults apart (`ru_majflt`), and neither computing
//! nor a sleep for another reason does.
//!
//! Rule: a wrong answer loses a post in vain, or lets a wait go by.

use crate::per_thread::PerThread;

/// Mappings on end without a wait after which the next are not taken for one either.
const TRUST: u8 = 4;

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mapped {
    threads: PerThread<Latest>,
    trust: u8,
}

/// A thread's latest mapping. Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
struct Latest {
    /// It has not been judged yet.
    is_open: bool,
    /// Faults of the thread that had waited before it; of such numbers the lower half does.
    before: u32,
}

impl Mapped {
    pub const fn new() -> Mapped {
        Mapped { threads: PerThread::new(Latest { is_open: false, before: 0 }), trust: 0 }
    }

    /// Whether a mapping of what is not cached is taken for the beginning of a wait.
    pub fn is_waited_for(&self) -> bool {
        self.trust > 0
    }

    /// A thread (never 0), of whose faults so many have waited, maps what is not known to be cached.
    pub fn begins(&mut self, thread: usize, waited: u32) {
        let latest = Latest { is_open: true, before: waited };
        match self.threads.get_mut(thread) {
            Some(known) => *known = latest,
            None => _ = self.threads.meets(thread, latest),
        }
    }

    /// Whether a mapping of a thread's is to be judged.
    pub fn is_open(&self, thread: usize) -> bool {
        self.threads.get(thread).is_some_and(|latest| latest.is_open)
    }

    /// A thread, of whose faults so many have waited, maps something again.
    pub fn ends(&mut self, thread: usize, waited: u32) {
        let Some(latest) = self.threads.get_mut(thread) else { return };
        if core::mem::take(&mut latest.is_open) {
            self.trust = if waited != latest.before { TRUST } else { self.trust.saturating_sub(1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of mappings behind which the thread's faults wait where `waits` says so.
    fn said(mapped: &mut Mapped, waits: &[bool]) -> Vec<bool> {
        let mut waited = 9;
        let say = |&waits: &bool| {
            mapped.ends(1, waited);
            mapped.begins(1, waited);
            waited += u32::from(waits);
            mapped.is_waited_for()
        };
        waits.iter().map(say).collect()
    }

    #[test]
    fn who_touches_what_it_maps_waits_for_it() {
        assert_eq!(said(&mut Mapped::new(), &[true; 4]), [false, true, true, true]);
        // One of four is enough.
        let some = [true, false, false, false, true, false, false, false, true];
        assert!(said(&mut Mapped::new(), &some).into_iter().skip(1).all(|said| said));
    }

    #[test]
    fn who_does_not_touch_it_waits_for_nothing() {
        let mut mapped = Mapped::new();
        assert!(said(&mut mapped, &[false; 9]).into_iter().all(|said| !said));
        said(&mut mapped, &[true, false, false, false, false, false]);
        assert!(!mapped.is_waited_for());
    }

    #[test]
    fn another_thread_tells_nothing_and_hides_nothing() {
        let mut mapped = Mapped::new();
        mapped.begins(1, 5);
        mapped.begins(2, 70);
        mapped.ends(2, 70);
        assert!(mapped.is_open(1) && !mapped.is_open(2) && !mapped.is_waited_for());
        mapped.ends(1, 6);
        assert!(mapped.is_waited_for());
    }
}
