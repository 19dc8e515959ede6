// trap: a program has given up rights, and then its system calls come to itself: an execution's come with ours
// needs: kernel 5.11
// data: cold.bin 4M
// run: once
#include "guest.h"
#include <sys/prctl.h>
#include <ucontext.h>

#define PR_SET_SYSCALL_USER_DISPATCH 59

static volatile char selector; // 0: calls pass, 1: they come to the handler
static volatile long seen, executions;

// The call fails, and all pass again.
static void on_call(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    selector = 0;
    seen++, executions += registers[REG_RAX] == SYS_execve;
    registers[REG_RAX] = -ENOEXEC;
}

extern char **environ;

int main(int argc, char **argv) {
    CHECK(argc == 2);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 50));
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_NODEFER};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    errno = 0;
    printf("executed %d, errno %d\n", execve("/nowhere/nothing", argv, environ), errno);
    CHECK(prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector) == 0);
    selector = 1;
    errno = 0;
    int executed = execve("/nowhere/nothing", argv, environ), error = errno;
    selector = 0;
    printf("executed %d, errno %d, %ld calls seen, %ld executions\n", executed, error, seen, executions);
}
