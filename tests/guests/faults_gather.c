// trap: speculation from page faults runs the program's code on blank pages, deep stacks, odd memory and other threads
// build: -pthread
// run:
// run: private
// data: cold.bin 24M
// data: index.bin 16M
#include "guest.h"
#include <pthread.h>

static const unsigned char *data;
static const uint64_t *places;
enum { LENGTH = 24 << 20, PLACES = (16 << 20) / 8 };

static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    return value ^ (value >> 27);
}

// Places found through an index: on blank pages all of them are the same, and wrong.
static uint64_t gather(uint64_t from, int count) {
    uint64_t sum = 0;
    for (int step = 0; step < count; step++)
        sum = sum * 31 + data[mix(places[mix(from + (uint64_t)step) % PLACES]) % LENGTH];
    return sum;
}

// The same, with a frame of 8 KB for each: the stack grows while faults are run ahead from.
static uint64_t deep(uint64_t from, int depth) {
    volatile unsigned char frame[8192];
    frame[0] = data[mix(from) % LENGTH];
    uint64_t below = depth > 0 ? deep(from + 1, depth - 1) : 0;
    return below * 31 + frame[0];
}

// A list through the file, in which blank pages lead nowhere, and writing as it goes.
static uint64_t chain(int count) {
    static uint64_t seen[512];
    uint64_t at = 1;
    for (int step = 0; step < count; step++) {
        at = mix(at + data[at % LENGTH] + 1);
        seen[at % 512] += at;
    }
    return hash_bytes(seen, sizeof seen);
}

static void *thread(void *argument) {
    return (void *)gather((uint64_t)(uintptr_t)argument << 32, 400);
}

// Every so manieth page of a private mapping is the program's own.
enum { OWN_EVERY = 7 };

static void *map(const char *path, size_t length, int protection, int flags) {
    int file = open(path, O_RDONLY);
    CHECK(file >= 0);
    uint64_t *got = mmap(NULL, length, protection, flags, file, 0);
    CHECK(got != MAP_FAILED && close(file) == 0);
    CHECK(madvise(got, length, MADV_RANDOM) == 0);
    // Overwritten whole, so that what the file has there would lead somewhere else.
    for (size_t page = 0; protection & PROT_WRITE && page < length / 4096; page += OWN_EVERY)
        for (size_t word = 0; word < 512; word++) got[page * 512 + word] = mix(page * 512 + word + 1);
    if (protection & PROT_WRITE) make_cold(path);
    return got;
}

int main(int count, char **arguments) {
    bool private = count > 1 && strcmp(arguments[1], "private") == 0;
    int protection = private ? PROT_READ | PROT_WRITE : PROT_READ;
    data = map("cold.bin", LENGTH, protection, private ? MAP_PRIVATE : MAP_SHARED);
    places = map("index.bin", 16 << 20, protection, MAP_PRIVATE);
    describe_onlookers();
    // Through memory: the compiler sees no call between the two.
    volatile int *number = &errno;
    *number = 77;
    uint64_t gathered = gather(1, 1500);
    int after = *number;
    printf("gather %016" PRIx64 ", errno %d\n", gathered, after);
    printf("deep %016" PRIx64 "\n", deep(7, 600));
    printf("chain %016" PRIx64 "\n", chain(500));

    // Memory that forks see otherwise, in use while speculation runs.
    uint64_t *wiped = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t *kept = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(madvise(wiped, 65536, MADV_WIPEONFORK) == 0 && madvise(kept, 65536, MADV_DONTFORK) == 0);
    for (int step = 0; step < 600; step++) {
        wiped[step] = gather(1000000 + (uint64_t)step * 10, 2);
        kept[(wiped[step] >> 5) % 8192] ^= wiped[step];
    }
    printf("memory %016" PRIx64 " %016" PRIx64 "\n", hash_bytes(wiped, 65536), hash_bytes(kept, 65536));

    // Huge pages, if the machine gives any.
    unsigned char *huge = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(huge != MAP_FAILED);
    madvise(huge, 8 << 20, MADV_HUGEPAGE);
    for (int step = 0; step < 400; step++) huge[mix((uint64_t)step) % (8 << 20)] = (unsigned char)gather(5000000 + (uint64_t)step, 1);
    printf("huge %016" PRIx64 "\n", hash_bytes(huge, 8 << 20));

    pthread_t threads[3];
    for (uintptr_t number = 0; number < 3; number++) CHECK(pthread_create(&threads[number], NULL, thread, (void *)(number + 1)) == 0);
    uint64_t here = gather(9000000, 400);
    printf("threads %016" PRIx64, here);
    for (int number = 0; number < 3; number++) {
        void *result;
        CHECK(pthread_join(threads[number], &result) == 0);
        printf(" %016" PRIx64, (uint64_t)(uintptr_t)result);
    }
    printf("\n");
    // A thread that has been joined is counted by the kernel a moment longer: 4 of 20,000 on a busy machine, without anybody else.
    struct stat status;
    for (int wait = 0; wait < 1000 && stat("/proc/self/task", &status) == 0 && status.st_nlink != 3; wait++) pause_ms(1);
    describe_onlookers();
    return 0;
}
