//! What the kernel says of this process before anything else is done.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};

static FILTERS: AtomicU32 = AtomicU32::new(0);

/// Bytes of `/proc/self/status` that are looked at; it has some 1500, and as many more as there are groups.
const LONGEST: usize = 8192;

/// Not on the stack, of which there may be little.
struct Text(UnsafeCell<[u8; LONGEST]>);

// SAFETY: `note` alone touches it, once.
unsafe impl Sync for Text {}

static TEXT: Text = Text(UnsafeCell::new([0; LONGEST]));

/// Finds it out. Runs before `main`, by plain system calls: under a filter any other might be the last.
pub fn note() {
    // SAFETY: this runs once, before there is another thread, and nobody else knows the buffer.
    let text = unsafe { &mut *TEXT.0.get() };
    // SAFETY: a buffer as long as it is said to be, a descriptor of our own.
    let length = unsafe {
        let file = open(c"/proc/self/status", libc::O_RDONLY);
        if file < 0 {
            return;
        }
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        length
    };
    let text = text.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
    // Before Linux 5.9 there is no count.
    let filters = number(text, b"Seccomp_filters:\t").or_else(|| number(text, b"Seccomp:\t"));
    FILTERS.store(filters.unwrap_or(0), Ordering::Relaxed);
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
