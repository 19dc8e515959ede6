// trap: on its way to the command the launcher changes what a process inherits: signals blocked, pending or ignored, children, settings
// data: cold.bin 4M
// around: {here}/inherited set
// run: look
#include "guest.h"
#include <linux/mempolicy.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sched.h>

static uint64_t all_but(uint64_t set, int signal) { return set & ~(1ull << (signal - 1)); }

// What a process can hand down to the program that takes its place. Some of it the kernel refuses to some users: then it
// is not set, alone and under.
static void set(char **command) {
    CHECK(raw6(SYS_chdir, (long)".", 0, 0, 0, 0, 0) == 0);
    umask(0137);
    setpriority(PRIO_PROCESS, 0, 3);
    struct sched_param none = {0};
    sched_setscheduler(0, SCHED_BATCH, &none);
    syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 6);
    cpu_set_t processors;
    CHECK(sched_getaffinity(0, sizeof processors, &processors) == 0);
    for (int at = 0; at < CPU_SETSIZE; at++)
        if (CPU_ISSET(at, &processors)) {
            CPU_ZERO(&processors);
            CPU_SET(at, &processors);
            sched_setaffinity(0, sizeof processors, &processors);
            break;
        }
    prctl(PR_SET_TIMERSLACK, 123456);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    prctl(PR_SET_NAME, "renamed");
    syscall(SYS_set_mempolicy, MPOL_PREFERRED, NULL, 0);
    personality(ADDR_NO_RANDOMIZE | 0x0020000);
    struct rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_CORE, &limit);
    setrlimit(RLIMIT_SIGPENDING, &(struct rlimit){77, 99});
    int file = open("/proc/self/oom_score_adj", O_WRONLY);
    write(file, "321", 3), close(file);
    file = open("/proc/self/coredump_filter", O_WRONLY);
    write(file, "0x7", 3), close(file);
    syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, NULL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    struct itimerval long_after = {{0, 0}, {100000, 0}};
    setitimer(ITIMER_REAL, &long_after, NULL);
    // Descriptors with gaps, and one that neither reads nor writes at once.
    CHECK(dup2(open("cold.bin", O_RDONLY), 9) == 9 && fcntl(9, F_SETFL, O_NONBLOCK | O_NOATIME) <= 0);
    signal(SIGUSR2, SIG_IGN), signal(SIGSEGV, SIG_IGN), signal(SIGXFSZ, SIG_IGN);
    struct { void *handler; long flags; void *restorer; uint64_t mask; } ignore = {SIG_IGN, 0, NULL, 0};
    for (int number = 32; number < 36; number++)
        CHECK(raw6(SYS_rt_sigaction, number, (long)&ignore, 0, 8, 0, 0) == 0);
    uint64_t blocked = all_but(~0ull, SIGKILL);
    CHECK(raw6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&blocked, 0, 8, 0, 0) == 0);
    // Pending: to the process and to its thread, of the real-time kind with words and twice.
    union sigval word = {.sival_int = 4711};
    CHECK(sigqueue(getpid(), SIGRTMIN + 2, word) == 0 && sigqueue(getpid(), SIGRTMIN + 2, word) == 0);
    static const int numbers[] = {SIGPIPE, SIGCHLD, SIGTERM, SIGINT, SIGABRT, SIGSYS, SIGSTKFLT};
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++)
        CHECK(raw6(SYS_kill, getpid(), numbers[at], 0, 0, 0, 0) == 0);
    CHECK(raw6(SYS_tkill, getpid(), SIGHUP, 0, 0, 0, 0) == 0);
    // The child of a shell that then becomes the command: one has ended, one lives.
    if (fork() == 0) _exit(11);
    int ends[2];
    CHECK(pipe(ends) == 0);
    if (fork() == 0) {
        char byte;
        close(ends[1]);
        read(ends[0], &byte, 1);
        _exit(12);
    }
    close(ends[0]);
    CHECK(dup2(ends[1], 20) == 20 && close(ends[1]) == 0);
    siginfo_t info;
    CHECK(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) == 0);
    execvp(command[0], command);
    _exit(127);
}

