//! The atomics of this room: the processor's, or loom's, which tries every order in which threads may see
//! them (`./x test` runs `tests/loom.rs` so, compiled with `--cfg loom`).

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
