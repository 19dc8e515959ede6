// trap: the program unmaps, moves, protects or maps over what it finds in its memory and has not put there
// data: cold.bin 4M
// run: unmap
// run: over
// run: protect
// run: move
// run: forget
#include "guest.h"

struct range {
    char *start, *end;
};

// From the first line that names `what` to the last, and what lies right before it without a name. Nothing of it alone.
static struct range find(const char *what) {
    static char text[1 << 16];
    struct range found = {0, 0}, nameless = {0, 0};
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(text, sizeof text, maps)) {
        unsigned long start, end;
        int name = 0;
        CHECK(sscanf(text, "%lx-%lx %*s %*s %*s %*s %n", &start, &end, &name) == 2);
        bool named = strstr(text + name, what) != NULL;
        if (named) {
            bool joins = nameless.end == (char *)start;
            if (found.start == NULL) found.start = joins ? nameless.start : (char *)start;
            found.end = (char *)end;
        }
        if (text[name] != '\0' && text[name] != '\n') nameless = (struct range){0, 0};
        else if (nameless.end == (char *)start) nameless.end = (char *)end;
        else nameless = (struct range){(char *)start, (char *)end};
    }
    fclose(maps);
    return found;
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "unmap";
    printf("before %016" PRIx64 "\n", wander("cold.bin", 60));
    struct range ours = find("memfd:runahead");
    size_t length = (size_t)(ours.end - ours.start);
    if (ours.start != NULL) {
        if (strcmp(how, "unmap") == 0) CHECK(munmap(ours.start, length) == 0);
        if (strcmp(how, "protect") == 0) CHECK(mprotect(ours.start, length, PROT_NONE) == 0);
        if (strcmp(how, "forget") == 0) madvise(ours.start, length, MADV_DONTNEED);
        if (strcmp(how, "over") == 0) {
            char *mine = mmap(ours.start, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            CHECK(mine == ours.start);
            memset(mine, 0x5a, length);
        }
        if (strcmp(how, "move") == 0) {
            char *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(mremap(other, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, ours.start) == ours.start);
            memset(ours.start, 0x5a, 4096);
        }
    }
    make_cold("cold.bin");
    printf("after %016" PRIx64 "\n", wander("cold.bin", 60));
    struct stat status;
    CHECK(stat("cold.bin", &status) == 0);
    bool kept = true;
    if (ours.start != NULL && strcmp(how, "over") == 0)
        for (size_t at = 0; at < length; at++) kept &= ours.start[at] == 0x5a;
    printf("kept %d\n", kept);
    return 0;
}
