//! How a touch of a page that the mirror does not have is noticed.
//!
//! | way | such a page | a touch raises | is to be had |
//! |---|---|---|---|
//! | userfaultfd | is missing in registered memory | SIGBUS | where neither a filter nor the administrator forbids it |
//! | guards | has a guard (`MADV_GUARD_INSTALL`) | SIGSEGV | from Linux 6.13 on |
//! | protection | may not be accessed | SIGSEGV | always |
//!
//! The first that is to be had is taken, for good. With the latter two a mapping begins without access at
//! all, whatever its size, and costs nothing; [`Shown`] keeps count of what was made accessible. Guards lie
//! in the page tables: a block of memory gets its protection and its guards when it is first touched.
//! Protection makes mappings: each run of pages that are shown is one of its own.
//!
//! A page that is not there is always zeros once it is shown: whatever hides it drops it.
//!
//! Called by the mirror and by the arena of mapped files, which are the [`Area`]s.

use crate::cell::Global;
use crate::mirror::NoPage;
use runahead_kernel::memory::{
    self, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE, PROT_NONE, PROT_READ, PROT_WRITE,
};
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, PAGE, Result};
use runahead_policy::shown::{Entered, Part, Shown};

/// A mapping in which missing pages are noticed. Its bounds never change.
#[derive(Clone, Copy)]
pub struct Area {
    pub start: usize,
    pub end: usize,
    /// Of the pages that are there.
    pub protection: u32,
}

impl Area {
    fn bounds(&self) -> Part {
        Part { start: self.start, end: self.end }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Userfault,
    Guard,
    Protect,
}

/// A range that speculation has given more rights to.
#[derive(Clone, Copy)]
struct Widened {
    area: Area,
    start: usize,
    end: usize,
    protection: u32,
}

/// Ranges that speculation may give more rights to at a time.
const MAX_WIDENED: usize = 64;

pub struct Absent {
    way: Way,
    /// The userfaultfd.
    descriptor: i32,
    shown: Shown,
    widened: [Widened; MAX_WIDENED],
    widened_count: usize,
}

/// Bytes that are hidden by one call: the sandbox has a bound for these.
const MAX_AT_ONCE: usize = 64 << 30;

const NO_AREA: Area = Area { start: 0, end: 0, protection: 0 };

/// All zeros, as every large static here.
pub static ABSENT: Global<Absent> = Global::new(Absent {
    way: Way::Userfault,
    descriptor: 0,
    shown: Shown::NOTHING,
    widened: [Widened { area: NO_AREA, start: 0, end: 0, protection: 0 }; MAX_WIDENED],
    widened_count: 0,
});

impl Absent {
    /// Finds the first way that is to be had. EACCES or EPERM where there is none, as no memory may become
    /// executable.
    pub fn begin(&mut self) -> Result<()> {
        if let Ok(descriptor) = memory::userfault_sigbus() {
            (self.way, self.descriptor) = (Way::Userfault, descriptor);
            return Ok(());
        }
        self.way = if memory::has_guards() { Way::Guard } else { Way::Protect };
        // Or the program's code cannot be had.
        memory::may_execute_written()
    }

    /// Whether missing pages raise SIGSEGV, as bad addresses do.
    pub fn raises_segv(&self) -> bool {
        self.way != Way::Userfault
    }

    /// Makes an area where nothing was, with all of its pages missing. With a userfaultfd they are once it is
    /// [watched].
    ///
    /// [watched]: Absent::watch
    pub fn reserve(&self, area: Area) -> Result<()> {
        self.map(area.bounds(), self.at_first(area), n::MAP_FIXED_NOREPLACE)
    }

    /// The protection of an area of which nothing has been shown yet.
    fn at_first(&self, area: Area) -> u32 {
        if self.raises_segv() { PROT_NONE } else { area.protection }
    }

