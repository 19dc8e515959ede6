//! The filter, put up for real: a child process tries what the sandbox must refuse, and what the runtime
//! needs.
//!
//! The child is a fork of the test that makes system calls only: from a page inside the window (a
//! `syscall; ret` written there) and from one outside. A refused call raises SIGSYS; the handler notes it
//! and returns through an `rt_sigreturn` inside the window, as the speculator's own does. Results come back
//! through shared memory, made before the filter. The children of a filter with a hole are themselves
//! tried, so that a hole is seen to be found.

use libc::*;
use runahead_sandbox::{Filter, Instruction, READS, RING, WINDOW, WINDOW_END};
use std::arch::asm;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// `syscall; ret`, and behind it what a signal handler returns through: `mov eax, 15; syscall`.
const GADGET: [u8; 10] = [0x0f, 0x05, 0xc3, 0xb8, 15, 0, 0, 0, 0x0f, 0x05];
const RESTORER_AT: usize = 3;
/// Where the child's pages are: one in the window, one that the runtime could not have.
const INSIDE: usize = WINDOW + 0x5_0000_0000;
const OUTSIDE: usize = 0x6e00_0000_0000;

const MOST: usize = 1200;
const NOT_REACHED: i64 = i64::MIN;
const TRAPPED: i64 = i64::MIN + 1;

/// One attempt.
#[derive(Clone)]
struct Try {
    name: String,
    from: usize,
    number: c_long,
    arguments: [usize; 6],
}

static SIGSYS_CAME: AtomicBool = AtomicBool::new(false);

extern "C" fn note_sigsys(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    SIGSYS_CAME.store(true, Ordering::SeqCst);
}

/// Makes the call at `gadget`.
///
/// # Safety
/// As the call itself; `gadget` holds `GADGET`.
unsafe fn call(gadget: usize, number: c_long, a: [usize; 6]) -> i64 {
    let mut result = number;
    // SAFETY: the gadget is a system call and a return; the kernel destroys rcx and r11.
    unsafe {
        asm!("call r12", in("r12") gadget, inout("rax") result, in("rdi") a[0], in("rsi") a[1],
            in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            out("rcx") _, out("r11") _);
    }
    result
}

