//! System calls that say nothing of the disk and end no speculation: a program that makes all of them before
//! each read of a cold file is run ahead of.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::c_program::compiled;

use runahead_end_to_end::scenario::bytes;
use std::fs;
use std::path::Path;

const FILES: u64 = 300;

const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <linux/fs.h>
    #include <linux/ioprio.h>
    #include <poll.h>
    #include <sched.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/epoll.h>
    #include <sys/eventfd.h>
    #include <sys/inotify.h>
    #include <sys/ioctl.h>
    #include <sys/mman.h>
    #include <sys/prctl.h>
    #include <sys/resource.h>
    #include <sys/socket.h>
    #include <sys/statfs.h>
    #include <sys/syscall.h>
    #include <sys/time.h>
    #include <sys/timerfd.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static char data[8192];
    static unsigned long sum = 5381;
    static void add(long value) { sum = sum * 33 + (unsigned long)value; }
    static void asks(int fd) {
        uid_t users[3];
        gid_t groups[3];
        int ends[2], left = 0;
        struct sched_param parameters;
        struct itimerval timer;
        struct statfs status;
        struct pollfd polled = {fd, POLLIN, 0};
        sigset_t pending;
        add(getppid() == getppid());
        add(getpgrp() == getpgid(0)), add(getsid(0) > 0);
        add(getresuid(users, users + 1, users + 2)), add(getresgid(groups, groups + 1, groups + 2));
        add(getpriority(PRIO_PROCESS, 0)), add(sched_getscheduler(0)), add(sched_getparam(0, &parameters));
        add(getitimer(ITIMER_REAL, &timer)), add(sigpending(&pending));
        add(prctl(PR_SET_NAME, "asks")), add(syscall(SYS_ioprio_set, 1, 0, IOPRIO_PRIO_VALUE(2, 4)));
        if (!pipe2(ends, O_CLOEXEC)) add(write(ends[1], "x", 1)), close(ends[0]), close(ends[1]);
        if (!socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) close(ends[0]), close(ends[1]);
        int events = epoll_create1(0), event = eventfd(0, EFD_NONBLOCK), time = timerfd_create(CLOCK_MONOTONIC, 0);
        struct epoll_event wanted = {EPOLLIN, {0}}, found;
        struct itimerspec after = {{0, 0}, {1000, 0}};
        add(epoll_ctl(events, EPOLL_CTL_ADD, event, &wanted)), add(epoll_wait(events, &found, 1, 0));
        add(timerfd_settime(time, 0, &after, 0));
        close(events), close(event), close(time), close(inotify_init1(0));
        add(poll(&polled, 1, 0)), add(polled.revents);
        add(ioctl(fd, FIONREAD, &left)), add(left), add(isatty(fd)), add(isatty(1));
        add(ioctl(fd, FS_IOC_GETFLAGS, &left)), add(left & FS_NODUMP_FL);
        add(fstatfs(fd, &status)), add(status.f_bsize), add(statfs(".", &status)), add(status.f_type);
    }
    /* A child has the answer only after a while; whoever asks without waiting asks very often. */
    static void asks_in_vain(void) {
        int ends[2];
        if (pipe(ends)) exit(3);
        if (!fork()) {
            usleep(300000);
            if (write(ends[1], "x", 1) != 1) exit(4);
            exit(0);
        }
        for (int file = 0; file < 8; file++) {
            char name[] = {'0' + file, 0};
            int fd = open(name, O_RDONLY);
            add(read(fd, data, sizeof data)), close(fd);
        }
        struct pollfd polled = {ends[0], POLLIN, 0};
        while (!poll(&polled, 1, 0)) ;
        add(read(ends[0], data, 1));
        wait(0);
        printf("%lu\n", sum);
        exit(0);
    }
    int main(int words, char **word) {
        if (atol(word[1]) == 0) asks_in_vain();
        for (long file = 0; file < atol(word[1]); file++) {
            char name[40];
            sprintf(name, "%ld", file);
            int fd = open(name, O_RDONLY);
            asks(fd);
            ssize_t got = read(fd, data, sizeof data);
            for (ssize_t at = 0; at < got; at++) sum = sum * 33 + data[at];
            close(fd);
        }
        printf("%lu\n", sum);
        return words == 0;
    }
"#;