    fn map(&self, part: Part, protection: u32, how: u32) -> Result<()> {
        let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_NORESERVE | how;
        // SAFETY: the part lies in an area, which the mirror alone uses; without MAP_FIXED nothing is
        // replaced.
        let mapped = unsafe { memory::map(part.start, part.length(), protection, flags, -1, 0) }?;
        if mapped == part.start { Ok(()) } else { Err(Errno::EEXIST) }
    }

    /// From now on missing pages are noticed in the areas of this range.
    pub fn watch(&self, start: usize, length: usize) -> Result<()> {
        match self.way {
            Way::Userfault => memory::userfault_register(self.descriptor, start, length),
            Way::Guard | Way::Protect => Ok(()),
        }
    }

    /// Whether a touch of the page is not noticed, as far as is known here: a userfaultfd does not tell.
    pub fn is_shown(&self, area: Area, page: usize) -> bool {
        self.shown.is_shown(area.bounds(), page)
    }

    /// Lets the bytes at `from` appear at `start`, but in the pages that are there already.
    ///
    /// # Safety
    /// `length` bytes at `from` must be readable, and none of them part of an area.
    pub unsafe fn place(&mut self, area: Area, start: usize, from: usize, length: usize) -> Placed {
        if self.raises_segv() {
            return self.show(area, start, Some(from), length);
        }
        // SAFETY: the caller's buffer holds that many bytes; what appears is the mirror's.
        if unsafe { memory::userfault_copy(self.descriptor, start, from, length) }.is_ok() {
            return Ok(());
        }
        for offset in (0..length).step_by(PAGE) {
            // SAFETY: one page of the same.
            let placed =
                unsafe { memory::userfault_copy(self.descriptor, start + offset, from + offset, PAGE) };
            if !matches!(placed, Ok(()) | Err(Errno::EEXIST)) {
                return Err(NoPage::Absent);
            }
        }
        Ok(())
    }

    /// Lets a page of zeros appear, if none is there yet.
    pub fn place_zeros(&mut self, area: Area, page: usize) -> Placed {
        if self.raises_segv() {
            return self.show(area, page, None, PAGE);
        }
        // SAFETY: zeros appear in memory of the mirror, where nothing is.
        match unsafe { memory::userfault_zero(self.descriptor, page, PAGE) } {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(_) => Err(NoPage::Absent),
        }
    }

    /// Makes the missing pages of a range accessible, with what is at `from` in them, or zeros.
    fn show(&mut self, area: Area, start: usize, from: Option<usize>, length: usize) -> Placed {
        let whole = Part { start, end: (start + length).min(area.end) };
        let mut rest = whole;
        while rest.start < rest.end {
            let part = Part::of(area.bounds(), rest.start);
            let entered = match self.shown.find(part) {
                Some(entered) => entered,
                None => self.enter(area, part)?,
            };
            while let Some(run) = self.shown.hidden_run(entered, rest) {
                let copied = from.map(|from| from + (run.start - start));
                let has_room = self.way == Way::Guard || self.shown.has_room();
                if !has_room || self.show_run(area, run, copied).is_err() {
                    // What is half shown would be zeros to speculation.
                    let _ = self.hide(run);
                    self.shown.refused();
                    return Err(NoPage::Full);
                }
                self.shown.set(entered, run, true);
            }
            rest.start = part.end;
        }
        Ok(())
    }

    /// Takes a block in.
    fn enter(&mut self, area: Area, part: Part) -> core::result::Result<Entered, NoPage> {
        let entered = self.shown.enter(part).ok_or(NoPage::Full)?;
        if self.way == Way::Guard {
            // SAFETY: no page of the block has been shown so far, so nobody uses what the guards drop.
            let guarded = unsafe {
                memory::protect(part.start, part.length(), area.protection)
                    .and_then(|()| memory::advise(part.start, part.length(), MADV_GUARD_INSTALL))
            };
            if guarded.is_err() {
                // As it was: without guards it must not be accessible.
                self.hide_block(part);
                self.shown.leave(entered);
                self.shown.refused();
                return Err(NoPage::Full);
            }
            self.widen_within(part);
        }
        Ok(entered)
    }

