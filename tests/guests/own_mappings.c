// trap: Runahead sits where the program wants to map, or a mapping of the program's own changes
// glibc: a loader that gives the heap what is left of the pages of what it has loaded, the agent's among them
// data: cold.bin 4M
#include "guest.h"

// The line of /proc/self/maps that holds the address: its permissions and length, not its place.
static void describe(const char *what, const void *address) {
    static char text[1 << 18];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(text, sizeof text, maps)) {
        unsigned long start, end;
        char permissions[8];
        if (sscanf(text, "%lx-%lx %7s", &start, &end, permissions) == 3 && start <= (unsigned long)address && (unsigned long)address < end)
            printf("%s: %s, %lu KB\n", what, permissions, (end - start) / 1024);
    }
    fclose(maps);
}

static int constant_for_sure = 7;

int main(void) {
    void *block = malloc(100);
    describe("text", (void *)main), describe("data", &constant_for_sure), describe("heap", block);
    // Places that programs ask for by number: low memory, below 4 GiB, just below the stack limit.
    static const unsigned long places[] = {0x10000, 0x400000, 0x10000000, 0x20000000, 0x40000000, 0x7f000000,
                                           0x80000000, 0x100000000, 0x200000000, 0x1000000000, 0x10000000000,
                                           0x200000000000, 0x600000000000};
    for (size_t at = 0; at < sizeof places / sizeof *places; at++) {
        char *got = mmap((void *)places[at], 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        printf("at %lx: %d\n", places[at], got == (void *)places[at]);
        if (got == (void *)places[at]) memset(got, 1, 1 << 16);
    }
    char *low = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    printf("below 2 GiB: %d\n", low != MAP_FAILED);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 200));
    // Memory that comes, moves and goes between reads, at the same addresses.
    char *region = mmap(NULL, 16 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(region != MAP_FAILED);
    uint64_t sum = 0;
    int file = open("cold.bin", O_RDONLY);
    for (int round = 0; round < 150; round++) {
        char *part = region + round * 7919 % 200 * 65536;
        switch (round % 4) {
        case 0:
            CHECK(mmap(part, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == part);
            break;
        case 1: CHECK(mprotect(part, 65536, PROT_READ | PROT_WRITE) == 0); break;
        case 2:
            CHECK(mmap(part, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 65536) == part);
            break;
        case 3: {
            // First the other place: it must not be the one that becomes free.
            char *other = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(munmap(part, 65536) == 0);
            CHECK(mremap(other, 65536, 65536, MREMAP_MAYMOVE | MREMAP_FIXED, part) == part);
        }
        }
        CHECK(pread(file, part, 65536, round * 37 % 60 * 65536L) == 65536);
        sum = sum * 31 + hash_bytes(part, 65536);
        if (round % 10 == 0) {
            make_cold("cold.bin");
            CHECK(madvise(part, 65536, MADV_DONTNEED) == 0);
        }
    }
    printf("sum %016" PRIx64 "\n", sum);
    describe("text", (void *)main), describe("data", &constant_for_sure);
    free(block);
}
