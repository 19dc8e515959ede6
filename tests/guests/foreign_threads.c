// trap: threads whose thread pointer is not a C library's, or is another thread's
// build: -pthread -fno-stack-protector -O2
// data: cold.bin 4M
// run: zero
// run: unmapped
// run: unreadable
// run: same
#include "guest.h"
#include <asm/prctl.h>
#include <pthread.h>
#include <sched.h>

enum { ROUNDS = 600 };

static long pread_site(int file, void *buffer, long length, long place) {
    long result;
    register long r10 __asm__("r10") = place;
    __asm__ volatile("mov $17, %%eax\n syscall"
                     : "=a"(result)
                     : "D"(file), "S"(buffer), "d"(length), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

static int file;
static unsigned long base;
static uint64_t sums[4];
static int wrong[4];
static char blocks[4][4096];

// Uses no thread-local storage, and so no libc.
__attribute__((noinline)) static void reads(int which) {
    uint64_t sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        long got = pread_site(file, blocks[which], 4096, (round * 37 + which * 251) % 1000 * 4096L);
        if (got != 4096) wrong[which]++;
        sum = sum * 31 + hash_bytes(blocks[which], 4096);
    }
    sums[which] = sum;
}

static void *with_foreign_base(void *argument) {
    int which = *(int *)argument;
    unsigned long own = 0;
    raw6(SYS_arch_prctl, ARCH_GET_FS, (long)&own, 0, 0, 0, 0);
    raw6(SYS_arch_prctl, ARCH_SET_FS, (long)base, 0, 0, 0, 0);
    reads(which);
    raw6(SYS_arch_prctl, ARCH_SET_FS, (long)own, 0, 0, 0, 0);
    return NULL;
}

// A thread of the kernel's only: it has the thread pointer of whoever made it.
static volatile int over[2] = {1, 1};
static int raw_thread(void *argument) {
    reads(*(int *)argument);
    raw6(SYS_exit, 0, 0, 0, 0, 0, 0);
    return 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    file = open("cold.bin", O_RDONLY);
    CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) == 0);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
    make_cold("cold.bin");
    static int numbers[4] = {0, 1, 2, 3};
    if (strcmp(argv[1], "unmapped") == 0) {
        char *place = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(munmap(place, 4096) == 0);
        base = (unsigned long)place;
    } else if (strcmp(argv[1], "unreadable") == 0) {
        base = (unsigned long)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 64;
    }
    if (strcmp(argv[1], "same") == 0) {
        int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                    CLONE_CHILD_CLEARTID;
        for (int at = 0; at < 2; at++) {
            char *stack = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(clone(raw_thread, stack + (1 << 16), flags, &numbers[at], NULL, NULL, (pid_t *)&over[at]) > 0);
        }
        reads(2);
        // This thread's own calls stay out of the way of theirs: libc's state is everybody's.
        while (over[0] || over[1]) __builtin_ia32_pause();
    } else {
        pthread_t threads[3];
        for (int at = 0; at < 3; at++)
            CHECK(pthread_create(&threads[at], NULL, with_foreign_base, &numbers[at]) == 0);
        for (int at = 0; at < 3; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    }
    for (int at = 0; at < 3; at++) printf("wrong %d, sum %016" PRIx64 "\n", wrong[at], sums[at]);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
}
