//! Descriptors, reads and names.

use crate::arch::syscall;
use crate::uapi::general as n;
use crate::{Errno, Result, check};
use core::ffi::CStr;

/// Opening for reading what may have become something else: it is not waited for, and no terminal is taken.
pub const QUIETLY: u32 = n::O_RDONLY | n::O_CLOEXEC | n::O_NONBLOCK | n::O_NOCTTY;

pub const AT_FDCWD: i32 = n::AT_FDCWD;

/// One piece of memory of a vectored read, as the kernel lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IoVec {
    pub base: usize,
    /// In bytes.
    pub length: usize,
}

/// What `stat` answers, reduced to what Runahead asks.
pub type Stat = n::stat;

pub fn open_at(directory: i32, path: &CStr, flags: u32, mode: u32) -> Result<i32> {
    // SAFETY: the path is a valid C string; opening changes no memory of ours.
    unsafe { open_at_address(directory, path.as_ptr() as usize, flags, mode) }
}

/// Like [`open_at`] with the path's address as the program gave it.
///
/// # Safety
/// None beyond the kernel's: a bad address returns EFAULT. Unsafe because O_CREAT and O_TRUNC act on
/// the world.
pub unsafe fn open_at_address(directory: i32, path: usize, flags: u32, mode: u32) -> Result<i32> {
    // SAFETY: the kernel checks the address.
    let r = unsafe {
        syscall(n::__NR_openat as usize, [directory as usize, path, flags as usize, mode as usize, 0, 0])
    };
    check(r).map(|fd| fd as i32)
}

/// `openat2` with a ready `open_how`.
///
/// # Safety
/// As [`open_at_address`].
pub unsafe fn open_at2_address(directory: i32, path: usize, how: &n::open_how) -> Result<i32> {
    let size = core::mem::size_of::<n::open_how>();
    // SAFETY: `how` is valid for reads; the kernel checks the path's address.
    let r = unsafe {
        syscall(n::__NR_openat2 as usize, [directory as usize, path, how as *const _ as usize, size, 0, 0])
    };
    check(r).map(|fd| fd as i32)
}

/// [`open_at`] from the current directory, but not by way of links that `/proc` has to what is open or
/// running.
pub fn open_without_magic_links(path: &CStr, flags: u32) -> Result<i32> {
    let how = n::open_how { flags: flags.into(), mode: 0, resolve: n::RESOLVE_NO_MAGICLINKS.into() };
    // SAFETY: the path is a valid C string; nothing is created or cut off unless `flags` say so.
    unsafe { open_at2_address(n::AT_FDCWD, path.as_ptr() as usize, &how) }
}

/// Whether the real user may execute the file at `path`.
pub fn may_execute(path: &CStr) -> bool {
    const X_OK: usize = 1;
    has_access(path, X_OK)
}

/// Whether the real user may read the file at `path`.
pub fn may_read(path: &CStr) -> bool {
    const R_OK: usize = 4;
    has_access(path, R_OK)
}

/// Whether the real user finds anything at `path`.
pub fn is_there(path: &CStr) -> bool {
    const F_OK: usize = 0;
    has_access(path, F_OK)
}

fn has_access(path: &CStr, mode: usize) -> bool {
    let a = [n::AT_FDCWD as usize, path.as_ptr() as usize, mode, 0, 0, 0];
    // SAFETY: the path is a C string.
    check(unsafe { syscall(n::__NR_faccessat as usize, a) }).is_ok()
}

pub fn close(fd: i32) -> Result<()> {
    // SAFETY: closing touches no memory; the caller owns the descriptor.
    check(unsafe { syscall(n::__NR_close as usize, [fd as usize, 0, 0, 0, 0, 0]) }).map(drop)
}

/// Closes all descriptors from `first` to `last`, both included (Linux 5.9).
pub fn close_range(first: u32, last: u32) -> Result<()> {
    let a = [first as usize, last as usize, 0, 0, 0, 0];
    // SAFETY: closing touches no memory.
    check(unsafe { syscall(n::__NR_close_range as usize, a) }).map(drop)
}

/// Leaves a table of descriptors that is shared with another process for an empty one (Linux 5.9). What is open in the
/// shared one is not held for an instant.
pub fn leave_files() -> Result<()> {
    const CLOSE_RANGE_UNSHARE: usize = 1 << 1;
    let a = [0, u32::MAX as usize, CLOSE_RANGE_UNSHARE, 0, 0, 0];
    // SAFETY: closing touches no memory.
    check(unsafe { syscall(n::__NR_close_range as usize, a) }).map(drop)
}

