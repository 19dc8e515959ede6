// trap: the program reads into memory that it takes from behind its break as it goes
// glibc: sbrk
// data: cold.bin 4M
#include "guest.h"

int main(void) {
    int file = open("cold.bin", O_RDONLY);
    CHECK(file >= 0);
    uint64_t hash = 0;
    for (uint64_t step = 0; step < 300; step++) {
        // A new page for each block, and the next one's place does not depend on it.
        unsigned char *block = sbrk(4096);
        CHECK(block != (void *)-1);
        CHECK(pread(file, block, 4096, (off_t)(step * 7919 % 1024 * 4096)) == 4096);
        hash = hash * 31 + hash_bytes(block, 4096);
    }
    printf("hash %" PRIx64 "\n", hash);
    describe_onlookers();
    return 0;
}
