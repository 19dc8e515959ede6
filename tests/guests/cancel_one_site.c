// trap: a C library whose cancellable calls are all made at one place, where a cancellation looks at the program counter
// build: -pthread -O2
// release: trixie libc6
// data: cold.bin 16M
// run: pread
// run: read
// run: pipe
// run: open
// modes: cold warm
#include "guest.h"
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#else
#define gnu_get_libc_version() "another"
#endif
#include <pthread.h>

enum { ROUNDS = 150 };
static const char *how;
static int ends[2];
static int cleaned;
static volatile int ready;

static void clean(void *argument) { cleaned++, close((int)(intptr_t)argument); }

static void *reader(void *argument) {
    char block[4096];
    int round = (int)(intptr_t)argument;
    int file = open("cold.bin", O_RDONLY);
    CHECK(file >= 0);
    pthread_cleanup_push(clean, (void *)(intptr_t)file);
    ready = 1;
    // Far apart, so that the kernel's read-ahead brings none of them.
    for (int step = round;; step++) {
        off_t place = step * 7919L % 4096 * 4096;
        if (strcmp(how, "pread") == 0) {
            CHECK(pread(file, block, sizeof block, place) == sizeof block);
        } else if (strcmp(how, "read") == 0) {
            CHECK(lseek(file, place, SEEK_SET) == place);
            CHECK(read(file, block, sizeof block) == sizeof block);
        } else if (strcmp(how, "open") == 0) {
            // What is opened and not returned would be lost.
            int again = open("cold.bin", O_RDONLY);
            CHECK(again >= 0);
            CHECK(pread(again, block, 1, place) == 1);
            int old;
            CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old) == 0);
            CHECK(close(again) == 0);
            CHECK(pthread_setcancelstate(old, &old) == 0);
        } else {
            read(ends[0], block, sizeof block);
        }
    }
    pthread_cleanup_pop(0);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    how = argv[1];
    printf("C library %s, hash %016" PRIx64 "\n", gnu_get_libc_version(), wander("cold.bin", 100));
    CHECK(pipe(ends) == 0);
    int cancelled = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        void *result;
        ready = 0;
        if (round % 8 == 0) make_cold("cold.bin");
        CHECK(pthread_create(&thread, NULL, reader, (void *)(intptr_t)(round * 31)) == 0);
        while (!ready) sched_yield();
        struct timespec rest = {0, round % 10 * 50000};
        nanosleep(&rest, NULL);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &result) == 0);
        cancelled += result == PTHREAD_CANCELED;
    }
    printf("cancelled: %d, cleaned up: %d\n", cancelled, cleaned);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
}
