//! The kernel's side: what a path leads to, and which of its pages are cached. Nothing here has an effect on
//! a file, or waits for anything but its disk.

use crate::memory::{Identity, What};
use crate::ranges::Ranges;
use crate::{PAGE, memory};
use runahead_kernel::filesystem::FileSystem;
use rustix::fs::{
    Access, Advice, AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, StatVfsMountFlags, Statx,
    StatxFlags, accessat, fadvise, fcntl_getfl, fstat, fstatvfs, makedev, openat, openat2, readlinkat, statx,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::mm::{self, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

/// Longer requests are cut off silently by some kernels (`force_page_cache_readahead`).
const CHUNK: u64 = 128 << 10;

/// linux/fcntl.h; rustix has no name for it.
const AT_STATX_DONT_SYNC: u32 = 0x4000;

#[derive(Clone, Debug)]
struct Mount {
    /// Its identifier (`STATX_MNT_ID`), which may be another's once this one is gone.
    number: u64,
    point: Vec<u8>,
    /// A disk is behind it.
    is_on_disk: bool,
    /// The kernel answers look-ups in it, from a disk or from memory.
    may_be_passed: bool,
    device: u64,
    /// stat(2) tells other devices of what is in it.
    tells_another_device: bool,
}

/// Where the file systems are that are on disks.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    /// In the kernel's order: a later one lies above.
    points: Vec<Mount>,
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
            let kind = std::str::from_utf8(kind).ok().map(FileSystem::named);
            let is_on_disk = kind.is_some_and(|kind| kind.is_on_disk);
            let device = words.get(2).and_then(|word| device(std::str::from_utf8(word).ok()?));
            mounts.points.push(Mount {
                number,
                point: unescaped(point),
                is_on_disk,
                may_be_passed: is_on_disk || kind.is_some_and(FileSystem::is_in_memory),
                device: device.unwrap_or(0),
                tells_another_device: kind.is_some_and(|kind| kind.maps_another_device),
            });
            mounts.numbers.insert(number, is_on_disk);
        }
        mounts
    }

    /// Whether a path leads to a disk, as far as its words tell: links may lead elsewhere.
    pub fn has(&self, path: &[u8]) -> bool {
        self.of(path).is_some_and(|mount| mount.is_on_disk)
    }

    /// The device that a path leads to, as far as its words tell; 0: it cannot be told.
    pub fn device(&self, path: &[u8]) -> u64 {
        self.of(path).map_or(0, |mount| mount.device)
    }

    fn of(&self, path: &[u8]) -> Option<&Mount> {
        // Of equal ones the last.
        self.above(path).max_by_key(|mount| mount.point.len())
    }

    /// Those at the path, or above it.
    fn above(&self, path: &[u8]) -> impl Iterator<Item = &Mount> {
        let is_in = move |point: &[u8]| {
            point == b"/"
                || path.strip_prefix(point).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        self.points.iter().filter(move |mount| is_in(&mount.point))
    }

    /// Goes to a path without links, `.`, `..` and empty names, and enters what was mounted when it was
    /// looked, nothing else: what has been mounted since may be somebody's who does not answer. Fails with
    /// XDEV where it would leave the disks, with LOOP where a link is on the way.
    fn go(&self, path: &[u8], how: OFlags) -> Result<OwnedFd, Errno> {
        let mut above: Vec<&Mount> = self.above(path).collect();
        // Of equal ones the last is the one that is seen, and comes first then.
        above.reverse();
        above.sort_by_key(|mount| mount.point.len());
        above.dedup_by(|later, kept| later.point == kept.point);
        let is_on_disk = above.last().is_some_and(|mount| mount.is_on_disk);
        // The root is passed by whatever the program does as well.
        let passes = |mount: &&Mount| mount.may_be_passed || mount.point == b"/";
        if !is_on_disk || !above.iter().all(passes) {
            return Err(Errno::XDEV);
        }
        let (mut at, mut done) = (None, 0);
        for mount in above.into_iter().filter(|mount| mount.point != b"/") {
            let (folder, name) = split(&path[done..mount.point.len()]);
            let folder = step(at, folder, OFlags::empty())?;
            // What is mounted on the name is entered, and not asked.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let point = openat(&folder, name, flags, Mode::empty())?;
            if !mount.is(&point) {
                return Err(Errno::XDEV);
            }
            (at, done) = (Some(point), mount.point.len());
        }
        step(at, &path[done..], how)
    }
}

