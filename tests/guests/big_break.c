// trap: the break grows to a gigabyte, shrinks, grows: something of Runahead's lies in its way
// glibc: sbrk
// data: cold.bin 4M
#include "guest.h"

int main(void) {
    static char output[1000];
    setvbuf(stdout, output, _IOFBF, sizeof output);  // nothing of libc's is in the heap
    char *start = sbrk(0);
    for (int round = 0; round < 8; round++) {
        char *before = sbrk(0);
        CHECK(sbrk(128 << 20) == before);
        before[0] = before[(128 << 20) - 1] = (char)round;
        wander("cold.bin", 30);
        make_cold("cold.bin");
    }
    int file = open("cold.bin", O_RDONLY);
    for (int round = 0; round < 8; round++) {
        CHECK(start[(long)round * (128 << 20)] == round);
        CHECK(pread(file, start + (long)round * (128 << 20) + 4000, 100000, round * 4096) == 100000);
    }
    printf("%ld MB, hash %016" PRIx64 "\n", (long)((char *)sbrk(0) - start) >> 20, hash_bytes(start + 4000, 100000));
    CHECK(brk(start) == 0 && sbrk(0) == start);
    CHECK(sbrk(4096) == start && start[0] == 0);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
}
