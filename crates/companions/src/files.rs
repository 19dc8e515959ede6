//! The kernel's side: where a descriptor's file stands, and asking for the files beside it.

use crate::choice::File;
use runahead_kernel::files::cached_pages;
use runahead_names::look;
use runahead_names::walk::Name;
use rustix::fs::{
    Advice, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fadvise, makedev, openat,
    openat2, statat, statx,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Longer requests are cut off silently by some kernels (`force_page_cache_readahead`).
const CHUNK: u64 = 128 << 10;

/// Of each file so many bytes at most: programs that learn from a file what to read next read small ones, and a guess
/// that is wrong is to cost little. (The largest of the 350 modules that `import numpy, pandas` reads has 0.5 MB, all but
/// seven of the 58 libraries have less than this.)
const LONGEST: u64 = 1 << 20;

/// linux/fcntl.h; rustix has no name for it.
const AT_STATX_DONT_SYNC: u32 = 0x4000;

/// A file that a process has open, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    pub file: File,
    /// The directory, as the process names it: an absolute path.
    pub directory: Vec<u8>,
    pub name: Vec<u8>,
}

/// Where an absolute path of the process's is to be found from here.
pub fn path_from_here(process: u32, path: &[u8]) -> PathBuf {
    let mut found = format!("/proc/{process}/root").into_bytes();
    found.extend_from_slice(path);
    OsString::from_vec(found).into()
}

/// What is at an absolute path of the process's, if the kernel has all names on the way there at hand. Whoever
/// waits here keeps all programs of the run waiting, and a file server, which may be one of them, is asked for
/// names again and again. (None before Linux 5.12.)
fn at_hand(process: u32, path: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(CWD, format!("/proc/{process}/root"), flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::CACHED;
    openat2(root, path, flags | OFlags::NOFOLLOW, Mode::empty(), resolve).ok()
}

/// Where a file stands that a process has said to be at `path` (absolute), or else, if it says nothing, or that
/// could not be looked up at once, behind its descriptor. None: it is no regular file, is gone, or not ours to
/// see.
pub fn place(process: u32, descriptor: i32, path: &[u8]) -> Option<Place> {
    let said = path.starts_with(b"/").then(|| at_hand(process, path)).flatten();
    // What is known of it here: a file server is not to be waited for.
    let flags = AtFlags::from_bits_retain(AT_STATX_DONT_SYNC) | AtFlags::NO_AUTOMOUNT;
    let wanted = StatxFlags::TYPE | StatxFlags::INO;
    let (status, path) = match said {
        Some(said) => {
            let path = PathBuf::from(OsStr::from_bytes(path));
            (statx(said, c"", flags | AtFlags::EMPTY_PATH, wanted).ok()?, path)
        }
        None => {
            let link = PathBuf::from(format!("/proc/{process}/fd/{descriptor}"));
            let path = std::fs::read_link(&link).ok()?;
            (statx(CWD, &link, flags, wanted).ok()?, path)
        }
    };
    if FileType::from_raw_mode(status.stx_mode.into()) != FileType::RegularFile || !path.is_absolute() {
        return None;
    }
    Some(Place {
        file: File { device: makedev(status.stx_dev_major, status.stx_dev_minor), inode: status.stx_ino },
        directory: path.parent()?.as_os_str().as_bytes().to_vec(),
        name: path.file_name()?.as_bytes().to_vec(),
    })
}

/// Whether anybody holds a lease: opening a file breaks those on it.
pub fn leases() -> bool {
    std::fs::read(Path::new("/proc/locks"))
        .map_or(true, |locks| locks.windows(5).any(|word| word == b"LEASE" || word == b"DELEG"))
}

pub fn open_directory(path: &Path) -> Option<(OwnedFd, look::Identity)> {
    look::open_root(path).ok()
}

/// Opens the directory that these names lead down to, none of them a link, a mount or an automounter's.
pub fn open_below(above: BorrowedFd, names: &[&CStr], device: u64) -> Option<(OwnedFd, look::Identity)> {
    let (first, rest) = names.split_first()?;
    let mut reached = look::open_inside(above, first, device).ok()?;
    for name in rest {
        reached = look::open_inside(reached.0.as_fd(), name, device).ok()?;
    }
    Some(reached)
}

/// Names taken from a directory beside, or from the one above, at most: a program that ends waits until a listing
/// that is under way has come.
const BESIDE_MOST: usize = 4096;

/// The names in a directory beside one that the program waits in.
pub fn names_beside(directory: BorrowedFd) -> Vec<Name> {
    look::list_some(directory, BESIDE_MOST)
}

/// The directories in a directory, as far as its listing says.
pub fn directories(directory: BorrowedFd) -> Vec<CString> {
    names_beside(directory).into_iter().filter(|name| name.is_directory).map(|name| name.name).collect()
}

/// Which files to ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Even {
    /// Those whose first page is not in the cache.
    IfCold,
    /// Those whose first page is there as well.
    IfWarm,
}

