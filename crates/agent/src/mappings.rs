//! Which of the program's mappings of files make its page faults worth watching.
//!
//! A large one does, cached or not: nobody can say beforehand what of it will be touched. A smaller one does where
//! most of it is not in memory; asking costs some us, so it is asked for some mappings only, and never for those of
//! code. The mapping itself is the program's own call.

use crate::attach;
use crate::reads::Visit;
use core::sync::atomic::Ordering;
use runahead_kernel::files::{IoVec, RWF_NOWAIT, cached_pages, fstat, preadv2};
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, PAGE};
use runahead_policy::arming;

/// The program is about to make the call `mmap` with these arguments.
pub fn mapped(visit: &mut Visit, a: [usize; 6]) {
    let [_, length, _, _, file, offset] = a;
    if length >= arming::LARGE {
        return attach::want_watch(visit.state);
    }
    // The loader marks what it maps: its faults are code's.
    let code = a[3] as u32 & n::MAP_DENYWRITE != 0;
    let looked_at = visit.process.mappings_looked_at.load(Ordering::Relaxed);
    if code || looked_at >= arming::SMALL_LOOKED_AT {
        return;
    }
    visit.process.mappings_looked_at.store(looked_at + 1, Ordering::Relaxed);
    if is_cold_file(file as i32, offset, length) {
        // One such is enough.
        visit.process.mappings_looked_at.store(arming::SMALL_LOOKED_AT, Ordering::Relaxed);
        attach::want_watch(visit.state);
    }
}

/// Whether most of a part of a file is to be read yet. False where that cannot be told (before Linux 6.5).
fn is_cold_file(file: i32, offset: usize, length: usize) -> bool {
    const REGULAR: u32 = 0o100000;
    const KIND: u32 = 0o170000;
    // Reading from anything else might do something.
    let Ok(stat) = fstat(file) else { return false };
    if stat.st_mode & KIND != REGULAR {
        return false;
    }
    let length = (stat.st_size as usize).saturating_sub(offset).min(length);
    let pages = length.div_ceil(PAGE) as u64;
    if length < arming::SMALL {
        return false;
    }
    match cached_pages(file, offset as u64, length as u64) {
        // Some file systems say this whatever is cached.
        Ok(0) => first_byte_is_missing(file, offset),
        Ok(cached) => arming::is_cold(pages, cached),
        Err(_) => false,
    }
}

/// Whether the first byte would have to be waited for; then its read is under way.
fn first_byte_is_missing(file: i32, offset: usize) -> bool {
    let mut byte = 0u8;
    let piece = [IoVec { base: &raw mut byte as usize, length: 1 }];
    // SAFETY: one byte of ours may be overwritten.
    let read = unsafe { preadv2(file, &piece, offset as i64, RWF_NOWAIT) };
    read == Err(Errno::EAGAIN)
}
