//! Programs that run another machine's programs (qemu's user mode) hand their environment on to these, whose
//! loader complains of an agent that it cannot load. They copy it before they look at what they run, so it is
//! asked at their start whether they are given such a program, as an argument. Of no other program's arguments
//! is anything asked: they may name what the program would never touch, or what does not answer.

use crate::arch;
use crate::loader::file_name;
use core::ffi::CStr;
use runahead_abi::foreign::{self, HEAD};
use runahead_kernel::files::{Stat, close, open_at, read, stat_at_address};
use runahead_kernel::uapi::general as n;

/// Arguments that are looked at: options, and what these are given, stand before the program.
pub const ARGUMENTS: usize = 12;

const ANY_MAY_EXECUTE: u32 = 0o111;

/// Whether what is executed by this path is such a program, by its name.
pub fn is_emulator(executed: &CStr) -> bool {
    foreign::is_emulator(file_name(executed.to_bytes()))
}

/// Whether this argument names an executable file of a program that is not for this machine.
pub fn is_foreign(argument: &CStr) -> bool {
    if argument.is_empty() || argument.to_bytes().starts_with(b"-") {
        return false;
    }
    // SAFETY: plain words, for which zeros are a value.
    let mut stat: Stat = unsafe { core::mem::zeroed() };
    let (path, into) = (argument.as_ptr() as usize, &raw mut stat as usize);
    // SAFETY: a `stat` of ours, and a terminated string.
    let told = unsafe { stat_at_address(n::AT_FDCWD, path, into, n::AT_NO_AUTOMOUNT) };
    let is_file = told.is_ok() && stat.st_mode & n::S_IFMT == n::S_IFREG;
    if !is_file || stat.st_mode & ANY_MAY_EXECUTE == 0 {
        return false;
    }
    let flags = n::O_RDONLY | n::O_CLOEXEC | n::O_NONBLOCK | n::O_NOCTTY;
    // Its access time is nobody's to change who may leave it.
    let untouched = open_at(n::AT_FDCWD, argument, flags | n::O_NOATIME, 0);
    let Ok(file) = untouched.or_else(|_| open_at(n::AT_FDCWD, argument, flags, 0)) else { return false };
    let mut head = [0; HEAD];
    let got = read(file, &mut head);
    let _ = close(file);
    got == Ok(HEAD) && foreign::is_foreign(&head, arch::CLASS, arch::MACHINE)
}