static void look(void) {
    static const char *const status[] = {"Umask", "Tgid", "TracerPid", "Uid", "Gid", "Groups", "SigQ", "SigPnd", "ShdPnd",
        "SigBlk", "SigIgn", "SigCgt", "Cap", "NoNewPrivs", "Seccomp", "Speculation", "Cpus_allowed_list",
        "Mems_allowed_list", "THP", "Kthread", "CoreDumping", "untag", NULL};
    char *text = slurp("/proc/self/status");
    CHECK(text);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        for (const char *const *word = status; *word; word++)
            if (strcmp(*word, "Tgid") != 0 && strncmp(line, *word, strlen(*word)) == 0) {
                // Of how many may wait, not of how many wait: others of this user have some.
                if (strcmp(*word, "SigQ") == 0) line = strchr(line, '/');
                printf("%s\n", line);
            }
    static const char *const files[] = {"limits", "oom_score_adj", "coredump_filter", "timerslack_ns", "personality", "cgroup",
        "cpuset", "loginuid", "sessionid", "uid_map", "timens_offsets", "comm", "attr/current"};
    for (size_t at = 0; at < sizeof files / sizeof *files; at++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/%s", files[at]);
        char *text = slurp(path);
        printf("%s: %s\n", path, text ? text : "none");
    }
    static const char *const spaces[] = {"cgroup", "ipc", "net", "pid", "pid_for_children", "time", "user", "uts"};
    for (size_t at = 0; at < sizeof spaces / sizeof *spaces; at++) {
        char path[64], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/ns/%s", spaces[at]);
        readlink(path, target, sizeof target - 1);
        printf("%s\n", target);
    }
    for (int number = 1; number < NSIG; number++) {
        struct { void *handler; long flags; void *restorer; uint64_t mask; } action;
        if (raw6(SYS_rt_sigaction, number, 0, (long)&action, 8, 0, 0) != 0) continue;
        if (action.handler || action.flags)
            printf("signal %d: %s, flags %lx\n", number, action.handler == (void *)SIG_IGN ? "ignored" : "handled", action.flags);
    }
    stack_t alternate;
    CHECK(sigaltstack(NULL, &alternate) == 0);
    printf("alternate stack: flags %x\n", (unsigned)alternate.ss_flags);
    int reaper = -1, death = -1, mode = -1;
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    prctl(PR_GET_PDEATHSIG, &death);
    syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0);
    printf("subreaper %d, death signal %d, memory policy %d\n", reaper, death, mode);
    printf("dumpable %d, slack %d, huge pages off %d, keepcaps %d, securebits %x, name %s\n", prctl(PR_GET_DUMPABLE),
           prctl(PR_GET_TIMERSLACK), prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), prctl(PR_GET_KEEPCAPS),
           (unsigned)prctl(PR_GET_SECUREBITS), slurp("/proc/self/comm"));
    printf("merges %d, executable memory %d, speculation %d %d\n", prctl(67 /* PR_GET_MEMORY_MERGE */, 0, 0, 0, 0),
           prctl(66 /* PR_GET_MDWE */, 0, 0, 0, 0), prctl(PR_GET_SPECULATION_CTRL, 0, 0, 0, 0),
           prctl(PR_GET_SPECULATION_CTRL, 1, 0, 0, 0));
    struct sched_param parameter;
    CHECK(sched_getparam(0, &parameter) == 0);
    printf("nice %d, policy %d, priority %d, io priority %lx\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0),
           parameter.sched_priority, syscall(SYS_ioprio_get, 1, 0));
    struct itimerval timer;
    CHECK(getitimer(ITIMER_REAL, &timer) == 0);
    printf("timer: %d\n", timer.it_value.tv_sec > 90000);
    for (int fd = 0; fd < 64; fd++) {
        char path[64], target[256] = "closed";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length < 0) continue;
        target[length] = 0;
        if (strncmp(target, "pipe:", 5) == 0) strcpy(target, "pipe");
        printf("%d: %s, %x, %x\n", fd, target, (unsigned)fcntl(fd, F_GETFL), (unsigned)fcntl(fd, F_GETFD));
    }
    printf("session keyring: %d\n", (int)(syscall(SYS_keyctl, 0, -3, 0) > 0));
    char *children = slurp("/proc/thread-self/children");
    int count = 0;
    for (char *at = children; at && *at; at++) count += *at == ' ';
    printf("%d children\n", count);
    close(20);
    for (int step = 0; step < 2; step++) {
        int state = 0;
        pid_t child = wait4(-1, &state, __WALL, NULL);
        printf("child %d, status %d\n", child > 0, WEXITSTATUS(state));
    }
    printf("no more: %d\n", wait4(-1, NULL, __WALL, NULL) == -1 && errno == ECHILD);
    // What is pending, in the order in which it is taken.
    uint64_t all = ~0ull;
    struct timespec now = {0, 0};
    for (siginfo_t info; raw6(SYS_rt_sigtimedwait, (long)&all, (long)&info, (long)&now, 8, 0, 0) > 0;)
        printf("pending %d, code %d, own %d, word %d\n", info.si_signo, info.si_code, info.si_pid == getpid(),
               info.si_signo >= SIGRTMIN ? info.si_int : 0);
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    if (strcmp(argv[1], "set") == 0) set(argv + 2);
    look();
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 200));
    look();
}
