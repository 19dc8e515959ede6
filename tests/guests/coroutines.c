// trap: coroutines with stacks of 4 KB that read: Runahead needs more stack than is there
// glibc: contexts (makecontext)
// data: cold.bin 4M
#include "guest.h"
#include <ucontext.h>

enum { ROUTINES = 8, STACK = 4096, ROUNDS = 60 };
static ucontext_t home, contexts[ROUTINES];
static int file;
static uint64_t sums[ROUTINES];
static char *stacks[ROUTINES];
static char blocks[ROUTINES][512];

static void routine(int which) {
    for (int round = 0; round < ROUNDS; round++) {
        ssize_t got = pread(file, blocks[which], 512, (round * 37 + which * 101) % 8000 * 512L);
        if (got != 512) _exit(9);
        sums[which] = sums[which] * 31 + hash_bytes(blocks[which], 512);
        swapcontext(&contexts[which], &home);
    }
}

int main(void) {
    file = open("cold.bin", O_RDONLY);
    for (int which = 0; which < ROUTINES; which++) {
        // A closed page below each stack.
        char *space = mmap(NULL, STACK + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(mprotect(space + 4096, STACK, PROT_READ | PROT_WRITE) == 0);
        stacks[which] = space + 4096;
        CHECK(getcontext(&contexts[which]) == 0);
        contexts[which].uc_stack.ss_sp = stacks[which];
        contexts[which].uc_stack.ss_size = STACK;
        contexts[which].uc_link = &home;
        makecontext(&contexts[which], (void (*)(void))routine, 1, which);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int which = 0; which < ROUTINES; which++) CHECK(swapcontext(&home, &contexts[which]) == 0);
    for (int which = 0; which < ROUTINES; which++) printf("%016" PRIx64 "\n", sums[which]);
}
