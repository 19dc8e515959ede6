//! What the kernel tells of a process: whether it is one of the run's, what it may write, whether it is over.

use crate::report::ProgramCounts;
use runahead_abi::environment::Cookie;
use runahead_abi::session::Slot;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::Ordering;

/// What a process is that a slot's owner word names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// One of the program's, and ready to be served.
    Program,
    /// Claimed, but the agent has not filled it in yet.
    NotReady,
    /// Another process than the one that claimed the slot: process ids mean other processes in a pid
    /// namespace of the program's own, and the word may be garbage. We must not wait for its end.
    Stranger,
    /// One that may not be looked into. Nobody acts for it, but what it has counted is counted.
    Unreadable,
}

/// Offset of the cookie in the agent's state page (`agent::state::Fixed`); the session's is behind it.
const COOKIE_AT: u64 = 16;

/// Finds out by the agent's cookie, which the slot tells and the process has in its memory, and by the
/// session's behind it, which stands in the memory of the run's processes only.
pub(crate) fn standing(process: u32, slot: &Slot, session: Cookie) -> Standing {
    let address = slot.agent.state_address.load(Ordering::Acquire);
    if address == 0 {
        return Standing::NotReady;
    }
    match look_for(process, address, session) {
        Ok(cookie) if cookie == Some(slot.agent.state_cookie.load(Ordering::Relaxed)) => Standing::Program,
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Standing::Unreadable,
        _ => Standing::Stranger,
    }
}

/// Whether there is a process of this number that has not ended.
pub(crate) fn is_there(process: u32) -> bool {
    let handle = pid_of(process).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    handle.is_some_and(|handle| !has_ended(&handle))
}

/// Whether a process has the agent of this session in it, with its state page at `address`.
pub(crate) fn carries(process: u32, address: u64, session: Cookie) -> bool {
    address != 0 && matches!(look_for(process, address, session), Ok(Some(_)))
}

/// The cookie of the state page at `address` of a process, if this session's stands behind it. Fails where
/// nothing can be read.
fn look_for(process: u32, address: u64, session: Cookie) -> io::Result<Option<u64>> {
    let mut words = [0u64; 3];
    let local = libc::iovec { iov_base: (&raw mut words).cast(), iov_len: size_of_val(&words) };
    let remote = libc::iovec {
        iov_base: address.wrapping_add(COOKIE_AT) as *mut libc::c_void,
        iov_len: size_of_val(&words),
    };
    // SAFETY: the local piece is our own words; the kernel checks the remote one.
    let got = unsafe { libc::process_vm_readv(process as libc::pid_t, &local, 1, &remote, 1, 0) };
    if got != size_of_val(&words) as isize {
        return Err(io::Error::last_os_error());
    }
    let [cookie, first, second] = words;
    Ok(([first, second] == session).then_some(cookie))
}

/// What a process has computed, ns (the kernel's Documentation/scheduler/sched-stats.rst).
pub(crate) fn processor_time(process: u32) -> Option<u64> {
    let line = std::fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    line.split_whitespace().next()?.parse().ok()
}

/// What the kernel has counted of a process and of its children that it has waited for (proc(5), `stat` and
/// `io`).
pub(crate) fn counted(process: u32) -> Option<ProgramCounts> {
    let told = Stat::of(process).ok()?;
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let ticks_ns = told.ticks.saturating_mul(tick_ns);
    // Of its first thread alone, but exactly.
    let exact = std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
    let mut exact = exact.split_whitespace().map(|number| number.parse().unwrap_or(0));
    let (ran, queued) = (exact.next().unwrap_or(0), exact.next().unwrap_or(0));
    let io = std::fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    let bytes = io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok());
    Some(ProgramCounts {
        processor_ns: ticks_ns.max(ran),
        queued_ns: queued,
        major_faults: told.major_faults,
        device_bytes: bytes.unwrap_or(0),
        read_ahead_bytes: read_ahead(),
    })
}

/// What the kernel brings in at most for one read or page fault that waits, of the file system with the most
/// (its Documentation/ABI/testing/sysfs-class-bdi); 0 where it does not tell.
fn read_ahead() -> u64 {
    let systems = std::fs::read_dir("/sys/class/bdi").into_iter().flatten().flatten();
    let told = systems.filter_map(|system| std::fs::read_to_string(system.path().join("read_ahead_kb")).ok());
    told.filter_map(|text| text.trim().parse::<u64>().ok()).max().unwrap_or(0).saturating_mul(1024)
}

/// Whether a process may have the session, or a part of it, in its memory.
pub(crate) fn may_write(process: u32) -> bool {
    // What may not be looked into has perhaps executed a program that is allowed more than its user,
    // which leaves nothing of what it had. Root's has not: there is no more.
    has_session(process).unwrap_or_else(|| {
        let status = |process: &str| std::fs::read_to_string(format!("/proc/{process}/status"));
        match (status("self"), status(&process.to_string())) {
            (Ok(ours), Ok(its)) => effective_user() == 0 || !has_gained(&ours, &its),
            _ => true,
        }
    })
}

