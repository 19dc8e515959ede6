//! The kernel's side: what a path leads to, and which of its pages are cached. Nothing here has an effect on
//! a file, or waits for anything but its disk.

use crate::memory::{Identity, What};
use crate::ranges::Ranges;
use crate::{PAGE, memory};
use runahead_kernel::filesystem::FileSystem;
use rustix::fs::{
    Access, Advice, AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, StatVfsMountFlags,
    StatxFlags, accessat, fadvise, fcntl_getfl, fstat, fstatvfs, makedev, openat, openat2, statx,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

/// Longer requests are cut off silently by some kernels (`force_page_cache_readahead`).
const CHUNK: u64 = 128 << 10;

/// linux/fcntl.h; rustix has no name for it.
const AT_STATX_DONT_SYNC: u32 = 0x4000;

/// Where the file systems are that are on disks.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    /// Mount point, and whether a disk is behind it, in the kernel's order: a later one lies above.
    points: Vec<(Vec<u8>, bool)>,
    numbers: HashMap<u64, bool>,
}

impl Mounts {
    pub fn look() -> Mounts {
        Mounts::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
    }

    /// proc(5).
    fn parse(text: &[u8]) -> Mounts {
        let mut mounts = Mounts::default();
        for line in text.split(|&byte| byte == b'\n') {
            let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
            let number = words.first().and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
            let kind = words.iter().position(|word| *word == b"-").and_then(|at| words.get(at + 1));
            let (Some(number), Some(point), Some(kind)) = (number, words.get(4), kind) else { continue };
            // What somebody serves (FUSE, a network, squashfs) is not looked at: a request there takes his
            // time, and may have effects.
            let is_on_disk = std::str::from_utf8(kind).is_ok_and(|kind| FileSystem::named(kind).is_on_disk);
            mounts.points.push((unescaped(point), is_on_disk));
            mounts.numbers.insert(number, is_on_disk);
        }
        mounts
    }

