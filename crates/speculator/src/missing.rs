//! Reads that may not wait, and have what they miss brought in: [`runahead_policy::misses`] says why that
//! takes more than the read.

use crate::cell::Global;
use crate::usage;
use runahead_kernel::files::{self, IoVec, RWF_NOWAIT};
use runahead_kernel::{Errno, Result};
use runahead_policy::misses::Misses;

static MISSES: Global<Misses> = Global::new(Misses::new());

/// Whether a read that misses is known to start the read itself.
pub fn starts() -> bool {
    MISSES.get().starts()
}

/// Most that one request asks for: the kernel silently cuts off longer ones.
const MAX_REQUEST: u64 = 128 * 1024;

/// Reads what is cached at `place`. EAGAIN: nothing is, and what was to be read has been asked for, 128 KB
/// at most. EOPNOTSUPP: the file system does not tell.
///
/// # Safety
/// The pieces are overwritten.
pub unsafe fn read(fd: i32, pieces: &[IoVec], place: u64) -> Result<usize> {
    let before = MISSES.get().is_unknown().then(usage::delivered);
    // SAFETY: the caller's promise.
    let got = unsafe { files::preadv2(fd, pieces, place as i64, RWF_NOWAIT) };
    if got == Err(Errno::EAGAIN) && !MISSES.get().starts() {
        let bytes = pieces.iter().fold(0u64, |sum, piece| sum.saturating_add(piece.length as u64));
        let between = before.map(|_| usage::delivered());
        let _ = files::readahead(fd, place, bytes.min(MAX_REQUEST));
        match before.zip(between) {
            Some((before, between)) => {
                let by_request = usage::delivered().saturating_sub(between);
                MISSES.get().saw(between.saturating_sub(before), by_request);
            }
            None => MISSES.get().met(),
        }
    }
    got
}
