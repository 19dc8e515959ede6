//! What the program's page tables hold: `/proc/PID/pagemap` (the kernel's Documentation/admin-guide/mm/pagemap.rst).
//!
//! Asking tells without touching: a copy of a page that is not there would have the kernel bring it in, perhaps
//! from the disk, or from whoever in the program serves its page faults. One question costs 0.5 us, for one page or for
//! sixteen.

use crate::cell::Global;
use runahead_kernel::PAGE;
use runahead_kernel::files;
use runahead_kernel::uapi::general as n;

/// It is in memory; on swap; the file's, or shared.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FILES: u64 = 1 << 61;
/// Write-protected by the program's own userfaultfd. A page that is only that, and not there, is told to be on swap.
const WATCHED: u64 = 1 << 57;

/// What is asked for in one question at most.
pub const WINDOW: usize = 256;

/// Most pages that are asked about at once.
pub const MOST: usize = 16;

pub struct Pagemap {
    /// -1 where it is not to be had, 0 before it was wanted.
    descriptor: i32,
}

pub static PAGEMAP: Global<Pagemap> = Global::new(Pagemap { descriptor: 0 });

impl Pagemap {
    /// Opens it, before the sandbox closes; false where that is not allowed.
    pub fn open(&mut self, process_directory: i32) -> bool {
        if self.descriptor == 0 {
            let flags = n::O_RDONLY | n::O_CLOEXEC;
            self.descriptor = files::open_at(process_directory, c"pagemap", flags, 0).unwrap_or(-1);
        }
        self.descriptor > 0
    }

    /// Whether the page tables that are looked into still are a process's: those of one that has executed another program, or has
    /// ended, are nobody's.
    pub fn is_alive(&self) -> bool {
        let mut word = [0; size_of::<u64>()];
        files::pread(self.descriptor, &mut word, 0) == Ok(word.len())
    }

    /// Which pages of a window from `page` on, at most [`WINDOW`] of them, can be copied without a fault in the program: it has
    /// them in memory, or on swap. None where it cannot be told.
    pub fn backed(&self, page: usize, pages: usize) -> Option<Backed> {
        let mut backed = Backed([0; WINDOW * size_of::<u64>()]);
        let wanted = backed.0.get_mut(..pages * size_of::<u64>())?;
        let offset = page / PAGE * size_of::<u64>();
        (files::pread(self.descriptor, wanted, offset as i64) == Ok(wanted.len())).then_some(backed)
    }

    fn words(&self, page: usize, pages: usize) -> Option<[u64; MOST]> {
        let mut bytes = [0; MOST * size_of::<u64>()];
        let wanted = bytes.get_mut(..pages * size_of::<u64>())?;
        let offset = page / PAGE * size_of::<u64>();
        if self.descriptor <= 0 || files::pread(self.descriptor, wanted, offset as i64) != Ok(wanted.len()) {
            return None;
        }
        let mut words = [0; MOST];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(words)
    }

    /// Whether a page of a private mapping of a file is the program's own, and not the file's. What cannot be told is
    /// taken for that: copying it may wait for the disk, but is never wrong.
    pub fn is_own(&self, page: usize) -> bool {
        self.words(page, 1).is_none_or(|words| is_own(words[0]))
    }

    /// Whether a page of the program's own is on swap; not, where it cannot be told.
    pub fn is_swapped(&self, page: usize) -> bool {
        self.words(page, 1).is_some_and(|words| words[0] & SWAPPED != 0)
    }

    /// Whether the program has no page there; not, where it cannot be told.
    pub fn is_missing(&self, page: usize) -> bool {
        self.words(page, 1).is_some_and(|words| words[0] & (PRESENT | SWAPPED) == 0)
    }

    /// Which of up to [`MOST`] pages the program has in memory; none where it cannot be told.
    pub fn present(&self, page: usize, pages: usize) -> [bool; MOST] {
        self.words(page, pages).map_or([false; MOST], |words| words.map(|word| word & PRESENT != 0))
    }
}

/// An answer of [`Pagemap::backed`].
pub struct Backed([u8; WINDOW * size_of::<u64>()]);

impl Backed {
    /// The page with this number in the window.
    pub fn has(&self, number: usize) -> bool {
        let words = self.0.as_chunks().0;
        words.get(number).is_some_and(|bytes| {
            let word = u64::from_le_bytes(*bytes);
            word & PRESENT != 0 || word & (SWAPPED | WATCHED) == SWAPPED
        })
    }
}

fn is_own(word: u64) -> bool {
    word & SWAPPED != 0 || word & (PRESENT | FILES) == PRESENT
}
