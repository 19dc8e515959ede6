//! On track or off track: is the speculation of the present epoch still the program's future?
//!
//! The agent compares each read of the program with the next entry of the hint log. The papers restart
//! speculation when a read that was not hinted would block; three refinements were measured in the prototype:
//!
//! - An **empty** log means that the speculator is late, not wrong. The program passes the operation
//!   and counts on the entry appearing later. While the speculator gains on the program it is let be; only
//!   [`LAG_STALLS`] stalls in a row at which it had not come closer make it a restart: a speculator that
//!   computes as fast as its program and runs behind it never overtakes (agrep on a fast disk: 70% of its
//!   reads were passed by a speculator that saw them later than the program).
//!   Unless the speculator has stopped: then nothing more will come, and the next stall restarts it.
//! - A **mismatch** is final for the epoch: what speculation hints from then on is waste. It is told to
//!   stop at once, and the next stall (this very one, if the read stalls) restarts it. Dependent
//!   programs gain by many short runs; backing off after short runs did harm.
//! - A **foretold** read that stalls is a partial prefetch: it is under way, waiting is all there is
//!   to do.

/// What the log says about the program's present operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The next entry is this very operation.
    Foretold,
    /// The next entry is another operation.
    Different,
    /// No entry yet, and the speculator is at work.
    NotYet,
    /// No entry, and none will come in this epoch.
    Never,
}

/// Whether the log advances past the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passing {
    /// The operation belongs to the epoch: the program has passed one more.
    Pass,
    /// The epoch is over; `cancel`: tell the speculator, which does not know yet.
    Off { cancel: bool },
}

/// What to do at a stall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtStall {
    /// Block; the data is under way or the speculator is only late.
    Block,
    /// Post: restart speculation from here.
    Post,
}

/// Stalls on an empty log, none of which found the speculator closer, that are put down to a late speculator:
/// the prototypes' value; with fewer, programs whose speculator had to fill its mirror first were restarted
/// over and over.
pub const LAG_STALLS: u32 = 6;

/// The program's standing towards its speculator. Starts off track.
#[derive(Clone, Copy, Default, Debug)]
pub struct Track {
    on: bool,
    late_stalls: u32,
    /// The least gap of the present lag, in operations.
    gap: u32,
    foretold: bool,
}

impl Track {
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Nothing is predicted any more. True if something was.
    pub fn leaves(&mut self) -> bool {
        core::mem::take(&mut self.on)
    }

    /// The program does a read; `next` is only looked at while on track.
    pub fn passes(&mut self, next: Next) -> Passing {
        self.foretold = false;
        if !self.on {
            return Passing::Off { cancel: false };
        }
        match next {
            Next::Foretold => {
                self.foretold = true;
                self.late_stalls = 0;
                Passing::Pass
            }
            Next::NotYet => Passing::Pass,
            Next::Different => {
                self.on = false;
                Passing::Off { cancel: true }
            }
            Next::Never => {
                self.on = false;
                Passing::Off { cancel: false }
            }
        }
    }

    /// The read that [`Track::passes`] was last asked about has to wait for the disk. `gap`: how many
    /// operations the program has passed that the log does not hold yet.
    pub fn stalls(&mut self, gap: u32) -> AtStall {
        if !self.on {
            return AtStall::Post;
        }
        if self.foretold {
            return AtStall::Block;
        }
        if self.late_stalls == 0 || gap < self.gap {
            self.gap = gap;
            self.late_stalls = 1;
            return AtStall::Block;
        }
        self.late_stalls += 1;
        if self.late_stalls <= LAG_STALLS {
            return AtStall::Block;
        }
        self.on = false;
        AtStall::Post
    }

    /// A post was made: a new epoch begins with the present operation passed.
    pub fn posted(&mut self) {
        *self = Track { on: true, ..Track::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on() -> Track {
        let mut track = Track::default();
        track.posted();
        track
    }

    #[test]
    fn starts_off_track_and_posts_at_the_first_stall() {
        let mut track = Track::default();
        assert_eq!(track.passes(Next::Foretold), Passing::Off { cancel: false });
        assert_eq!(track.stalls(0), AtStall::Post);
    }

    #[test]
    fn a_foretold_stall_is_waited_for() {
        let mut track = on();
        for _ in 0..100 {
            assert_eq!(track.passes(Next::Foretold), Passing::Pass);
            assert_eq!(track.stalls(0), AtStall::Block);
        }
        assert!(track.is_on());
    }

    #[test]
    fn a_mismatch_cancels_once_and_the_same_stall_posts() {
        let mut track = on();
        assert_eq!(track.passes(Next::Different), Passing::Off { cancel: true });
        assert_eq!(track.stalls(0), AtStall::Post);
        assert_eq!(track.passes(Next::Different), Passing::Off { cancel: false });
    }

    #[test]
    fn lag_is_tolerated_for_some_stalls_in_a_row() {
        let mut track = on();
        for _ in 0..LAG_STALLS {
            assert_eq!(track.passes(Next::NotYet), Passing::Pass);
            assert_eq!(track.stalls(0), AtStall::Block);
        }
        assert_eq!(track.passes(Next::NotYet), Passing::Pass);
        assert_eq!(track.stalls(0), AtStall::Post);
    }

    #[test]
    fn a_speculator_that_comes_closer_is_let_be() {
        let mut track = on();
        for gap in (1..100).rev() {
            assert_eq!(track.passes(Next::NotYet), Passing::Pass);
            assert_eq!(track.stalls(gap), AtStall::Block);
        }
        for _ in 1..LAG_STALLS {
            assert_eq!(track.stalls(2), AtStall::Block);
        }
        assert_eq!(track.stalls(2), AtStall::Post);
    }

    #[test]
    fn a_foretold_read_ends_a_lag() {
        let mut track = on();
        for _ in 0..LAG_STALLS {
            track.passes(Next::NotYet);
            track.stalls(0);
        }
        track.passes(Next::Foretold);
        track.passes(Next::NotYet);
        assert_eq!(track.stalls(0), AtStall::Block);
    }

    #[test]
    fn a_stopped_speculator_is_restarted_at_the_next_stall() {
        let mut track = on();
        assert_eq!(track.passes(Next::Never), Passing::Off { cancel: false });
        assert_eq!(track.stalls(0), AtStall::Post);
    }
}
