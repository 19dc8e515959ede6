// trap: something of Runahead's shows inside the program: a descriptor, a handler, a thread, a child
// data: cold.bin 4M
// run: streams
// run: closed-streams
#include "guest.h"
#include <dirent.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <ucontext.h>

extern char **environ;

// Observations are collected in memory and printed at the very end, so that looking does not change
// what is seen (and so that the guest works with its standard streams closed).
static char story[1 << 20];
static size_t told;

static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(story + told, sizeof story - told, format, arguments);
    va_end(arguments);
    CHECK(length >= 0 && told + (size_t)length < sizeof story);
    told += (size_t)length;
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder);
    int found[4096], count = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder))
            found[count++] = atoi(entry->d_name);
    closedir(folder);
    qsort(found, (size_t)count, sizeof *found, by_number);
    for (int at = 0; at < count; at++) {
        char link[64], target[512];
        snprintf(link, sizeof link, "/proc/self/fd/%d", found[at]);
        ssize_t length = readlink(link, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        // A pipe's number differs from run to run.
        if (strncmp(target, "pipe:", 5) == 0) strcpy(target, "pipe");
        say("descriptor %d: %s, flags %x, descriptor flags %x\n", found[at], target,
            (unsigned)fcntl(found[at], F_GETFL), (unsigned)fcntl(found[at], F_GETFD));
    }
}

static void signals(void) {
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) != 0) continue;
        if (action.sa_handler != SIG_DFL || action.sa_flags)
            say("signal %d: %s, flags %x\n", number,
                action.sa_handler == SIG_IGN ? "ignored"
                : action.sa_handler == SIG_DFL ? "default" : "handled",
                (unsigned)action.sa_flags);
    }
    sigset_t blocked, pending;
    CHECK(sigprocmask(SIG_SETMASK, NULL, &blocked) == 0 && sigpending(&pending) == 0);
    for (int number = 1; number < NSIG; number++) {
        if (sigismember(&blocked, number)) say("signal %d: blocked\n", number);
        if (sigismember(&pending, number)) say("signal %d: pending\n", number);
    }
    stack_t alternate;
    CHECK(sigaltstack(NULL, &alternate) == 0);
    say("alternate stack: flags %x, size %zu\n", (unsigned)alternate.ss_flags, alternate.ss_size);
}

static void family(void) {
    DIR *folder = opendir("/proc/self/task");
    CHECK(folder);
    int threads = 0;
    for (struct dirent *entry; (entry = readdir(folder));) threads += entry->d_name[0] != '.';
    closedir(folder);
    say("threads: %d\n", threads);
    errno = 0;
    int status;
    pid_t child = wait4(-1, &status, WNOHANG | __WALL, NULL);
    say("wait4 with __WALL: %d, errno %d\n", child > 0 ? 1 : child, errno);
    errno = 0;
    siginfo_t info;
    int waited = waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG | __WALL | WNOWAIT);
    say("waitid: %d, errno %d\n", waited, errno);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    char *children = slurp(path);
    say("children: %s\n", children && *children ? "some" : "none");
    snprintf(path, sizeof path, "/proc/%d/comm", getppid());
    char *parent = slurp(path);
    say("parent: %s", parent ? parent : "?\n");
    say("own name: %s", slurp("/proc/self/comm"));
    say("leads its group: %d, its session: %d, thread is process: %d\n", getpgrp() == getpid(),
        getsid(0) == getpid(), syscall(SYS_gettid) == getpid());
    struct rusage usage;
    CHECK(getrusage(RUSAGE_CHILDREN, &usage) == 0);
    // What `time` tells of the children that were waited for, by whoever was this process before.
    say("children have used: %s\n", usage.ru_minflt + usage.ru_majflt > 0 ? "something" : "nothing");
}

