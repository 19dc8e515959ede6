//! What the agent does with the calls that reach it.

use crate::arch::{Answer, Frame, Sampled};
use crate::state::Fixed;
use crate::{attach, names, opened, patch, reads, release, rooms, snapshots, unchecked};
use core::sync::atomic::Ordering;
use runahead_abi::reads::{LARGE_MAPPING, maps_small_file, of as read_call};
use runahead_abi::release::{SEEN_BY_FANOTIFY, SEEN_BY_INOTIFY};
use runahead_abi::rights::stays;
use runahead_abi::session::{care, watch};
use runahead_abi::sites::ANY_NUMBER;
use runahead_kernel::arch::syscall;
use runahead_kernel::memory::{PROT_EXEC, bytes, cached_pages, overlap};
use runahead_kernel::process::{groups, prctl, users};
use runahead_kernel::uapi::general as n;
use runahead_kernel::uapi::prctl::{
    PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, PR_CAPBSET_DROP, PR_GET_NO_NEW_PRIVS, PR_SET_NO_NEW_PRIVS,
    PR_SET_PTRACER, PR_SET_SECCOMP, PR_SET_SECUREBITS, PR_SET_SYSCALL_USER_DISPATCH,
};
use runahead_kernel::uapi::ptrace as n_ptrace;
use runahead_kernel::{Errno, PAGE};

/// Bytes of a file's mapping from which on it is worth watching the page faults. Many a program that reads
/// nothing maps its locale, 3 to 6 MB, and should not pay 50 us for it.
pub const WATCHED_LEAST: usize = LARGE_MAPPING;

const FAN_MARK_ADD: u32 = 1;

/// Bytes of memory of a program's own, all that it has ever got, from which on it is worth looking whether some of
/// it is on swap. To touch so much takes some ms; to attach, 50 us, once.
pub const SWAPPED_LEAST: usize = 32 << 20;

/// The calls whose sites are rewritten.
pub const fn is_wanted(number: u16) -> bool {
    #[cfg(feature = "forked")]
    if crate::forked::wanted(number) {
        return true;
    }
    is_sampled(number)
        || release::wanted(number)
        || number == ANY_NUMBER
        || matches!(
            number as u32,
            n::__NR_mmap
                | n::__NR_munmap
                | n::__NR_mremap
                | n::__NR_mprotect
                | n::__NR_madvise
                | n::__NR_brk
                | n::__NR_prctl
                | n::__NR_ptrace
                | n::__NR_seccomp
                | n::__NR_exit_group
                | n::__NR_fcntl
                | n::__NR_inotify_add_watch
                | n::__NR_fanotify_mark
        )
        || gives_up_rights(number as u32)
}

/// The calls after which a process may be allowed less than before, or is elsewhere, whatever else they are given.
/// (prctl, seccomp and fcntl have cases of their own.)
const fn gives_up_rights(number: u32) -> bool {
    matches!(
        number,
        n::__NR_setuid
            | n::__NR_setgid
            | n::__NR_setreuid
            | n::__NR_setregid
            | n::__NR_setresuid
            | n::__NR_setresgid
            | n::__NR_setfsuid
            | n::__NR_setfsgid
            | n::__NR_setgroups
            | n::__NR_capset
            | n::__NR_chroot
            | n::__NR_pivot_root
            | n::__NR_unshare
            | n::__NR_setns
            | n::__NR_landlock_restrict_self
    )
}

/// The same, of prctl's options; `second`: the argument behind that.
fn option_gives_up_rights(option: u32, second: u32) -> bool {
    match option {
        // libcap-ng asks in every program that is linked with it, before its first instruction.
        PR_CAP_AMBIENT => second != PR_CAP_AMBIENT_IS_SET,
        _ => matches!(option, PR_SET_SECCOMP | PR_SET_NO_NEW_PRIVS | PR_CAPBSET_DROP | PR_SET_SECUREBITS),
    }
}

