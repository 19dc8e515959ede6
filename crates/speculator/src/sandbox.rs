//! Puts the sandbox up: see [`runahead_sandbox`] for what it allows and why.

use crate::mirror;
use runahead_kernel::process::prctl;
use runahead_kernel::uapi::prctl::{PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP};
use runahead_sandbox::{Filter, Instruction};

/// Puts the filter up, for good. False if the kernel refuses.
pub fn enter() -> bool {
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
