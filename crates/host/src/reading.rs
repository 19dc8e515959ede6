//! Files asked of the disk before anyone reads them. Used by the launcher and the host, by nobody who is waited for.

use rustix::fs::{Advice, FileType, Mode, OFlags, fadvise};
use std::fs::File;
use std::num::NonZeroU64;
use std::path::Path;

/// Longer requests are cut off silently by some kernels (`force_page_cache_readahead`).
pub const CHUNK: u64 = 128 << 10;

/// Opens a regular file without side effects.
pub fn open(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let status = rustix::fs::fstat(&file).ok()?;
    (FileType::from_raw_mode(status.st_mode) == FileType::RegularFile).then(|| File::from(file))
}

/// Asks for the first `longest` bytes of a file. Does not wait for them.
pub fn ask(file: &File, longest: u64) {
    let length = file.metadata().map_or(0, |metadata| metadata.len()).min(longest);
    for offset in (0..length).step_by(CHUNK as usize) {
        let _ = fadvise(file, offset, NonZeroU64::new(CHUNK), Advice::WillNeed);
    }
}
