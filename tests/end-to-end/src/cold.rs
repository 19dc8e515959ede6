//! Making the next run wait for the disk: the run's own files leave the page cache.
//!
//! Only the test's own files are touched, so that no other program on the machine pays. Directory
//! entries and inodes stay cached; who wants those cold too sets `RUNAHEAD_TEST_DROP_CACHES=1` (as
//! root), which empties the caches of the whole machine before each cold run.

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const WRITE_AND_WAIT: libc::c_uint =
    libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;

/// Evicts every regular file below `root`.
pub fn evict(root: &Path) -> io::Result<()> {
    let mut paths = crate::tree::walk(root)?;
    paths.retain(|path| fs::symlink_metadata(path).is_ok_and(|found| found.is_file()));
    evict_files(&paths)?;
    if std::env::var_os("RUNAHEAD_TEST_DROP_CACHES").is_some_and(|value| value == "1") {
        fs::write("/proc/sys/vm/drop_caches", "3")?;
    }
    Ok(())
}

/// Well below the 1024 descriptors that a process may have unless told otherwise: what cannot be
/// opened is not evicted.
const OPEN_AT_ONCE: usize = 400;

/// Evicts these regular files.
pub fn evict_files(paths: &[PathBuf]) -> io::Result<()> {
    for some in paths.chunks(OPEN_AT_ONCE) {
        // A file that may not be read (mode 0, not root) cannot make its reader wait either.
        evict_open(&some.iter().filter_map(|path| File::open(path).ok()).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn evict_open(files: &[File]) -> io::Result<()> {
    // Only clean pages can be dropped. Writing the data is enough: fsync would commit the journal for
    // each file, and was most of the suite's time.
    for flags in [libc::SYNC_FILE_RANGE_WRITE, WRITE_AND_WAIT] {
        for file in files {
            // SAFETY: takes no pointer. Where the file system does not know it, fsync does the work.
            if unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } != 0 {
                file.sync_all()?;
            }
        }
    }
    for file in files {
        posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    }
    Ok(())
}

/// How many of a file's pages are in memory, and of how many. Unlike `cachestat`, `mincore` counts
/// only what has arrived, and is there on every kernel we support.
pub fn resident_pages(path: &Path) -> io::Result<(usize, usize)> {
    let file = File::open(path)?;
    let length = file.metadata()?.len() as usize;
    let pages = length.div_ceil(4096);
    if pages == 0 {
        return Ok((0, 0));
    }
    let mut resident = vec![0u8; pages];
    // SAFETY: a fresh read-only mapping, used by nobody else and unmapped below; the vector has
    // one byte for each page.
    let failed = unsafe {
        let start =
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let failed = libc::mincore(start, length, resident.as_mut_ptr());
        libc::munmap(start, length);
        failed
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((resident.iter().filter(|page| **page & 1 == 1).count(), pages))
}
