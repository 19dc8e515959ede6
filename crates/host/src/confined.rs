//! What we are started under, and the command with us, that leaves us nothing to do: it is said, and the
//! command runs plainly. (Filters that end whoever makes a call are [`crate::filter`]'s.)

use std::path::Path;
use std::{fs, io};

/// `PR_GET_MDWE` (Linux 6.3), which the C library's headers do not know yet, and the bit of its answer that
/// says so.
const PR_GET_MDWE: libc::c_int = 66;
const REFUSE_EXEC_GAIN: libc::c_int = 1;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

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
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if limits_of_processes(&groups, Path::new(GROUPS)).iter().any(|limit| *limit < PROCESSES_LEAST) {
        return Some("the control group's limit on processes (pids.max) leaves no room for Runahead's own");
    }
    has_others_proc()
        .then_some("/proc is of another namespace of processes (mount -t proc proc /proc mends that)")
}

/// `pids.max` of each control group that `lines` (of `/proc/self/cgroup`) name, and of those above it. Inside a
/// container the path may be the host's, and our group is what is mounted.
fn limits_of_processes(lines: &str, groups: &Path) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in lines.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let mounted = match controllers {
            "" => groups.to_path_buf(),
            _ if controllers.split(',').any(|name| name == "pids") => groups.join("pids"),
            _ => continue,
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let limit = fs::read_to_string(mounted.join(group).join("pids.max"));
            limits.extend(limit.ok().and_then(|limit| limit.trim().parse::<u64>().ok()));
        }
    }
    limits
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
    fn limits_of_processes_are_those_of_the_own_group_and_all_above() {
        let groups = std::env::temp_dir().join(format!("runahead-groups-{}", std::process::id()));
        let put = |group: &str, limit: &str| {
            fs::create_dir_all(groups.join(group)).expect("a group");
            fs::write(groups.join(group).join("pids.max"), limit).expect("its limit");
        };
        let limits = |lines| limits_of_processes(lines, &groups);
        assert!(limits("0::/a/b\n").is_empty());
        put("a", "100\n");
        put("a/b", "max\n");
        assert_eq!(limits("0::/a/b\n"), [100]);
        put("pids", "12\n");
        assert_eq!(limits("4:memory:/a\n8:pids:/of/the/host\n"), [12]);
        put("pids/c", "30\n");
        assert_eq!(limits("8:cpu,pids:/c\n"), [30, 12]);
        fs::remove_dir_all(&groups).expect("the groups go again");
    }

    #[test]
    fn a_test_is_not_confined() {
        assert_eq!(confined_because(), None);
    }
}