impl Mount {
    /// Whether this is where it begins.
    fn is(&self, point: &OwnedFd) -> bool {
        let flags =
            AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::from_bits_retain(AT_STATX_DONT_SYNC);
        let Ok(found) = statx(point, c"", flags, StatxFlags::TYPE | StatxFlags::MNT_ID) else { return false };
        let device = makedev(found.stx_dev_major, found.stx_dev_minor);
        found.stx_mnt_id == self.number && (self.tells_another_device || device == self.device)
    }
}

/// A path's last name, and what is before it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    (&path[..at], path.get(at + 1..).unwrap_or_default())
}

/// Opens as a place what is below `at`, or the root, in the same mount.
fn step(at: Option<OwnedFd>, below: &[u8], how: OFlags) -> Result<OwnedFd, Errno> {
    let below = below.strip_prefix(b"/").unwrap_or(below);
    let stays = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::CLOEXEC | how;
    match at {
        Some(at) if below.is_empty() => Ok(at),
        Some(at) => openat2(at, below, flags, Mode::empty(), stays),
        None => openat2(CWD, [b"/", below].concat(), flags, Mode::empty(), stays),
    }
}

/// A device's number as the kernel writes it, `8:1`.
fn device(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
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
    match at(path, mounts) {
        Ok((_, found)) => found,
        Err(Opened::Other) => Some(Found::Nothing),
        Err(_) => None,
    }
}

/// What the kernel tells of a name or of an open file. None: it is something else than a file or directory of
/// a disk.
fn kind_of(found: &Statx, mounts: &Mounts) -> Option<Found> {
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
    /// It may not be opened without leaving a trace, or at all, or it is on no disk.
    Refused,
}

/// Opens what is at a path if it is the regular file, or the directory, that is expected: first as a place,
/// which has no effect whatever it is, and then that very file.
pub fn open(path: &CStr, expected: &What, mounts: &Mounts) -> Opened {
    match place(path, expected, mounts) {
        Ok((place, kind)) => again(&place, kind).map_or(Opened::Refused, Opened::File),
        Err(why) => why,
    }
}

/// Opens it as a place, which has no effect.
pub fn place(path: &CStr, expected: &What, mounts: &Mounts) -> Result<(OwnedFd, FileType), Opened> {
    let (place, found) = at(path, mounts)?;
    match (expected, found) {
        (What::File { identity, .. }, Some(Found::File(found))) if identity.is(&found) => {
            Ok((place, FileType::RegularFile))
        }
        (What::Directory { device, inode }, Some(Found::Directory { device: on, inode: found }))
            if *inode == 0 || (*device, *inode) == (on, found) =>
        {
            Ok((place, FileType::Directory))
        }
        _ => Err(Opened::Other),
    }
}

/// Opens whatever is at a path as a place, and says what it is.
pub fn at(path: &CStr, mounts: &Mounts) -> Result<(OwnedFd, Option<Found>), Opened> {
    let place = walk(path, mounts)?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::from_bits_retain(AT_STATX_DONT_SYNC);
    let found = statx(&place, c"", flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID);
    let found = kind_of(&found.map_err(|_| Opened::Refused)?, mounts);
    Ok((place, found))
}

/// Whether what is open as a place may be opened for reading.
pub fn may_be_read(place: &OwnedFd) -> bool {
    let name = format!("/proc/self/fd/{}", place.as_raw_fd());
    accessat(CWD, &name, Access::READ_OK, AtFlags::EACCESS).is_ok()
}

