//! The machine.

use super::{about, size, without_filter};
use crate::doctor::facts::machine::{
    Broken, Memory, Mirror, Peers, Proc, Release, Resources, Standing, Surroundings,
};
use crate::doctor::line::{Line, errno};
use crate::reasons;
use runahead_remedies as remedies;
use runahead_remedies::EXECUTE_WRITTEN;
use std::path::{Path, PathBuf};

/// The oldest kernel on which Runahead was tried.
const OLDEST: (u32, u32) = (5, 10);

pub fn kernel(release: Release) -> Line {
    let Release { major, minor, text, machine } = release;
    let found = format!("Linux {text}, {machine}");
    if (major, minor) < OLDEST {
        let (major, minor) = OLDEST;
        let line =
            Line::limits(about::KERNEL, format!("{found}: nothing before {major}.{minor} was ever tried"));
        return line.mended_by(format!("a kernel of {major}.{minor} or newer"));
    }
    Line::ok(about::KERNEL, found)
}

/// Nothing is said of what is as usual.
pub fn standing(standing: &Standing) -> Vec<Line> {
    let mut lines = Vec::new();
    if standing.is_off {
        let line = Line::stops(about::SWITCH, "RUNAHEAD=off in the environment: commands run plainly");
        lines.push(line.mended_by(remedies::SWITCH));
    }
    if let Some(tracer) = standing.tracer {
        let found = format!("process {tracer} traces this one (strace, gdb): what is traced runs plainly");
        lines.push(Line::stops(about::TRACED, found).mended_by(remedies::UNTRACED));
    }
    match standing.proc {
        Proc::Own => {}
        Proc::Others => {
            let line = Line::stops(about::PROC, "it is of another namespace of processes");
            lines.push(line.mended_by(remedies::MOUNT_PROC));
        }
        Proc::None => {
            let line = Line::stops(about::PROC, "nothing is mounted there");
            lines.push(line.mended_by("mount -t proc proc /proc"));
        }
    }
    if standing.has_odd_rights {
        let line = Line::stops(about::RIGHTS, "too many groups: who is in about a thousand runs plainly");
        lines.push(line.mended_by("setpriv --clear-groups runahead run -- COMMAND   (as root)"));
    }
    if standing.refuses_exec_gain {
        let found = "memory that was written to may not be executed here (PR_SET_MDWE)";
        let line = Line::stops(about::MIRROR, found);
        lines.push(line.mended_by(EXECUTE_WRITTEN));
    }
    lines
}

pub fn installation(found: Result<PathBuf, Broken>) -> Line {
    const AGAIN: &str = remedies::INSTALL;
    let (found, remedy) = match found {
        Ok(folder) => {
            let found = format!("agent and speculator in {}", folder.display());
            return Line::ok(about::INSTALLATION, found);
        }
        Err(Broken::Missing(why)) => (why, Some(AGAIN.to_owned())),
        Err(Broken::Agent(path, number)) => unusable("agent", &path, number, "a+r", AGAIN),
        Err(Broken::Speculator(path, number)) => unusable("speculator", &path, number, "a+rx", AGAIN),
        Err(Broken::NotMapped(path, number)) => {
            let found =
                format!("the agent may not be mapped as code ({}): {}", errno(number), path.display());
            let remount = format!("sudo mount -o remount,exec {}", mount_of(&path));
            (found, (number == libc::EPERM).then_some(remount))
        }
    };
    Line::stops(about::INSTALLATION, found).perhaps_mended_by(remedy)
}

/// What to say of a file that cannot be used, and what mends it.
fn unusable(what: &str, path: &Path, number: i32, mode: &str, again: &str) -> (String, Option<String>) {
    let path = path.display();
    let found = match number {
        libc::EIO => format!("what is called so is not Runahead's {what}: {path}"),
        number => format!("the {what} cannot be used ({}): {path}", errno(number)),
    };
    let remedy = match number {
        libc::EACCES => Some(format!("chmod {mode} {path}")),
        libc::EIO | libc::ENOEXEC | libc::ENOENT => Some(again.to_owned()),
        _ => None,
    };
    (found, remedy)
}

/// For a remedy: which mount that is, the shell finds out.
fn mount_of(path: &Path) -> String {
    format!("$(findmnt -no TARGET -T {})", path.display())
}