pub fn read(fd: i32, buffer: &mut [u8]) -> Result<usize> {
    let a = [fd as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
    // SAFETY: the buffer is valid for writes of its length.
    check(unsafe { syscall(n::__NR_read as usize, a) })
}

pub fn pread(fd: i32, buffer: &mut [u8], offset: i64) -> Result<usize> {
    let a = [fd as usize, buffer.as_mut_ptr() as usize, buffer.len(), offset as usize, 0, 0];
    // SAFETY: the buffer is valid for writes of its length.
    check(unsafe { syscall(n::__NR_pread64 as usize, a) })
}

/// `preadv2` into memory given by address. With `RWF_NOWAIT` it returns what is cached, EAGAIN where
/// the first byte is not, EOPNOTSUPP where the file system cannot tell.
///
/// # Safety
/// The pieces may be overwritten. Bad addresses give EFAULT or a short count.
pub unsafe fn preadv2(fd: i32, pieces: &[IoVec], offset: i64, flags: u32) -> Result<usize> {
    let a = [fd as usize, pieces.as_ptr() as usize, pieces.len(), offset as usize, 0, flags as usize];
    // SAFETY: `pieces` is valid for reads; the rest is the caller's promise.
    check(unsafe { syscall(n::__NR_preadv2 as usize, a) })
}

pub const RWF_NOWAIT: u32 = 8;

pub fn pwrite(fd: i32, bytes: &[u8], offset: i64) -> Result<usize> {
    let arguments = [fd as usize, bytes.as_ptr() as usize, bytes.len(), offset as usize, 0, 0];
    // SAFETY: the kernel reads only inside `bytes`.
    check(unsafe { syscall(n::__NR_pwrite64 as usize, arguments) })
}

pub fn seek(fd: i32, offset: i64, whence: u32) -> Result<i64> {
    let a = [fd as usize, offset as usize, whence as usize, 0, 0, 0];
    // SAFETY: touches no memory.
    check(unsafe { syscall(n::__NR_lseek as usize, a) }).map(|p| p as i64)
}

/// The position of a descriptor; ESPIPE where it has none (pipes, sockets, terminals).
pub fn position(fd: i32) -> Result<i64> {
    seek(fd, 0, n::SEEK_CUR)
}

/// How many of the pages of `offset..offset + length` (bytes) are in the page cache, in flight ones
/// included. Linux 6.5; 0 on overlay whatever is cached (docs/design/interception-and-safety.md).
pub fn cached_pages(fd: i32, offset: u64, length: u64) -> Result<u64> {
    Ok(cache_status(fd, offset, length)?.nr_cache)
}

/// The whole answer of `cachestat` for `offset..offset + length` (bytes). Linux 6.5.
pub fn cache_status(fd: i32, offset: u64, length: u64) -> Result<n::cachestat> {
    let range = n::cachestat_range { off: offset, len: length };
    let mut status =
        n::cachestat { nr_cache: 0, nr_dirty: 0, nr_writeback: 0, nr_evicted: 0, nr_recently_evicted: 0 };
    let a = [fd as usize, &raw const range as usize, &raw mut status as usize, 0, 0, 0];
    // SAFETY: both structures are valid and of the kernel's layout.
    check(unsafe { syscall(n::__NR_cachestat as usize, a) })?;
    Ok(status)
}

/// The size of an open regular file, bytes, as far as it is known here: a network is not asked. None: it
/// is none, and what stands for its size says nothing.
pub fn known_size_of_regular(fd: i32) -> Result<Option<u64>> {
    Ok(known_regular(fd)?.map(|file| file.size))
}

/// What is known here of an open regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Bytes.
    pub size: u64,
    /// Major and minor number.
    pub device: (u32, u32),
    pub inode: u64,
}

/// The same, with what tells the file from others. None: it is no regular file.
pub fn known_regular(fd: i32) -> Result<Option<Known>> {
    let status = known(fd, n::STATX_TYPE | n::STATX_SIZE | n::STATX_INO)?;
    let is_regular = u32::from(status.stx_mode) & n::S_IFMT == n::S_IFREG;
    let device = (status.stx_dev_major, status.stx_dev_minor);
    Ok(is_regular.then_some(Known { size: status.stx_size, device, inode: status.stx_ino }))
}

/// What is known here of an open file.
fn known(fd: i32, what: u32) -> Result<n::statx> {
    // SAFETY: zeros are a valid value of this structure of numbers.
    let mut status: n::statx = unsafe { core::mem::zeroed() };
    let flags = n::AT_EMPTY_PATH | n::AT_STATX_DONT_SYNC;
    let path = c"".as_ptr() as usize;
    let a = [fd as usize, path, flags as usize, what as usize, &raw mut status as usize, 0];
    // SAFETY: the structure is the kernel's, the path a C string.
    check(unsafe { syscall(n::__NR_statx as usize, a) })?;
    Ok(status)
}

