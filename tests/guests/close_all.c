// trap: a program that closes everything it does not know: Runahead had a descriptor, or expects one
// data: cold.bin 4M
// run: close
// run: close-range
// run: dup-over
#include "guest.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    // The story is told through a copy of standard output at a high number, made at the end from /proc.
    char story[400];
    uint64_t first = wander("cold.bin", 100), second = 0;
    make_cold("cold.bin");
    int kept = fcntl(1, F_DUPFD, 2000);
    if (strcmp(argv[1], "close") == 0)
        for (int at = 0; at <= 1024; at++) close(at);
    else if (strcmp(argv[1], "close-range") == 0)
        CHECK(syscall(SYS_close_range, 0, 1999, 0) == 0);
    else {
        // Every number is taken by something else.
        int null = open("/dev/null", O_RDWR);
        for (int at = 3; at < 1000; at++) CHECK(dup2(null, at) == at);
        close(0), close(1), close(2);
    }
    int lowest[3];
    for (int at = 0; at < 3; at++) lowest[at] = open("cold.bin", O_RDONLY);
    second = wander("cold.bin", 200);
    char block[4096];
    for (int step = 0; step < 100; step++) CHECK(pread(lowest[0], block, sizeof block, step * 37 % 1000 * 4096L) == 4096);
    int length = snprintf(story, sizeof story, "%016" PRIx64 " %016" PRIx64 " lowest %d %d %d, hash %016" PRIx64 "\n", first, second,
                          lowest[0], lowest[1], lowest[2], hash_bytes(block, sizeof block));
    CHECK(write(kept, story, (size_t)length) == length);
    CHECK(lowest[0] == 0 && lowest[2] == 2);
}
