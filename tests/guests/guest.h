// What the guest programs share. A guest prints what it sees; the harness compares what it printed
// alone with what it printed under Runahead. What must hold in any case is CHECKed.
#ifndef GUEST_H
#define GUEST_H

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Ends the guest with exit status 1, telling where and why.
#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            int check_errno = errno;                                                            \
            dprintf(2, "%s:%d: CHECK(%s) failed, errno %d\n", __FILE__, __LINE__, #condition,   \
                    check_errno);                                                               \
            _exit(1);                                                                           \
        }                                                                                       \
    } while (0)

static inline uint64_t hash_bytes(const void *bytes, size_t length) {
    uint64_t hash = 0xcbf29ce484222325u, word;
    size_t at = 0;
    for (; at + 8 <= length; at += 8) {
        memcpy(&word, (const char *)bytes + at, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    for (; at < length; at++) hash = (hash ^ ((const unsigned char *)bytes)[at]) * 0x100000001b3u;
    return hash;
}

// The system call without libc around it; the result is the kernel's own, -errno on failure.
__attribute__((always_inline)) static inline long raw6(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

// The same through an instruction that somebody may jump to: nobody can put another in front of it.
// Which call it is stands in memory alone.
__attribute__((noinline, unused)) static long unseen5(const volatile long *number, long a, long b, long c,
                                                     long d, long e) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    __asm__ volatile("mov (%1), %%rax\n xor %%r9d, %%r9d\n jmp 1f\n 1: syscall"
                     : "=&a"(result)
                     : "r"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r9", "r11", "memory", "cc");
    return result;
}

// Reads `count` blocks of 512 bytes all over the file, the next place always taken from the data just
// read, and gives a hash of what it saw. On a cold file nearly each of them waits for the disk, so
// that after this a speculator exists, if there is ever to be one.
static inline uint64_t wander(const char *path, int count) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(descriptor >= 0);
    struct stat status;
    CHECK(fstat(descriptor, &status) == 0);
    uint64_t blocks = (uint64_t)status.st_size / 512, state = 1;
    CHECK(blocks > 0);
    for (int step = 0; step < count; step++) {
        uint64_t block[64];
        off_t place = (off_t)((state >> 7) % blocks * 512);
        CHECK(pread(descriptor, block, sizeof block, place) == sizeof block);
        state = state * 6364136223846793005u + block[step % 64];
    }
    CHECK(close(descriptor) == 0);
    return state;
}

// The same with places that do not depend on the data, the easy case for speculation.
static inline uint64_t stride(const char *path, int count) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(descriptor >= 0);
    struct stat status;
    CHECK(fstat(descriptor, &status) == 0);
    uint64_t blocks = (uint64_t)status.st_size / 512, state = 1, sum = 0;
    for (int step = 0; step < count; step++) {
        uint64_t block[64];
        state = state * 6364136223846793005u + 1442695040888963407u;
        CHECK(pread(descriptor, block, sizeof block, (off_t)((state >> 20) % blocks * 512)) ==
              sizeof block);
        sum = sum * 31 + block[step % 64];
    }
    CHECK(close(descriptor) == 0);
    return sum;
}

// Drops the file's pages from the page cache, from inside the guest.
static inline void make_cold(const char *path) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(descriptor >= 0);
    CHECK(fsync(descriptor) == 0);
    CHECK(posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED) == 0);
    CHECK(close(descriptor) == 0);
}

static inline void pause_ms(int milliseconds) {
    struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
        ;
}

// The whole of a small file (of /proc, too), as a string.
static inline char *slurp(const char *path) {
    static char text[1 << 16];
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return NULL;
    size_t length = 0;
    for (;;) {
        ssize_t got = read(descriptor, text + length, sizeof text - 1 - length);
        if (got <= 0) break;
        length += (size_t)got;
    }
    close(descriptor);
    text[length] = 0;
    return text;
}

// What a program can see of an onlooker's: descriptors and threads of its own.
static inline void describe_onlookers(void) {
    int count = 0;
    for (int fd = 0; fd < 256; fd++) count += fcntl(fd, F_GETFD) >= 0;
    struct stat status;
    CHECK(stat("/proc/self/task", &status) == 0);
    printf("%d descriptors, %d threads\n", count, (int)status.st_nlink - 2);
}

static inline int exit_status_of(pid_t child) {
    int status;
    pid_t got;
    do
        got = waitpid(child, &status, 0);
    while (got < 0 && errno == EINTR);
    CHECK(got == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#endif
