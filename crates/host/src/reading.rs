//! Files asked of the disk before anyone reads them. Used by the launcher and the host, by nobody who is waited for.

use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::num::NonZeroU64;

/// Longer requests are cut off silently by some kernels (`force_page_cache_readahead`).
pub const CHUNK: u64 = 128 << 10;

pub use runahead_insert::file::open;

/// Asks for the first `longest` bytes of a file. Does not wait for them.
pub fn ask(file: &File, longest: u64) {
    let length = file.metadata().map_or(0, |metadata| metadata.len()).min(longest);
    for offset in (0..length).step_by(CHUNK as usize) {
        let _ = fadvise(file, offset, NonZeroU64::new(CHUNK), Advice::WillNeed);
    }
}
