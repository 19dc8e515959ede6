// trap: exec from a program that has a speculator: changed arguments, from a thread, with descriptors
// build: -pthread
// data: cold.bin 4M
// run: 5 plain
// run: 5 thread
// run: 5 empty-environment
// run: 5 failing-first
#include "guest.h"
#include <pthread.h>

extern char **environ;
static char **arguments;

static void again(void) {
    char number[16];
    snprintf(number, sizeof number, "%d", atoi(arguments[1]) - 1);
    char *next[] = {arguments[0], number, arguments[2], NULL};
    char *nothing[] = {NULL};
    if (strcmp(arguments[2], "failing-first") == 0) {
        CHECK(execv("/nonexistent", next) == -1 && errno == ENOENT);
        CHECK(execv("cold.bin", next) == -1 && errno == EACCES);
        CHECK(chmod("cold.bin", 0755) == 0);
        CHECK(execv("cold.bin", next) == -1 && errno == ENOEXEC);
        CHECK(chmod("cold.bin", 0644) == 0);
        printf("hash %016" PRIx64 "\n", wander("cold.bin", 40));
        fflush(stdout);
    }
    execve("/proc/self/exe", next, strcmp(arguments[2], "empty-environment") == 0 ? nothing : environ);
    CHECK(!"exec came back");
}

static void *from_a_thread(void *argument) {
    wander("cold.bin", 20);
    again();
    return argument;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    arguments = argv;
    int variables = 0;
    for (char **variable = environ; *variable; variable++)
        variables += strncmp(*variable, "LD_PRELOAD=", 11) != 0 && strncmp(*variable, "RUNAHEAD", 8) != 0;
    int kept = open("/dev/null", O_RDONLY), closed = open("/dev/null", O_RDONLY | O_CLOEXEC);
    make_cold("cold.bin");
    printf("%s: descriptors %d %d, variables %d, pid is group %d, hash %016" PRIx64 "\n", argv[1], kept, closed,
           variables, getpid() == getpgrp(), wander("cold.bin", 80));
    fflush(stdout);
    if (atoi(argv[1]) == 0) return 42 - 42;
    if (strcmp(argv[2], "thread") != 0) again();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, from_a_thread, NULL) == 0);
    for (;;) stride("cold.bin", 10);
}
