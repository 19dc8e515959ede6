// trap: memory of Runahead's that /proc/self/maps calls readable cannot be read
// data: cold.bin 4M
#include <setjmp.h>
#include "guest.h"

// Collectors, checkers of memory and debuggers read what they find there.
static sigjmp_buf before;
static volatile uintptr_t place;

static void refused(int signal) { siglongjmp(before, signal); }

static void read_all(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    CHECK(maps && memory >= 0);
    while (fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) != 3 || rights[0] != 'r' || strstr(line, "[v")) continue;
        int signal = sigsetjmp(before, 1);
        if (signal == 0) {
            for (place = start; place < end; place += 4096) {
                char page[4096];
                if (pread(memory, page, sizeof page, (off_t)place) != sizeof page) printf("not to be read: %s", line), place = end;
            }
            for (place = start; place < end; place += 4096) (void)*(volatile char *)place;
        } else {
            printf("signal %d %lu pages into %s", signal, (place - start) / 4096, line);
        }
    }
    fclose(maps), close(memory);
}

int main(void) {
    struct sigaction action = {.sa_handler = refused};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
    read_all();
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 200));
    read_all();
    puts("all read");
    return 0;
}