/// Makes its reads itself, by a function that makes any call. Before its code there are 256 KB of its file
/// that are no code, as where a linker puts constants first: what leads its calls elsewhere has no room right
/// below it.
const FAR: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    __asm__(".section .note.large, \"a\", @note\n.balign 4\n.long 4, 262144, 1\n"
        ".asciz \"big\"\n.fill 65536, 4, 0\n"
        ".text\n.type any, @function\nany:\n mov %edi, %eax\n mov %rsi, %rdi\n mov %rdx, %rsi\n"
        " mov %rcx, %rdx\n syscall\n ret\n.size any, .-any\n");
    long any(long, long, const void *, long);
    static unsigned char data[8192];
    int main(int words, char **word) {
        unsigned long sum = 5381;
        for (long file = 0; file < atol(word[1]); file++) {
            char name[40];
            sprintf(name, "%ld", file);
            int fd = open(name, O_RDONLY);
            long got = any(SYS_read, fd, data, sizeof data);
            for (long at = 0; at < got; at++) sum = sum * 33 + data[at];
            close(fd);
        }
        printf("%lu\n", sum);
        return words == 0;
    }
"#;

pub fn add(suite: &mut Suite) {
    let wants = slow_disk::WANTS.into_iter().chain(["command gcc"]);
    suite.add("calls::those that only ask end no speculation", wants.clone(), none_ends);
    for (what, flags) in [("loader", &["-O1", "-no-pie"]), ("static", &["-O1", "-static"])] {
        let name = format!("calls::much that is no code before a program's own calls, {what}");
        suite.add(name, wants.clone(), move || far(what, flags));
    }
    suite.add("calls::who asks again and again is not run ahead of", wants, in_vain);
}

/// The speculation ends where it would only spin, and not when its time is over: a tenth of a second.
fn in_vain() -> Verdict {
    let program = compiled("vain", PROGRAM, &["-O1"])?;
    let fill = |folder: &Path| {
        fs::copy(&program, folder.join("asks"))?;
        (0..8).try_for_each(|number| fs::write(folder.join(number.to_string()), bytes(number, 6000)))
    };
    let verdict = Disk::new("vain", "cloud", fill)?.until(
        &|mount: &Path| vec!["bash".into(), "-c".into(), "cd $0; exec ./asks 0 | cat".into(), mount.into()],
        2,
        |counts| {
            let speculator = &counts["speculator"];
            let (ns, waits) = (number(speculator, "processor_ns")?, number(&speculator["endings"], "waits")?);
            let soon = waits > 0 && ns < 30_000_000;
            if soon { Ok(()) } else { Err(format!("ended by waits {waits}, after {ns} ns")) }
        },
    );
    let _ = fs::remove_file(program);
    verdict
}

fn far(name: &'static str, flags: &[&str]) -> Verdict {
    let program = compiled(name, FAR, flags)?;
    let fill = |folder: &Path| {
        fs::copy(&program, folder.join("far"))?;
        (0..FILES).try_for_each(|number| fs::write(folder.join(number.to_string()), bytes(number, 6000)))
    };
    let line = format!("cd $0; exec ./far {FILES}");
    let verdict = Disk::new(name, "cloud", fill)?.until(
        &|mount: &Path| vec!["bash".into(), "-c".into(), line.clone().into(), mount.into()],
        1,
        |counts| match number(counts, "reads_hinted")? {
            hinted if hinted > FILES / 2 => Ok(()),
            hinted => Err(format!("{hinted} reads foretold; {}", counts["speculator"]["endings"])),
        },
    );
    let _ = fs::remove_file(program);
    verdict
}

fn none_ends() -> Verdict {
    let program = compiled("asks", PROGRAM, &["-O1"])?;
    let fill = |folder: &Path| {
        fs::copy(&program, folder.join("asks"))?;
        (0..FILES).try_for_each(|number| fs::write(folder.join(number.to_string()), bytes(number, 6000)))
    };
    let line = format!("cd $0; exec ./asks {FILES} | cat");
    let verdict = Disk::new("asks", "cloud", fill)?.until(
        &|mount: &Path| vec!["bash".into(), "-c".into(), line.clone().into(), mount.into()],
        1,
        |counts| {
            let hinted = number(counts, "reads_hinted")?;
            let calls = counts["speculator"]["endings"]["system_calls"].as_object().ok_or("no calls")?;
            // The end of the shell's part, and of the program's.
            let mut others =
                calls.keys().filter(|name| !matches!(name.as_str(), "wait4" | "execve" | "clone"));
            match others.next() {
                None if hinted > FILES / 2 => Ok(()),
                _ => Err(format!("{hinted} reads foretold; ended by {calls:?}")),
            }
        },
    );
    let _ = fs::remove_file(program);
    verdict
}
