// trap: a program that is traced, by its parent or from outside, behaves other than alone
// data: cold.bin 4M
// run: trace-me
// run: attach
// run: step
// run: attach-while-reading
#include "guest.h"
#include <sys/ptrace.h>
#include <sys/user.h>

static int child_work(void) {
    dprintf(1, "child's hash %016" PRIx64 "\n", wander("cold.bin", 100));
    raise(SIGUSR1);
    dprintf(1, "child's hash %016" PRIx64 "\n", stride("cold.bin", 100));
    return 4;
}

// Lets the child go on to its end and tells every signal that it was to get.
static void follow(pid_t child) {
    for (;;) {
        int status;
        CHECK(waitpid(child, &status, __WALL) == child);
        if (WIFEXITED(status)) {
            printf("exit %d\n", WEXITSTATUS(status));
            return;
        }
        if (WIFSIGNALED(status)) {
            printf("ended by %d\n", WTERMSIG(status));
            return;
        }
        int number = WSTOPSIG(status);
        printf("signal %d\n", number);
        if (number == SIGTRAP || number == SIGSTOP || number == SIGUSR1) number = 0;
        CHECK(ptrace(PTRACE_CONT, child, NULL, (long)number) == 0);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    setbuf(stdout, NULL);
    const char *how = argv[1];
    if (strcmp(how, "child") == 0) return child_work();
    if (strcmp(how, "step") != 0) printf("hash %016" PRIx64 "\n", wander("cold.bin", 50));
    make_cold("cold.bin");
    pid_t child = fork();
    CHECK(child >= 0);
    if (strcmp(how, "trace-me") == 0) {
        if (child == 0) {
            CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
            execl("/proc/self/exe", argv[0], "child", (char *)NULL);
            _exit(126);
        }
        follow(child);
    } else if (strcmp(how, "step") == 0) {
        if (child == 0) {
            CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
            raise(SIGSTOP);
            char block[512];
            int file = open("cold.bin", O_RDONLY);
            for (int step = 0; step < 20; step++)
                if (pread(file, block, sizeof block, step * 37 % 4000 * 512) != sizeof block) _exit(9);
            _exit(4);
        }
        // Single steps over everything, rewritten sites too.
        int status;
        long steps = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
        while (!WIFEXITED(status)) {
            CHECK(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0);
            CHECK(waitpid(child, &status, 0) == child);
            CHECK(WIFEXITED(status) || (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP));
            steps++;
        }
        printf("exit %d after many steps: %d\n", WEXITSTATUS(status), steps > 200);
    } else {
        bool reading = strcmp(how, "attach-while-reading") == 0;
        if (child == 0) {
            if (reading)
                for (int round = 0; round < 30; round++) {
                    make_cold("cold.bin");
                    stride("cold.bin", 100);
                }
            else
                pause_ms(100);
            _exit(child_work());
        }
        pause_ms(30);
        if (reading) {
            for (int round = 0; round < 5; round++) {
                int status;
                CHECK(ptrace(PTRACE_SEIZE, child, NULL, NULL) == 0);
                CHECK(ptrace(PTRACE_INTERRUPT, child, NULL, NULL) == 0);
                CHECK(waitpid(child, &status, __WALL) == child && WIFSTOPPED(status));
                struct user_regs_struct registers;
                CHECK(ptrace(PTRACE_GETREGS, child, NULL, &registers) == 0);
                CHECK(ptrace(PTRACE_SETREGS, child, NULL, &registers) == 0);
                CHECK(ptrace(PTRACE_DETACH, child, NULL, NULL) == 0);
                pause_ms(3);
            }
            printf("ended by its own signal: %d\n", exit_status_of(child) == 1000 + SIGUSR1);
        } else {
            CHECK(ptrace(PTRACE_ATTACH, child, NULL, NULL) == 0);
            follow(child);
        }
    }
}
