//! Who owns a slot: one word for each, in the session's header.
//!
//! ```text
//! FREE --claim (agent)--> process id --close (host)--> CLOSING --release (host)--> FREE
//! ```
//! An agent takes a free slot by compare-and-swap. The host alone gives it back, after it has cleared it:
//! whoever claims it next finds zeros, and nobody clears what the next one has written.

use crate::sync::{AtomicU32, Ordering};

/// Nobody's.
pub const FREE: u32 = 0;

/// The host is clearing up after a process; not to be claimed yet.
pub const CLOSING: u32 = u32::MAX;

/// Takes the slot for `process` if it is free. Async-signal-safe.
pub fn claim(owner: &AtomicU32, process: u32) -> bool {
    // A look without writing first: most slots that one tries are somebody's.
    owner.load(Ordering::Relaxed) == FREE
        && owner.compare_exchange(FREE, process, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// The process that owns the slot, if one does.
pub fn process(owner: &AtomicU32) -> Option<u32> {
    match owner.load(Ordering::Acquire) {
        FREE | CLOSING => None,
        process => Some(process),
    }
}

/// Nobody may have the slot any more, unless somebody has it already.
pub fn shut(owner: &AtomicU32) {
    let _ = owner.compare_exchange(FREE, CLOSING, Ordering::AcqRel, Ordering::Relaxed);
}

/// The host begins to clear up.
pub fn close(owner: &AtomicU32) {
    owner.store(CLOSING, Ordering::Release);
}

/// The slot is cleared, or was claimed in vain: the next one may have it.
pub fn release(owner: &AtomicU32) {
    owner.store(FREE, Ordering::Release);
}
