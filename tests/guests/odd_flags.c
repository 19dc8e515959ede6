// trap: calls with flags that make the processor stop: for alignment, at each instruction; and calls that a tracer sees
// data: cold.bin 4M
// run: alignment
// run: stepping
// run: traced
#include "guest.h"
#include <sys/ptrace.h>
#include <sys/user.h>

static volatile sig_atomic_t traps;

static void trapped(int number) {
    (void)number;
    traps++;
}

static char block[4096];
static int file;

// Sets a flag, reads, and takes it away again. The red zone is stepped over.
__attribute__((noinline)) static long read_with(long flag, long place) {
    long got;
    __asm__ volatile("lea -128(%%rsp), %%rsp\n pushfq\n or %0, (%%rsp)\n popfq\n lea 128(%%rsp), %%rsp" ::"r"(flag) : "memory", "cc");
    got = syscall(SYS_pread64, file, block, sizeof block, place);
    __asm__ volatile("lea -128(%%rsp), %%rsp\n pushfq\n and %0, (%%rsp)\n popfq\n lea 128(%%rsp), %%rsp" ::"r"(~flag) : "memory", "cc");
    return got;
}

static void traced(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
        raise(SIGSTOP);
        syscall(SYS_chdir, "");
        for (int step = 0; step < 3; step++) syscall(SYS_pread64, file, block, sizeof block, step * 409600L);
        syscall(SYS_exit_group, 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    bool entry = true;
    while (ptrace(PTRACE_SYSCALL, child, NULL, NULL) == 0 && waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        struct user_regs_struct registers;
        CHECK(ptrace(PTRACE_GETREGS, child, NULL, &registers) == 0);
        if (entry) printf("call %lld\n", (long long)registers.orig_rax);
        entry = !entry;
    }
    printf("ended %d\n", WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    file = open("cold.bin", O_RDONLY);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
    if (strcmp(argv[1], "traced") == 0) {
        traced();
        return 0;
    }
    bool stepping = strcmp(argv[1], "stepping") == 0;
    struct sigaction action = {.sa_handler = trapped};
    CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
    uint64_t sum = 0;
    // The loader, which may find the function first, is not made for such flags.
    syscall(SYS_getpid);
    make_cold("cold.bin");
    for (int step = 0; step < 60; step++) {
        CHECK(read_with(stepping ? 0x100 : 0x40000, step * 37 % 1000 * 4096L) == sizeof block);
        sum = sum * 31 + hash_bytes(block, sizeof block);
    }
    printf("sum %016" PRIx64 ", stopped %d\n", sum, traps > 0);
    return 0;
}
