// trap: the program takes nearly all memory that its control group may have, once it has been run ahead of
// run: 1 0
// data: cold.bin 24M
// modes: cold
#include "guest.h"

enum { BLOCK = 64 << 10, BLOCKS = 384 };

static uint64_t read_all(int file) {
    static unsigned char block[BLOCK];
    uint64_t hash = 0;
    for (uint64_t step = 0; step < BLOCKS; step++) {
        // All blocks, in no order that read-ahead knows.
        CHECK(pread(file, block, BLOCK, (off_t)(step * 211 % BLOCKS * BLOCK)) == BLOCK);
        hash = hash * 31 + hash_bytes(block, BLOCK);
    }
    return hash;
}

// Takes so many MB, and stays for so many seconds at most, until somebody says "enough".
int main(int count, char **arguments) {
    CHECK(count == 3);
    int file = open("cold.bin", O_RDONLY);
    CHECK(file >= 0);
    uint64_t hash = read_all(file);
    size_t size = (size_t)atoi(arguments[1]) << 20;
    unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    for (size_t at = 0; at < size; at += 4096)
        memory[at] = (unsigned char)(hash >> at % 57);
    int full = open("full", O_WRONLY | O_CREAT, 0644);
    CHECK(full >= 0 && close(full) == 0);
    for (int tenths = 10 * atoi(arguments[2]); tenths > 0 && access("enough", F_OK) != 0; tenths--) {
        struct timespec tenth = {0, 100000000};
        nanosleep(&tenth, NULL);
        // More than there is room for: pages come back.
        CHECK(read_all(file) == hash);
    }
    // From here on the speculator's end would say nothing.
    CHECK(unlink("full") == 0);
    // Nor does anybody answer who is asked.
    CHECK(read_all(file) == hash);
    CHECK(system("true") == 0);
    printf("hash %" PRIx64 " %" PRIx64 "\n", hash, hash_bytes(memory, size));
    return 0;
}
