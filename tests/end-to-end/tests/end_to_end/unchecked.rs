//! Programs with large files of code that nobody has analysed yet: they run on while that is done, are helped
//! from then on, and whatever they do meanwhile, everything is as it is alone. Each run has a cache folder of
//! its own, so all is unknown.

use crate::programs::files;
use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::c_program::compiled;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::{Runahead, build_folder};
use runahead_end_to_end::scenario::{COLD, Scenario, WARM, bytes};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A library of 24 MB, of 2, or of so little that it is waited for. `SITES`: it reads by a system call of its
/// own. `BLIND`: it makes calls of which nobody can say what they are.
const LIBRARY: &str = r#"
    #ifdef NOTHING
    __asm__(".text\n.balign 4096\n.fill 24 << 20, 1, 0x90\n");
    #elif defined OLD
    __asm__(".text\n.balign 4096\n.fill 2 << 20, 1, 0x90\n.data\n.fill 1 << 20, 1, 7\n.text\n");
    #elif defined SMALL
    __asm__(".text\n.balign 4096\n.fill 400 << 10, 1, 0x90\n");
    #else
    __asm__(".text\n.balign 4096\n.fill 2 << 20, 1, 0x90\n");
    #endif
    long enter(long number, long a, long b, long c) {
        long result = -38;
    #ifdef BLIND
        register long fourth __asm__("r10") = 0, fifth __asm__("r8") = 0;
        __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth) : "rcx", "r11", "memory");
    #endif
    #ifdef SITES
        (void)number;
        __asm__ volatile("mov $0, %%eax\n syscall" : "=a"(result) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    #endif
        (void)number, (void)a, (void)b, (void)c;
        return result;
    }
"#;

