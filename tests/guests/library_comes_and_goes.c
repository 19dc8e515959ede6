// trap: what is made for each library that is loaded stays when the library goes
// library: sites.c
// build: -ldl
// data: cold.bin 4M
// run: {here}/sites.so
#include "guest.h"
#include <dlfcn.h>

struct seen {
    long mappings, kilobytes;
};

static struct seen look(void) {
    struct seen seen = {0, 0};
    for (const char *at = slurp("/proc/self/maps"); *at; at++) seen.mappings += *at == '\n';
    char *line = strstr(slurp("/proc/self/status"), "VmSize:");
    CHECK(line);
    seen.kilobytes = atol(line + strlen("VmSize:"));
    return seen;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int file = open("cold.bin", O_RDONLY);
    wander("cold.bin", 100);
    struct seen before = {0, 0};
    uint64_t sum = 0;
    for (int round = 0; round < 3000; round++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        CHECK(library);
        long (*sites_read)(int, void *, unsigned long) =
            (long (*)(int, void *, unsigned long))(uintptr_t)dlsym(library, "sites_read");
        char block[64];
        CHECK(lseek(file, round * 7919 % 60000 * 64L, SEEK_SET) >= 0);
        CHECK(sites_read(file, block, sizeof block) == sizeof block);
        sum = sum * 31 + hash_bytes(block, sizeof block);
        CHECK(dlclose(library) == 0);
        if (round == 200) before = look();
    }
    struct seen after = look();
    printf("sum %016" PRIx64 ", more mappings: %d, more memory: %d\n", sum,
           after.mappings > before.mappings + 2, after.kilobytes > before.kilobytes + 256);
}
