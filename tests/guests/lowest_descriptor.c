// trap: a descriptor of ours, for microseconds, is the lowest free number that another thread counts on
// build: -pthread
// library: sites.c
// data: cold.bin 4M
// run: {here}/sites.so
// timeout: 90
#include "guest.h"
#include <pthread.h>

enum { PROCESSES = 40 };
static volatile int stop;
static int lowest, file, library;

// Stalls, whereby it attaches; and maps code that nobody knows yet.
static void *reader(void *argument) {
    static char block[4096];
    for (int step = 0; step < 120; step++) {
        CHECK(pread(file, block, 4096, step * 7919 % 1000 * 4096L) == 4096);
        if (step % 10 != 9) continue;
        void *code = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, library, 4096);
        CHECK(code != MAP_FAILED && munmap(code, 8192) == 0);
    }
    stop = 1;
    return argument;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    file = open("cold.bin", O_RDONLY);
    library = open(argv[1], O_RDONLY);
    CHECK(file >= 0 && library >= 0 && posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) == 0);
    lowest = dup(file);
    close(lowest);
    int bad = 0;
    for (int round = 0; round < PROCESSES; round++) {
        make_cold("cold.bin");
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            int taken = 0;
            CHECK(pthread_create(&thread, NULL, reader, NULL) == 0);
            while (!stop) {
                // Somebody's who is there, or who was there when this was opened.
                for (int again = 0; again < 50; again++) taken += fcntl(lowest, F_GETFD) >= 0;
                int mine = dup(file);
                taken += mine != lowest;
                close(mine);
            }
            CHECK(pthread_join(thread, NULL) == 0);
            _exit(taken ? 9 : 0);
        }
        bad += exit_status_of(child) != 0;
    }
    printf("processes in which the lowest descriptor was taken: %d\n", bad);
}
