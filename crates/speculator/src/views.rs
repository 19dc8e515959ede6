//! Views: blocks of a mapped file that the mirror maps from the file itself ([`runahead_policy::views`] says when).
//!
//! The mirror's region of a mapped file is anonymous memory whose missing pages raise a signal. A view lies
//! over a block of it: the kernel finds its pages in the page cache, and neither we nor the log hear of their
//! being touched. A page of it is
//! - *clear*: it was cached. If it is evicted, the speculator waits for the disk as its program would; if it is cut off, SIGBUS finds no
//!   page there, and the speculation ends;
//! - *guarded*: it was not. A touch raises SIGSEGV (`MADV_GUARD_INSTALL`, of mappings of files since Linux 6.15; before that
//!   there are no views), and it is looked whether it is there by now;
//! - *blank*: it was not then either. A page of zeros lies over it until the next sync, as in any mapped file.
//!
//! Only of what the program may not write to: then all that it can see there is the file's. Views are private and read-only, which is
//! all that the sandbox allows of files. What is cached `mincore` tells of a mapping beside the mirror; to who neither owns the
//! file nor may write to it it says "all", so `cachestat` is asked first, of the first pages: every kernel
//! that has guards refuses him there.

use crate::cell::Global;
use crate::layout::{VIEWED, VIEWED_BYTES};
use crate::shared;
use runahead_kernel::memory::{self, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE, PROT_READ};
use runahead_kernel::process::monotonic_ns;
use runahead_kernel::uapi::general as n;
use runahead_kernel::{PAGE, Result, files};
use runahead_policy::views::{BLANKS_MOST, BLOCK, Copies, is_mostly_cached};

const PAGES: usize = BLOCK / PAGE;

/// Blocks under observation, by their number modulo this: 4 GB that lie together.
const BLOCKS: usize = 2048;

/// Pages of a block that are asked about first: 2 us for 30.
const SAMPLE: usize = 64;

/// The part of a file that lies in one block.
#[derive(Clone, Copy)]
pub struct Part {
    /// Addresses, whole pages.
    pub start: usize,
    pub end: usize,
    pub descriptor: i32,
    /// Of `start` in the file, bytes.
    pub offset: u64,
}

/// One bit for each page of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Bits([u64; PAGES / 64]);

impl Bits {
    const NONE: Bits = Bits([0; PAGES / 64]);

    fn has(&self, page: usize) -> bool {
        let at = page / PAGE % PAGES;
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    fn set(&mut self, page: usize, to: bool) {
        let at = page / PAGE % PAGES;
        if let Some(word) = self.0.get_mut(at / 64) {
            *word = *word & !(1 << (at % 64)) | u64::from(to) << (at % 64);
        }
    }
}

#[derive(Clone, Copy)]
struct Block {
    /// Its address / [`BLOCK`] + 1; 0: none.
    number: usize,
    copies: Copies,
    /// What there is a view of.
    view: Option<Part>,
    clear: Bits,
    blank: Bits,
}

const NOTHING: Block =
    Block { number: 0, copies: Copies::NONE, view: None, clear: Bits::NONE, blank: Bits::NONE };

pub struct Views {
    blocks: [Block; BLOCKS],
    /// Blocks that are mapped, and their blank pages.
    count: usize,
    blanks: usize,
    /// The kernel has no guards.
    refused: bool,
    beside: Option<Beside>,
}

/// What is mapped beside the mirror, of which file and from where in it on: only to ask what is cached, and for as long as the same
/// file is asked about.
#[derive(Clone, Copy)]
struct Beside {
    descriptor: i32,
    offset: u64,
}

/// All zeros, as every large static here: an absent view is a zero word.
pub static VIEWS: Global<Views> =
    Global::new(Views { blocks: [NOTHING; BLOCKS], count: 0, blanks: 0, refused: false, beside: None });

impl Views {
    fn block(&mut self, page: usize) -> Option<&mut Block> {
        if self.count == 0 {
            return None;
        }
        let number = page / BLOCK + 1;
        let block = self.blocks.get_mut(number % BLOCKS)?;
        let lies_in = block.view.is_some_and(|part| (part.start..part.end).contains(&page));
        (block.number == number && lies_in).then_some(block)
    }

