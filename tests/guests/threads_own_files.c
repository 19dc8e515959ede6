// trap: several threads stall at once, each in its own file; one forks meanwhile
// build: -pthread
// data: a.bin 2M
// data: b.bin 2M
// data: c.bin 2M
// data: d.bin 2M
// run: read
// run: fork
#include "guest.h"
#include <pthread.h>

static const char *const names[] = {"a.bin", "b.bin", "c.bin", "d.bin"};
static uint64_t sums[4];

static void *worker(void *argument) {
    long which = (long)argument;
    for (int round = 0; round < 3; round++) {
        make_cold(names[which]);
        sums[which] = sums[which] * 31 + (which % 2 ? wander(names[which], 150) : stride(names[which], 150));
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    pthread_t threads[4];
    for (long at = 0; at < 4; at++) CHECK(pthread_create(&threads[at], NULL, worker, (void *)at) == 0);
    if (strcmp(argv[1], "fork") == 0)
        for (int round = 0; round < 15; round++) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                // Only this thread is in the child; it reads, with async-signal-safe calls alone.
                char block[512];
                int file = open(names[round % 4], O_RDONLY);
                for (int step = 0; step < 40; step++)
                    if (pread(file, block, sizeof block, step * 37 % 4000 * 512) != sizeof block) _exit(9);
                _exit(7);
            }
            CHECK(exit_status_of(child) == 7);
        }
    for (int at = 0; at < 4; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    for (int at = 0; at < 4; at++) printf("%016" PRIx64 "\n", sums[at]);
}
