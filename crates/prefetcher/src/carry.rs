//! One job: the system calls that bring something into the page cache (or the name caches), and wait for it.
//!
//! Runs on a thread of the pool, which may wait as long as the disk takes. That is why asking is
//! `posix_fadvise(WILLNEED)`: whether a file system queues such a request or carries it out on the spot
//! (btrfs, squashfs), the next call waits for the result anyway. It reads one byte at the end of what was
//! asked for: it returns when the last page has arrived, on every file system, and its time is the device's
//! response time. The descriptor is set to `FADV_RANDOM`, so that this byte starts no read-ahead of its own.
//!
//! A file is looked at (`O_PATH`) before it is opened, and the very file that was looked at is what gets
//! opened: opening a FIFO, a device or a socket could have effects, and so could reading what `/proc`, `/sys` and their like
//! make up.

use crate::intake::Lookup;
use runahead_kernel::filesystem::FileSystem;
use runahead_prefetch::{CHUNK_PAGES, PAGE};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Advice, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io::{BufRead, BufReader};
use std::num::NonZeroU64;

/// A regular file, open for reading.
#[derive(Debug)]
pub struct File {
    pub descriptor: OwnedFd,
    /// `st_dev`.
    pub device: u64,
    pub inode: u64,
    /// When it was opened.
    pub size: u64,
}

impl File {
    pub fn size_now(&self) -> u64 {
        rustix::fs::fstat(&self.descriptor).map_or(self.size, |status| status.st_size.max(0) as u64)
    }
}

/// Why a hint came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Unreadable,
    NotAFile,
    BehindEnd,
}

/// What came of asking for pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    pub asked: u64,
    pub cached: u64,
}

/// Pages of a range of memory where nothing is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    pub pages: u64,
    /// The first page at or behind the range's end where something is mapped.
    pub next: u64,
}

/// Opens a regular file for reading, without effects on anything else.
pub fn open(path: &CStr) -> Result<File, Failure> {
    let seen = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|_| Failure::Unreadable)?;
    let status = rustix::fs::fstat(&seen).map_err(|_| Failure::Unreadable)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(Failure::NotAFile);
    }
    if is_made_up(seen.as_fd(), &status) {
        return Err(Failure::NotAFile);
    }
    // Not /proc/self: that is the table of the process's first thread, and ours is another.
    let again = format!("/proc/thread-self/fd/{}", seen.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // Access times are for the program's own reads; only a file's owner may leave them alone.
    let descriptor = match rustix::fs::open(&*again, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::open(&*again, flags, Mode::empty()),
        other => other,
    }
    .map_err(|_| Failure::Unreadable)?;
    let _ = rustix::fs::fadvise(&descriptor, 0, None, Advice::Random);
    Ok(File { descriptor, device: status.st_dev, inode: status.st_ino, size: status.st_size.max(0) as u64 })
}

/// Whether the kernel makes the file's contents up as they are read. The file system is asked for its kind (over a network
/// that would be a request of its own) only where there is no disk behind it and the file has no blocks.
fn is_made_up(file: BorrowedFd, status: &rustix::fs::Stat) -> bool {
    rustix::fs::major(status.st_dev) == 0
        && status.st_blocks == 0
        && rustix::fs::fstatfs(file).is_ok_and(|system| FileSystem::of(system.f_type).is_made_up())
}

/// Pages `first..first + pages` (at most a chunk) of a file, into the page cache. Returns when they are there.
pub fn fetch(file: BorrowedFd, first: u64, pages: u64) -> Fetched {
    let pages = pages.min(CHUNK_PAGES);
    let sane = first.checked_add(pages).is_some_and(|end| end <= i64::MAX as u64 / PAGE);
    let (true, Some(length)) = (sane, NonZeroU64::new(pages * PAGE)) else { return Fetched::default() };
    let offset = first * PAGE;
    if resident(file, offset, length.get()) >= pages {
        return Fetched { asked: 0, cached: pages };
    }
    if rustix::fs::fadvise(file, offset, Some(length), Advice::WillNeed).is_err() {
        return Fetched::default();
    }
    let mut byte = [0; 1];
    let _ = rustix::io::pread(file, &mut byte, offset + (pages - 1) * PAGE);
    Fetched { asked: pages, cached: 0 }
}

/// Pages of the range that are cached or under way; 0 where the kernel cannot say (before 6.5, overlay).
fn resident(file: BorrowedFd, offset: u64, length: u64) -> u64 {
    const CACHESTAT: libc::c_long = 451;
    let range = [offset, length];
    let mut counts = [0u64; 5];
    // SAFETY: cachestat(2) reads two numbers at `range` and writes five at `counts`, which are ours.
    let result = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0 as libc::c_uint)
    };
    if result == 0 { counts[0] } else { 0 }
}

