// A stand-in for Runahead: `runahead run [options] -- COMMAND ARGUMENTS…` runs the command and does
// nothing for it, except that it breaks, on purpose, the one property named in RUNAHEAD_BREAKS
// (`none`: nothing). The suite's canaries run a test under each of these and demand that it fails.
//
// What is broken after the exec, inside the program, is broken by agent.c, preloaded.
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *breaks;
static bool broken(const char *property) { return strcmp(breaks, property) == 0; }

static void say(const char *format, const char *word, int error) {
    fprintf(stderr, "runahead (stand-in): ");
    fprintf(stderr, format, word, strerror(error));
    fprintf(stderr, "\n");
}

// A process beside the program that carries Runahead's name, as the real one has. The one in between
// is not waited for, since the time that waited-for children used can be asked for by the program;
// with SIGCHLD ignored it goes by itself and leaves no trace.
static void helper(bool with_output, int seconds) {
    signal(SIGCHLD, SIG_IGN);
    if (fork() != 0) {
        wait(NULL);
        signal(SIGCHLD, SIG_DFL);
        return;
    }
    if (fork() != 0) _exit(0);
    setsid();
    prctl(PR_SET_NAME, "runahead-helper");
    if (!with_output) close(0), close(1), close(2);
    sleep((unsigned)seconds);
    _exit(0);
}

// One that holds more and more, and whom the program can find as it finds the real one.
static void growing_helper(void) {
    int ends[2];
    pid_t number = 0;
    if (pipe(ends) != 0) return;
    if (fork() == 0) {
        if (fork() != 0) _exit(0);
        setsid();
        prctl(PR_SET_NAME, "runahead-helper");
        number = getpid();
        write(ends[1], &number, sizeof number);
        close(0), close(1), close(2), close(ends[0]), close(ends[1]);
        for (int round = 0; round < 5000; round++) {
            if (round < 1000) open("/dev/null", O_RDONLY);
            usleep(2000);
        }
        _exit(0);
    }
    wait(NULL);
    read(ends[0], &number, sizeof number);
    close(ends[0]), close(ends[1]);
    char text[32];
    snprintf(text, sizeof text, "%d:", number);
    setenv("RUNAHEAD_SESSION", text, 1);
}

static void touch(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    close(open(path, O_CREAT | O_WRONLY, 0600));
}

