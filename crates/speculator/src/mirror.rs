//! The mirror: the speculator's copy of the program's memory.
//!
//! Every readable mapping of the program becomes an anonymous mapping at the same addresses, registered
//! with userfaultfd in SIGBUS mode: a touch of a page that is not there raises SIGBUS in the toucher,
//! whose handler copies the program's **current** page. A page is in one of two lists:
//!
//! - *stable*: text and constants of loaded objects; copied once, kept for good;
//! - *changing*: everything else; at each sync refreshed in place, all in a few calls.
//!
//! Memory that no file backs (anonymous, shared or huge) is copied only where the program has it, in memory or on swap, as
//! [`crate::pagemap`] tells; what it has never touched is zeros. A copy of that would be a fault in the program: memory that
//! it gets for it, or a message to whoever serves its faults. What lies at other devices than disks is left out.
//!
//! Refreshing costs some 0.25 us a page in which nothing has to be looked up, a fill some 4 us. So pages
//! once touched are kept; but what a speculation touches moves on, and pages that are there do not show
//! whether they are still wanted. When there are several times as many as the first speculation after the
//! last drop touched, all are dropped, and those in use come back one by one. (GNU ld: 6929 pages kept
//! made each sync 2.4 ms; each of its speculations touches some hundred.)
//!
//! What speculation maps for itself comes from two arenas ([`crate::layout`]) and is gone at the next
//! sync.

use crate::backing::{self, Backing};
use crate::cell::Global;
use crate::emulate;
use crate::layout::{self, BOUNCE, BOUNCE_BYTES};
use crate::mapped::{self, MAPPED};
use crate::pagemap::{self, PAGEMAP};
use crate::together::TOGETHER;
use crate::views::VIEWS;
use crate::{rights, run, shared};
use core::sync::atomic::Ordering;
use runahead_abi::session::ended;
use runahead_kernel::files::{self, IoVec};
use runahead_kernel::memory::{self, PROT_EXEC, PROT_READ, PROT_WRITE};
use runahead_kernel::text;
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, PAGE};

/// Regions of the program's memory; a program with more mappings runs plainly.
const REGIONS: usize = 8192;

/// Changing pages kept whatever was touched after the last drop: 64 take 16 us to refresh.
const KEPT_ALWAYS: usize = 256;

/// So many times the pages that one speculation touches are kept: refreshing four costs what filling a
/// quarter of one does.
const KEPT_TIMES: usize = 4;

/// Pages of the mirror in all (256 MB): a speculation that wants more ends.
pub const PAGES_MOST: usize = 65536;

/// Missing neighbours that are filled together when a range is about to be used.
const FILL_TOGETHER: usize = BOUNCE_BYTES / PAGE;

/// A mapping of the program, as it was when it was read.
#[derive(Clone, Copy)]
pub struct Region {
    pub start: usize,
    pub end: usize,
    pub protection: u32,
    pub stable: bool,
    /// Its pages come from this file ([`mapped`]).
    pub file: u16,
    /// No file backs it: what the program has not touched is zeros.
    pub zeros: bool,
}

impl Region {
    const NOTHING: Region =
        Region { start: 0, end: 0, protection: 0, stable: false, file: mapped::NONE, zeros: false };
}

pub struct Mirror {
    /// Opened by [`Mirror::create`], before anything else is asked of a mirror.
    userfault: i32,
    regions: [Region; REGIONS],
    region_count: usize,
    /// Which pages are there: open addressing, page number + 1, 0 empty.
    present: [u64; PAGES_MOST * 2],
    present_count: usize,
    changing: [usize; PAGES_MOST],
    changing_count: usize,
    /// Some of them were on swap, and are zeros here.
    has_blanks: bool,
    /// Changing pages at the first sync after the last drop; 0: there was none yet.
    touched_after_drop: usize,
    /// The agent's state page: kept out of all copying, see [`Mirror::set_state_page`].
    state_page: usize,
    stub_entry: usize,
    /// Ranges below stacks that speculation was given.
    grown: [(usize, usize); 16],
    grown_count: usize,
}

/// All zeros, as every large static here: what is not zero lies in the executable file, and a cold start
/// waited for 2 MB of it.
pub static MIRROR: Global<Mirror> = Global::new(Mirror {
    userfault: 0,
    regions: [Region::NOTHING; REGIONS],
    region_count: 0,
    present: [0; PAGES_MOST * 2],
    present_count: 0,
    changing: [0; PAGES_MOST],
    changing_count: 0,
    has_blanks: false,
    touched_after_drop: 0,
    state_page: 0,
    stub_entry: 0,
    grown: [(0, 0); 16],
    grown_count: 0,
});