    /// Makes a run of one block accessible, and copies into it.
    fn show_run(&self, area: Area, run: Part, from: Option<usize>) -> Result<()> {
        let length = run.length();
        let is_read_only = area.protection & PROT_WRITE == 0;
        let writes = from.is_some() && is_read_only;
        // Never both at once: it is not executed while it is written to.
        let at_first = if writes { PROT_READ | PROT_WRITE } else { area.protection };
        // SAFETY: pages of the mirror that are hidden: nobody uses them, and they are zeros. `from` is the
        // caller's buffer, as long as the run.
        unsafe {
            match self.way {
                Way::Guard => {
                    memory::advise(run.start, length, MADV_GUARD_REMOVE)?;
                    if writes {
                        memory::protect(run.start, length, at_first)?;
                    }
                }
                _ => memory::protect(run.start, length, at_first)?,
            }
            if let Some(from) = from {
                core::ptr::copy_nonoverlapping(from as *const u8, run.start as *mut u8, length);
            }
            if writes {
                memory::protect(run.start, length, area.protection)?;
            }
        }
        if writes || self.way == Way::Protect {
            self.widen_within(run);
        }
        Ok(())
    }

    /// Drops the pages of a range within an area: they are missing again.
    pub fn drop(&mut self, area: Area, start: usize, end: usize) {
        if !self.raises_segv() {
            // SAFETY: memory of the mirror; comes back from the program, or from its file, if it is touched.
            let _ = unsafe { memory::advise(start, end - start, n::MADV_DONTNEED) };
            return;
        }
        let bounds = Part { start, end };
        // Without guards there are no views: whatever lies between is hidden as well.
        let mut whole: Option<Part> = None;
        let mut from = 0;
        while let Some((entered, next)) = self.shown.next_within(area.bounds(), bounds, from) {
            from = next;
            let Some(span) = self.shown.shown_span(entered, bounds) else { continue };
            if self.way == Way::Guard {
                self.guard(entered, span);
            }
            self.shown.set(entered, span, false);
            whole = match whole {
                Some(before) if before.with(span).length() > MAX_AT_ONCE => {
                    self.replace(before);
                    Some(span)
                }
                before => Some(before.map_or(span, |before| before.with(span))),
            };
        }
        if let Some(whole) = whole {
            self.replace(whole);
        }
    }

    /// Has new memory in the place of pages that were shown, where there are no guards.
    fn replace(&mut self, part: Part) {
        if self.way == Way::Protect && self.hide(part).is_err() {
            self.shown.refused();
        }
    }

    /// Puts guards where they are missing in a part of a block.
    fn guard(&mut self, entered: Entered, span: Part) {
        /// Over pages and guards together one call takes 20 us for a block, 2.5 us for a run of pages.
        const MAX_SINGLY: usize = 8;
        let run = |shown: &Shown, start: usize| shown.shown_run(entered, Part { start, ..span });
        let mut rest = span.start;
        for _ in 0..MAX_SINGLY {
            let Some(run) = run(&self.shown, rest) else { return };
            if self.hide(run).is_err() {
                self.shown.refused();
            }
            rest = run.end;
        }
        if run(&self.shown, rest).is_some() && self.hide(Part { start: rest, ..span }).is_err() {
            self.shown.refused();
        }
    }

    /// Hides pages of entered blocks, and drops them.
    fn hide(&self, part: Part) -> Result<()> {
        match self.way {
            // SAFETY: memory of the mirror; comes back if it is touched.
            Way::Guard => unsafe { memory::advise(part.start, part.length(), MADV_GUARD_INSTALL) },
            // New memory takes half as long as no access to each run of the old.
            _ => self.map(part, PROT_NONE, n::MAP_FIXED),
        }
    }

