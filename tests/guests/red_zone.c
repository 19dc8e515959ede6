// trap: the 128 bytes below the stack pointer do not survive a system call of the program's own
// data: cold.bin 4M
#include "guest.h"

// A leaf function may keep data below the stack pointer, across a system call too. The site is of
// the commonest shape (mov number, syscall, compare) and of a bare one, so that one of them is
// likely to be rewritten.
static volatile sig_atomic_t signals_seen;
static void on_alarm(int number) { (void)number, signals_seen++; }

#define FILL_AND_READ(SETUP)                                                                    \
    __asm__ volatile(                                                                           \
        "mov $-128, %%r12\n"                                                                    \
        "1: mov %%r12, %%r13\n xor $0x5a5a5a, %%r13\n mov %%r13, (%%rsp,%%r12)\n"               \
        "add $8, %%r12\n jnz 1b\n" SETUP "syscall\n"                                            \
        "cmp $-4095, %%rax\n"                                                                   \
        "mov $-128, %%r12\n xor %%r14d, %%r14d\n"                                               \
        "2: mov %%r12, %%r13\n xor $0x5a5a5a, %%r13\n cmp %%r13, (%%rsp,%%r12)\n"               \
        "je 3f\n inc %%r14\n 3: add $8, %%r12\n jnz 2b\n"                                       \
        "mov %%r14, %1\n"                                                                       \
        : "=&a"(result), "=&b"(broken)                                                          \
        : "0"(SYS_pread64), "D"((long)descriptor), "S"(block), "d"(sizeof block), "r"(place)    \
        : "rcx", "r11", "r12", "r13", "r14", "memory", "cc")

int main(void) {
    static char block[4096];
    int descriptor = open("cold.bin", O_RDONLY);
    long total_broken = 0, bytes = 0;
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (int round = 0; round < 2; round++) {
        // The second round with signals, whose frames the kernel puts below the red zone.
        struct itimerval often = {{0, round ? 700 : 0}, {0, round ? 700 : 0}};
        CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
        make_cold("cold.bin");
        for (long step = 0; step < 400; step++) {
            register long place __asm__("r10") = (step * 7919 % 1000) * 4096;
            long result, broken;
            if (step % 2)
                FILL_AND_READ("");
            else
                FILL_AND_READ("mov $17, %%eax\n");
            CHECK(result == sizeof block || result == -EINTR);
            bytes += result == -EINTR ? (long)sizeof block : result;
            total_broken += broken;
        }
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%ld bytes, red zone words broken: %ld\n", bytes, total_broken);
    CHECK(total_broken == 0);
}