/// Whether a call that gives up rights leaves the calling thread those that it has: it becomes who it is, say.
/// Makes system calls.
fn leaves_as_it_is(number: u32, a: [usize; 6]) -> bool {
    let wanted = a.map(|word| word as u32);
    match number {
        n::__NR_setuid => users().is_ok_and(|now| stays(now, [wanted[0]; 3])),
        n::__NR_setgid => groups().is_ok_and(|now| stays(now, [wanted[0]; 3])),
        // What the saved one becomes depends on these.
        n::__NR_setreuid => users().is_ok_and(|now| stays(now, [wanted[0], wanted[1], now[0]])),
        n::__NR_setregid => groups().is_ok_and(|now| stays(now, [wanted[0], wanted[1], now[0]])),
        n::__NR_setresuid => users().is_ok_and(|now| stays(now, [wanted[0], wanted[1], wanted[2]])),
        n::__NR_setresgid => groups().is_ok_and(|now| stays(now, [wanted[0], wanted[1], wanted[2]])),
        // SAFETY: asks.
        n::__NR_prctl => unsafe { prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) }.is_ok_and(|is_set| is_set != 0),
        _ => false,
    }
}

/// Whether this is a call about filters that only finds out what the kernel knows, as libseccomp makes them
/// before `main` in all that is linked with it (seccomp(2); the kernel's `do_seccomp`).
fn installs_nothing(state: &Fixed, number: u32, a: [usize; 6]) -> bool {
    let (operation, flags, filter) = match number {
        n::__NR_seccomp => (a[0] as u32, a[1] as u32, a[2]),
        // (By this call the strict mode takes no filter, and does not look at it.)
        n::__NR_prctl if a[0] as u32 == PR_SET_SECCOMP && a[1] == SECCOMP_MODE_FILTER => {
            (SECCOMP_SET_MODE_FILTER, 0, a[2])
        }
        _ => return false,
    };
    // There is hardly ever memory at address 0. To ask that is a call, which may be forbidden until all code
    // is known.
    let is_nowhere = |address: usize| {
        address == 0 && !state.wait.unchecked.is_so() && cached_pages(0, PAGE, &mut [0]) == Err(Errno::ENOMEM)
    };
    match operation {
        SECCOMP_SET_MODE_STRICT => flags != 0 || filter != 0,
        SECCOMP_SET_MODE_FILTER => is_nowhere(filter),
        SECCOMP_GET_ACTION_AVAIL | SECCOMP_GET_NOTIF_SIZES => true,
        _ => false,
    }
}

/// Operations of seccomp(2), and what prctl(2) calls the second (linux/seccomp.h).
const SECCOMP_SET_MODE_STRICT: u32 = 0;
const SECCOMP_SET_MODE_FILTER: u32 = 1;
const SECCOMP_GET_ACTION_AVAIL: u32 = 2;
const SECCOMP_GET_NOTIF_SIZES: u32 = 3;
const SECCOMP_MODE_FILTER: usize = 2;

/// Numbers of the calls, a bit each, that are looked at where a function makes any call and is seen where
/// it begins: those that forbid calls of ours, or leave us no right to make them, those that close, and some
/// others; none that the agent makes in the program's stead.
pub static SEEN_AHEAD: [u32; 16] = {
    let numbers = [
        n::__NR_prctl,
        n::__NR_seccomp,
        n::__NR_ptrace,
        n::__NR_fcntl,
        n::__NR_mremap,
        n::__NR_mprotect,
        n::__NR_madvise,
        n::__NR_inotify_add_watch,
        n::__NR_fanotify_mark,
        n::__NR_userfaultfd,
        n::__NR_setuid,
        n::__NR_setgid,
        n::__NR_setreuid,
        n::__NR_setregid,
        n::__NR_setresuid,
        n::__NR_setresgid,
        n::__NR_setfsuid,
        n::__NR_setfsgid,
        n::__NR_setgroups,
        n::__NR_capset,
        n::__NR_chroot,
        n::__NR_pivot_root,
        n::__NR_close,
        n::__NR_close_range,
        n::__NR_dup2,
        n::__NR_dup3,
        n::__NR_unshare,
        n::__NR_setns,
        n::__NR_landlock_restrict_self,
        n::__NR_exit_group,
    ];
    let mut bits = [0; 16];
    let mut index = 0;
    while index < numbers.len() {
        let number = numbers[index] as usize;
        bits[number / 32] |= 1 << (number % 32);
        index += 1;
    }
    bits
};

