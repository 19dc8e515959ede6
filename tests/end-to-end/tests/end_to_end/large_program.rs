//! A program of many megabytes of code on a cold disk: its start and its course go through its own files by page faults, and these
//! are watched. And whatever it does while it is watched, everything is as it is alone.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::c_program::compiled;

use std::fs;
use std::path::Path;

/// How often it waits for pages of its code alone, of 12 MB, where the kernel reads 128 KB around each.
const WAITS: u64 = 12 * 8;

/// A table for the loader to relocate, at places so far apart that it waits for each; and 3000 pages of code, each a
/// function of its own, which it calls in an order that nobody foresees.
const SOURCE: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <linux/seccomp.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    __asm__(".data\n.globl table\ntable:\n.rept 64\n.quad code\n.fill 262136,1,1\n.endr\n"
            ".text\n.balign 4096\n.globl code\ncode:\n.rept 3000\nlea 1(%rdi), %rax\nret\n.balign 4096, 0x90\n.endr\n");
    extern char code[], table[];
    static void walk(void) {
        char line[24];
        unsigned long sum = 0;
        for (unsigned long at = 0; at < 3000; at++)
            sum += ((unsigned long (*)(unsigned long))(code + at * 577 % 3000 * 4096))(at);
        if (write(1, line, sprintf(line, "%lu\n", sum + (*(char **)table != code))) < 0) return;
    }
    int main(int count, char **words) {
        const char *what = count > 1 ? words[1] : "";
        int failed = 0, left = count > 2 ? atoi(words[2]) : 0;
        char fewer[16];
        if (!strcmp(what, "strict")) failed = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        if (!strcmp(what, "undumpable")) failed = prctl(PR_SET_DUMPABLE, 0);
        if (!strcmp(what, "nobody")) failed = setgid(65534) || setuid(65534);
        if (!strcmp(what, "rooted")) failed = chroot("/proc") || chdir("/");
        if (!strcmp(what, "closed")) failed = close_range(3, ~0U, 0);
        if (!strcmp(what, "nameless")) failed = rename(words[0], words[2]) || unlink(words[2]);
        if (!strcmp(what, "orphan") && fork()) return 5;
        if (!strcmp(what, "brief")) _exit(6);
        if (!strcmp(what, "killed") && close(1) == 0 && !fork()) {
            usleep(20000);
            kill(getppid(), SIGKILL);
            _exit(0);
        }
        if (!strcmp(what, "many"))
            for (int child = 0; child < 10; child++)
                if (!fork()) { walk(); _exit(0); }
        if (!strcmp(what, "again") && left) {
            sprintf(fewer, "%d", left - 1);
            if (left % 2) walk();
            execl(words[0], words[0], what, fewer, (char *)0);
        }
        walk();
        while (strcmp(what, "strict") && wait(0) > 0) ;
        if (!strcmp(what, "killed")) pause();
        syscall(SYS_exit, failed ? 9 : 0);
    }
"#;

/// What it does at its start, each cold; the last one goes without its name.
const MANNERS: &str = "$0 && \
    for manner in strict undumpable nobody rooted closed brief 'again 7' many orphan killed \"nameless $0.old\"; do \
    dd if=$0 iflag=nocache count=0 status=none; $0 $manner | cat; echo ${PIPESTATUS[0]} ${manner%% *}; done";

/// Some of its starts are over before anybody could watch.
const WATCHED: u64 = 5;

pub fn add(suite: &mut Suite) {
    let wants = slow_disk::WANTS.into_iter().chain(["command gcc"]);
    suite.add("large program::its own pages are asked for ahead when it is cold", wants.clone(), cold);
    suite.add("large program::nobody watches it when it is cached", wants.clone(), cached);
    suite.add("large program::whatever it does when it is cold is as alone", wants, as_alone);
}

fn cold() -> Verdict {
    // At its first start it is analysed, for which all of it is read; and then it is put out of the cache.
    let line = "$0 && dd if=$0 iflag=nocache count=0 status=none && $0";
    counted("cold", line, |watched, spared| watched > 0 && spared > WAITS / 4)
}

fn cached() -> Verdict {
    // Often, since who is to watch a program may come when it has ended.
    let line = "cat $0 > /dev/null; for at in 1 2 3 4 5 6 7 8 9 10; do $0; done";
    counted("cached", line, |watched, _| watched == 0)
}

fn as_alone() -> Verdict {
    counted("manners", MANNERS, |watched, _| watched >= WATCHED)
}

/// Runs a shell's line, with the program's path as `$0`, until the times that page faults were watched and the waits spared are
/// good.
fn counted(name: &'static str, line: &str, good: impl Fn(u64, u64) -> bool) -> Verdict {
    let program = compiled(&format!("large-{name}"), SOURCE, &["-O1", "-pie"])?;
    let on_disk = |folder: &Path| fs::copy(&program, folder.join("large")).map(drop);
    let verdict = Disk::new(name, "cloud", on_disk)?.until(
        &|mount: &Path| vec!["bash".into(), "-c".into(), line.into(), mount.join("large")],
        1,
        |counts| {
            let faults = &counts["faults"];
            let (watched, spared) = (number(faults, "watched")?, number(faults, "useful_pages")?);
            match good(watched, spared) {
                true => Ok(()),
                false => Err(format!("watched {watched} times, {spared} waits spared")),
            }
        },
    );
    let _ = fs::remove_file(program);
    verdict
}
