//! Informed prefetching: the decisions.
//!
//! Somebody discloses what will be read ([`hint`]); this crate says which of it to ask the disk for, when,
//! and how much at once. It is a set of state machines: events and times go in, decisions come out. Whoever
//! drives them (a thread in a program, a speculator) opens the files and makes the system calls.
//!
//! | module | decides |
//! |---|---|
//! | [`hint`] | whether a disclosure makes sense at all |
//! | [`queue`] | what comes next: the giver's order, adjacent ranges merged, at most 128 KB at a time |
//! | [`device`] | how many requests a device can serve at once, from its completions alone |
//! | [`benefit`] | how far ahead, and whether the gain is worth the device's time and the memory |
//! | [`budget`] | how much memory and bandwidth may be used |
//! | [`courtesy`] | how many may be in flight while others read from the same device |
//! | [`accounting`] | what became of each page: full, partial, unused; how accurate its source is |
//! | [`shares`] | what is one program's part where several prefetch from one device |
//!
//! Rules of this room: no system calls, no clock (times are nanoseconds that the caller passes in, from any
//! clock that does not run backwards), no allocation, no unsafe code, nothing that can panic whatever the
//! arguments, and no knowledge of who hints. So everything here is async-signal-safe and runs without libc.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod accounting;
pub mod benefit;
pub mod budget;
pub mod courtesy;
pub mod device;
pub mod hint;
pub mod queue;
pub mod shares;

/// Bytes of a page of the page cache.
pub const PAGE: u64 = 4096;

/// Most pages asked for by one request: 128 KB. The kernel silently cuts off longer `readahead` and
/// `WILLNEED` requests, at 128 KB on FUSE, at other lengths elsewhere; this much is taken whole everywhere.
pub const CHUNK_PAGES: u64 = 32;
