// trap: a lease is only given while nobody else has the file open, and broken by whoever opens it
// data: cold.bin 4M
#include "guest.h"

static volatile sig_atomic_t broken;
static void on_break(int number) { (void)number, broken++; }

int main(void) {
    char block[4096];
    signal(SIGIO, on_break);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
    int leased = open("cold.bin", O_RDWR);
    int given = fcntl(leased, F_SETLEASE, F_WRLCK);
    CHECK(fsync(leased) == 0 && posix_fadvise(leased, 0, 0, POSIX_FADV_DONTNEED) == 0);
    for (int step = 0; step < 200; step++) CHECK(pread(leased, block, sizeof block, step * 41 % 1000 * 4096L) == 4096);
    printf("lease: %d, broken %d\n", given, (int)broken);
}
