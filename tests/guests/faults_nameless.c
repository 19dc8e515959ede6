// trap: a mapped file that has neither name nor descriptor any more is found by its mapping, and held open
// data: cold.bin 24M
#include "guest.h"

enum { PAGE = 4096, ROW = 65536 };
static const size_t LENGTH = 24 << 20;

// Three scans at once, one of which writes: as codes with arrays out of core go.
static uint64_t scans(volatile unsigned char *map) {
    uint64_t sum = 0;
    size_t third = LENGTH / 3;
    for (size_t at = 0; at < third; at += PAGE) {
        sum = sum * 31 + map[at] + map[third + at + 1];
        map[2 * third + at] += (unsigned char)sum;
    }
    return sum;
}

// Columns side by side.
static uint64_t columns(volatile unsigned char *map) {
    uint64_t sum = 0;
    for (size_t column = 0; column < 2; column++)
        for (size_t at = column * PAGE; at < LENGTH; at += 6 * ROW) sum = sum * 31 + map[at];
    return sum;
}

int main(void) {
    int file = open("cold.bin", O_RDWR);
    CHECK(file >= 0 && unlink("cold.bin") == 0);
    unsigned char *map = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(map != MAP_FAILED);
    CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0 && close(file) == 0);
    printf("scans %016" PRIx64 "\n", scans(map));
    describe_onlookers();

    // What a child writes is there for both.
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        map[6 * ROW]++;
        _exit((int)(columns(map) & 0x7f));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("child %x, columns %016" PRIx64 "\n", status, columns(map));

    // What is mapped in its place is not the file.
    CHECK(mmap(map, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == map);
    printf("replaced %016" PRIx64 "\n", scans(map));
    return 0;
}
