// trap: memory of which the program serves the page faults itself is touched before the program touches it
// build: -pthread
// needs: root
// data: cold.bin 8M
// run: seen
// run: unseen
// run: shared
#include "guest.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>

enum { PAGES = 64, PAGE = 4096 };

static char *guarded;
static int faults;
// The page that the program is about to touch, and pages that were asked for before their turn.
static volatile int turn = -1, early;

static void *serve(void *argument) {
    (void)argument;
    struct uffd_msg message;
    while (read(faults, &message, sizeof message) == sizeof message) {
        if (message.event != UFFD_EVENT_PAGEFAULT) continue;
        uint64_t page = message.arg.pagefault.address & ~(uint64_t)(PAGE - 1);
        if ((int)((page - (uintptr_t)guarded) / PAGE) != turn) early++;
        static char content[PAGE];
        memset(content, (int)(1 + (page - (uintptr_t)guarded) / PAGE), sizeof content);
        struct uffdio_copy copy = {.dst = page, .src = (uintptr_t)content, .len = PAGE};
        CHECK(ioctl(faults, UFFDIO_COPY, &copy) == 0 || errno == EEXIST);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    // Through libc, or by an instruction of which nobody knows the number.
    static volatile long number = SYS_userfaultfd;
    faults = strcmp(argv[1], "unseen") == 0 ? (int)raw6(number, O_CLOEXEC, 0, 0, 0, 0, 0)
                                            : (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    CHECK(faults >= 0);
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(ioctl(faults, UFFDIO_API, &api) == 0);
    int sharing = strcmp(argv[1], "shared") == 0 ? MAP_SHARED : MAP_PRIVATE;
    guarded = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    CHECK(guarded != MAP_FAILED);
    struct uffdio_register range = {.range = {(uintptr_t)guarded, PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(faults, UFFDIO_REGISTER, &range) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
    int file = open("cold.bin", O_RDONLY);
    CHECK(file >= 0);
    uint64_t state = 1, sum = 0;
    for (int page = 0; page < PAGES; page++) {
        for (int step = 0; step < 4; step++) {
            uint64_t block[64];
            state = state * 6364136223846793005u + 1442695040888963407u;
            off_t place = (off_t)((state >> 20) % ((8 << 20) / sizeof block) * sizeof block);
            CHECK(pread(file, block, sizeof block, place) == sizeof block);
            sum = sum * 31 + block[step];
        }
        turn = page;
        sum += (unsigned char)*(volatile char *)(guarded + page * PAGE);
        turn = -1;
    }
    printf("sum %016" PRIx64 ", %d of %d pages were touched before their turn\n", sum, early, PAGES);
}
