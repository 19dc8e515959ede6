// trap: threads that read one descriptor at its implicit position: records torn, lost or doubled
// build: -pthread
// run: read
// run: readv
#include "guest.h"
#include <pthread.h>

// The kernel holds the file's position while a read moves it, so that each record goes, whole, to
// exactly one thread. An emulation by pread and lseek breaks this.
enum { RECORDS = 60000, THREADS = 6 };
struct record { uint32_t number, check[15]; };
static int file;
static bool vectors;
static unsigned char taken[RECORDS];
static int torn;

static void *reader(void *argument) {
    (void)argument;
    struct record record;
    for (;;) {
        struct iovec halves[2] = {{&record, 20}, {(char *)&record + 20, sizeof record - 20}};
        ssize_t got = vectors ? readv(file, halves, 2) : read(file, &record, sizeof record);
        if (got == 0) return NULL;
        CHECK(got == sizeof record);
        for (int at = 0; at < 15; at++)
            if (record.check[at] != record.number * 31 + (unsigned)at) __atomic_fetch_add(&torn, 1, __ATOMIC_RELAXED);
        CHECK(record.number < RECORDS);
        __atomic_fetch_add(&taken[record.number], 1, __ATOMIC_RELAXED);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    vectors = strcmp(argv[1], "readv") == 0;
    FILE *out = fopen("records.bin", "w");
    for (uint32_t number = 0; number < RECORDS; number++) {
        struct record record = {.number = number};
        for (unsigned at = 0; at < 15; at++) record.check[at] = number * 31 + at;
        CHECK(fwrite(&record, sizeof record, 1, out) == 1);
    }
    CHECK(fclose(out) == 0);
    for (int round = 0; round < 2; round++) {
        if (round == 0) make_cold("records.bin");
        memset(taken, 0, sizeof taken);
        file = open("records.bin", O_RDONLY);
        pthread_t threads[THREADS];
        for (int at = 0; at < THREADS; at++) CHECK(pthread_create(&threads[at], NULL, reader, NULL) == 0);
        for (int at = 0; at < THREADS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
        int lost = 0, doubled = 0;
        for (int at = 0; at < RECORDS; at++) lost += taken[at] == 0, doubled += taken[at] > 1;
        printf("torn %d, lost %d, doubled %d, position %ld\n", torn, lost, doubled, (long)lseek(file, 0, SEEK_CUR));
        CHECK(!torn && !lost && !doubled);
        close(file);
    }
}
