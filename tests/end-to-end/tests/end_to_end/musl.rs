//! Programs with musl's loader, which is their C library as well: of this machine's release and of others.
//! (Every guest in C is run with this machine's, too: `guests`.)

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::c_program::compiled;
use runahead_end_to_end::guest::{Guest, MUSL_COMPILER};
use runahead_end_to_end::locate::{self, Runahead};
use runahead_end_to_end::scenario::{COLD, NO_SPECULATION, Scenario, WARM, bytes};
use std::fs;
use std::path::{Path, PathBuf};

/// Releases that are looked at, each with a disk of its own: this machine's, by no name, and others.
const RELEASES: [(&str, &str); 3] = [("", "musl"), ("bullseye", "musl-bullseye"), ("trixie", "musl-trixie")];

/// Ways to read: through musl's one place for calls that may be cancelled, and by its streams.
const WAYS: [&str; 4] = ["descriptor", "descriptor-2", "blocks", "bytes-2"];

const FILES: u64 = 200;
const FILE_BYTES: usize = 6000;

/// How musl's compiler tells gcc what to do.
const SPECS: &str = "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs";

/// Reads files in one of several ways, beside a second thread or not, and says what was in them.
const READER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static unsigned long hash;
static void add(const char *block, long length) {
    for (long at = 0; at < length; at++) hash = hash * 31 + (unsigned char)block[at];
}
static void *waits(void *nothing) { pause(); return nothing; }
int main(int argc, char **argv) {
    static char block[4096];
    pthread_t thread;
    if (strchr(argv[1], '2')) pthread_create(&thread, 0, waits, 0);
    for (int index = 2; index < argc; index++) {
        long length;
        if (strstr(argv[1], "descriptor")) {
            int file = open(argv[index], O_RDONLY);
            while ((length = read(file, block, sizeof block)) > 0) add(block, length);
            close(file);
            continue;
        }
        FILE *file = fopen(argv[index], "r");
        if (strstr(argv[1], "blocks"))
            while ((length = fread(block, 1, sizeof block, file)) > 0) add(block, length);
        else
            for (int byte; (byte = getc(file)) != EOF;) add(&(char){byte}, 1);
        fclose(file);
    }
    printf("%lx\n", hash);
}
"#;

/// Installs a filter that ends whoever makes a call that it does not expect. (Without giving up rights first,
/// which would be seen as well: for root alone.)
const FILTERED: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static char block[4096];
static unsigned long hash;
static void some(int file, int from, int to) {
    for (int step = from; step < to; step++) {
        lseek(file, (step * 7919 % 1000) * 4096L, SEEK_SET);
        for (long at = 0, length = read(file, block, sizeof block); at < length; at++) hash = hash * 31 + block[at];
    }
}
int main(int argc, char **argv) {
    int file = open("cold.bin", O_RDONLY);
    some(file, 0, 200);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_lseek, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    // The kernel does not look at the upper half.
    long number_above = argc > 1 && strcmp(argv[1], "wide") == 0 ? 1L << 32 : 0;
    long done = argc > 1 && strcmp(argv[1], "prctl") == 0
                    ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0)
                    : syscall(SYS_seccomp | number_above, SECCOMP_SET_MODE_FILTER, 0, &program);
    some(file, 200, 1000);
    char said[64];
    write(1, said, snprintf(said, sizeof said, "%ld %lx\n", done, hash));
    _exit(0);
}
"#;

pub fn add(suite: &mut Suite) {
    let compiler = format!("command {MUSL_COMPILER}");
    for (release, disk) in RELEASES {
        let library = format!("file {}", loader(release).display());
        let needs = [compiler.as_str(), library.as_str()];
        let name = |what: &str| format!("musl::{}::{what}", if release.is_empty() { "own" } else { release });
        suite.add(name("filters are seen"), needs.into_iter().chain(["root"]), move || {
            filters_are_seen(release)
        });
        suite.add(name("threads are cancelled"), needs, move || threads_are_cancelled(release));
        let needs = needs.into_iter().chain(slow_disk::WANTS);
        suite.add(name("reads are run ahead of"), needs, move || reads_are_run_ahead_of(release, disk));
    }
}

fn loader(release: &str) -> PathBuf {
    if release.is_empty() {
        return "/lib/ld-musl-x86_64.so.1".into();
    }
    let package = locate::unpacked(&format!("{release} musl"));
    let [first, second] =
        ["lib", "usr/lib"].map(|below| package.join(below).join("x86_64-linux-musl/libc.so"));
    if first.exists() { first } else { second }
}

/// The words by which a program is run with that release's: this machine's is the one that it names.
fn words(release: &str, program: &Path) -> Vec<PathBuf> {
    let program = program.to_owned();
    if release.is_empty() { vec![program] } else { vec![loader(release), program] }
}

/// Compiles a program for this machine's musl, for as long as the value is there.
struct Program(PathBuf);

impl Program {
    fn new(name: &str, source: &str) -> Result<Program, String> {
        let kernel = ["-idirafter", "/usr/include/x86_64-linux-gnu", "-idirafter", "/usr/include"];
        let flags: Vec<&str> = [SPECS, "-O1"].into_iter().chain(kernel).collect();
        compiled(name, source, &flags).map(Program)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn text(words: &[PathBuf]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn filters_are_seen(release: &str) -> Verdict {
    let program = Program::new(&format!("musl-filtered-{release}"), FILTERED)?;
    let runahead = Runahead::built()?;
    for way in ["prctl", "syscall", "wide"] {
        let argv = text(&words(release, &program.0)).into_iter().chain([way.to_owned()]);
        Scenario::new(format!("musl {release} filtered {way}"), argv)
            .prepare(|directory| fs::write(directory.join("cold.bin"), bytes(1, 4 << 20)))
            .modes([COLD, WARM, NO_SPECULATION])
            .check(&runahead)?;
    }
    Ok(())
}

fn threads_are_cancelled(release: &str) -> Verdict {
    let guests = Guest::all()?;
    let guest =
        guests.iter().find(|guest| guest.name() == "cancel_one_site").and_then(|guest| guest.with_musl());
    let program = guest.ok_or("no such guest")?.build()?;
    let runahead = Runahead::built()?;
    for way in ["pread", "read", "pipe", "open"] {
        let argv = text(&words(release, &program)).into_iter().chain([way.to_owned()]);
        Scenario::new(format!("musl {release} cancelled {way}"), argv)
            .prepare(|directory| fs::write(directory.join("cold.bin"), bytes(1, 16 << 20)))
            .modes([COLD, WARM])
            .check(&runahead)?;
    }
    Ok(())
}

fn reads_are_run_ahead_of(release: &str, disk: &'static str) -> Verdict {
    let program = Program::new(&format!("reader-{disk}"), READER)?;
    let fill = |folder: &Path| {
        (0..FILES)
            .try_for_each(|number| fs::write(folder.join(number.to_string()), bytes(number, FILE_BYTES)))
    };
    let disk = Disk::new(disk, "cloud", fill)?;
    WAYS.into_iter().try_for_each(|way| {
        let words = |mount: &Path| -> Vec<PathBuf> {
            words(release, &program.0)
                .into_iter()
                .chain([PathBuf::from(way)])
                .chain((0..FILES).map(|number| mount.join(number.to_string())))
                .collect()
        };
        disk.until(&words, 1, |counts| match (number(counts, "reads")?, number(counts, "reads_hinted")?) {
            (_, hinted) if hinted > FILES / 2 => Ok(()),
            (reads, hinted) => Err(format!("{way}: {hinted} of {reads} reads foretold")),
        })
    })
}
