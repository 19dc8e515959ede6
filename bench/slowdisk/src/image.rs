//! The bytes of an emulated disk, in memory that is never paged out.
//!
//! A fault of the daemon's own would add its latency to a request, so the memory is locked as it is
//! touched. Untouched parts cost nothing. The image is gone with the daemon: it holds copies of data
//! sets, never the only one.

use std::io;
use std::ptr::NonNull;

use anyhow::{Context, Result};

/// Zero-filled memory of a fixed size that reader and writer threads share.
pub struct Image {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to this value alone and lives as long as it. Bytes are reached through
// `read_at` and `write_at` only, which copy with raw pointers; two requests that overlap leave either's
// bytes, as on a disk.
unsafe impl Send for Image {}
// SAFETY: as above: no reference to the bytes ever leaves this module.
unsafe impl Sync for Image {}

impl Image {
    /// `size` in bytes.
    pub fn new(size: u64) -> Result<Image> {
        let length = usize::try_from(size).context("the image does not fit in the address space")?;
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses; nothing else can
        // refer to it.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let start = (start != libc::MAP_FAILED).then(|| NonNull::new(start.cast::<u8>())).flatten();
        let start = start.ok_or_else(io::Error::last_os_error).with_context(|| {
            format!("cannot reserve {} MB for the disk image; choose a smaller --size", size >> 20)
        })?;
        let image = Image { start, size: length };
        // SAFETY: the range is the mapping just made.
        if unsafe { libc::mlock2(image.start.as_ptr().cast(), length, libc::MLOCK_ONFAULT) } != 0 {
            return Err(io::Error::last_os_error()).with_context(|| {
                format!("cannot lock {} MB of memory; run as root or raise `ulimit -l`", size >> 20)
            });
        }
        Ok(image)
    }

    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// Copies what lies at `offset` into `buffer`; beyond the end there is nothing. Returns the bytes
    /// copied.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let length = self.within(offset, buffer.len());
        // SAFETY: `within` keeps offset + length inside the mapping; the buffer is the caller's own
        // memory, which cannot overlap a private mapping that never leaves this module.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset as usize),
                buffer.as_mut_ptr(),
                length,
            )
        };
        length
    }

    /// Copies `data` to `offset`, up to the end. Returns the bytes copied.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> usize {
        let length = self.within(offset, data.len());
        // SAFETY: as in `read_at`.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), self.start.as_ptr().add(offset as usize), length)
        };
        length
    }

    fn within(&self, offset: u64, length: usize) -> usize {
        self.size.saturating_sub(usize::try_from(offset).unwrap_or(usize::MAX)).min(length)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_the_end_is_the_end() {
        // Small enough for the usual limit on locked memory of an ordinary user (8 MB).
        let image = Image::new(64 << 10).unwrap();
        assert_eq!(image.write_at(1000, b"slow"), 4);
        let mut buffer = [9; 6];
        assert_eq!(image.read_at(999, &mut buffer), 6);
        assert_eq!(&buffer, b"\0slow\0");
        assert_eq!(image.read_at((64 << 10) - 2, &mut buffer), 2);
        assert_eq!(image.read_at(64 << 10, &mut buffer), 0);
        assert_eq!(image.read_at(u64::MAX, &mut buffer), 0);
        assert_eq!(image.write_at((64 << 10) - 1, b"ab"), 1);
    }
}
