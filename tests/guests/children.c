// trap: children made in every way there is: wrong status, stray child, lost inheritance
// build: -pthread
// data: cold.bin 4M
// run: fork
// run: vfork
// run: spawn
// run: clone3
// run: clone-parent
// run: clone-no-signal
// run: clone-vm
// run: clone-files
// run: daemon
// run: system
#include "guest.h"
#include <linux/sched.h>
#include <sched.h>
#include <spawn.h>

extern char **environ;
static char stack[1 << 16] __attribute__((aligned(64)));

static int work(void *argument) {
    uint64_t hash = wander("cold.bin", 60);
    dprintf(1, "child: %s %016" PRIx64 "\n", (char *)argument, hash);
    return 5;
}

static volatile int shared;
static int shared_work(void *argument) {
    // The stack and memory are the parent's: nothing but plain calls.
    char block[512];
    int file = (int)raw6(SYS_open, (long)"cold.bin", O_RDONLY, 0, 0, 0, 0);
    for (long step = 0; step < 50; step++)
        if (raw6(SYS_pread64, file, (long)block, sizeof block, step * 37 % 4000 * 512, 0, 0) != sizeof block) return 9;
    shared = file + (argument != NULL);
    return 6;
}

static void status(const char *what, pid_t child, int flags) {
    int result;
    pid_t got;
    do
        got = waitpid(child, &result, flags);
    while (got < 0 && errno == EINTR);
    printf("%s: waited %d, exit %d, signal %d\n", what, got == child, WEXITSTATUS(result), WTERMSIG(result));
    errno = 0;
    got = waitpid(-1, &result, WNOHANG | __WALL);
    printf("%s: then %d, errno %d\n", what, got, errno);
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    setbuf(stdout, NULL);
    const char *how = argv[1];
    if (strcmp(how, "child") == 0) return work(argv[2]);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
    make_cold("cold.bin");
    char *const child_arguments[] = {argv[0], "child", (char *)how, NULL};
    if (strcmp(how, "fork") == 0) {
        pid_t child = fork();
        if (child == 0) {
            // A grandchild too, and the child stalls while its parent does.
            pid_t grandchild = fork();
            if (grandchild == 0) _exit(work("grandchild"));
            _exit(exit_status_of(grandchild) + work("child"));
        }
        // Reads while they do, and tells of it when they are done.
        uint64_t hash = wander("cold.bin", 10);
        status(how, child, 0);
        printf("hash %016" PRIx64 "\n", hash);
    } else if (strcmp(how, "vfork") == 0) {
        pid_t child = vfork();
        if (child == 0) {
            execv("/proc/self/exe", child_arguments);
            _exit(126);
        }
        status(how, child, 0);
    } else if (strcmp(how, "spawn") == 0) {
        pid_t child;
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addclose(&actions, 0);
        posix_spawnattr_t attributes;
        posix_spawnattr_init(&attributes);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
        CHECK(posix_spawn(&child, "/proc/self/exe", &actions, &attributes, child_arguments, environ) == 0);
        status(how, child, 0);
        int failed = posix_spawn(&child, "/nonexistent", NULL, NULL, child_arguments, environ);
        printf("spawn of nothing: %d\n", failed);
    } else if (strcmp(how, "clone3") == 0) {
        int descriptor = -1;
        struct clone_args arguments = {
            .flags = CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)&descriptor, .exit_signal = SIGCHLD};
        long child = syscall(SYS_clone3, &arguments, sizeof arguments);
        CHECK(child >= 0);
        if (child == 0) _exit(work("clone3"));
        printf("a pidfd: %d\n", descriptor > 2);
        siginfo_t info;
        CHECK(waitid((idtype_t)3 /* P_PIDFD */, (id_t)descriptor, &info, WEXITED) == 0);
        printf("code %d status %d\n", info.si_code, info.si_status);
        // With a stack of its own in the same memory, as posix_spawn does it.
        pid_t second = clone(shared_work, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
        status(how, second, 0);
    } else if (strcmp(how, "clone-parent") == 0) {
        pid_t middle = fork();
        if (middle == 0) {
            pid_t sibling = clone(work, stack + sizeof stack, CLONE_PARENT | SIGCHLD, "sibling");
            CHECK(sibling > 0);
            int result;
            errno = 0;
            CHECK(waitpid(sibling, &result, 0) == -1 && errno == ECHILD);
            _exit(0);
        }
        int first, second;
        pid_t one = wait(&first), two = wait(&second);
        printf("two children: %d, exits %d\n", one != two && two > 0, WEXITSTATUS(first) + WEXITSTATUS(second));
    } else if (strcmp(how, "clone-no-signal") == 0) {
        pid_t child = clone(work, stack + sizeof stack, 0, "silent");
        int result;
        errno = 0;
        int waited = waitpid(child, &result, 0), why = errno;
        status(how, child, __WCLONE);
        // Behind the child, which writes meanwhile.
        printf("without __WCLONE: %d, errno %d\n", waited, why);
    } else if (strcmp(how, "clone-vm") == 0) {
        for (int round = 0; round < 10; round++) {
            pid_t child = clone(shared_work, stack + sizeof stack, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, (void *)1);
            // The parent reads the same memory's files while the child does.
            printf("hash %016" PRIx64 "\n", stride("cold.bin", 20));
            status(how, child, 0);
            printf("child's descriptor is ours: %d\n", close(shared - 1));
        }
    } else if (strcmp(how, "clone-files") == 0) {
        pid_t child = clone(shared_work, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL);
        status(how, child, 0);
        // It opened the lowest free descriptor, in our table.
        printf("descriptor 3 is open: %d\n", fcntl(3, F_GETFD) >= 0);
    } else if (strcmp(how, "daemon") == 0) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        pid_t child = fork();
        if (child == 0) {
            CHECK(daemon(1, 1) == 0);
            uint64_t hash = wander("cold.bin", 60);
            CHECK(write(ends[1], &hash, sizeof hash) == sizeof hash);
            _exit(0);
        }
        close(ends[1]);
        status(how, child, 0);
        uint64_t hash;
        CHECK(read(ends[0], &hash, sizeof hash) == sizeof hash);
        printf("the daemon's hash %016" PRIx64 "\n", hash);
        printf("then: %zd\n", read(ends[0], &hash, sizeof hash));
    } else if (strcmp(how, "system") == 0) {
        printf("system: %d\n", system("cksum cold.bin; exit 3"));
        FILE *pipe = popen("head -c 100000 cold.bin | cksum", "r");
        char line[100];
        CHECK(pipe && fgets(line, sizeof line, pipe));
        printf("popen: %sclosed with %d\n", line, pclose(pipe));
    } else
        CHECK(!"unknown way");
}
