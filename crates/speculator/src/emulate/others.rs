//! Clocks, identities, signals, waiting, and the end.

use super::{Outcome, UNKNOWN, get, overlay, put, put_bytes, room};
use crate::arch::Call;
use crate::descriptors::{Descriptor, Kind, TABLE, process_directory};
use crate::mirror;
use crate::run::{self, RUN};
use runahead_abi::session::ended;
use runahead_kernel::arch::syscall;
use runahead_kernel::text;
use runahead_kernel::uapi::general as n;
use runahead_kernel::uapi::prctl::PR_SET_NAME;
use runahead_kernel::{check, files};

pub fn dispatch(call: &Call) -> Option<Outcome> {
    let a = call.arguments;
    Some(match call.number as u32 {
        // Questions with one answer for everybody, or with ours: same user, same limits.
        n::__NR_getuid | n::__NR_geteuid | n::__NR_getgid | n::__NR_getegid => really(call, 0, 0),
        n::__NR_clock_gettime | n::__NR_clock_getres => really(call, a[1], 16),
        n::__NR_gettimeofday => match room(a[1], if a[1] == 0 { 0 } else { 8 }) {
            true => really(call, a[0], if a[0] == 0 { 0 } else { 16 }),
            false => UNKNOWN,
        },
        n::__NR_time => really(call, a[0], if a[0] == 0 { 0 } else { 8 }),
        n::__NR_getcpu => really(call, a[0], if a[0] == 0 { 0 } else { 4 }),
        n::__NR_uname => really(call, a[0], 390),
        n::__NR_sysinfo => really(call, a[0], 112),
        n::__NR_getrandom => really(call, a[0], a[1]),
        n::__NR_prlimit64 if a[2] == 0 => really(call, a[3], if a[3] == 0 { 0 } else { 16 }),
        n::__NR_getrlimit => really(call, a[1], 16),
        n::__NR_sched_getaffinity => really(call, a[2], a[1].min(1024)),
        n::__NR_getrusage => zeros(a[1], 144, 0),
        n::__NR_times => zeros(a[0], if a[0] == 0 { 0 } else { 32 }, 0),

        n::__NR_getresuid => three(a, n::__NR_getuid, n::__NR_geteuid),
        n::__NR_getresgid => three(a, n::__NR_getgid, n::__NR_getegid),
        n::__NR_getpid => Outcome::Return(mirror::process() as isize),
        n::__NR_getppid => relative(0),
        n::__NR_getpgrp => relative(1),
        n::__NR_getpgid if is_itself(a[0]) => relative(1),
        n::__NR_getsid if is_itself(a[0]) => relative(2),
        // As most processes are: a normal one, of no niceness.
        n::__NR_getpriority => Outcome::Return(20),
        n::__NR_sched_getscheduler => Outcome::Return(0),
        n::__NR_sched_getparam => zeros(a[1], 4, 0),
        n::__NR_getitimer => zeros(a[1], 32, 0),
        n::__NR_rt_sigpending => zeros(a[0], a[1].min(128), 0),
        n::__NR_prctl if a[0] as u32 == PR_SET_NAME => Outcome::Return(0),
        n::__NR_gettid => Outcome::Return(RUN.get().thread as isize),

        // Private and without effect: speculation has no handlers of its own.
        n::__NR_rt_sigprocmask => zeros(a[2], if a[2] == 0 { 0 } else { a[3].min(128) }, 0),
        n::__NR_rt_sigaction => zeros(a[2], if a[2] == 0 { 0 } else { 32 }, 0),
        n::__NR_sigaltstack
        | n::__NR_set_robust_list
        | n::__NR_set_tid_address
        | n::__NR_alarm
        | n::__NR_setitimer
        | n::__NR_setpriority
        | n::__NR_sched_setaffinity
        | n::__NR_ioprio_set
        | n::__NR_mlock2
        | n::__NR_mlockall
        | n::__NR_munlockall
        | n::__NR_mbind
        | n::__NR_set_mempolicy
        | n::__NR_sync
        | n::__NR_syncfs
        | n::__NR_membarrier => Outcome::Return(0),
        n::__NR_umask => overlay::set_mask(a[0] as u32),
        // Sleeping is over at once.
        n::__NR_sched_yield | n::__NR_nanosleep | n::__NR_clock_nanosleep => nothing_comes(),
        // A connection cannot be had; most programs go on without one.
        n::__NR_socket => runahead_kernel::Errno::EACCES.into(),

        n::__NR_futex => futex(a),
        // What has two ends, or tells of events, has nobody at the other end.
        n::__NR_pipe | n::__NR_pipe2 => pair(a[0]),
        n::__NR_socketpair => pair(a[3]),
        n::__NR_eventfd
        | n::__NR_eventfd2
        | n::__NR_epoll_create
        | n::__NR_epoll_create1
        | n::__NR_timerfd_create
        | n::__NR_inotify_init
        | n::__NR_inotify_init1 => sink().map_or(UNKNOWN, |number| Outcome::Return(number as isize)),
        n::__NR_epoll_ctl => Outcome::Return(0),
        n::__NR_timerfd_settime => zeros(a[3], if a[3] == 0 { 0 } else { 32 }, 0),
        n::__NR_poll => poll(a[0], a[1], a[2] as i32 == 0),
        n::__NR_ppoll => poll(a[0], a[1], false),
        n::__NR_epoll_wait | n::__NR_epoll_pwait if a[3] as i32 == 0 => nothing_comes(),
        n::__NR_exit | n::__NR_exit_group => Outcome::End(ended::EXIT),
        n::__NR_select
        | n::__NR_pselect6
        | n::__NR_epoll_wait
        | n::__NR_epoll_pwait
        | n::__NR_wait4
        | n::__NR_waitid
        | n::__NR_pause
        | n::__NR_rt_sigsuspend
        | n::__NR_rt_sigtimedwait => Outcome::End(ended::WAITS),
        _ => return None,
    })
}

