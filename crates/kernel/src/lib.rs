//! Linux system calls without libc.
//!
//! The agent lives inside somebody else's process and the speculator runs somebody else's code, so
//! neither may touch libc's state: no `errno`, no thread-local storage, no allocation, no locale. This
//! room is the thin layer that both stand on: each function is one system call, named after it, with
//! the kernel's own meaning.
//!
//! Rules:
//! - everything here is async-signal-safe and may be called from any thread and any stack;
//! - an error is the kernel's number, [`Errno`], never a global;
//! - what changes memory or takes raw addresses is `unsafe` and says what the caller promises;
//! - no policy: retrying, falling back and giving up are the caller's.
#![no_std]

pub mod arch;
pub mod files;
pub mod filesystem;
pub mod freestanding;
pub mod memory;
pub mod process;
pub mod signals;
pub mod submission;
pub mod text;

pub use linux_raw_sys as uapi;

/// An error number as the kernel returns it (positive).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident),*) => { impl Errno { $(pub const $name: Errno = Errno(uapi::errno::$name as i32);)* } };
}
errnos!(
    EPERM,
    ENOENT,
    EINTR,
    EBADF,
    EAGAIN,
    ENOMEM,
    EACCES,
    EFAULT,
    EEXIST,
    ENOTDIR,
    EISDIR,
    EINVAL,
    EMFILE,
    ESPIPE,
    ERANGE,
    ENOSYS,
    EOPNOTSUPP,
    ETIMEDOUT,
    ESRCH,
    ECHILD,
    ENODEV,
    EROFS,
    EXDEV,
    E2BIG,
    ENAMETOOLONG,
    ELOOP
);

pub type Result<T> = core::result::Result<T, Errno>;

/// Turns the kernel's return value into a `Result`: -4095..=-1 are errors.
#[inline]
pub fn check(returned: isize) -> Result<usize> {
    if (-4095..0).contains(&returned) { Err(Errno(-returned as i32)) } else { Ok(returned as usize) }
}

pub use uapi::general as number;

/// Bytes in a page. Both supported processors run with 4 KiB pages (aarch64 kernels with 16 or 64 KiB
/// pages are refused at the start by `runahead`).
pub const PAGE: usize = 4096;
