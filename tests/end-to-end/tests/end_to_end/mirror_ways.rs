//! The ways in which the mirror notices what it lacks: where a filter forbids one, as containers' filters do,
//! the next is taken, and the program gains as with it.

use crate::contract::{expect_eight, reasons};
use crate::faults::guest;
use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::locate::{self, Runahead};
use runahead_end_to_end::scenario::bytes;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Confines itself and becomes a command. The first argument tells how: only `guards` are left, only
/// `protection`, or `nothing`, where a speculator's calls are told by their place in memory; processes are
/// `unread` by others; no `events` (perf's) are to be had; or code cannot be `written`.
const FILTER: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GUARD_INSTALL = 102, WINDOW = 0x6a00, SET_MDWE = 65, REFUSE_EXEC_GAIN = 1 };
enum { NUMBER = 0, INSTRUCTION_HIGH = 12, THIRD_ARGUMENT = 32 };

int main(int count, char **words) {
    if (count < 3) return 2;
    int unread = strcmp(words[1], "unread") == 0;
    if (strcmp(words[1], "written") == 0) {
        if (prctl(SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)) return 77;
        execvp(words[2], words + 2);
        return 127;
    }
    int events = strcmp(words[1], "events") == 0;
    int no_guards = !events && strcmp(words[1], "guards") != 0, nothing = strcmp(words[1], "nothing") == 0;
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NUMBER),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, unread ? SYS_process_vm_readv : events ? SYS_perf_event_open : SYS_userfaultfd, 8, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, THIRD_ARGUMENT),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, no_guards ? GUARD_INSTALL : -1, 5, 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nothing ? SYS_mprotect : -1, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, INSTRUCTION_HIGH),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, WINDOW, 2, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)};
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) return 1;
    execvp(words[2], words + 2);
    return 127;
}
"#;

pub fn add(suite: &mut Suite) {
    for (way, left) in [("guards", "guards are left"), ("protection", "protection is left")] {
        let needs = slow_disk::WANTS.into_iter().chain(["command gcc"]);
        suite.add(format!("mirror::reads are hinted where {left}"), needs.clone(), move || reads(way));
        suite.add(format!("mirror::faults are foretold where {left}"), needs, move || faults(way));
    }
    let needs = slow_disk::WANTS.into_iter().chain(["command setpriv"]);
    suite.add("mirror::reads of a container's root are hinted", needs, contained);
    let needs = || ["command gcc", "command python3"];
    suite.add("mirror::why no speculator can begin is reported", needs(), || refused(&Runahead::built()?));
    suite.add("mirror::why nothing can begin is said", needs(), || confined(&Runahead::built()?));
    suite.add_plain("mirror::few addresses are enough, and too few said", || {
        few_addresses(&Runahead::built()?)
    });
    suite.add("mirror::a /proc of other processes is said", ["root", "command unshare"], || {
        others_proc(&Runahead::built()?)
    });
    let needs = slow_disk::WANTS.into_iter().chain(["command gcc"]);
    suite.add("canary::reads that are not hinted are noticed", needs, unnoticed);
}

/// The filter, built for one test.
fn filter(test: &str) -> Result<PathBuf, String> {
    let (source, built) = (
        locate::scratch().join(format!("filter-{test}.c")),
        locate::scratch().join(format!("filter-{test}")),
    );
    fs::create_dir_all(locate::scratch()).map_err(|error| format!("the runs' folder: {error}"))?;
    fs::write(&source, FILTER).map_err(|error| format!("{}: {error}", source.display()))?;
    let done = Command::new("gcc").args(["-O1", "-o"]).arg(&built).arg(&source).status();
    match done {
        Ok(status) if status.success() => Ok(built),
        other => Err(format!("gcc: {other:?}")),
    }
}

/// What confines itself in such a way and becomes a command.
pub fn confiner(name: &str, way: &str) -> Result<[String; 2], String> {
    Ok([filter(name)?.to_string_lossy().into_owned(), way.to_owned()])
}

fn disk_of_files(name: &'static str, way: &str) -> Result<Disk<impl Fn(&Path) -> io::Result<()>>, String> {
    disk_of_files_around(name, confiner(name, way)?)
}

fn disk_of_files_around(
    name: &'static str,
    around: impl IntoIterator<Item = String>,
) -> Result<Disk<impl Fn(&Path) -> io::Result<()>>, String> {
    const FILES: usize = 300;
    let disk = Disk::new(name, "cloud", |folder| {
        (0..FILES).try_for_each(|at| fs::write(folder.join(format!("{at:03}")), bytes(at as u64, 6000)))
    })?;
    Ok(disk.around(around))
}

fn all_files(mount: &Path) -> Vec<PathBuf> {
    let line = "cd $0 && exec cat [0-9]*";
    vec!["bash".into(), "-c".into(), line.into(), mount.to_owned()]
}