/// Bytes `offset..offset + length` of the file may leave the page cache. Whole pages only.
pub fn release(file: &File, offset: u64, length: u64) -> u64 {
    let end = if length == 0 { file.size } else { offset.saturating_add(length).min(file.size) };
    // The last page of a file counts as whole.
    let last = if end == file.size { end.div_ceil(PAGE) } else { end / PAGE };
    let pages = if offset < end { last.saturating_sub(offset.div_ceil(PAGE)) } else { 0 };
    if let Some(length) = NonZeroU64::new(pages * PAGE) {
        let _ = rustix::fs::fadvise(
            &file.descriptor,
            offset.div_ceil(PAGE) * PAGE,
            Some(length),
            Advice::DontNeed,
        );
    }
    pages
}

/// Memory `address..address + length` of this process: its file or swap pages are read in, where there are any.
pub fn fetch_memory(address: u64, length: u64) -> (Fetched, Option<Hole>) {
    let first = address / PAGE;
    let end = address.saturating_add(length.max(1)).div_ceil(PAGE);
    if will_need(first, end) {
        return (Fetched { asked: end - first, cached: 0 }, None);
    }
    // The kernel says no more than that something is not there. It is asked for each mapping by itself, since it may
    // have stopped at the first that it has nothing to read for.
    let (mapped, next) = mapped(first, end);
    let mut asked = 0;
    for &(first, end) in &mapped {
        asked += if will_need(first, end) { end - first } else { 0 };
    }
    let pages = mapped.iter().fold(end - first, |pages, (first, end)| pages - (end - first));
    (Fetched { asked, cached: 0 }, (pages > 0).then_some(Hole { pages, next }))
}

/// Has pages `first..end` of memory read in, and waits for the last. False: not all of them can be.
fn will_need(first: u64, end: u64) -> bool {
    if end > i64::MAX as u64 / PAGE {
        return false;
    }
    let (address, length) = (first * PAGE, (end - first) * PAGE);
    // SAFETY: MADV_WILLNEED changes no byte and no mapping, whatever the range; the kernel checks it.
    let asked = unsafe { libc::madvise(address as *mut _, length as usize, libc::MADV_WILLNEED) } == 0;
    if asked {
        // Not by touching it, which could be fatal: by asking the kernel to copy it.
        let mut byte = 0u8;
        let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let from = libc::iovec { iov_base: ((end - 1) * PAGE) as *mut _, iov_len: 1 };
        // SAFETY: writes one byte at `byte`; the other side is checked by the kernel.
        unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
    }
    asked
}

/// Which of pages `first..end` are mapped, mapping by mapping, and the first page that is at `end` or behind it.
fn mapped(first: u64, end: u64) -> (Vec<(u64, u64)>, u64) {
    let mut within = Vec::new();
    let Ok(maps) = std::fs::File::open("/proc/thread-self/maps") else { return (within, u64::MAX) };
    for line in BufReader::new(maps).split(b'\n').map_while(Result::ok) {
        let Some((from, to)) = pages_of_mapping(&line) else { continue };
        if from < end && to > first {
            within.push((from.max(first), to.min(end)));
        }
        if to > end {
            return (within, from.max(end));
        }
    }
    (within, u64::MAX)
}

/// `55d0c0000000-55d0c0021000 rw-p ...`: first page and the page behind the last.
fn pages_of_mapping(line: &[u8]) -> Option<(u64, u64)> {
    let (from, to) = std::str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?.split_once('-')?;
    let page = |address| Some(u64::from_str_radix(address, 16).ok()? / PAGE);
    Some((page(from)?, page(to)?))
}

/// Looks a name up. For [`Lookup::Entries`] the names found, which are to be looked up as well, at most
/// `most`.
pub fn look_up(path: &CStr, lookup: Lookup, most: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let unreadable = |_| Failure::Unreadable;
    match lookup {
        Lookup::Stat => {
            rustix::fs::statat(rustix::fs::CWD, path, AtFlags::empty()).map_err(unreadable)?;
        }
        Lookup::Link => {
            rustix::fs::readlink(path, Vec::new()).map_err(unreadable)?;
        }
        Lookup::List | Lookup::Entries => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(unreadable)?;
            let mut buffer = Vec::with_capacity(32 << 10);
            let mut entries = rustix::fs::RawDir::new(directory.as_fd(), buffer.spare_capacity_mut());
            let mut names = Vec::new();
            while let Some(Ok(entry)) = entries.next() {
                let name = entry.file_name().to_bytes();
                if lookup == Lookup::Entries && name != b"." && name != b".." && names.len() < most {
                    names.push([path.to_bytes(), b"/", name].concat());
                }
            }
            return Ok(names);
        }
    }
    Ok(Vec::new())
}