static void break_before_exec(void) {
    if (broken("descriptor")) dup2(open("/dev/null", O_RDONLY), 7);
    if (broken("low-descriptor")) open("/dev/null", O_RDONLY);
    if (broken("ignored-signal")) signal(SIGUSR2, SIG_IGN);
    if (broken("blocked-signal") || broken("pending-signal")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        sigprocmask(SIG_BLOCK, &set, NULL);
        if (broken("pending-signal")) raise(SIGUSR2);
    }
    // As musl does before the first handler.
    unsigned long two = 3ul << 32;
    if (broken("unblocked-signals")) syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &two, NULL, 8);
    if (broken("discarded-signal")) signal(SIGPIPE, SIG_IGN), signal(SIGPIPE, SIG_DFL);
    if (broken("reaped-child")) waitpid(-1, NULL, WNOHANG);
    if (broken("child") && fork() == 0) {
        close(0), close(1), close(2);
        pause();
    }
    if (broken("reopened-stream") && fcntl(0, F_GETFD) < 0) open("/dev/null", O_RDONLY);
    if (broken("waited-child")) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, NULL, 0);
    }
    // A child that is not waited for with plain calls, but still there for __WALL.
    if (broken("silent-child") && syscall(SYS_clone, 0, NULL, NULL, NULL, NULL) == 0) {
        close(0), close(1), close(2);
        pause();
    }
    if (broken("interval-timer")) {
        struct itimerval value = {{0, 0}, {1000, 0}};
        setitimer(ITIMER_REAL, &value, NULL);
    }
    if (broken("umask")) umask(077);
    if (broken("nice")) nice(3);
    if (broken("scheduling")) {
        struct sched_param parameter = {0};
        sched_setscheduler(0, SCHED_BATCH, &parameter);
    }
    if (broken("affinity")) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(0, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    if (broken("directory")) chdir("/");
    if (broken("limit")) {
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur--;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (broken("personality")) personality(ADDR_NO_RANDOMIZE);
    if (broken("no-new-privileges") || broken("seccomp")) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (broken("seccomp")) {
        struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {1, allow};
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    }
    if (broken("out-of-memory-score")) {
        int score = open("/proc/self/oom_score_adj", O_WRONLY);
        write(score, "500", 3);
        close(score);
    }
    if (broken("environment")) setenv("EXTRA", "1", 1);
    if (broken("terminal")) ioctl(0, TIOCNOTTY);
    if (broken("output")) puts("something of Runahead's"), fflush(stdout);
    if (broken("error-output")) fputs("something of Runahead's\n", stderr);
    if (broken("file")) touch(".", "extra");
    if (broken("changed-file")) chmod("cold.bin", 0600);
    if (broken("touched-file")) utimes("cold.bin", NULL);
    if (broken("left-file")) touch(getenv("TMPDIR"), "runahead-left");
    if (broken("left-shared-memory")) touch("/dev/shm", "runahead-left");
    if (broken("left-process")) helper(false, 30);
    if (broken("held-output")) helper(true, 1);
    if (broken("nothing-but-a-helper")) helper(false, 1);
    if (broken("growing-helper")) growing_helper();
    if (broken("stop")) raise(SIGSTOP);
    if (broken("hang")) pause();
    if (broken("needs-its-helper")) {
        // A guardian, who ends the program if the helper ends before its time.
        pid_t program = getpid();
        prctl(PR_SET_NAME, "guardian");  // not a helper's name
        if (fork() == 0) {
            setsid();
            if (fork() != 0) _exit(0);
            close(0), close(1), close(2);
            int status;
            pid_t child = fork();
            if (child == 0) {
                prctl(PR_SET_NAME, "runahead-helper");
                sleep(1);
                _exit(0);
            }
            waitpid(child, &status, 0);
            if (WIFSIGNALED(status)) kill(program, SIGTERM);
            _exit(0);
        }
        wait(NULL);
    }
}

int main(int argc, char **argv) {
    breaks = getenv("RUNAHEAD_BREAKS");
    if (!breaks) breaks = "none";
    const char *report = NULL;
    bool stats = false;
    int at = 1;
    if (argc < 2 || strcmp(argv[at++], "run") != 0) return say("usage: runahead run [options] -- COMMAND%s", "", 0), 125;
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (strcmp(argv[at], "--stats") == 0)
            stats = true;
        else if (strcmp(argv[at], "--report") == 0 && at + 1 < argc)
            report = argv[++at];
        else if (strcmp(argv[at], "--verbose") != 0 && strcmp(argv[at], "--no-speculate") != 0)
            return say("unknown option %s", argv[at], 0), 125;
    }
    at++;
    if (at >= argc) return say("no command%s", "", 0), 125;
    if (report && !broken("unwritable-report")) {
        FILE *out = fopen(report, "we");
        if (!out) return say("cannot write the report %s: %s", report, errno), 125;
        fputs(broken("report") ? "not json" : "{}", out);
        fclose(out);
    }
    bool off = getenv("RUNAHEAD") && strcmp(getenv("RUNAHEAD"), "off") == 0;
    if (!off || broken("not-off")) {
        break_before_exec();
        char folder[4096], agent[5000];
        ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
        folder[length > 0 ? length : 0] = 0;
        snprintf(agent, sizeof agent, "%s/agent.so", dirname(folder));
        if (!broken("none")) setenv("LD_PRELOAD", agent, 1);
    }
    // The statistics come after the program, so somebody has to stay; not as its parent.
    if (stats && !broken("statistics") && fork() == 0) {
        pid_t program = getppid();
        if (fork() != 0) _exit(0);
        prctl(PR_SET_NAME, "runahead-stats");
        close(0), close(1);
        while (kill(program, 0) == 0) usleep(1000);
        say("nothing was done%s", "", 0);
        _exit(0);
    }
    if (stats) wait(NULL);
    if (broken("another-process") || broken("status")) {
        pid_t child = fork();
        if (child != 0) {
            int status;
            waitpid(child, &status, 0);
            if (WIFSIGNALED(status) && !broken("status")) signal(WTERMSIG(status), SIG_DFL), raise(WTERMSIG(status));
            _exit(broken("status") ? WEXITSTATUS(status) ^ 1 : WEXITSTATUS(status));
        }
    }
    char *command = argv[at];
    if (broken("last-argument")) argv[argc - 1] = NULL;
    if (broken("argument")) argv[at] = "another-name";
    execvp(command, argv + at);
    int error = errno;
    say("cannot run %s: %s", command, error);
    if (broken("not-found")) return 1;
    return error == ENOENT ? 127 : 126;
}
