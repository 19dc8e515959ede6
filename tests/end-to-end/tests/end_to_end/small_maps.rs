//! Programs that map small files and read them there: to map a cold one is where they begin to wait.

use crate::programs::files;
use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::c_program::compiled;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{COLD, NO_SPECULATION, Scenario, WARM, bytes};
use serde_json::Value;
use std::fs;
use std::path::Path;

const FILES: u64 = 400;

/// It has threads.
const FLAGS: [&str; 2] = ["-O1", "-pthread"];

/// Maps the files one after the other, in an order of its own; `untouched`: and reads nothing of them; `odd`:
/// and does with mmap what can be done.
const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <fcntl.h>
    #include <pthread.h>
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static sigjmp_buf back;
    static void faulted(int signal) { siglongjmp(back, signal); }
    static unsigned long add(unsigned long sum, const unsigned char *at, long length) {
        for (long place = 0; place < length; place++) sum = sum * 33 + at[place];
        return sum;
    }
    static int looks = 1;
    static unsigned long all(long from, long count, int keeps) {
        unsigned long sum = 5381;
        for (long file = from; file < count; file++) {
            char name[40];
            sprintf(name, "many/%ld", file * 7 % count);
            int fd = open(name, O_RDONLY);
            struct stat status;
            if (fd < 0 || fstat(fd, &status)) { sum = sum * 33 + errno; continue; }
            unsigned char *at = mmap(0, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
            close(fd);
            if (at == MAP_FAILED) { sum = sum * 33 + errno; continue; }
            sum = looks ? add(sum, at, status.st_size) : sum + status.st_size;
            if (!keeps) munmap(at, status.st_size);
        }
        return sum;
    }
    static void *thread(void *from) { return (void *)all((long)from, 40, 0); }
    /* What one mapping gives: the error, or the sum of what can be touched of it. */
    static void one(const char *what, size_t length, int protection, int flags, int fd, off_t offset) {
        errno = 0;
        unsigned char *at = mmap(0, length, protection, flags, fd, offset);
        unsigned long sum = 0;
        int signal = 0;
        if (at != MAP_FAILED && !(signal = sigsetjmp(back, 1))) {
            volatile unsigned char *bytes = at;
            for (size_t place = 0; place < length; place += 512) sum = sum * 33 + bytes[place];
            if (protection & PROT_WRITE) bytes[3] = 9, sum = sum * 33 + bytes[3];
        }
        printf("%s: %d %d %lu\n", what, at == MAP_FAILED ? errno : 0, signal, sum);
        if (at != MAP_FAILED) munmap(at, length);
    }
    static void odd(void) {
        struct sigaction action = {.sa_handler = faulted};
        sigaction(SIGBUS, &action, 0), sigaction(SIGSEGV, &action, 0);
        int file = open("many/1", O_RDONLY), written = open("many/2", O_WRONLY), both = open("many/3", O_RDWR);
        int folder = open(".", O_RDONLY), zero = open("/dev/zero", O_RDWR), ends[2], memory = memfd_create("m", 0);
        if (pipe(ends) || ftruncate(memory, 9000) || file < 0) exit(3);
        int empty = open("nothing", O_RDWR | O_CREAT, 0600);
        one("empty", 4096, PROT_READ, MAP_PRIVATE, empty, 0);
        one("file", 4096, PROT_READ, MAP_PRIVATE, file, 0);
        one("second page", 1000, PROT_READ, MAP_SHARED, file, 4096);
        one("not aligned", 4096, PROT_READ, MAP_PRIVATE, file, 100);
        one("behind the end", 8192, PROT_READ, MAP_PRIVATE, file, 1 << 20);
        one("across the end", 16384, PROT_READ, MAP_PRIVATE, file, 0);
        one("nothing", 0, PROT_READ, MAP_PRIVATE, file, 0);
        one("neither kind", 4096, PROT_READ, 0, file, 0);
        one("negative", 4096, PROT_READ, MAP_PRIVATE, file, -4096);
        one("no descriptor", 4096, PROT_READ, MAP_PRIVATE, -1, 0);
        one("closed", 4096, PROT_READ, MAP_PRIVATE, 900, 0);
        one("only written", 4096, PROT_READ, MAP_PRIVATE, written, 0);
        one("private, written", 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        one("shared, not allowed", 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        one("shared, written", 4096, PROT_READ | PROT_WRITE, MAP_SHARED, both, 0);
        one("no access", 4096, PROT_NONE, MAP_PRIVATE, file, 0);
        one("at once", 6000, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
        one("folder", 4096, PROT_READ, MAP_PRIVATE, folder, 0);
        one("zeros", 4096, PROT_READ, MAP_PRIVATE, zero, 0);
        one("pipe", 4096, PROT_READ, MAP_PRIVATE, ends[0], 0);
        one("memory", 8192, PROT_READ, MAP_SHARED, memory, 0);
        unsigned char *at = mmap(0, 6000, PROT_READ, MAP_SHARED, both, 0);
        int signal = sigsetjmp(back, 1);
        if (!signal) {
            if (ftruncate(both, 100)) exit(4);
            signal = ((volatile unsigned char *)at)[5000];
        }
        printf("cut: %d\n", signal);
        if (!fork()) { printf("child %lu\n", all(0, 30, 0)); exit(0); }
        wait(0);
        pthread_t threads[3];
        unsigned long sum = 0;
        for (long from = 0; from < 3; from++) pthread_create(&threads[from], 0, thread, (void *)from);
        for (long from = 0; from < 3; from++) { void *got; pthread_join(threads[from], &got); sum += (unsigned long)got; }
        printf("threads %lu\nkept %lu\n", sum, all(0, 40, 1));
    }
    int main(int words, char **word) {
        setvbuf(stdout, 0, _IONBF, 0);
        looks = words < 3 || strcmp(word[2], "untouched");
        if (words > 2 && looks) odd();
        printf("%lu\n", all(0, atol(word[1]), 0));
        return 0;
    }
"#;

pub fn add(suite: &mut Suite) {
    suite.add("small maps::whatever is mapped is as alone", ["command gcc"], as_alone);
    let wants = slow_disk::WANTS.into_iter().chain(["command gcc"]);
    suite.add("small maps::files are run ahead of", wants.clone(), run_ahead);
    suite.add("small maps::what is not touched is not read", wants, untouched);
}

fn fill(folder: &Path, count: u64) -> std::io::Result<()> {
    fs::create_dir(folder.join("many"))?;
    (0..count).try_for_each(|number| fs::write(folder.join(format!("many/{number}")), bytes(number, 6000)))
}

fn as_alone() -> Verdict {
    let program = compiled("small-maps-odd", PROGRAM, &FLAGS)?;
    let words = [program.to_string_lossy().into_owned(), "40".to_owned(), "odd".to_owned()];
    let verdict = Scenario::new("small maps", words)
        .prepare(|folder| {
            files(folder)?;
            fill(folder, 40)
        })
        .modes([COLD, WARM, NO_SPECULATION])
        .check(&Runahead::built()?);
    let _ = fs::remove_file(program);
    verdict
}

fn run_ahead() -> Verdict {
    on_disk("ahead", "", 1, |counts| {
        let (seen, hinted) = (number(counts, "reads")?, number(counts, "reads_hinted")?);
        if hinted > FILES / 2 { Ok(()) } else { Err(format!("{hinted} of {seen} foretold")) }
    })
}

/// A few are waited for: those of the program's start.
fn untouched() -> Verdict {
    on_disk("untouched", "untouched", 3, |counts| {
        let (stalls, pages) = (number(counts, "stalls")?, number(&counts["speculator"], "prefetched_pages")?);
        let few = stalls < FILES / 8 && pages < FILES / 8;
        if few { Ok(()) } else { Err(format!("{stalls} stalls, {pages} pages prefetched")) }
    })
}

fn on_disk(name: &'static str, word: &str, in_a_row: u32, good: impl Fn(&Value) -> Verdict) -> Verdict {
    let program = compiled(&format!("small-maps-{name}"), PROGRAM, &FLAGS)?;
    let filled = |folder: &Path| {
        fs::copy(&program, folder.join("maps"))?;
        fill(folder, FILES)
    };
    let line = format!("cd $0; exec ./maps {FILES} {word}");
    let words = |mount: &Path| vec!["bash".into(), "-c".into(), line.clone().into(), mount.into()];
    let verdict = Disk::new(name, "cloud", filled)?.until(&words, in_a_row, good);
    let _ = fs::remove_file(program);
    verdict
}
