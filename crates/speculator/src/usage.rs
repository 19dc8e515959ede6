//! What devices have delivered for this process, which the host wants to know to tell our part of a device's
//! work from others'. It cannot look for itself: a process that leaves no core file tells nobody but itself.

use core::sync::atomic::{AtomicI32, Ordering};
use runahead_kernel::files::{self, IoVec, open_at};
use runahead_kernel::text;
use runahead_kernel::uapi::general as n;

static FILE: AtomicI32 = AtomicI32::new(-1);

/// Opens what is read later: such a process may not open it any more.
pub fn start() {
    if let Ok(fd) = open_at(n::AT_FDCWD, c"/proc/self/io", n::O_RDONLY | n::O_CLOEXEC, 0) {
        FILE.store(fd, Ordering::Relaxed);
    }
}

/// Bytes so far; 0 where the kernel does not count them. Takes 1 us.
pub fn delivered() -> u64 {
    let fd = FILE.load(Ordering::Relaxed);
    if fd < 0 {
        return 0;
    }
    let mut buffer = [0u8; 256];
    let pieces = [IoVec { base: &raw mut buffer as usize, length: buffer.len() }];
    // SAFETY: the buffer is ours.
    let Ok(length) = (unsafe { files::preadv2(fd, &pieces, 0, 0) }) else { return 0 };
    let name: &[u8] = b"read_bytes: ";
    buffer[..length.min(buffer.len())]
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(name))
        .map_or(0, |digits| text::decimal(digits).0)
}
