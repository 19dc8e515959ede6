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

/// The calling thread's base (`fs`), as the kernel knows it: what tells the threads of a process that
/// uses a C library apart. It is never read through, so it may be anything.
pub fn thread_base() -> usize {
    const ARCH_GET_FS: usize = 0x1003;
    let mut base = 0usize;
    let a = [ARCH_GET_FS, &raw mut base as usize, 0, 0, 0, 0];
    // SAFETY: one word of ours is written.
    unsafe { syscall(crate::uapi::general::__NR_arch_prctl as usize, a) };
    base
}
