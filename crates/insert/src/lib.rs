//! Puts the agent into a program that its loader would not bring it into: one that has no loader, or another
//! than glibc's, or that is started without the variables that name the agent.
//!
//! The process that is about to execute such a program is *seized* (ptrace(2), `PTRACE_SEIZE`) while it waits
//! for us in code of ours, and accompanied from system call to system call: out of our code, through the
//! execution, until the kernel stops it when the new program is in memory and has not run
//! (`PTRACE_EVENT_EXEC`). There one of two things is done:
//!
//! - *Variables* ([`stack`]): where glibc's loader comes next, its environment gets `LD_PRELOAD` and our
//!   session, and the agent takes them away again before the program's own code runs.
//! - *Image* ([`image`]): a few instructions, behind the end of the vDSO, map the agent's file, enter it, and
//!   then go on at the program's first one.
//!
//! Then it is let go. An execution that fails is let go before it returns.
//!
//! # Rules
//! - Who traces may be killed at any instant: until the one call that sets the registers nothing is different
//!   for the program but memory that is nobody's (below its stack pointer; behind the end of the vDSO). From
//!   then on it needs nobody.
//! - A program that gets rights at its start (setuid, setgid, file capabilities) would not get them while it
//!   is traced. So it is looked at before anybody is seized ([`file::may_be_traced`]).
//! - Whatever else the process does than what leads to the execution ends the tracing there and then; signals
//!   are delivered as they come, and nothing of the program's is ever interrupted.
//!
//! What the agent is told is in [`runahead_abi::insertion`].

mod arch;
pub mod file;
pub mod image;
mod process;
pub mod stack;
pub mod trace;

pub use arch::MACHINE;
pub use file::{Entrance, Look};
pub use image::Image;
pub use process::{Bytes, bytes_at, string_at};
pub use trace::{Fresh, Reached, Refusal, Traced, Who};

/// Bytes of a page.
const PAGE: u64 = 4096;
