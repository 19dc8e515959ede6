// situations WAY FILE COUNT: reads COUNT blocks of a file of 32 MB, in one of the ways that `told.rs`
// prepares.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 8192 };

static uint64_t state = 1;

static long somewhere(void) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (long)(state >> 33) % BLOCKS * BLOCK;
}

// Touches memory of its own until little is left of the group's.
static void fill(long megabytes) {
    char *memory = mmap(0, megabytes << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, megabytes << 20);
}

int main(int argc, char **argv) {
    const char *way = argv[1];
    int count = atoi(argv[3]), is = strcmp(way, "direct") ? 0 : O_DIRECT;
    if (argc > 4) fill(atol(argv[4]));
    int file = open(argv[2], O_RDONLY | is);
    uint64_t sum = 0;
    uint64_t *block = aligned_alloc(BLOCK, BLOCK);
    if (file < 0 || !block) return 1;
    if (strcmp(way, "mapped") == 0) {
        const unsigned char *map = mmap(0, (long)BLOCKS * BLOCK, PROT_READ, MAP_SHARED, file, 0);
        madvise((void *)map, (long)BLOCKS * BLOCK, MADV_RANDOM);
        while (count-- > 0) sum += map[somewhere()];
    } else if (strcmp(way, "serves") == 0) {
        // The kernel reads around each place. Then it waits for a client.
        const unsigned char *map = mmap(0, (long)BLOCKS * BLOCK, PROT_READ, MAP_SHARED, file, 0);
        while (count-- > 0) sum += map[somewhere()];
        sleep(4);
    } else if (strcmp(way, "chain") == 0) {
        // Where the next one is stands in the block.
        for (long at = 0; count-- > 0; at = (long)(*block % BLOCKS) * BLOCK) {
            if (pread(file, block, BLOCK, at) != BLOCK) return 1;
            sum += *block;
        }
    } else {
        for (; count > 0; count--) {
            if (pread(file, block, BLOCK, somewhere()) != BLOCK) return 1;
            sum += *block;
        }
    }
    // So long the processor is busy.
    if (strcmp(way, "computes") == 0)
        for (clock_t end = clock() + CLOCKS_PER_SEC; clock() < end;) sum += 0;
    printf("%lx\n", (long)sum);
}
