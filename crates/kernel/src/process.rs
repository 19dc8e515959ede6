//! Processes, futexes, clocks, limits.

use crate::arch::syscall;
use crate::uapi::general as n;
use crate::{Errno, Result, check};
use core::ffi::{CStr, c_char};
use core::sync::atomic::AtomicU32;

pub fn process_id() -> i32 {
    // SAFETY: no effect.
    unsafe { syscall(n::__NR_getpid as usize, [0; 6]) as i32 }
}

pub fn thread_id() -> i32 {
    // SAFETY: no effect.
    unsafe { syscall(n::__NR_gettid as usize, [0; 6]) as i32 }
}

pub fn effective_user() -> u32 {
    // SAFETY: no effect.
    unsafe { syscall(n::__NR_geteuid as usize, [0; 6]) as u32 }
}

/// The real, the effective and the saved user that the calling thread is (getresuid(2)).
pub fn users() -> Result<[u32; 3]> {
    let mut ids = [0u32; 3];
    let [real, effective, saved] = ids.each_mut().map(|id| id as *mut u32 as usize);
    // SAFETY: three words that it fills in.
    check(unsafe { syscall(n::__NR_getresuid as usize, [real, effective, saved, 0, 0, 0]) })?;
    Ok(ids)
}

/// The same of groups.
pub fn groups() -> Result<[u32; 3]> {
    let mut ids = [0u32; 3];
    let [real, effective, saved] = ids.each_mut().map(|id| id as *mut u32 as usize);
    // SAFETY: three words that it fills in.
    check(unsafe { syscall(n::__NR_getresgid as usize, [real, effective, saved, 0, 0, 0]) })?;
    Ok(ids)
}

pub fn parent_id() -> i32 {
    // SAFETY: no effect.
    unsafe { syscall(n::__NR_getppid as usize, [0; 6]) as i32 }
}

/// Makes a copy of the calling process as `fork` does, but for `flags`, and with no signal to anybody at its end. Returns
/// 0 in the copy.
///
/// # Safety
/// Whatever the flags do: with CLONE_VM both would run on one stack. The copy has this one thread, and no C library that
/// knows of it.
pub unsafe fn clone(flags: u32) -> Result<i32> {
    let a = [flags as usize, 0, 0, 0, 0, 0];
    // SAFETY: the caller's promise.
    check(unsafe { syscall(n::__NR_clone as usize, a) }).map(|id| id as i32)
}

/// Waits for a child that ends without SIGCHLD. With WNOHANG in `options` 0 means that it has not ended.
pub fn wait_for_clone(child: i32, options: u32) -> Result<i32> {
    let a = [child as usize, 0, (options | n::__WCLONE) as usize, 0, 0, 0];
    // SAFETY: nothing is written, as no address is given.
    check(unsafe { syscall(n::__NR_wait4 as usize, a) }).map(|id| id as i32)
}

pub fn kill(process: i32, signal: u32) -> Result<()> {
    // SAFETY: touches no memory of ours.
    check(unsafe { syscall(n::__NR_kill as usize, [process as usize, signal as usize, 0, 0, 0, 0]) })
        .map(drop)
}

