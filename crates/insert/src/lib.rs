//! Puts the agent into a program that its loader would not bring it into: one that has no loader, or another than glibc's, or
//! that is started without the variables that name the agent.
//!
//! The process that is about to execute such a program is *seized* (ptrace(2), `PTRACE_SEIZE`): nothing stops it, and nobody
//! but the kernel and who asks in `/proc` knows. The kernel stops it once, when the new program is in memory and has not run
//! (`PTRACE_EVENT_EXEC`). There one of two things is done:
//!
//! - *Variables* ([`stack`]): where glibc's loader comes next, its environment gets `LD_PRELOAD` and our session, and the agent
//!   takes them away again before the program's own code runs.
//! - *Image* ([`image`]): a few instructions map the agent's file, enter it, and then go on at the program's first one.
//!
//! Then it is let go.
//!
//! # Rules
//! - Who traces may be killed at any instant: until the one call that sets the registers nothing is different for the program
//!   but memory that it has not got yet (below its stack pointer; behind the end of its code). From then on it needs nobody.
//! - A program that gets rights at its start (setuid, setgid, file capabilities) would not get them while it is traced. So it is
//!   looked at before anybody is seized ([`file::may_be_traced`]).
//! - Whatever comes instead of the stop that is waited for (a signal, the end, another stop) ends the tracing there and then;
//!   nothing that runs is ever interrupted.
//!
//! What the agent is told is in [`runahead_abi::insertion`].

mod arch;
pub mod file;
pub mod image;
mod process;
pub mod stack;
pub mod trace;

pub use file::{Entrance, Look};
pub use image::Image;
pub use process::{Bytes, bytes_at, string_at};
pub use trace::{Fresh, Refusal, Traced};
