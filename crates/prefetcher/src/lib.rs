//! Carries prefetches out, from inside any process, without ever blocking whoever hints.
//!
//! [`runahead_prefetch`] decides; this crate has the threads, the descriptors and the system calls.
//!
//! ```text
//!  any thread of the program                 our threads (descriptors of their own)
//!  hint ──► intake ──► ┌─────────────────────── manager ───────────────────────┐
//!   bounded, lock-free │ queue in the giver's order ─► a line of jobs a device │──► pool: open, ask,
//!                      │ window (memory, accuracy), share (other programs)     │◄── wait until arrived
//!                      └────────────────────────────────────────────────────────┘
//! ```
//!
//! | module | concern |
//! |---|---|
//! | [`intake`] | takes hints from any thread, bounded, without waiting; drops what was hinted just now |
//! | [`manager`] | the one thread that knows the queue |
//! | [`pool`] | threads that wait for the disk, a line of jobs for each device |
//! | [`carry`] | one job: the system calls |
//! | [`files`] | what has been opened |
//! | [`usage`] | whether the program reads what was fetched |
//! | [`limits`] | memory limits, pressure, options |
//! | [`view`] | the other programs of this user |
//! | [`daemon`] | makes that: of all users |
//!
//! Rules of this room:
//! - **Whoever hints never waits**: no lock, no file system call, nothing but a wake-up on its path.
//! - **Nothing fails**: what cannot be done is counted ([`Counts`]) and dropped. No panics.
//! - **The program does not notice.** Our threads block all signals and have a descriptor table of their
//!   own: the program's descriptors keep their numbers, its `close` reaches nothing of ours, ours releases no
//!   lock of its. A forked child begins anew.
//! - **Everything is bounded**: hints (in number and bytes), jobs, open files, threads, memory asked for.

pub mod carry;
pub mod daemon;
mod doorbell;
mod files;
mod global;
pub mod intake;
pub mod limits;
mod manager;
pub mod pool;
pub mod usage;
pub mod view;

/// What [`doorbell`] is built from; its model test replaces them.
mod sync {
    pub use std::sync::atomic::{AtomicBool, Ordering};
}

pub use global::{Prefetcher, global, is_ours};
pub use intake::{Counts, Hint, Lookup, Place};
pub use limits::Options;
