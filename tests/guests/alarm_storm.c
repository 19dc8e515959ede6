// trap: signals at any instant of a file read: lost bytes, EINTR on a regular file, a torn handler
// data: cold.bin 4M
// data: other.bin 1M
// run: quiet-handler
// run: reading-handler
// run: nested-handler
#include "guest.h"

static volatile sig_atomic_t handled, wrong;
static bool reads, nested;
static int other;
static unsigned char expected[4096];

static void on_alarm(int number) {
    (void)number;
    int saved = errno;
    handled++;
    if (reads) {
        // A handler may read too; and must get its own bytes.
        unsigned char block[4096];
        if (pread(other, block, sizeof block, 8192) != sizeof block || memcmp(block, expected, sizeof block))
            wrong++;
    }
    errno = saved;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    reads = strcmp(argv[1], "quiet-handler") != 0;
    nested = strcmp(argv[1], "nested-handler") == 0;
    other = open("other.bin", O_RDONLY);
    CHECK(pread(other, expected, sizeof expected, 8192) == sizeof expected);
    // No SA_RESTART: a read of a regular file is not interrupted by a handler in any case.
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = nested ? SA_NODEFER : 0};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && sigaction(SIGPROF, &action, NULL) == 0);
    CHECK(sigaction(SIGVTALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    if (nested) CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
    uint64_t sum = 0;
    for (int round = 0; round < 3; round++) {
        make_cold("cold.bin");
        int file = open("cold.bin", O_RDONLY);
        static char block[10000];
        ssize_t got;
        long total = 0;
        while ((got = read(file, block, sizeof block)) > 0) {
            total += got;
            sum = sum * 31 + hash_bytes(block, (size_t)got);
        }
        CHECK(got == 0 && total == 4 << 20);
        for (int step = 0; step < 300; step++) {
            CHECK(pread(file, block, 4096, step * 7919 % 1000 * 4096) == 4096);
            sum = sum * 31 + hash_bytes(block, 4096);
        }
        close(file);
    }
    setitimer(ITIMER_REAL, &never, NULL), setitimer(ITIMER_PROF, &never, NULL);
    printf("sum %016" PRIx64 ", handled some: %d, wrong %d\n", sum, handled > 3, (int)wrong);
    CHECK(wrong == 0 && handled > 3);
}
