//! Speculation that begins where the program was some time ago, at a call of which there is a snapshot
//! ([`Snapshot`](runahead_abi::session::Snapshot)), and goes through what it has done since.
//!
//! Registers and stack are as they were. All else is as it is now: what the program has mapped is there,
//! what it has closed is closed, and what its heap holds may be of later.

use crate::descriptors::process_directory;
use crate::emulate;
use crate::mapped::MAPPED;
use crate::mirror::{self, MIRROR};
use crate::shared::agent;
use core::sync::atomic::{AtomicU64, Ordering};
use runahead_abi::post;
use runahead_abi::session::SNAPSHOT_STACK;
use runahead_kernel::files::IoVec;
use runahead_kernel::memory::read_process;

/// Puts the stack of the snapshot with this number into the mirror, which is in step, and moves the heap's
/// end to where it is now. False: the program has left another one since, or none of its stack could be
/// copied. May open files.
pub fn takes_up(number: u32, program_break: &mut u64) -> bool {
    let heap = MIRROR.get().region_at((*program_break as usize).wrapping_sub(1));
    *program_break = heap.map_or(*program_break, |heap| (heap.end as u64).max(*program_break));
    lay_stack(number)
}

fn lay_stack(number: u32) -> bool {
    let snapshot = &agent().snapshot;
    if post::latest(&snapshot.taken) != Some(number) {
        return false;
    }
    let word = |word: &AtomicU64| word.load(Ordering::Relaxed) as usize;
    let (from, copy) = (word(&snapshot.stack_from), word(&snapshot.stack_copy));
    let length = (snapshot.stack_bytes.load(Ordering::Relaxed) as usize).min(SNAPSHOT_STACK);
    // Also memory that the program has mapped since the mirror was made.
    if length == 0 || !emulate::room(from, length) {
        return false;
    }
    let (local, remote) = ([IoVec { base: from, length }], [IoVec { base: copy, length }]);
    // SAFETY: what `room` has said yes to is the mirror's or speculation's own, which any bytes may be
    // written to; where nothing may be written the kernel says so.
    let copied = unsafe { read_process(mirror::process(), &local, &remote) };
    copied == Ok(length) && post::is_whole(&snapshot.taken, number)
}

/// Where the program has mapped so many bytes of a file from `offset` on, at `at` if that is said. (By its
/// length, as the file is closed again, mostly.) None: nowhere, or at several places.
pub fn mapped_since(length: usize, offset: u64, at: Option<usize>) -> Option<usize> {
    let mirror = MIRROR.get();
    mirror.adopt_mappings(process_directory()).ok()?;
    let is_it = |start: &usize| {
        let region = mirror.region_at(*start);
        let is_whole = region.is_some_and(|region| (region.start, region.end) == (*start, start + length));
        is_whole && at.is_none_or(|at| at == *start)
    };
    let mut found = MAPPED.get().starts(offset).filter(is_it);
    found.next().filter(|_| found.next().is_none())
}
