// trap: a program that ends violently ends otherwise, or later, or leaves something
// build: -pthread
// data: cold.bin 4M
// run: kill => signal 9
// run: segv => signal 11
// run: abort => signal 6
// run: divide => signal 8
// run: illegal => signal 4
// run: pipe => signal 13
// run: alarm => signal 14
// run: terminate-by-child => signal 15
// run: exit-from-thread => exit 23
// run: last-thread-exits => exit 0
// run: quick => exit 24
// run: at-exit => exit 25
// run: bus => signal 7
#include "guest.h"
#include <pthread.h>

static void *leave(void *argument) {
    wander("cold.bin", 50);
    if (argument) exit(23);
    pause_ms(30);
    return NULL;
}

static void last_words(void) {
    printf("last hash %016" PRIx64 "\n", wander("cold.bin", 60));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    const char *how = argv[1];
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 150));
    fflush(stdout);
    make_cold("cold.bin");
    stride("cold.bin", 50);
    volatile int zero = 0;
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    if (strcmp(how, "segv") == 0) *(volatile int *)8 = 1;
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "divide") == 0) zero = 100 / zero;
    if (strcmp(how, "illegal") == 0) __builtin_trap();
    if (strcmp(how, "pipe") == 0) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        close(ends[0]);
        write(ends[1], "x", 1);
    }
    if (strcmp(how, "alarm") == 0) {
        struct itimerval soon = {{0, 0}, {0, 30000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        for (;;) stride("cold.bin", 10), make_cold("cold.bin");
    }
    if (strcmp(how, "terminate-by-child") == 0) {
        pid_t parent = getpid();
        if (fork() == 0) {
            pause_ms(30);
            kill(parent, SIGTERM);
            _exit(0);
        }
        for (;;) stride("cold.bin", 10), make_cold("cold.bin");
    }
    if (strcmp(how, "exit-from-thread") == 0 || strcmp(how, "last-thread-exits") == 0) {
        pthread_t thread;
        bool all = strcmp(how, "exit-from-thread") == 0;
        CHECK(pthread_create(&thread, NULL, leave, all ? (void *)1 : NULL) == 0);
        if (!all) pthread_exit(NULL);
        for (;;) stride("cold.bin", 10);
    }
    if (strcmp(how, "quick") == 0) quick_exit(24);
    if (strcmp(how, "at-exit") == 0) {
        atexit(last_words), atexit(last_words);
        return 25;
    }
    if (strcmp(how, "bus") == 0) {
        // Behind the end of a truncated mapping.
        int file = open("cold.bin", O_RDWR);
        volatile char *map = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, file, 0);
        CHECK(ftruncate(file, 4096) == 0);
        zero = map[8192];
    }
}
