// trap: a handler on the smallest alternate stack that reads: Runahead needs more stack than is there
// data: cold.bin 4M
#include "guest.h"
#include <sys/auxv.h>

static int file;
static volatile sig_atomic_t handled;
static char block[4096];

static void on_signal(int number) {
    (void)number;
    // The bare call: what libc puts on the stack is not at issue.
    long got = raw6(SYS_pread64, file, (long)block, sizeof block, handled * 40960L, 0, 0);
    if (got == sizeof block) handled++;
}

int main(void) {
    file = open("cold.bin", O_RDONLY);
    size_t least = getauxval(AT_MINSIGSTKSZ);
    if (least < 2048) least = MINSIGSTKSZ;
    // One page below is closed, so that an overflow is seen. 512 bytes for the handler itself is what
    // a careful program leaves; the signal frame takes the rest.
    size_t size = least + 512;
    size_t pages = (size + 4095) / 4096 + 1;
    char *space = mmap(NULL, pages * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mprotect(space + 4096, (pages - 1) * 4096, PROT_READ | PROT_WRITE) == 0);
    // The stack ends with the mapping and begins somewhere in its first page: what lies between is
    // filled with a pattern that must stay.
    char *start = space + pages * 4096 - size;
    memset(space + 4096, 0x77, (size_t)(start - space) - 4096);
    stack_t alternate = {.ss_sp = start, .ss_size = size};
    CHECK(sigaltstack(&alternate, NULL) == 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int round = 0; round < 90; round++) raise(SIGUSR1);
    size_t overwritten = 0;
    for (char *at = space + 4096; at < start; at++) overwritten += *at != 0x77;
    printf("handled %d, bytes below the stack overwritten: %zu\n", (int)handled, overwritten);
    CHECK(handled == 90 && overwritten == 0);
}
