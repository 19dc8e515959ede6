//! The system calls that we make, each in a form that does nothing.
//!
//! A filter (seccomp) under which we are started is the command's as well, and may end whoever makes a call that it
//! does not allow. So before anything of ours is put into the command, a process that may die makes each of these
//! (`host::filter`). Filters see numbers and plain arguments, no memory: so flags and options are those that we use, and
//! what keeps a call from doing anything is a descriptor that is none, a null pointer or a length of nothing.
//!
//! A test holds this table to the numbers in `kernel` and `agent`.

use linux_raw_sys::general as n;

/// A call that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub name: &'static str,
    pub number: u32,
    pub arguments: [usize; 6],
}

const NO_DESCRIPTOR: usize = usize::MAX;
const HERE: usize = n::AT_FDCWD as isize as usize;
/// Nobody's memory.
const NOWHERE: usize = 1;

macro_rules! calls {
    ($($name:ident as $number:ident ($($argument:expr),*);)*) => {
        [$(Call {
            name: stringify!($name),
            number: n::$number,
            arguments: padded(&[$($argument as usize),*]),
        }),*]
    };
}

const fn padded(given: &[usize]) -> [usize; 6] {
    let mut all = [0; 6];
    let mut at = 0;
    while at < given.len() {
        all[at] = given[at];
        at += 1;
    }
    all
}

const READ_WRITE: u32 = n::PROT_READ | n::PROT_WRITE;
const READ_EXECUTE: u32 = n::PROT_READ | n::PROT_EXEC;
const ANONYMOUS: u32 = n::MAP_PRIVATE | n::MAP_ANONYMOUS;
const RWF_NOWAIT: u32 = 8;
const MADV_GUARD_INSTALL: u32 = 102;
const MADV_GUARD_REMOVE: u32 = 103;
const SIGNAL_SET_BYTES: usize = 8;
const F_GETFL: usize = 3;
const F_GET_SEALS: usize = 1034;
const UFFDIO_API: usize = 0xc018_aa3f;
const PR_SET_PDEATHSIG: usize = 1;
const PR_SET_DUMPABLE: usize = 4;
const PR_GET_CHILD_SUBREAPER: usize = 37;
const PR_GET_MDWE: usize = 66;
const PR_GET_NO_NEW_PRIVS: usize = 39;
const PR_GET_DUMPABLE: usize = 3;
const PR_SET_PTRACER: usize = 0x5961_6d61;
const SECCOMP_GET_ACTION_AVAIL: usize = 2;
const PTRACE_SEIZE: usize = 0x4206;
const ARCH_GET_FS: usize = 0x1003;

