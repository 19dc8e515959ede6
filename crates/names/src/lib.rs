//! Names looked up ahead of a program, many at a time.
//!
//! A program that walks a tree (`du`, `find`, `git status`, a loader that searches its path) waits for one
//! directory block or inode after the other. Which names come next needs no speculation: the directory
//! says so. Whoever sees a program stall on a name notes the directory here; from then on a pool of threads
//! walks on from there in the order in which a program would, looking each name up, so that the kernel's
//! name and inode caches are warm when the program arrives.
//!
//! - [`walk`] is the order: pure, no system calls.
//! - [`pace`] is how far and how wide: pure. Only so far ahead as the program follows, only as wide as the
//!   device is slow.
//! - [`restraint`] is what is left to the program where the disk is quick: pure.
//! - [`arguments`] is what a program that is met at one of its arguments wants next: pure.
//! - [`lists`] is what a program wants next that was given a file of names.
//! - [`neighbours`] is which names come along with others: pure.
//! - [`look`] is the kernel: read-only calls that follow no links and cross no file systems.
//! - [`Lookahead`] is the threads.
//!
//! Rules of this room: nothing is ever opened for writing, no link is followed (but on the way to a program's argument), no automount is triggered,
//! pseudo file systems are left alone, and whatever fails is passed over in silence: the program will meet
//! the same failure itself.

pub mod arguments;
pub mod lists;
pub mod look;
pub mod neighbours;
pub mod pace;
pub mod pool;
pub mod restraint;
pub mod walk;

pub use pool::Lookahead;
