//! What we are started under, and the command with us, that leaves us nothing to do: it is said, and the
//! command runs plainly. (Filters that end whoever makes a call are [`crate::filter`]'s.)

use crate::room::Room;
use std::{fs, io};

/// `PR_GET_MDWE` (Linux 6.3), which the C library's headers do not know yet, and the bit of its answer that
/// says so.
const PR_GET_MDWE: libc::c_int = 66;
const REFUSE_EXEC_GAIN: libc::c_int = 1;

/// The least limit on the processes of a control group under which the command is not alone: what runs beside
/// it counts, which is up to some 80 (64 threads that look names up).
const PROCESSES_LEAST: u64 = 256;

/// Why there is nothing for us to do here.
pub fn confined_because() -> Option<&'static str> {
    if refuses_exec_gain() {
        return Some("memory that was written to may not be executed here (PR_SET_MDWE)");
    }
    if !may_read_processes() {
        return Some("the kernel lets no process be read by another (process_vm_readv)");
    }
    if Room::look().limit < PROCESSES_LEAST {
        return Some("the control group's limit on processes (pids.max) leaves no room for Runahead's own");
    }
    has_others_proc()
        .then_some("/proc is of another namespace of processes (mount -t proc proc /proc mends that)")
}

/// Whether this process and its children may execute nothing that was written to.
pub(crate) fn refuses_exec_gain() -> bool {
    // SAFETY: a question; other kernels answer -1.
    let deny = unsafe { libc::prctl(PR_GET_MDWE, 0, 0, 0, 0) };
    deny > 0 && deny & REFUSE_EXEC_GAIN != 0
}

/// Whether what is mounted at `/proc` numbers processes otherwise than we are numbered. (Where nothing
/// is, that is found out elsewhere.)
pub(crate) fn has_others_proc() -> bool {
    let ourselves = fs::read_link("/proc/self");
    ourselves.is_ok_and(|ourselves| ourselves.as_os_str() != std::process::id().to_string().as_str())
}

/// Whether the call that copies from a process is to be had. Of ourselves nothing else forbids it.
fn may_read_processes() -> bool {
    let (from, mut to) = (1u8, 0u8);
    let local = libc::iovec { iov_base: (&raw mut to).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: (&raw const from).cast_mut().cast(), iov_len: 1 };
    // SAFETY: both pieces are a byte of ours.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    let error = io::Error::last_os_error().raw_os_error();
    copied == 1 || !matches!(error, Some(libc::EPERM | libc::ENOSYS | libc::EACCES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_not_confined() {
        assert_eq!(confined_because(), None);
    }
}
