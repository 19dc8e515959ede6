//! Syncs: what of the mirror is copied anew, and what is dropped.

use super::{KEPT_ALWAYS, Mirror, Region};
use crate::absent::ABSENT;
use crate::mapped::{self, MAPPED};
use crate::pagemap::{self, PAGEMAP};
use crate::views::VIEWS;
use crate::{run, shared};
use runahead_abi::session::ended;
use runahead_kernel::PAGE;
use runahead_kernel::files::IoVec;
use runahead_kernel::memory;

/// So many times the pages that one speculation touches are kept: refreshing four costs what filling a
/// quarter of one does.
const KEPT_TIMES: usize = 4;

impl Mirror {
    /// Brings every changing page to the program's present content, or drops them all when they are
    /// too many. Called at a sync, while the program waits if possible.
    pub fn refresh(&mut self, process: i32) {
        self.shrink_stack();
        self.forget_stale();
        if self.touched_after_drop == 0 {
            self.touched_after_drop = self.changing_count;
        }
        // Of the pages that the mirror has copied some will be on swap by now, as are those that are blank,
        // whatever the host says by now; to refresh them would bring them in.
        let swapping = self.has_blanks || run::is_swapping();
        if swapping || self.changing_count > KEPT_ALWAYS + KEPT_TIMES * self.touched_after_drop {
            self.drop_changing();
        }
        if ABSENT.get().is_crowded() {
            self.make_room();
        }
        self.drop_unbacked();
        let pages = self.changing.get(..self.changing_count).unwrap_or(&[]);
        shared::count(&shared::speculator().counts.pages_refreshed, pages.len() as u64);
        let mut batch = Batch::new();
        let mut complete = true;
        for &page in pages {
            if !batch.add(page) {
                complete &= batch.copy(process);
                batch.add(page);
            }
        }
        complete &= batch.copy(process);
        if !complete {
            self.refresh_singly(process);
        }
        // Without it the program's own would be copied, and lead speculation into the agent.
        if !self.renew_state_page() {
            run::end(ended::MEMORY, 0);
        }
    }

    /// Drops all that can be copied again.
    fn make_room(&mut self) {
        self.drop_files();
        self.drop_changing();
        Self::take_out_empty();
    }

    fn take_out_empty() {
        ABSENT.get().make_room(|start| VIEWS.get().show(start).is_some());
    }

    /// Drops one page that is no view's: it comes back if it is touched.
    fn drop_page(&mut self, page: usize) {
        if let Some(region) = self.region_at(page) {
            ABSENT.get().drop(region.area(), page, page + PAGE);
        }
    }

    /// Drops the pages of files that were blank, or may have changed.
    fn forget_stale(&mut self) {
        match MAPPED.get().stale() {
            Some(pages) => {
                for &page in pages {
                    if VIEWS.get().show(page).is_some() {
                        VIEWS.get().forget(page);
                        continue;
                    }
                    self.drop_page(page);
                    self.leave(page);
                }
            }
            None => self.drop_files(),
        }
    }

    /// There are as many pages of files as may be: a speculation that stays on track has no next sync. It has
    /// not written to those that the program may only read, so they can be dropped, and come back, at any
    /// time. Of others nobody knows, so it ends, and begins again.
    pub(super) fn drop_full(&mut self) {
        if MAPPED.get().has_changing() {
            MAPPED.get().make_all_stale();
            run::end(ended::MEMORY, 0);
        }
        self.drop_files();
        if ABSENT.get().is_crowded() {
            Self::take_out_empty();
        }
    }

    /// Drops what the next sync would drop, where that is all pages of files.
    pub fn drop_stale_files(&mut self) {
        if MAPPED.get().are_all_stale() {
            self.forget_stale();
        }
    }

    /// Drops all pages of files.
    fn drop_files(&mut self) {
        MAPPED.get().dropped();
        let regions = self.regions.iter().take(self.region_count);
        for region in regions.filter(|region| region.file != mapped::NONE) {
            for (start, end) in VIEWS.get().between(region.start, region.end) {
                ABSENT.get().drop(region.area(), start, end);
            }
        }
        VIEWS.get().forget_all();
        // Stable pages are still there; a second fill of one finds that out (EEXIST).
        self.clear_present();
        for index in 0..self.changing_count {
            self.enter(self.changing[index]);
        }
    }

