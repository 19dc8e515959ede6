// trap: executable mappings through which a file is written: what changes them changes the file
// loaded:
// data: cold.bin 4M
// run: shared
// run: shared-then-executable
// run: private
// run: private-then-executable
// run: memory-file
// run: two-mappings
#include "guest.h"
#include <elf.h>

static char library[PATH_MAX];

static void find_library(void) {
    char *line = strstr(slurp("/proc/self/maps"), "/libc.so");
    CHECK(line);
    char *end = line + strcspn(line, "\n");
    while (*line != ' ') line--;
    snprintf(library, sizeof library, "%.*s", (int)(end - line - 1), line + 1);
}

static uint64_t hash_file(int file) {
    static char part[1 << 16];
    uint64_t hash = 0;
    ssize_t got;
    for (off_t at = 0; (got = pread(file, part, sizeof part, at)) > 0; at += got)
        hash = hash * 31 + hash_bytes(part, (size_t)got);
    return hash;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    bool is_shared = strncmp(argv[1], "shared", 6) == 0 || strncmp(argv[1], "private", 7) != 0;
    wander("cold.bin", 100);
    find_library();
    int from = open(library, O_RDONLY);
    int copy = strcmp(argv[1], "memory-file") == 0 ? memfd_create("copy", 0)
                                                   : open("copy.so", O_RDWR | O_CREAT, 0755);
    CHECK(from >= 0 && copy >= 0);
    static char part[1 << 16];
    ssize_t length;
    while ((length = read(from, part, sizeof part)) > 0) CHECK(write(copy, part, (size_t)length) == length);
    uint64_t before = hash_file(copy);
    // What has just changed may change again within a tick of the file system's clock: nobody relies on
    // what he knows of it.
    pause_ms(100);
    Elf64_Ehdr head;
    CHECK(pread(copy, &head, sizeof head, 0) == sizeof head);
    for (int index = 0; index < head.e_phnum; index++) {
        Elf64_Phdr part_of;
        off_t at = (off_t)(head.e_phoff + (size_t)index * sizeof part_of);
        CHECK(pread(copy, &part_of, sizeof part_of, at) == sizeof part_of);
        if (part_of.p_type != PT_LOAD || !(part_of.p_flags & PF_X)) continue;
        off_t start = (off_t)(part_of.p_offset & ~4095UL);
        int way = is_shared ? MAP_SHARED : MAP_PRIVATE;
        bool later = strstr(argv[1], "then") != NULL;
        int code = PROT_READ | PROT_EXEC, at_first = later ? PROT_READ : code;
        char *twin = NULL;
        if (strcmp(argv[1], "two-mappings") == 0)
            twin = mmap(NULL, part_of.p_filesz, PROT_READ, MAP_SHARED, copy, start);
        char *made = mmap(NULL, part_of.p_filesz, at_first, way, copy, start);
        CHECK(made != MAP_FAILED);
        if (later) CHECK(mprotect(made, part_of.p_filesz, code) == 0);
        // Shared memory is what the file holds.
        if (twin) printf("twins agree: %d\n", memcmp(made, twin, part_of.p_filesz) == 0);
        if (is_shared) CHECK(msync(made, part_of.p_filesz, MS_SYNC) == 0);
        CHECK(munmap(made, part_of.p_filesz) == 0);
    }
    wander("cold.bin", 100);
    printf("the file is as it was: %d\n", hash_file(copy) == before);
}
