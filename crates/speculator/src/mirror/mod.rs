//! The mirror: the speculator's copy of the program's memory.
//!
//! Every readable mapping of the program becomes an anonymous mapping at the same addresses. A touch of a
//! page that is not there raises a signal in the toucher ([`crate::absent`]), whose handler copies the
//! program's **current** page. A page is in one of two lists:
//!
//! - *stable*: text and constants of loaded objects; copied once, kept for good;
//! - *changing*: everything else; at each sync refreshed in place, all in a few calls.
//!
//! Memory that no file backs (anonymous, shared or huge) is copied only where the program has it, in memory
//! or on swap, as
//! [`crate::pagemap`] tells; what it has never touched is zeros. A copy of that would be a fault in the program: memory that
//! it gets for it, or a message to whoever serves its faults. What lies at other devices than disks is left
//! out.
//!
//! Refreshing costs some 0.25 us a page in which nothing has to be looked up, a fill some 4 us. So pages
//! once touched are kept; but what a speculation touches moves on, and pages that are there do not show
//! whether they are still wanted. When there are several times as many as the first speculation after the
//! last drop touched, all are dropped, and those in use come back one by one.
//!
//! What speculation maps for itself comes from two arenas ([`crate::layout`]) and is gone at the next
//! sync.

mod fill;
mod pages;
mod placed;
mod refresh;

use crate::absent::{ABSENT, Area};
use crate::backing::{self, Backing};
use crate::cell::Global;
use crate::layout;
use crate::mapped::{self, MAPPED};
use crate::pagemap::PAGEMAP;
use crate::{rights, shared};
use core::sync::atomic::Ordering;
use runahead_abi::session::speculator_exit;
use runahead_kernel::Errno;
use runahead_kernel::files;
use runahead_kernel::memory::{PROT_EXEC, PROT_READ, PROT_WRITE};
use runahead_kernel::text;

/// Regions of the program's memory; a program with more mappings runs plainly.
const REGIONS: usize = 8192;

/// Changing pages kept whatever was touched after the last drop: 64 take 16 us to refresh.
const KEPT_ALWAYS: usize = 256;

/// Pages of the mirror in all (256 MB): a speculation that wants more ends.
pub const PAGES_MOST: usize = 65536;

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

    /// As the mirror has it. What the program may only read is writable, or it could not be refreshed in
    /// place.
    pub fn area(&self) -> Area {
        let writable = if self.stable { 0 } else { PROT_WRITE };
        Area { start: self.start, end: self.end, protection: self.protection | writable }
    }
}

pub struct Mirror {
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

/// Why the program cannot be mirrored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoMirror {
    /// Nobody tells what may be copied (`/proc/PID/pagemap`, `maps`).
    Untold,
    /// A mapping lies where we do.
    Taken,
    /// There are too many mappings.
    TooMany,
    /// There is no room for as many addresses as the program has (RLIMIT_AS).
    NoAddresses,
    /// Missing pages cannot be noticed there.
    NotWatched,
}

impl NoMirror {
    /// What a speculator ends with that cannot begin.
    pub fn exit_status(self) -> i32 {
        match self {
            NoMirror::Untold => speculator_exit::NOTHING_TOLD,
            NoMirror::Taken => speculator_exit::TAKEN,
            NoMirror::TooMany => speculator_exit::TOO_MANY_MAPPINGS,
            NoMirror::NoAddresses => speculator_exit::NO_ADDRESSES,
            NoMirror::NotWatched => speculator_exit::NO_MIRROR,
        }
    }
}

/// Why a page could not be filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPage {
    /// The program has no memory there (any more).
    Absent,
    /// The mirror is at its bound.
    Full,
}

impl Mirror {
    /// Makes the mirror's regions as the program's mappings are now.
    pub fn create(&mut self, process_directory: i32) -> Result<(), NoMirror> {
        // Without it nobody knows what may be copied.
        if !PAGEMAP.get().open(process_directory) {
            return Err(NoMirror::Untold);
        }
        self.adopt_mappings(process_directory)
    }

    /// Reads the program's mappings and adds those that are new.
    pub fn adopt_mappings(&mut self, process_directory: i32) -> Result<(), NoMirror> {
        let fd =
            files::open_at(process_directory, c"maps", files::QUIETLY, 0).map_err(|_| NoMirror::Untold)?;
        let mut buffer = [0u8; 8192];
        let mut held = 0;
        let mut adopted = Ok(());
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
                    adopted = adopted.and(self.adopt(process_directory, &map, &mut object));
                }
            }
            buffer.copy_within(complete..held, 0);
            held -= complete;
        }
        let _ = files::close(fd);
        adopted.and(self.watch())
    }

    fn adopt(
        &mut self,
        process_directory: i32,
        map: &text::MapsLine,
        object: &mut Object,
    ) -> Result<(), NoMirror> {
        let stable = object.is_stable(map);
        if map.name.starts_with(b"[vvar") || map.name.starts_with(b"[vsyscall") {
            return Ok(());
        }
        // The session itself, and whatever else the program shares with somebody of ours.
        if map.shared && map.name.starts_with(b"/memfd:runahead") {
            return Ok(());
        }
        if map.protection & (PROT_READ | PROT_WRITE | PROT_EXEC) == 0 {
            return Ok(());
        }
        if layout::is_ours(map.start, map.end) {
            return Err(NoMirror::Taken);
        }
        let file = if stable { mapped::NONE } else { MAPPED.get().adopt(process_directory, map) };
        if mapped::is_left_out(map, file) {
            return Ok(());
        }
        let zeros = match backing::of(process_directory, map) {
            Backing::Memory => file == mapped::NONE,
            Backing::File => false,
            Backing::Device => return Ok(()),
        };
        self.add(Region { start: map.start, end: map.end, protection: map.protection, stable, file, zeros })
    }

    /// Adds a region where none is yet; parts that are known stay as they are.
    fn add(&mut self, region: Region) -> Result<(), NoMirror> {
        let mut start = region.start;
        while start < region.end {
            if let Some(known) = self.region_at(start) {
                start = known.end;
                continue;
            }
            let index = self.first_after(start);
            let next = self.regions.get(index).filter(|_| index < self.region_count);
            let end = next.map_or(region.end, |next| next.start.min(region.end));
            self.insert(index, Region { start, end, ..region })?;
            start = end;
        }
        Ok(())
    }

    fn insert(&mut self, index: usize, region: Region) -> Result<(), NoMirror> {
        if self.region_count >= REGIONS {
            return Err(NoMirror::TooMany);
        }
        ABSENT.get().reserve(region.area()).map_err(|error| match error {
            Errno::ENOMEM => NoMirror::NoAddresses,
            _ => NoMirror::Taken,
        })?;
        self.regions.copy_within(index..self.region_count, index + 1);
        self.regions[index] = region;
        self.region_count += 1;
        Ok(())
    }

    /// Has missing pages noticed everywhere outside our window; in regions where they are already it stays so.
    fn watch(&self) -> Result<(), NoMirror> {
        let known = self.regions.get(..self.region_count).unwrap_or(&[]);
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
            let watched = ABSENT.get().watch(first.start, last.end - first.start);
            watched.map_err(|_| NoMirror::NotWatched)?;
        }
        Ok(())
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

    /// Whether a bad address is a page that is missing here.
    pub fn misses(&self, page: usize) -> bool {
        let absent = ABSENT.get();
        let area = self.region_at(page).map(|region| region.area());
        area.is_some_and(|area| absent.raises_segv() && !absent.is_shown(area, page))
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