/// Sleeps so long, or until a signal comes.
pub fn sleep_ns(ns: u64) {
    let time =
        n::__kernel_timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    // SAFETY: the structure is valid for reads.
    unsafe { syscall(n::__NR_nanosleep as usize, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

/// Lets others have the processor first.
pub fn yield_processor() {
    // SAFETY: touches no memory.
    unsafe { syscall(n::__NR_sched_yield as usize, [0; 6]) };
}

/// Ends the calling process with `status`.
pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { syscall(n::__NR_exit_group as usize, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Sleeps while `word` holds `expected`, at most `timeout_ns`. Returns true when woken (or the word
/// had changed already), false when the time ran out or a signal came. Shared between processes.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) -> bool {
    let time;
    let time_address = match timeout_ns {
        None => 0,
        Some(ns) => {
            time = n::__kernel_timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as i64,
            };
            &raw const time as usize
        }
    };
    let a = [word.as_ptr() as usize, n::FUTEX_WAIT as usize, expected as usize, time_address, 0, 0];
    // SAFETY: the word is valid; the timeout is null or valid.
    match check(unsafe { syscall(n::__NR_futex as usize, a) }) {
        Ok(_) | Err(Errno::EAGAIN) => true,
        Err(_) => false,
    }
}

/// Wakes everybody who sleeps on `word`, in any process that shares it; returns how many.
pub fn futex_wake(word: &AtomicU32) -> usize {
    let a = [word.as_ptr() as usize, n::FUTEX_WAKE as usize, i32::MAX as usize, 0, 0, 0];
    // SAFETY: the word is valid.
    check(unsafe { syscall(n::__NR_futex as usize, a) }).unwrap_or(0)
}

/// Monotonic time, ns. A system call (some 150 ns): the vDSO belongs to the program.
pub fn monotonic_ns() -> u64 {
    clock_ns(n::CLOCK_MONOTONIC)
}

/// The time of day, ns since 1970.
pub fn realtime_ns() -> i64 {
    clock_ns(n::CLOCK_REALTIME) as i64
}

/// The same as file systems put it down: by ticks of the clock.
pub fn file_time_ns() -> i64 {
    clock_ns(n::CLOCK_REALTIME_COARSE) as i64
}

/// Release of the kernel: the first two numbers. Zeros where it does not say.
pub fn kernel_release() -> (u32, u32) {
    const NAMES: usize = 6;
    const NAME_BYTES: usize = 65;
    const RELEASE: usize = 2;
    let mut names = [[0u8; NAME_BYTES]; NAMES];
    // SAFETY: the buffer is a `utsname`.
    if check(unsafe { syscall(n::__NR_uname as usize, [names.as_mut_ptr() as usize, 0, 0, 0, 0, 0]) })
        .is_err()
    {
        return (0, 0);
    }
    let (first, rest) = crate::text::decimal(&names[RELEASE]);
    let (second, _) = crate::text::decimal(rest.strip_prefix(b".").unwrap_or(b""));
    (first as u32, second as u32)
}

/// Processor time of the calling process, ns.
pub fn processor_ns() -> u64 {
    clock_ns(n::CLOCK_PROCESS_CPUTIME_ID)
}

/// For how long the calling thread has run, ns.
pub fn thread_ns() -> u64 {
    clock_ns(n::CLOCK_THREAD_CPUTIME_ID)
}

/// How long the calling process has been off its processors, ns, but for a constant of its own. Of one thread.
pub fn idle_ns() -> u64 {
    monotonic_ns().saturating_sub(processor_ns())
}

/// How often the calling thread has given its processor away by itself, as who waits does, and how many blocks of 512 bytes were
/// brought in for it (getrusage(2), `ru_nvcsw` and `ru_inblock`).
pub fn sleeps_and_blocks() -> (u64, u64) {
    let usage = usage(THREAD);
    (usage[SLEEPS], usage[BLOCKS])
}

/// How many page faults of the calling process have waited for a disk, and how many blocks of 512 bytes were brought in for
/// it (getrusage(2), `ru_majflt` and `ru_inblock`).
pub fn major_faults_and_blocks() -> (u64, u64) {
    const PROCESS: usize = 0;
    let usage = usage(PROCESS);
    (usage[MAJOR], usage[BLOCKS])
}

/// How many page faults of the calling thread have waited for a disk.
pub fn major_faults_of_thread() -> u64 {
    usage(THREAD)[MAJOR]
}

/// RUSAGE_THREAD.
pub const THREAD: usize = 1;

/// What getrusage(2) tells, in words.
pub type Usage = [u64; 18];

/// The place of `ru_nvcsw` there: the thirteenth of the counts.
pub const SLEEPS: usize = 4 + 12;

/// The place of `ru_majflt` in what [`usage`] returns: the sixth of the counts, behind the faults that have
/// not waited.
const MAJOR: usize = 4 + 5;

/// The place of `ru_inblock` in what [`usage`] returns: the eighth of the counts.
const BLOCKS: usize = 4 + 7;

/// `struct rusage` of the calling thread or process, word by word: two times of two words each, then fourteen counts. Zeros
/// if it cannot be had.
fn usage(of_whom: usize) -> Usage {
    let mut usage: Usage = [0; 18];
    let a = [of_whom, usage.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the array is as long as the structure.
    let _ = check(unsafe { syscall(n::__NR_getrusage as usize, a) });
    usage
}

fn clock_ns(clock: u32) -> u64 {
    let mut time = n::__kernel_timespec { tv_sec: 0, tv_nsec: 0 };
    let a = [clock as usize, &raw mut time as usize, 0, 0, 0, 0];
    // SAFETY: the structure is valid for writes.
    unsafe { syscall(n::__NR_clock_gettime as usize, a) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Swap of the machine, in whatever unit the kernel counts it; 0: there is none.
pub fn total_swap() -> u64 {
    // `struct sysinfo`: 112 bytes; uptime, three loads, then memory's total, free, shared, buffers and swap's total.
    let mut words = [0u64; 16];
    let a = [words.as_mut_ptr() as usize, 0, 0, 0, 0, 0];
    // SAFETY: the array is at least as long as the structure.
    let _ = check(unsafe { syscall(n::__NR_sysinfo as usize, a) });
    let [.., swap, _, _, _, _, _, _, _] = words;
    swap
}

/// The soft limit on a resource (getrlimit(2)), in whatever unit it has; `u64::MAX`: there is none, or the
/// kernel does not tell. Async-signal-safe.
pub fn limit(resource: u32) -> u64 {
    let mut limits = [u64::MAX; 2];
    let a = [0, resource as usize, 0, limits.as_mut_ptr() as usize, 0, 0];
    // SAFETY: asks, into two words, which are what the call fills.
    let _ = check(unsafe { syscall(n::__NR_prlimit64 as usize, a) });
    let [soft, _] = limits;
    soft
}

/// The calling thread's sets of capabilities, as capget(2) fills them in: effective, permitted,
/// inheritable, first the low halves, then the high ones.
fn capabilities() -> Result<[u32; 6]> {
    let mut sets = [0u32; 6];
    let a = [CAPABILITY_HEADER.as_ptr() as usize, sets.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: both structures are as long as that version has them.
    check(unsafe { syscall(n::__NR_capget as usize, a) })?;
    Ok(sets)
}

/// `_LINUX_CAPABILITY_VERSION_3`, and the calling thread.
static CAPABILITY_HEADER: [u32; 2] = [0x2008_0522, 0];

/// The capabilities that the calling thread may use, one bit each by their numbers (capabilities(7)).
pub fn effective_capabilities() -> Result<u64> {
    let [effective, _, _, high, _, _] = capabilities()?;
    Ok(u64::from(high) << 32 | u64::from(effective))
}

/// Keeps of the calling thread's capabilities only those in `kept`, one bit each by their numbers.
pub fn keep_capabilities(kept: u64) -> Result<()> {
    let mut sets = capabilities()?;
    for (at, set) in sets.iter_mut().enumerate() {
        *set &= if at < 3 { kept as u32 } else { (kept >> 32) as u32 };
    }
    let a = [CAPABILITY_HEADER.as_ptr() as usize, sets.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: as in `capabilities`.
    check(unsafe { syscall(n::__NR_capset as usize, a) }).map(drop)
}

/// Replaces what the process runs by the program at `path`; returns only if that fails, with why.
///
/// # Safety
/// Null-terminated arrays of C strings. Nothing of this process's memory is left where it succeeds.
pub unsafe fn execute(
    path: &CStr,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> Errno {
    let a = [path.as_ptr() as usize, arguments as usize, environment as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    match check(unsafe { syscall(n::__NR_execve as usize, a) }) {
        Err(error) => error,
        // It does not return.
        Ok(_) => Errno(0),
    }
}

/// `prctl` with plain number arguments.
///
/// # Safety
/// Whatever the option does.
pub unsafe fn prctl(option: u32, a: usize, b: usize, c: usize, d: usize) -> Result<usize> {
    // SAFETY: the caller's promise.
    check(unsafe { syscall(n::__NR_prctl as usize, [option as usize, a, b, c, d, 0]) })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn faults_that_do_not_wait_are_no_major_ones() {
        const PAGES: usize = 4000;
        let (before, _) = major_faults_and_blocks();
        let fresh = std::vec![1u8; PAGES * crate::PAGE];
        assert_eq!(core::hint::black_box(&fresh).iter().step_by(crate::PAGE).count(), PAGES);
        let (after, _) = major_faults_and_blocks();
        assert!(after - before < PAGES as u64 / 2, "{before} to {after}");
    }
}
