//! Notes of names that speculation has waited for.
//!
//! Speculation looks each name up when its program would, one after another, and so long before the program that this
//! finds them all cached: nobody but us sees that the disk is waited for. Where it is, the host is left a note, as the
//! agent leaves one of what it sees (`runahead_abi::names`), and looks up many at a time what comes next.
//!
//! The note names what the program would name: the host resolves it from the program's descriptors, not from ours.

use crate::cell::Global;
use crate::descriptors::TABLE;
use crate::shared;
use core::sync::atomic::Ordering;
use runahead_abi::names::{PATH_BYTES, directory_mark, directory_of, kind};
use runahead_abi::session::names_ahead;
use runahead_policy::coldness::{Coldness, WORTH_HELPING_NS};

struct Notes {
    coldness: Coldness,
    /// A mark of the directory of the latest note.
    noted: u64,
}

static NOTES: Global<Notes> = Global::new(Notes { coldness: Coldness::new(), noted: 0 });

/// The name of `length` bytes at `path`, to be looked up from `directory`, has taken so many ns.
pub fn looked_up(directory: i32, path: usize, length: usize, took: u64) {
    let part = shared::speculator();
    shared::count(&part.counts.names, 1);
    let notes = NOTES.get();
    let waited = notes.coldness.passed(took);
    if !waited || took < WORTH_HELPING_NS || !(1..PATH_BYTES).contains(&length) {
        return;
    }
    // SAFETY: mirror memory; whoever measured its length has touched it.
    let path = unsafe { core::slice::from_raw_parts(path as *const u8, length) };
    if path.first() != Some(&b'/') && !TABLE.get().is_programs(directory) {
        return;
    }
    let mark = directory_mark(directory, directory_of(path));
    if notes.noted == mark || part.names_ahead.load(Ordering::Relaxed) == names_ahead::GONE {
        return;
    }
    notes.noted = mark;
    part.names.write(kind::LOOKED_UP, directory, path);
    shared::wake_host();
}
