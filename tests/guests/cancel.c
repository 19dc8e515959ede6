// trap: pthread_cancel of a thread that reads: not acted upon, acted upon at a wrong place, or fatal
// build: -pthread
// data: cold.bin 4M
// run: deferred-pipe
// run: asynchronous-pipe
// run: deferred-file
// run: asynchronous-file
// run: disabled
#include "guest.h"
#include <pthread.h>

static int ends[2];
static const char *how;
static int cleaned;
static volatile int ready;

static void clean(void *argument) { (void)argument, cleaned++; }

static void *reader(void *argument) {
    (void)argument;
    static char block[4096];
    int file = open("cold.bin", O_RDONLY);
    // Nothing may be cancelled before the clean-up handlers stand.
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    if (strstr(how, "asynchronous")) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    pthread_cleanup_push(clean, NULL);
    pthread_cleanup_push(clean, NULL);
    if (strcmp(how, "disabled") == 0) {
        ready = 1;
        char text[4];
        ssize_t got = read(ends[0], text, 4);
        printf("with cancellation disabled: %zd\n", got);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
        pthread_testcancel();
    }
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    ready = 1;
    if (strstr(how, "pipe"))
        read(ends[0], block, sizeof block);
    else
        for (int step = 0;; step++) CHECK(pread(file, block, 4096, step * 7919 % 1000 * 4096L) == 4096);
    pthread_cleanup_pop(1);
    pthread_cleanup_pop(1);
    return "not cancelled";
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    how = argv[1];
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 50));
    CHECK(pipe(ends) == 0);
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        void *result;
        ready = cleaned = 0;
        make_cold("cold.bin");
        CHECK(pthread_create(&thread, NULL, reader, NULL) == 0);
        while (!ready) pause_ms(1);
        pause_ms(round % 4);
        CHECK(pthread_cancel(thread) == 0);
        if (strcmp(how, "disabled") == 0) {
            pause_ms(5);
            CHECK(write(ends[1], "data", 4) == 4);
        }
        CHECK(pthread_join(thread, &result) == 0);
        printf("cancelled: %d, cleaned up: %d\n", result == PTHREAD_CANCELED, cleaned);
    }
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 50));
}
