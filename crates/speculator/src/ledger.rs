//! The speculator's ledger ([`runahead_policy::ledger`]), whose verdicts steer its depth.

use crate::cell::Global;
use crate::run::RUN;
use crate::shared::{self, speculator};
use runahead_policy::depth::Depth;
pub use runahead_policy::ledger::{Ledger, Moment};

static LEDGER: Global<Ledger> = Global::new(Ledger::new());

/// Looks into the ledger.
pub fn ledger() -> &'static Ledger {
    LEDGER.get()
}

/// Enters something, or has pages judged, and counts those that turn out to be waste.
pub fn with<T>(action: impl FnOnce(&mut Ledger, &mut Depth) -> T) -> T {
    let ledger = LEDGER.get();
    let before = ledger.wasted();
    let result = action(ledger, &mut RUN.get().depth);
    let wasted = ledger.wasted().wrapping_sub(before);
    if wasted > 0 {
        shared::count(&speculator().counts.unused_pages, wasted);
    }
    result
}
