//! Notes of names that speculation has waited for.
//!
//! Speculation looks each name up when its program would, one after another, and so long before the program that this
//! finds them all cached: nobody but us sees that the disk is waited for. Where it is, the host is left a note, as the
//! agent leaves one of what it sees (`runahead_abi::names`), and looks up many at a time what comes next.
//!
//! The note names what the program would name: the host resolves it from the program's descriptors, not from ours.

use crate::cell::Global;
use crate::descriptors::TABLE;
use crate::run;
use crate::shared;
use core::ops::Range;
use core::sync::atomic::Ordering;
use runahead_abi::names::{PATH_BYTES, directory_mark, directory_of, kind, may_be_argument};
use runahead_abi::session::names_ahead;
use runahead_kernel::memory::{bytes, overlap};
use runahead_policy::coldness::{Coldness, Slept, WORTH_HELPING_NS};
use runahead_policy::noting::Noting;

struct Notes {
    coldness: Coldness,
    noting: Noting,
}

static NOTES: Global<Notes> = Global::new(Notes { coldness: Coldness::new(), noting: Noting::new() });

/// The name of `length` bytes at `path`, to be looked up from `directory`, has taken so many ns. The call has written to
/// `written`, perhaps over the name.
pub fn looked_up_at(directory: i32, path: usize, length: usize, written: Range<usize>, took: u64) {
    // SAFETY: mirror memory; whoever measured its length has touched it.
    let path = unsafe { core::slice::from_raw_parts(path as *const u8, length) };
    let is_there = !overlap(&bytes(path.as_ptr() as usize, length), &written);
    looked_up(directory, if is_there { path } else { b"" }, took);
}

/// The same, of a path that is there.
pub fn looked_up(directory: i32, path: &[u8], took: u64) {
    run::looked_up();
    let notes = NOTES.get();
    // Our own look-up: whether we slept in it is not asked.
    let waited = notes.coldness.passed(took, || Slept::Yes);
    if !waited || took < WORTH_HELPING_NS || !(1..PATH_BYTES).contains(&path.len()) {
        return;
    }
    if path.first() != Some(&b'/') && !TABLE.get().is_programs(directory) {
        return;
    }
    let part = shared::speculator();
    if part.names_ahead.load(Ordering::Relaxed) == names_ahead::GONE {
        return;
    }
    let mark = directory_mark(directory, directory_of(path));
    if notes.noting.wants(mark, may_be_argument(directory, path), took) {
        part.names.write(kind::LOOKED_UP, directory, path, shared::header().releasing.generation());
        shared::count(&part.counts.names_noted, 1);
        shared::wake_host();
    }
}