    /// Drops the changing pages that the program does not have, or not any more: they are zeros again when
    /// they are touched.
    fn drop_unbacked(&mut self) {
        let count = self.changing_count;
        if let Some(pages) = self.changing.get_mut(..count) {
            pages.sort_unstable();
        }
        let (mut kept, mut index) = (0, 0);
        while index < count {
            let first = self.changing[index];
            let region = self.region_at(first).unwrap_or(Region::NOTHING);
            let window = self.window(index, count, region);
            let backed = if region.zeros {
                let pages = (self.changing[index + window - 1] - first) / PAGE + 1;
                PAGEMAP.get().backed(first, pages)
            } else {
                None
            };
            for index in index..index + window {
                let page = self.changing[index];
                let stays = !region.zeros || backed.as_ref().is_some_and(|b| b.has((page - first) / PAGE));
                if stays {
                    self.changing[kept] = page;
                    kept += 1;
                } else {
                    self.drop_page(page);
                    self.leave(page);
                }
            }
            index += window;
        }
        self.changing_count = kept;
    }

    /// How many of the changing pages from `index` on are in the region and near enough for one question.
    fn window(&self, index: usize, count: usize, region: Region) -> usize {
        /// To ask about so many pages takes as long as another question.
        const GAP: usize = 32;
        let pages = self.changing.get(index..count).unwrap_or(&[]);
        let first = pages.first().copied().unwrap_or(0);
        let belongs = |pair: &[usize]| match *pair {
            [before, next] => {
                next < region.end && next - before <= GAP * PAGE && next - first < pagemap::WINDOW * PAGE
            }
            _ => false,
        };
        1 + pages.windows(2).take_while(|pair| belongs(pair)).count()
    }

    /// Some page is gone from the program: refreshes one by one and forgets what is not there.
    fn refresh_singly(&mut self, process: i32) {
        let mut kept = 0;
        for index in 0..self.changing_count {
            let page = self.changing[index];
            let piece = [IoVec { base: page, length: PAGE }];
            // SAFETY: a mirror page that is there and writable.
            if unsafe { memory::read_process(process, &piece, &piece) } == Ok(PAGE) {
                self.changing[kept] = page;
                kept += 1;
            } else {
                self.drop_page(page);
            }
        }
        self.changing_count = kept;
        self.clear_present();
        for index in 0..kept {
            self.enter(self.changing[index]);
        }
    }

    /// Puts the mirror's own memory in the place of all views.
    pub fn drop_views(&mut self) {
        let mut any = false;
        for part in VIEWS.get().take_down() {
            any = true;
            // A view lies over a region's own block. Where nothing is any more a touch ends the speculation.
            if let Some(region) = self.region_at(part.start)
                && !ABSENT.get().uncover(region.area(), part.start)
            {
                // SAFETY: what is left of the view, or of what replaced it.
                let _ = unsafe { memory::unmap(part.start, part.end - part.start) };
            }
        }
        if any {
            // Pages that were copied before there was a view are gone.
            self.drop_files();
        }
    }

    /// Drops every changing page; they are filled again when they are touched.
    pub fn drop_changing(&mut self) {
        for index in 0..self.region_count {
            let region = self.regions[index];
            if !region.stable {
                ABSENT.get().drop(region.area(), region.start, region.end);
            }
        }
        self.changing_count = 0;
        self.has_blanks = false;
        self.touched_after_drop = 0;
        self.clear_present();
        // Stable pages are still there; a second fill of one finds that out (EEXIST).
    }
}

/// Pages copied from the program by one call.
struct Batch {
    pieces: [IoVec; Batch::MOST],
    count: usize,
    bytes: usize,
}

impl Batch {
    /// The kernel takes up to 1024 pieces (UIO_MAXIOV).
    const MOST: usize = 1024;

    fn new() -> Self {
        Batch { pieces: [IoVec { base: 0, length: 0 }; Self::MOST], count: 0, bytes: 0 }
    }

    /// Adds a page; false if there is no room.
    fn add(&mut self, page: usize) -> bool {
        if let Some(last) = self.count.checked_sub(1).and_then(|at| self.pieces.get_mut(at))
            && last.base + last.length == page
        {
            last.length += PAGE;
            self.bytes += PAGE;
            return true;
        }
        let Some(place) = self.pieces.get_mut(self.count) else {
            return false;
        };
        *place = IoVec { base: page, length: PAGE };
        self.count += 1;
        self.bytes += PAGE;
        true
    }

    /// Copies what was added and starts anew; false if something could not be copied.
    fn copy(&mut self, process: i32) -> bool {
        let pieces = self.pieces.get(..self.count).unwrap_or(&[]);
        if pieces.is_empty() {
            return true;
        }
        // SAFETY: mirror pages that are there and writable.
        let complete = unsafe { memory::read_process(process, pieces, pieces) } == Ok(self.bytes);
        self.count = 0;
        self.bytes = 0;
        complete
    }
}
