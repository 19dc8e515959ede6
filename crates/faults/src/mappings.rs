//! The files that a program has mapped, and descriptors of our own for them.
//!
//! `/proc/PID/map_files` would lead straight to the file, but not without privilege. So the file is looked up by
//! its path as the program sees it, or among the program's descriptors where it has none any more, and taken
//! only if it is a regular file with the mapping's inode on the mapping's device. A file that has neither name nor
//! descriptor (temporary files are made so) is to be had through `map_files` alone. Its space comes back when the program unmaps it,
//! so it is opened for each question by itself, and closed again.
//!
//! Of a file of which somebody asks whether a page has arrived there is a mapping of our own as well ([`View`]), in the watcher's
//! process and never touched: to ask through it does not use the page. It lasts as long as the descriptor. Before Linux 6.5, which
//! has no `cachestat`, it also tells what is cached.

use crate::PAGE;
use runahead_abi::release::What::{self, Files};
use runahead_gate::{Gate, Pass};
use runahead_kernel::Errno;
use runahead_kernel::files::{IoVec, RWF_NOWAIT, cached_pages, preadv2};
use runahead_kernel::filesystem::FileSystem;
use runahead_kernel::memory::PROT_READ;
use runahead_kernel::text::{self, MapsLine};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fadvise, fstat, fstatfs, major, minor, openat};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::cell::OnceCell;
use std::ffi::OsStr;
use std::ffi::c_void;
use std::fs;
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

/// Behind the path of what has lost its name.
const NAMELESS: &[u8] = b" (deleted)";

/// Pages about which the kernel is asked at once through a [`View`].
const TOLD_AT_ONCE: usize = 64;

/// One mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Where in the file it starts, bytes.
    pub offset: u64,
    /// Number of the file in [`Mappings`].
    file: usize,
}

impl Mapping {
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

struct File {
    device: (u32, u32),
    inode: u64,
    path: Vec<u8>,
    state: State,
}

impl File {
    fn is_nameless(&self) -> bool {
        self.path.ends_with(NAMELESS)
    }
}

enum State {
    /// Nobody has asked for a page of it yet.
    NotYet,
    Open(Opened),
    /// Not to be had, or not worth it.
    Refused,
}

struct Opened {
    descriptor: OwnedFd,
    /// Once it has been asked for; None: it is not to be had.
    view: OnceCell<Option<View>>,
    /// Below both: what is held is counted until it is closed.
    _pass: Option<Pass>,
}

impl Opened {
    fn view(&self) -> Option<&View> {
        self.view.get_or_init(|| View::of(&self.descriptor)).as_ref()
    }

    /// How many pages of a range of bytes are cached; None where that cannot be told.
    fn cached(&self, offset: u64, length: u64) -> Option<u64> {
        let told = cached_pages(self.descriptor.as_raw_fd(), offset, length);
        told.ok().or_else(|| self.view()?.count(offset, length))
    }
}

/// A mapping of our own, to ask which pages are in memory. Nothing in it is ever touched. (Reading a byte of a page tells as
/// much, but marks the page as used: with the program's own use that makes two, and the kernel takes pages that the program
/// goes through once for such as it comes back to. NAS FT on a file, local disk: 3.4 s so, 3.2 without, alone 3.4.)
struct View {
    start: *mut c_void,
    length: usize,
}

// SAFETY: the address range is this value's own, and nobody reads or writes there.
unsafe impl Send for View {}

impl View {
    /// None where it cannot be had, or the kernel would not tell us (it answers that all is there to who is not the owner).
    fn of(file: &OwnedFd) -> Option<View> {
        let stat = fstat(file).ok()?;
        let length = usize::try_from(stat.st_size).ok().filter(|&length| length > 0)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return None;
        }
        // SAFETY: a new mapping, where the kernel likes.
        let start =
            unsafe { mmap(null_mut(), length, ProtFlags::empty(), MapFlags::SHARED, file, 0) }.ok()?;
        // It would keep the file until the child executes something.
        // SAFETY: all of the mapping that has just been made.
        let _ = unsafe { madvise(start, length, Advice::LinuxDontFork) };
        Some(View { start, length })
    }

