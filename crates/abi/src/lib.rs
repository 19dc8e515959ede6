//! Layouts of what Runahead's processes and files share.
//!
//! Rules of this room: no allocation, no libc, no policy. Everything here is plain old data with a
//! fixed layout that means the same in every address space: no pointers, no Rust enums read from
//! memory that somebody else writes (a discriminant from there is a number until it is checked).
#![cfg_attr(not(any(test, loom)), no_std)]

pub mod begun;
pub mod calls;
pub mod check;
pub mod durations;
pub mod enabled;
pub mod environment;
pub mod executions;
pub mod foreign;
pub mod go_note;
pub mod insertion;
#[cfg(not(loom))]
pub mod kin;
#[cfg(not(loom))]
pub mod lives;
pub mod log;
pub mod names;
pub mod opened;
pub mod owner;
pub mod pace;
pub mod post;
pub mod reads;
pub mod registers;
pub mod release;
pub mod rights;
// Loom's atomics are larger than the processor's: the layouts hold for the latter only.
#[cfg(not(loom))]
pub mod session;
pub mod sites;
pub mod sync;
pub mod trace;
pub mod trust;
