//! Filters of system calls (seccomp) that we are started under, and the command with us.
//!
//! A filter may end whoever makes a call that it does not allow, as services' filters do. Nobody but root can read one.
//! So where there is any, a child that may die makes each call that we make in a form that does nothing
//! (`abi::calls`), and says before each which it is. Where it does not come to the end, the command runs plainly. A
//! call that is answered with an error is fine: whoever makes it knows what to do then.
//!
//! What has to be taken for granted is little, and what any shell does: to open and read a file, to map memory, to set and
//! block signals, to fork and to wait (a filter that ends whoever forks ends the launcher).

use crate::launch::{HostStack, brief_child};
use runahead_abi::calls::{CALLS, CALLS_OF_THE_PROCESSOR, Call};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A call for which the child was ended.
pub enum Verdict {
    AllAllowed,
    Forbidden(&'static str),
    /// It could not be found out.
    Unknown(io::Error),
}

fn calls() -> impl Iterator<Item = &'static Call> {
    CALLS.iter().chain(CALLS_OF_THE_PROCESSOR)
}

/// Finds out whether all of our calls are allowed.
pub fn look() -> Verdict {
    match try_all() {
        Ok(count) => match calls().nth(count) {
            Some(call) => Verdict::Forbidden(call.name),
            None => Verdict::AllAllowed,
        },
        Err(error) => Verdict::Unknown(error),
    }
}

/// How many calls a child has made, one after the other, without being ended.
fn try_all() -> io::Result<usize> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), size_of::<AtomicUsize>(), protection, flags) }?;
    let stack = HostStack::new()?;
    // SAFETY: the child has a copy of all memory but the page, and does not return.
    let done = unsafe { brief_child(&stack, make_all, page, 0) };
    // SAFETY: the mapping just made, of zeros, which the child has counted in.
    let count = unsafe { (*page.cast::<AtomicUsize>()).load(Ordering::Relaxed) };
    // SAFETY: ours, and the child has ended.
    let _ = unsafe { munmap(page, size_of::<AtomicUsize>()) };
    done.map(|()| count)
}

/// Runs in the child.
extern "C" fn make_all(page: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `try_all`'s mapping, which stays until this process has ended.
    let count = unsafe { &*page.cast::<AtomicUsize>() };
    for (before, call) in calls().enumerate() {
        count.store(before, Ordering::Relaxed);
        let [a, b, c, d, e, f] = call.arguments;
        // SAFETY: none of them does anything to this process that matters to it: see the table.
        unsafe { libc::syscall(call.number.into(), a, b, c, d, e, f) };
    }
    count.store(usize::MAX, Ordering::Relaxed);
    // SAFETY: ends the child without running anybody's exit handlers.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_filter_every_call_can_be_made() {
        assert_eq!(try_all().unwrap(), usize::MAX);
    }
}
