//! How a missing page of the mirror is filled: from the program, from a file, or with zeros.

use super::{KEPT_ALWAYS, Mirror, NoPage, PAGES_MOST, Region};
use crate::absent::ABSENT;
use crate::aside::read_cached;
use crate::layout::{self, BOUNCE, BOUNCE_BYTES};
use crate::mapped::{self, MAPPED, Source};
use crate::pagemap::{self, PAGEMAP};
use crate::together::TOGETHER;
use crate::views::VIEWS;
use crate::{emulate, rights, run, shared};
use runahead_abi::session::ended;
use runahead_kernel::files::{self, IoVec};
use runahead_kernel::memory::{self, PROT_EXEC};
use runahead_kernel::{Errno, PAGE};

/// Missing neighbours that are filled together when a range is about to be used.
const FILL_TOGETHER: usize = BOUNCE_BYTES / PAGE;

impl Mirror {
    /// Fills the missing page at `address` from the program.
    pub fn fill(&mut self, process: i32, address: usize) -> Result<(), NoPage> {
        let region = self.region_at(address).ok_or(NoPage::Absent)?;
        let page = address & !(PAGE - 1);
        if region.file != mapped::NONE
            && MAPPED.get().is_full(run::allowed().pages, ABSENT.get().is_crowded())
        {
            self.drop_full();
        }
        if let Some(filled) = self.fill_from_file(region, page) {
            return filled;
        }
        if let Some(filled) = self.fill_from_swap(region, page) {
            return filled;
        }
        let (first, pages) = self.around(region, page);
        self.fill_run(process, region, first, pages).map(drop)
    }

    /// Sees to it that no page on swap is copied, which would bring it in; None: the page is not there. Ends
    /// the speculation if it cannot go on without it.
    fn fill_from_swap(&mut self, region: Region, page: usize) -> Option<Result<(), NoPage>> {
        if region.stable || !run::is_swapping() {
            return None;
        }
        let room = run::swap_room();
        // Each is a copy, of memory that the program could have. (Which of them speculation has written to,
        // nobody knows; so it ends, and begins again.)
        if room.is_some_and(|room| self.changing_count >= room.max(KEPT_ALWAYS)) {
            run::end(ended::MEMORY, 0);
        }
        if !PAGEMAP.get().is_swapped(page) {
            return None;
        }
        // Zeros that nobody ever replaces would only lead it astray.
        if room.is_none() {
            run::end(ended::WAITS, 0);
        }
        Some(self.fill_blank(region, page))
    }

    /// Takes a page that is on swap as zeros, and says so. May end the speculation, or sleep until the
    /// program has come closer.
    fn fill_blank(&mut self, region: Region, page: usize) -> Result<(), NoPage> {
        ABSENT.get().place_zeros(region.area(), page)?;
        self.remember(page, false);
        self.has_blanks = true;
        run::touched_on_swap(page);
        Ok(())
    }

    /// The run of pages around `page` that are copied with it. Of what is stable: those that the program has
    /// in memory, too, and the mirror not yet. (What the program itself has not touched might have to come
    /// from the disk.) What changes is copied page by page: each of them is copied again at each sync, and
    /// python's, filled in runs, were so many that fewer of its starts were consistent (36 runs each, 259 ms
    /// in the median, 221 without).
    fn around(&self, region: Region, page: usize) -> (usize, usize) {
        if !region.stable {
            return (page, 1);
        }
        const BLOCK: usize = pagemap::MOST * PAGE;
        let start = (page & !(BLOCK - 1)).max(region.start);
        let end = ((page & !(BLOCK - 1)) + BLOCK).min(region.end);
        let present = PAGEMAP.get().present(start, (end - start) / PAGE);
        let wanted =
            |at: usize| present.get((at - start) / PAGE).is_some_and(|&there| there) && !self.is_present(at);
        let mut first = page;
        while first > start && wanted(first - PAGE) {
            first -= PAGE;
        }
        let mut after = page + PAGE;
        while after < end && wanted(after) {
            after += PAGE;
        }
        (first, (after - first) / PAGE)
    }

    /// Makes sure that all pages of a range are there, so that the kernel can write into it. True if
    /// they are.
    pub fn populate(&mut self, process: i32, start: usize, length: usize) -> bool {
        if length == 0 {
            return true;
        }
        let Some(end) = start.checked_add(length) else {
            return false;
        };
        let mut page = start & !(PAGE - 1);
        while page < end {
            if arena_holds(page) || self.is_there(page) {
                page += PAGE;
                continue;
            }
            let Some(region) = self.region_at(page) else {
                return false;
            };
            match self.fill_from_file(region, page).or_else(|| self.fill_from_swap(region, page)) {
                Some(Ok(())) => continue,
                Some(Err(_)) => return false,
                None => {}
            }
            let limit = region.end.min(end);
            // The neighbours of a page of the program's own may be a file's: copied from the program they
            // would be waited for. Nor is it known whether they are on swap.
            let alone = region.file != mapped::NONE || (!region.stable && run::is_swapping());
            let together = if alone { 1 } else { FILL_TOGETHER };
            let mut pages = 1;
            while pages < together && page + pages * PAGE < limit && !self.is_present(page + pages * PAGE) {
                pages += 1;
            }
            match self.fill_run(process, region, page, pages) {
                Ok(filled) => page += filled * PAGE,
                Err(_) => return false,
            }
        }
        true
    }

