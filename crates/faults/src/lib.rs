//! Page faults of a program, seen from outside, and the pages of mapped files and of swap asked for ahead of it.
//!
//! A program that reads through mappings makes no system call where it waits, so the agent inside it sees
//! nothing. The kernel tells: a perf event, opened by another process of the same user, records each fault's
//! instruction and address *before* the disk is asked (no privilege needed up to `perf_event_paranoid` 2).
//!
//! - [`event`]: perf events and their rings, thin; [`record`]: what is in a ring, pure; [`recorder`]: every fault of a
//!   thread, with registers or without;
//! - [`mappings`]: which file lies at an address, and a descriptor for it that belongs to us;
//! - [`memory`]: what of the program's own memory is on swap, and is asked for; [`swap_in`]: threads that bring it in;
//! - [`pursuit`]: speculation from a fault, and how far the program has followed it;
//! - [`waits`]: how much of its time a thread waits;
//! - [`watch`]: the thread that watches one process;
//! - [`sampled`]: the same where perf events are refused; [`present`]: which pages are newly present;
//! - [`from_call`]: speculation there, from where the agent has seen the program last.
//!
//! The decisions are [`runahead_policy::arming`]'s (when to watch), [`runahead_policy::strides`]' and
//! [`runahead_policy::swapped`]'s (what comes next), [`runahead_policy::sampling`]'s and
//! [`runahead_policy::presence`]'s where faults are not seen, and [`runahead_policy::touches`]' (when to
//! restart speculation).
//!
//! # Rules
//! - A program that does not wait for the disk pays nothing: while *disarmed* only a fault that did wait is
//!   recorded (`PERF_COUNT_SW_PAGE_FAULTS_MAJ`), and wakes us. With a read-ahead of 8 MB there may be one of
//!   them in a GB, since pages under way do not count; so the first is enough.
//! - Never a spinning reader, and no wake-up from the program's side while armed (18 us for it): we sleep from
//!   20 us to 1 ms between two looks.
//! - Files are held open only while armed, for reading, and closed before [`watch::Watch::stop`] returns.
//! - Nothing is believed: addresses and mappings may be stale; the worst is a page read in vain.

mod blocks;
mod event;
mod from_call;
pub mod mappings;
pub mod memory;
mod present;
mod pursuit;
mod record;
mod recorder;
mod sampled;
mod swap_in;
mod waits;
pub mod watch;

pub use blocks::BlockCosts;
pub use event::may_watch;
pub use pursuit::{CameTo, Link, SeenBy, Touch};
pub use record::{Fault, REGISTERS_COUNT};
pub use runahead_policy::drift::REQUEST;
pub use watch::Watch;

const PAGE: u64 = runahead_kernel::PAGE as u64;
