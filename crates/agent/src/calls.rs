//! What the agent does with the calls that reach it.

use crate::arch::{Answer, Frame, SseRegisters};
use crate::{attach, names, patch, reads};
use core::sync::atomic::Ordering;
use runahead_abi::session::watch;
use runahead_abi::sites::ANY_NUMBER;
use runahead_kernel::arch::syscall;
use runahead_kernel::files::IoVec;
use runahead_kernel::memory::{PROT_EXEC, read_process};
use runahead_kernel::process::{process_id, total_swap};
use runahead_kernel::signals::AlternateStack;
use runahead_kernel::uapi::general as n;
use runahead_kernel::uapi::prctl::{
    PR_CAP_AMBIENT, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_SECUREBITS,
};

/// Bytes of a file's mapping from which on it is worth watching the page faults. A smaller one is in memory after
/// some misses of the kernel's own read-ahead; and many a program that reads nothing maps its locale, 3 to 6 MB,
/// and should not pay 50 us for it.
const WATCHED_LEAST: usize = 8 << 20;

/// What reading ahead does to files, as inotify(7) tells it. (Most programs watch for changes only.)
const SEEN_BY_WATCHERS: u32 = n::IN_ACCESS | n::IN_OPEN | n::IN_CLOSE_NOWRITE;

/// Bytes of memory of a program's own, all that it has ever got, from which on it is worth looking whether some of
/// it is on swap. To touch so much takes some ms; to attach, 50 us, once.
const SWAPPED_LEAST: usize = 32 << 20;

/// Bytes of an alternate stack for signals from which on a handler there can spare what the agent takes below it. Smaller ones
/// come from who counts exactly: 8 KB is `SIGSTKSZ`, what C libraries have recommended for decades. Of it a frame with AVX-512 takes
/// 3.6 KB. (A handler with 512 bytes below the frame had 118 bytes below its stack overwritten. Where the processor has tile
/// registers, which a frame seldom holds, the least stack is larger, and that was not seen.)
const ALTERNATE_STACK_LEAST: usize = 8192;

/// The calls whose sites are rewritten.
pub fn wanted(number: u16) -> bool {
    #[cfg(feature = "forked")]
    if crate::forked::wanted(number) {
        return true;
    }
    sampled(number)
        || number == ANY_NUMBER
        || matches!(
            u32::from(number),
            n::__NR_mmap
                | n::__NR_brk
                | n::__NR_prctl
                | n::__NR_seccomp
                | n::__NR_sigaltstack
                | n::__NR_exit_group
                | n::__NR_fcntl
                | n::__NR_inotify_add_watch
                | n::__NR_fanotify_mark
        )
        || gives_up_rights(u32::from(number))
}