    /// Copies pages from the program, or a part of them, or has zeros there instead. Returns how many are
    /// there now, at least one.
    fn fill_run(&mut self, process: i32, region: Region, page: usize, pages: usize) -> Result<usize, NoPage> {
        if self.present_count + pages > PAGES_MOST {
            return Err(NoPage::Full);
        }
        let mut pages = pages;
        if region.zeros {
            let backed = PAGEMAP.get().backed(page, pages).ok_or(NoPage::Absent)?;
            let copied = backed.has(0);
            pages = (1..pages).find(|&number| backed.has(number) != copied).unwrap_or(pages);
            if !copied {
                return self.fill_zeros(region, page, pages);
            }
        }
        let length = pages * PAGE;
        let local = [IoVec { base: BOUNCE, length }];
        let remote = [IoVec { base: page, length }];
        // SAFETY: the bounce buffer is ours and at least as long.
        let got = unsafe { memory::read_process(process, &local, &remote) }.unwrap_or(0) / PAGE * PAGE;
        rights::copied_for_code();
        if got == 0 {
            return Err(NoPage::Absent);
        }
        // SAFETY: the bounce buffer is ours and holds what was read.
        unsafe { ABSENT.get().place(region.area(), page, BOUNCE, got) }?;
        for index in 0..got / PAGE {
            self.remember(page + index * PAGE, region.stable);
        }
        let counts = &shared::speculator().counts;
        shared::count(&counts.pages_filled, (got / PAGE) as u64);
        shared::at_least(&counts.pages_most, self.present_count as u64);
        Ok(got / PAGE)
    }

    /// Has zeros where the program has nothing.
    fn fill_zeros(&mut self, region: Region, page: usize, pages: usize) -> Result<usize, NoPage> {
        for number in 0..pages {
            let page = page + number * PAGE;
            ABSENT.get().place_zeros(region.area(), page)?;
            self.remember(page, region.stable);
        }
        Ok(pages)
    }

    /// Fills a page from its file with what is cached, or with zeros; None if it does not come from one. May
    /// end the speculation, or sleep until the program has come closer.
    fn fill_from_file(&mut self, region: Region, page: usize) -> Option<Result<(), NoPage>> {
        let Source { real, offset, size, together } = MAPPED.get().source(region.file, page)?;
        if self.present_count + together > PAGES_MOST {
            return Some(Err(NoPage::Full));
        }
        let most = together.min((region.end - page) / PAGE);
        let mut pages = 1;
        let apart = |at: usize| self.is_present(at) || VIEWS.get().show(at).is_some();
        while pages < most && !apart(page) && !apart(page + pages * PAGE) {
            pages += 1;
        }
        // One byte is enough to have the page read.
        if pages == 1
            && MAPPED.get().may_be_held(region.file, offset)
            && TOGETHER.get().holds(real, offset, 1)
        {
            return Some(self.place_of_file(region, page, 0, true));
        }
        let piece = [IoVec { base: BOUNCE, length: pages * PAGE }];
        // SAFETY: the bounce buffer is ours and holds `FILL_TOGETHER` pages, more than are filled together.
        let (got, blank) = match unsafe { read_cached(real, &piece, offset, size) } {
            // Behind the end of the file: the program would get SIGBUS.
            Ok(0) => return Some(Err(NoPage::Absent)),
            Ok(got) => (got, false),
            Err(Errno::EAGAIN) => {
                MAPPED.get().has_told(region.file);
                (0, true)
            }
            // A file system that does not tell what is cached. What the program has mapped is there for the
            // copying, other code is waited for as zeros are none, and the rest is taken for missing.
            Err(Errno::EOPNOTSUPP)
                if region.protection & PROT_EXEC == 0 && PAGEMAP.get().is_missing(page) =>
            {
                let _ = files::readahead(real, offset, PAGE as u64);
                (0, true)
            }
            Err(_) => return None,
        };
        Some(self.place_of_file(region, page, got, blank))
    }

    /// Lets what was read of a file, so many bytes, appear at `page`, with zeros behind it; `blank`: one page
    /// of zeros instead.
    fn place_of_file(&mut self, region: Region, page: usize, got: usize, blank: bool) -> Result<(), NoPage> {
        let filled = got.div_ceil(PAGE).max(1);
        let viewed = VIEWS.get().show(page).is_some();
        if viewed {
            VIEWS.get().place(page, blank).then_some(()).ok_or(NoPage::Absent)?;
        } else if blank {
            ABSENT.get().place_zeros(region.area(), page)?;
        } else {
            // SAFETY: the bounce buffer is ours and longer than what was read.
            unsafe {
                core::ptr::write_bytes((BOUNCE + got) as *mut u8, 0, filled * PAGE - got);
                ABSENT.get().place(region.area(), page, BOUNCE, filled * PAGE)?;
            }
        }
        for number in (0..filled).filter(|_| !viewed) {
            self.remember(page + number * PAGE, true);
        }
        MAPPED.get().filled(region.file, page, filled, blank);
        let counts = &shared::speculator().counts;
        shared::count(&counts.pages_filled, filled as u64);
        shared::at_least(&counts.pages_most, self.present_count as u64);
        TOGETHER.get().found(blank);
        // What is mapped twice is evicted later: not where memory is short.
        let room = run::allowed().pages as usize >= mapped::KEPT_MOST;
        if !blank
            && !viewed
            && room
            && let Some(part) = MAPPED.get().part(region.file, (region.start, region.end), page)
            && VIEWS.get().copied(part)
        {
            ABSENT.get().is_covered(region.area(), part.start);
        }
        run::touched(page, filled, blank, MAPPED.get().device(region.file));
        Ok(())
    }
}

/// Whether speculation mapped the page itself: then it is there, or fills itself.
fn arena_holds(page: usize) -> bool {
    let inside = |start: usize, length: usize| (start..start + length).contains(&page);
    inside(layout::ANONYMOUS_ARENA, layout::ANONYMOUS_ARENA_BYTES)
        || inside(layout::FILE_ARENA, layout::FILE_ARENA_BYTES)
        || emulate::grown_break().contains(&page)
}