    fn hide_block(&self, part: Part) {
        // SAFETY: as in `hide`. Guards stay, which a block without access does not mind.
        unsafe {
            let _ = memory::advise(part.start, part.length(), n::MADV_DONTNEED);
            let _ = memory::protect(part.start, part.length(), PROT_NONE);
        }
    }

    /// Something else lies over a block now, all of which may be touched without our noticing.
    pub fn is_covered(&mut self, area: Area, start: usize) {
        let part = Part::of(area.bounds(), start);
        if let Some(entered) = self.shown.find(part) {
            self.shown.set(entered, part, false);
        }
    }

    /// Puts memory with all pages missing in the place of what was mapped over a block. False: nothing is
    /// there now.
    pub fn uncover(&mut self, area: Area, start: usize) -> bool {
        let part = Part::of(area.bounds(), start);
        if let Some(entered) = self.shown.find(part) {
            self.shown.leave(entered);
        }
        self.map(part, self.at_first(area), n::MAP_FIXED)
            .and_then(|()| self.watch(part.start, part.length()))
            .is_ok()
    }

    /// Whether so many mappings have come together that all is to be dropped that can be.
    pub fn is_crowded(&self) -> bool {
        self.shown.is_crowded(self.way == Way::Protect)
    }

    /// Makes room, after all was dropped that could be. `stays`: blocks over which something else lies.
    pub fn make_room(&mut self, stays: impl Fn(usize) -> bool) {
        let has_mapping = self.way == Way::Guard;
        self.shown.take_out_empty(
            |part| stays(part.start),
            |part| {
                if has_mapping {
                    // SAFETY: a block of which nothing is shown.
                    let _ = unsafe { memory::protect(part.start, part.length(), PROT_NONE) };
                }
            },
        );
    }

    /// Speculation gives a range within an area more rights, until [`Absent::narrow`]. ENOMEM: not so many
    /// ranges.
    pub fn widen(&mut self, area: Area, start: usize, end: usize, protection: u32) -> Result<()> {
        let place = self.widened.get_mut(self.widened_count).ok_or(Errno::ENOMEM)?;
        *place = Widened { area, start, end, protection: area.protection | protection };
        self.widened_count += 1;
        self.protect(area, Part { start, end }, area.protection | protection)
    }

    /// Everything has the rights of its area again.
    pub fn narrow(&mut self) {
        for index in 0..core::mem::take(&mut self.widened_count) {
            let Some(&Widened { area, start, end, .. }) = self.widened.get(index) else { break };
            let _ = self.protect(area, Part { start, end }, area.protection);
        }
    }

    /// What is shown in these bounds by now has the rights that it was given there.
    fn widen_within(&self, bounds: Part) {
        for widened in self.widened.iter().take(self.widened_count) {
            let (start, end) = (widened.start.max(bounds.start), widened.end.min(bounds.end));
            if start < end {
                // SAFETY: memory of the mirror that is accessible.
                let _ = unsafe { memory::protect(start, end - start, widened.protection) };
            }
        }
    }

    /// Changes the protection of what is accessible in a range.
    fn protect(&self, area: Area, bounds: Part, protection: u32) -> Result<()> {
        // SAFETY: memory of the mirror, outside our window; what is missing stays so.
        let change = |part: Part| unsafe { memory::protect(part.start, part.length(), protection) };
        if !self.raises_segv() {
            return change(bounds);
        }
        let mut from = 0;
        while let Some((entered, next)) = self.shown.next_within(area.bounds(), bounds, from) {
            from = next;
            let mut rest = bounds;
            match self.way {
                Way::Guard => change(self.shown.part(entered, bounds))?,
                _ => {
                    while let Some(run) = self.shown.shown_run(entered, rest) {
                        change(run)?;
                        rest.start = run.end;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether something appeared.
pub type Placed = core::result::Result<(), NoPage>;