static void settings(void) {
    static const int timers[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
    for (int at = 0; at < 3; at++) {
        struct itimerval value;
        CHECK(getitimer(timers[at], &value) == 0);
        say("timer %d: %d\n", at, value.it_value.tv_sec || value.it_value.tv_usec);
    }
    say("posix timers: %s\n", slurp("/proc/self/timers") ?: "?");
    mode_t mask = umask(0);
    umask(mask);
    char directory[PATH_MAX];
    say("umask %o, directory %s\n", mask, getcwd(directory, sizeof directory));
    for (int which = 0; which < RLIM_NLIMITS; which++) {
        struct rlimit limit;
        CHECK(getrlimit(which, &limit) == 0);
        say("limit %d: %lx %lx\n", which, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
    }
    errno = 0;
    int nice_value = getpriority(PRIO_PROCESS, 0);
    struct sched_param parameter;
    CHECK(syscall(SYS_sched_getparam, 0, &parameter) == 0); // musl has none
    cpu_set_t processors;
    CHECK(sched_getaffinity(0, sizeof processors, &processors) == 0);
    say("nice %d, policy %d, priority %d, io priority %ld, processors %d\n", nice_value,
        sched_getscheduler(0), parameter.sched_priority, syscall(SYS_ioprio_get, 1, 0),
        CPU_COUNT(&processors));
    say("personality %x\n", (unsigned)personality(0xffffffff));
    int killer = -1, reaper = -1, death = -1;
    prctl(PR_GET_TSC, &killer);
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    prctl(PR_GET_PDEATHSIG, &death);
    say("dumpable %d, no_new_privs %d, seccomp %d, keepcaps %d, tsc %d, subreaper %d, death signal %d\n",
        prctl(PR_GET_DUMPABLE), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_SECCOMP),
        prctl(PR_GET_KEEPCAPS), killer, reaper, death);
    say("timer slack %d, securebits %x, thp disabled %d, io flusher %d\n", prctl(PR_GET_TIMERSLACK),
        (unsigned)prctl(PR_GET_SECUREBITS), prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0),
        prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0));
    say("users %d %d, groups %d %d\n", getuid(), geteuid(), getgid(), getegid());
    char *score = slurp("/proc/self/oom_score_adj");
    say("oom_score_adj %s", score ? score : "?\n");
    char *status = slurp("/proc/self/status");
    for (char *line = strtok(status, "\n"); line; line = strtok(NULL, "\n")) {
        static const char *const wanted[] = {"TracerPid", "CapInh", "CapPrm", "CapEff", "CapBnd",
                                             "CapAmb", "Seccomp", "FDSize", "Threads",
                                             "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt",
                                             "NoNewPrivs", "Umask", "CoreDumping", "Speculation"};
        for (size_t at = 0; at < sizeof wanted / sizeof *wanted; at++)
            if (strncmp(line, wanted[at], strlen(wanted[at])) == 0) say("%s\n", line);
    }
    int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
    say("controlling terminal: %s\n", terminal >= 0 ? "yes" : "no");
    if (terminal >= 0) close(terminal);
}

static void environment(char **argv) {
    for (char **argument = argv; *argument; argument++) say("argument: %s\n", *argument);
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "LD_PRELOAD=", 11) != 0 && strncmp(*variable, "RUNAHEAD", 8) != 0)
            say("environment: %s\n", *variable);
    unsigned short control;
    uint32_t vector_control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    __asm__ volatile("stmxcsr %0" : "=m"(vector_control));
    say("x87 control %x, mxcsr %x\n", control, vector_control);
}

static void everything(const char *when, char **argv) {
    say("== %s\n", when);
    descriptors();
    signals();
    family();
    settings();
    environment(argv);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    if (strcmp(argv[1], "closed-streams") == 0) close(0), close(2);
    everything("at the start", argv);
    say("hash %016" PRIx64 "\n", stride("cold.bin", 300));
    everything("after computed reads", argv);
    say("hash %016" PRIx64 "\n", wander("cold.bin", 300));
    everything("after dependent reads", argv);
    errno = 4711;
    int descriptor = open("cold.bin", O_RDONLY | O_CLOEXEC);
    char block[4096];
    for (int at = 0; at < 64; at++) CHECK(pread(descriptor, block, sizeof block, at * 65536L) == 4096);
    say("errno after successful calls: %d\n", errno);
    close(descriptor);
    CHECK(write(1, story, told) == (ssize_t)told);
}
