// What a call costs that passes through a stub, against the same call by an instruction that cannot be
// rewritten (somebody might jump between it and the one before): both in one process, in turn.
//
//     calls FILE          of an agent that is calm
//     calls FILE active   of one that looks at each call
//
// Prints ns for each: the least of all batches of 32 calls, and the median of batches of 6400, in which
// the calls are that a calm agent looks at nevertheless. Alone, both ways should cost the same.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef long (*way)(long, void *, long, long);
#define LOAD "mov %rcx, %r10\n mov $17, %eax\n"
extern long through_site(long file, void *buffer, long length, long place);
extern long bare(long file, void *buffer, long length, long place);
__asm__(".text\n.type through_site,@function\nthrough_site: " LOAD "syscall\n ret\n"
        ".size through_site,.-through_site\n"
        ".type bare,@function\nbare: " LOAD "jmp 1f\n 1: syscall\n ret\n.size bare,.-bare\n");

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static char block[4096];

static double batch(way call, int calls, long file, long length) {
    double began = now();
    for (int at = 0; at < calls; at++) call(file, block, length, at % 16 * 4096L);
    return (now() - began) / calls;
}

static int order(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void compare(const char *what, long file, long length) {
    enum { BATCHES = 20000, LARGE = 101 };
    static double large[2][LARGE];
    double least[2] = {1e18, 1e18};
    way ways[2] = {bare, through_site};
    for (int round = 0; round < BATCHES; round++)
        for (int which = 0; which < 2; which++) {
            double took = batch(ways[which], 32, file, length);
            if (took < least[which]) least[which] = took;
        }
    for (int round = 0; round < LARGE; round++)
        for (int which = 0; which < 2; which++) large[which][round] = batch(ways[which], 6400, file, length);
    for (int which = 0; which < 2; which++) qsort(large[which], LARGE, sizeof(double), order);
    double *bare_ones = large[0], *through = large[1];
    printf("%-22s least: bare %.1f, stub %.1f, more by %.1f; median: bare %.1f, stub %.1f, more by %.1f ns\n", what,
           least[0], least[1], least[1] - least[0], bare_ones[LARGE / 2], through[LARGE / 2],
           through[LARGE / 2] - bare_ones[LARGE / 2]);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[2], "active") == 0) {
        // The third field of the session's address holds flags; 4: never calm.
        char *session = getenv("RUNAHEAD_SESSION"), changed[4096];
        int host, descriptor, flags, length;
        if (session && sscanf(session, "%d:%d:%d%n", &host, &descriptor, &flags, &length) == 3) {
            snprintf(changed, sizeof changed, "%d:%d:%d%s", host, descriptor, flags | 4, session + length);
            setenv("RUNAHEAD_SESSION", changed, 1);
        }
        argv[2] = "now";
        execv("/proc/self/exe", argv);
    }
    long file = open(argv[1], O_RDONLY);
    if (file < 0) return perror(argv[1]), 1;
    for (int at = 0; at < 16; at++) pread((int)file, block, sizeof block, at * 4096L);
    // Hits come first: they are what an agent grows calm by.
    compare("pread of 4 KiB, cached", file, 4096);
    compare("pread of 1 byte, cached", file, 1);
    compare("pread of nothing", -1, 0);
}
