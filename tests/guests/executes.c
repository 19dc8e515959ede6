// trap: programs that are executed without the variables that name the agent, or without a loader, are not as alone
// data: cold.bin 1M
// build: -pthread
// run: empty
// run: stopped
// run: failing
// run: afterwards
// run: thread
// run: descriptor
// run: many
// run: ignoring
#include "guest.h"
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char *const nothing[] = {NULL};
// So that the compiler does not know that it is no address.
static char *volatile nowhere = (char *)16;

static char *self(void) {
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(length > 0);
    path[length] = 0;
    return path;
}

// What a program sees of its own start; `bare`: all of its environment, else without what Runahead puts there.
static void tell(int bare, int argc, char **argv, char **environment) {
    printf("%d arguments:", argc);
    for (int n = 0; n < argc; n++) printf(" %s", n ? argv[n] : "-");
    printf("\nenvironment:");
    for (char **entry = environment; *entry; entry++) {
        int is_ours = !bare && (!strncmp(*entry, "RUNAHEAD_", 9) || strstr(*entry, "librunahead") || !strncmp(*entry, "UNDER=", 6) || !strncmp(*entry, "_=", 2));
        if (!is_ours) printf(" %s", *entry);
    }
    printf("\n");
    // Whoever looks for the auxiliary vector goes by way of the environment.
    char **end = environment;
    while (*end) end++;
    unsigned long *pair = (unsigned long *)(end + 1);
    int kinds = 0, page = 0;
    for (; pair[0]; pair += 2) {
        if (pair[0] != 1) kinds++;
        if (pair[0] == 6) page = (int)pair[1];
    }
    printf("vector: page %d, %s\n", page, kinds > 15 ? "whole" : "cut");
    char text[4096] = "";
    int status = open("/proc/self/status", O_RDONLY);
    ssize_t got = read(status, text, sizeof text - 1);
    CHECK(got > 0 && close(status) == 0);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (!strncmp(line, "TracerPid", 9) || (!strncmp(line, "Sig", 3) && line[3] != 'Q') || !strncmp(line, "Shd", 3) || !strncmp(line, "Threads", 7))
            printf("%s\n", line);
    int environ_file = open("/proc/self/environ", O_RDONLY);
    ssize_t bytes = read(environ_file, text, sizeof text);
    if (bare) printf("environ: %zd bytes\n", bytes);
    close(environ_file);
    int next = dup(0);
    printf("next descriptor %d\n", next);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
    fflush(stdout);
}

static void *executes(void *unused) {
    (void)unused;
    execve(self(), (char *const[]){"executes", "bare", NULL}, nothing);
    return NULL;
}

static void wait_for(pid_t child) {
    int status;
    for (;;) {
        CHECK(waitpid(child, &status, WUNTRACED | WCONTINUED) == child);
        if (WIFSTOPPED(status)) printf("stopped by %d\n", WSTOPSIG(status)), kill(child, SIGCONT);
        else if (WIFCONTINUED(status)) printf("continued\n");
        else break;
    }
    printf("ended: %x\n", status);
}

int main(int argc, char **argv, char **environment) {
    CHECK(argc >= 2);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    const char *how = argv[1];
    if (strcmp(how, "tell") == 0 || strcmp(how, "bare") == 0) {
        tell(how[0] == 'b', argc, argv, environment);
        return 0;
    }
    if (strcmp(how, "quick") == 0) return (int)(wander("cold.bin", 100) & 127);
    if (strcmp(how, "mapped") == 0) {
        char line[512];
        int ours = 0;
        FILE *maps = fopen("/proc/self/maps", "r");
        while (maps && fgets(line, sizeof line, maps)) ours |= strstr(line, "librunahead_agent") != NULL;
        printf("%d", ours);
        if (argc == 3) make_cold("cold.bin"), wander("cold.bin", 100);
        return 0;
    }
    if (strcmp(how, "rights") == 0) {
        printf("users %d %d\n", getuid(), geteuid());
        return 0;
    }
    char *const told[] = {"executes", "bare", "me", NULL};
    if (strcmp(how, "empty") == 0) {
        execve(self(), told, nothing);
    } else if (strcmp(how, "failing") == 0) {
        const char *paths[] = {"/nowhere", "/etc/passwd", "cold.bin", "", "/dev/null", "/proc/self/status/x"};
        for (size_t n = 0; n < sizeof paths / sizeof *paths; n++) {
            errno = 0;
            int got = execve(paths[n], told, nothing);
            printf("%s: %d, errno %d\n", paths[n], got, errno);
        }
        errno = 0;
        printf("bad path: %d", execve(nowhere, told, nothing));
        printf(", errno %d\n", errno);
        errno = 0;
        printf("bad environment: %d", execve(self(), told, (char **)nowhere));
        printf(", errno %d\n", errno);
        char *bad[] = {nowhere, NULL};
        errno = 0;
        printf("bad entry: %d", execve(self(), told, bad));
        printf(", errno %d\n", errno);
        fflush(stdout);
        char **volatile none = NULL;
        execve(self(), told, none);
    } else if (strcmp(how, "afterwards") == 0) {
        // Right after an execution that has failed nobody traces it, and nothing of it is interrupted.
        pid_t child = fork();
        if (child == 0) {
            errno = 0;
            int got = execve("cold.bin", told, nothing);
            printf("%d, errno %d, ", got, errno);
            errno = 0;
            printf("traced by the parent: %ld, errno %d\n", ptrace(PTRACE_TRACEME, 0, NULL, NULL), errno);
            fflush(stdout);
            _exit(0);
        }
        wait_for(child);
        int descriptor = epoll_create1(0);
        struct epoll_event event;
        pid_t second = fork();
        if (second == 0) usleep(20000), _exit(0);
        errno = 0;
        int got = execve("cold.bin", told, nothing);
        printf("%d, errno %d, ", got, errno);
        errno = 0;
        printf("epoll: %d, errno %d\n", epoll_wait(descriptor, &event, 1, 60), errno);
        wait_for(second);
        return 0;
    } else if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, executes, NULL) == 0);
        pthread_join(thread, NULL);
    } else if (strcmp(how, "descriptor") == 0) {
        int file = open(self(), O_PATH | O_CLOEXEC);
        CHECK(file >= 0);
        syscall(SYS_execveat, file, "", told, nothing, AT_EMPTY_PATH);
    } else if (strcmp(how, "ignoring") == 0) {
        signal(SIGUSR1, SIG_IGN);
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        sigprocmask(SIG_BLOCK, &set, NULL);
        raise(SIGUSR2);
        execve(self(), told, nothing);
    } else if (strcmp(how, "stopped") == 0) {
        // Stopped and continued about the time at which it executes.
        for (int round = 0; round < 20; round++) {
            pid_t child = fork();
            if (child == 0) execve(self(), (char *const[]){"executes", "quick", NULL}, nothing);
            usleep(round * 100);
            kill(child, SIGSTOP);
            int status, stops = 0;
            while (waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status)) stops++, kill(child, SIGCONT);
            CHECK(stops <= 1 && WIFEXITED(status));
            printf("%x\n", status);
        }
        return 0;
    } else if (strcmp(how, "many") == 0) {
        pid_t children[40];
        for (int n = 0; n < 40; n++) {
            children[n] = n % 2 ? vfork() : fork();
            if (children[n] == 0) {
                execve(self(), (char *const[]){"executes", "quick", NULL}, n % 3 ? nothing : environment);
                _exit(99);
            }
        }
        for (int n = 0; n < 40; n++) wait_for(children[n]);
        return 0;
    }
    return 1;
}
