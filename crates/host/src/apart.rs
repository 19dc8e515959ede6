//! What a process beside the command does so that nobody finds it there.

use crate::run::Run;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Leaves what the command has: own session, no standard streams (but stderr, while something is to be said
/// there), no descriptors but the run's and `one_more`. Whoever waits for the command's pipes to close must
/// not wait for us.
pub(crate) fn leave_the_terminal(run: &Run, one_more: Option<RawFd>) {
    leave_real_time();
    let _ = rustix::process::setsid();
    if let Ok(null) = nowhere() {
        let last = if run.may_speak() { 1 } else { 2 };
        for stream in 0..=last {
            // SAFETY: replaces a standard stream of this process; nobody here uses it.
            unsafe { libc::dup2(null.as_raw_fd(), stream) };
        }
    }
    close_others(run.descriptors().into_iter().chain(one_more).collect());
    let _ = std::env::set_current_dir("/");
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM, libc::SIGPIPE] {
        // What ends the command must not end the report.
        // SAFETY: ignoring needs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    if run.wishes.trace.is_some() {
        // Where files may not grow (ulimit -f) the trace ends, and nothing else.
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    }
}

/// Leaves stderr as well, on which nothing more is to be said.
pub(crate) fn leave_stderr() {
    if let Ok(null) = nowhere() {
        // SAFETY: as in `leave_the_terminal`: it replaces a standard stream, which nobody here uses any more.
        unsafe { libc::dup2(null.as_raw_fd(), 2) };
    }
}

/// Where nothing comes from and nothing goes to: `/dev/null`, and in a room without one (a bare root, a
/// sandbox) a directory, of which nothing is read and to which nothing is written.
pub(crate) fn nowhere() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null").or_else(|_| File::open("/"))
}

/// Leaves the real-time classes, which a command started by chrt(1) is in: niceness does not count there, and
/// nobody of the same priority gets a processor back before what runs ahead gives it away. What is started
/// from here inherits it. The other classes stay as they are.
fn leave_real_time() {
    // musl's functions of these names only say that they cannot.
    // SAFETY: both concern the calling thread alone, which is the process's only one; the parameter lives.
    unsafe {
        let class = libc::syscall(libc::SYS_sched_getscheduler, 0);
        if [libc::SCHED_FIFO, libc::SCHED_RR].contains(&(class as i32 & !libc::SCHED_RESET_ON_FORK)) {
            let parameter: libc::sched_param = std::mem::zeroed();
            libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_OTHER, &raw const parameter);
        }
    }
}

/// Closes every descriptor but the standard ones and `keep`.
fn close_others(mut keep: Vec<i32>) {
    keep.sort_unstable();
    let mut next = 3;
    for fd in keep {
        close_range(next, fd - 1);
        next = fd + 1;
    }
    close_range(next, i32::MAX);
}

fn close_range(first: i32, last: i32) {
    if first <= last {
        // SAFETY: descriptors that nobody in this process uses any more.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}
