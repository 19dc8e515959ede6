//! The kernel's side: listings and look-ups, read-only.

use crate::walk::Name;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, fstat, fstatfs, openat, statat};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Names taken from one directory at most; the rest of a larger one is left to the program.
const LISTING_MOST: usize = 65_536;

/// File systems whose names are not data: looking there is slow, useless, or has effects. Magic numbers of
/// linux/magic.h and the file systems' own sources.
const PSEUDO: [u64; 8] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x0187,      // autofs
    0x1cd1,      // devpts
];

/// A directory's device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
}

/// Opens a directory by path, for a walk to begin; refuses what is no directory or lies on a pseudo file
/// system.
pub fn open_root(path: &Path) -> io::Result<(OwnedFd, Identity)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let directory = openat(CWD, path, flags, Mode::empty())?;
    let kind = fstatfs(&directory)?.f_type as u64;
    if PSEUDO.contains(&kind) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let identity = identity(directory.as_fd())?;
    Ok((directory, identity))
}

/// Opens the directory `name` inside `parent`, if it is on the same device.
pub fn open_inside(parent: BorrowedFd, name: &CStr, device: u64) -> io::Result<(OwnedFd, Identity)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let directory = openat(parent, name, flags, Mode::empty())?;
    let identity = identity(directory.as_fd())?;
    if identity.device != device {
        return Err(io::ErrorKind::CrossesDevices.into());
    }
    Ok((directory, identity))
}

fn identity(directory: BorrowedFd) -> io::Result<Identity> {
    let stat = fstat(directory)?;
    Ok(Identity { device: stat.st_dev, inode: stat.st_ino })
}

/// The names in a directory, but `.` and `..`.
pub fn list(directory: BorrowedFd) -> Vec<Name> {
    let mut buffer = [MaybeUninit::<u8>::uninit(); 32 * 1024];
    let mut listing = RawDir::new(directory, &mut buffer);
    let mut names = Vec::new();
    while let Some(Ok(entry)) = listing.next() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        names.push(Name {
            name: name.to_owned(),
            inode: entry.ino(),
            is_directory: entry.file_type() == FileType::Directory,
        });
        if names.len() >= LISTING_MOST {
            break;
        }
    }
    names
}

/// Looks a name up, so that its inode is cached. True if it is a directory.
pub fn look_up(directory: BorrowedFd, name: &CStr) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statat(directory, name, flags)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