    /// Whether the page at an offset is in memory, all of it read.
    fn holds(&self, offset: u64) -> Option<bool> {
        let count = (offset < self.length as u64).then(|| self.count(offset, PAGE))?;
        count.map(|count| count > 0)
    }

    /// How many of the pages of `length` bytes from an offset on (whole pages) are in memory, all of them read.
    fn count(&self, offset: u64, length: u64) -> Option<u64> {
        let inside = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.length);
        let (mut at, end) = (inside(offset), inside(offset.saturating_add(length)));
        let mut told = [0u8; TOLD_AT_ONCE];
        let mut count = 0;
        while at < end {
            let bytes = (end - at).min(TOLD_AT_ONCE * PAGE as usize);
            // SAFETY: asks about pages of our own mapping, and writes one byte for each.
            let failed = unsafe { libc::mincore(self.start.byte_add(at), bytes, told.as_mut_ptr()) };
            if failed != 0 {
                return None;
            }
            let pages = bytes.div_ceil(PAGE as usize);
            count += told.iter().take(pages).filter(|&&page| page & 1 != 0).count() as u64;
            at += bytes;
        }
        Some(count)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody else knows of it.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

/// What a process has mapped, as it was when it was looked at.
pub struct Mappings {
    process: u32,
    mappings: Vec<Mapping>,
    files: Vec<File>,
    /// Memory of the process's own, from and up to.
    memory: Vec<(u64, u64)>,
    gate: Gate,
}

impl Mappings {
    pub fn new(process: u32) -> Mappings {
        let gate = Gate::default();
        Mappings { process, mappings: Vec::new(), files: Vec::new(), memory: Vec::new(), gate }
    }

    /// Opens files through this gate only.
    pub fn through(self, gate: Gate) -> Mappings {
        Mappings { gate, ..self }
    }

    pub fn gate(&self) -> Gate {
        self.gate
    }

    /// Closes all files if a program gives something back. They are opened again when somebody asks for a page.
    pub fn let_go_if_asked(&mut self) {
        if self.gate.is_closed(Files) {
            let opened = self.files.iter_mut().filter(|file| matches!(file.state, State::Open(_)));
            opened.for_each(|file| file.state = State::NotYet);
        }
    }

    /// Looks again. Files that are no longer mapped are closed.
    pub fn refresh(&mut self) -> io::Result<()> {
        let mut lines = Vec::new();
        fs::File::open(format!("/proc/{}/maps", self.process))?.read_to_end(&mut lines)?;
        let mut known = std::mem::take(&mut self.files);
        self.mappings.clear();
        self.memory.clear();
        for line in lines.split(|&byte| byte == b'\n') {
            let Some(map) = text::maps_line(line) else { continue };
            let (start, end) = (map.start as u64, map.end as u64);
            // Nobody waits for what may not be read: rooms kept free, views such as ours.
            if map.protection & PROT_READ == 0 {
                continue;
            }
            if map.inode != 0 && map.name.starts_with(b"/") {
                let file = self.file_of(&map, &mut known);
                self.mappings.push(Mapping { start, end, offset: map.offset, file });
            } else if map.inode == 0 && !map.shared {
                self.memory.push((start, end));
            }
        }
        Ok(())
    }

    /// The mapping of the process's own memory at an address, from and up to.
    pub fn memory_at(&self, address: u64) -> Option<(u64, u64)> {
        let after = self.memory.partition_point(|&(start, _)| start <= address);
        let found = *self.memory.get(after.checked_sub(1)?)?;
        (address < found.1).then_some(found)
    }

    fn file_of(&mut self, map: &MapsLine, known: &mut Vec<File>) -> usize {
        let same =
            |file: &File| file.inode == map.inode && file.device == map.device && file.path == map.name;
        if let Some(at) = self.files.iter().position(same) {
            return at;
        }
        self.files.push(match known.iter().position(same) {
            Some(at) => known.swap_remove(at),
            None => {
                File { device: map.device, inode: map.inode, path: map.name.to_vec(), state: State::NotYet }
            }
        });
        self.files.len() - 1
    }

    /// Closes all files and forgets what was there.
    pub fn clear(&mut self) {
        self.mappings.clear();
        self.files.clear();
        self.memory.clear();
    }

