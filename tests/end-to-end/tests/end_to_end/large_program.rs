//! A program of many megabytes of code on a cold disk: its start and its course go through its own files by page faults, and these
//! are watched. And whatever it does while it is watched, everything is as it is alone.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::locate::build_folder;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

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
    suite.add("large program::whatever it does when it is cold is as alone", wants, as_alone);
}

fn cold() -> Verdict {
    // At its first start it is analysed, for which all of it is read; and then it is put out of the cache.
    run("large", "$0 && dd if=$0 iflag=nocache count=0 status=none && $0", |counts| {
        let faults = &counts["faults"];
        let (watched, spared) = (number(faults, "watched")?, number(faults, "useful_pages")?);
        match watched > 0 && spared > WAITS / 4 {
            true => Ok(()),
            false => Err(format!("watched {watched} times, {spared} waits spared")),
        }
    })
}

fn as_alone() -> Verdict {
    run("manners", MANNERS, |counts| match number(&counts["faults"], "watched")? {
        watched if watched >= WATCHED => Ok(()),
        watched => Err(format!("watched {watched} times")),
    })
}

/// Runs the line, with the program as `$0`, until its counts are as they should be.
fn run(name: &'static str, line: &str, good: impl Fn(&Value) -> Verdict) -> Verdict {
    let made = build_folder().join(format!("{name}-{}", std::process::id()));
    let written =
        fs::create_dir_all(build_folder()).and_then(|()| fs::write(made.with_extension("c"), SOURCE));
    written.map_err(|error| error.to_string())?;
    let (source, program) = (made.with_extension("c"), made.clone());
    let compiled = Command::new("gcc").args(["-O1", "-pie", "-o"]).arg(&program).arg(&source).output();
    let compiled = compiled.map_err(|error| format!("gcc: {error}"))?;
    if !compiled.status.success() {
        return Err(String::from_utf8_lossy(&compiled.stderr).into_owned());
    }
    let on_disk = |folder: &Path| fs::copy(&program, folder.join("large")).map(drop);
    let words = |mount: &Path| vec!["bash".into(), "-c".into(), line.into(), mount.join("large")];
    let verdict = Disk::new(name, "cloud", on_disk)?.until(&words, 1, good);
    for file in [source, made] {
        let _ = fs::remove_file(file);
    }
    verdict
}
