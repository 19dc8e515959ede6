//! What the kernel says of this process before anything else is done.

use runahead_kernel::files;
use runahead_kernel::uapi::general as n;
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

static FILTERS: AtomicU32 = AtomicU32::new(0);

/// Bytes of `/proc/self/status` that are looked at; it has some 1500, and as many more as there are groups.
pub const STATUS_BYTES: usize = 8192;

/// Not on the stack, of which there may be little.
pub struct Text(UnsafeCell<[u8; STATUS_BYTES]>);

// SAFETY: the executable's entry and `note` alone touch it, one after the other.
unsafe impl Sync for Text {}

/// What the file says, and how many bytes of it; 0: it was not read yet. The executable's entry may have
/// (`cli::arch`).
pub static STATUS_TEXT: Text = Text(UnsafeCell::new([0; STATUS_BYTES]));
pub static STATUS_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Finds it out. Runs before `main`, once, by plain system calls: under a filter any other might be the last.
pub fn note() {
    // SAFETY: this runs once, before there is another thread, and nobody else has a reference.
    let text = unsafe { &mut *STATUS_TEXT.0.get() };
    let length = match STATUS_LENGTH.load(Ordering::Relaxed) {
        0 => read_status(text),
        length => length,
    };
    let text = text.get(..length).unwrap_or_default();
    FILTERS.store(filters_in(text).unwrap_or(0), Ordering::Relaxed);
}

/// (Before Linux 5.9 there is no count.)
fn filters_in(status: &[u8]) -> Option<u32> {
    number(status, b"Seccomp_filters:\t").or_else(|| number(status, b"Seccomp:\t"))
}

/// How many filters another process is under. None: it may not be looked at, or is gone.
pub(crate) fn filters_of(process: u32) -> Option<u32> {
    let status = std::fs::read(format!("/proc/{process}/status")).ok()?;
    // Where the kernel has none it says nothing of them.
    Some(filters_in(&status).unwrap_or(0))
}

/// How many bytes there are; 0 if that cannot be read.
fn read_status(text: &mut [u8]) -> usize {
    let flags = n::O_RDONLY | n::O_CLOEXEC;
    let Ok(file) = files::open_at(n::AT_FDCWD, c"/proc/self/status", flags, 0) else { return 0 };
    let length = files::read(file, text);
    let _ = files::close(file);
    length.unwrap_or(0)
}

/// Opens a file by the call by which the command's loader opens its own. (A C library may make another.)
fn open(path: &CStr, how: libc::c_int) -> libc::c_int {
    let how = how | libc::O_CLOEXEC;
    // SAFETY: a terminated string.
    unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), how) as libc::c_int }
}

/// Whether descriptor `number`, of the standard ones, is closed.
pub fn is_closed(number: i32) -> bool {
    const NAMES: [&CStr; 3] = [c"/proc/self/fd/0", c"/proc/self/fd/1", c"/proc/self/fd/2"];
    let error = || std::io::Error::last_os_error().raw_os_error();
    if filters() == 0 {
        // SAFETY: asking changes nothing.
        return unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 && error() == Some(libc::EBADF);
    }
    let Some(name) = usize::try_from(number).ok().and_then(|at| NAMES.get(at)) else { return false };
    let file = open(name, libc::O_PATH | libc::O_NOFOLLOW);
    if file < 0 {
        return error() == Some(libc::ENOENT);
    }
    // SAFETY: just opened here.
    unsafe { libc::close(file) };
    false
}

fn number(text: &[u8], name: &[u8]) -> Option<u32> {
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    str::from_utf8(line).ok()?.trim().parse().ok()
}

/// How many filters of system calls (seccomp) this process is under.
pub fn filters() -> u32 {
    FILTERS.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found() {
        let text = b"Name:\tx\nTracerPid:\t7\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        assert_eq!(number(text, b"TracerPid:\t"), Some(7));
        assert_eq!(number(text, b"Seccomp_filters:\t"), Some(3));
        assert_eq!(number(text, b"Groups:\t"), None);
    }
}
