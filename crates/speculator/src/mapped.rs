//! The program's mapped files in the mirror.
//!
//! Copying such a page from the program would make the kernel read it, and the speculator wait. So it comes from
//! the file, by one read that returns what is cached and otherwise starts just that read (`RWF_NOWAIT`): then the
//! page is blank, zeros, and execution goes on. What follows from zeros is wrong, as a rule; the program's fault
//! tells, and speculation is restarted with the page there by then (in the prototype waiting for the data was four times
//! slower on two levels of indices).
//!
//! Of a private mapping that the program may write to, the pages that it has written to are its own and are copied
//! from it; [`crate::pagemap`] tells which (a page that is not the program's own comes from the file).
//! What was its own is refreshed at each sync, what was the file's is dropped there: it may be its own by now.
//!
//! Mappings of executables and libraries are the mirror's stable pages.
//!
//! A file is open for as long as a speculation runs. A file without a name is not opened: its space comes back when the
//! program unmaps it.

use crate::cell::Global;
use crate::descriptors::{Descriptor, Kind, look_at, process_directory};
use crate::pagemap::PAGEMAP;
use crate::rights;
use crate::views::Part;
use runahead_kernel::files;
use runahead_kernel::memory::{PROT_EXEC, PROT_WRITE};
use runahead_kernel::text::{MapsLine, Text};
use runahead_kernel::{Errno, PAGE, Result};
use runahead_policy::copies;
use runahead_policy::views::BLOCK;

/// Files that are taken so, at most.
const FILES_MOST: usize = 64;

/// Bytes of a mapping from which on it is: a descriptor costs some us.
const LEAST: usize = 1 << 20;

/// Of a private mapping that may be written to, in which each page is asked about and filled by itself. (The data of
/// python's executable are 1.2 MB.)
const LEAST_PRIVATE: usize = copies::LARGE;

/// Pages filled together where they are touched one after the other, as in an index that is read through.
const TOGETHER_MOST: usize = 16;

/// Blank pages that are dropped one by one at the next sync (1.4 us each); where there are more, all pages of files
/// are (0.4 ms for 1 GB).
const BLANKS: usize = 256;

/// Pages of files kept in the mirror (64 MB), or as many as may be ahead of the program where that is less, but always
/// so many: with more, all are dropped. Each is a copy, of memory that the program could have.
pub const KEPT_MOST: usize = 16384;
const KEPT_LEAST: usize = 1024;

/// A region's number for "not from a file"; the first file has the next. (Zero, as large statics are to be.)
pub const NONE: u16 = 0;

#[derive(Clone, Copy)]
struct File {
    /// -1 where it is not open at present.
    real: i32,
    /// `st_dev` and `st_ino`.
    device: u64,
    inode: u64,
    /// The mapping's first address, and its place in the file.
    start: usize,
    offset: u64,
    /// The program may write to it: what is cached changes.
    changing: bool,
    /// The program's writes stay its own.
    private: bool,
    /// It tells what is cached, and starts what is not without waiting: its reads may be started together.
    tells: bool,
    /// Bytes, when it was opened.
    size: u64,
    /// The program can neither write to it nor run it through this mapping: there may be views of it.
    viewable: bool,
}

/// As the program sees them, each with a zero behind it.
type Name = [u8; 512];

/// Where a page comes from.
pub struct Source {
    /// Our descriptor of the file, and of its bytes when it was opened.
    pub real: i32,
    pub size: u64,
    /// Of the page in the file, bytes.
    pub offset: u64,
    /// How many pages may be filled with it.
    pub together: usize,
}

pub struct Mapped {
    files: [File; FILES_MOST],
    names: [Name; FILES_MOST],
    count: usize,
    /// Pages to be forgotten at the next sync.
    blanks: [usize; BLANKS],
    blank_count: usize,
    filled: usize,
    /// Some of them may have been written to.
    has_changing: bool,
    /// The page behind the latest that was filled, and how many are filled together there.
    next: usize,
    together: usize,
}

