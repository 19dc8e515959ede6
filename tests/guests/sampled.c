// trap: where perf events are refused it is looked which pages have newly become present, while mappings, threads and processes
// come and go
// build: -O2 -pthread
// run: columns
// run: scans
// run: tensors
// run: gather
// run: chain
// run: later
// run: twice
// run: between
// run: threads
// run: changes
// run: forks
// run: execs
// run: exits
// run: sparse
// data: cold.bin 24M
// data: other.bin 8M
// modes: cold warm
#include "guest.h"
#include <pthread.h>

static const char *name = "cold.bin";
static volatile const unsigned char *map;
static size_t length;

static uint64_t every(size_t from, size_t to, size_t step) {
    uint64_t sum = 0;
    for (size_t at = from; at < to; at += step) sum = sum * 31 + map[at];
    return sum;
}

static uint64_t backwards(size_t step) {
    uint64_t sum = 0;
    for (size_t at = length; at >= step; at -= step) sum = sum * 31 + map[at - 1];
    return sum;
}

static uint64_t gather(size_t count) {
    uint64_t sum = 0, state = 7;
    while (count-- > 0) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum = sum * 31 + map[(state >> 33) % length];
    }
    return sum;
}

// Each place is found in what lies at the one before.
static uint64_t chain(size_t count) {
    uint64_t sum = 0, state = 7;
    while (count-- > 0) {
        uint64_t word;
        memcpy(&word, (const void *)(map + (state >> 33) % (length / 8) * 8), sizeof word);
        state = (state + word) * 6364136223846793005u + 1442695040888963407u;
        sum = sum * 31 + word;
    }
    return sum;
}

// What comes before cannot be gone through.
static void wait_for_a_child(void) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK(waitpid(child, &status, 0) == child);
}

// Before each word of it something is read.
static uint64_t between(size_t count) {
    uint64_t sum = 0;
    int beside = open("/proc/self/exe", O_RDONLY);
    CHECK(beside >= 0);
    wait_for_a_child();
    for (size_t at = 0; at < count; at++) {
        uint64_t word, place = (at * 0x9e3779b97f4a7c15u >> 11) % length;
        CHECK(pread(beside, &word, sizeof word, (off_t)(at % 1000 * 8)) == sizeof word);
        sum = sum * 31 + map[place] + (word & 1);
    }
    return sum;
}

static void open_it(int flags) {
    int file = open(name, O_RDONLY);
    struct stat status;
    CHECK(file >= 0 && fstat(file, &status) == 0);
    length = (size_t)status.st_size;
    void *got = mmap((void *)map, length, PROT_READ, MAP_SHARED | flags, file, 0);
    CHECK(got != MAP_FAILED && close(file) == 0);
    map = got;
}

// Blocks are read first, and waited for: there is a speculator before the first mapping.
static void read_first(void) {
    static char block[4096];
    int file = open(name, O_RDONLY);
    struct stat status;
    CHECK(file >= 0 && fstat(file, &status) == 0);
    for (off_t at = 0, blocks = status.st_size / sizeof block; at < 60; at++)
        CHECK(pread(file, block, sizeof block, at * 7919 % blocks * (off_t)sizeof block) == sizeof block);
    CHECK(close(file) == 0);
    wait_for_a_child();
}

static void again(int advice) {
    CHECK(munmap((void *)map, length) == 0);
    map = NULL;
    make_cold(name);
    open_it(0);
    CHECK(madvise((void *)map, length, advice) == 0);
}

static void columns(void) {
    static const size_t rows[] = {65536, 262144, 20000, 100000, 12288};
    for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
        again(at & 1 ? MADV_RANDOM : MADV_NORMAL);
        printf("rows of %zu %016" PRIx64 "\n", rows[at], every(3, length, rows[at]));
        again(MADV_NORMAL);
        printf("backwards %016" PRIx64 "\n", backwards(rows[at]));
    }
}

static void scans(void) {
    printf("plain %016" PRIx64 "\n", every(0, length, 512));
    again(MADV_RANDOM);
    printf("random %016" PRIx64 "\n", every(0, length / 4, 512));
    again(MADV_NORMAL);
    printf("backwards %016" PRIx64 "\n", backwards(512));
}

static void tensors(void) {
    enum { TENSOR = 3 << 19 };
    size_t count = length / TENSOR;
    unsigned char *copy = malloc(TENSOR);
    CHECK(copy != NULL);
    uint64_t sum = 0;
    for (size_t at = 0; at < count; at++) {
        memcpy(copy, (const void *)(map + at * 7 % count * TENSOR), TENSOR);
        for (size_t byte = 0; byte < TENSOR; byte += 64) sum = sum * 31 + copy[byte];
    }
    free(copy);
    printf("%zu tensors %016" PRIx64 "\n", count, sum);
}

static void *half(void *which) {
    size_t from = which ? length / 2 : 0;
    static uint64_t sums[2];
    sums[which != NULL] = every(from, from + length / 2, 256);
    return &sums[which != NULL];
}