/// The calls after which a process may be allowed less than before, or is elsewhere, whatever else they are given.
/// (prctl, seccomp and fcntl have cases of their own.)
fn gives_up_rights(number: u32) -> bool {
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

/// The same, of prctl's options.
fn option_gives_up_rights(option: u32) -> bool {
    matches!(
        option,
        PR_SET_SECCOMP | PR_SET_NO_NEW_PRIVS | PR_CAPBSET_DROP | PR_CAP_AMBIENT | PR_SET_SECUREBITS
    )
}

/// The calls that may pass unseen while the agent is calm.
pub fn sampled(number: u16) -> bool {
    matches!(
        u32::from(number),
        n::__NR_read
            | n::__NR_pread64
            | n::__NR_readv
            | n::__NR_preadv
            | n::__NR_preadv2
            | n::__NR_newfstatat
            | n::__NR_statx
            | n::__NR_stat
            | n::__NR_lstat
            | n::__NR_getdents64
    )
}

/// Called by the entry code for each call that reaches the agent. Must be quick, must not panic, may
/// be interrupted and left by a signal handler at any instruction.
pub extern "C" fn runahead_agent_call(frame: &Frame, sse: &SseRegisters) -> Answer {
    let state = frame.state();
    if state.is_off() {
        state.calm.store(i32::MAX, Ordering::Relaxed);
        return Answer::plain(frame);
    }
    let a = frame.arguments();
    match frame.rax as u32 {
        n::__NR_read => reads::here(frame, sse, a[0] as i32, a[2]),
        n::__NR_pread64 => reads::at(frame, sse, a[0] as i32, a[1], a[2], a[3] as i64),
        n::__NR_readv => reads::vector_here(frame, sse, a),
        n::__NR_preadv | n::__NR_preadv2 => reads::vector_at(frame, sse, a),
        number @ (n::__NR_newfstatat | n::__NR_statx | n::__NR_stat | n::__NR_lstat) => {
            names::look_up(frame, number, a)
        }
        n::__NR_getdents64 => names::list(frame, a),
        n::__NR_mmap if a[2] as u32 & PROT_EXEC != 0 && a[3] as u32 & n::MAP_ANONYMOUS == 0 => {
            map_executable(frame, a)
        }
        n::__NR_mmap if a[3] as u32 & n::MAP_ANONYMOUS != 0 => {
            let least = n::PROT_READ | n::PROT_WRITE;
            let not = n::MAP_STACK | n::MAP_NORESERVE;
            if a[2] as u32 & least == least && a[3] as u32 & not == 0 {
                own_memory(frame, a[1]);
            }
            Answer::plain(frame)
        }
        n::__NR_mmap if a[1] >= WATCHED_LEAST => {
            reads::with_process(frame, |visit| attach::want_watch(visit.state, watch::FILE));
            Answer::plain(frame)
        }
        n::__NR_brk => {
            heap_ends(frame, a[0]);
            Answer::plain(frame)
        }
        n::__NR_prctl if !option_gives_up_rights(a[0] as u32) => Answer::plain(frame),
        // A filter of the program's own may forbid the calls that the agent makes; and nobody is to do for the process what
        // it may not do any more.
        n::__NR_prctl | n::__NR_seccomp => {
            attach::give_up(state);
            Answer::plain(frame)
        }
        number if gives_up_rights(number) => {
            attach::give_up(state);
            Answer::plain(frame)
        }
        n::__NR_sigaltstack => {
            alternate_stack(frame, a[0]);
            Answer::plain(frame)
        }
        n::__NR_fcntl if a[1] as u32 == n::F_SETLEASE => {
            attach::retire(state);
            Answer::plain(frame)
        }
        // It would be told of what is opened ahead of it.
        n::__NR_fcntl if a[1] as u32 == n::F_NOTIFY => {
            attach::watches(state);
            Answer::plain(frame)
        }
        n::__NR_inotify_add_watch if a[2] as u32 & SEEN_BY_WATCHERS != 0 => {
            attach::watches(state);
            Answer::plain(frame)
        }
        n::__NR_fanotify_mark => {
            attach::watches(state);
            Answer::plain(frame)
        }
        n::__NR_exit_group => {
            #[cfg(feature = "forked")]
            crate::forked::end(state.process());
            attach::leave(state);
            Answer::plain(frame)
        }
        #[cfg(feature = "forked")]
        n::__NR_execve | n::__NR_execveat => {
            crate::forked::end(state.process());
            Answer::plain(frame)
        }
        _ => Answer::plain(frame),
    }
}

/// The program is to get another stack for its handlers. The agent has no room on a small one, and a stub does not know where it
/// is run: then it is over for all of the process, before a handler can be on it.
fn alternate_stack(frame: &Frame, address: usize) {
    let mut stack = AlternateStack { base: 0, flags: 0, length: 0 };
    let local = [IoVec { base: &raw mut stack as usize, length: size_of::<AlternateStack>() }];
    let remote = [IoVec { base: address, length: size_of::<AlternateStack>() }];
    // SAFETY: the local piece is as long as said. Through the kernel, so that a bad address is an error and no fault.
    let got = unsafe { read_process(process_id(), &local, &remote) };
    let is_there = stack.flags as u32 & n::SS_DISABLE == 0;
    if got == Ok(size_of::<AlternateStack>()) && is_there && stack.length < ALTERNATE_STACK_LEAST {
        frame.state().withdraw();
    }
}

/// The program's heap is to end there. (0: it asks where it ends.)
fn heap_ends(frame: &Frame, end: usize) {
    if end == 0 {
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

/// The program gets memory of its own. Where it is much, and there is swap, it may go there.
fn own_memory(frame: &Frame, length: usize) {
    let process = frame.state().process();
    let mapped = process.mapped.load(Ordering::Relaxed).saturating_add(length);
    process.mapped.store(mapped, Ordering::Relaxed);
    if mapped < SWAPPED_LEAST || process.mapped_told.load(Ordering::Relaxed) != 0 {
        return;
    }
    if total_swap() == 0 {
        // A machine seldom gets swap later; asking at each mapping would cost each of them a call.
        process.mapped_told.store(1, Ordering::Relaxed);
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
    // SAFETY: the program's own call with the program's own arguments; mapping neither blocks nor is
    // it a cancellation point, so it need not happen at the original instruction.
    let returned = unsafe { syscall(n::__NR_mmap as usize, a) };
    if returned > 0 {
        let mapping = patch::Mapping { start: returned as usize, length: a[1], offset: a[5] as u64 };
        patch::new_mapping(frame, a[4] as i32, mapping, a[2] as u32);
    }
    Answer::done(frame, returned as usize)
}