/// Whether a process is there that may yet want something of a session that this process attends. A number
/// alone says little: it may be garbage, or another process's by now, one that never ends even. Who may not
/// be looked into has to be younger than this process at least.
pub(crate) fn may_ask(process: u32) -> bool {
    let is_younger = || start_of(process) >= start_of(std::process::id());
    is_there(process) && has_session(process).unwrap_or_else(is_younger)
}

/// Whether a process has the session, or a part of it, in its memory; none if it may not be looked into.
pub(crate) fn has_session(process: u32) -> Option<bool> {
    let maps = std::fs::read(format!("/proc/{process}/maps")).ok()?;
    // A deleted file of that name in the root folder looks the same, and is taken for it.
    let name = b"/memfd:runahead-session (deleted)\n";
    Some(maps.split_inclusive(|&byte| byte == b'\n').any(|line| line.ends_with(name)))
}

fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether the second process is another user, or has a capability that the first has not, by their `status`
/// (proc(5)).
fn has_gained(ours: &str, its: &str) -> bool {
    let line = |status: &str, name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
    };
    let user = |status: &str| line(status, "Uid:").split_whitespace().nth(1).map(str::to_owned);
    let capabilities = |status: &str| u64::from_str_radix(&line(status, "CapPrm:"), 16).unwrap_or(0);
    user(ours) != user(its) || capabilities(its) & !capabilities(ours) != 0
}

/// Whether a process that may not be read can be one of the program's: of our user, and not older than the
/// command's own process, `main`.
pub(crate) fn may_be_the_programs(process: u32, main: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(format!("/proc/{process}"));
    found.is_ok_and(|entry| entry.uid() == rustix::process::geteuid().as_raw())
        && start_of(process).is_some_and(|start| start_of(main).is_some_and(|began| start >= began))
}

fn start_of(process: u32) -> Option<u64> {
    Stat::of(process).ok().map(|told| told.start)
}

/// What the kernel tells of a process in one line (proc(5), `stat`).
pub(crate) struct Stat {
    /// Field 4: who has started it, or has it since that one has ended.
    pub parent: u32,
    /// Field 22: when it was started, in clock ticks since the machine's start.
    pub start: u64,
    /// Fields 12 and 13: its page faults that waited for a disk, and those of its children that it has waited
    /// for.
    pub major_faults: u64,
    /// Fields 14 to 17: clock ticks that it has computed, and those children.
    pub ticks: u64,
}

impl Stat {
    /// An error if there is no such process.
    pub(crate) fn of(process: u32) -> io::Result<Stat> {
        Stat::read(&std::fs::read(format!("/proc/{process}/stat"))?).ok_or(io::ErrorKind::InvalidData.into())
    }

    fn read(line: &[u8]) -> Option<Stat> {
        // The name, field 2, may hold any bytes: it ends at the last parenthesis.
        let end = line.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(line.get(end + 1..)?).ok()?;
        let fields: Vec<u64> = rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Stat {
            parent: field(4)? as u32,
            start: field(22)?,
            major_faults: field(12)? + field(13)?,
            ticks: (14..=17).filter_map(field).sum(),
        })
    }
}

/// A process id, if the number can be one.
pub(crate) fn pid_of(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

/// Whether it has ended.
pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    let mut set = [PollFd::new(process, PollFlags::IN)];
    match poll(&mut set, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(ready) => ready > 0,
        Err(Errno::INTR) => false,
        // A filter of system calls keeps us from asking. Nobody is waited for of whom it cannot be found out.
        Err(_) => {
            let (process, nothing) = (process.as_raw_fd(), ptr::null::<libc::siginfo_t>());
            // SAFETY: asks whether a signal could be sent, and sends none.
            let asked = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, 0, nothing, 0) };
            asked != 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EPERM)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let line = b"7 (a) b\xe9 (1 2) S 5 7 7 0 -1 4 10 11 12 13 14 15 16 17 20 0 1 0 2200 23";
        let told = Stat::read(line).unwrap();
        assert_eq!((told.parent, told.start, told.major_faults, told.ticks), (5, 2200, 25, 62));
        assert!(Stat::read(b"7 (a) S 5").is_none() && Stat::read(b"").is_none());
    }

    #[test]
    fn who_is_another_user_or_has_a_capability_more_has_gained() {
        let ours = "Name:\tcat\nUid:\t1000\t1000\t1000\t1000\nCapPrm:\t0000000000000010\n";
        assert!(!has_gained(ours, ours));
        assert!(!has_gained(ours, &ours.replace("10\n", "00\n")), "one capability fewer");
        assert!(has_gained(ours, &ours.replace("10\n", "11\n")));
        assert!(has_gained(ours, &ours.replace("1000\t1000\t1000\t1000", "1000\t0\t0\t0")));
        assert!(!has_gained(ours, &ours.replace("Uid:\t1000", "Uid:\t1001")), "the effective one counts");
    }
}
