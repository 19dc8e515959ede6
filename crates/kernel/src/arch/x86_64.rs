//! System call entry and the few instructions that Rust has no name for, on x86-64.

use core::arch::asm;

/// Enters the kernel with call `number` and up to six arguments; returns what the kernel returns.
///
/// # Safety
/// The caller promises whatever the call needs: valid pointers, and no effect on memory or state that
/// Rust code elsewhere relies on.
#[inline(always)]
pub unsafe fn syscall(number: usize, a: [usize; 6]) -> isize {
    let returned: isize;
    // SAFETY: the kernel clobbers rax, rcx and r11 only; the rest is the caller's promise.
    unsafe {
        asm!("syscall",
            inlateout("rax") number => returned,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack));
    }
    returned
}

/// The time stamp counter: some 16 ns a reading in a virtual machine, no system call.
#[inline(always)]
pub fn cycles() -> u64 {
    // SAFETY: rdtsc reads a counter and has no other effect.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// A word that differs between the threads of a process that uses a C library: the address which
/// `fs:0` holds (the thread control block's pointer to itself, System V ABI for TLS).
///
/// # Safety
/// The thread must have thread-local storage set up (`fs` base not 0), as it is once the loader has
/// started running initialisers.
#[inline(always)]
pub unsafe fn thread_word() -> usize {
    let word: usize;
    // SAFETY: the caller promises that fs:0 is readable.
    unsafe { asm!("mov {}, fs:0", out(reg) word, options(nostack, readonly, preserves_flags)) };
    word
}