/// Why a page could not be filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPage {
    /// The program has no memory there (any more).
    Absent,
    /// The mirror is at its bound.
    Full,
}

impl Mirror {
    /// Opens the userfaultfd and the mirror's regions as the program's mappings are now. False if the
    /// program cannot be mirrored.
    pub fn create(&mut self, process_directory: i32) -> bool {
        match memory::userfault_sigbus() {
            Ok(fd) => self.userfault = fd,
            Err(_) => return false,
        }
        // Without it nobody knows what may be copied.
        PAGEMAP.get().open(process_directory) && self.adopt_mappings(process_directory)
    }

    /// Reads the program's mappings and adds those that are new. False if one lies where we do, or
    /// there are too many.
    pub fn adopt_mappings(&mut self, process_directory: i32) -> bool {
        let Ok(fd) = files::open_at(process_directory, c"maps", files::QUIETLY, 0) else {
            return false;
        };
        let mut buffer = [0u8; 8192];
        let mut held = 0;
        let mut sound = true;
        let mut object = Object::default();
        while let Some(room) = buffer.get_mut(held..) {
            match files::read(fd, room) {
                Ok(0) | Err(_) => break,
                Ok(length) => held += length,
            }
            rights::copied();
            let filled = buffer.get(..held).unwrap_or(&[]);
            let complete = filled.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
            for line in filled.get(..complete).unwrap_or(&[]).split(|&b| b == b'\n') {
                if let Some(map) = text::maps_line(line) {
                    sound &= self.adopt(process_directory, &map, &mut object);
                }
            }
            buffer.copy_within(complete..held, 0);
            held -= complete;
        }
        let _ = files::close(fd);
        sound && self.register()
    }

    fn adopt(&mut self, process_directory: i32, map: &text::MapsLine, object: &mut Object) -> bool {
        let stable = object.is_stable(map);
        if map.name.starts_with(b"[vvar") || map.name.starts_with(b"[vsyscall") {
            return true;
        }
        // The session itself, and whatever else the program shares with somebody of ours.
        if map.shared && map.name.starts_with(b"/memfd:runahead") {
            return true;
        }
        if map.protection & (PROT_READ | PROT_WRITE | PROT_EXEC) == 0 {
            return true;
        }
        if layout::is_ours(map.start, map.end) {
            return false;
        }
        let file = if stable { mapped::NONE } else { MAPPED.get().adopt(process_directory, map) };
        if mapped::is_left_out(map, file) {
            return true;
        }
        let zeros = match backing::of(process_directory, map) {
            Backing::Memory => file == mapped::NONE,
            Backing::File => false,
            Backing::Device => return true,
        };
        self.add(Region { start: map.start, end: map.end, protection: map.protection, stable, file, zeros })
    }

    /// Adds a region where none is yet; parts that are known stay as they are.
    fn add(&mut self, region: Region) -> bool {
        let mut start = region.start;
        while start < region.end {
            if let Some(known) = self.region_at(start) {
                start = known.end;
                continue;
            }
            let index = self.first_after(start);
            let next = self.regions.get(index).filter(|_| index < self.region_count);
            let end = next.map_or(region.end, |next| next.start.min(region.end));
            if !self.insert(index, Region { start, end, ..region }) {
                return false;
            }
            start = end;
        }
        true
    }

    fn insert(&mut self, index: usize, region: Region) -> bool {
        if self.region_count >= REGIONS {
            return false;
        }
        let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_FIXED_NOREPLACE | n::MAP_NORESERVE;
        let length = region.end - region.start;
        // What the program may only read is writable here, or it could not be refreshed in place.
        let writable = if region.stable { 0 } else { PROT_WRITE };
        // SAFETY: replaces nothing.
        let mapped = unsafe { memory::map(region.start, length, region.protection | writable, flags, -1, 0) };
        if mapped != Ok(region.start) {
            return false;
        }
        self.regions.copy_within(index..self.region_count, index + 1);
        self.regions[index] = region;
        self.region_count += 1;
        true
    }

