//! Clocks, identities, signals, waiting, and the end.

use super::{Outcome, UNKNOWN, get, overlay, put_bytes, room};
use crate::arch::Call;
use crate::mirror;
use crate::run::RUN;
use runahead_abi::session::ended;
use runahead_kernel::arch::syscall;
use runahead_kernel::check;
use runahead_kernel::uapi::general as n;

pub fn dispatch(call: &Call) -> Option<Outcome> {
    let a = call.arguments;
    Some(match call.number as u32 {
        // Questions with one answer for everybody, or with ours: same user, same limits.
        n::__NR_getuid | n::__NR_geteuid | n::__NR_getgid | n::__NR_getegid | n::__NR_sched_yield => {
            really(call, 0, 0)
        }
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

        n::__NR_getpid => Outcome::Return(mirror::process() as isize),
        n::__NR_gettid => Outcome::Return(RUN.get().thread as isize),

        // Private and without effect: speculation has no handlers of its own.
        n::__NR_rt_sigprocmask => zeros(a[2], if a[2] == 0 { 0 } else { a[3].min(128) }, 0),
        n::__NR_rt_sigaction => zeros(a[2], if a[2] == 0 { 0 } else { 32 }, 0),
        n::__NR_sigaltstack
        | n::__NR_set_robust_list
        | n::__NR_set_tid_address
        | n::__NR_alarm
        | n::__NR_setitimer
        | n::__NR_membarrier => Outcome::Return(0),
        n::__NR_umask => overlay::set_mask(a[0] as u32),
        // Sleeping is over at once.
        n::__NR_nanosleep | n::__NR_clock_nanosleep => Outcome::Return(0),
        // A connection cannot be had; most programs go on without one.
        n::__NR_socket => runahead_kernel::Errno::EACCES.into(),

        n::__NR_futex => futex(a),
        n::__NR_exit | n::__NR_exit_group => Outcome::End(ended::EXIT),
        n::__NR_poll
        | n::__NR_ppoll
        | n::__NR_select
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
