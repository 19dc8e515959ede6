//! Runs a command as if under an older kernel: `older_kernel [--misses-only-tell] COMMAND ARGUMENTS`.
//!
//! What came after Linux 5.15 this answers as that kernel does: no such call, no such request. It shows
//! what is done without them, and not how that kernel does other things (`./x kernels` runs such
//! kernels). The filter is there before Runahead is, which takes one that comes later for the program's
//! own.
//!
//! With `--misses-only-tell` a read that may not wait (`RWF_NOWAIT`) always says that nothing is cached,
//! and starts no read of it, as on Linux 5.10 and 6.1 where nothing is.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `futex_waitv` of Linux 5.16. All that came later have greater numbers (`cachestat`, 6.5: 451).
const FIRST_NEWER: u32 = 449;
/// Linux 6.7.
const PAGEMAP_SCAN: u32 = 0xc060_6610;
/// Linux 6.11.
const PROCMAP_QUERY: u32 = 0xc068_6611;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const SECOND_ARGUMENT: u32 = 24;
const SIXTH_ARGUMENT: u32 = 56;

const fn load(offset: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

/// Skips so many instructions if what was loaded compares so, or does not.
const fn skip(compares: u32, with: u32, if_so: u8, if_not: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_K | compares) as u16,
        jt: if_so,
        jf: if_not,
        k: with,
    }
}

const fn answer(with: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: with }
}

const FILTER: [libc::sock_filter; 9] = [
    load(NUMBER),
    skip(libc::BPF_JGE, FIRST_NEWER, 6, 0),
    skip(libc::BPF_JEQ, libc::SYS_ioctl as u32, 0, 3),
    load(SECOND_ARGUMENT),
    skip(libc::BPF_JEQ, PAGEMAP_SCAN, 2, 0),
    skip(libc::BPF_JEQ, PROCMAP_QUERY, 1, 0),
    answer(libc::SECCOMP_RET_ALLOW),
    answer(libc::SECCOMP_RET_ERRNO | libc::ENOTTY as u32),
    answer(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
];

const MISSES_ONLY_TELL: [libc::sock_filter; 6] = [
    load(NUMBER),
    skip(libc::BPF_JEQ, libc::SYS_preadv2 as u32, 0, 3),
    load(SIXTH_ARGUMENT),
    skip(libc::BPF_JEQ, libc::RWF_NOWAIT as u32, 0, 1),
    answer(libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32),
    answer(libc::SECCOMP_RET_ALLOW),
];

fn put_on<const LENGTH: usize>(mut filter: [libc::sock_filter; LENGTH]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the first takes numbers only; the second reads the instructions, which are there for as long.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn main() -> io::Result<()> {
    let mut words = std::env::args_os().skip(1);
    let mut command = words.next();
    if command.as_ref().is_some_and(|word| word == "--misses-only-tell") {
        put_on(MISSES_ONLY_TELL)?;
        command = words.next();
    }
    let command = command.ok_or(io::Error::other("no command given"))?;
    put_on(FILTER)?;
    Err(Command::new(command).args(words).exec())
}
