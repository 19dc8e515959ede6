// trap: page faults are watched and pages asked for ahead, while the mapped files and the mappings change
// data: cold.bin 24M
// data: other.bin 16M
#include "guest.h"
#include <setjmp.h>

enum { ROW = 65536 };

// Down the columns of whatever is mapped there: what the watcher follows.
static uint64_t columns(const volatile unsigned char *map, size_t length, int count) {
    uint64_t sum = 0;
    for (int column = 0; column < count; column++)
        for (size_t at = (size_t)column * 4096; at < length; at += ROW) sum = sum * 31 + map[at];
    return sum;
}

static sigjmp_buf out;
static void *where;

static void bus(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    where = info->si_addr;
    siglongjmp(out, 1);
}

static unsigned char *map(const char *path, size_t length, int protection, int flags) {
    int file = open(path, protection & PROT_WRITE ? O_RDWR : O_RDONLY);
    CHECK(file >= 0);
    unsigned char *got = mmap(NULL, length, protection, flags, file, 0);
    CHECK(got != MAP_FAILED);
    CHECK(close(file) == 0);
    return got;
}

int main(void) {
    size_t length = 24 << 20;
    describe_onlookers();

    // Plain, shared and private, read and written.
    unsigned char *shared = map("cold.bin", length, PROT_READ | PROT_WRITE, MAP_SHARED);
    printf("shared %016" PRIx64 "\n", columns(shared, length, 3));
    describe_onlookers();
    for (size_t at = 0; at < length; at += ROW) shared[at]++;
    make_cold("cold.bin");
    unsigned char *private = map("cold.bin", length, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    for (size_t at = 0; at < length; at += 3 * ROW) private[at] = 9;
    printf("private %016" PRIx64 "\n", columns(private, length, 3));
    CHECK(madvise(private, length, MADV_DONTFORK) == 0);

    // A child finds the shared one only.
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit((int)(columns(shared, length, 1) & 0x7f));
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("child %x\n", status);

    // Another file in the place of the first, in the middle of a walk.
    make_cold("cold.bin"), make_cold("other.bin");
    uint64_t sum = 0;
    for (size_t at = 0; at < length; at += ROW) {
        if (at == length / 3) {
            int other = open("other.bin", O_RDONLY);
            CHECK(mmap(private, 16 << 20, PROT_READ, MAP_PRIVATE | MAP_FIXED, other, 0) == private);
            CHECK(close(other) == 0 && unlink("other.bin") == 0);
        }
        if (at == length / 2) CHECK(munmap(private + (20 << 20), 4 << 20) == 0);
        if (at < 20 << 20) sum = sum * 31 + private[at];
    }
    printf("replaced %016" PRIx64 "\n", sum);

    // A file with holes, longer than its data.
    int holes = open("holes.bin", O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(ftruncate(holes, 32 << 20) == 0 && pwrite(holes, "x", 1, 5 * ROW) == 1 && close(holes) == 0);
    unsigned char *sparse = map("holes.bin", 32 << 20, PROT_READ, MAP_PRIVATE);
    printf("holes %016" PRIx64 "\n", columns(sparse, 32 << 20, 2));

    // Cut short in the middle of a walk: SIGBUS at the place where it would come without us, and nowhere else.
    make_cold("cold.bin");
    struct sigaction action = {.sa_sigaction = bus, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    volatile size_t at = 0;
    if (sigsetjmp(out, 1) == 0) {
        for (; at < length; at += ROW) {
            if (at == 8 << 20) CHECK(truncate("cold.bin", 12 << 20) == 0);
            sum = sum * 31 + ((volatile unsigned char *)shared)[at];
        }
    }
    printf("cut %016" PRIx64 ", bus at %zu, after %zu\n", sum, (size_t)((unsigned char *)where - shared), (size_t)at);
    describe_onlookers();
    return 0;
}