fn put_gadget(at: usize) -> bool {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping at a place that nobody uses, filled and made executable.
    unsafe {
        let page = mmap(at as *mut c_void, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
        if page as usize != at {
            return false;
        }
        std::ptr::copy_nonoverlapping(GADGET.as_ptr(), page.cast(), GADGET.len());
        mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0
    }
}

/// The kernel's own layout of a signal action: libc's has a restorer of libc's, outside the window.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

fn enter_sandbox(code: &[Instruction]) -> bool {
    const SA_RESTORER: u64 = 0x0400_0000;
    let action = KernelAction {
        handler: note_sigsys as *const () as usize,
        flags: SA_SIGINFO as u64 | SA_NODEFER as u64 | SA_RESTORER,
        restorer: INSIDE + RESTORER_AT,
        mask: 0,
    };
    let program = sock_fprog { len: code.len() as u16, filter: code.as_ptr() as *mut sock_filter };
    // SAFETY: the structures are valid during the calls.
    unsafe {
        syscall(SYS_rt_sigaction, SIGSYS, &raw const action, 0, 8) == 0
            && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

/// How each of `tries` ended in a child under `code`: its result, `TRAPPED` or `NOT_REACHED`.
fn in_sandbox(code: &[Instruction], tries: &[Try]) -> Vec<i64> {
    assert!(tries.len() <= MOST);
    let flags = MAP_SHARED | MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let shared = unsafe { mmap(std::ptr::null_mut(), 8 * MOST, PROT_READ | PROT_WRITE, flags, -1, 0) };
    assert_ne!(shared, MAP_FAILED);
    // SAFETY: as long as said, and used by this function and its child only.
    let results = unsafe { std::slice::from_raw_parts_mut(shared.cast::<i64>(), MOST) };
    results.fill(NOT_REACHED);
    // SAFETY: the child makes system calls and writes to the shared memory; it never returns.
    let child = unsafe { fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: affects this process alone: should a hole let it kill its group, that is it.
        unsafe {
            setsid();
            alarm(20);
        }
        if put_gadget(INSIDE) && put_gadget(OUTSIDE) && enter_sandbox(code) {
            for (place, attempt) in results.iter_mut().zip(tries) {
                SIGSYS_CAME.store(false, Ordering::SeqCst);
                // SAFETY: the filter, or the try's own arguments, keep it harmless.
                let result = unsafe { call(attempt.from, attempt.number, attempt.arguments) };
                *place = if SIGSYS_CAME.load(Ordering::SeqCst) { TRAPPED } else { result };
            }
        }
        // SAFETY: ends the child. From inside the window: there it is allowed.
        unsafe {
            call(INSIDE, SYS_exit_group, [0; 6]);
            abort()
        }
    }
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    let got = results[..tries.len()].to_vec();
    // SAFETY: not used any more.
    unsafe { munmap(shared, 8 * MOST) };
    got
}

fn filter(program: i32) -> Vec<Instruction> {
    Filter::new(program).instructions().expect("the filter fits").to_vec()
}

/// The tries that were not refused.
fn holes(code: &[Instruction], tries: &[Try]) -> Vec<String> {
    let results = in_sandbox(code, tries);
    let pairs = tries.iter().zip(results).filter(|(_, result)| *result != TRAPPED);
    pairs
        .map(|(attempt, result)| {
            if result == NOT_REACHED {
                format!("{}: not reached", attempt.name)
            } else {
                format!("{}: allowed, {result}", attempt.name)
            }
        })
        .collect()
}

fn attempt(name: impl Into<String>, number: c_long, arguments: &[usize]) -> Try {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    Try { name: name.into(), from: INSIDE, number, arguments: all }
}

fn text(path: &'static CStr) -> usize {
    path.as_ptr() as usize
}

/// What nobody may do from inside the window: each with arguments that would have an effect.
fn side_effects() -> Vec<Try> {
    // SAFETY: asks only.
    let parent = unsafe { getppid() } as usize;
    let me = std::process::id() as usize;
    let (file, other) = (text(c"/tmp/runahead-sandbox-test"), text(c"/tmp/runahead-sandbox-test-2"));
    let cwd = AT_FDCWD as usize;
    let memory = 0x6f00_0000_0000;
    let private = (MAP_PRIVATE | MAP_ANONYMOUS) as usize;
    let mut tries = Vec::new();
    let mut add = |name: &str, number, arguments: &[usize]| tries.push(attempt(name, number, arguments));
    // Writing.
    add("write", SYS_write, &[2, text(c"not to be seen\n"), 15]);
    add("pwrite64", SYS_pwrite64, &[2, file, 4, 0]);
    add("writev", SYS_writev, &[2, 0, 0]);
    add("pwritev2", SYS_pwritev2, &[2, 0, 0, 0, 0, 0]);
    add("sendfile", SYS_sendfile, &[1, 0, 0, 1]);
    add("splice", SYS_splice, &[0, 0, 1, 0, 1, 0]);
    add("vmsplice", SYS_vmsplice, &[1, 0, 0, 0]);
    add("tee", SYS_tee, &[0, 1, 1, 0]);
    add("copy_file_range", SYS_copy_file_range, &[0, 0, 1, 0, 1, 0]);
    add("ftruncate", SYS_ftruncate, &[1, 0]);
    add("truncate", SYS_truncate, &[file, 0]);
    add("fallocate", SYS_fallocate, &[1, 0, 0, 1]);
    add("fsync", SYS_fsync, &[1]);
    add("sync", SYS_sync, &[]);
    add("fadvise64", SYS_fadvise64, &[0, 0, 0, POSIX_FADV_DONTNEED as usize]);
    // Names.
    add("unlink", SYS_unlink, &[file]);
    add("unlinkat", SYS_unlinkat, &[cwd, file, 0]);
    add("rename", SYS_rename, &[file, other]);
    add("renameat2", SYS_renameat2, &[cwd, file, cwd, other, 0]);
    add("mkdir", SYS_mkdir, &[file, 0o700]);
    add("mkdirat", SYS_mkdirat, &[cwd, file, 0o700]);
    add("rmdir", SYS_rmdir, &[file]);
    add("mknod", SYS_mknod, &[file, S_IFIFO as usize, 0]);
    add("link", SYS_link, &[file, other]);
    add("symlink", SYS_symlink, &[file, other]);
    add("chmod", SYS_chmod, &[file, 0]);
    add("fchmod", SYS_fchmod, &[0, 0]);
    add("fchmodat2", 452, &[cwd, file, 0, 0]);
    add("chown", SYS_chown, &[file, 0, 0]);
    add("utimensat", SYS_utimensat, &[cwd, file, 0, 0]);
    add("setxattr", SYS_setxattr, &[file, file, file, 1, 0]);
    add("flock", SYS_flock, &[0, LOCK_EX as usize]);
    add("chdir", SYS_chdir, &[file]);
    add("chroot", SYS_chroot, &[file]);
    add("mount", SYS_mount, &[file, other, file, 0, 0]);
    // Opening.
    add("open", SYS_open, &[file, 0]);
    add("creat", SYS_creat, &[file, 0o600]);
    add("openat2", SYS_openat2, &[cwd, file, 0, 24]);
    add("open_by_handle_at", SYS_open_by_handle_at, &[cwd, 0, 0]);
    add("memfd_create", SYS_memfd_create, &[file, 0]);
    add("timerfd_create", SYS_timerfd_create, &[0, 0]);
    add("signalfd4", SYS_signalfd4, &[usize::MAX, 0, 8, 0]);
    add("eventfd2", SYS_eventfd2, &[0, 0]);
    add("epoll_create1", SYS_epoll_create1, &[0]);
    add("inotify_init1", SYS_inotify_init1, &[0]);
    add("pidfd_open", SYS_pidfd_open, &[parent, 0]);
    add("pidfd_getfd", SYS_pidfd_getfd, &[0, 0, 0]);
    add("pipe2", SYS_pipe2, &[memory, 0]);
    add("dup", SYS_dup, &[0]);
    add("dup2", SYS_dup2, &[0, 1]);
    // Other processes.
    add("kill", SYS_kill, &[me, 0]);
    add("tkill", SYS_tkill, &[me, 0]);
    add("tgkill", SYS_tgkill, &[me, me, 0]);
    add("rt_sigqueueinfo", SYS_rt_sigqueueinfo, &[me, 0, 0]);
    add("pidfd_send_signal", SYS_pidfd_send_signal, &[0, 0, 0, 0]);
    add("ptrace", SYS_ptrace, &[PTRACE_SEIZE as usize, parent, 0, 0]);
    add("process_vm_writev", SYS_process_vm_writev, &[parent, 0, 0, 0, 0, 0]);
    add("process_vm_readv of another", SYS_process_vm_readv, &[parent, 0, 0, 0, 0, 0]);
    add("process_madvise", SYS_process_madvise, &[0, 0, 0, MADV_PAGEOUT as usize, 0]);
    add("prlimit64 of another", SYS_prlimit64, &[me, RLIMIT_CORE as usize, file, 0]);
    // The pointer's low half is zero: a filter that looks at half a pointer takes it for none.
    add("prlimit64, half a pointer", SYS_prlimit64, &[me, RLIMIT_CORE as usize, 0x7000_0000_0000, 0]);
    add("setrlimit", SYS_setrlimit, &[RLIMIT_CORE as usize, file]);
    add("setpriority", SYS_setpriority, &[0, 0, 19]);
    add("ioprio_set", SYS_ioprio_set, &[1, me, 0]);
    add("sched_setaffinity", SYS_sched_setaffinity, &[me, 8, file]);
    add("sched_setscheduler", SYS_sched_setscheduler, &[me, 0, file]);
    add("fork", SYS_fork, &[]);
    add("vfork", SYS_vfork, &[]);
    add("clone", SYS_clone, &[SIGCHLD as usize, 0, 0, 0, 0]);
    add("clone3", SYS_clone3, &[0, 0]);
    add("execve", SYS_execve, &[text(c"/bin/true"), 0, 0]);
    add("execveat", SYS_execveat, &[cwd, text(c"/bin/true"), 0, 0, 0]);
    add("exit of a thread", SYS_exit, &[0]);
    add("wait4", SYS_wait4, &[usize::MAX, 0, WNOHANG as usize, 0]);
    add("setsid", SYS_setsid, &[]);
    add("setpgid", SYS_setpgid, &[0, 0]);
    add("setuid", SYS_setuid, &[0]);
    add("unshare", SYS_unshare, &[0]);
    // The net and other channels.
    add("socket", SYS_socket, &[AF_UNIX as usize, SOCK_STREAM as usize, 0]);
    add("socketpair", SYS_socketpair, &[AF_UNIX as usize, SOCK_STREAM as usize, 0, memory]);
    add("connect", SYS_connect, &[0, file, 16]);
    add("bind", SYS_bind, &[0, file, 16]);
    add("sendto", SYS_sendto, &[0, file, 1, 0, 0, 0]);
    add("sendmsg", SYS_sendmsg, &[0, file, 0]);
    add("recvfrom", SYS_recvfrom, &[0, memory, 1, 0, 0, 0]);
    add("accept4", SYS_accept4, &[0, 0, 0, 0]);
    add("shmget", SYS_shmget, &[0, 4096, 0o600]);
    add("shmat", SYS_shmat, &[0, 0, 0]);
    add("msgget", SYS_msgget, &[0, 0o600]);
    add("semget", SYS_semget, &[0, 1, 0o600]);
    add("mq_open", SYS_mq_open, &[file, 0, 0, 0]);
    // Powers of the kernel.
    add("io_uring_setup", SYS_io_uring_setup, &[1, memory]);
    add("io_uring_enter", SYS_io_uring_enter, &[0, 0, 0, 0, 0, 0]);
    add("io_setup of many", SYS_io_setup, &[READS as usize + 1, memory]);
    add("bpf", SYS_bpf, &[0, 0, 0]);
    add("userfaultfd", SYS_userfaultfd, &[1]);
    add("perf_event_open", SYS_perf_event_open, &[0, 0, 0, 0, 0]);
    add("prctl", SYS_prctl, &[PR_SET_NAME as usize, file, 0, 0, 0]);
    add("seccomp", SYS_seccomp, &[1, 0, 0]);
    add("rt_sigaction", SYS_rt_sigaction, &[SIGSYS as usize, 0, 0, 8]);
    add("rt_sigprocmask", SYS_rt_sigprocmask, &[0, 0, 0, 8]);
    add("sigaltstack", SYS_sigaltstack, &[0, 0]);
    add("nanosleep", SYS_nanosleep, &[0, 0]);
    add("pause", SYS_pause, &[]);
    add("timer_create", SYS_timer_create, &[0, 0, memory]);
    add("clock_settime", SYS_clock_settime, &[0, 0]);
    add("keyctl", SYS_keyctl, &[0, 0, 0, 0, 0]);
    add("personality", SYS_personality, &[0xffff_ffff]);
    add("arch_prctl, the other base", SYS_arch_prctl, &[0x1001, 0]);
    // Memory.
    add("brk", SYS_brk, &[0]);
    add("mremap", SYS_mremap, &[INSIDE, 4096, 8192, 1, 0]);
    add("mremap into the window", SYS_mremap, &[memory, 4096, 4096, 3, INSIDE + 4096]);
    add("mremap out of the window", SYS_mremap, &[INSIDE, 4096, 4096, 3, RING]);
    add("mlockall", SYS_mlockall, &[1]);
    add("remap_file_pages", SYS_remap_file_pages, &[memory, 4096, 0, 0, 0]);
    add("pkey_mprotect", SYS_pkey_mprotect, &[memory, 4096, 3, usize::MAX]);
    for (what, protection) in [("to be written to", PROT_READ | PROT_WRITE), ("to be executed", PROT_EXEC)] {
        let how = format!("mmap of a file {what}");
        add(&how, SYS_mmap, &[memory, 4096, protection as usize, MAP_PRIVATE as usize, 0, 0]);
    }
    add("mmap of a file, shared", SYS_mmap, &[memory, 4096, 1, MAP_SHARED as usize, 0, 0]);
    add("mmap shared", SYS_mmap, &[memory, 4096, 3, (MAP_SHARED | MAP_ANONYMOUS) as usize, usize::MAX, 0]);
    add(
        "mmap shared, validated",
        SYS_mmap,
        &[memory, 4096, 3, (MAP_SHARED_VALIDATE | MAP_ANONYMOUS) as usize, usize::MAX, 0],
    );
    let fixed = private | MAP_FIXED as usize;
    for (what, at, length) in [
        ("over the window's page", INSIDE, 4096),
        ("over its start", WINDOW, 4096),
        ("over its end", WINDOW_END - 4096, 4096),
        ("into it from below", WINDOW - 4096, 8192),
        ("over all of it from far below", WINDOW - (1 << 40), 2 << 40),
        ("with a length that wraps", WINDOW_END, usize::MAX - 4095),
    ] {
        add(&format!("mmap {what}"), SYS_mmap, &[at, length, 7, fixed, usize::MAX, 0]);
        add(&format!("munmap {what}"), SYS_munmap, &[at, length]);
        add(&format!("mprotect {what}"), SYS_mprotect, &[at, length, 7]);
        add(&format!("madvise {what}"), SYS_madvise, &[at, length, MADV_DONTNEED as usize]);
    }
    for advice in (0..=25).chain([100, 101, 104]).filter(|advice| *advice != MADV_DONTNEED as usize) {
        add(&format!("madvise {advice}"), SYS_madvise, &[memory, 4096, advice]);
    }
    // Arguments by the bit.
    for command in (0..=50).chain(1024..=1048).filter(|command| *command != F_DUPFD_CLOEXEC as usize) {
        add(&format!("fcntl {command}"), SYS_fcntl, &[0, command, 0]);
    }
    for request in [TCSETS, TIOCSTI, TIOCSCTTY, FIONREAD, FIOCLEX, FIONBIO].map(|request| request as usize) {
        add(&format!("ioctl {request:#x}"), SYS_ioctl, &[0, request, file]);
    }
    for other in [0xc018_aa3f, 0x8010_aa01, 0xc028_aa05, 0xc018_aa06] {
        add(&format!("ioctl of userfaultfd {other:#x}"), SYS_ioctl, &[0, other, memory]);
    }
    for operation in (2..=15).chain([128, 129, 256, 257, 384]) {
        add(&format!("futex {operation}"), SYS_futex, &[memory, operation, 0, 0, 0, 0]);
    }
    for operation in [0, 1] {
        add(&format!("futex {operation} outside the window"), SYS_futex, &[memory, operation, 0, 0, 0, 0]);
    }
    let at_root = text(c"/");
    for flags in [O_RDONLY, O_NONBLOCK, O_NOCTTY, O_DIRECTORY | O_NONBLOCK | O_CLOEXEC, O_NOFOLLOW | O_NOCTTY]
    {
        add(&format!("openat without care {flags:#o}"), SYS_openat, &[cwd, at_root, flags as usize]);
    }
    add("statx that mounts", SYS_statx, &[cwd, at_root, 0, 0x7ff, memory]);
    for flag in [MAP_LOCKED, MAP_HUGETLB] {
        add(&format!("mmap {flag:#x}"), SYS_mmap, &[memory, 4096, 3, private | flag as usize, usize::MAX, 0]);
    }
    let bits = [O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, 0o20000000];
    for set in 1usize..1 << bits.len() {
        let chosen = bits.iter().enumerate().filter(|(bit, _)| set >> bit & 1 != 0);
        let flags = chosen.fold(O_CLOEXEC | O_NONBLOCK | O_NOCTTY, |flags, (_, bit)| flags | bit);
        add(&format!("openat {flags:#o}"), SYS_openat, &[cwd, file, flags as usize, 0o600]);
    }
    tries
}

#[test]
fn from_outside_the_window_nothing_but_a_clock() {
    let mut tries: Vec<Try> = (0..=600)
        // 335 and 336 (uretprobe, uprobe) are the kernel's own trampolines: it lets them past every
        // filter, and answers with SIGILL whoever else calls them.
        .filter(|number| ![SYS_clock_gettime, 335, 336].contains(number))
        .map(|number| Try { from: OUTSIDE, ..attempt(format!("call {number} from outside"), number, &[]) })
        .collect();
    tries.extend(
        side_effects().into_iter().map(|inside| Try { from: OUTSIDE, ..inside }).take(MOST - tries.len()),
    );
    assert_eq!(holes(&filter(1), &tries), Vec::<String>::new());
    let mut time = [0usize; 2];
    let clock = attempt("clock", SYS_clock_gettime, &[CLOCK_MONOTONIC as usize, time.as_mut_ptr() as usize]);
    let clock = Try { from: OUTSIDE, ..clock };
    assert_eq!(in_sandbox(&filter(1), &[clock]), [0]);
}

#[test]
fn from_inside_the_window_no_side_effect() {
    let tries = side_effects();
    assert!(tries.len() > 300, "only {} tries", tries.len());
    assert_eq!(holes(&filter(std::process::id() as i32 + 1), &tries), Vec::<String>::new());
    assert!(!std::path::Path::new("/tmp/runahead-sandbox-test").exists());
}

/// Makes the calls that the runtime lives by, each so that its success shows.
#[test]
fn what_the_runtime_needs_passes() {
    let zero = std::fs::File::open("/proc/self/exe").expect("this test's own file");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&zero) as usize;
    let mut buffer = vec![0u8; 65536];
    let at = buffer.as_mut_ptr() as usize;
    let mut pieces = [at, 16];
    let vector = pieces.as_mut_ptr() as usize;
    let range = [0usize, 4096];
    let cwd = AT_FDCWD as usize;
    let (root, memory, viewed) = (text(c"/"), 0x6f00_0000_0000, 0x6e00_0000_0000);
    let mut no_context = 0usize;
    let context = &raw mut no_context as usize;
    let me = std::process::id() as usize;
    let private = (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED) as usize;
    let private_fixed = (MAP_PRIVATE | MAP_FIXED) as usize;
    let read_only = (O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY) as usize;
    // SAFETY: asks only.
    let fs_base = unsafe {
        let base: usize;
        asm!("mov {}, fs:[0]", out(reg) base);
        base
    };
    type Right = fn(i64) -> bool;
    let expected: Vec<(Try, Right)> = vec![
        (attempt("read", SYS_read, &[fd, at, 16]), |r| r == 16),
        (attempt("pread64", SYS_pread64, &[fd, at, 16, 0]), |r| r == 16),
        (attempt("preadv2", SYS_preadv2, &[fd, vector, 1, 0, 0, 0]), |r| r == 16),
        (attempt("lseek", SYS_lseek, &[fd, 5, 0]), |r| r == 5),
        (attempt("fstat", SYS_fstat, &[fd, at]), |r| r == 0),
        (attempt("fstatfs", SYS_fstatfs, &[fd, at]), |r| r == 0),
        (attempt("newfstatat", SYS_newfstatat, &[cwd, root, at, 0]), |r| r == 0),
        (attempt("statx", SYS_statx, &[cwd, root, AT_NO_AUTOMOUNT as usize, 0x7ff, at]), |r| r == 0),
        (attempt("faccessat", SYS_faccessat, &[cwd, root, 0]), |r| r == 0),
        (attempt("faccessat2", SYS_faccessat2, &[cwd, root, 0, 0]), |r| r == 0),
        (attempt("readlinkat", SYS_readlinkat, &[cwd, text(c"/proc/self"), at, 64]), |r| r > 0),
        // None there, or no such attribute.
        (attempt("getxattr", SYS_getxattr, &[root, text(c"user.none"), at, 64]), |r| r == -61 || r == -95),
        (attempt("listxattr", SYS_listxattr, &[root, at, 64]), |r| r >= 0),
        (attempt("readahead", SYS_readahead, &[fd, 0, 4096]), |r| r == 0),
        (attempt("fadvise64", SYS_fadvise64, &[fd, 0, 0, POSIX_FADV_RANDOM as usize]), |r| r == 0),
        // Linux 6.5; before, it is not there, and the runtime copes.
        (attempt("cachestat", 451, &[fd, range.as_ptr() as usize, at, 0]), |r| r == 0 || r == -38),
        (attempt("openat", SYS_openat, &[cwd, root, read_only]), |r| r > 0),
        (attempt("openat of a path", SYS_openat, &[cwd, root, O_PATH as usize]), |r| r > 0),
        (attempt("fcntl", SYS_fcntl, &[fd, F_DUPFD_CLOEXEC as usize, 100]), |r| r >= 100),
        (attempt("getdents64", SYS_getdents64, &[fd, at, 4096]), |r| r == -20),
        (attempt("process_vm_readv", SYS_process_vm_readv, &[me, vector, 1, vector, 1, 0]), |r| r == 16),
        (attempt("arch_prctl", SYS_arch_prctl, &[0x1002, fs_base]), |r| r == 0),
        (attempt("prlimit64", SYS_prlimit64, &[0, RLIMIT_CORE as usize, 0, at]), |r| r == 0),
        (attempt("getrlimit", SYS_getrlimit, &[RLIMIT_CORE as usize, at]), |r| r == 0),
        // Of a page that cannot be written to: the kernel's own refusal.
        (attempt("futex wake", SYS_futex, &[INSIDE + 64, 1, 1, 0, 0, 0]), |r| r == -14),
        (attempt("mmap", SYS_mmap, &[memory, 8192, 3, private, usize::MAX, 0]), |r| r == 0x6f00_0000_0000),
        (attempt("mprotect", SYS_mprotect, &[memory, 4096, 1]), |r| r == 0),
        (attempt("mincore", SYS_mincore, &[memory, 4096, at]), |r| r == 0),
        (attempt("madvise", SYS_madvise, &[memory, 4096, MADV_DONTNEED as usize]), |r| r == 0),
        (attempt("mremap", SYS_mremap, &[memory, 8192, 8192, 3, RING]), |r| r == RING as i64),
        (attempt("io_setup", SYS_io_setup, &[READS as usize, context]), |r| r == 0),
        // Of no context: the kernel's own refusal.
        (attempt("io_submit", SYS_io_submit, &[0, 0, 0]), |r| r == -22),
        (attempt("munmap", SYS_munmap, &[memory, 8192]), |r| r == 0),
        (attempt("mmap of a file", SYS_mmap, &[viewed, 4096, 1, private_fixed, fd, 0]), |r| {
            r == 0x6e00_0000_0000
        }),
        (attempt("munmap of a file", SYS_munmap, &[viewed, 4096]), |r| r == 0),
        // Not a userfaultfd: what comes back is the file's own refusal, not the sandbox's.
        (attempt("ioctl copy", SYS_ioctl, &[fd, 0xc028_aa03, at]), |r| r == -25),
        (attempt("ioctl zeros", SYS_ioctl, &[fd, 0xc020_aa04, at]), |r| r == -25),
        (attempt("ioctl register", SYS_ioctl, &[fd, 0xc020_aa00, at]), |r| r == -25),
        (attempt("setitimer", SYS_setitimer, &[1, at, 0]), |r| r == 0 || r == -22),
        (attempt("clock_gettime", SYS_clock_gettime, &[1, at]), |r| r == 0),
        (attempt("clock_getres", SYS_clock_getres, &[1, at]), |r| r == 0),
        (attempt("gettimeofday", SYS_gettimeofday, &[at, 0]), |r| r == 0),
        (attempt("time", SYS_time, &[0]), |r| r > 0),
        (attempt("getcpu", SYS_getcpu, &[0, 0, 0]), |r| r == 0),
        (attempt("getuid", SYS_getuid, &[]), |r| r >= 0),
        (attempt("geteuid", SYS_geteuid, &[]), |r| r >= 0),
        (attempt("getgid", SYS_getgid, &[]), |r| r >= 0),
        (attempt("getegid", SYS_getegid, &[]), |r| r >= 0),
        (attempt("uname", SYS_uname, &[at]), |r| r == 0),
        (attempt("sysinfo", SYS_sysinfo, &[at]), |r| r == 0),
        (attempt("getrandom", SYS_getrandom, &[at, 8, 0]), |r| r == 8),
        (attempt("sched_getaffinity", SYS_sched_getaffinity, &[0, 1024, at]), |r| r > 0),
        (attempt("sched_yield", SYS_sched_yield, &[]), |r| r == 0),
        (attempt("close", SYS_close, &[fd]), |r| r == 0),
    ];
    let tries: Vec<Try> = expected.iter().map(|(attempt, _)| attempt.clone()).collect();
    let results = in_sandbox(&filter(me as i32), &tries);
    let wrong: Vec<String> = expected
        .iter()
        .zip(results)
        .filter(|((_, right), result)| !right(*result))
        .map(|((attempt, _), result)| match result {
            TRAPPED => format!("{}: refused", attempt.name),
            NOT_REACHED => format!("{}: not reached", attempt.name),
            other => format!("{}: {other}", attempt.name),
        })
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
}

/// A filter with one permission too many, and one with one too few, must both be noticed.
#[test]
fn a_hole_is_found() {
    let code = filter(1);
    let getuid = code.iter().position(|i| i.code == 0x15 && i.operand == SYS_getuid as u32).expect("a rule");
    let mut open = code.clone();
    open[getuid].operand = SYS_dup as u32;
    let found = holes(&open, &side_effects());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("dup: allowed"), "{found:?}");
    assert_eq!(in_sandbox(&open, &[attempt("getuid", SYS_getuid, &[])]), [TRAPPED]);
    assert_ne!(in_sandbox(&code, &[attempt("getuid", SYS_getuid, &[])]), [TRAPPED]);
}