    /// Registers everything outside our window with the userfaultfd; regions that are registered
    /// already stay so.
    fn register(&self) -> bool {
        let Some(known) = self.regions.get(..self.region_count) else {
            return false;
        };
        // Runs of regions without our window between them: one call each.
        let mut index = 0;
        while index < known.len() {
            let first = known[index];
            let mut last = first;
            while index < known.len() {
                let region = known[index];
                if (first.start < layout::WINDOW) != (region.start < layout::WINDOW) {
                    break;
                }
                last = region;
                index += 1;
            }
            if memory::userfault_register(self.userfault, first.start, last.end - first.start).is_err() {
                return false;
            }
        }
        true
    }

    /// Registers a range that speculation maps.
    pub fn register_range(&self, start: usize, length: usize) -> bool {
        memory::userfault_register(self.userfault, start, length).is_ok()
    }

    /// Lets the pages at `from` appear at `start`, where none of that run is yet or some are.
    pub fn place(&self, start: usize, from: usize, length: usize) -> bool {
        // SAFETY: the caller's buffer holds that many bytes; the target is an arena.
        if unsafe { memory::userfault_copy(self.userfault, start, from, length) }.is_ok() {
            return true;
        }
        (0..length).step_by(PAGE).all(|offset| {
            // SAFETY: as above.
            let placed =
                unsafe { memory::userfault_copy(self.userfault, start + offset, from + offset, PAGE) };
            matches!(placed, Ok(()) | Err(Errno::EEXIST))
        })
    }

    /// Lets a page of zeros appear at `page`, if none is there yet.
    fn place_zeros(&self, page: usize) -> bool {
        // SAFETY: mirror memory.
        matches!(unsafe { memory::userfault_zero(self.userfault, page, PAGE) }, Ok(()) | Err(Errno::EEXIST))
    }

    fn first_after(&self, address: usize) -> usize {
        let known = self.regions.get(..self.region_count).unwrap_or(&[]);
        known.partition_point(|region| region.start <= address)
    }

    /// The region that holds `address`.
    pub fn region_at(&self, address: usize) -> Option<Region> {
        let index = self.first_after(address).checked_sub(1)?;
        let region = *self.regions.get(index)?;
        (address < region.end).then_some(region)
    }

    /// Fills the missing page at `address` from the program.
    pub fn fill(&mut self, process: i32, address: usize) -> Result<(), NoPage> {
        let region = self.region_at(address).ok_or(NoPage::Absent)?;
        let page = address & !(PAGE - 1);
        if region.file != mapped::NONE && MAPPED.get().is_full(run::allowed().pages) {
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

    /// Sees to it that no page on swap is copied, which would bring it in; None: the page is not there. Ends the speculation
    /// if it cannot go on without it.
    fn fill_from_swap(&mut self, region: Region, page: usize) -> Option<Result<(), NoPage>> {
        if region.stable || !run::is_swapping() {
            return None;
        }
        let room = run::swap_room();
        // Each is a copy, of memory that the program could have. (Which of them speculation has written to, nobody
        // knows; so it ends, and begins again.)
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
        Some(self.fill_blank(page))
    }

    /// Takes a page that is on swap as zeros, and says so. May end the speculation, or sleep until the program has come
    /// closer.
    fn fill_blank(&mut self, page: usize) -> Result<(), NoPage> {
        if !self.place_zeros(page) {
            return Err(NoPage::Absent);
        }
        self.remember(page, false);
        self.has_blanks = true;
        run::touched_on_swap(page);
        Ok(())
    }

    /// The run of pages around `page` that are copied with it. Of what is stable: those that the program has in memory,
    /// too, and the mirror not yet. (What the program itself has not touched might have to come from the disk.) What
    /// changes is copied page by page: each of them is copied again at each sync, and python's, filled in runs, were so
    /// many that fewer of its starts were consistent (36 runs each, 259 ms in the median, 221 without).
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
            // The neighbours of a page of the program's own may be a file's: copied from the program they would be
            // waited for. Nor is it known whether they are on swap.
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

    /// Copies pages from the program, or a part of them, or has zeros there instead. Returns how many are there now, at least one.
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
        if !self.place(page, BOUNCE, got) {
            return Err(NoPage::Absent);
        }
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
            if !self.place_zeros(page) {
                return Err(NoPage::Absent);
            }
            self.remember(page, region.stable);
        }
        Ok(pages)
    }