static void threads(void) {
    pthread_t both[2];
    for (uintptr_t at = 0; at < 2; at++) CHECK(pthread_create(&both[at], NULL, half, (void *)at) == 0);
    for (size_t at = 0; at < 2; at++) {
        void *sum;
        CHECK(pthread_join(both[at], &sum) == 0);
        printf("half %016" PRIx64 "\n", *(uint64_t *)sum);
    }
    describe_onlookers();
}

// Another file in the place of the first, in the middle of a walk, and nothing.
static void changes(void) {
    const void *place = (const void *)map;
    size_t whole = length;
    for (int round = 0; round < 12; round++) {
        uint64_t sum = every(0, length / 2, 65536);
        CHECK(munmap((void *)map, length) == 0);
        map = place;
        name = round & 1 ? "cold.bin" : "other.bin";
        make_cold(name);
        open_it(MAP_FIXED);
        sum = sum * 31 + every(length / 4, length, 65536);
        printf("%s %016" PRIx64 "\n", name, sum);
    }
    CHECK(length <= whole);
    CHECK(munmap((void *)map, length) == 0);
    describe_onlookers();
}

static void forks(void) {
    fflush(stdout);
    for (int child = 0; child < 4; child++) {
        pid_t process = fork();
        CHECK(process >= 0);
        if (process == 0) {
            again(child & 1 ? MADV_RANDOM : MADV_NORMAL);
            _exit((int)(every((size_t)child * 4096, length, 65536) & 0x7f));
        }
        uint64_t sum = every((size_t)child * 1000, length, 300000);
        int status;
        CHECK(waitpid(process, &status, 0) == process);
        printf("%016" PRIx64 ", the child %x\n", sum, status);
    }
}

static void *leaves(void *how) {
    usleep(30000);
    if (how) _exit(7);
    execl("/proc/self/exe", "sampled", "after", NULL);
    return NULL;
}

// Another thread ends it all, or executes something, in the middle of a walk.
static void is_left(bool ends) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, leaves, ends ? &thread : NULL) == 0);
    for (;;) {
        every(0, length, 65536);
        CHECK(madvise((void *)map, length, MADV_DONTNEED) == 0);
        make_cold(name);
    }
}

// 100 GB, of which nearly nothing is there.
static void sparse(void) {
    size_t much = (size_t)100 << 30;
    int file = open("sparse", O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0 && unlink("sparse") == 0);
    if (ftruncate(file, (off_t)much) != 0) much = (size_t)1 << 30;
    CHECK(ftruncate(file, (off_t)much) == 0);
    void *got = mmap(NULL, much, PROT_READ, MAP_SHARED | MAP_NORESERVE, file, 0);
    CHECK(got != MAP_FAILED && close(file) == 0);
    volatile const unsigned char *holes = got;
    uint64_t sum = 0;
    for (size_t at = 0; at < 150; at++) sum += holes[much / 150 * at] + map[length / 150 * at];
    printf("sparse %016" PRIx64 "\n", sum);
    CHECK(munmap(got, much) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2 || count == 3);
    const char *way = arguments[1];
    if (count == 3) name = arguments[2];
    if (!strcmp(way, "later") || !strcmp(way, "twice")) read_first();
    open_it(0);
    // Which of two is the one that is mapped next nobody knows by its length.
    if (!strcmp(way, "twice")) open_it(0);
    if (!strcmp(way, "column")) printf("%016" PRIx64 "\n", every(0, length, 65536));
    if (!strcmp(way, "columns")) columns();
    if (!strcmp(way, "scan")) printf("%016" PRIx64 "\n", every(0, length, 64));
    if (!strcmp(way, "scans")) scans();
    if (!strcmp(way, "tensors")) tensors();
    if (!strcmp(way, "gather")) printf("%016" PRIx64 "\n", gather(1500));
    if (!strcmp(way, "threads")) threads();
    if (!strcmp(way, "changes")) changes();
    if (!strcmp(way, "forks")) forks();
    if (!strcmp(way, "execs")) is_left(false);
    if (!strcmp(way, "exits")) {
        fflush(stdout);
        if (fork() == 0) is_left(true);
        int status;
        CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7);
        printf("the child has ended\n");
    }
    bool is_later = !strcmp(way, "later") || !strcmp(way, "twice");
    bool is_places = is_later || !strcmp(way, "places");
    bool is_without_order = is_places || !strcmp(way, "chain") || !strcmp(way, "between");
    if (is_without_order) CHECK(madvise((void *)map, length, MADV_RANDOM) == 0);
    if (is_places) printf("%016" PRIx64 "\n", gather(500));
    if (!strcmp(way, "chain")) printf("%016" PRIx64 "\n", chain(500));
    if (!strcmp(way, "between")) printf("%016" PRIx64 "\n", between(1500));
    if (!strcmp(way, "sparse")) sparse();
    if (!strcmp(way, "after")) printf("after %016" PRIx64 "\n", every(0, length, 65536));
    return 0;
}
