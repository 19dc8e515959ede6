//! Mappings, other processes' memory, userfaultfd.

use crate::arch::syscall;
use crate::files::{self, IoVec};
use crate::uapi::general as n;
use crate::{Errno, PAGE, Result, check};
use core::ops::Range;

pub const PROT_NONE: u32 = n::PROT_NONE;
pub const PROT_READ: u32 = n::PROT_READ;
pub const PROT_WRITE: u32 = n::PROT_WRITE;
pub const PROT_EXEC: u32 = n::PROT_EXEC;

/// Addresses of `length` bytes from `address`, no further than memory goes.
pub fn bytes(address: usize, length: usize) -> Range<usize> {
    address..address.saturating_add(length)
}

/// Whether what is written to one of them is read from the other.
pub fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

/// `mmap`.
///
/// # Safety
/// With MAP_FIXED whatever was mapped there is gone.
pub unsafe fn map(
    address: usize,
    length: usize,
    protection: u32,
    flags: u32,
    fd: i32,
    offset: u64,
) -> Result<usize> {
    let a = [address, length, protection as usize, flags as usize, fd as usize, offset as usize];
    // SAFETY: the caller's promise.
    check(unsafe { syscall(n::__NR_mmap as usize, a) })
}

/// Has a shared mapping show another part of its file, from page `first_page` on, without a descriptor
/// (remap_file_pages(2)); nothing is brought in. The protection stays.
///
/// # Safety
/// What was mapped there is not any more.
pub unsafe fn show_other_part(address: usize, length: usize, first_page: usize) -> Result<()> {
    let a = [address, length, 0, first_page, n::MAP_NONBLOCK as usize, 0];
    // SAFETY: the caller's promise.
    check(unsafe { syscall(n::__NR_remap_file_pages as usize, a) }).map(drop)
}

/// # Safety
/// Nothing may use the range any more.
pub unsafe fn unmap(address: usize, length: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    check(unsafe { syscall(n::__NR_munmap as usize, [address, length, 0, 0, 0, 0]) }).map(drop)
}