    /// Fills a page from its file with what is cached, or with zeros; None if it does not come from one. May end
    /// the speculation, or sleep until the program has come closer.
    fn fill_from_file(&mut self, region: Region, page: usize) -> Option<Result<(), NoPage>> {
        let (real, offset, together) = MAPPED.get().source(region.file, page)?;
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
        let (got, blank) = match unsafe { files::preadv2(real, &piece, offset as i64, files::RWF_NOWAIT) } {
            // Behind the end of the file: the program would get SIGBUS.
            Ok(0) => return Some(Err(NoPage::Absent)),
            Ok(got) => (got, false),
            Err(Errno::EAGAIN) => {
                MAPPED.get().has_told(region.file);
                (0, true)
            }
            // A file system that does not tell what is cached. What the program has mapped is there for the copying, other code is
            // waited for as zeros are none, and the rest is taken for missing.
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

    /// Lets what was read of a file, so many bytes, appear at `page`, with zeros behind it; `blank`: one page of zeros instead.
    fn place_of_file(&mut self, region: Region, page: usize, got: usize, blank: bool) -> Result<(), NoPage> {
        let filled = got.div_ceil(PAGE).max(1);
        let viewed = VIEWS.get().show(page).is_some();
        let placed = if viewed {
            VIEWS.get().place(page, blank)
        } else if blank {
            self.place_zeros(page)
        } else {
            // SAFETY: the bounce buffer is ours and longer than what was read.
            unsafe { core::ptr::write_bytes((BOUNCE + got) as *mut u8, 0, filled * PAGE - got) };
            self.place(page, BOUNCE, filled * PAGE)
        };
        if !placed {
            return Err(NoPage::Absent);
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
        {
            VIEWS.get().copied(part);
        }
        run::touched(page, filled, blank, MAPPED.get().device(region.file));
        Ok(())
    }

    /// Pages that lie together have their places in the table together: spread over all of it a thousand of them made
    /// the whole table resident, 1 MB.
    fn slot_of(page: usize) -> usize {
        const TOGETHER: usize = 64;
        let number = page / PAGE;
        let block = ((number / TOGETHER) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 40;
        block.wrapping_mul(TOGETHER) + number % TOGETHER
    }

    /// Copied pages that a drop would give back.
    pub fn changing_pages(&self) -> u64 {
        self.changing_count as u64
    }

    /// Empties the table. Its parts that were never written to stay as they are, which takes no memory.
    fn clear_present(&mut self) {
        if self.present_count > 0 {
            self.present.iter_mut().filter(|word| **word != 0).for_each(|word| *word = 0);
        }
        self.present_count = 0;
    }

    /// Whether a touch of the page would raise no signal.
    fn is_there(&self, page: usize) -> bool {
        VIEWS.get().show(page).unwrap_or_else(|| self.is_present(page))
    }

    fn is_present(&self, page: usize) -> bool {
        let wanted = (page / PAGE) as u64 + 1;
        let mut slot = Self::slot_of(page);
        loop {
            match self.present[slot % self.present.len()] {
                0 => return false,
                found if found == wanted => return true,
                _ => slot += 1,
            }
        }
    }

    fn remember(&mut self, page: usize, stable: bool) {
        if self.is_present(page) {
            return;
        }
        self.enter(page);
        if !stable && let Some(place) = self.changing.get_mut(self.changing_count) {
            *place = page;
            self.changing_count += 1;
        }
    }

    /// Takes a page out of the table; those behind it in its run move up.
    fn leave(&mut self, page: usize) {
        let length = self.present.len();
        let wanted = (page / PAGE) as u64 + 1;
        let mut slot = Self::slot_of(page) % length;
        while self.present[slot] != wanted {
            if self.present[slot] == 0 {
                return;
            }
            slot = (slot + 1) % length;
        }
        self.present_count -= 1;
        let mut next = slot;
        loop {
            self.present[slot] = 0;
            loop {
                next = (next + 1) % length;
                if self.present[next] == 0 {
                    return;
                }
                let home = Self::slot_of((self.present[next] as usize - 1) * PAGE) % length;
                // It may move up if its home does not lie between the gap and itself.
                if (next + length - home) % length >= (next + length - slot) % length {
                    break;
                }
            }
            self.present[slot] = self.present[next];
            slot = next;
        }
    }

    fn enter(&mut self, page: usize) {
        let length = self.present.len();
        let mut slot = Self::slot_of(page);
        while self.present[slot % length] != 0 {
            slot += 1;
        }
        self.present[slot % length] = (page / PAGE) as u64 + 1;
        self.present_count += 1;
    }

    /// Brings every changing page to the program's present content, or drops them all when they are
    /// too many. Called at a sync, while the program waits if possible.
    pub fn refresh(&mut self, process: i32) {
        self.shrink_stack();
        self.forget_stale();
        if self.touched_after_drop == 0 {
            self.touched_after_drop = self.changing_count;
        }
        // Of the pages that the mirror has copied some will be on swap by now, as are those that are blank, whatever the host
        // says by now; to refresh them would bring them in.
        let swapping = self.has_blanks || run::is_swapping();
        if swapping || self.changing_count > KEPT_ALWAYS + KEPT_TIMES * self.touched_after_drop {
            self.drop_changing();
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
        self.renew_state_page();
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
                    // SAFETY: mirror memory; comes back from the file if it is touched.
                    let _ = unsafe { memory::advise(page, PAGE, n::MADV_DONTNEED) };
                    self.leave(page);
                }
            }
            None => self.drop_files(),
        }
    }

    /// There are as many pages of files as may be: a speculation that stays on track has no next sync. It has not written to
    /// those that the program may only read, so they can be dropped, and come back, at any time. Of others nobody knows, so it
    /// ends, and begins again. (Not dropped and not counted either, copies of NAS FT's arrays took 124 MB of a group of 128.)
    fn drop_full(&mut self) {
        if MAPPED.get().has_changing() {
            MAPPED.get().make_all_stale();
            run::end(ended::MEMORY, 0);
        }
        self.drop_files();
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
                // SAFETY: mirror memory; comes back from the file if it is touched.
                let _ = unsafe { memory::advise(start, end - start, n::MADV_DONTNEED) };
            }
        }
        VIEWS.get().forget_all();
        // Stable pages are still there; a second fill of one finds that out (EEXIST).
        self.clear_present();
        for index in 0..self.changing_count {
            self.enter(self.changing[index]);
        }
    }

