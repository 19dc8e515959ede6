//! What this process uses: what devices have delivered for it, which the host wants to know to tell our part of a device's
//! work from others' (it cannot look for itself: a process that leaves no core file tells nobody but itself); and memory of
//! its own.

use core::sync::atomic::{AtomicI32, Ordering};
use runahead_kernel::files::{self, IoVec, open_at};
use runahead_kernel::text;
use runahead_kernel::uapi::general as n;

static FILE: AtomicI32 = AtomicI32::new(-1);
static MEMORY: AtomicI32 = AtomicI32::new(-1);

/// Opens what is read later: such a process may not open it any more.
pub fn start() {
    for (file, name) in [(&FILE, c"/proc/self/io"), (&MEMORY, c"/proc/self/statm")] {
        if let Ok(fd) = open_at(n::AT_FDCWD, name, n::O_RDONLY | n::O_CLOEXEC, 0) {
            file.store(fd, Ordering::Relaxed);
        }
    }
}

/// Bytes so far; 0 where the kernel does not count them. Takes 1 us.
pub fn delivered() -> u64 {
    let mut buffer = [0u8; 256];
    let name: &[u8] = b"read_bytes: ";
    contents(&FILE, &mut buffer)
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(name))
        .map_or(0, |digits| text::decimal(digits).0)
}

/// Pages of memory that are nobody else's, copies and zeros that speculation has written to among them; 0 where the kernel
/// does not say. Takes 1 us.
pub fn pages() -> u64 {
    let mut buffer = [0u8; 128];
    // Pages in all, resident ones, those of them that are files' or shared (proc(5)).
    let mut numbers = contents(&MEMORY, &mut buffer).split(|byte| *byte == b' ').skip(1);
    let mut next = || numbers.next().map_or(0, |digits| text::decimal(digits).0);
    let resident = next();
    resident.saturating_sub(next())
}

fn contents<'a>(file: &AtomicI32, buffer: &'a mut [u8]) -> &'a [u8] {
    let fd = file.load(Ordering::Relaxed);
    if fd < 0 {
        return &[];
    }
    let pieces = [IoVec { base: buffer.as_mut_ptr() as usize, length: buffer.len() }];
    // SAFETY: the buffer is the caller's.
    let length = unsafe { files::preadv2(fd, &pieces, 0, 0) }.unwrap_or(0);
    buffer.get(..length).unwrap_or(&[])
}
