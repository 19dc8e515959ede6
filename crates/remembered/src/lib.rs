//! What a command's earlier runs wanted from the disk is asked for when it starts again.
//!
//! | module | does |
//! |---|---|
//! | `ranges` | sets of a file's pages |
//! | `memory` | what is remembered of an executable's runs, and how it is written down; pure |
//! | `store` | the files in which that stands, in the user's cache folder |
//! | `profile` | the same in a file that is taken along |
//! | `look` | the kernel's side: what a path leads to, which pages are cached; without effects |
//! | `recorder` | what this run opens, and what is to be remembered of it |
//! | `replay` | asks for what earlier runs wanted, in many threads |
//! | `depth` | how much of that at a time |
//! | `threads` | how many, where processes are limited |
//!
//! Invariants: nothing but regular files (and directories, to be listed) of disks' file systems is opened,
//! for reading, and nothing stays open; each opening is gone through the gate and counted for who bears none;
//! what stands in the files is bounded and checked when it is read, and does no more than an `open` by this
//! user could.
//!
//! The host is the only caller.

mod depth;
mod except;
pub mod look;
pub mod memory;
pub mod profile;
mod ranges;
pub mod recorder;
pub mod replay;
pub mod store;

pub use except::Except;
pub use memory::{Identity, Memory, Variant, Want, What};
pub use ranges::Ranges;
pub use recorder::Recorder;
pub use replay::Replay;
pub use store::Store;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Tells one text from another, nearly always (FNV-1a); not a secret.
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let start = seed ^ 0xcbf2_9ce4_8422_2325;
    bytes.iter().fold(start, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A folder beside the tests' own executable: temporary ones may be in memory.
#[cfg(test)]
fn folder_on_a_disk() -> tempfile::TempDir {
    let own = std::env::current_exe().unwrap();
    tempfile::Builder::new().tempdir_in(own.parent().unwrap()).unwrap()
}
