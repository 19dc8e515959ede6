// trap: libraries loaded and unloaded at run time, with reads in them, one after the other in one place
// library: plugin.c
// build: -ldl
// data: cold.bin 4M
// run: {here}/plugin.so
#include "guest.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int file = open("cold.bin", O_RDONLY);
    for (int round = 0; round < 25; round++) {
        make_cold("cold.bin");
        void *library = dlopen(argv[1], round % 2 ? RTLD_NOW : RTLD_LAZY);
        if (!library) fprintf(stderr, "%s\n", dlerror());
        CHECK(library);
        uint64_t (*plugin_read)(int, int) = (uint64_t(*)(int, int))(uintptr_t)dlsym(library, "plugin_read");
        CHECK(plugin_read);
        printf("%016" PRIx64 "\n", plugin_read(file, round));
        CHECK(dlclose(library) == 0);
    }
    // Code that is made at run time, read-only and executable afterwards.
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 30; round++) {
        static const unsigned char pread_syscall[] = {0x49, 0x89, 0xca, 0xb8, 17, 0, 0, 0, 0x0f, 0x05, 0xc3};
        CHECK(mprotect(code, 4096, PROT_READ | PROT_WRITE) == 0);
        memset(code, 0x90, 4096);
        // Now here, now there; the last byte of the page is the return.
        size_t place = round % 2 ? (size_t)round * 16 : 4096 - sizeof pread_syscall;
        memcpy(code + place, pread_syscall, sizeof pread_syscall);
        CHECK(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0);
        char block[4096];
        long (*made)(long, void *, long, long) = (long (*)(long, void *, long, long))(uintptr_t)(code + place);
        CHECK(made(file, block, sizeof block, round * 37 % 1000 * 4096L) == sizeof block);
        CHECK(memcmp(code + place, pread_syscall, sizeof pread_syscall) == 0);
        printf("%016" PRIx64 "\n", hash_bytes(block, sizeof block));
    }
}