    /// Drops the changing pages that the program does not have, or not any more: they are zeros again when they are touched.
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
                    // SAFETY: mirror memory; zeros, or what the program has there by then, if it is touched.
                    let _ = unsafe { memory::advise(page, PAGE, n::MADV_DONTNEED) };
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
                // SAFETY: mirror memory; comes back from the program if it is touched.
                let _ = unsafe { memory::advise(page, PAGE, n::MADV_DONTNEED) };
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
            let length = part.end - part.start;
            let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_FIXED | n::MAP_NORESERVE;
            // SAFETY: over a view, of which the mirror's regions know (where they do not, nothing is to be there).
            let replaced = self.region_at(part.start).is_some_and(|region| unsafe {
                memory::map(part.start, length, region.protection | PROT_WRITE, flags, -1, 0).is_ok()
            });
            if !replaced || !self.register_range(part.start, length) {
                // SAFETY: as above. A touch ends the speculation.
                let _ = unsafe { memory::unmap(part.start, length) };
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
                let length = region.end - region.start;
                // SAFETY: mirror memory; its pages come back from the program.
                let _ = unsafe { memory::advise(region.start, length, n::MADV_DONTNEED) };
            }
        }
        self.changing_count = 0;
        self.has_blanks = false;
        self.touched_after_drop = 0;
        self.clear_present();
        // Stable pages are still there; a second fill of one finds that out (EEXIST).
    }

    /// Puts a page of our own where the agent's state page is in the program: stubs that the mirrored
    /// code jumps through enter the runtime at `entry`, every time.
    pub fn set_state_page(&mut self, address: usize, entry: usize) -> bool {
        let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_FIXED;
        // SAFETY: replaces one page of the mirror.
        let mapped = unsafe { memory::map(address, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) };
        if mapped != Ok(address) {
            return false;
        }
        self.state_page = address;
        self.stub_entry = entry;
        self.renew_state_page();
        true
    }

    /// Address of the agent's state page.
    pub fn state_page(&self) -> usize {
        self.state_page
    }

    /// Writes the state page's content: it may have been dropped with the pages around it.
    fn renew_state_page(&self) {
        // SAFETY: mapped by `set_state_page`; the layout is that of `agent::state::Fixed`.
        unsafe { (self.state_page as *mut usize).write(self.stub_entry) };
        self.keep_calm_off();
    }

    /// Stubs count this word down and enter when it is negative.
    pub fn keep_calm_off(&self) {
        // SAFETY: the state page, mapped by `set_state_page`.
        unsafe { ((self.state_page + size_of::<usize>()) as *mut i32).write(i32::MIN / 2) };
    }

    /// Speculation's stack has grown below the program's: gives it zero pages as the kernel would. True
    /// if `address` is there now.
    pub fn grow_stack(&mut self, address: usize, stack_pointer: usize) -> bool {
        /// The red zone, and room for a large frame's probe.
        const SLACK: usize = 64 * 1024;
        const GROWTH_MOST: usize = 1 << 20;
        let page = address & !(PAGE - 1);
        let index = self.first_after(address);
        let Some(above) = self.regions.get(index).filter(|_| index < self.region_count).copied() else {
            return false;
        };
        let near = address + SLACK >= stack_pointer && above.start - page <= GROWTH_MOST;
        let holds_stack = stack_pointer < above.end && stack_pointer + GROWTH_MOST >= above.start;
        if !near || !holds_stack || above.protection & PROT_WRITE == 0 {
            return false;
        }
        let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_FIXED_NOREPLACE | n::MAP_NORESERVE;
        // SAFETY: replaces nothing. Not part of the regions: the next sync finds the program's own
        // stack there, if it has grown so far.
        let mapped = unsafe { memory::map(page, above.start - page, above.protection, flags, -1, 0) };
        mapped == Ok(page) && self.remember_growth(page, above.start)
    }

    fn remember_growth(&mut self, start: usize, end: usize) -> bool {
        let Some(place) = self.grown.get_mut(self.grown_count) else {
            return false;
        };
        *place = (start, end);
        self.grown_count += 1;
        true
    }

    /// Takes back what `grow_stack` gave.
    fn shrink_stack(&mut self) {
        for &(start, end) in self.grown.get(..self.grown_count).unwrap_or(&[]) {
            // SAFETY: our own zero pages.
            let _ = unsafe { memory::unmap(start, end - start) };
        }
        self.grown_count = 0;
    }

    /// Overwrites code in the mirror (the vDSO's functions).
    pub fn write_code(&mut self, process: i32, address: usize, code: &[u8]) -> bool {
        if !self.populate(process, address, code.len()) {
            return false;
        }
        let page = address & !(PAGE - 1);
        let length = (address + code.len()).next_multiple_of(PAGE) - page;
        let Some(region) = self.region_at(address) else {
            return false;
        };
        // SAFETY: mirror memory, made writable for the time of the copy.
        unsafe {
            if memory::protect(page, length, PROT_READ | PROT_WRITE).is_err() {
                return false;
            }
            core::ptr::copy_nonoverlapping(code.as_ptr(), address as *mut u8, code.len());
            memory::protect(page, length, region.protection).is_ok()
        }
    }
}

