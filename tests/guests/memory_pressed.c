// trap: the program fits into its memory control group, and not together with a copy of what it uses
// run: chain 60 0
// run: gather 300 0
// run: change 100 0
// data: hot.bin 28M
// data: cold.bin 64M
// modes: cold
#include "guest.h"

// A walk in which each place follows from the data before: in memory of its own and in a file which it uses over and
// over, and now and then, in a file which it never sees twice. Nothing can be foretold beyond a page that is missing,
// and whoever tries copies all that it uses.
enum { OWN = 24 << 20, HOT = 28 << 20, COLD = 64 << 20, NEAR = 60, STEPS = 40, SHOWN = 3 };

static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    return value ^ (value >> 27);
}

static unsigned char *map(const char *path, size_t length, int protection) {
    int file = open(path, protection & PROT_WRITE ? O_RDWR : O_RDONLY);
    CHECK(file >= 0);
    unsigned char *got = mmap(NULL, length, protection, MAP_SHARED, file, 0);
    CHECK(got != MAP_FAILED && close(file) == 0);
    CHECK(madvise(got, length, MADV_RANDOM) == 0);
    return got;
}

static uint64_t walk(const uint64_t *own, const unsigned char *hot, const unsigned char *cold, uint64_t at) {
    for (int step = 0; step < STEPS; step++) {
        for (int near = 0; near < NEAR; near++) {
            at = mix(at + own[mix(at) % (OWN / 8)] + 1);
            at = mix(at + hot[mix(at) % HOT] + 1);
        }
        at = mix(at + cold[mix(at) % COLD] + 1);
    }
    return at;
}

// Places that anybody can compute, all over the file.
static uint64_t gather(const unsigned char *cold, uint64_t number) {
    uint64_t sum = 0;
    for (uint64_t step = 0; step < STEPS; step++) sum = sum * 31 + cold[mix(number * STEPS + step + 1) % COLD];
    return sum;
}

// The same, and each place is written to.
static uint64_t change(unsigned char *cold, uint64_t number) {
    uint64_t sum = 0;
    for (uint64_t step = 0; step < STEPS; step++) sum = sum * 31 + cold[mix(number * STEPS + step + 1) % COLD]++;
    return sum;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

// Walks so often at least, of which it shows the first, and until so many seconds are over or somebody says "enough".
int main(int count, char **arguments) {
    CHECK(count == 4);
    bool walks_on = strcmp(arguments[1], "chain") == 0, changes = strcmp(arguments[1], "change") == 0;
    uint64_t walks = strtoull(arguments[2], NULL, 10);
    double end = now() + strtod(arguments[3], NULL);
    uint64_t *own = mmap(NULL, OWN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED);
    for (uint64_t word = 0; word < OWN / 8 && walks_on; word++) own[word] = mix(word + 1);
    const unsigned char *hot = map("hot.bin", HOT, PROT_READ);
    unsigned char *cold = map("cold.bin", COLD, changes ? PROT_READ | PROT_WRITE : PROT_READ);
    for (uint64_t number = 0; number < walks || (now() < end && access("enough", F_OK) != 0); number++) {
        uint64_t met = walks_on ? walk(own, hot, cold, number) : changes ? change(cold, number) : gather(cold, number);
        if (number < SHOWN) printf("walk %016" PRIx64 "\n", met);
    }
    return 0;
}