pub fn filters(allowed: Result<(), String>, around: &Surroundings) -> Vec<Line> {
    let count = around.filters;
    match allowed {
        Ok(()) if count == 0 => Vec::new(),
        Ok(()) => {
            vec![Line::ok(
                about::FILTERS,
                format!("{count} (seccomp): none ends a process for a call of Runahead's"),
            )]
        }
        Err(why) => {
            let line = Line::stops(about::FILTERS, format!("{why}; nothing else was looked at"));
            vec![line.mended_by(remedies::with_errors(around))]
        }
    }
}

pub fn resources(resources: Resources) -> Line {
    if let Some(needed) = resources.too_low {
        // In KB; of files some shells count blocks of half as much.
        let unit = if needed.option == 'f' { 512 } else { 1024 };
        let found = format!("{}; nothing else was looked at", needed.reason);
        let line = Line::stops(about::RESOURCES, found);
        return line.mended_by(match resources.may_be_raised {
            true => format!("ulimit -{} {}", needed.option, needed.least.div_ceil(unit)),
            false => format!("sudo prlimit --pid $$ --{}={}", needed.long, needed.least),
        });
    }
    match resources.addresses {
        None => Line::ok(about::RESOURCES, "no limit is too low"),
        Some(bytes) => {
            let found = format!(
                "addresses are limited to {} (ulimit -v): it must hold the program twice and 80 MB",
                size(bytes)
            );
            let most = resources.addresses_most;
            Line::limits(about::RESOURCES, found).mended_by(match most {
                None => "ulimit -v unlimited",
                Some(_) => "sudo prlimit --pid $$ --as=unlimited",
            })
        }
    }
}

pub fn shared(made: Result<(), i32>, around: &Surroundings) -> Line {
    match made {
        Ok(()) => Line::ok(about::SHARED, "memfd_create"),
        Err(number) => {
            let line =
                Line::stops(about::SHARED, format!("none can be had (memfd_create: {})", errno(number)));
            let is_filtered = around.filters > 0 && matches!(number, libc::EPERM | libc::ENOSYS);
            line.perhaps_mended_by(is_filtered.then(|| without_filter("memfd_create", around)))
        }
    }
}

pub fn mirror(mirror: &Mirror, around: &Surroundings) -> Line {
    let userfault = match mirror.userfault {
        Ok(()) => "userfaultfd".to_owned(),
        Err(number) => format!("no userfaultfd ({})", errno(number)),
    };
    if let Err(number) = mirror.may_execute_written {
        let found = format!("memory that was written to may not be executed ({})", errno(number));
        let line = Line::stops(about::MIRROR, format!("{found}: there is no speculation"));
        return line.perhaps_mended_by((around.filters > 0).then_some(EXECUTE_WRITTEN));
    }
    match (mirror.userfault, mirror.has_guards) {
        (Ok(()), _) => Line::ok(about::MIRROR, "by userfaultfd"),
        (Err(_), true) => Line::ok(about::MIRROR, format!("by guard pages, which do as well; {userfault}")),
        (Err(number), false) => {
            let found = format!("by protection, which costs more a page; {userfault}, no guard pages");
            Line::limits(about::MIRROR, found).perhaps_mended_by(for_userfault(number, mirror, around))
        }
    }
}

fn for_userfault(number: i32, mirror: &Mirror, around: &Surroundings) -> Option<String> {
    match number {
        _ if around.filters > 0 => Some(without_filter("userfaultfd", around)),
        // Kernels without UFFD_USER_MODE_ONLY (Linux 5.11) give it to root, or to everybody.
        libc::EPERM if mirror.unprivileged == Some(0) => {
            Some("sudo sysctl vm.unprivileged_userfaultfd=1".to_owned())
        }
        _ => None,
    }
}

/// What processes may do to each other, a line for each thing that is worth one.
pub fn peers(peers: &Peers, around: &Surroundings) -> Vec<Line> {
    vec![reading(peers, around), tracing(peers, around), faults(peers, around), swap(peers)]
}

/// Yama's scopes (the kernel's Documentation/admin-guide/LSM/Yama.rst) beyond which nobody but root, or
/// nobody, looks into another process.
const ROOT_ONLY: i64 = 2;

