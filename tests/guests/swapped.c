// trap: memory of its own that went to swap is asked for ahead: contents and outcome stay as they were
// glibc: sbrk
// run: scan 24 2
// run: gather 24 2000
// run: gather-heap 24 2000
// modes: cold
#include "guest.h"

// Without a memory control group all of it stays in memory; the tests `swap::` put it into one.
enum { PAGE = 4096 };

static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    return value ^ (value >> 27);
}

// Adds up all words, so many times, and writes to each 17th page.
static uint64_t scan(uint64_t *memory, uint64_t words, uint64_t passes) {
    uint64_t sum = 0;
    for (uint64_t pass = 0; pass < passes; pass++) {
        for (uint64_t at = 0; at < words; at++) sum = sum * 31 + memory[at];
        for (uint64_t at = pass; at < words; at += 17 * PAGE / 8) memory[at] += sum;
    }
    return sum;
}

// Words at places that anybody can compute; each 16th is written to.
static uint64_t gather(uint64_t *memory, uint64_t words, uint64_t count) {
    uint64_t sum = 0;
    for (uint64_t number = 1; number <= count; number++) {
        uint64_t *word = &memory[mix(number * 0x9e3779b97f4a7c15u) % words];
        sum = sum * 31 + *word;
        if (number % 16 == 0) *word = sum;
    }
    return sum;
}

// Behind the break, in steps, as a heap of small blocks grows.
static void *grown(uint64_t length) {
    enum { STEP = 1 << 20 };
    char *start = sbrk(0);
    for (uint64_t got = 0; got < length; got += STEP) CHECK(sbrk(STEP) == start + got);
    return start;
}

static void *mapped(uint64_t length) {
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    uint64_t length = strtoull(arguments[2], NULL, 10) << 20, words = length / 8;
    uint64_t times = strtoull(arguments[3], NULL, 10);
    uint64_t *memory = strstr(arguments[1], "-heap") ? grown(length) : mapped(length);
    for (uint64_t at = 0; at < words; at++) memory[at] = mix(at + 1);
    bool scans = strcmp(arguments[1], "scan") == 0;
    uint64_t met = scans ? scan(memory, words, times) : gather(memory, words, times);
    printf("met %016" PRIx64 "\n", met);
    printf("left %016" PRIx64 "\n", hash_bytes(memory, length));
    return 0;
}
