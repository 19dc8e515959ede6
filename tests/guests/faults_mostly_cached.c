// trap: of a mapped file most pages are cached, so that speculation maps it as well, and then it is written to, cut short, replaced and grown
// run:
// data: cold.bin 32M
#include "guest.h"
#include <setjmp.h>

enum { LENGTH = 32 << 20, PAGE = 4096, PAGES = LENGTH / PAGE, GAP_EVERY = 12 };

static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    return value ^ (value >> 27);
}

// All of it is evicted, and all but every so manieth page read again, each by itself.
static void make_mostly_cached(const char *path, int gap_every) {
    make_cold(path);
    int file = open(path, O_RDONLY);
    CHECK(file >= 0 && posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) == 0);
    char byte;
    for (int page = 0; page < PAGES; page++)
        if (page % gap_every != 0) (void)!pread(file, &byte, 1, (off_t)page * PAGE);
    CHECK(close(file) == 0);
}

static const unsigned char *map(const char *path) {
    int file = open(path, O_RDONLY);
    CHECK(file >= 0);
    const unsigned char *got = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, file, 0);
    CHECK(got != MAP_FAILED && close(file) == 0);
    CHECK(madvise((void *)got, LENGTH, MADV_RANDOM) == 0);
    return got;
}

static uint64_t gather(const unsigned char *data, uint64_t from, int count, uint64_t length) {
    uint64_t sum = 0;
    for (int step = 0; step < count; step++) sum = sum * 31 + data[mix(from + (uint64_t)step) % length];
    return sum;
}

static sigjmp_buf back;

static void cut_off(int signal) {
    siglongjmp(back, signal);
}

int main(void) {
    make_mostly_cached("cold.bin", GAP_EVERY);
    const unsigned char *data = map("cold.bin");
    printf("gather %016" PRIx64 "\n", gather(data, 1, 6000, LENGTH));

    // Others see to it that what is mapped is something else.
    int file = open("cold.bin", O_RDWR);
    CHECK(file >= 0);
    uint64_t word;
    for (int step = 0; step < 2000; step++) {
        word = mix((uint64_t)step);
        CHECK(pwrite(file, &word, sizeof word, (off_t)(mix(word) % (LENGTH - 8))) == sizeof word);
    }
    printf("written %016" PRIx64 "\n", gather(data, 1000000, 4000, LENGTH));

    // Cut off under the mapping, and grown again with zeros.
    CHECK(ftruncate(file, LENGTH / 2) == 0);
    printf("half %016" PRIx64 "\n", gather(data, 2000000, 2000, LENGTH / 2));
    CHECK(signal(SIGBUS, cut_off) != SIG_ERR);
    int caught = 0;
    for (volatile int step = 0; step < 40; step++) {
        int got = sigsetjmp(back, 1);
        if (got == 0)
            word += data[LENGTH / 2 + mix((uint64_t)step) % (LENGTH / 2)];
        else
            caught += got == SIGBUS;
    }
    printf("caught %d\n", caught);
    CHECK(ftruncate(file, LENGTH) == 0);
    printf("grown %016" PRIx64 "\n", gather(data, 3000000, 3000, LENGTH));
    CHECK(close(file) == 0);

    // Another file at the same place, of which much is missing by now, and a part of it that is nobody's file.
    CHECK(munmap((void *)data, LENGTH) == 0);
    make_mostly_cached("cold.bin", 3);
    file = open("cold.bin", O_RDONLY);
    CHECK(file >= 0);
    unsigned char *other = mmap((void *)data, LENGTH, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0);
    CHECK(other == data && madvise(other, LENGTH, MADV_RANDOM) == 0);
    CHECK(mmap(other + LENGTH / 4, LENGTH / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
    for (int step = 0; step < 1000; step++) other[LENGTH / 4 + mix((uint64_t)step) % (LENGTH / 4)] = (unsigned char)step;
    printf("other %016" PRIx64 "\n", gather(other, 4000000, 3000, LENGTH));
    CHECK(close(file) == 0);
    return 0;
}