fn for_ptrace(name: &str, peers: &Peers, around: &Surroundings) -> Option<String> {
    match peers.yama {
        Some(ROOT_ONLY) => Some("sudo sysctl kernel.yama.ptrace_scope=1".to_owned()),
        // It stays until the machine starts again.
        Some(scope) if scope > ROOT_ONLY => {
            Some("start the machine with kernel.yama.ptrace_scope=1".to_owned())
        }
        _ if around.filters > 0 => Some(without_filter(name, around)),
        _ => None,
    }
}

fn yama(peers: &Peers) -> String {
    match peers.yama {
        Some(scope) if scope >= ROOT_ONLY => format!(", kernel.yama.ptrace_scope is {scope}"),
        _ => String::new(),
    }
}

fn reading(peers: &Peers, around: &Surroundings) -> Line {
    let refused = match (peers.read, peers.pagemap) {
        (Ok(()), Ok(())) => {
            return Line::ok(about::READING, "may be read by each other, where they have the same rights");
        }
        (Err(number), _) => format!("none may be read by another (process_vm_readv: {}", errno(number)),
        (Ok(()), Err(number)) => {
            format!("none tells what memory it has (/proc/PID/pagemap: {}", errno(number))
        }
    };
    let found = format!("{refused}{}): there is no speculation", yama(peers));
    Line::stops(about::READING, found).perhaps_mended_by(for_ptrace("process_vm_readv", peers, around))
}

fn tracing(peers: &Peers, around: &Surroundings) -> Line {
    match peers.trace {
        Ok(()) => {
            Line::ok(about::TRACING, "allowed: static programs, and cleared environments, gain as well")
        }
        Err(number) => {
            let why = format!("ptrace: {}{}", errno(number), yama(peers));
            let found = format!("not allowed ({why}): static programs run plainly");
            Line::limits(about::TRACING, found).perhaps_mended_by(for_ptrace("ptrace", peers, around))
        }
    }
}

/// The greatest `kernel.perf_event_paranoid` at which everybody may see the faults of his own processes.
const PARANOID_MOST: i64 = 2;

fn faults(peers: &Peers, around: &Surroundings) -> Line {
    let Err(number) = peers.faults else {
        return Line::ok(about::FAULTS, "seen: mapped files are prefetched as well");
    };
    let is_paranoid = peers.paranoid.is_some_and(|paranoid| paranoid > PARANOID_MOST);
    let setting = match peers.paranoid {
        Some(paranoid) if is_paranoid => format!(", kernel.perf_event_paranoid is {paranoid}"),
        _ => String::new(),
    };
    let why = format!("perf_event_open: {}{setting}", errno(number));
    let found = match peers.pagemap {
        Ok(()) => format!(
            "not shown ({why}), but what they leave is: mapped scans and strides gain, other places seldom"
        ),
        Err(_) => format!("not seen ({why}): mapped files gain nothing, reads do"),
    };
    let remedy = match number {
        libc::EACCES if is_paranoid => Some(remedies::PARANOID.to_owned()),
        libc::EPERM | libc::ENOSYS | libc::EACCES if around.filters > 0 => {
            Some(without_filter("perf_event_open", around))
        }
        _ => None,
    };
    Line::limits(about::FAULTS, found).perhaps_mended_by(remedy)
}

fn swap(peers: &Peers) -> Line {
    match peers.swap_in {
        _ if peers.swap == 0 => Line::ok(about::SWAP, "the machine has none"),
        Ok(()) => Line::ok(about::SWAP, format!("{}: what is there is brought in ahead", size(peers.swap))),
        Err(number) => {
            let why = format!("process_madvise: {}", errno(number));
            let line = Line::limits(about::SWAP, format!("what is there is not brought in ahead ({why})"));
            line.perhaps_mended_by((number == libc::EPERM).then_some(remedies::AS_ROOT))
        }
    }
}

pub fn cachestat(told: Result<(), i32>, around: &Surroundings) -> Line {
    match told {
        Ok(()) => Line::ok(about::CACHE, "tells what is cached"),
        Err(number) => {
            let why = errno(number);
            let found = format!("none ({why}; since Linux 6.5): reads on FUSE gain nothing, others do");
            let filtered = (around.filters > 0).then(|| without_filter("cachestat", around));
            Line::limits(about::CACHE, found).mended_by(filtered.unwrap_or("Linux 6.5 or newer".to_owned()))
        }
    }
}