fn are_hinted(counts: &Value) -> Verdict {
    const LEAST: u64 = 50;
    match number(counts, "reads_hinted")? {
        LEAST.. => Ok(()),
        hinted => Err(format!("{hinted} reads hinted; {}", counts["speculator"])),
    }
}

fn reads(way: &'static str) -> Verdict {
    let name = if way == "guards" { "mirror-reads-g" } else { "mirror-reads-p" };
    disk_of_files(name, way)?.until(&all_files, 1, are_hinted)
}

/// Root in a container may not look into processes that have capabilities which the looker lacks.
fn contained() -> Verdict {
    let root = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all"].map(str::to_owned);
    disk_of_files_around("mirror-reads-c", root)?.until(&all_files, 1, are_hinted)
}

/// Where nothing is left nobody runs ahead.
fn unnoticed() -> Verdict {
    let Some(counts) = disk_of_files("mirror-reads-n", "nothing")?.counts(&all_files)? else { return Ok(()) };
    match are_hinted(&counts) {
        Err(said) if said.starts_with("0 reads hinted") => Ok(()),
        other => Err(format!("it was not noticed: {other:?}")),
    }
}

fn faults(way: &'static str) -> Verdict {
    const BYTES: usize = 48 << 20;
    const LEAST: u64 = 50;
    let name: &'static str = if way == "guards" { "mirror-faults-g" } else { "mirror-faults-p" };
    let program = guest("words")?.build()?;
    let disk = Disk::new(name, "cloud", |folder| fs::write(folder.join("cold.bin"), bytes(1, BYTES)))?;
    let disk = disk.around(confiner(name, way)?);
    let words = |mount: &Path| vec![program.clone(), mount.join("cold.bin"), "1000".into(), "waits".into()];
    disk.until(&words, 1, |counts| match number(&counts["faults"], "foretold_pages")? {
        LEAST.. => Ok(()),
        foretold => Err(format!("{foretold} pages foretold; {}", counts["speculator"])),
    })
}

/// Has files read from the disk, if they are on one.
const EVICT: &str = "import os, sys
for name in sys.argv[1:]:
    file = os.open(name, os.O_RDONLY)
    os.fdatasync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)";

/// What is said of the files' reading behind some words, after a line that sets the scene. Who reads waits
/// often, and lives on until the speculator has been tried, on a busy machine too.
fn said(name: &str, scene: &str, before: &str, runahead: &Runahead) -> Result<String, String> {
    let command = format!(
        "python3 evict.py cold.*
        ({scene}; {before} $1 run --verbose --report said.json -- bash -c 'cat cold.* <(sleep 0.6)' 2> told \
            | cksum >&2)
        cat told"
    );
    let files = [("filter.c", FILTER), ("evict.py", EVICT)];
    let build = "gcc -o filter filter.c && seq 300000 | head -c 1800000 | split -a 3 -b 6000 - cold.";
    reasons(name, &files, build, &command, runahead)
}

fn refused(runahead: &Runahead) -> Verdict {
    let told = said("refused", ":", "./filter nothing", runahead)?;
    expect_eight(&told, "\"refused_because\": \"the kernel lets it copy no program's memory")?;
    expect_eight(&told, "runahead: there was no speculator: the kernel lets it copy no program's memory")
}

fn confined(runahead: &Runahead) -> Verdict {
    let told = said("unread", ":", "./filter unread", runahead)?;
    expect_eight(&told, "\"plainly_because\": \"the kernel lets no process be read by another")?;
    expect_eight(&told, "runahead: running the command plainly: the kernel lets no process be read")?;
    // Linux 6.3.
    let told = said("written", "./filter written true || exit 0", "./filter written", runahead)?;
    if told.trim().is_empty() {
        eprintln!("SKIPPED memory that cannot become executable: this kernel does not know of it");
        return Ok(());
    }
    expect_eight(&told, "\"plainly_because\": \"memory that was written to may not be executed")?;
    expect_eight(&told, "runahead: running the command plainly: memory that was written to")
}

fn others_proc(runahead: &Runahead) -> Verdict {
    let command = "unshare -pf $1 run --verbose --report said.json -- true 2> told || exit 1; cat told";
    let told = reasons("another proc", &[], "true", command, runahead)?;
    expect_eight(&told, "\"plainly_because\": \"/proc is of another namespace")?;
    expect_eight(&told, "runahead: running the command plainly: /proc is of another namespace")
}

fn few_addresses(runahead: &Runahead) -> Verdict {
    let told = said("hardly any addresses", "ulimit -v 80000", "", runahead)?;
    expect_eight(&told, "\"plainly_because\": \"the limit on memory")?;
    expect_eight(&told, "runahead: running the command plainly: the limit on memory")?;
    let told = said("few addresses", "ulimit -v 500000", "", runahead)?;
    if told.contains("_because") {
        return Err(format!("500 MB are enough, and yet: {told}"));
    }
    Ok(())
}