/// Links on the way to one name, as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Bytes of a path that the kernel takes (PATH_MAX).
const MOST_WALKED: usize = 4096;

/// Goes to a path without leaving the disks: where a link leads elsewhere, to what somebody serves or an
/// automounter waits for, that is not entered. Nothing is opened but as a place.
fn walk(path: &CStr, mounts: &Mounts) -> Result<OwnedFd, Opened> {
    let path = path.to_bytes();
    let is_plain = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
    if path.strip_prefix(b"/").is_some_and(|rest| rest.split(|&byte| byte == b'/').all(is_plain)) {
        match mounts.go(path, OFlags::empty()) {
            Err(Errno::LOOP) => {}
            opened => return opened.map_err(refused),
        }
    }
    mounts.go(&without_links(path, mounts)?, OFlags::empty()).map_err(refused)
}

fn refused(error: Errno) -> Opened {
    match error {
        Errno::NOENT | Errno::NOTDIR => Opened::Other,
        _ => Opened::Refused,
    }
}

/// The path without links, `.` and `..`, each step of which is on a disk.
fn without_links(path: &[u8], mounts: &Mounts) -> Result<Vec<u8>, Opened> {
    let names = |path: &[u8]| path.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec).collect::<Vec<_>>();
    let mut rest = names(path);
    let (mut done, mut links) = (Vec::new(), 0);
    while let Some(name) = rest.pop() {
        let before = done.len();
        match &name[..] {
            b"" | b"." => continue,
            b".." => {
                done.truncate(done.iter().rposition(|&byte| byte == b'/').unwrap_or(0));
                continue;
            }
            name => {
                done.push(b'/');
                done.extend_from_slice(name);
            }
        }
        if done.len() > MOST_WALKED {
            return Err(Opened::Refused);
        }
        let place = mounts.go(&done, OFlags::NOFOLLOW).map_err(refused)?;
        match readlinkat(&place, c"", Vec::new()) {
            Ok(target) => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Opened::Refused);
                }
                let target = target.to_bytes();
                done.truncate(if target.first() == Some(&b'/') { 0 } else { before });
                rest.extend(names(target));
            }
            // No link.
            Err(Errno::INVAL | Errno::NOENT) => {}
            Err(error) => return Err(refused(error)),
        }
    }
    if done.is_empty() {
        done.push(b'/');
    }
    Ok(done)
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
pub fn look_up(path: &CStr, mounts: &Mounts) {
    let _ = walk(path, mounts);
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
    leaves_its_time(file) && would_wait(file, page)
}

/// Whether a read of this page would wait. Counts as an access of the file.
pub fn would_wait(file: impl AsFd, page: u32) -> bool {
    let mut byte = [0];
    let offset = u64::from(page) * PAGE;
    preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) == Err(Errno::AGAIN)
}

/// Whether to read or map it leaves the time of the last access as it is. (A file of somebody else's is not to be had
/// without that time.)
fn leaves_its_time(file: &OwnedFd) -> bool {
    if fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::NOATIME)) {
        return true;
    }
    let (Ok(there), Ok(mount)) = (fstat(file), fstatvfs(file)) else { return false };
    if mount.f_flag.intersects(StatVfsMountFlags::NOATIME | StatVfsMountFlags::RDONLY) {
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

/// Whether the kernel tells us of this file (`can_do_mincore`); else it says that all is there. To map a file
/// is an access.
fn may_be_told(file: &OwnedFd) -> bool {
    if !leaves_its_time(file) {
        return false;
    }
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
        let pages = told_of(file, start, WINDOW.min(size - start))?;
        let first = (start / PAGE) as u32;
        for (index, _) in pages.iter().enumerate().filter(|(_, page)| **page & 1 != 0) {
            let page = first + index as u32;
            cached.push(page..page + 1);
        }
    }
    Some(cached)
}