const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <linux/audit.h>
    #include <linux/filter.h>
    #include <linux/seccomp.h>
    #include <pthread.h>
    #include <stddef.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/inotify.h>
    #include <sys/mman.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    extern long enter(long, long, long, long);
    static long first, count = 300;
    static void *reads(void *from) {
        static __thread char data[8192];
        unsigned long sum = 5381;
        for (long file = first + (long)from; file < count; file++) {
            char name[40];
            sprintf(name, "many/%ld", file);
            int fd = open(name, O_RDONLY);
            ssize_t got = fd < 0 ? -errno : read(fd, data, sizeof data);
            for (ssize_t at = 0; at < got; at++) sum = sum * 33 + data[at];
            sum = sum * 33 + got;
            close(fd);
        }
        return (void *)sum;
    }
    static void say(const char *what, unsigned long sum) {
        char line[80];
        if (write(1, line, sprintf(line, "%s %lu\n", what, sum)) < 0) _exit(3);
    }
    static void all(const char *what) { say(what, (unsigned long)reads(0)); }
    /* Nothing but what the program itself calls from here on, or it is killed. */
    static long forbids(long (*enter)(long, long, long, long)) {
        static const int allowed[] = {SYS_read, SYS_write, SYS_openat, SYS_close, SYS_exit_group, SYS_clock_nanosleep,
            SYS_fcntl, SYS_prctl, SYS_mmap, SYS_munmap, SYS_mremap, SYS_unlink, SYS_rename, SYS_futex};
        enum { CALLS = sizeof allowed / sizeof *allowed };
        static struct sock_filter filter[CALLS + 3];
        filter[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
        for (int at = 0; at < CALLS; at++)
            filter[1 + at] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[at], CALLS - at, 0);
        filter[CALLS + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
        filter[CALLS + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        static struct sock_fprog program = {CALLS + 3, filter};
        if (enter(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0)) return 1;
        return enter(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program);
    }
    int main(int words, char **word) {
        const char *what = words > 1 ? word[1] : "reads";
        if (words > 2) count = atol(word[2]);
        if (words > 3) first = atol(word[3]);
        if (!strcmp(what, "long"))
            for (int round = 0; round < 40; round++) usleep(5000);
        /* The loader maps all of it as its first segment, and then the others over that. */
        if (!strcmp(what, "adds")) { if (!dlopen("./libold.so", RTLD_NOW)) return 8; usleep(300000); }
        if (!strcmp(what, "filter")) { if (forbids(enter)) return 4; all("before"); usleep(150000); all(what); _exit(0); }
        /* The next calls come before anybody can have looked at the code. */
        if (!strncmp(what, "atonce", 6)) {
            if (forbids(enter)) return 4;
            switch (what[6]) {
                case 'f': fcntl(0, F_GETFL); break;
                case 'n': prctl(PR_SET_NAME, "name"); break;
                case 'm': mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(word[0], O_RDONLY), 0); break;
                case 'u': unlink("nothing"); rename("nothing", "something"); break;
                case 'r': mremap(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096, 8192, MREMAP_MAYMOVE); break;
            }
            _exit(0);
        }
        if (!strcmp(what, "forks filtered")) {
            for (int child = 0; child < 4; child++)
                if (!fork()) { if (forbids(enter)) _exit(4); usleep(20000); all("child"); _exit(0); }
                else { int status = 0; wait(&status); say("status", status); }
        }
        /* What has installed the filter is gone when somebody looks. */
        if (!strcmp(what, "gone")) {
            void *library = dlopen("./libblind.so", RTLD_NOW);
            long (*own)(long, long, long, long) = library ? dlsym(library, "enter") : 0;
            if (!own || forbids(own)) return 4;
            dlclose(library);
            usleep(60000);
            all(what);
            _exit(0);
        }
        if (!strcmp(what, "watches")) {
            int fd = inotify_init1(IN_NONBLOCK);
            char events[4096];
            inotify_add_watch(fd, ".", IN_OPEN | IN_ACCESS | IN_CLOSE_NOWRITE);
            usleep(60000);
            say("events", read(fd, events, sizeof events) > 0);
        }
        if (!strcmp(what, "elsewhere")) { if (chdir("/") || execl("/bin/true", "true", (char *)0)) return 7; }

        if (!strcmp(what, "own")) {
            char data[64] = {0};
            int fd = open("many/1", O_RDONLY);
            say("own", enter(0, fd, (long)data, 64) + data[3]);
        }
        if (!strcmp(what, "strict")) { prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT); say(what, 1); syscall(SYS_exit, 0); }
        if (!strcmp(what, "user")) { if (setgid(65534) || setuid(65534)) return 5; }
        if (!strcmp(what, "fork"))
            for (int child = 0; child < 3; child++)
                if (!fork()) {
                    if (child == 1) dlopen("./libsites.so", RTLD_NOW);
                    all("child");
                    _exit(0);
                } else wait(0);
        if (!strcmp(what, "vfork"))
            for (int child = 0; child < 20; child++) { if (!vfork()) _exit(child); wait(0); }
        if (!strcmp(what, "loads")) {
            const char *names[] = {"./libclean.so", "./libsites.so", "./libblind.so"};
            for (int at = 0; at < 3; at++) {
                void *library = dlopen(names[at], RTLD_NOW);
                long (*own)(long, long, long, long) = library ? dlsym(library, "enter") : 0;
                int fd = open("many/2", O_RDONLY);
                char data[64] = {0};
                say(names[at], own ? own(SYS_read, fd, (long)data, 64) + data[5] : 0);
                close(fd);
                all("after");
            }
        }
        if (!strcmp(what, "threads")) {
            pthread_t thread[4];
            unsigned long sum = 0;
            for (long at = 0; at < 4; at++) pthread_create(&thread[at], 0, reads, (void *)at);
            for (long at = 0; at < 4; at++) { void *got; pthread_join(thread[at], &got); sum += (unsigned long)got; }
            say(what, sum);
        }
        if (!strcmp(what, "again")) { execl(word[0], word[0], "reads", "50", (char *)0); return 6; }
        if (!strcmp(what, "closed")) close_range(3, ~0U, 0);
        if (!strcmp(what, "brief")) _exit(7);
        if (!strcmp(what, "killed")) kill(getpid(), 9);
        all(what);
        return 0;
    }
"#;