const _: () = {
    let mut number = 0;
    while number < 32 * SEEN_AHEAD.len() {
        assert!(!gives_up_rights(number as u32) || SEEN_AHEAD[number / 32] >> (number % 32) & 1 != 0);
        number += 1;
    }
};

/// The calls that may pass unseen while the agent is calm.
pub const fn is_sampled(number: u16) -> bool {
    is_measured(number) || read_call(number as usize).is_some()
}

/// Those that may as long as nobody wants to know what the program opens. Their sites are rewritten in runs
/// that remember alone (`flags::REMEMBERS`).
pub const fn is_opening(number: u16) -> bool {
    matches!(number as u32, n::__NR_open | n::__NR_openat)
}

/// The calls that the agent makes itself, to see how long they take.
pub const fn is_measured(number: u16) -> bool {
    matches!(
        number as u32,
        n::__NR_newfstatat | n::__NR_statx | n::__NR_stat | n::__NR_lstat | n::__NR_getdents64
    )
}

/// Which of a site's calls may pass unseen; `number`: one that is wanted, or [`ANY_NUMBER`].
pub const fn sampled(number: u16) -> Sampled {
    match number {
        ANY_NUMBER => Sampled::ByNumber,
        number if is_opening(number) => Sampled::Openings,
        number if is_sampled(number) => Sampled::Calm,
        _ => Sampled::Never,
    }
}

