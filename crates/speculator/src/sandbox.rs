//! Puts the sandbox up: see [`runahead_sandbox`] for what it allows and why.

use crate::mirror;
use runahead_kernel::process::{effective_capabilities, keep_capabilities, prctl};
use runahead_kernel::uapi::prctl::{PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP};
use runahead_sandbox::{Filter, Instruction};

/// Capabilities that root's speculator keeps: to look into a process that has others, to read what root reads, to leave
/// no access times, to ask what of a file is cached, and to open mapped files that have no name any more. (It answers what the
/// program may do by asking what it may itself.)
const KEPT: u64 = 1 << CAP_DAC_OVERRIDE
    | 1 << CAP_DAC_READ_SEARCH
    | 1 << CAP_FOWNER
    | 1 << CAP_SYS_PTRACE
    | 1 << CAP_CHECKPOINT_RESTORE;
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_FOWNER: u32 = 3;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_CHECKPOINT_RESTORE: u32 = 40;

/// The capabilities that are needed, of those that there are. Without CAP_SYS_PTRACE (root in a
/// container) only who has all that a process has may look into it (ptrace(2), access mode checking), so
/// none is given up.
fn needed(effective: u64) -> u64 {
    if effective & 1 << CAP_SYS_PTRACE != 0 { KEPT } else { effective }
}

/// Gives up what is not needed and puts the filter up, for good. False if the kernel refuses.
pub fn enter() -> bool {
    if effective_capabilities().map(needed).and_then(keep_capabilities).is_err() {
        return false;
    }
    let filter = Filter::new(mirror::process());
    let Some(code) = filter.instructions() else {
        return false;
    };
    #[repr(C)]
    struct Program {
        length: u16,
        code: *const Instruction,
    }
    let program = Program { length: code.len() as u16, code: code.as_ptr() };
    const MODE_FILTER: usize = 2;
    // SAFETY: the program and its code are valid during the call.
    unsafe {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).is_ok()
            && prctl(PR_SET_SECCOMP, MODE_FILTER, &raw const program as usize, 0, 0).is_ok()
    }
}
