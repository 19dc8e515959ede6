// trap: the program takes memory for what it reads, and reads nothing more for a long time
// run: 0
// run: 0 own
// data: cold.bin 24M
// modes: cold
#include "guest.h"

enum { BLOCK = 64 << 10, BLOCKS = 384, OWN = 24 << 20, WALKS = 16 };

// Each block is read into memory of its own, in no order that read-ahead knows.
static uint64_t keep_all(int file) {
    uint64_t hash = 0;
    for (uint64_t step = 0; step < BLOCKS; step++) {
        unsigned char *block = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(block != MAP_FAILED);
        CHECK(pread(file, block, BLOCK, (off_t)(step * 211 % BLOCKS * BLOCK)) == BLOCK);
        hash = hash * 31 + hash_bytes(block, BLOCK);
    }
    return hash;
}

// A few small reads, each after a walk over memory that the program has had before: who runs ahead has time to copy it.
static uint64_t walk_own(int file) {
    unsigned char *own = mmap(NULL, OWN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED);
    memset(own, 1, OWN);
    uint64_t hash = 0;
    for (uint64_t step = 0; step < WALKS; step++) {
        unsigned char line[64];
        CHECK(pread(file, line, sizeof line, (off_t)(step * 211 % BLOCKS * BLOCK)) == sizeof line);
        hash = hash * 31 + hash_bytes(line, sizeof line);
        for (int again = 0; again < 5; again++) hash = hash * 31 + hash_bytes(own, OWN);
    }
    return hash;
}

// Rests for so many seconds at most, until somebody says "enough".
int main(int count, char **arguments) {
    CHECK(count == 2 || (count == 3 && strcmp(arguments[2], "own") == 0));
    int file = open("cold.bin", O_RDONLY);
    CHECK(file >= 0);
    uint64_t hash = count == 2 ? keep_all(file) : walk_own(file);
    for (int tenths = 10 * atoi(arguments[1]); tenths > 0 && access("enough", F_OK) != 0; tenths--) {
        int rests = open("rests", O_WRONLY | O_CREAT, 0644);
        CHECK(rests >= 0 && close(rests) == 0);
        struct timespec tenth = {0, 100000000};
        nanosleep(&tenth, NULL);
    }
    printf("hash %" PRIx64 "\n", hash);
    return 0;
}