/// Called by the entry code for each call that reaches the agent, on a stack of the agent's and with all
/// signals blocked. Must be quick, must not panic.
pub extern "C" fn runahead_agent_call(frame: &Frame) -> Answer {
    let state = frame.state();
    if state.is_off() {
        return Answer::plain(frame);
    }
    if state.begin() {
        unchecked::forked(state);
    }
    let a = frame.arguments();
    if changes_ours(frame, a) {
        attach::withdraw(state);
        patch::undo(state);
        return Answer::plain(frame);
    }
    if unchecked::is_so(frame)
        && let Some(answer) = unchecked::call(frame, a)
    {
        return answer;
    }
    match frame.rax as u32 {
        n::__NR_read => reads::here(frame, a[0] as i32, a[2]),
        n::__NR_pread64 => reads::at(frame, a[0] as i32, a[1], a[2], a[3] as i64),
        n::__NR_readv => reads::vector_here(frame, a),
        n::__NR_preadv | n::__NR_preadv2 => reads::vector_at(frame, a),
        number @ (n::__NR_copy_file_range | n::__NR_sendfile | n::__NR_splice) => {
            reads::elsewhere(frame, number, a)
        }
        number @ (n::__NR_newfstatat | n::__NR_statx | n::__NR_stat | n::__NR_lstat) => {
            names::look_up(frame, number, a)
        }
        n::__NR_getdents64 => names::list(frame, a),
        n::__NR_open => opened::opens(frame, n::AT_FDCWD, a[0], a[1] as u32),
        n::__NR_openat => opened::opens(frame, a[0] as i32, a[1], a[2] as u32),
        // What is written to a private mapping stays in the process; another may be the file itself.
        n::__NR_mmap
            if a[2] as u32 & PROT_EXEC != 0
                && a[3] as u32 & (n::MAP_ANONYMOUS | n::MAP_TYPE) == n::MAP_PRIVATE =>
        {
            map_executable(frame, a)
        }
        n::__NR_mmap if a[3] as u32 & n::MAP_ANONYMOUS != 0 => {
            maps_memory(frame, a);
            Answer::plain(frame)
        }
        n::__NR_mmap if a[1] >= WATCHED_LEAST => {
            reads::with_process(frame, |visit| attach::want_watch(visit.state, watch::FILE));
            // Whoever only touches it from now on makes no call at which another could be left.
            snapshots::take_if_wanted(frame, true);
            Answer::plain(frame)
        }
        n::__NR_mmap if maps_small_file(&a) => reads::mapped(frame, a),
        n::__NR_brk => {
            heap_ends(frame, a[0]);
            Answer::plain(frame)
        }
        // Somebody is to see each of its calls, and would see ours.
        number @ n::__NR_ptrace if a[0] as u32 == n_ptrace::PTRACE_TRACEME => {
            rooms::before(state, number, a);
            attach::withdraw(state);
            attach::refuse(state);
            Answer::plain(frame)
        }
        n::__NR_prctl if a[0] as u32 == PR_SET_PTRACER => {
            state.names_tracer.store(1, Ordering::Relaxed);
            Answer::plain(frame)
        }
        // A handler is called for all calls but those of one place, which is not ours.
        n::__NR_prctl if a[0] as u32 == PR_SET_SYSCALL_USER_DISPATCH => {
            attach::withdraw(state);
            Answer::plain(frame)
        }
        n::__NR_prctl if !option_gives_up_rights(a[0] as u32, a[1] as u32) => Answer::plain(frame),
        number if installs_nothing(state, number, a) => Answer::plain(frame),
        // A filter of the program's own may forbid the calls that the agent makes.
        number if number == n::__NR_seccomp || a[0] as u32 == PR_SET_SECCOMP && number == n::__NR_prctl => {
            attach::is_filtered(state);
            Answer::plain(frame)
        }
        // It shares nothing less, as unshare(1) asks for that only makes it go into another root.
        n::__NR_unshare if a[0] as u32 == 0 => Answer::plain(frame),
        // Calls of ours may be made where all code is known.
        number
            if (gives_up_rights(number) || number == n::__NR_prctl && a[0] as u32 == PR_SET_NO_NEW_PRIVS)
                && !state.wait.unchecked.is_so()
                && leaves_as_it_is(number, a) =>
        {
            Answer::plain(frame)
        }
        // Nobody is to do for the process what it may not do any more.
        number @ n::__NR_prctl => {
            rooms::before(state, number, a);
            attach::give_up(state);
            Answer::plain(frame)
        }
        number if gives_up_rights(number) => {
            rooms::before(state, number, a);
            attach::give_up(state);
            release::call(frame, number, a).unwrap_or_else(|| Answer::plain(frame))
        }
        n::__NR_fcntl if a[1] as u32 == n::F_SETLEASE => {
            opened::ends_replay(state);
            attach::retire(state);
            // One for reading is broken by writers alone, but nobody sees what this process takes after it.
            if a[2] as u32 != n::F_UNLCK {
                release::notices(state);
            }
            Answer::plain(frame)
        }
        // It would be told of what is opened ahead of it.
        n::__NR_fcntl if a[1] as u32 == n::F_NOTIFY && a[2] as u32 & n::DN_ACCESS != 0 => {
            attach::watches(state);
            Answer::plain(frame)
        }
        n::__NR_inotify_add_watch if a[2] as u32 & SEEN_BY_INOTIFY != 0 => {
            attach::watches(state);
            Answer::plain(frame)
        }
        n::__NR_fanotify_mark if a[1] as u32 & FAN_MARK_ADD != 0 && a[2] as u64 & SEEN_BY_FANOTIFY != 0 => {
            attach::watches(state);
            Answer::plain(frame)
        }
        n::__NR_exit_group => {
            #[cfg(feature = "forked")]
            crate::forked::end(state.process());
            attach::leave(state);
            Answer::plain(frame)
        }
        number => {
            #[cfg(feature = "forked")]
            if matches!(number, n::__NR_execve | n::__NR_execveat) {
                crate::forked::end(state.process());
            }
            release::call(frame, number, a).unwrap_or_else(|| Answer::plain(frame))
        }
    }
}

