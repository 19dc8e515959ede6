//! Signal handlers, masks, alternate stacks and timers of the calling process.

use crate::arch::syscall;
use crate::uapi::general as n;
use crate::{Result, check};

/// A handler that the kernel calls with (signal, siginfo, ucontext).
pub type Handler = unsafe extern "C" fn(i32, *mut n::siginfo_t, *mut core::ffi::c_void);

/// Installs `handler` with `flags`; `restorer` returns from it (x86-64 wants one).
///
/// # Safety
/// The handler must cope with being called at any instruction.
pub unsafe fn set_handler(
    signal: u32,
    handler: Handler,
    flags: u64,
    restorer: unsafe extern "C" fn(),
) -> Result<()> {
    /// The kernel's own layout, not libc's.
    #[repr(C)]
    struct KernelAction {
        handler: usize,
        flags: u64,
        restorer: usize,
        mask: u64,
    }
    let action = KernelAction {
        handler: handler as usize,
        flags: flags | u64::from(n::SA_RESTORER) | u64::from(n::SA_SIGINFO),
        restorer: restorer as usize,
        mask: 0,
    };
    let a = [signal as usize, &raw const action as usize, 0, 8, 0, 0];
    // SAFETY: the structure has the kernel's layout; the rest is the caller's promise.
    check(unsafe { syscall(n::__NR_rt_sigaction as usize, a) }).map(drop)
}

/// Replaces the thread's signal mask, returns the old one.
pub fn set_mask(mask: u64) -> Result<u64> {
    let mut old = 0u64;
    let a = [n::SIG_SETMASK as usize, &raw const mask as usize, &raw mut old as usize, 8, 0, 0];
    // SAFETY: both words are valid.
    check(unsafe { syscall(n::__NR_rt_sigprocmask as usize, a) })?;
    Ok(old)
}

/// The kernel's `stack_t`, see sigaltstack(2): address, flags and bytes.
#[repr(C)]
pub struct AlternateStack {
    pub base: usize,
    pub flags: i32,
    pub length: usize,
}

/// Sets the thread's alternate signal stack.
///
/// # Safety
/// The range must stay mapped, writable and unused otherwise.
pub unsafe fn set_alternate_stack(base: usize, length: usize) -> Result<()> {
    let stack = AlternateStack { base, flags: 0, length };
    // SAFETY: the structure has the kernel's layout; the range is the caller's promise.
    check(unsafe { syscall(n::__NR_sigaltstack as usize, [&raw const stack as usize, 0, 0, 0, 0, 0]) })
        .map(drop)
}

/// Starts (interval > 0) or stops (0) the process's real-time interval timer: SIGALRM every
/// `interval_us`.
pub fn set_alarm_interval(interval_us: u64) -> Result<()> {
    #[repr(C)]
    struct Timer {
        interval: [u64; 2],
        value: [u64; 2],
    }
    let time = [interval_us / 1_000_000, interval_us % 1_000_000];
    let timer = Timer { interval: time, value: time };
    let a = [n::ITIMER_REAL as usize, &raw const timer as usize, 0, 0, 0, 0];
    // SAFETY: the structure has the kernel's layout.
    check(unsafe { syscall(n::__NR_setitimer as usize, a) }).map(drop)
}
