// trap: nothing but page faults at computed places of a file, which may lie where nobody can ask what is cached
// run: cold.bin 500
// data: cold.bin 16M
#include "guest.h"

// Words of a mapped file at places that nobody reads anywhere.
int main(int arguments, char **argument) {
    CHECK(arguments == 3);
    int file = open(argument[1], O_RDONLY);
    struct stat status;
    CHECK(file >= 0 && fstat(file, &status) == 0);
    uint64_t words = (uint64_t)status.st_size / 8;
    const uint64_t *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(data != MAP_FAILED && madvise((void *)data, (size_t)status.st_size, MADV_RANDOM) == 0);
    uint64_t sum = 0;
    for (uint64_t step = 0, count = (uint64_t)atoi(argument[2]); step < count; step++)
        sum = sum * 31 + data[(step * 0x9e3779b97f4a7c15u >> 11) % words];
    printf("%016llx\n", (unsigned long long)sum);
}
