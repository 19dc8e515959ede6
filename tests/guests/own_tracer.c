// trap: whom the program lets trace it is its own choice
// needs: file /proc/sys/kernel/yama/ptrace_scope
// data: cold.bin 4M
#include "guest.h"
#include <sys/prctl.h>
#include <sys/ptrace.h>

// A process beside the program, which only the program's own word lets trace it.
static pid_t beside(int from, int to) {
    pid_t middle = fork();
    if (middle != 0) {
        CHECK(exit_status_of(middle) == 0);
        pid_t tracer;
        CHECK(read(from, &tracer, sizeof tracer) == sizeof tracer);
        return tracer;
    }
    pid_t program = getppid();
    if (fork() != 0) _exit(0);
    pid_t own = getpid();
    CHECK(write(to, &own, sizeof own) == sizeof own);
    return -program;
}

int main(void) {
    // Root may trace in any case.
    if (geteuid() == 0) CHECK(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    int up[2], down[2];
    CHECK(pipe(up) == 0 && pipe(down) == 0);
    pid_t tracer = beside(up[0], up[1]);
    if (tracer < 0) {
        char go;
        CHECK(read(down[0], &go, 1) == 1);
        int status, done = ptrace(PTRACE_ATTACH, -tracer, 0, 0) == 0 ? 0 : errno;
        if (done == 0) {
            CHECK(waitpid(-tracer, &status, __WALL) == -tracer);
            CHECK(ptrace(PTRACE_DETACH, -tracer, 0, 0) == 0);
        }
        CHECK(write(up[1], &done, sizeof done) == sizeof done);
        _exit(0);
    }
    CHECK(prctl(PR_SET_PTRACER, tracer, 0, 0, 0) == 0);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 200));
    CHECK(write(down[1], "g", 1) == 1);
    int done;
    CHECK(read(up[0], &done, sizeof done) == sizeof done);
    printf("traced by whom it let: %d\n", done);
}