/// Whether a memory call is about something of the agent's own.
fn changes_ours(frame: &Frame, a: [usize; 6]) -> bool {
    let state = frame.state();
    let concerns = |address: usize, length: usize| {
        let range = bytes(address, length);
        state.own_ranges().iter().any(|own| overlap(own, &range))
    };
    match frame.rax as u32 {
        n::__NR_mmap => a[3] as u32 & n::MAP_FIXED != 0 && concerns(a[0], a[1]),
        n::__NR_munmap | n::__NR_mprotect | n::__NR_madvise => concerns(a[0], a[1]),
        n::__NR_mremap => {
            concerns(a[0], a[1]) || (a[3] as u32 & n::MREMAP_FIXED != 0 && concerns(a[4], a[2]))
        }
        _ => false,
    }
}

/// An anonymous mapping, with these arguments. (The entry code does the same while the process is unchecked.)
fn maps_memory(frame: &Frame, a: [usize; 6]) {
    let least = n::PROT_READ | n::PROT_WRITE;
    let not = n::MAP_STACK | n::MAP_NORESERVE;
    if a[2] as u32 & least == least && a[3] as u32 & not == 0 {
        own_memory(frame, a[1]);
    }
}

/// The program's heap is to end there. (0: it asks where it ends.)
fn heap_ends(frame: &Frame, end: usize) {
    if end == 0 || frame.state().counts_memory.load(Ordering::Relaxed) == 0 {
        return;
    }
    let before = match frame.state().process().heap_end.swap(end, Ordering::Relaxed) {
        // SAFETY: only asks.
        0 => unsafe { syscall(n::__NR_brk as usize, [0; 6]) as usize },
        before => before,
    };
    if end > before {
        own_memory(frame, end - before);
    }
}

/// The program gets memory of its own. Where it is much, and there is swap, it may go there. (A machine seldom gets
/// swap later.)
fn own_memory(frame: &Frame, length: usize) {
    let process = frame.state().process();
    if frame.state().counts_memory.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mapped = process.mapped.load(Ordering::Relaxed).saturating_add(length);
    process.mapped.store(mapped, Ordering::Relaxed);
    if mapped < SWAPPED_LEAST || process.mapped_told.load(Ordering::Relaxed) != 0 {
        return;
    }
    // Where somebody else holds the lock now, the next mapping tries again.
    reads::with_process(frame, |visit| {
        visit.process.mapped_told.store(1, Ordering::Relaxed);
        attach::want_watch(visit.state, watch::MEMORY);
    });
}

/// A file is mapped executable: do it, then rewrite the sites in it before anybody can run them.
fn map_executable(frame: &Frame, a: [usize; 6]) -> Answer {
    // The entry code has made it, and has counted it, where another thread has ended the check at the same
    // time.
    let made = frame.measured().map(|measured| measured.returned);
    // SAFETY: the program's own call with the program's own arguments; mapping neither blocks nor is
    // it a cancellation point, so it need not happen at the original instruction.
    let returned = made.unwrap_or_else(|| unsafe { syscall(n::__NR_mmap as usize, a) });
    if returned > 0 && (made.is_some() || !unchecked::has_mapped(frame.state(), a[1])) {
        let mapping = patch::Mapping { start: returned as usize, length: a[1], offset: a[5] as u64 };
        if !patch::new_mapping(frame, a[4] as i32, mapping, a[2] as u32) {
            attach::cares(frame.state(), care::BLIND_LATER);
            attach::withdraw(frame.state());
            release::lets_all_go(frame.state());
        }
    }
    // It may be the saved memory of a run-time system, most of it data.
    if returned > 0 && a[1] >= WATCHED_LEAST && !unchecked::watch_later(frame.state(), watch::FILE) {
        reads::with_process(frame, |visit| attach::want_watch(visit.state, watch::FILE));
    }
    Answer::done(frame, returned as usize)
}
