//! Files that stand beside those that a program waits for.
//!
//! A program that loads modules (Python's import, a compiler's headers, a shell's completions) learns from each
//! file which one it wants next: speculation cannot run ahead of what it has not read. But such files stand
//! together. Of the 473 files that stand beside those that `import numpy, pandas` opens, with the same ending,
//! it opens 408. So when a program has waited for the beginning of a file that nobody foretold, and then for
//! another one beside it, the host asks for those that stand there too, many at a time.
//!
//! - [`choice`] is which of them: pure.
//! - [`cousins`] is which files at the same place in directories beside: pure.
//! - [`guesses`] is how many: pure. No more than a few beyond three times as many as the program has used so far,
//!   and beyond a part of what it has waited.
//! - [`disks`] is on which disks: pure.
//! - [`Companions`] is the threads and the kernel.
//!
//! Rules of this room: files are opened for reading only, never through a link, no directory but the one in which
//! the program has just waited and those beside it, not where somebody was seen to hold a lease (opening breaks
//! it), and nothing stays open; whatever fails is passed over in silence.

pub mod choice;
pub mod cousins;
pub mod disks;
mod files;
pub mod guesses;
mod pool;

pub use pool::{Companions, Wants};