/// Whether speculation mapped the page itself: then it is there, or fills itself.
fn arena_holds(page: usize) -> bool {
    let inside = |start: usize, length: usize| (start..start + length).contains(&page);
    inside(layout::ANONYMOUS_ARENA, layout::ANONYMOUS_ARENA_BYTES)
        || inside(layout::FILE_ARENA, layout::FILE_ARENA_BYTES)
        || emulate::grown_break().contains(&page)
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

/// Tells, line by line of the program's mappings, what belongs to loaded code.
///
/// Stable are mappings without write permission of a file that is also mapped executable here (an
/// object's headers, text, constants, and what became read-only after relocation), the vDSO, and
/// executable anonymous memory without write permission (the agent's stubs). Lines of one object follow
/// each other, headers before text, so the header line must be judged by what is usual: an offset of 0
/// and no write permission, followed by text. Other read-only mappings of files may be windows that
/// the program moves.
#[derive(Default)]
struct Object {
    inode: u64,
}

impl Object {
    fn is_stable(&mut self, map: &text::MapsLine) -> bool {
        if map.protection & PROT_WRITE != 0 || map.shared {
            return false;
        }
        if map.protection & PROT_EXEC != 0 {
            self.inode = map.inode;
            return true;
        }
        map.inode != 0 && map.inode == self.inode
    }
}

/// The program's process id, for fills.
pub fn process() -> i32 {
    shared::PROCESS.load(Ordering::Relaxed)
}