    /// Of a page in a view: whether a touch of it raises no signal. None: it lies in no view.
    pub fn show(&mut self, page: usize) -> Option<bool> {
        self.block(page).map(|block| block.clear.has(page) || block.blank.has(page))
    }

    /// Puts a guarded page in place: zeros, or what the file has there. False if that cannot be.
    pub fn place(&mut self, page: usize, blank: bool) -> bool {
        if blank && self.blanks >= BLANKS_MOST {
            return false;
        }
        let Some(block) = self.block(page) else { return false };
        let placed = if blank {
            let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_FIXED | n::MAP_NORESERVE;
            // SAFETY: over a page of a view, which nobody could read so far.
            unsafe { memory::map(page, PAGE, PROT_READ, flags, -1, 0) }.is_ok()
        } else {
            // SAFETY: a page of a view.
            unsafe { memory::advise(page, PAGE, MADV_GUARD_REMOVE) }.is_ok()
        };
        if placed {
            if blank {
                block.blank.set(page, true)
            } else {
                block.clear.set(page, true)
            }
            self.blanks += usize::from(blank);
        }
        placed
    }

    /// The parts of a range in which there are no views. (Dropped with the rest, what the kernel had mapped of 1 GB of views took 5 ms to
    /// go, at each sync.)
    pub fn between(&mut self, start: usize, end: usize) -> impl Iterator<Item = (usize, usize)> {
        let mut at = start;
        core::iter::from_fn(move || {
            while let Some(part) = self.block(at).and_then(|block| block.view).filter(|_| at < end) {
                at = part.end;
            }
            let from = at;
            if self.count == 0 {
                at = end;
            }
            while at < end && self.block(at).is_none() {
                at = (at & !(BLOCK - 1)) + BLOCK;
            }
            at = at.min(end);
            (from < at).then_some((from, at))
        })
    }

    /// A page that was blank may be there by now: a touch of it is to be noticed again.
    pub fn forget(&mut self, page: usize) {
        let Some(block) = self.block(page) else { return };
        let Some(part) = block.view.filter(|_| block.blank.has(page)) else { return };
        block.blank.set(page, false);
        self.blanks -= 1;
        // SAFETY: over zeros of ours. Where it fails they stay, guarded or not: a wrong speculation at worst.
        let _ = unsafe { map(part, page, page + PAGE) };
        // SAFETY: as above.
        let _ = unsafe { memory::advise(page, PAGE, MADV_GUARD_INSTALL) };
    }

    /// The same of all pages.
    pub fn forget_all(&mut self) {
        if self.blanks == 0 {
            return;
        }
        for index in 0..BLOCKS {
            let Some(part) = self.blocks[index].view else { continue };
            if self.blocks[index].blank != Bits::NONE {
                (part.start..part.end).step_by(PAGE).for_each(|page| self.forget(page));
            }
        }
    }

    /// A cached page of this part was copied. True if the part is a view now.
    pub fn copied(&mut self, part: Part) -> bool {
        let number = part.start / BLOCK + 1;
        let Some(block) = self.blocks.get_mut(number % BLOCKS).filter(|_| !self.refused) else {
            return false;
        };
        if block.number != number {
            // Nobody would know any more that there is a view.
            if block.view.is_some() {
                return false;
            }
            *block = Block { number, ..NOTHING };
        }
        if block.view.is_some() || !block.copies.copied() {
            return false;
        }
        let began = monotonic_ns();
        let is_mapped = self.look(part);
        let took = monotonic_ns().saturating_sub(began);
        shared::count(&shared::speculator().counts.view_ns, took);
        is_mapped
    }

