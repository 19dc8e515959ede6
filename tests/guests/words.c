// trap: nothing but page faults at computed places of a file, which may lie where nobody can ask what is cached
// run: cold.bin 500
// run: cold.bin 500 read
// run: cold.bin 500 code
// data: cold.bin 16M
#include "guest.h"
#include <sys/resource.h>

static uint64_t place(uint64_t step, uint64_t words) { return (step * 0x9e3779b97f4a7c15u >> 11) % words; }

// Says in a file of its own how many faults have waited: that differs from run to run.
static void say_waits(const char *path) {
    struct rusage usage;
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && getrusage(RUSAGE_SELF, &usage) == 0);
    CHECK(fprintf(file, "%ld\n", usage.ru_majflt) > 0 && fclose(file) == 0);
}

// Words of a file at places that nobody reads anywhere: mapped, mapped as code, or read one by one.
int main(int arguments, char **argument) {
    CHECK(arguments == 3 || arguments == 4);
    int file = open(argument[1], O_RDONLY);
    struct stat status;
    CHECK(file >= 0 && fstat(file, &status) == 0);
    uint64_t words = (uint64_t)status.st_size / 8, count = (uint64_t)atoi(argument[2]), sum = 0;
    if (arguments == 4 && strcmp(argument[3], "read") == 0) {
        for (uint64_t step = 0, word; step < count; step++) {
            CHECK(pread(file, &word, sizeof word, (off_t)(place(step, words) * 8)) == sizeof word);
            sum = sum * 31 + word;
        }
    } else {
        bool is_code = arguments == 4 && strcmp(argument[3], "code") == 0;
        int protection = PROT_READ | (is_code ? PROT_EXEC : 0);
        const uint64_t *data = mmap(NULL, (size_t)status.st_size, protection, MAP_PRIVATE, file, 0);
        CHECK(data != MAP_FAILED && madvise((void *)data, (size_t)status.st_size, MADV_RANDOM) == 0);
        for (uint64_t step = 0; step < count; step++)
            sum = sum * 31 + data[place(step, words)];
        if (arguments == 4 && !is_code)
            say_waits(argument[3]);
    }
    printf("%016llx\n", (unsigned long long)sum);
}
