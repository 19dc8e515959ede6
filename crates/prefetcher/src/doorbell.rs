//! The doorbell: wakes the manager when something has come in, and costs a giver nothing while it is awake.
//!
//! The sleeper says that it is about to sleep, looks once more, and sleeps. The ringer puts its thing in,
//! then looks whether somebody sleeps. Both touch one word by exchanging its value, so these touches have an
//! order and the later one sees all that was done before the earlier: either the ringer finds the sleeper's
//! mark, or the sleeper finds the ringer's thing. Waking may erase the mark with a plain store: whoever had
//! found it has rung. The sleep itself, thread parking, remembers a wake-up that comes too early.

use super::sync::{AtomicBool, Ordering};

#[derive(Debug)]
pub struct Doorbell {
    asleep: AtomicBool,
}

impl Doorbell {
    #[allow(clippy::new_without_default)] // Not const with the model's atomics, so no static needs one.
    pub fn new() -> Self {
        Self { asleep: AtomicBool::new(false) }
    }

    /// After something was put in: whether the caller has to wake the sleeper. True for one of several.
    pub fn ring(&self) -> bool {
        self.asleep.swap(false, Ordering::AcqRel)
    }

    /// About to sleep: whoever puts something in from here on rings. Look once more after this.
    pub fn doze(&self) {
        self.asleep.swap(true, Ordering::AcqRel);
    }

    /// Awake again.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}