    /// Whether a path leads to a disk, as far as its words tell: links may lead elsewhere.
    pub fn has(&self, path: &[u8]) -> bool {
        let is_in = |point: &[u8]| {
            point == b"/"
                || path.strip_prefix(point).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        let within = self.points.iter().filter(|(point, _)| is_in(point));
        // Of equal ones the last.
        within.max_by_key(|(point, _)| point.len()).is_some_and(|(_, is_on_disk)| *is_on_disk)
    }
}

/// A mount point as it is: the kernel writes spaces and the like as three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let digits =
            after.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match (byte, digits) {
            (b'\\', Some(escaped)) => {
                bytes.push(escaped);
                rest = &after[3..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    bytes
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    File(Identity),
    Directory {
        device: u64,
        inode: u64,
    },
    /// There is no such name.
    Nothing,
}

/// What a path leads to, links included. None: to something else, or not to a disk, or it could not be asked.
pub fn find(path: &CStr, mounts: &Mounts) -> Option<Found> {
    if !mounts.has(path.to_bytes()) {
        return None;
    }
    // What is known of it here, and nothing is mounted.
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::from_bits_retain(AT_STATX_DONT_SYNC);
    let found = match statx(CWD, path, flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Some(Found::Nothing),
        found => found.ok()?,
    };
    let tells_mount = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
    if tells_mount && mounts.numbers.get(&found.stx_mnt_id) != Some(&true) {
        return None;
    }
    let device = makedev(found.stx_dev_major, found.stx_dev_minor);
    match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::RegularFile => Some(Found::File(Identity {
            device,
            inode: found.stx_ino,
            size: found.stx_size,
            modified: nanoseconds(found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec.into()),
        })),
        FileType::Directory => Some(Found::Directory { device, inode: found.stx_ino }),
        _ => None,
    }
}

fn nanoseconds(seconds: i64, rest: u64) -> u64 {
    seconds.wrapping_mul(1_000_000_000).cast_unsigned().wrapping_add(rest)
}

/// What is open for reading.
#[derive(Debug)]
pub enum Opened {
    /// What was expected.
    File(OwnedFd),
    /// There is something else now, or nothing.
    Other,
    /// It may not be opened without leaving a trace, or at all.
    Refused,
}

/// Opens what is at a path if it is the regular file, or the directory, that is expected: first as a place,
/// which has no effect whatever it is, and then that very file.
pub fn open(path: &CStr, expected: &What) -> Opened {
    match place(path, expected) {
        Ok((place, kind)) => again(&place, kind).map_or(Opened::Refused, Opened::File),
        Err(why) => why,
    }
}

/// Opens it as a place, which has no effect.
pub fn place(path: &CStr, expected: &What) -> Result<(OwnedFd, FileType), Opened> {
    let how = OFlags::PATH | OFlags::CLOEXEC;
    let place = match openat2(CWD, path, how, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Err(Opened::Other),
        Err(_) => return Err(Opened::Refused),
        Ok(place) => place,
    };
    let Ok(found) = fstat(&place) else { return Err(Opened::Refused) };
    let identity = Identity {
        device: found.st_dev,
        inode: found.st_ino,
        size: found.st_size as u64,
        modified: nanoseconds(found.st_mtime, found.st_mtime_nsec),
    };
    let kind = FileType::from_raw_mode(found.st_mode);
    let is_expected = match expected {
        What::File { identity: expected, .. } => kind == FileType::RegularFile && identity == *expected,
        What::Directory { device, inode } => {
            kind == FileType::Directory && (identity.device, identity.inode) == (*device, *inode)
        }
        What::Name => false,
    };
    if !is_expected {
        return Err(Opened::Other);
    }
    Ok((place, kind))
}

/// Opens for reading what is open as a place.
fn again(place: &OwnedFd, kind: FileType) -> Option<OwnedFd> {
    let name = CString::new(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    match openat(CWD, &name, flags | OFlags::NOATIME, Mode::empty()) {
        // Of a file nothing is read that would leave an access time; a listing would.
        Err(Errno::PERM) if kind == FileType::RegularFile => openat(CWD, &name, flags, Mode::empty()).ok(),
        opened => opened.ok(),
    }
}

/// Looks a name up, so that it, or that there is none, is cached.
pub fn look_up(path: &CStr) {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::from_bits_retain(AT_STATX_DONT_SYNC);
    let _ = statx(CWD, path, flags, StatxFlags::empty());
}

/// Reads a directory's listing, as long as it `goes_on`.
pub fn list(directory: BorrowedFd, goes_on: impl Fn() -> bool) {
    const MOST: usize = 65_536;
    let mut buffer = [MaybeUninit::<u8>::uninit(); 16 * 1024];
    let mut listing = RawDir::new(directory, &mut buffer);
    for _ in 0..MOST {
        // Before it asks for more of it.
        if listing.is_buffer_empty() && !goes_on() {
            return;
        }
        let Some(Ok(_)) = listing.next() else { return };
    }
}

/// Asks for pages, as long as it `goes_on`. Does not wait for them, but for room in the disk's queue. Returns
/// the bytes.
pub fn ask(file: &OwnedFd, pages: &Ranges, goes_on: impl Fn() -> bool) -> u64 {
    let mut asked = 0;
    for range in pages.iter() {
        let (start, end) = (u64::from(range.start) * PAGE, u64::from(range.end) * PAGE);
        for offset in (start..end).step_by(CHUNK as usize) {
            if !goes_on() {
                return asked;
            }
            let length = CHUNK.min(end - offset);
            if fadvise(file, offset, NonZeroU64::new(length), Advice::WillNeed).is_ok() {
                asked += length;
            }
        }
    }
    asked
}

/// Whether a read of this page would wait, as far as it can be found out without leaving a trace.
pub fn is_cold(file: &OwnedFd, page: u32) -> bool {
    if !leaves_its_time(file) {
        return false;
    }
    let mut byte = [0];
    let offset = u64::from(page) * PAGE;
    preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) == Err(Errno::AGAIN)
}

/// Whether reading leaves the time of the last access as it is. (A file of somebody else's is not to be had
/// without that time.)
fn leaves_its_time(file: &OwnedFd) -> bool {
    let (Ok(flags), Ok(there), Ok(mount)) = (fcntl_getfl(file), fstat(file), fstatvfs(file)) else {
        return false;
    };
    if flags.contains(OFlags::NOATIME)
        || mount.f_flag.intersects(StatVfsMountFlags::NOATIME | StatVfsMountFlags::RDONLY)
    {
        return true;
    }
    // As the kernel decides (`relatime_need_update`), an hour earlier.
    const STAYS: i64 = 23 * 3600;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(i64::MAX, |since| since.as_secs() as i64);
    let changed = there.st_mtime.max(there.st_ctime);
    let accessed = there.st_atime;
    mount.f_flag.contains(StatVfsMountFlags::RELATIME)
        && accessed > changed
        && now.saturating_sub(accessed) < STAYS
}

/// Whether anybody holds a lease: opening a file breaks those on it.
pub fn leases() -> bool {
    std::fs::read("/proc/locks")
        .map_or(true, |locks| locks.windows(5).any(|word| word == b"LEASE" || word == b"DELEG"))
}

/// Of a file so many bytes are looked at.
const LOOKED_AT: u64 = 1 << 30;

/// Bytes that are mapped at a time.
const WINDOW: u64 = 64 << 20;

/// Which pages of a file of this size are cached, as far as that can be found out.
pub fn cached(file: &OwnedFd, size: u64) -> Ranges {
    let cached = if may_be_told(file) { told(file, size) } else { Some(probed(file, size)) };
    cached.unwrap_or_default().cut(u64::MAX, memory::MOST_RANGES)
}

/// Whether the kernel tells us of this file (`can_do_mincore`); else it says that all is there.
fn may_be_told(file: &OwnedFd) -> bool {
    let user = rustix::process::geteuid().as_raw();
    if user == 0 || fstat(file).is_ok_and(|found| found.st_uid == user) {
        return true;
    }
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    accessat(CWD, &name, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

fn told(file: &OwnedFd, size: u64) -> Option<Ranges> {
    let mut cached = Ranges::default();
    for start in (0..size.min(LOOKED_AT)).step_by(WINDOW as usize) {
        let length = WINDOW.min(size - start) as usize;
        let mut pages = vec![0u8; length.div_ceil(PAGE as usize)];
        // SAFETY: a new mapping that nobody touches, unmapped below; the vector has a byte for each of its
        // pages.
        let told = unsafe {
            let address =
                mmap(std::ptr::null_mut(), length, ProtFlags::empty(), MapFlags::SHARED, file, start).ok()?;
            let told = libc::mincore(address, length, pages.as_mut_ptr());
            let _ = munmap(address, length);
            told
        };
        if told != 0 {
            return None;
        }
        let first = (start / PAGE) as u32;
        for (index, _) in pages.iter().enumerate().filter(|(_, page)| **page & 1 != 0) {
            let page = first + index as u32;
            cached.push(page..page + 1);
        }
    }
    Some(cached)
}

/// The same by reads that do not wait. Each that finds nothing may start the disk, so there are few of those.
fn probed(file: &OwnedFd, size: u64) -> Ranges {
    if !leaves_its_time(file) {
        return Ranges::default();
    }
    const PROBES: usize = 512;
    const MISSES: u32 = 8;
    let _ = fadvise(file, 0, None, Advice::Random);
    let last = size.div_ceil(PAGE) as u32;
    let (mut cached, mut misses) = (Ranges::default(), 0);
    for start in (0..last).step_by((CHUNK / PAGE) as usize).take(PROBES) {
        if is_cold(file, start) {
            misses += 1;
            if misses == MISSES {
                break;
            }
        } else {
            cached.push(start..last.min(start + (CHUNK / PAGE) as u32));
        }
    }
    cached
}

/// A path for the kernel.
pub fn name(path: &[u8]) -> Option<CString> {
    CString::new(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    fn c(path: &Path) -> CString {
        name(path.as_os_str().as_bytes()).unwrap()
    }

    fn size(file: &OwnedFd) -> u64 {
        fstat(file).map_or(0, |found| found.st_size as u64)
    }

    fn everywhere() -> Mounts {
        Mounts {
            points: vec![(b"/".to_vec(), true)],
            numbers: (0..1 << 16).map(|number| (number, true)).collect(),
        }
    }

    fn file(path: &Path) -> What {
        match find(&c(path), &everywhere()) {
            Some(Found::File(identity)) => {
                What::File { identity, pages: Ranges::first(identity.size.div_ceil(PAGE) as u32), wrong: 0 }
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_path_leads_to_is_opened_if_it_is_still_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [7; 10_000]).unwrap();
        let what = file(&path);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("file", &link).unwrap();
        for path in [&path, &link] {
            let Opened::File(opened) = open(&c(path), &what) else { panic!("{path:?}") };
            assert!(!is_cold(&opened, 0));
            assert_eq!(cached(&opened, size(&opened)), Ranges::first(3));
        }
        std::fs::write(&path, [8; 10_001]).unwrap();
        assert!(matches!(open(&c(&path), &what), Opened::Other));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(open(&c(&path), &what), Opened::Other));
        assert_eq!(find(&c(&path), &everywhere()), Some(Found::Nothing));
        assert_eq!(find(&c(&path.join("x")), &everywhere()), Some(Found::Nothing));
    }

    #[test]
    fn what_is_no_file_and_no_directory_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("thing");
        std::fs::write(&path, "x").unwrap();
        let what = file(&path);
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(find(&c(&path), &everywhere()), None);
        // Even if it claims to be the file: a pipe has an inode of its own, so this one is told that it is
        // expected.
        let Ok(found) = rustix::fs::stat(&path) else { panic!() };
        let identity = Identity {
            device: found.st_dev,
            inode: found.st_ino,
            size: found.st_size as u64,
            modified: nanoseconds(found.st_mtime, found.st_mtime_nsec),
        };
        for what in [what, What::File { identity, pages: Ranges::default(), wrong: 0 }] {
            assert!(matches!(open(&c(&path), &what), Opened::Other));
        }
        let device = What::Directory { device: found.st_dev, inode: found.st_ino };
        assert!(matches!(open(&c(&path), &device), Opened::Other));
        assert!(matches!(open(c"/dev/zero", &device), Opened::Other));
        assert!(matches!(
            open(c"/proc/self/exe", &file(Path::new("/proc/self/exe"))),
            Opened::Refused | Opened::Other
        ));
    }

    #[test]
    fn directories_are_listed_where_that_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let Some(Found::Directory { device, inode }) = find(&c(folder.path()), &everywhere()) else {
            panic!()
        };
        let Opened::File(opened) = open(&c(folder.path()), &What::Directory { device, inode }) else {
            panic!()
        };
        list(opened.as_fd(), || true);
        let other = What::Directory { device, inode: inode + 1 };
        assert!(matches!(open(&c(folder.path()), &other), Opened::Other));
    }

    #[test]
    fn paths_lead_to_disks_or_not() {
        let text = b"22 1 8:1 / / rw - ext4 /dev/a rw\n23 22 0:5 / /proc rw - proc proc rw\n\
            24 22 0:9 / /mnt/a\\040b rw shared:1 - fuse.x y rw\n25 22 0:9 / /mnt/c rw - fuse.x y rw\n\
            26 25 8:2 / /mnt/c rw - xfs /dev/b rw\nnonsense\n";
        let mounts = Mounts::parse(text);
        for path in ["/", "/etc/passwd", "/process", "/mnt/a", "/mnt/c/d"] {
            assert!(mounts.has(path.as_bytes()), "{path}");
        }
        for path in ["/proc", "/proc/self/exe", "/mnt/a b/c"] {
            assert!(!mounts.has(path.as_bytes()), "{path}");
        }
        assert!(!Mounts::default().has(b"/"));
        assert_eq!(find(c"/proc/self/maps", &Mounts::look()), None);
    }

    #[test]
    fn pages_are_found_in_either_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 3 << 20]).unwrap();
        let Opened::File(opened) = open(&c(&path), &file(&path)) else { panic!() };
        assert_eq!(told(&opened, 3 << 20), Some(Ranges::first(768)));
        assert_eq!(probed(&opened, 3 << 20), Ranges::first(768));
    }
}
