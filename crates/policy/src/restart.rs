//! At a read that waits: whether speculation restarts there, and how the program waits for it.
//!
//! The order in which the machines are asked, in one place, so that the agent and a replayed trace ask alike.
//! Each of them may say no; what is asked first decides what the later ones come to know.

use crate::following::Following;
use crate::futile::Futile;
use crate::hold::{Hold, Wait};
use crate::pieces::Pieces;
use crate::regret::may_spend;
use crate::track::{AtStall, Track};
use crate::worth::Worth;

/// The machines of one thread.
pub struct Machines<'a> {
    pub track: &'a mut Track,
    pub following: &'a mut Following,
    pub pieces: &'a mut Pieces,
    pub hold: &'a mut Hold,
    pub worth: &'a mut Worth,
    pub futile: &'a mut Futile,
}

/// A read that waits.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    pub foretold: bool,
    /// Operations that the program has passed and the log does not hold yet.
    pub gap: u32,
    /// Other threads have had their turns since this one has restarted.
    pub waits_for_turn: bool,
    /// More than one thread reads from the disk at present.
    pub has_company: bool,
    /// What the latest sync took, ns; 0: there was none.
    pub sync: u64,
    /// A server that brings the data may be asked.
    pub may: bool,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restart {
    /// Nothing.
    No,
    /// Nothing: speculation is late.
    Late,
    /// Speculation restarts here, and the program waits for it so.
    Post(Wait),
}

/// What a process and its speculators have been through.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    pub stalls: u64,
    /// Stalls that are let pass, as kin have gained nothing.
    pub patience: u32,
    /// Processor time of speculators, ns.
    pub spent: u64,
    /// Time waited for what nobody had asked for, ns.
    pub waited: u64,
    /// Time of waits that did not happen, ns.
    pub saved: u64,
}

impl Past {
    /// Whether speculation is to wait yet.
    pub fn is_patient(self) -> bool {
        self.stalls <= u64::from(self.patience) || !may_spend(self.spent, self.waited, self.saved)
    }
}

impl Machines<'_> {
    /// A read of `bytes` was looked at. `sync`: what the latest sync took, ns; `now` tells the time in ns.
    pub fn read(&mut self, foretold: bool, bytes: u64, sync: u64, now: impl FnOnce() -> u64) {
        self.following.read(foretold);
        self.pieces.read(bytes);
        if foretold {
            self.futile.foretold();
        }
        self.worth.read(foretold, self.hold.expected_stall(), sync, now);
    }

    /// Whether to restart at `stall`. Asked where somebody is there for it and [`Past`] has nothing against
    /// it.
    pub fn at_stall(&mut self, stall: Stall) -> Restart {
        match self.track.stalls(stall.gap) {
            AtStall::Block if stall.foretold => return Restart::No,
            AtStall::Block if !stall.waits_for_turn => return Restart::Late,
            AtStall::Block | AtStall::Post => self.hold.posts(),
        }
        let wait = match self.hold.wait(stall.sync) {
            // What the others go on with is torn all the same.
            Wait::Invest(_) if stall.has_company => Wait::Not,
            wait => wait,
        };
        // What is invested in a hold was saved up for that.
        let posting = self.worth.posting() || matches!(wait, Wait::Invest(_));
        if posting && stall.may && self.futile.may_restart() { Restart::Post(wait) } else { Restart::No }
    }
}
