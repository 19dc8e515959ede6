// A library that is loaded and unloaded while the program runs, and reads: with libc's calls and
// with a system call instruction of its own.
#include "guest.h"

uint64_t plugin_read(int file, int round) {
    static char block[4096];
    uint64_t sum = 0;
    for (int step = 0; step < 40; step++) {
        long place = (step * 37 + round) % 1000 * 4096L;
        CHECK(raw6(SYS_pread64, file, (long)block, sizeof block, place, 0, 0) == sizeof block);
        sum = sum * 31 + hash_bytes(block, sizeof block);
        CHECK(pread(file, block, sizeof block, place + 4096) == sizeof block);
        sum = sum * 31 + hash_bytes(block, sizeof block);
    }
    return sum;
}