/// Makes the call itself; `out`: memory that the kernel will write.
fn really(call: &Call, out: usize, bytes: usize) -> Outcome {
    if !room(out, bytes) {
        return UNKNOWN;
    }
    // SAFETY: a call that only asks; it writes mirror memory that is there.
    check(unsafe { syscall(call.number, call.arguments) }).into()
}

fn zeros(out: usize, bytes: usize, returned: isize) -> Outcome {
    const ZEROS: [u8; 144] = [0; 144];
    put_bytes(out, ZEROS.get(..bytes).unwrap_or(&ZEROS));
    Outcome::Return(returned)
}

/// Three numbers: what one call returns, and twice what another does (what was saved is mostly that).
fn three(a: [usize; 6], first: u32, others: u32) -> Outcome {
    for (out, number) in a.into_iter().zip([first, others, others]) {
        // SAFETY: a call that only asks, without arguments.
        let id = unsafe { syscall(number as usize, [0; 6]) } as u32;
        put(out, &id);
    }
    Outcome::Return(0)
}

fn is_itself(process: usize) -> bool {
    process as u32 == 0 || process as i64 == i64::from(mirror::process())
}

/// The program's parent (0), group (1) or session (2), as its `/proc/PID/stat` has them behind its name and
/// state.
fn relative(which: usize) -> Outcome {
    let Ok(fd) = files::open_at(process_directory(), c"stat", files::QUIETLY, 0) else { return UNKNOWN };
    let mut line = [0; 128];
    let length = files::read(fd, &mut line);
    let _ = files::close(fd);
    let line = line.get(..length.unwrap_or(0)).unwrap_or_default();
    let Some(end) = line.iter().rposition(|&byte| byte == b')') else { return UNKNOWN };
    let field = line.get(end..).unwrap_or_default().split(|&byte| byte == b' ').nth(2 + which);
    field.map_or(UNKNOWN, |digits| Outcome::Return(text::decimal(digits).0 as isize))
}

/// A new descriptor that can be written to.
fn sink() -> Option<i32> {
    TABLE.get().add(Descriptor::sink(), 0)
}

fn pair(out: usize) -> Outcome {
    let Some(ends) = sink().zip(sink()) else { return UNKNOWN };
    put(out, &[ends.0, ends.1]);
    Outcome::Return(0)
}

/// Who asks again and again whether something has come waits for it.
fn nothing_comes() -> Outcome {
    if run::asks_in_vain() { Outcome::End(ended::WAITS) } else { Outcome::Return(0) }
}

/// poll(2): files are always ready. `at_once`: it does not wait.
fn poll(out: usize, count: usize, at_once: bool) -> Outcome {
    const MOST: usize = 64;
    const READY: u16 = (n::POLLIN | n::POLLOUT) as u16;
    if count > MOST {
        return UNKNOWN;
    }
    let mut ready = 0;
    for index in 0..count {
        let place = out + index * size_of::<n::pollfd>();
        // SAFETY: plain numbers.
        let asked = unsafe { get::<n::pollfd>(place) };
        let is_file = match TABLE.get().get(asked.fd) {
            Some(Ok(entry)) => entry.kind == Kind::File,
            Some(Err(_)) => return UNKNOWN,
            None if asked.fd < 0 => false,
            None => return Outcome::End(ended::DESCRIPTOR),
        };
        let found = if is_file { asked.events & READY as i16 } else { 0 };
        ready += isize::from(found != 0);
        put(place, &n::pollfd { revents: found, ..asked });
    }
    match ready {
        0 if at_once => nothing_comes(),
        0 => Outcome::End(ended::WAITS),
        _ => Outcome::Return(ready),
    }
}

/// Nobody else runs in the mirror: waking wakes nobody, waiting would be for ever.
fn futex(a: [usize; 6]) -> Outcome {
    match a[1] as u32 & !(n::FUTEX_PRIVATE_FLAG | n::FUTEX_CLOCK_REALTIME) {
        n::FUTEX_WAKE | n::FUTEX_WAKE_BITSET => Outcome::Return(0),
        n::FUTEX_WAIT | n::FUTEX_WAIT_BITSET => {
            // SAFETY: one plain word.
            let value = unsafe { get::<u32>(a[0]) };
            if value != a[2] as u32 {
                return runahead_kernel::Errno::EAGAIN.into();
            }
            Outcome::End(ended::WAITS)
        }
        _ => UNKNOWN,
    }
}