/// Gives this thread a descriptor table of its own, empty. What fails here (a kernel before 5.9, a seccomp
/// filter) is a reason to do nothing at all.
pub fn own_descriptors() -> bool {
    // SAFETY: with CLOSE_RANGE_UNSHARE this thread gets a copy of the table first and all is closed in the
    // copy; no other thread of the program sees a change. Nothing of ours is open yet in this thread.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
    result == 0
}

/// Whoever reads for himself comes first: the lowest priority within the class that never starves.
pub fn lower_priority() {
    const WHO_PROCESS: libc::c_int = 1;
    const BEST_EFFORT_LOWEST: libc::c_int = 2 << 13 | 7;
    // SAFETY: ioprio_set concerns this thread alone (0).
    unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, BEST_EFFORT_LOWEST) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    fn text(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    #[test]
    fn opens_regular_files_only_and_never_waits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let file = open(&text(&path)).unwrap();
        assert_eq!(file.size, 10_000);
        let fetched = fetch(file.descriptor.as_fd(), 0, 3);
        assert_eq!(fetched.asked + fetched.cached, 3);
        // Behind the end, and far behind: nothing happens.
        fetch(file.descriptor.as_fd(), 100, 32);
        fetch(file.descriptor.as_fd(), u64::MAX / PAGE, 32);
        fetch(file.descriptor.as_fd(), u64::MAX, 32);

        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(open(&text(&fifo)).unwrap_err(), Failure::NotAFile);
        assert_eq!(open(c"/dev/zero").unwrap_err(), Failure::NotAFile);
        assert_eq!(open(c"/proc/self/maps").unwrap_err(), Failure::NotAFile);
        // A file without blocks and without a disk, but a file.
        let memory = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memory, 8192).unwrap();
        let path = CString::new(format!("/proc/self/fd/{}", memory.as_raw_fd())).unwrap();
        assert_eq!(open(&path).unwrap().size, 8192);
        assert_eq!(open(c"/").unwrap_err(), Failure::NotAFile);
        assert_eq!(open(c"/not/there").unwrap_err(), Failure::Unreadable);
    }

    #[test]
    fn releases_whole_pages() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let file = open(&text(&path)).unwrap();
        assert_eq!(release(&file, 0, 0), 3);
        assert_eq!(release(&file, 1, 0), 2);
        assert_eq!(release(&file, 0, 5000), 1);
        assert_eq!(release(&file, 20_000, 5000), 0);
        assert_eq!(release(&file, u64::MAX, u64::MAX), 0);
    }

    #[test]
    fn memory_that_is_not_there_does_no_harm() {
        let (fetched, hole) = fetch_memory(4096, 4096);
        assert_eq!((fetched, hole.unwrap().pages), (Fetched::default(), 1));
        assert!((2..u64::MAX).contains(&hole.unwrap().next));
        let (fetched, hole) = fetch_memory(u64::MAX - 10, 4096);
        assert_eq!((fetched, hole), (Fetched::default(), Some(Hole { pages: 1, next: u64::MAX })));
        let memory = vec![0u8; 8192];
        let (fetched, hole) = fetch_memory(memory.as_ptr() as u64, 8192);
        assert!(fetched.asked >= 2 && hole.is_none());
    }

    #[test]
    fn names_are_looked_up_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        std::os::unix::fs::symlink("a", folder.path().join("b")).unwrap();
        let path = text(folder.path());
        assert_eq!(look_up(&path, Lookup::List, 100), Ok(vec![]));
        assert_eq!(look_up(&path, Lookup::Entries, 100).unwrap().len(), 2);
        assert_eq!(look_up(&path, Lookup::Entries, 1).unwrap().len(), 1);
        assert_eq!(look_up(&text(&folder.path().join("b")), Lookup::Link, 0), Ok(vec![]));
        assert_eq!(look_up(&text(&folder.path().join("a")), Lookup::Link, 0), Err(Failure::Unreadable));
        assert_eq!(look_up(c"/not/there", Lookup::Stat, 0), Err(Failure::Unreadable));
    }

    /// A thread's own table: what it closes and opens is not the program's.
    #[test]
    fn a_table_of_ones_own() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let number = file.as_raw_fd();
        std::thread::spawn(move || {
            assert!(own_descriptors());
            let mut byte = [0];
            // SAFETY: only asked about, never used after.
            let gone = unsafe { BorrowedFd::borrow_raw(number) };
            assert_eq!(rustix::io::pread(gone, &mut byte, 0), Err(Errno::BADF));
            assert_eq!(open(c"/proc/self/exe").unwrap().descriptor.as_raw_fd(), 1);
        })
        .join()
        .unwrap();
        assert!(file.metadata().is_ok());
    }
}
