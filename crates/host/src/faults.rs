//! Which processes' page faults are watched, and what is counted about them.

use crate::session::{Session, SharedSlot};
use crate::supervise::wake;
use runahead_abi::session::{Slot, watching};
use runahead_faults::{Counts, Watch};
use std::sync::atomic::{AtomicU64, Ordering};

/// The watch over one process, from its first large mapping on.
#[derive(Default)]
pub struct Faults {
    watch: Option<Watch>,
    begun: bool,
}

impl Faults {
    /// Begins, or ends for good, as the program in the slot wants it.
    pub fn attend(&mut self, process: u32, session: &Session, index: usize) {
        let slot = session.slot(index);
        if slot.agent.watch_wanted.load(Ordering::Acquire) == 0 {
            return;
        }
        if slot.agent.retire.load(Ordering::Acquire) != 0 {
            self.begun = true;
            self.stop();
            say(slot, watching::GONE);
        } else if !self.begun {
            self.begun = true;
            match Watch::start(process, InSlot(session.share_slot(index))) {
                Ok(watch) => {
                    self.watch = Some(watch);
                    say(slot, watching::ON);
                }
                Err(error) => {
                    let number = error.raw_os_error().unwrap_or(libc::EIO);
                    slot.faults.refused.store(number as u32, Ordering::Relaxed);
                    say(slot, watching::GONE);
                }
            }
        }
    }

    /// Ends it: from now on nothing is held open, and nothing written into the slot.
    pub fn stop(&mut self) {
        self.watch = None;
    }
}

fn say(slot: &Slot, state: u32) {
    if slot.faults.watching.swap(state, Ordering::Release) != state {
        wake(&slot.faults.watching);
    }
}

/// Counts into a slot; the watch ends before the slot is freed.
struct InSlot(SharedSlot);

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Counts for InSlot {
    fn armed(&self) {
        add(&self.0.get().faults.armed, 1);
    }

    fn looked(&self, faults: u64, asked: u64, useful: u64) {
        let part = &self.0.get().faults;
        add(&part.faults, faults);
        add(&part.asked, asked);
        add(&part.useful, useful);
    }
}
