// trap: a program unmaps a place, counts on its being free, and maps there again: something of ours
// trap: has moved in meanwhile
// library: plugin.c
// build: -ldl
// data: cold.bin 4M
// data: shared.bin 1M
// run: early munmap fixed 1048576
// run: early munmap noreplace 1048576
// run: early munmap mremap 1048576
// run: early mremap noreplace 1048576
// run: early shrink noreplace 1048576
// run: late munmap noreplace 1048576
// run: early munmap noreplace 4096
// run: library bounded noreplace 8192 {here}/plugin.so
// run: library bounded fixed 8192 {here}/plugin.so
// run: early munmap file 1048576
// run: library bounded file 8192 {here}/plugin.so
#include "guest.h"
#include <dlfcn.h>

enum { PATTERN = 0xaa };

static void stalls(int rounds) {
    for (int round = 0; round < rounds; round++) {
        make_cold("cold.bin");
        wander("cold.bin", 100);
    }
}

// A place of `size` bytes that was the program's and is nobody's.
static char *hole(const char *how, size_t size) {
    int both = PROT_READ | PROT_WRITE, own = MAP_PRIVATE | MAP_ANONYMOUS;
    if (strcmp(how, "munmap") == 0) {
        char *made = mmap(NULL, size, both, own, -1, 0);
        CHECK(made != MAP_FAILED);
        // Something lies below, or the hole is larger than it is meant to be.
        char *below = mmap(made - 4096, 4096, PROT_NONE, own | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(below == made - 4096 || errno == EEXIST);
        CHECK(munmap(made, size) == 0);
        return made;
    }
    if (strcmp(how, "bounded") == 0) {
        // What lies below stays: with that the place might be large enough for a library.
        char *below = mmap(NULL, 2 * size, both, own, -1, 0), *made = below + size;
        CHECK(below != MAP_FAILED && munmap(made, size) == 0);
        return made;
    }
    if (strcmp(how, "mremap") == 0) {
        // The new place lies below: the old one is the first that a search from above finds.
        char *made = mmap(NULL, size, both, own, -1, 0), *below = mmap(NULL, size, PROT_NONE, own, -1, 0);
        CHECK(made != MAP_FAILED && below != MAP_FAILED);
        CHECK(mremap(made, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, below) == below);
        return made;
    }
    char *made = mmap(NULL, 2 * size, both, own, -1, 0);
    CHECK(made != MAP_FAILED && mremap(made, 2 * size, size, 0) == made);
    return made + size;
}

int main(int argc, char **argv) {
    CHECK(argc >= 5);
    const char *when = argv[1], *into = argv[3];
    size_t size = (size_t)atol(argv[4]);
    int both = PROT_READ | PROT_WRITE, own = MAP_PRIVATE | MAP_ANONYMOUS;
    int shared = open("shared.bin", O_RDWR);
    CHECK(shared >= 0);
    if (strcmp(when, "early") != 0) stalls(2);
    char *source = mmap(NULL, 3 * size, both, own, -1, 0);
    CHECK(source != MAP_FAILED);
    char *place = hole(argv[2], size);
    if (argc > 5) {
        // Too large for the hole itself; what is made for it may not be.
        void *library = dlopen(argv[5], RTLD_NOW);
        CHECK(library);
        uint64_t (*plugin_read)(int, int) = (uint64_t(*)(int, int))(uintptr_t)dlsym(library, "plugin_read");
        int file = open("cold.bin", O_RDONLY);
        dprintf(1, "%016" PRIx64 "\n", plugin_read(file, 1));
        close(file);
    }
    stalls(2);
    char *got;
    errno = 0;
    if (strcmp(into, "mremap") == 0) {
        got = mremap(source + size, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    } else if (strcmp(into, "file") == 0) {
        got = mmap(place, size, both, MAP_SHARED | MAP_FIXED, shared, 0);
    } else {
        int fixed = strcmp(into, "fixed") == 0 ? MAP_FIXED : MAP_FIXED_NOREPLACE;
        got = mmap(place, size, both, own | fixed, -1, 0);
    }
    dprintf(1, "at its place: %d, errno %d\n", got == place, got == place ? 0 : errno);
    CHECK(got == place);
    memset(got, PATTERN, size);
    stalls(3);
    size_t changed = 0;
    for (size_t at = 0; at < size; at++) changed += got[at] != (char)PATTERN;
    dprintf(1, "changed: %zu\n", changed);
    CHECK(munmap(got, size) == 0);
    stalls(1);
    // What a file holds is compared by whoever runs this, too.
    CHECK(changed == 0);
}