/// What agent, speculator, host and launcher make. The first takes care that who dies of the others leaves no core.
pub const CALLS: &[Call] = &calls! {
    prctl as __NR_prctl (PR_SET_DUMPABLE, 0, 0, 0, 0);
    prctl as __NR_prctl (PR_SET_PTRACER, 0, 0, 0, 0);
    prctl as __NR_prctl (PR_SET_PDEATHSIG, 0, 0, 0, 0);
    prctl as __NR_prctl (PR_GET_MDWE, 0, 0, 0, 0);
    prctl as __NR_prctl (PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    prctl as __NR_prctl (PR_GET_DUMPABLE, 0, 0, 0, 0);
    prctl as __NR_prctl (PR_GET_CHILD_SUBREAPER, 0, 0, 0, 0);
    // Files.
    openat as __NR_openat (HERE, 0, n::O_RDONLY | n::O_CLOEXEC, 0);
    openat as __NR_openat (HERE, 0, n::O_RDWR | n::O_CLOEXEC, 0);
    openat as __NR_openat (HERE, 0, n::O_PATH | n::O_DIRECTORY | n::O_CLOEXEC, 0);
    openat2 as __NR_openat2 (HERE, 0, 0, 24);
    close as __NR_close (NO_DESCRIPTOR);
    close_range as __NR_close_range (u32::MAX, u32::MAX, 0);
    read as __NR_read (NO_DESCRIPTOR, 0, 0);
    write as __NR_write (NO_DESCRIPTOR, 0, 0);
    pread64 as __NR_pread64 (NO_DESCRIPTOR, 0, 0, 0);
    preadv2 as __NR_preadv2 (NO_DESCRIPTOR, 0, 0, 0, 0, RWF_NOWAIT);
    lseek as __NR_lseek (NO_DESCRIPTOR, 0, n::SEEK_CUR);
    cachestat as __NR_cachestat (NO_DESCRIPTOR, 0, 0, 0);
    fcntl as __NR_fcntl (NO_DESCRIPTOR, F_GETFL, 0);
    fcntl as __NR_fcntl (NO_DESCRIPTOR, F_GET_SEALS, 0);
    readahead as __NR_readahead (NO_DESCRIPTOR, 0, 0);
    fadvise64 as __NR_fadvise64 (NO_DESCRIPTOR, 0, 0, 0);
    fstat as __NR_fstat (NO_DESCRIPTOR, 0);
    newfstatat as __NR_newfstatat (HERE, 0, 0, 0);
    statx as __NR_statx (HERE, 0, 0, 0, 0);
    getxattr as __NR_getxattr (0, 0, 0, 0);
    listxattr as __NR_listxattr (0, 0, 0);
    fgetxattr as __NR_fgetxattr (NO_DESCRIPTOR, 0, 0, 0);
    fstatfs as __NR_fstatfs (NO_DESCRIPTOR, 0);
    readlinkat as __NR_readlinkat (HERE, 0, 0, 0);
    getcwd as __NR_getcwd (0, 0);
    getdents64 as __NR_getdents64 (NO_DESCRIPTOR, 0, 0);
    ioctl as __NR_ioctl (NO_DESCRIPTOR, UFFDIO_API, 0);
    ftruncate as __NR_ftruncate (NO_DESCRIPTOR, 0);
    fallocate as __NR_fallocate (NO_DESCRIPTOR, 0, 0, 0);
    memfd_create as __NR_memfd_create (0, 1);
    // Memory.
    mmap as __NR_mmap (0, 0, READ_WRITE, ANONYMOUS, NO_DESCRIPTOR, 0);
    mmap as __NR_mmap (0, 0, READ_EXECUTE, ANONYMOUS, NO_DESCRIPTOR, 0);
    mmap as __NR_mmap (0, 0, READ_WRITE, n::MAP_SHARED, NO_DESCRIPTOR, 0);
    mmap as __NR_mmap (0, 0, n::PROT_READ, n::MAP_SHARED, NO_DESCRIPTOR, 0);
    mmap as __NR_mmap (0, 0, n::PROT_NONE, n::MAP_PRIVATE, NO_DESCRIPTOR, 0);
    mmap as __NR_mmap (0, 0, n::PROT_READ, n::MAP_PRIVATE, NO_DESCRIPTOR, 0);
    remap_file_pages as __NR_remap_file_pages (0, 0, 0, 0, 0);
    munmap as __NR_munmap (0, 0);
    mremap as __NR_mremap (0, 0, 0, 0, 0);
    mprotect as __NR_mprotect (0, 0, READ_WRITE);
    mprotect as __NR_mprotect (0, 0, READ_EXECUTE);
    mprotect as __NR_mprotect (0, 0, n::PROT_NONE);
    madvise as __NR_madvise (0, 0, n::MADV_DONTFORK);
    madvise as __NR_madvise (0, 0, n::MADV_WIPEONFORK);
    madvise as __NR_madvise (0, 0, n::MADV_WILLNEED);
    madvise as __NR_madvise (0, 0, n::MADV_DONTNEED);
    madvise as __NR_madvise (0, 0, MADV_GUARD_INSTALL);
    madvise as __NR_madvise (0, 0, MADV_GUARD_REMOVE);
    mincore as __NR_mincore (0, 0, 0);
    brk as __NR_brk (0);
    process_vm_readv as __NR_process_vm_readv (0, 0, 0, 0, 0, 0);
    process_vm_writev as __NR_process_vm_writev (0, 0, 0, 0, 0, 0);
    process_madvise as __NR_process_madvise (NO_DESCRIPTOR, 0, 0, n::MADV_WILLNEED, 0);
    userfaultfd as __NR_userfaultfd (n::O_CLOEXEC | 1);
    io_setup as __NR_io_setup (0, 0);
    io_submit as __NR_io_submit (0, 0, 0);
    // Processes and time.
    getpid as __NR_getpid ();
    gettid as __NR_gettid ();
    geteuid as __NR_geteuid ();
    getresuid as __NR_getresuid (0, 0, 0);
    getresgid as __NR_getresgid (0, 0, 0);
    getegid as __NR_getegid ();
    uname as __NR_uname (0);
    getppid as __NR_getppid ();
    capget as __NR_capget (0, 0);
    capset as __NR_capset (0, 0);
    getrusage as __NR_getrusage (n::RUSAGE_THREAD, 0);
    getrusage as __NR_getrusage (n::RUSAGE_SELF, 0);
    sysinfo as __NR_sysinfo (0);
    kill as __NR_kill (0, 0);
    futex as __NR_futex (0, n::FUTEX_WAKE, 0);
    futex as __NR_futex (0, n::FUTEX_WAIT, 0, 0);
    clock_gettime as __NR_clock_gettime (n::CLOCK_MONOTONIC, 0);
    nanosleep as __NR_nanosleep (0, 0);
    sched_yield as __NR_sched_yield ();
    sched_getaffinity as __NR_sched_getaffinity (0, 0, 0);
    sched_getscheduler as __NR_sched_getscheduler (0);
    sched_setscheduler as __NR_sched_setscheduler (0, 0, 0);
    ptrace as __NR_ptrace (PTRACE_SEIZE, 0, 0, 0);
    waitid as __NR_waitid (n::P_ALL, 0, 0, n::WEXITED | n::WNOHANG, 0);
    wait4 as __NR_wait4 (NO_DESCRIPTOR, 0, n::WNOHANG, 0);
    pidfd_open as __NR_pidfd_open (0, 0);
    setpriority as __NR_setpriority (n::PRIO_PROCESS, 0, 19);
    execve as __NR_execve (0, 0, 0);
    prlimit64 as __NR_prlimit64 (0, 0, 0, 0);
    // Signals.
    rt_sigaction as __NR_rt_sigaction (n::SIGUSR1, 0, 0, SIGNAL_SET_BYTES);
    rt_sigprocmask as __NR_rt_sigprocmask (0, 0, 0, SIGNAL_SET_BYTES);
    rt_sigpending as __NR_rt_sigpending (0, SIGNAL_SET_BYTES);
    rt_sigtimedwait as __NR_rt_sigtimedwait (0, 0, 0, SIGNAL_SET_BYTES);
    sigaltstack as __NR_sigaltstack (0, 0);
    setitimer as __NR_setitimer (0, NOWHERE, 0);
    // What else they have.
    perf_event_open as __NR_perf_event_open (0, 0, 0, NO_DESCRIPTOR, 0);
    seccomp as __NR_seccomp (SECCOMP_GET_ACTION_AVAIL, 0, 0);
    setsid as __NR_setsid ();
    dup3 as __NR_dup3 (NO_DESCRIPTOR, NO_DESCRIPTOR, 0);
    chdir as __NR_chdir (0);
    getrandom as __NR_getrandom (0, 0, 1);
    ppoll as __NR_ppoll (0, NO_DESCRIPTOR, 0, 0, SIGNAL_SET_BYTES);
    mkdirat as __NR_mkdirat (HERE, 0, 0);
    fchmod as __NR_fchmod (NO_DESCRIPTOR, 0);
    fchmodat as __NR_fchmodat (HERE, 0, 0);
    fsync as __NR_fsync (NO_DESCRIPTOR);
    renameat as __NR_renameat (HERE, 0, HERE, 0);
    linkat as __NR_linkat (HERE, 0, HERE, 0, 0);
    unlinkat as __NR_unlinkat (HERE, 0, 0);
    faccessat as __NR_faccessat (HERE, 0, 0);
    faccessat2 as __NR_faccessat2 (HERE, 0, 0, 0);
    flock as __NR_flock (NO_DESCRIPTOR, 0);
    pwrite64 as __NR_pwrite64 (NO_DESCRIPTOR, 0, 0, 0);
};

/// Those of one processor's kind.
#[cfg(target_arch = "x86_64")]
pub const CALLS_OF_THE_PROCESSOR: &[Call] = &calls! {
    arch_prctl as __NR_arch_prctl (ARCH_GET_FS, 0);
    dup2 as __NR_dup2 (NO_DESCRIPTOR, NO_DESCRIPTOR);
    open as __NR_open (0, n::O_RDONLY | n::O_CLOEXEC, 0);
    stat as __NR_stat (0, 0);
    lstat as __NR_lstat (0, 0);
    access as __NR_access (0, 0);
    mkdir as __NR_mkdir (0, 0);
    rename as __NR_rename (0, 0);
    link as __NR_link (0, 0);
    unlink as __NR_unlink (0);
    readlink as __NR_readlink (0, 0, 0);
    poll as __NR_poll (0, 0, 0);
};
#[cfg(not(target_arch = "x86_64"))]
pub const CALLS_OF_THE_PROCESSOR: &[Call] = &[];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    /// Made where no filter is that the command has as well, or by the copies of the build `forked` alone.
    const ELSEWHERE: [&str; 2] = ["exit_group", "clone"];

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                found.extend(sources(&path));
            } else {
                found.push(path);
            }
        }
        found
    }

    /// The numbers in calls of `syscall(…)` in a text.
    fn made(text: &str) -> BTreeSet<String> {
        let calls = text.split("syscall(").skip(1);
        let numbers = calls.filter_map(|rest| rest.get(..80.min(rest.len()))?.split_once("__NR_"));
        numbers
            .filter(|(before, _)| !before.contains([',', ')', ';']))
            .map(|(_, name)| {
                name.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
            })
            .collect()
    }

    #[test]
    fn all_calls_of_kernel_agent_and_speculator_are_listed() {
        let listed: BTreeSet<&str> =
            CALLS.iter().chain(CALLS_OF_THE_PROCESSOR).map(|call| call.name).chain(ELSEWHERE).collect();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut count = 0;
        for room in ["kernel", "agent", "speculator"] {
            for source in sources(&crates.join(room).join("src")) {
                for name in made(&std::fs::read_to_string(&source).unwrap()) {
                    count += 1;
                    assert!(listed.contains(name.as_str()), "{name}, made in {}", source.display());
                }
            }
        }
        assert!(count > 40, "only {count} were found");
    }
}
