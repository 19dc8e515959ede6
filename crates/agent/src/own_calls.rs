//! Whether the program makes system calls of its own, beside a C library: programs in Go do, with cgo as well.
//!
//! One whose code is not known when it begins would be left alone, as none of these calls could be seen. So
//! its analysis is waited for, however large it is; Go's table of functions makes that short.

use crate::patch::read_own;
use crate::start::auxiliary_value;
use core::ffi::c_char;
use core::ops::Range;
use runahead_abi::go_note::{self, HEADER};

/// Entries of the auxiliary vector (getauxval(3)): where the program's headers are, how long each is, how many
/// there are, and where the program begins.
const AT_PHDR: usize = 3;
const AT_PHENT: usize = 4;
const AT_PHNUM: usize = 5;
const AT_ENTRY: usize = 9;

/// More headers, and more bytes of a segment of notes, are not looked at.
const MOST_HEADERS: usize = 32;
const MOST_NOTES: usize = 512;

/// What the kernel says of the program that it has loaded.
#[derive(Clone, Copy, Default)]
pub struct Program {
    headers: usize,
    count: usize,
    entry: usize,
}

impl Program {
    /// # Safety
    /// `environment` is the kernel's: null-terminated, with the auxiliary vector behind it.
    pub unsafe fn find(environment: *const *const c_char) -> Program {
        // SAFETY: the caller's promise.
        let value = |kind| unsafe { auxiliary_value(environment, kind) };
        if value(AT_PHENT) != HEADER {
            return Program::default();
        }
        Program { headers: value(AT_PHDR), count: value(AT_PHNUM).min(MOST_HEADERS), entry: value(AT_ENTRY) }
    }

    /// Whether the program begins at one of these addresses, and makes system calls of its own. Reads some
    /// hundred bytes of it through the kernel; async-signal-safe.
    pub fn calls_from(&self, addresses: Range<usize>) -> bool {
        addresses.contains(&self.entry) && self.is_go()
    }

    fn is_go(&self) -> bool {
        let mut room = [0; MOST_HEADERS * HEADER];
        let Some(headers) = room.get_mut(..self.count * HEADER) else { return false };
        read_own(self.headers, headers)
            && go_note::segments(headers, self.headers).any(|(address, size)| {
                let mut room = [0; MOST_NOTES];
                let notes = room.get_mut(..size.min(MOST_NOTES)).unwrap_or_default();
                read_own(address, notes) && go_note::is_among(notes)
            })
    }
}