pub static MAPPED: Global<Mapped> = Global::new(Mapped {
    files: [File {
        real: 0,
        device: 0,
        inode: 0,
        start: 0,
        offset: 0,
        changing: false,
        private: false,
        tells: false,
        size: 0,
        viewable: false,
    }; FILES_MOST],
    names: [[0; size_of::<Name>()]; FILES_MOST],
    count: 0,
    blanks: [0; BLANKS],
    blank_count: 0,
    filled: 0,
    has_changing: false,
    next: 0,
    together: 0,
});

impl Mapped {
    /// The number of a mapping's file, if its pages are to be taken from there.
    pub fn adopt(&mut self, process_directory: i32, map: &MapsLine) -> u16 {
        let private = !map.shared && map.protection & PROT_WRITE != 0;
        let long = map.end - map.start >= if private { LEAST_PRIVATE } else { LEAST };
        if map.inode == 0 || map.name.first() != Some(&b'/') || !long {
            return NONE;
        }
        if private && !PAGEMAP.get().open(process_directory) {
            return NONE;
        }
        let known = self.files.get(..self.count).unwrap_or(&[]);
        if let Some(at) = known.iter().position(|f| f.start == map.start && f.offset == map.offset) {
            return at as u16 + 1;
        }
        if self.count >= FILES_MOST {
            return NONE;
        }
        let (Some(name), true) = (self.names.get_mut(self.count), map.name.len() < size_of::<Name>()) else {
            return NONE;
        };
        name.fill(0);
        for (to, from) in name.iter_mut().zip(map.name) {
            *to = *from;
        }
        let Ok(found) = open(process_directory, name) else {
            return NONE;
        };
        let Descriptor { real, device, inode, size, .. } = found;
        if inode != map.inode {
            let _ = files::close(real);
            return NONE;
        }
        let changing = map.protection & PROT_WRITE != 0;
        let Some(place) = self.files.get_mut(self.count) else {
            return NONE;
        };
        let (start, offset) = (map.start, map.offset);
        let viewable = map.protection & (PROT_WRITE | PROT_EXEC) == 0;
        *place = File {
            real,
            device,
            inode,
            size: size as u64,
            start,
            offset,
            changing,
            private,
            tells: false,
            viewable,
        };
        self.count += 1;
        self.count as u16
    }

    /// Where a page comes from. None: from the program's memory.
    pub fn source(&mut self, file: u16, page: usize) -> Option<Source> {
        let found = *self.files.get(..self.count)?.get(usize::from(file).checked_sub(1)?)?;
        // The page behind it may be of the other kind.
        let alone = found.private || page != self.next;
        self.together = if alone { 1 } else { (self.together * 2).min(TOGETHER_MOST) };
        if found.private && PAGEMAP.get().is_own(page) {
            return None;
        }
        let offset = found.offset + page.checked_sub(found.start)? as u64;
        let real = self.opened(usize::from(file).checked_sub(1)?)?;
        Some(Source { real, offset, size: found.size, together: self.together })
    }

    /// Our descriptor for a file, opened again if it was let go. None if the file is not any more what it was.
    fn opened(&mut self, index: usize) -> Option<i32> {
        let (file, name) = (self.files.get_mut(index)?, self.names.get(index)?);
        if file.real < 0 {
            let found = open(process_directory(), name).ok()?;
            if (found.device, found.inode) != (file.device, file.inode) {
                let _ = files::close(found.real);
                return None;
            }
            file.real = found.real;
        }
        Some(file.real)
    }

    /// The part of a file that lies in one block of addresses with `page`, within the mirror's region from `start` to `end`; None if
    /// there may be no view of it.
    pub fn part(&self, file: u16, (start, end): (usize, usize), page: usize) -> Option<Part> {
        let found = self.files.get(..self.count)?.get(usize::from(file).checked_sub(1)?)?;
        let block = page & !(BLOCK - 1);
        let (start, end) = (block.max(start), (block + BLOCK).min(end));
        let offset = found.offset + start.checked_sub(found.start)? as u64;
        found.viewable.then_some(Part { start, end, descriptor: found.real, offset })
    }

    /// Closes every file.
    pub fn let_go(&mut self) {
        for file in self.files.iter_mut().take(self.count).filter(|file| file.real >= 0) {
            let _ = files::close(core::mem::replace(&mut file.real, -1));
        }
    }

