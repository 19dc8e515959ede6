//! What helps against what is in the way: one table for the doctor, for `--stats` and for the launcher.
//!
//! Text only. A remedy is a command to paste or the one thing that would help; where nothing helps there is
//! none.

use std::path::Path;

/// What decides which remedy helps.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Filters of system calls that we are under.
    pub filters: u32,
    pub in_container: bool,
    /// Started by a service manager, as its environment says.
    pub in_service: bool,
}

impl Surroundings {
    pub fn look(filters: u32) -> Surroundings {
        let set = |name: &str| std::env::var_os(name).is_some();
        let marked = ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists());
        Surroundings {
            filters,
            in_container: marked || set("container") || has_own_processes(),
            in_service: set("INVOCATION_ID"),
        }
    }
}

/// Whether our namespace of processes is not the machine's first, whose number is always the same (the
/// kernel's `include/linux/proc_ns.h`).
fn has_own_processes() -> bool {
    const FIRST: &str = "pid:[4026531836]";
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|space| space.as_os_str() != FIRST)
}

/// What lets system call `name` through the filter that refuses it.
pub fn without_filter(name: &str, around: &Surroundings) -> String {
    if around.in_container {
        return "docker (or podman) run --security-opt seccomp=unconfined ...".to_owned();
    }
    if around.in_service {
        return format!("systemctl edit UNIT, and there: [Service] SystemCallFilter={name}");
    }
    format!("a filter (seccomp) that allows {name}, which only who sets it up can give")
}

/// A filter that ends who makes a call: it must answer instead.
pub fn with_errors(around: &Surroundings) -> String {
    match around.in_container {
        true => without_filter("", around),
        false => "in a service's unit: [Service] SystemCallErrorNumber=EPERM".to_owned(),
    }
}

/// Who forbids that memory which was written to is executed.
pub const EXECUTE_WRITTEN: &str = "in a service's unit: [Service] MemoryDenyWriteExecute=no";

pub const PARANOID: &str = "sudo sysctl kernel.perf_event_paranoid=2";
pub const AS_ROOT: &str = "sudo runahead run -- COMMAND";
pub const OTHER_LOADER: &str = "link it statically, or with glibc";
pub const WIDE: &str = "use its 64-bit build";
pub const MOUNT_PROC: &str = "mount -t proc proc /proc   (or: unshare --mount-proc ...)";
pub const SWITCH: &str = "unset RUNAHEAD";
pub const UNTRACED: &str = "start it without the tracer";
pub const INSTALL: &str = "./x install   (in Runahead's checkout)";

/// More memory, of a control group's or the machine's.
pub fn more_memory(is_group: bool, around: &Surroundings) -> &'static str {
    match (is_group, around.in_container) {
        (true, true) => "docker (or podman) run --memory 1g ...",
        (true, false) => "systemctl set-property UNIT MemoryMax=1G",
        (false, _) => "end what uses it: ps --sort=-rss -eo rss,pid,comm | head",
    }
}

/// More processes, of a control group's.
pub fn more_processes(around: &Surroundings) -> &'static str {
    match around.in_container {
        true => "docker (or podman) run --pids-limit 4096 ...",
        false => "systemctl set-property UNIT TasksMax=4096",
    }
}

/// What helps where a report names this reason for a run that was plain or was left alone; none if nothing
/// does, or nothing is known of it.
pub fn of(reason: &str, around: &Surroundings) -> Option<String> {
    let has = |word: &str| reason.contains(word);
    let ptrace = || {
        match around.filters {
        0 => "sudo sysctl kernel.yama.ptrace_scope=1   (or, if another user's or a privileged one: sudo runahead run -- COMMAND)".to_owned(),
        _ => without_filter("ptrace", around),
    }
    };
    let told = match () {
        () if has("RUNAHEAD=off") => SWITCH.to_owned(),
        () if has("(seccomp) ends") || has("filter of system calls allows") => with_errors(around),
        () if has("32-bit") => WIDE.to_owned(),
        () if has("loader is not glibc's") => OTHER_LOADER.to_owned(),
        () if has("not be traced") || has("statically linked") => ptrace(),
        () if has("other rights") || has("gave up rights") => {
            format!("{AS_ROOT}   (or as the user that it becomes)")
        }
        () if has("traced or filtered at its start") => {
            "start it without a tracer (strace, gdb); if it is setuid: sudo runahead run -- COMMAND"
                .to_owned()
        }
        () if has("PR_SET_MDWE") => EXECUTE_WRITTEN.to_owned(),
        () if has("perf_event_open") => match around.filters {
            0 => PARANOID.to_owned(),
            _ => without_filter("perf_event_open", around),
        },
        () if has("process_vm_readv") || has("/proc/PID/pagemap") => {
            without_filter("process_vm_readv", around)
        }
        () if has("process_madvise") => AS_ROOT.to_owned(),
        () if has("namespace of processes") => MOUNT_PROC.to_owned(),
        () if has("ulimit -") => {
            let option = reason.split_once("ulimit -").and_then(|(_, rest)| rest.chars().next());
            format!("ulimit -{} unlimited", option.unwrap_or('v'))
        }
        () if has("all but used up") || has("no room for it in memory") => {
            more_memory(true, around).to_owned()
        }
        () if has("pids.max") => more_processes(around).to_owned(),
        () if has("the next run") => "run it once more".to_owned(),
        () if has("written a moment ago") => "run it once more, in a second".to_owned(),
        () if has("processes") && has("limit") => "ulimit -u unlimited".to_owned(),
        () if has("librunahead_agent.so") => INSTALL.to_owned(),
        () => return None,
    };
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_mended_by_who_set_it_up() {
        let container = Surroundings { filters: 1, in_container: true, in_service: false };
        let service = Surroundings { filters: 1, in_container: false, in_service: true };
        let reason = "the kernel does not show them (perf_event_open): Operation not permitted; \
                      nor what is present (/proc/PID/pagemap): Permission denied";
        assert!(of(reason, &container).unwrap().contains("docker"));
        assert!(of(reason, &service).unwrap().contains("SystemCallFilter=perf_event_open"));
        assert_eq!(of(reason, &Surroundings::default()).unwrap(), PARANOID);
    }

    #[test]
    fn a_limit_names_its_own_option() {
        let reason = "the limit on file sizes (ulimit -f) leaves no room for shared memory";
        assert_eq!(of(reason, &Surroundings::default()).unwrap(), "ulimit -f unlimited");
        let reason = "the control group's limit on processes (pids.max) leaves no room for Runahead's own";
        assert_eq!(
            of(reason, &Surroundings::default()).unwrap(),
            "systemctl set-property UNIT TasksMax=4096"
        );
        assert_eq!(of("a reason that nobody knows", &Surroundings::default()), None);
    }
}