    /// The mapping at an address.
    pub fn at(&self, address: u64) -> Option<Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.start <= address);
        let mapping = *self.mappings.get(after.checked_sub(1)?)?;
        (address < mapping.end).then_some(mapping)
    }

    /// All of them, in the order of their addresses.
    pub fn all(&self) -> &[Mapping] {
        &self.mappings
    }

    /// Which file a mapping is of: device and inode.
    pub fn identity(&self, mapping: Mapping) -> Option<((u32, u32), u64)> {
        let file = self.files.get(mapping.file)?;
        Some((file.device, file.inode))
    }

    /// Whether a file is open.
    pub fn holds_any(&self) -> bool {
        self.files.iter().any(|file| matches!(file.state, State::Open(_)))
    }

    /// Major and minor number of what a mapping's file is on.
    pub fn device(&self, mapping: Mapping) -> Option<(u32, u32)> {
        Some(self.files.get(mapping.file)?.device)
    }

    /// Asks for the pages from `first` to below `end` (addresses in the mapping). True if one of them was not
    /// cached, and has been asked for.
    pub fn ask(&mut self, mapping: Mapping, first: u64, end: u64) -> bool {
        let asked = self.asks(mapping, first, end);
        self.close_nameless(mapping);
        asked
    }

    fn asks(&mut self, mapping: Mapping, first: u64, end: u64) -> bool {
        let (offset, length) = place(mapping, first, end);
        let Some(file) = self.opened(mapping) else { return false };
        // Asking for what is there costs twice what looking does. Where nobody can tell, it is asked for.
        if file.cached(offset, length) == Some(length.div_ceil(PAGE)) {
            return false;
        }
        let length = NonZeroU64::new(length);
        length.is_some() && fadvise(&file.descriptor, offset, length, rustix::fs::Advice::WillNeed).is_ok()
    }

    /// How many of the pages from `first` to below `end` are cached, and of how many; None where that cannot be
    /// told.
    pub fn cached(&mut self, mapping: Mapping, first: u64, end: u64) -> Option<(u64, u64)> {
        let (offset, length) = place(mapping, first, end);
        let cached = self.opened(mapping).and_then(|file| file.cached(offset, length));
        self.close_nameless(mapping);
        Some((cached?, length.div_ceil(PAGE)))
    }

    /// Whether the page at an address is on its way from the disk, or not even that; None where that cannot be told.
    /// (`cachestat` counts what is on its way.)
    pub fn is_missing(&mut self, mapping: Mapping, address: u64) -> Option<bool> {
        let missing = self.misses(mapping, address);
        self.close_nameless(mapping);
        missing
    }

    fn misses(&mut self, mapping: Mapping, address: u64) -> Option<bool> {
        let (offset, _) = place(mapping, address, address);
        let file = self.opened(mapping)?;
        if let Some(there) = file.view().and_then(|view| view.holds(offset)) {
            return Some(!there);
        }
        let mut byte = 0u8;
        let piece = [IoVec { base: &raw mut byte as usize, length: 1 }];
        // SAFETY: one byte of ours may be overwritten.
        match unsafe { preadv2(file.descriptor.as_raw_fd(), &piece, offset as i64, RWF_NOWAIT) } {
            Ok(_) => Some(false),
            Err(Errno::EAGAIN) => Some(true),
            Err(_) => None,
        }
    }

    /// A file without a name is not kept open.
    fn close_nameless(&mut self, mapping: Mapping) {
        if let Some(file) = self.files.get_mut(mapping.file)
            && file.is_nameless()
            && matches!(file.state, State::Open(_))
        {
            file.state = State::NotYet;
        }
    }

    fn opened(&mut self, mapping: Mapping) -> Option<&Opened> {
        let file = self.files.get_mut(mapping.file)?;
        if matches!(file.state, State::NotYet) {
            let pass = self.gate.pass(if file.is_nameless() { What::Mapping } else { Files })?;
            let opened = open(self.process, file, mapping).map(|descriptor| Opened {
                view: OnceCell::new(),
                descriptor,
                _pass: Some(pass),
            });
            file.state = opened.map_or(State::Refused, State::Open);
        }
        match &file.state {
            State::Open(opened) => Some(opened),
            _ => None,
        }
    }
}

