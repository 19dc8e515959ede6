// trap: a read that is partly cached comes back short, or with the position moved twice
// data: cold.bin 4M
// run: read
// run: readv
// run: pread
// run: preadv
#include "guest.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    enum { SIZE = 4 << 20 };
    static char whole[SIZE], block[1 << 19];
    int file = open("cold.bin", O_RDONLY);
    CHECK(read(file, whole, SIZE) == SIZE);
    CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) == 0);
    unsigned state = 1;
    for (int step = 0; step < 250; step++) {
        state = state * 1103515245 + 12345;
        off_t place = (state >> 4) % (SIZE - 1000);
        size_t length = 1 + (state >> 9) % sizeof block;
        // The first part stays in memory, a hole in the middle does not.
        off_t hole = (place + (off_t)length / 2) & ~4095L;
        CHECK(posix_fadvise(file, hole, (off_t)(state >> 3) % 65536 + 4096, POSIX_FADV_DONTNEED) == 0);
        size_t expected = length;
        if (place + (off_t)length > SIZE) expected = (size_t)(SIZE - place);
        struct iovec parts[3] = {{block, length / 3}, {block + length / 3, 0}, {block + length / 3, length - length / 3}};
        ssize_t got;
        memset(block, 0, length);
        CHECK(lseek(file, place, SEEK_SET) == place);
        off_t after = place;
        if (strcmp(argv[1], "read") == 0)
            got = read(file, block, length), after += got;
        else if (strcmp(argv[1], "readv") == 0)
            got = readv(file, parts, 3), after += got;
        else if (strcmp(argv[1], "pread") == 0)
            got = pread(file, block, length, place);
        else
            got = preadv(file, parts, 3, place);
        CHECK(got == (ssize_t)expected);
        CHECK(memcmp(block, whole + place, expected) == 0);
        CHECK(lseek(file, 0, SEEK_CUR) == after);
    }
    printf("all whole\n");
}
