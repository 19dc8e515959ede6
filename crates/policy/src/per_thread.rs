//! What is known of a few of a process's threads, at a bounded size.
//!
//! Threads are told apart by a number that is never 0 and may come back as another thread's. Of many threads
//! that come by in turn the latest few would each time have pushed out the others, and nobody would ever be
//! met again. So one that finds no room is mostly passed over: each so-many-th takes the place of another.

/// Threads that are kept at once: as many as are run ahead of at once.
const KEPT: usize = 4;

/// One in so many strangers takes a place, so each kept thread stays for 64 of them: pools are smaller.
const STRANGERS: u8 = 16;

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerThread<T> {
    each: [(usize, T); KEPT],
    /// The place that is taken next, and strangers that were passed over since the latest one.
    next: u8,
    strangers: u8,
}

impl<T: Copy> PerThread<T> {
    /// Nobody is kept; `nothing` is what is known of nobody.
    pub const fn new(nothing: T) -> PerThread<T> {
        PerThread { each: [(0, nothing); KEPT], next: 0, strangers: 0 }
    }

    pub fn get(&self, thread: usize) -> Option<&T> {
        self.each.iter().find(|(kept, _)| *kept == thread && thread != 0).map(|(_, known)| known)
    }

    pub fn get_mut(&mut self, thread: usize) -> Option<&mut T> {
        self.each.iter_mut().find(|(kept, _)| *kept == thread && thread != 0).map(|(_, known)| known)
    }

    /// A thread that is not kept comes by, of which `known` is known. True if it is kept from now on.
    pub fn meets(&mut self, thread: usize, known: T) -> bool {
        let has_room = self.each.iter().any(|(kept, _)| *kept == 0);
        self.strangers += 1;
        if !has_room && self.strangers < STRANGERS {
            return false;
        }
        self.strangers = 0;
        if let Some(place) = self.each.get_mut(usize::from(self.next)) {
            *place = (thread, known);
        }
        self.next = (self.next + 1) % KEPT as u8;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often in `rounds` each of so many threads, which take turns, is met again.
    fn met(threads: usize, rounds: u32) -> Vec<u32> {
        let mut known = PerThread::new(0u32);
        let mut met = vec![0; threads];
        for round in 0..rounds {
            for thread in 1..=threads {
                match known.get(thread) {
                    Some(_) => met[thread - 1] += 1,
                    None => _ = known.meets(thread, round),
                }
            }
        }
        met
    }

    #[test]
    fn few_threads_are_always_known() {
        assert_eq!(met(1, 10), [9]);
        assert_eq!(met(4, 10), [9; 4]);
    }

    #[test]
    fn of_many_some_are_met_again() {
        for threads in [5, 8, 16, 32, 60] {
            let met: u32 = met(threads, 100).iter().sum();
            assert!(met >= 100, "of {threads} threads {met} were met");
        }
    }

    #[test]
    fn who_comes_after_all_others_have_gone_is_known_soon() {
        let mut known = PerThread::new(());
        (1..=4).for_each(|thread| assert!(known.meets(thread, ())));
        let tries = (0..).take_while(|_| !known.meets(5, ())).count();
        assert!(tries < usize::from(STRANGERS), "{tries}");
        assert!(known.get(5).is_some() && known.get(1).is_none() && known.get(0).is_none());
    }
}
