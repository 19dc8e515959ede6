//! The kernel's side: listings and look-ups, without effects: nothing is followed, mounted or written.
//!
//! But for a program's arguments, which may be paths of several names: on the way to the last of them links are followed and mounts
//! crossed, as the program's own look-up would.

use crate::walk::Name;
use runahead_kernel::filesystem::FileSystem;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, StatxAttributes, StatxFlags, fstat, fstatfs, makedev,
    openat, statat, statx,
};
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Names taken from one directory at most; the rest of a larger one is left to the program.
const LISTING_MOST: usize = 65_536;

/// linux/fcntl.h; rustix has no name for it.
const AT_STATX_DONT_SYNC: u32 = 0x4000;

/// A directory's device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
}

/// Opens a directory by path, for a walk to begin; refuses what is no directory or lies on a pseudo file
/// system.
pub fn open_root(path: &Path) -> io::Result<(OwnedFd, Identity)> {
    let directory = open_quietly(CWD, path, OFlags::empty())?;
    if is_pseudo(&directory)? {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let identity = identity(directory.as_fd())?;
    Ok((directory, identity))
}

/// Whether a file lies where names are not data: looking there is slow, useless, or has effects.
pub fn is_pseudo(file: impl AsFd) -> io::Result<bool> {
    Ok(FileSystem::of(fstatfs(file)?.f_type).is_made_up())
}

/// Whether a file lies where each request takes the time of somebody who serves it.
pub fn is_served(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|status| FileSystem::of(status.f_type).is_served())
}

/// The device of the directory at `path`, as the kernel knows it: whoever serves it is not asked.
pub fn device(path: &Path) -> Option<u64> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::from_bits_retain(AT_STATX_DONT_SYNC);
    let seen = statx(CWD, path, flags, StatxFlags::empty()).ok()?;
    Some(makedev(seen.stx_dev_major, seen.stx_dev_minor))
}

/// Opens the directory `name` inside `parent`, if it is on the same device, no link, and neither a mount nor
/// a place where opening would mount something.
pub fn open_inside(parent: BorrowedFd, name: &CStr, device: u64) -> io::Result<(OwnedFd, Identity)> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let seen = statx(parent, name, flags, StatxFlags::BASIC_STATS)?;
    let elsewhere = StatxAttributes::AUTOMOUNT | StatxAttributes::MOUNT_ROOT;
    let same_device = makedev(seen.stx_dev_major, seen.stx_dev_minor) == device;
    if seen.stx_attributes.intersects(elsewhere) || !same_device {
        return Err(io::ErrorKind::CrossesDevices.into());
    }
    let directory = open_quietly(parent, name, OFlags::NOFOLLOW)?;
    let identity = identity(directory.as_fd())?;
    // It may have been exchanged meanwhile.
    if identity.device != device {
        return Err(io::ErrorKind::CrossesDevices.into());
    }
    Ok((directory, identity))
}

/// Opens the directory above this one, if it is on the same device.
pub fn open_above(directory: BorrowedFd, device: u64) -> io::Result<(OwnedFd, Identity)> {
    let above = open_quietly(directory, c"..", OFlags::empty())?;
    let identity = identity(above.as_fd())?;
    if identity.device != device {
        return Err(io::ErrorKind::CrossesDevices.into());
    }
    Ok((above, identity))
}

/// Opens a directory so that listing it leaves no access time, where that is permitted: to its owner.
fn open_quietly(at: BorrowedFd, path: impl Arg + Copy, more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK | more;
    match openat(at, path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => Ok(openat(at, path, flags, Mode::empty())?),
        other => Ok(other?),
    }
}

fn identity(directory: BorrowedFd) -> io::Result<Identity> {
    let stat = fstat(directory)?;
    Ok(Identity { device: stat.st_dev, inode: stat.st_ino })
}

/// The names in a directory, but `.` and `..`.
pub fn list(directory: BorrowedFd) -> Vec<Name> {
    list_some(directory, LISTING_MOST)
}

/// The same, of the first so many names.
pub fn list_some(directory: BorrowedFd, most: usize) -> Vec<Name> {
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
        if names.len() >= most {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn device_of(path: &Path) -> u64 {
        fs::metadata(path).unwrap().dev()
    }

    #[test]
    fn listings_tell_names_and_kinds() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("file"), "x").unwrap();
        symlink("inner", folder.path().join("link")).unwrap();
        let (directory, identity) = open_root(folder.path()).unwrap();
        assert_eq!(identity.inode, fs::metadata(folder.path()).unwrap().ino());
        let mut names: Vec<_> =
            list(directory.as_fd()).into_iter().map(|name| (name.name, name.is_directory)).collect();
        names.sort();
        assert_eq!(names, [(c"file".into(), false), (c"inner".into(), true), (c"link".into(), false)]);
        assert!(look_up(directory.as_fd(), c"inner"));
        assert!(![c"file", c"link", c"absent"].iter().any(|name| look_up(directory.as_fd(), name)));
    }

    #[test]
    fn links_other_devices_and_mounts_are_not_entered() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        symlink("inner", folder.path().join("link")).unwrap();
        let (directory, identity) = open_root(folder.path()).unwrap();
        assert!(open_inside(directory.as_fd(), c"inner", identity.device).is_ok());
        assert!(open_inside(directory.as_fd(), c"link", identity.device).is_err());
        assert!(open_inside(directory.as_fd(), c"inner", identity.device + 1).is_err());
        // The root is a mount wherever this runs, seen from itself.
        let (root, identity) = open_root(Path::new("/")).unwrap();
        assert!(open_inside(root.as_fd(), c"proc", identity.device).is_err());
        assert!(open_inside(root.as_fd(), c"proc", device_of(Path::new("/proc"))).is_err());
    }

    #[test]
    fn pseudo_file_systems_are_no_roots() {
        assert!(open_root(Path::new("/proc")).is_err());
        assert!(open_root(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn listing_leaves_no_access_time() {
        let folder = tempfile::tempdir().unwrap();
        // Older than a day and than the last change: a listing would set it, relatime or not.
        let path = folder.path().join("inner");
        fs::create_dir(&path).unwrap();
        let old = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let (root, identity) = open_root(folder.path()).unwrap();
        let (inner, _) = open_inside(root.as_fd(), c"inner", identity.device).unwrap();
        list(inner.as_fd());
        assert_eq!(fs::metadata(&path).unwrap().atime(), 1_000_000_000);
    }
}
