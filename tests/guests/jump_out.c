// trap: siglongjmp out of a handler in the middle of a read leaves Runahead, or the mask, in disorder
// data: cold.bin 4M
#include "guest.h"
#include <setjmp.h>

static sigjmp_buf back;
static volatile sig_atomic_t armed, jumps;

static void on_alarm(int number) {
    (void)number;
    if (armed) {
        armed = 0;
        jumps++;
        siglongjmp(back, 1);
    }
}

int main(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    static char block[4096];
    int file = open("cold.bin", O_RDONLY), ends[2];
    CHECK(pipe(ends) == 0);
    // Out of a pipe's read, which surely blocks; out of file reads, at whatever instant it hits.
    for (int round = 0; round < 30; round++) {
        struct itimerval soon = {{0, 0}, {0, 2000}};
        if (sigsetjmp(back, 1) == 0) {
            armed = 1;
            CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
            read(ends[0], block, sizeof block);
            CHECK(!"nothing is ever written");
        }
    }
    CHECK(jumps == 30);
    for (volatile int round = 0; round < 60; round++) {
        struct itimerval soon = {{0, 0}, {0, 150 + 37 * round}};
        make_cold("cold.bin");
        if (sigsetjmp(back, 1) == 0) {
            armed = 1;
            CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
            for (int step = 0;; step++) CHECK(pread(file, block, 4096, step * 7919 % 1000 * 4096L) == 4096);
        }
    }
    sigset_t mask;
    CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0);
    printf("%d jumps, alarm blocked: %d, hash %016" PRIx64 "\n", (int)jumps, sigismember(&mask, SIGALRM), wander("cold.bin", 100));
}
