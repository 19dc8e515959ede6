//! Restarts that come to nothing.
//!
//! Where stalls are short a program may have read its file and closed it before the speculator looks: an
//! interpreter that imports modules does so nearly always. Such a restart costs a sync, and has gained
//! nothing for sure if until the next one nothing was foretold, no name was looked up and the disk was asked
//! for nothing. To know that takes no experiment ([`crate::worth`]), and a few are enough: after several in a
//! row as many stalls are let pass as there were futile restarts and stalls let pass before.
//!
//! Rule: who becomes foreseeable is restarted for again before it has stalled twice as often, or
//! [`PASSED_MOST`] times more.

/// Restarts in a row that came to nothing, after which the first stall is let pass. Torn starts come in twos
/// and threes where later ones are followed.
const PATIENCE: u32 = 3;

/// Stalls let pass at a time. On a cloud disk these are 64 ms.
const PASSED_MOST: u32 = 64;

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Futile {
    /// Restarts that came to nothing, halved by each that did not.
    in_a_row: u32,
    /// Stalls that are yet to be let pass.
    pause: u32,
    /// The latest restart is one to be judged at the next.
    is_open: bool,
    /// Something was foretold since.
    is_followed: bool,
    /// What speculation had done by then.
    done: u64,
}

impl Futile {
    pub const fn new() -> Futile {
        Futile { in_a_row: 0, pause: 0, is_open: false, is_followed: false, done: 0 }
    }

    /// A read was foretold.
    pub fn foretold(&mut self) {
        self.is_followed = true;
    }

    /// Whether to restart at this stall.
    pub fn may_restart(&mut self) -> bool {
        let may = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        may
    }

    /// A restart, by which speculation has `done` so much: pages asked for and names looked up. `is_served`:
    /// there is a speculator already; one that is yet to be started comes late.
    pub fn restarts(&mut self, done: u64, is_served: bool) {
        let is_futile = !core::mem::take(&mut self.is_followed) && done == self.done;
        if core::mem::replace(&mut self.is_open, is_served) {
            self.in_a_row = if is_futile { self.in_a_row.saturating_add(1) } else { self.in_a_row / 2 };
        }
        self.done = done;
        let doublings = self.in_a_row.checked_sub(PATIENCE).map(|more| more.min(PASSED_MOST.ilog2()));
        self.pause = doublings.map_or(0, |doublings| 1 << doublings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The restarts of a program at `stalls` stalls, by number; each restart does as much as `does` says.
    fn restarts(futile: &mut Futile, stalls: u32, does: impl Fn(u32) -> u64) -> Vec<u32> {
        let mut done = futile.done;
        let mut restart = |stall: u32| {
            let may = futile.may_restart();
            if may {
                futile.restarts(done, true);
                done += does(stall);
            }
            may
        };
        (0..stalls).filter(|&stall| restart(stall)).collect()
    }

    #[test]
    fn a_program_of_which_nothing_can_be_foretold_is_left_alone_more_and_more() {
        let at = restarts(&mut Futile::new(), 1000, |_| 0);
        assert_eq!(at[..9], [0, 1, 2, 3, 5, 8, 13, 22, 39]);
        assert!(at.len() <= 24, "{at:?}");
    }

    #[test]
    fn one_that_becomes_foreseeable_is_found_out_before_it_has_stalled_twice_as_often() {
        for first in [4, 10, 40, 100, 1000] {
            let at = restarts(&mut Futile::new(), 4 * first, |stall| u64::from(stall >= first));
            let next = at.into_iter().find(|&stall| stall >= first).unwrap();
            assert!(next <= (2 * first).min(first + PASSED_MOST), "{first} {next}");
        }
    }

    #[test]
    fn what_comes_to_something_is_always_restarted() {
        assert_eq!(restarts(&mut Futile::new(), 1000, |_| 1).len(), 1000);
        // Every second one does.
        assert_eq!(restarts(&mut Futile::new(), 1000, |stall| u64::from(stall % 2 == 0)).len(), 1000);
    }

    #[test]
    fn what_is_followed_has_come_to_something() {
        let mut futile = Futile::new();
        for _ in 0..1000 {
            assert!(futile.may_restart());
            futile.restarts(0, true);
            futile.foretold();
        }
    }

    #[test]
    fn a_speculator_that_is_being_started_is_waited_for() {
        let mut futile = Futile::new();
        for _ in 0..1000 {
            assert!(futile.may_restart());
            futile.restarts(0, false);
        }
    }
}
