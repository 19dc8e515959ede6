//! Reads what is cached of a file, and nothing that would wait.
//!
//! Overlays, FUSE, squashfs, erofs and networks refuse `RWF_NOWAIT`, and an overlay's `cachestat` says 0
//! whatever there is. A mapping of the file is asked there (`mincore`): an overlay maps the file that
//! lies below it. It stays no longer than the question, so nothing is held. What is evicted between
//! question and read is waited for, as the program would have to.
//!
//! To who neither owns the file nor may write to it `mincore` says that all is cached (Linux 5.2), what
//! lies behind the file's end as well: so a page there is asked about first. Nothing is cached there.

use crate::layout::{ASIDE, ASIDE_BYTES};
use crate::missing;
use runahead_kernel::files::{self, IoVec};
use runahead_kernel::memory::{self, PROT_READ};
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, PAGE, Result};

/// Pages of one read that are asked about; of a longer one it is not known.
const MOST: usize = ASIDE_BYTES / PAGE;

/// Reads from `offset` of a file of `size` bytes on, what is cached: bytes, 0 behind the end of the file.
/// EAGAIN: nothing is, and the disk has been asked for it. EOPNOTSUPP: the file system does not tell, and
/// nothing is cached, or that is not to be known.
///
/// # Safety
/// The pieces, memory of ours, are overwritten.
pub unsafe fn read_cached(descriptor: i32, pieces: &[IoVec], offset: u64, size: u64) -> Result<usize> {
    // SAFETY: the caller's promise.
    let got = unsafe { missing::read(descriptor, pieces, offset) };
    if got != Err(Errno::EOPNOTSUPP) {
        return got;
    }
    let bytes = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.length));
    if !is_cached(descriptor, offset, bytes, size) {
        return got;
    }
    // SAFETY: the caller's promise.
    unsafe { files::preadv2(descriptor, pieces, offset as i64, 0) }
}

/// Whether all of `bytes` bytes from `offset` on, as far as there is a file, are known to be cached.
fn is_cached(descriptor: i32, offset: u64, bytes: usize, size: u64) -> bool {
    let (page, mut told) = (PAGE as u64, [0; MOST]);
    let end = offset.saturating_add(bytes as u64).min(size);
    let first = offset & !(page - 1);
    let pages = end.saturating_sub(first).div_ceil(page) as usize;
    if pages == 0 || pages > MOST || !ask(descriptor, first, pages, &mut told) {
        return false;
    }
    let all = told.iter().take(pages).all(|byte| byte & 1 != 0);
    all && {
        let behind = size.next_multiple_of(page);
        ask(descriptor, behind, 1, &mut told) && told.first().is_some_and(|byte| byte & 1 == 0)
    }
}

/// Asks which pages of a file are cached: the lowest bit of a byte for each. False if that is not to be known.
fn ask(descriptor: i32, offset: u64, pages: usize, told: &mut [u8; MOST]) -> bool {
    let bytes = pages.min(MOST) * PAGE;
    let flags = n::MAP_PRIVATE | n::MAP_FIXED_NOREPLACE | n::MAP_NORESERVE;
    // SAFETY: a place that is for this alone, and nobody touches what is mapped there.
    let mapped = unsafe { memory::map(ASIDE, bytes, PROT_READ, flags, descriptor, offset) };
    if mapped.is_err() {
        return false;
    }
    let is_told = memory::cached_pages(ASIDE, bytes, told).is_ok();
    // SAFETY: what was mapped above.
    let _ = unsafe { memory::unmap(ASIDE, bytes) };
    is_told
}