pub fn memory(memory: &Memory, around: &Surroundings) -> Line {
    let what = if memory.is_group { "the control group's" } else { "the machine's" };
    let found = format!("{} free of {what} {}", size(memory.free), size(memory.limit));
    let remedy = remedies::more_memory(memory.is_group, around);
    if memory.at_the_edge {
        Line::stops(about::MEMORY, format!("{found}: {}", reasons::MEMORY_SHORT)).mended_by(remedy)
    } else if runahead_prefetch::budget::is_short(memory.limit, memory.free) {
        Line::limits(about::MEMORY, format!("{found}: little is prefetched")).mended_by(remedy)
    } else {
        Line::ok(about::MEMORY, found)
    }
}

pub fn known(kept: Result<PathBuf, Option<String>>) -> Line {
    match kept {
        Ok(path) => Line::ok(about::KNOWN, format!("{} keeps what is known of programs", path.display())),
        Err(why) => {
            let why = why.map_or(String::new(), |why| format!(" ({why})"));
            let found =
                format!("kept nowhere{why}: each run looks its programs through anew, 10 ms and more");
            Line::limits(about::KNOWN, found)
                .mended_by("export XDG_CACHE_HOME=$(mktemp -d)   (any folder of yours)")
        }
    }
}

pub fn processors(count: u32) -> Line {
    match count {
        1 => Line::ok(about::PROCESSORS, "1: speculation runs while the program waits, and only then"),
        _ => Line::ok(about::PROCESSORS, count.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::line::Verdict;
    use crate::launch::NEEDED;

    fn remedy(line: &Line) -> &str {
        line.remedy.as_deref().unwrap_or("")
    }

    fn open() -> Surroundings {
        Surroundings::default()
    }

    fn container() -> Surroundings {
        Surroundings { filters: 1, in_container: true, ..open() }
    }

    fn service() -> Surroundings {
        Surroundings { filters: 2, in_service: true, ..open() }
    }

    fn allowed() -> Peers {
        Peers {
            read: Ok(()),
            pagemap: Ok(()),
            faults: Ok(()),
            trace: Ok(()),
            swap_in: Ok(()),
            yama: None,
            paranoid: Some(2),
            swap: 0,
        }
    }

    #[test]
    fn old_kernels_limit() {
        let release = |major, minor| Release { major, minor, ..Release::default() };
        assert_eq!(kernel(release(5, 10)).verdict, Verdict::Ok);
        assert_eq!(kernel(release(6, 0)).verdict, Verdict::Ok);
        let old = kernel(release(5, 9));
        assert_eq!((old.verdict, remedy(&old)), (Verdict::Limits, "a kernel of 5.10 or newer"));
    }

    #[test]
    fn nothing_is_said_of_what_is_as_usual() {
        assert_eq!(super::standing(&Standing::default()), []);
        assert_eq!(filters(Ok(()), &open()), []);
    }

    #[test]
    fn whatever_a_run_minds_of_its_surroundings_stops() {
        let usual = Standing::default;
        for (standing, about, helps) in [
            (Standing { is_off: true, ..usual() }, about::SWITCH, "unset RUNAHEAD"),
            (Standing { tracer: Some(7), ..usual() }, about::TRACED, "without the tracer"),
            (Standing { proc: Proc::Others, ..usual() }, about::PROC, "mount -t proc"),
            (Standing { proc: Proc::None, ..usual() }, about::PROC, "mount -t proc"),
            (Standing { has_odd_rights: true, ..usual() }, about::RIGHTS, "--clear-groups"),
            (Standing { refuses_exec_gain: true, ..usual() }, about::MIRROR, "MemoryDenyWriteExecute=no"),
        ] {
            let lines = super::standing(&standing);
            let [line] = &lines[..] else { panic!("{standing:?}: {lines:?}") };
            assert_eq!((&line.about[..], line.verdict), (about, Verdict::Stops));
            assert!(remedy(line).contains(helps), "{line:?}");
        }
    }

    #[test]
    fn files_of_ours_that_cannot_be_used_stop_and_each_is_mended_in_its_way() {
        assert_eq!(installation(Ok("/opt/lib".into())).verdict, Verdict::Ok);
        let path = || PathBuf::from("/opt/x");
        for (broken, helps) in [
            (Broken::Missing("gone".into()), "./x install"),
            (Broken::Agent(path(), libc::EACCES), "chmod a+r /opt/x"),
            (Broken::Agent(path(), libc::EIO), "./x install"),
            (Broken::NotMapped(path(), libc::EPERM), "remount,exec"),
            (Broken::Speculator(path(), libc::EACCES), "chmod a+rx /opt/x"),
            (Broken::Speculator(path(), libc::EMFILE), ""),
        ] {
            let line = installation(Err(broken));
            assert_eq!(line.verdict, Verdict::Stops);
            assert!(remedy(&line).contains(helps) && (helps.is_empty() == line.remedy.is_none()), "{line:?}");
        }
    }

    #[test]
    fn filters_that_end_processes_stop_and_others_are_fine() {
        let [fine] = &filters(Ok(()), &container())[..] else { panic!() };
        assert_eq!(fine.verdict, Verdict::Ok);
        let ends = || Err("it ends".to_owned());
        let [bad] = &filters(ends(), &container())[..] else { panic!() };
        assert!(bad.verdict == Verdict::Stops && remedy(bad).contains("seccomp=unconfined"));
        let [bad] = &filters(ends(), &service())[..] else { panic!() };
        assert!(remedy(bad).contains("SystemCallErrorNumber=EPERM"));
    }

    #[test]
    fn limits_are_raised_by_who_may() {
        assert_eq!(resources(Resources::default()).verdict, Verdict::Ok);
        for needed in NEEDED {
            let too_low = Resources { too_low: Some(needed), may_be_raised: true, ..Resources::default() };
            let line = resources(too_low);
            assert_eq!(line.verdict, Verdict::Stops);
            let option = format!("ulimit -{} ", needed.option);
            let kilobytes: u64 = remedy(&line).strip_prefix(&option).unwrap().parse().unwrap();
            assert!(kilobytes * 1024 >= needed.least);
            let line = resources(Resources { may_be_raised: false, ..too_low });
            assert_eq!(remedy(&line), format!("sudo prlimit --pid $$ --{}={}", needed.long, needed.least));
        }
        let some = Resources { addresses: Some(1 << 30), ..Resources::default() };
        let line = resources(some);
        assert_eq!((line.verdict, remedy(&line)), (Verdict::Limits, "ulimit -v unlimited"));
        let line = resources(Resources { addresses_most: Some(1 << 30), ..some });
        assert_eq!(remedy(&line), "sudo prlimit --pid $$ --as=unlimited");
    }

    #[test]
    fn the_mirror_takes_the_best_way_that_there_is() {
        let best = Mirror {
            userfault: Ok(()),
            unprivileged: Some(0),
            has_guards: true,
            may_execute_written: Ok(()),
        };
        assert_eq!(mirror(&best, &open()).verdict, Verdict::Ok);
        let guards = Mirror { userfault: Err(libc::EPERM), ..best.clone() };
        let line = mirror(&guards, &container());
        assert_eq!((line.verdict, line.remedy), (Verdict::Ok, None));
        assert!(line.found.contains("EPERM"));
        let protection = Mirror { has_guards: false, ..guards };
        let line = mirror(&protection, &container());
        assert!(line.verdict == Verdict::Limits && remedy(&line).contains("seccomp=unconfined"));
        assert!(remedy(&mirror(&protection, &service())).contains("SystemCallFilter=userfaultfd"));
        assert!(remedy(&mirror(&protection, &open())).contains("unprivileged_userfaultfd=1"));
        let allowed = Mirror { unprivileged: Some(1), ..protection };
        assert_eq!(mirror(&allowed, &open()).remedy, None, "the setting would not help");
        let closed = Mirror { may_execute_written: Err(libc::EACCES), ..best };
        assert_eq!(mirror(&closed, &open()).verdict, Verdict::Stops);
    }

    #[test]
    fn where_processes_may_not_be_read_nothing_is_gained() {
        assert_eq!(reading(&allowed(), &open()).verdict, Verdict::Ok);
        let refused = Peers { read: Err(libc::EPERM), ..allowed() };
        let line = reading(&refused, &open());
        assert_eq!((line.verdict, &line.remedy), (Verdict::Stops, &None));
        assert!(line.found.contains("process_vm_readv: EPERM"));
        let yama = |scope| Peers { yama: Some(scope), ..refused.clone() };
        assert!(remedy(&reading(&yama(2), &container())).contains("sysctl kernel.yama.ptrace_scope=1"));
        assert!(!remedy(&reading(&yama(3), &open())).contains("sysctl"), "it cannot be set back");
        assert_eq!(reading(&yama(1), &open()).remedy, None, "who may is said where it is 1");
        assert!(remedy(&reading(&refused, &container())).contains("seccomp=unconfined"));
        let untold = Peers { pagemap: Err(libc::EACCES), ..allowed() };
        assert!(reading(&untold, &open()).found.contains("pagemap: EACCES"));
    }

    #[test]
    fn without_tracing_and_faults_less_is_gained() {
        assert_eq!(tracing(&allowed(), &open()).verdict, Verdict::Ok);
        let untraced = Peers { trace: Err(libc::EPERM), ..allowed() };
        assert_eq!(tracing(&untraced, &open()).verdict, Verdict::Limits);
        assert_eq!(faults(&allowed(), &open()).verdict, Verdict::Ok);
        let unseen = |number, paranoid| Peers { faults: Err(number), paranoid, ..allowed() };
        let line = faults(&unseen(libc::EACCES, Some(3)), &open());
        assert_eq!(
            (line.verdict, remedy(&line)),
            (Verdict::Limits, "sudo sysctl kernel.perf_event_paranoid=2")
        );
        assert!(
            line.found.contains("kernel.perf_event_paranoid is 3") && line.found.contains("strides gain")
        );
        let blind = Peers { pagemap: Err(libc::EACCES), ..unseen(libc::EACCES, Some(3)) };
        assert!(faults(&blind, &open()).found.contains("gain nothing"));
        assert!(remedy(&faults(&unseen(libc::EPERM, Some(2)), &container())).contains("unconfined"));
        assert_eq!(
            faults(&unseen(libc::EACCES, Some(2)), &open()).remedy,
            None,
            "the setting would not help"
        );
    }

    #[test]
    fn swap_without_privilege_limits_where_there_is_any() {
        assert_eq!(swap(&Peers { swap_in: Err(libc::EPERM), ..allowed() }).verdict, Verdict::Ok);
        let line = swap(&Peers { swap_in: Err(libc::EPERM), swap: 1 << 30, ..allowed() });
        assert!(line.verdict == Verdict::Limits && remedy(&line).contains("sudo"));
        assert_eq!(swap(&Peers { swap: 1 << 30, ..allowed() }).verdict, Verdict::Ok);
    }

    #[test]
    fn memory_that_is_short_limits_and_that_is_used_up_stops() {
        let plenty = Memory { limit: 1 << 30, free: 1 << 29, is_group: true, at_the_edge: false };
        assert_eq!(memory(&plenty, &open()).verdict, Verdict::Ok);
        let short = Memory { free: 1 << 26, ..plenty };
        let line = memory(&short, &container());
        assert!(line.verdict == Verdict::Limits && remedy(&line).contains("--memory"));
        let line = memory(&Memory { at_the_edge: true, ..short }, &open());
        assert!(line.verdict == Verdict::Stops && remedy(&line).contains("MemoryMax"));
    }

    #[test]
    fn the_rest() {
        assert_eq!(shared(Err(libc::ENOSYS), &open()).verdict, Verdict::Stops);
        assert!(remedy(&shared(Err(libc::EPERM), &service())).contains("SystemCallFilter=memfd_create"));
        assert_eq!(cachestat(Ok(()), &open()).verdict, Verdict::Ok);
        assert_eq!(remedy(&cachestat(Err(libc::ENOSYS), &open())), "Linux 6.5 or newer");
        assert!(remedy(&cachestat(Err(libc::ENOSYS), &container())).contains("unconfined"));
        assert_eq!(known(Ok("/x".into())).verdict, Verdict::Ok);
        let line = known(Err(Some("read-only".into())));
        assert!(line.verdict == Verdict::Limits && line.found.contains("read-only"));
        assert_eq!(processors(1).verdict, Verdict::Ok);
    }
}
