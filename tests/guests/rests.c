// trap: the program takes memory for what it reads, and reads nothing more for a long time
// run: 0
// data: cold.bin 24M
// modes: cold
#include "guest.h"

enum { BLOCK = 64 << 10, BLOCKS = 384 };

// Rests for so many seconds at most, until somebody says "enough".
int main(int count, char **arguments) {
    CHECK(count == 2);
    int file = open("cold.bin", O_RDONLY);
    CHECK(file >= 0);
    uint64_t hash = 0;
    for (uint64_t step = 0; step < BLOCKS; step++) {
        unsigned char *block = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(block != MAP_FAILED);
        // All blocks, in no order that read-ahead knows.
        CHECK(pread(file, block, BLOCK, (off_t)(step * 211 % BLOCKS * BLOCK)) == BLOCK);
        hash = hash * 31 + hash_bytes(block, BLOCK);
    }
    for (int tenths = 10 * atoi(arguments[1]); tenths > 0 && access("enough", F_OK) != 0; tenths--) {
        int rests = open("rests", O_WRONLY | O_CREAT, 0644);
        CHECK(rests >= 0 && close(rests) == 0);
        struct timespec tenth = {0, 100000000};
        nanosleep(&tenth, NULL);
    }
    printf("hash %" PRIx64 "\n", hash);
    return 0;
}