/// A program that is too large to be waited for, maps a file at once, and from then on only touches words of
/// it.
const TOUCHES: &str = r#"
    __asm__(".text\n.balign 4096\n.fill 600 << 10, 1, 0x90\n");
    #include <fcntl.h>
    #include <stdio.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    int main(int argc, char **argv) {
        struct stat is;
        int file = open(argv[argc - 1], O_RDONLY);
        if (file < 0 || fstat(file, &is)) return 1;
        const unsigned *words = mmap(0, is.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        unsigned sum = 0;
        for (unsigned long step = 1; step <= 3000; step++)
            sum = sum * 31 + words[step * 2654435761 % (is.st_size / 4)];
        printf("%x\n", sum);
        return 0;
    }
"#;

/// What the program does, each with all of its code unknown: linked against the library that has nothing,
/// against the one with a read of its own, and against the one that may call anything.
const MANNERS: &str = "for kind in clean sites blind; do \
    for manner in reads long filter own strict user fork vfork loads threads again closed brief killed \
        atoncef atoncen atoncem atonceu atoncer atonce 'forks filtered' gone watches; do \
    $UNDER ./$kind \"$manner\"; echo $? $kind $manner; rm -r $XDG_CACHE_HOME; mkdir $XDG_CACHE_HOME; done; done 2> /dev/null";

/// The file system that a program and its library are on is unmounted the moment it ends.
const UNMOUNTS: &str = "cd ..; for round in $(seq 60); do mkdir -p mounted; mount -t tmpfs tmpfs mounted; \
    cp -r all/clean all/libclean.so all/many mounted/; \
    case $((round % 3)) in 0) how=user;; 1) how=elsewhere;; 2) how=reads;; esac; \
    (cd mounted; LD_LIBRARY_PATH=$PWD $UNDER ./clean $how $((round * 7 % 20))); umount mounted; echo $?; \
    rm -r $XDG_CACHE_HOME; mkdir $XDG_CACHE_HOME; done";

const FILES: u64 = 600;

pub fn add(suite: &mut Suite) {
    let wants = ["command gcc"];
    suite.add("unchecked::whatever a program does meanwhile is as alone", wants, as_alone);
    let wants = ["command gcc", "root", "command unshare"];
    suite.add("unchecked::its files can be unmounted at its end", wants, unmounted);
    let wants = slow_disk::WANTS.into_iter().chain(["command gcc"]);
    suite.add("unchecked::it is helped once it is known", wants.clone(), helped);
    suite.add("unchecked::one with calls of its own is left alone", wants.clone(), left_alone);
    suite.add(
        "unchecked::what cannot be said of the first is known to the second",
        wants.clone(),
        second_helped,
    );
    suite.add(
        "unchecked::the report of one that is left alone is there at its end",
        ["command gcc"],
        reported,
    );
    suite.add("unchecked::small ones that start at the same time are all helped", wants.clone(), all_helped);
    suite.add("unchecked::one that only touches what it maps is watched", wants.clone(), touches_watched);
    suite.add("unchecked::one in Go is seen in its first run", wants.chain(["go"]), go_seen);
}

