//! Recorded programs, played back to the policies on models of disks.
//!
//! ```text
//!   recorded program ([`trace`]) ─► threads ─► agent's part ─► policies (crates/policy)
//!                                      │      speculator's part ─► policies
//!                                      ▼            ▼
//!                                page cache and read-ahead ([`cache`]) ─► slowdisk's model ([`device`])
//! ```
//!
//! Virtual time, no threads, no randomness: the same input gives the same outcome ([`engine`]). What is not
//! replayed stands in docs/design/replay.md.

pub mod cache;
pub mod device;
pub mod engine;
pub mod expected;
pub mod faults;
pub mod synthetic;
pub mod trace;