    /// Maps the part, if it is worth it.
    fn look(&mut self, part: Part) -> bool {
        let pages = (part.end - part.start) / PAGE;
        let sample = pages.min(SAMPLE);
        let sampled = files::cached_pages(part.descriptor, part.offset, (sample * PAGE) as u64);
        if !sampled.is_ok_and(|cached| is_mostly_cached(sample, cached as usize)) {
            return false;
        }
        let Some(cached) = self.cached(part) else { return false };
        let is_cached =
            |page: usize| cached.get((page - part.start) / PAGE).is_some_and(|byte| byte & 1 != 0);
        let addresses = || (part.start..part.end).step_by(PAGE);
        let there = addresses().filter(|&page| is_cached(page)).count();
        let begins = |page: usize| !is_cached(page) && (page == part.start || is_cached(page - PAGE));
        let gaps = addresses().filter(|&page| begins(page)).count();
        let Some(block) = self.blocks.get_mut((part.start / BLOCK + 1) % BLOCKS) else { return false };
        if !block.copies.is_worth(pages, there, gaps) {
            return false;
        }
        // SAFETY: over a part of the mirror of which all is the file's, as it was before.
        if unsafe { map(part, part.start, part.end) }.is_err() {
            return false;
        }
        block.view = Some(part);
        self.count += 1;
        shared::count(&shared::speculator().counts.views, 1);
        addresses().for_each(|page| block.clear.set(page, is_cached(page)));
        for start in addresses().filter(|&page| begins(page)) {
            let end = (start..part.end).step_by(PAGE).find(|&page| is_cached(page)).unwrap_or(part.end);
            // SAFETY: pages of the view, which nobody has touched yet. Without a guard the speculator waits where it would not.
            let _ = unsafe { memory::advise(start, end - start, MADV_GUARD_INSTALL) };
        }
        true
    }

    /// Which pages of a part are cached: the lowest bit of each byte. None where the kernel does not say, or has no guards.
    fn cached(&mut self, part: Part) -> Option<[u8; PAGES]> {
        let mut cached = [0; PAGES];
        let length = part.end - part.start;
        let within = |beside: &Beside| {
            beside.descriptor == part.descriptor
                && (beside.offset..beside.offset + VIEWED_BYTES as u64).contains(&part.offset)
        };
        let beside = match self.beside.filter(within) {
            Some(beside) => beside,
            None => {
                let offset = part.offset & !(VIEWED_BYTES as u64 - 1);
                let beside = Beside { descriptor: part.descriptor, offset };
                let all = Part { start: VIEWED, end: VIEWED + VIEWED_BYTES, offset, ..part };
                // SAFETY: a place that is for this alone; nobody touches what is mapped there.
                unsafe { map(all, all.start, all.end) }.ok()?;
                // SAFETY: just mapped.
                self.refused = unsafe { memory::advise(VIEWED, PAGE, MADV_GUARD_INSTALL) }.is_err();
                // SAFETY: as above. (A page with a guard is told to be there.)
                let _ = unsafe { memory::advise(VIEWED, PAGE, MADV_GUARD_REMOVE) };
                *self.beside.insert(beside)
            }
        };
        let at = VIEWED + (part.offset - beside.offset) as usize;
        let told = memory::cached_pages(at, length, &mut cached);
        (told.is_ok() && !self.refused).then_some(cached)
    }

    /// Speculation has reached the program's end. What the kernel has mapped of the views goes now: later the ending program would wait
    /// for that (26 ms for 1 GB).
    pub fn rest(&mut self) {
        if self.count == 0 {
            return;
        }
        for part in self.blocks.iter().filter_map(|block| block.view) {
            // SAFETY: comes back from the file if it is touched; guards stay, and what was blank is zeros again.
            let _ = unsafe { memory::advise(part.start, part.end - part.start, n::MADV_DONTNEED) };
        }
    }

    /// Takes all views down, one after the other, as they hold their files: what is mapped at each is for the caller to replace. How
    /// often blocks were copied is remembered.
    pub fn take_down(&mut self) -> impl Iterator<Item = Part> {
        if self.beside.take().is_some() {
            // SAFETY: nobody touches what is mapped there.
            let _ = unsafe { memory::unmap(VIEWED, VIEWED_BYTES) };
        }
        self.blanks = 0;
        let blocks = if core::mem::take(&mut self.count) == 0 { 0 } else { BLOCKS };
        self.blocks.iter_mut().take(blocks).filter_map(|block| {
            (block.clear, block.blank) = (Bits::NONE, Bits::NONE);
            block.view.take()
        })
    }
}

/// Maps the pages from `start` to `end` of a part.
///
/// # Safety
/// What was mapped there is gone.
unsafe fn map(part: Part, start: usize, end: usize) -> Result<()> {
    let flags = n::MAP_PRIVATE | n::MAP_FIXED;
    let offset = part.offset + (start - part.start) as u64;
    // SAFETY: the caller's promise.
    unsafe { memory::map(start, end - start, PROT_READ, flags, part.descriptor, offset) }.map(drop)
}