/// The folder with the program in three ways and its libraries, made once.
fn built() -> Result<PathBuf, String> {
    let folder = build_folder().join(format!("unchecked-{}", std::process::id()));
    if folder.join("small").exists() {
        return Ok(folder);
    }
    let aside =
        build_folder().join(format!("unchecked-{}-{:?}", std::process::id(), std::thread::current().id()));
    let line = "set -e; for kind in clean:NOTHING sites:SITES blind:BLIND small:SMALL; do name=${kind%%:*}; \
        gcc -O1 -shared -fPIC -D${kind##*:} -o lib$name.so library.c; \
        gcc -O1 -pthread -o $name program.c -L. -l$name -Wl,-rpath,'$ORIGIN'; done; \
        gcc -O1 -shared -fPIC -DOLD -Wl,-z,noseparate-code -o libold.so library.c";
    fs::create_dir_all(&aside)
        .and_then(|()| fs::write(aside.join("library.c"), LIBRARY))
        .and_then(|()| fs::write(aside.join("program.c"), PROGRAM))
        .map_err(|error| error.to_string())?;
    let output = Command::new("bash").args(["-c", line]).current_dir(&aside).output();
    let output = output.map_err(|error| format!("bash: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    // Another test may have been quicker.
    if fs::rename(&aside, &folder).is_err() {
        let _ = fs::remove_dir_all(&aside);
    }
    Ok(folder)
}

const PARTS: [&str; 9] = [
    "clean",
    "sites",
    "blind",
    "small",
    "libclean.so",
    "libsites.so",
    "libblind.so",
    "libsmall.so",
    "libold.so",
];

fn fill(from: &Path, to: &Path, count: u64) -> io::Result<()> {
    for part in PARTS {
        fs::copy(from.join(part), to.join(part))?;
    }
    let many = to.join("many");
    fs::create_dir(&many)?;
    (0..count).try_for_each(|number| fs::write(many.join(number.to_string()), bytes(number, 6000)))
}

fn as_alone() -> Verdict {
    let from = built()?;
    let line = format!("export XDG_CACHE_HOME=$PWD/cache; mkdir cache; {MANNERS}; rm -r cache");
    Scenario::shell("unchecked manners", &line)
        .prepare(move |folder| {
            files(folder)?;
            fill(&from, folder, 40)
        })
        .modes([COLD, WARM])
        .check(&Runahead::built()?)
}

fn unmounted() -> Verdict {
    let from = built()?;
    let line = format!(
        "export XDG_CACHE_HOME=$PWD/cache; mkdir cache; cd all; exec unshare --mount --propagation private \
         bash -c '{UNMOUNTS}; rm -r $XDG_CACHE_HOME mounted'"
    );
    Scenario::shell("unchecked unmounted", &line)
        .prepare(move |folder| {
            fs::create_dir(folder.join("all"))?;
            fill(&from, &folder.join("all"), 20)
        })
        .modes([WARM])
        .check(&Runahead::built()?)
}

/// Reads of a program of which nobody knew at its start, and those that were foretold.
fn run(kind: &'static str, good: impl Fn(u64, u64) -> bool) -> Verdict {
    let from = built()?;
    let disk = Disk::new(kind, "cloud", |folder: &Path| fill(&from, folder, FILES))?;
    // It sleeps for 0.2 s at its start, in which everything is analysed even on a busy machine, mostly. Its
    // files are new.
    let line = format!("cd $0; ./{kind} long {FILES}");
    disk.until(
        &|mount: &Path| vec!["bash".into(), "-c".into(), line.clone().into(), mount.into()],
        1,
        |counts| {
            let (reads, hinted) = (number(counts, "reads")?, number(counts, "reads_hinted")?);
            if good(reads, hinted) { Ok(()) } else { Err(format!("{hinted} of {reads} reads")) }
        },
    )
}

fn helped() -> Verdict {
    run("clean", |_, hinted| hinted > FILES / 2)
}

fn left_alone() -> Verdict {
    run("sites", |reads, _| reads < FILES / 2)
}

fn second_helped() -> Verdict {
    const HALF: u64 = FILES / 2;
    let from = built()?;
    let disk = Disk::new("second", "cloud", |folder: &Path| fill(&from, folder, FILES))?;
    let line = format!("cd $0; ./clean adds {HALF} 0; ./clean adds {FILES} {HALF}");
    disk.watched().until(
        &|mount: &Path| vec!["bash".into(), "-c".into(), line.clone().into(), mount.into()],
        1,
        |counts| match number(counts, "reads")? {
            reads if reads >= HALF - HALF / 20 => Ok(()),
            reads => Err(format!("{reads} reads")),
        },
    )
}

/// It makes no call at which it could begin: the answer is waited for when it maps the file.
fn touches_watched() -> Verdict {
    let program = compiled("unchecked-touches", TOUCHES, &["-O1"])?;
    let fill = |folder: &Path| {
        fs::copy(&program, folder.join("touches"))?;
        fs::write(folder.join("large"), bytes(1, 32 << 20))
    };
    let disk = Disk::new("touches", "cloud", fill)?;
    let words = |mount: &Path| vec![mount.join("touches"), mount.join("large")];
    let verdict = disk.until(&words, 1, |counts| match number(&counts["faults"], "useful_pages")? {
        useful if useful >= 50 => Ok(()),
        useful => Err(format!("{useful} pages")),
    });
    let _ = fs::remove_file(&program);
    verdict
}

/// All of its system calls are its own, so its analysis is waited for: it is new on each disk.
fn go_seen() -> Verdict {
    let guests = Guest::all()?;
    let program = guests.iter().find(|guest| guest.name() == "go_readers").ok_or("no such guest")?.build()?;
    let fill = |folder: &Path| {
        fs::copy(&program, folder.join("reader"))?;
        let many = folder.join("many");
        fs::create_dir(&many)?;
        (0..FILES).try_for_each(|number| fs::write(many.join(number.to_string()), bytes(number, 6000)))
    };
    let disk = Disk::new("go", "cloud", fill)?;
    let line = "cd $0; ./reader 1";
    disk.until(&|mount: &Path| vec!["bash".into(), "-c".into(), line.into(), mount.into()], 1, |counts| {
        match number(counts, "reads")? {
            reads if reads >= FILES => Ok(()),
            reads => Err(format!("{reads} reads")),
        }
    })
}

/// Nobody sees the end of a program that is left alone, and nobody waits there.
fn reported() -> Verdict {
    let folder = built()?;
    let runahead = Runahead::built()?;
    let home = build_folder().join(format!("unchecked-home-{}", std::process::id()));
    let wrong = |error: io::Error| error.to_string();
    let mut left = 0;
    for number in 0..20 {
        let report = home.join("report.json");
        fs::create_dir_all(&home).map_err(wrong)?;
        let mut command = Command::new(&runahead.command);
        command.envs(runahead.environment.iter().map(|(name, value)| (name, value)));
        command.env("XDG_CACHE_HOME", &home).current_dir(&folder);
        command.args(["run", "--report"]).arg(&report).args(["--", "./sites", "long", "0"]);
        let output = command.output().map_err(wrong)?;
        // It is written once more at the end, page by page: who reads in that moment may find a part of each.
        let whole = || serde_json::from_slice::<serde_json::Value>(&fs::read(&report).unwrap_or_default());
        let mut said = whole();
        for _ in 0..10 {
            if said.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
            said = whole();
        }
        fs::remove_dir_all(&home).map_err(wrong)?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let said = said.map_err(|error| format!("the report of run {number} is not whole: {error}"))?;
        left += u32::from(!said["left_because"].is_null());
    }
    // A busy machine may have looked at nothing until the end.
    if left == 0 {
        return Err("none was left alone".to_owned());
    }
    Ok(())
}

/// Each of them has files that nobody knows, its own and one that all have: as the programs of a pipeline in a
/// fresh home.
fn all_helped() -> Verdict {
    const PROGRAMS: u64 = 8;
    const EACH: u64 = FILES / PROGRAMS;
    let from = built()?;
    let disk = Disk::new("small", "cloud", |folder: &Path| {
        fill(&from, folder, FILES)?;
        (0..PROGRAMS)
            .try_for_each(|n| fs::copy(folder.join("small"), folder.join(format!("small-{n}"))).map(drop))
    })?;
    let line = format!(
        "cd $0; for n in $(seq 0 {}); do ./small-$n reads $((n * {EACH} + {EACH})) $((n * {EACH})) & done | sort",
        PROGRAMS - 1
    );
    disk.watched().until(
        &|mount: &Path| vec!["bash".into(), "-c".into(), line.clone().into(), mount.into()],
        4,
        |counts| {
            let (processes, reads) = (number(counts, "processes")?, number(counts, "reads")?);
            match processes >= PROGRAMS && reads >= FILES - FILES / 20 {
                true => Ok(()),
                false => Err(format!("{reads} reads of {processes} processes")),
            }
        },
    )
}
