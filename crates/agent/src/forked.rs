//! The build option `forked`: a copy of the program at each sync, to measure what the 2003 paper's base design costs.
//!
//! There the operating system forks the program at each stall that speculation did not foretell, and the copy runs
//! ahead. Forking costs the program twice: its page tables are copied while it waits, and afterwards the first
//! write to each page takes a fault that copies the page. This option makes the program pay just that. At each post it
//! ends the copy of the post before, waits until it is gone ("release its speculative child's old state"), and
//! makes a new one. The copy then sleeps: who speculates is the speculator, from its mirror, as in any other build.
//!
//! The paper's rules for such a copy, and how they are kept here:
//! - *It shares no file positions with the program.* It has no descriptors at all. It starts with the program's own
//!   table and leaves it for an empty one, so that it never holds a pipe's end, a lock or a position, not for an instant.
//! - *The program is told nothing of it.* It ends without a signal, and `wait` without `__WALL` or `__WCLONE` does not
//!   see it. No signal but SIGKILL and SIGSTOP reaches it: it inherits a mask of all signals, so no handler of the
//!   program's runs in it.
//! - *It is there until the program is not.* It ends before the program's exit or exec, and with the program if that is
//!   killed. (The kernel ends it with the thread that posted; where that ends first there is none until the next post.)
//!
//! What remains to be seen: it stands among the program's children in `/proc`, counts against RLIMIT_NPROC, keeps the
//! mapped files and the directory of its time in use, is what `wait` with `__WALL` finds, and would be the first process
//! of a process namespace that the program has unshared. This is a build to measure with, not one to work with.

use crate::state::Process;
use core::sync::atomic::Ordering;
use runahead_kernel::files::leave_files;
use runahead_kernel::process::{clone, exit, kill, parent_id, prctl, process_id, sleep_ns, wait_for_clone};
use runahead_kernel::signals::set_mask;
use runahead_kernel::uapi::general as n;
use runahead_kernel::uapi::prctl::PR_SET_PDEATHSIG;

/// How often a copy looks whether the program is still there, ns. It is for a program that has changed its user: then
/// the signal of its death is not delivered.
const LOOKS_EVERY: u64 = 1_000_000_000;

/// The calls at which the program stops being what was copied: the copy must not outlast them.
pub const fn wanted(number: u16) -> bool {
    matches!(number as u32, n::__NR_execve | n::__NR_execveat)
}

/// The program stalls and posts: a new copy takes the place of the old one.
pub fn sync(process: &Process) {
    if !is_own(process) {
        return;
    }
    undisturbed(|| {
        release(process);
        let program = process_id();
        // Shared descriptors cost nothing, and the copy leaves them at once. Untraced: a debugger that follows the
        // program's children is told of those that the program makes.
        // SAFETY: the copy has its own memory; it runs nothing but `sleep_on`, which does not return.
        match unsafe { clone(n::CLONE_FILES | n::CLONE_UNTRACED) } {
            Ok(0) => sleep_on(program),
            Ok(copy) => process.copy.store(copy, Ordering::Relaxed),
            // No memory, or too many processes: this time there is no copy.
            Err(_) => {}
        }
    });
}

/// The program ends, becomes another one, or is from now on left alone.
pub fn end(process: &Process) {
    if process.copy.load(Ordering::Relaxed) != 0 && is_own(process) {
        undisturbed(|| release(process));
    }
}

/// A child of vfork finds its parent's copy here, which is not its to wait for. (One of fork finds none.)
fn is_own(process: &Process) -> bool {
    process.claimed_by.load(Ordering::Relaxed) == process_id() as u32
}

/// No handler of the program's runs meanwhile, be it in the copy, and no signal interrupts the waiting.
fn undisturbed(action: impl FnOnce()) {
    if let Ok(mask) = set_mask(u64::MAX) {
        action();
        let _ = set_mask(mask);
    }
}

/// Ends the copy, if there is one, and waits until it has given its memory back.
fn release(process: &Process) {
    let copy = process.copy.swap(0, Ordering::Relaxed);
    // Is it ours still? The program may have waited for it, and the number may be somebody else's now.
    if copy != 0 && wait_for_clone(copy, n::WNOHANG) == Ok(0) && kill(copy, n::SIGKILL).is_ok() {
        let _ = wait_for_clone(copy, 0);
    }
}

/// What the copy does.
fn sleep_on(program: i32) -> ! {
    // SAFETY: concerns this process only.
    let ends_with_it = unsafe { prctl(PR_SET_PDEATHSIG, n::SIGKILL as usize, 0, 0, 0) };
    if leave_files().is_ok() && ends_with_it.is_ok() {
        while parent_id() == program {
            sleep_ns(LOOKS_EVERY);
        }
    }
    exit(0)
}