/// Where in the file the pages from `first` to below `end` are: offset and length, inside the mapping.
fn place(mapping: Mapping, first: u64, end: u64) -> (u64, u64) {
    let first = (first / PAGE * PAGE).clamp(mapping.start, mapping.end);
    let end = end.clamp(first, mapping.end);
    (mapping.offset.saturating_add(first - mapping.start), end - first)
}

/// Opens a mapped file for reading: by its path, by a descriptor of the program's, or by the mapping itself.
fn open(process: u32, file: &File, mapping: Mapping) -> Option<OwnedFd> {
    let mut path = PathBuf::from(format!("/proc/{process}/root")).into_os_string();
    path.push(OsStr::from_bytes(&file.path));
    if let Some(found) = open_if(Path::new(&path), file) {
        return Some(found);
    }
    if !file.is_nameless() {
        return None;
    }
    // The quickest way, and the only one for who has closed a file of his own without a name. The kernel wants privilege.
    let Mapping { start, end, .. } = mapping;
    let by_mapping = open_if(Path::new(&format!("/proc/{process}/map_files/{start:x}-{end:x}")), file);
    by_mapping.or_else(|| {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        descriptors.flatten().find_map(|entry| open_if(&entry.path(), file))
    })
}

/// Opens the file at `path` if it is the one. It is looked at before it is opened: opening a device or a FIFO
/// does something.
fn open_if(path: &Path, file: &File) -> Option<OwnedFd> {
    let seen = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let kind = FileSystem::of(fstatfs(&seen).ok()?.f_type);
    if kind.is_in_memory() || !is_it(&fstat(&seen).ok()?, file, kind.maps_another_device) {
        return None;
    }
    let same = format!("/proc/self/fd/{}", seen.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    // Only the owner may ask for no access times.
    match openat(CWD, &same, flags | OFlags::NOATIME, Mode::empty()) {
        Err(rustix::io::Errno::PERM) => openat(CWD, &same, flags, Mode::empty()).ok(),
        other => other.ok(),
    }
}

fn is_it(stat: &Stat, file: &File, any_device: bool) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_ino == file.inode
        && (any_device || (major(stat.st_dev), minor(stat.st_dev)) == file.device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant};

    const PAGES: u64 = 80;

    fn mapped(path: &Path) -> (fs::File, memmap2::Mmap) {
        let mut file = fs::File::create_new(path).unwrap();
        file.write_all(&vec![7; (PAGES * PAGE) as usize]).unwrap();
        let file = fs::File::open(path).unwrap();
        // SAFETY: nobody changes the file.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        (file, map)
    }

    fn descriptors_of(path: &Path) -> usize {
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
        links.filter(|link| fs::read_link(link.path()).is_ok_and(|at| at.starts_with(path))).count()
    }

    #[test]
    fn a_mapping_is_found_and_closed_again() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("file");
        let (file, map) = mapped(&path);
        drop(file);
        let mut mappings = Mappings::new(std::process::id());
        mappings.refresh().unwrap();
        let address = map.as_ptr() as u64;
        let mapping = mappings.at(address + 5 * PAGE).unwrap();
        assert_eq!((mapping.start, mapping.end), (address, address + PAGES * PAGE));
        assert_eq!(mappings.cached(mapping, address, address + 8 * PAGE), Some((8, 8)));
        assert!(!mappings.ask(mapping, address, address + PAGE), "it is cached");
        assert_eq!(descriptors_of(folder.path()), 1);
        drop(map);
        mappings.refresh().unwrap();
        assert_eq!(descriptors_of(folder.path()), 0);
    }

    #[test]
    fn a_deleted_file_is_found_by_its_descriptor_and_another_in_its_place_is_not() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("file");
        let (file, map) = mapped(&path);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        let mut mappings = Mappings::new(std::process::id());
        let address = map.as_ptr() as u64;
        mappings.refresh().unwrap();
        let mapping = mappings.at(address).unwrap();
        assert_eq!(mappings.cached(mapping, address, address + PAGE), Some((1, 1)));
        drop(file);
        mappings.clear();
        mappings.refresh().unwrap();
        let mapping = mappings.at(address).unwrap();
        // By the mapping, where that is allowed; never the other file, which has one page.
        let found = mappings.cached(mapping, address, address + 8 * PAGE);
        assert!(matches!(found, None | Some((8, 8))), "{found:?}");
    }

    #[test]
    fn a_file_without_name_and_descriptor_is_found_by_its_mapping() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("file");
        let (file, map) = mapped(&path);
        fs::remove_file(&path).unwrap();
        drop(file);
        let address = map.as_ptr() as u64;
        let by_mapping = format!("/proc/self/map_files/{address:x}-{:x}", address + PAGES * PAGE);
        if let Err(error) = fs::File::open(by_mapping) {
            eprintln!("SKIPPED: no privilege to open map_files: {error}");
            return;
        }
        let mut mappings = Mappings::new(std::process::id());
        mappings.refresh().unwrap();
        let mapping = mappings.at(address).unwrap();
        assert_eq!(mappings.cached(mapping, address, address + PAGE), Some((1, 1)));
    }

    #[test]
    fn who_asks_whether_a_page_is_there_does_not_use_it() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("file");
        let (file, map) = mapped(&path);
        file.sync_all().unwrap();
        fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut mappings = Mappings::new(std::process::id());
        mappings.refresh().unwrap();
        let address = map.as_ptr() as u64;
        let mapping = mappings.at(address).unwrap();
        if mappings.cached(mapping, address, address + PAGE) != Some((0, 1)) {
            eprintln!("SKIPPED: this file system keeps the page");
            return;
        }
        assert_eq!(mappings.is_missing(mapping, address), Some(true));
        fadvise(&file, 0, None, rustix::fs::Advice::WillNeed).unwrap();
        let begun = Instant::now();
        while mappings.is_missing(mapping, address) == Some(true) {
            assert!(begun.elapsed() < Duration::from_secs(60), "the page does not arrive");
            std::thread::yield_now();
        }
        (0..3).for_each(|_| assert_eq!(mappings.is_missing(mapping, address), Some(false)));
        mappings.clear();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let left = maps.lines().filter(|line| line.ends_with(path.to_str().unwrap())).count();
        assert_eq!(left, 1, "the test's own");
        assert_eq!(map.first(), Some(&7), "mapped from now on");
        let word = |path: &str, number: u64| {
            let mut word = [0; 8];
            fs::File::open(path)?.read_exact_at(&mut word, number * 8)?;
            io::Result::Ok(u64::from_ne_bytes(word))
        };
        let frame = word("/proc/self/pagemap", address / PAGE).unwrap() & ((1 << 55) - 1);
        let Some(flags) = word("/proc/kpageflags", frame).ok().filter(|_| frame != 0) else {
            eprintln!("SKIPPED: no privilege to see the page's flags");
            return;
        };
        const REFERENCED: u64 = 1 << 2;
        const ACTIVE: u64 = 1 << 6;
        assert_eq!(flags & (REFERENCED | ACTIVE), 0, "{flags:x}");
    }

    /// As before Linux 6.5.
    #[test]
    fn a_view_counts_what_is_cached() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (file, _map) = mapped(&folder.path().join("file"));
        let file = Opened { descriptor: file.into(), view: OnceCell::new(), _pass: None };
        let count = |first: u64, pages: u64| file.view().unwrap().count(first * PAGE, pages * PAGE);
        // All of them are asked about in two pieces; behind the end there is nothing.
        const { assert!(PAGES > TOLD_AT_ONCE as u64) };
        assert_eq!((count(0, PAGES), count(1, 1), count(3, 0)), (Some(PAGES), Some(1), Some(0)));
        assert_eq!((count(PAGES - 4, 8), count(PAGES, 8)), (Some(4), Some(0)));
        assert_eq!(file.view().unwrap().holds(PAGES * PAGE), None);
    }

    #[test]
    fn places_stay_inside_the_mapping() {
        let mapping = Mapping { start: 16 * PAGE, end: 32 * PAGE, offset: 4 * PAGE, file: 0 };
        assert_eq!(place(mapping, 17 * PAGE + 5, 18 * PAGE), (5 * PAGE, PAGE));
        assert_eq!(place(mapping, 0, u64::MAX), (4 * PAGE, 16 * PAGE));
        assert_eq!(place(mapping, 40 * PAGE, 41 * PAGE), (20 * PAGE, 0));
    }
}