/// Whether to wait for what was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    No,
    /// Until the first page is there, to see how long that takes.
    ForTheBeginning,
}

/// What has become of asking for a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    pub file: File,
    /// Its first page was not in the cache.
    pub cold: bool,
    /// After so many ns it was there; if it was waited for and nobody else had asked for it before.
    pub answered: Option<u64>,
}

/// Asks for a file of a directory. None: it is no regular file, or not to be had.
pub fn ask(directory: BorrowedFd, name: &CStr, even: Even, wait: Wait) -> Option<Asked> {
    // Opening what is no regular file may have effects.
    let status = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT).ok()?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    // Access times stay, where that is permitted: to the owner.
    let file = match openat(directory, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(directory, name, flags, Mode::empty()),
        other => other,
    };
    let file = file.ok()?;
    let mut byte = [0];
    let mut first = |flags| preadv2(&file, &mut [IoSliceMut::new(&mut byte)], 0, flags);
    // In flight it may be on account of somebody else.
    let cached = || cached_pages(file.as_raw_fd(), 0, 1);
    // Who cannot tell (Linux before 6.5, or somebody else's file since CVE-2025-21691) takes it for absent.
    let absent = wait == Wait::ForTheBeginning && !matches!(cached(), Ok(1..));
    let began = Instant::now();
    let cold = first(ReadWriteFlags::NOWAIT) == Err(Errno::AGAIN);
    let answered =
        (cold && absent && first(ReadWriteFlags::empty()).is_ok()).then(|| began.elapsed().as_nanos() as u64);
    // Overlays say that nothing is there whatever is: nobody can tell then.
    let answered = answered.filter(|_| cached() != Ok(0));
    if cold || even == Even::IfWarm {
        for offset in (0..(status.st_size as u64).min(LONGEST)).step_by(CHUNK as usize) {
            let _ = fadvise(&file, offset, NonZeroU64::new(CHUNK), Advice::WillNeed);
        }
    }
    Some(Asked { file: File { device: status.st_dev, inode: status.st_ino }, cold, answered })
}

/// Whether a name is a shared library's. Those are mapped: after the first page the program waits for each piece that it
/// touches, and no kernel reads ahead.
pub fn is_library(name: &[u8]) -> bool {
    let name = OsStr::from_bytes(name).to_string_lossy();
    name.ends_with(".so") || name.contains(".so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_is_found_where_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("module.pyc");
        std::fs::write(&path, "x").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let found = place(std::process::id(), file.as_raw_fd(), b"").unwrap();
        assert_eq!(found.name, b"module.pyc");
        let said = path.canonicalize().unwrap();
        assert_eq!(place(std::process::id(), -1, said.as_os_str().as_bytes()).unwrap(), found);
        assert!(place(std::process::id(), -1, b"/absent/file").is_none());
        assert!(open_directory(&path_from_here(std::process::id(), &found.directory)).is_some());
        let (directory, _) = open_directory(folder.path()).unwrap();
        let asked = ask(directory.as_fd(), c"module.pyc", Even::IfCold, Wait::ForTheBeginning);
        assert_eq!(asked, Some(Asked { file: found.file, cold: false, answered: None }));
        assert!(place(std::process::id(), directory.as_raw_fd(), b"").is_none());
        assert!(place(std::process::id(), 1 << 20, b"").is_none());
    }

    #[test]
    fn nothing_but_regular_files_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", folder.path().join("link")).unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (directory, _) = open_directory(folder.path()).unwrap();
        for name in [c"link", c"pipe", c"absent", c"."] {
            assert_eq!(ask(directory.as_fd(), name, Even::IfWarm, Wait::No), None, "{name:?}");
        }
    }

    #[test]
    fn libraries() {
        assert!(
            [&b"libc.so.6"[..], b"algos.cpython-311-x86_64-linux-gnu.so"].iter().all(|name| is_library(name))
        );
        assert!(![&b"also"[..], b"a.sort", b"so"].iter().any(|name| is_library(name)));
    }
}
