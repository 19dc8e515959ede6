// trap: reads into memory whose faults the program handles itself: EFAULT, SIGSEGV, SIGBUS as alone
// data: cold.bin 4M
#include "guest.h"

static volatile sig_atomic_t faults;
static char *guarded;
enum { SIZE = 1 << 20 };

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    faults++;
    char *place = info->si_addr;
    if (number != SIGSEGV || place < guarded || place >= guarded + SIZE) _exit(9);
    // Lazy memory: opened at the first touch.
    if (mprotect((void *)((uintptr_t)place & ~4095ul), 4096, PROT_READ | PROT_WRITE) != 0) _exit(8);
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
    guarded = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int file = open("cold.bin", O_RDONLY);
    long refused = 0;
    for (int step = 0; step < 200; step++) {
        char *place = guarded + step * 7919 % 255 * 4096;
        errno = 0;
        ssize_t got = pread(file, place, 4096, step * 37 % 1000 * 4096L);
        if (got < 0) {
            CHECK(errno == EFAULT);
            refused++;
            // The program touches it, gets the signal, and tries again.
            *(volatile char *)place = 1;
            got = pread(file, place, 4096, step * 37 % 1000 * 4096L);
        }
        CHECK(got == 4096);
    }
    printf("refused %ld, faults %d, hash %016" PRIx64 "\n", refused, (int)faults, hash_bytes(guarded, 4096));
    // Half of the buffer is closed: a short count, and no signal.
    CHECK(mprotect(guarded, SIZE, PROT_NONE) == 0 && mprotect(guarded, 8192, PROT_READ | PROT_WRITE) == 0);
    int before = faults;
    for (int step = 0; step < 50; step++) {
        make_cold("cold.bin");
        printf("%zd ", pread(file, guarded + 4096 - step * 10, 10000, step * 50000));
    }
    printf("\nsignals by reading: %d\n", (int)faults - before);
}
