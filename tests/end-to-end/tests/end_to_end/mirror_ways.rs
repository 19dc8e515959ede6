//! The ways in which the mirror notices what it lacks: where a filter forbids one, as containers' filters do, the next is taken,
//! and the program gains as with it.

use crate::contract::{expect_eight, reasons};
use crate::faults::guest;
use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::locate::{self, Runahead};
use runahead_end_to_end::scenario::bytes;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Puts a filter up and becomes a command. Its first argument tells what is left: `guards`, `protection`, or `nothing`, where the
/// calls of a speculator are told by their place in memory.
const FILTER: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GUARD_INSTALL = 102, WINDOW = 0x6a00 };
enum { NUMBER = 0, INSTRUCTION_HIGH = 12, THIRD_ARGUMENT = 32 };

int main(int count, char **words) {
    if (count < 3) return 2;
    int no_guards = strcmp(words[1], "guards") != 0, nothing = strcmp(words[1], "nothing") == 0;
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NUMBER),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 8, 0),
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
    suite.add("mirror::why no speculator can begin is reported", ["command gcc"], || {
        refused(&Runahead::built()?)
    });
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

fn filtered<Fill: Fn(&Path) -> io::Result<()>>(
    disk: Disk<Fill>,
    name: &str,
    way: &str,
) -> Result<Disk<Fill>, String> {
    Ok(disk.around([filter(name)?.to_string_lossy().into_owned(), way.to_owned()]))
}

fn reads(way: &'static str) -> Verdict {
    const FILES: usize = 300;
    const LEAST: u64 = 50;
    let name: &'static str = if way == "guards" { "mirror-reads-g" } else { "mirror-reads-p" };
    let disk = Disk::new(name, "cloud", |folder| {
        (0..FILES).try_for_each(|at| fs::write(folder.join(format!("{at:03}")), bytes(at as u64, 6000)))
    })?;
    let disk = filtered(disk, name, way)?;
    let words = |mount: &Path| {
        let line = "cd $0 && exec cat [0-9]*";
        vec!["bash".into(), "-c".into(), line.into(), mount.to_owned()]
    };
    disk.until(&words, 1, |counts| match number(counts, "reads_hinted")? {
        LEAST.. => Ok(()),
        hinted => Err(format!("{hinted} reads hinted; {}", counts["speculator"])),
    })
}

fn faults(way: &'static str) -> Verdict {
    const BYTES: usize = 48 << 20;
    const LEAST: u64 = 50;
    let name: &'static str = if way == "guards" { "mirror-faults-g" } else { "mirror-faults-p" };
    let program = guest("words")?.build()?;
    let disk = Disk::new(name, "cloud", |folder| fs::write(folder.join("cold.bin"), bytes(1, BYTES)))?;
    let disk = filtered(disk, name, way)?;
    let words = |mount: &Path| vec![program.clone(), mount.join("cold.bin"), "1000".into(), "waits".into()];
    disk.until(&words, 1, |counts| match number(&counts["faults"], "foretold_pages")? {
        LEAST.. => Ok(()),
        foretold => Err(format!("{foretold} pages foretold; {}", counts["speculator"])),
    })
}

fn refused(runahead: &Runahead) -> Verdict {
    let evict = "import os, sys
for name in sys.argv[1:]:
    file = os.open(name, os.O_RDONLY)
    os.fdatasync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)";
    // The program lives on until the speculator has been tried.
    let command = "python3 evict.py tree/*/*.txt
        ./filter nothing $1 run --verbose --report said.json -- bash -c 'cat tree/*/*.txt; sleep 0.1' 2> told \
            | cksum >&2
        cat told";
    let files = [("filter.c", FILTER), ("evict.py", evict)];
    let told = reasons("refused", &files, "gcc -o filter filter.c", command, runahead)?;
    expect_eight(&told, "\"refused_because\": \"the kernel lets it copy no program's memory")?;
    expect_eight(&told, "runahead: there was no speculator: the kernel lets it copy no program's memory")
}