/// # Safety
/// Code and data in the range must cope with the new protection.
pub unsafe fn protect(address: usize, length: usize, protection: u32) -> Result<()> {
    let a = [address, length, protection as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    check(unsafe { syscall(n::__NR_mprotect as usize, a) }).map(drop)
}

/// # Safety
/// Whatever the advice does to the contents (MADV_DONTNEED drops them).
pub unsafe fn advise(address: usize, length: usize, advice: u32) -> Result<()> {
    let a = [address, length, advice as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    check(unsafe { syscall(n::__NR_madvise as usize, a) }).map(drop)
}

/// Advice that the kernel's header of this crate does not know yet (6.13; 6.15 for mappings of files): touching the pages raises
/// SIGSEGV, or no more.
pub const MADV_GUARD_INSTALL: u32 = 102;
pub const MADV_GUARD_REMOVE: u32 = 103;

/// Does something with a page of memory that is there for the question only.
fn with_a_page(ask: impl FnOnce(usize) -> Result<()>) -> Result<()> {
    // SAFETY: a new mapping.
    let page = unsafe { map(0, PAGE, PROT_NONE, n::MAP_PRIVATE | n::MAP_ANONYMOUS, -1, 0) }?;
    let answer = ask(page);
    // SAFETY: nobody else knows of it.
    let _ = unsafe { unmap(page, PAGE) };
    answer
}

/// Whether the kernel has guards (`MADV_GUARD_INSTALL`), as far as it lets us have them.
pub fn has_guards() -> bool {
    // SAFETY: a page that nobody uses.
    with_a_page(|page| unsafe { advise(page, PAGE, MADV_GUARD_INSTALL) }).is_ok()
}

/// Whether memory that was written may become executable: `PR_SET_MDWE` and filters like it forbid that.
pub fn may_execute_written() -> Result<()> {
    // SAFETY: a page that nobody uses.
    with_a_page(|page| unsafe {
        protect(page, PAGE, PROT_READ | PROT_WRITE)?;
        protect(page, PAGE, PROT_READ | PROT_EXEC)
    })
}

/// Which pages of a mapping are cached or in memory: the lowest bit of a byte for each (`mincore`). Of a file, all of them to
/// who neither owns it nor may write to it (Linux 5.2). EINVAL if `told` has too few bytes.
pub fn cached_pages(address: usize, length: usize, told: &mut [u8]) -> Result<()> {
    if told.len() < length.div_ceil(PAGE) {
        return Err(Errno::EINVAL);
    }
    let a = [address, length, told.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: there is a byte for each page.
    check(unsafe { syscall(n::__NR_mincore as usize, a) }).map(drop)
}

/// Copies from another process's memory; stops at the first remote or local address that is not
/// there and returns the bytes copied before it.
///
/// # Safety
/// The local pieces are overwritten.
pub unsafe fn read_process(pid: i32, local: &[IoVec], remote: &[IoVec]) -> Result<usize> {
    let a = [pid as usize, local.as_ptr() as usize, local.len(), remote.as_ptr() as usize, remote.len(), 0];
    // SAFETY: the vectors are valid; the rest is the caller's promise.
    check(unsafe { syscall(n::__NR_process_vm_readv as usize, a) })
}

/// Copies into another process's memory, as far as that may be written to; returns the bytes copied.
///
/// # Safety
/// Of this process: what is there is nobody's whose memory this is.
pub unsafe fn write_process(pid: i32, local: &[IoVec], remote: &[IoVec]) -> Result<usize> {
    let a = [pid as usize, local.as_ptr() as usize, local.len(), remote.as_ptr() as usize, remote.len(), 0];
    // SAFETY: the vectors are valid; the rest is the caller's promise.
    check(unsafe { syscall(n::__NR_process_vm_writev as usize, a) })
}

/// Has the kernel bring in what is on swap or of a file, of the process behind `pidfd` (Linux 5.10), without waiting for it.
/// EPERM without CAP_SYS_NICE. With no pieces it only tells whether one may.
pub fn will_need(pidfd: i32, pieces: &[IoVec]) -> Result<usize> {
    let a = [pidfd as usize, pieces.as_ptr() as usize, pieces.len(), n::MADV_WILLNEED as usize, 0, 0];
    // SAFETY: the vector is valid; the advice changes no contents.
    check(unsafe { syscall(n::__NR_process_madvise as usize, a) })
}

/// A userfaultfd whose missing pages raise SIGBUS in the thread that touches them (Linux 4.14), for
/// touches from user code only, which needs no privilege (Linux 5.11).
pub fn userfault_sigbus() -> Result<i32> {
    // SAFETY: creates a descriptor.
    let open =
        |flags: u32| check(unsafe { syscall(n::__NR_userfaultfd as usize, [flags as usize, 0, 0, 0, 0, 0]) });
    let fd = match open(n::O_CLOEXEC | n::UFFD_USER_MODE_ONLY) {
        // Older kernels do not know the flag, and give root one without it.
        Err(Errno::EINVAL) => open(n::O_CLOEXEC)?,
        answer => answer?,
    } as i32;
    let mut api = n::uffdio_api { api: UFFD_API, features: UFFD_FEATURE_SIGBUS, ioctls: 0 };
    // SAFETY: the structure is the one that the request wants.
    match unsafe { files::ioctl(fd, UFFDIO_API, &raw mut api as usize) } {
        Ok(_) => Ok(fd),
        Err(e) => {
            let _ = files::close(fd);
            Err(e)
        }
    }
}

const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_SIGBUS: u64 = 1 << 7;
/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
pub const UFFDIO_API: usize = 0xc018_aa3f;
/// `_IOWR(0xaa, 0x00, struct uffdio_register)`.
pub const UFFDIO_REGISTER: usize = 0xc020_aa00;
/// `_IOWR(0xaa, 0x03, struct uffdio_copy)`.
pub const UFFDIO_COPY: usize = 0xc028_aa03;
/// `_IOWR(0xaa, 0x04, struct uffdio_zeropage)`.
pub const UFFDIO_ZEROPAGE: usize = 0xc020_aa04;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

/// Registers a range for missing-page faults.
pub fn userfault_register(fd: i32, start: usize, length: usize) -> Result<()> {
    let mut register = n::uffdio_register {
        range: n::uffdio_range { start: start as u64, len: length as u64 },
        mode: UFFDIO_REGISTER_MODE_MISSING,
        ioctls: 0,
    };
    // SAFETY: the structure is the one that the request wants.
    unsafe { files::ioctl(fd, UFFDIO_REGISTER, &raw mut register as usize) }.map(drop)
}

/// Fills missing pages at `to` with the bytes at `from`; EEXIST where a page is there already.
///
/// # Safety
/// `from` must be readable for `length` bytes; what lies at `to` appears there.
pub unsafe fn userfault_copy(fd: i32, to: usize, from: usize, length: usize) -> Result<()> {
    let mut copy = n::uffdio_copy { dst: to as u64, src: from as u64, len: length as u64, mode: 0, copy: 0 };
    // SAFETY: the structure is the one that the request wants; the rest is the caller's promise.
    unsafe { files::ioctl(fd, UFFDIO_COPY, &raw mut copy as usize) }.map(drop)
}

/// Fills missing pages at `to` with zeros, which takes no memory until they are written to; EEXIST where a page is there already.
///
/// # Safety
/// Zeros appear at `to`.
pub unsafe fn userfault_zero(fd: i32, to: usize, length: usize) -> Result<()> {
    let range = n::uffdio_range { start: to as u64, len: length as u64 };
    let mut zero = n::uffdio_zeropage { range, mode: 0, zeropage: 0 };
    // SAFETY: the structure is the one that the request wants; the rest is the caller's promise.
    unsafe { files::ioctl(fd, UFFDIO_ZEROPAGE, &raw mut zero as usize) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_shared() {
        assert!(overlap(&bytes(10, 5), &bytes(14, 1)) && overlap(&bytes(14, 1), &bytes(10, 5)));
        assert!(!overlap(&bytes(10, 5), &bytes(15, 5)) && !overlap(&bytes(15, 5), &bytes(10, 5)));
        assert!(overlap(&bytes(10, 5), &bytes(0, 100)));
        assert!(!overlap(&bytes(10, 5), &bytes(12, 0)) && !overlap(&bytes(0, 0), &bytes(0, 0)));
        assert!(
            overlap(&bytes(10, 5), &bytes(0, usize::MAX)) && !overlap(&bytes(usize::MAX, 5), &bytes(0, 5))
        );
    }
}