/// A byte for each of the pages of these bytes, odd where it is cached (mincore(2)).
fn told_of(file: &OwnedFd, start: u64, length: u64) -> Option<Vec<u8>> {
    let length = length as usize;
    let mut pages = vec![0u8; length.div_ceil(PAGE as usize)];
    // SAFETY: a new mapping that nobody touches, unmapped below; the vector has a byte for each of its pages.
    let told = unsafe {
        let address =
            mmap(std::ptr::null_mut(), length, ProtFlags::empty(), MapFlags::SHARED, file, start).ok()?;
        // A child would keep the file until it executes something.
        let _ = madvise(address, length, mm::Advice::LinuxDontFork);
        let told = libc::mincore(address, length, pages.as_mut_ptr());
        let _ = munmap(address, length);
        told
    };
    (told == 0).then_some(pages)
}

/// How many of these pages, which are about to be asked for, are not cached. None: it cannot be found out
/// without leaving a trace.
pub fn missing(file: &OwnedFd, pages: &Ranges) -> Option<u64> {
    let bytes = |range: &Range<u32>| (u64::from(range.start) * PAGE, range.len() as u64 * PAGE);
    if may_be_told(file) {
        let told = |range: Range<u32>| {
            let (start, length) = bytes(&range);
            Some(told_of(file, start, length)?.iter().filter(|page| **page & 1 == 0).count() as u64)
        };
        return pages.iter().map(told).sum();
    }
    if !leaves_its_time(file) {
        return None;
    }
    const STEP: usize = (CHUNK / PAGE) as usize;
    let cold = |range: Range<u32>| {
        let starts = range.clone().step_by(STEP).filter(|&page| would_wait(file, page));
        starts.map(|page| u64::from((range.end - page).min(STEP as u32))).sum::<u64>()
    };
    Some(pages.iter().map(cold).sum())
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

    #[test]
    fn what_is_missing_is_counted() {
        let folder = crate::folder_on_a_disk();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let file = unseen(&path);
        rustix::fs::fsync(&file).unwrap();
        let mut pages = Ranges::default();
        assert!(pages.push(0..10) && pages.push(20..256));
        assert_eq!(missing(&file, &pages), Some(0));
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        assert_eq!(missing(&file, &pages), Some(246));
        assert_eq!(missing(&file, &Ranges::default()), Some(0));
    }

    /// Opens it so that no access is seen.
    fn unseen(path: &Path) -> OwnedFd {
        openat(CWD, path, OFlags::RDONLY | OFlags::NOATIME, Mode::empty()).unwrap()
    }

    /// Files of others, which cannot be opened so.
    #[test]
    fn who_asks_what_is_cached_leaves_no_access_time() {
        let folder = crate::folder_on_a_disk();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let long_ago = UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        file.set_times(std::fs::FileTimes::new().set_accessed(long_ago)).unwrap();
        let file: OwnedFd = file.into();
        let mut pages = Ranges::default();
        assert!(pages.push(0..10));
        let _ = (missing(&file, &pages), cached(&file, size(&file)), is_cold(&file, 0));
        let accessed = || std::fs::metadata(&path).unwrap().accessed().unwrap();
        assert_eq!(accessed(), long_ago);
        assert_eq!(missing(&unseen(&path), &pages), Some(0), "and is told all the same where that is not so");
        assert_eq!(accessed(), long_ago);
    }

    fn size(file: &OwnedFd) -> u64 {
        fstat(file).map_or(0, |found| found.st_size as u64)
    }

    fn everywhere() -> Mounts {
        let mut mounts = Mounts::look();
        for mount in &mut mounts.points {
            (mount.is_on_disk, mount.may_be_passed) = (true, true);
        }
        mounts.numbers.values_mut().for_each(|is_on_disk| *is_on_disk = true);
        mounts
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
            let Opened::File(opened) = open(&c(path), &what, &everywhere()) else { panic!("{path:?}") };
            assert!(!is_cold(&opened, 0));
            assert_eq!(cached(&opened, size(&opened)), Ranges::first(3));
        }
        std::fs::write(&path, [8; 10_001]).unwrap();
        assert!(matches!(open(&c(&path), &what, &everywhere()), Opened::Other));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(open(&c(&path), &what, &everywhere()), Opened::Other));
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
            assert!(matches!(open(&c(&path), &what, &everywhere()), Opened::Other));
        }
        let device = What::Directory { device: found.st_dev, inode: found.st_ino };
        assert!(matches!(open(&c(&path), &device, &everywhere()), Opened::Other));
        assert!(matches!(open(c"/dev/zero", &device, &everywhere()), Opened::Other));
        let own = file(Path::new("/proc/self/exe"));
        assert!(matches!(open(c"/proc/self/exe", &own, &Mounts::look()), Opened::Refused));
    }

    #[test]
    fn directories_are_listed_where_that_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let Some(Found::Directory { device, inode }) = find(&c(folder.path()), &everywhere()) else {
            panic!()
        };
        let Opened::File(opened) = open(&c(folder.path()), &What::Directory { device, inode }, &everywhere())
        else {
            panic!()
        };
        list(opened.as_fd(), || true);
        let other = What::Directory { device, inode: inode + 1 };
        assert!(matches!(open(&c(folder.path()), &other, &everywhere()), Opened::Other));
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
        let devices = ["/etc", "/mnt/c/d", "/mnt/a b"].map(|path| mounts.device(path.as_bytes()));
        assert_eq!(devices, [makedev(8, 1), makedev(8, 2), makedev(0, 9)]);
        assert_eq!(find(c"/proc/self/maps", &Mounts::look()), None);
    }

    #[test]
    fn pages_are_found_in_either_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 3 << 20]).unwrap();
        let Opened::File(opened) = open(&c(&path), &file(&path), &everywhere()) else { panic!() };
        assert_eq!(told(&opened, 3 << 20), Some(Ranges::first(768)));
        assert_eq!(probed(&opened, 3 << 20), Ranges::first(768));
    }

    /// The disk ends where the walk would enter something else, however a link gets there.
    #[test]
    fn links_are_followed_as_far_as_the_disk_goes() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let at = |name: &str| top.join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::create_dir_all(at("served/x")).unwrap();
        for name in ["a/b/file", "served/x/file"] {
            std::fs::write(at(name), "x").unwrap();
        }
        for (link, target) in [
            ("up", "a/b/../../a"),
            ("a/whole", at("a/b").to_str().unwrap()),
            ("round", "round2/x"),
            ("round2", "round"),
            ("out", "a/../served/x"),
            ("process", "/proc/self/exe"),
            ("gone", "a/none"),
        ] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        let mut mounts = everywhere();
        for served in [b"/proc", at("served").as_os_str().as_bytes()] {
            mounts.points.push(Mount {
                number: 0,
                point: served.to_vec(),
                is_on_disk: false,
                may_be_passed: false,
                device: 0,
                tells_another_device: false,
            });
        }
        let found = |name: &str| match at_path(&at(name), &mounts) {
            Ok(Some(Found::File(_))) => "file",
            Ok(_) => "something",
            Err(Opened::Other) => "nothing",
            Err(_) => "refused",
        };
        for name in ["a/b/file", "up/b/file", "up/whole/file", "a/../up/./whole/../b//file"] {
            assert_eq!(found(name), "file", "{name}");
            let resolved = without_links(at(name).as_os_str().as_bytes(), &mounts).unwrap();
            assert_eq!(resolved, at("a/b/file").as_os_str().as_bytes(), "{name}");
        }
        for name in ["round", "round/file", "out/file", "served/x/file", "a/../served/x/file", "process"] {
            assert_eq!(found(name), "refused", "{name}");
        }
        for name in ["gone", "gone/x", "a/b/file/x", "../../../../../../../none"] {
            assert_eq!(found(name), "nothing", "{name}");
        }
        let many = format!("/{}", "../".repeat(4000));
        assert_eq!(without_links(many.as_bytes(), &mounts).unwrap(), b"/");
    }

    /// Whoever serves it may not answer.
    #[test]
    fn what_is_mounted_since_is_not_entered() {
        use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
        use rustix::thread::{UnshareFlags, unshare_unsafe};
        let folder = crate::folder_on_a_disk();
        let top = folder.path().canonicalize().unwrap();
        let (below, file) = (top.join("below"), top.join("below/file"));
        std::fs::create_dir(&below).unwrap();
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink("below", top.join("link")).unwrap();
        let by_link = top.join("link/file");
        let test = move || {
            // SAFETY: a thread of its own, which shares no descriptors less and ends with the test.
            if let Err(error) = unsafe { unshare_unsafe(UnshareFlags::NEWNS) } {
                return eprintln!("SKIPPED: no mount namespace: {error}");
            }
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            let look = || Mounts::parse(&std::fs::read("/proc/thread-self/mountinfo").unwrap());
            let before = look();
            if !before.has(top.as_os_str().as_bytes()) {
                return eprintln!("SKIPPED: {} is on no disk", top.display());
            }
            assert!(walk(&c(&file), &before).is_ok() && walk(&c(&by_link), &before).is_ok());
            mount("none", &below, "tmpfs", MountFlags::empty(), None).unwrap();
            std::fs::write(&file, "other").unwrap();
            for name in [&file, &by_link] {
                assert!(matches!(walk(&c(name), &before), Err(Opened::Refused)), "{name:?}");
                assert_eq!(find(&c(name), &before), None);
            }
            // What was mounted in its place: the same point, another file system.
            mount(&top, &below, "", MountFlags::BIND, None).unwrap();
            let bound = look();
            let within = below.join("link");
            assert!(walk(&c(&within), &bound).is_ok() && walk(&c(&by_link), &bound).is_err());
            // A root that somebody serves is passed by everybody.
            let mut served = bound.clone();
            for root in served.points.iter_mut().filter(|mount| mount.point == b"/") {
                (root.is_on_disk, root.may_be_passed) = (false, false);
            }
            assert!(walk(&c(&below.join("below")), &served).is_ok());
            rustix::mount::unmount(&below, rustix::mount::UnmountFlags::empty()).unwrap();
            mount("none", &below, "tmpfs", MountFlags::empty(), None).unwrap();
            std::fs::write(&within, "other").unwrap();
            assert!(matches!(walk(&c(&within), &bound), Err(Opened::Refused)));
        };
        std::thread::spawn(test).join().unwrap();
    }

    fn at_path(path: &Path, mounts: &Mounts) -> Result<Option<Found>, Opened> {
        super::at(&c(path), mounts).map(|(_, found)| found)
    }

    /// A file that was taken along has no inode, and is known by its size.
    #[test]
    fn a_copy_is_known_by_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [7; 10_000]).unwrap();
        let What::File { identity, pages, wrong } = file(&path) else { panic!() };
        let of = |inode, size| {
            let identity = Identity { inode, size, modified: 1, ..identity };
            open(&c(&path), &What::File { identity, pages: pages.clone(), wrong }, &everywhere())
        };
        assert!(matches!(of(0, 10_000), Opened::File(_)));
        assert!(matches!(of(0, 9_999), Opened::Other) && matches!(of(identity.inode, 10_000), Opened::Other));
        let folder = c(folder.path());
        let listed = |inode| open(&folder, &What::Directory { device: 0, inode }, &everywhere());
        assert!(matches!(listed(0), Opened::File(_)) && matches!(listed(1), Opened::Other));
        let directory = What::Directory { device: 0, inode: 0 };
        assert!(matches!(open(&c(&path), &directory, &everywhere()), Opened::Other), "a file");
    }
}