    /// Where the mappings start whose files are taken from `offset` on.
    pub fn starts(&self, offset: u64) -> impl Iterator<Item = usize> {
        self.files.iter().take(self.count).filter(move |file| file.offset == offset).map(|file| file.start)
    }

    /// The device of a region's file.
    pub fn device(&self, file: u16) -> u64 {
        self.files.get(usize::from(file.saturating_sub(1))).map_or(0, |file| file.device)
    }

    /// Whether a read at `offset` may be held back: the file was seen to start one without waiting for it, and has a page there.
    pub fn may_be_held(&self, file: u16, offset: u64) -> bool {
        let file = self.files.get(usize::from(file.saturating_sub(1)));
        file.is_some_and(|file| file.tells && offset < file.size)
    }

    /// The file was seen to start a read without waiting for it.
    pub fn has_told(&mut self, file: u16) {
        if let Some(file) = self.files.get_mut(usize::from(file.saturating_sub(1))) {
            file.tells = true;
        }
    }

    /// So many pages at `page` are in the mirror now.
    pub fn filled(&mut self, file: u16, page: usize, pages: usize, blank: bool) {
        self.next = page + pages * PAGE;
        self.filled += pages;
        let changing = self.files.get(usize::from(file.saturating_sub(1))).is_some_and(|file| file.changing);
        self.has_changing |= changing;
        if blank || changing {
            for number in 0..pages {
                if let Some(place) = self.blanks.get_mut(self.blank_count) {
                    *place = page + number * PAGE;
                }
                // Counted even where there is no room.
                self.blank_count += 1;
            }
        }
    }

    /// Whether there are more pages than are kept in the middle of a speculation; `allowed`: those that may
    /// be ahead; `is_crowded`: the mirror is too scattered.
    pub fn is_full(&self, allowed: u32, is_crowded: bool) -> bool {
        let allowed = if is_crowded { KEPT_LEAST } else { KEPT_LEAST.max(allowed as usize) };
        self.filled >= KEPT_MOST.min(allowed)
    }

    /// Whether speculation may have written to some of them, so that they cannot be dropped in its middle.
    pub fn has_changing(&self) -> bool {
        self.has_changing
    }

    /// The next sync is to forget all pages of files.
    pub fn make_all_stale(&mut self) {
        self.blank_count = BLANKS + 1;
    }

    /// Pages filled since all of them were dropped.
    pub fn filled_pages(&self) -> u64 {
        self.filled as u64
    }

    /// All of them were dropped.
    pub fn dropped(&mut self) {
        (self.filled, self.has_changing) = (0, false);
    }

    /// Whether the next sync is to forget all pages of files.
    pub fn are_all_stale(&self) -> bool {
        self.blank_count > BLANKS || self.filled > KEPT_MOST
    }

    /// The pages to be forgotten at a sync; None: all pages of files. Begins anew.
    pub fn stale(&mut self) -> Option<&[usize]> {
        let all = self.are_all_stale();
        let count = core::mem::take(&mut self.blank_count);
        if all { None } else { self.blanks.get(..count) }
    }
}

/// Opens a mapped file by its name, as the program sees it, if that is a regular file. (By the mapping itself, which takes
/// privilege, only what has no name any more would have to be opened.)
fn open(process_directory: i32, name: &Name) -> Result<Descriptor> {
    let name = name.split(|&byte| byte == 0).next().unwrap_or(&[]);
    let path = Text::<1024>::new().push(b"root").push(name);
    rights::hold();
    let found = look_at(process_directory, path.as_c_str())?;
    if found.kind == Kind::File && found.real >= 0 {
        return Ok(found);
    }
    if found.real >= 0 {
        let _ = files::close(found.real);
    }
    Err(Errno::ENOENT)
}

/// Whether the mapping is to be left out; `file` is its number.
pub fn is_left_out(map: &MapsLine, file: u16) -> bool {
    let (nameless, opened) = (map.is_nameless_file(), file != NONE);
    copies::Mapping { length: map.end - map.start, shared: map.shared, nameless, opened }.is_left_out()
}