/// The seals of a file in memory (`F_GET_SEALS`); EINVAL for any other.
pub fn seals(fd: i32) -> Result<u32> {
    let a = [fd as usize, n::F_GET_SEALS as usize, 0, 0, 0, 0];
    // SAFETY: asks only.
    check(unsafe { syscall(n::__NR_fcntl as usize, a) }).map(|seals| seals as u32)
}

/// Whether reads through a descriptor pass by the page cache (`O_DIRECT`).
pub fn is_direct(fd: i32) -> bool {
    let a = [fd as usize, n::F_GETFL as usize, 0, 0, 0, 0];
    // SAFETY: asks only.
    check(unsafe { syscall(n::__NR_fcntl as usize, a) }).is_ok_and(|flags| flags as u32 & n::O_DIRECT != 0)
}

/// Asks for `offset..offset + length` (bytes) to be read into the page cache. The kernel truncates a
/// long request silently: send at most 128 KB.
pub fn readahead(fd: i32, offset: u64, length: u64) -> Result<()> {
    let a = [fd as usize, offset as usize, length as usize, 0, 0, 0];
    // SAFETY: touches no memory of ours.
    check(unsafe { syscall(n::__NR_readahead as usize, a) }).map(drop)
}

pub fn fadvise(fd: i32, offset: u64, length: u64, advice: u32) -> Result<()> {
    let a = [fd as usize, offset as usize, length as usize, advice as usize, 0, 0];
    // SAFETY: touches no memory of ours.
    check(unsafe { syscall(n::__NR_fadvise64 as usize, a) }).map(drop)
}

fn empty_stat() -> Stat {
    // SAFETY: `stat` is plain old data; all zeros is a value.
    unsafe { core::mem::zeroed() }
}

pub fn fstat(fd: i32) -> Result<Stat> {
    let mut stat = empty_stat();
    // SAFETY: `stat` is valid for writes.
    check(unsafe { syscall(n::__NR_fstat as usize, [fd as usize, &raw mut stat as usize, 0, 0, 0, 0]) })?;
    Ok(stat)
}

pub fn stat_at(directory: i32, path: &CStr, flags: u32) -> Result<Stat> {
    let mut stat = empty_stat();
    // SAFETY: the path is a C string, `stat` is valid for writes.
    unsafe { stat_at_address(directory, path.as_ptr() as usize, &raw mut stat as usize, flags)? };
    Ok(stat)
}

/// `newfstatat` with both addresses as the program gave them.
///
/// # Safety
/// `out` may be overwritten with a `stat`.
pub unsafe fn stat_at_address(directory: i32, path: usize, out: usize, flags: u32) -> Result<()> {
    let a = [directory as usize, path, out, flags as usize, 0, 0];
    // SAFETY: the kernel checks the addresses; the rest is the caller's promise.
    check(unsafe { syscall(n::__NR_newfstatat as usize, a) }).map(drop)
}

/// The file system's type (`statfs.f_type`) below a descriptor.
pub fn file_system_type(fd: i32) -> Result<i64> {
    let mut answer = [0u64; 32];
    // SAFETY: `statfs` is 120 bytes, the buffer 256.
    check(unsafe {
        syscall(n::__NR_fstatfs as usize, [fd as usize, answer.as_mut_ptr() as usize, 0, 0, 0, 0])
    })?;
    Ok(answer[0] as i64)
}

/// The target of a link, in `buffer`; longer ones are cut.
pub fn read_link<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    read_link_at(n::AT_FDCWD, path, buffer)
}

/// The same, of a path relative to a directory.
pub fn read_link_at<'a>(directory: i32, path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    let a = [directory as usize, path.as_ptr() as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0];
    // SAFETY: the path is a C string, the buffer is valid for writes.
    let length = check(unsafe { syscall(n::__NR_readlinkat as usize, a) })?;
    Ok(buffer.get(..length).unwrap_or(&[]))
}

pub fn read_directory(fd: i32, buffer: &mut [u8]) -> Result<usize> {
    let a = [fd as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
    // SAFETY: the buffer is valid for writes.
    check(unsafe { syscall(n::__NR_getdents64 as usize, a) })
}

/// `ioctl` with an address argument.
///
/// # Safety
/// Whatever the request does with `argument`.
pub unsafe fn ioctl(fd: i32, request: usize, argument: usize) -> Result<usize> {
    // SAFETY: the caller's promise.
    check(unsafe { syscall(n::__NR_ioctl as usize, [fd as usize, request, argument, 0, 0, 0]) })
}

/// Writes all of `bytes`, for messages; gives up silently on the first error.
pub fn write_all(fd: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let a = [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
        // SAFETY: the bytes are valid for reads.
        match check(unsafe { syscall(n::__NR_write as usize, a) }) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written.min(bytes.len())..],
            Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}
