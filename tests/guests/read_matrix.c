// trap: a read-type call on some kind of descriptor gives another result, errno, position or bytes
// glibc: preadv2
// build: -lutil
// data: file.bin 20000
// run: libc
// run: syscall
// run: inline
// timeout: 120
#include "kinds.h"

enum { FILE_SIZE = 20000, ROOM = 1 << 15 };

// What the operations write into: two readable and writable pages, then a hole, then one read-only
// page, all with a pattern that shows which bytes were written.
static unsigned char *arena;

struct operation {
    const char *name;
    long number;
    long flags;
};

static const struct operation operations[] = {
    {"read", SYS_read, 0}, {"pread64", SYS_pread64, 0}, {"readv", SYS_readv, 0},
    {"preadv", SYS_preadv, 0}, {"preadv2", SYS_preadv2, 0}, {"preadv2-hipri", SYS_preadv2, RWF_HIPRI},
    // Only where the answer does not depend on what happens to be cached: see main.
    {"preadv2-nowait", SYS_preadv2, RWF_NOWAIT},
    // Bits that no kernel knows: EOPNOTSUPP, whoever asks.
    {"preadv2-unknown-flag", SYS_preadv2, 1 << 30}, {"preadv2-all-flags", SYS_preadv2, 0xffffffffL},
};

enum buffer { GOOD, NOTHING, HOLE, HALF, READ_ONLY, ODD, KERNEL };
struct shape {
    const char *name;
    long length;
    long offset;     // of the positioned calls; the others seek there first
    enum buffer buffer;
    long vectors;    // for the vector calls
};

static const struct shape shapes[] = {
    {"zero", 0, 0, GOOD, 1},
    {"zero-to-nowhere", 0, 0, NOTHING, 1},
    {"zero-to-hole", 0, 0, HOLE, 1},
    {"one", 1, 0, GOOD, 1},
    {"short", 7, 3, GOOD, 2},
    {"eight", 8, 0, GOOD, 1},
    {"block", 4096, 4096, GOOD, 1},
    {"odd-place", 512, 513, ODD, 3},
    {"large", ROOM, 0, GOOD, 4},
    {"over-the-end", 4096, FILE_SIZE - 100, GOOD, 2},
    {"at-the-end", 4096, FILE_SIZE, GOOD, 1},
    {"past-the-end", 4096, FILE_SIZE * 10L, GOOD, 1},
    {"huge-length", LONG_MAX, 0, GOOD, 1},
    {"negative-length", -1, 0, GOOD, 1},
    {"negative-offset", 16, -1, GOOD, 1},
    {"very-negative-offset", 16, LONG_MIN, GOOD, 1},
    {"offset-overflow", 4096, LONG_MAX - 10, GOOD, 1},
    {"nowhere", 16, 0, NOTHING, 1},
    {"hole", 16, 0, HOLE, 1},
    {"half-mapped", 6000, 0, HALF, 1},
    {"half-mapped-vectors", 6000, 0, HALF, 3},
    {"read-only", 16, 0, READ_ONLY, 1},
    {"kernel-address", 16, 0, KERNEL, 1},
    {"no-vectors", 16, 0, GOOD, 0},
    {"too-many-vectors", 16, 0, GOOD, 1025},
    {"negative-vectors", 16, 0, GOOD, -1},
    {"most-vectors", 1024, 0, GOOD, 1024},
    {"bad-vector-array", 16, 0, GOOD, -77},
};

static void *place_of(enum buffer buffer) {
    switch (buffer) {
    case GOOD: return arena + ROOM;
    case ODD: return arena + ROOM + 4096 + 1;
    case NOTHING: return NULL;
    case HOLE: return arena + 4 * ROOM;
    case HALF: return arena + 4 * ROOM - 4096;
    case READ_ONLY: return arena + 6 * ROOM;
    case KERNEL: return (void *)0xffff888000000000;
    }
    abort();
}

static void one(const struct kind *kind, const struct operation *operation, const struct shape *shape) {
    bool vectors = operation->number != SYS_read && operation->number != SYS_pread64;
    bool positioned = operation->number != SYS_read && operation->number != SYS_readv;
    bool device = strncmp(kind->name, "/dev/", 5) == 0;
    // A huge read of an endless device would fill memory that is not there; it ends in EFAULT or a
    // short count at a place that depends on the mapping, and takes long.
    if (device && (shape->length > ROOM || shape->length < 0)) return;
    // One that must not wait ends after any page at which somebody else wants the processor.
    if (device && operation->flags == RWF_NOWAIT && shape->length > 4096) return;
    int descriptor = open_kind(kind->name);
    if (shape->offset > 0 || !positioned) {
        errno = 0;
        if (!positioned && descriptor >= 0) lseek(descriptor, shape->offset, SEEK_SET);
    }
    memset(arena, 0xa5, 4 * ROOM);
    char *start = place_of(shape->buffer);
    long offset = shape->offset;
    if (strcmp(kind->name, "/proc/self/mem") == 0 && offset >= 0 && offset < 1 << 20) {
        // The only place in it that is the same in every run: the guest's own constant bytes.
        static const unsigned char constant[1 << 18] = "constant bytes";
        offset += (long)constant;
        if (!positioned) lseek(descriptor, offset, SEEK_SET);
    }
    long result;
    static struct iovec vector[1025];
    if (vectors) {
        long count = shape->vectors;
        long parts = count < 1 ? 1 : count > 1025 ? 1025 : count;
        for (long at = 0; at < parts; at++) {
            long piece = shape->length > 0 ? shape->length / parts : shape->length;
            vector[at].iov_base = start ? start + at * piece : start;
            vector[at].iov_len = (size_t)(at == parts - 1 && shape->length > 0 ? shape->length - piece * (parts - 1) : piece);
        }
        void *array = count == -77 ? (void *)(arena + 4 * ROOM) : (void *)vector;
        result = call(operation->number, descriptor, (long)array, count == -77 ? 2 : count, offset,
                      operation->flags);
    } else {
        result = call(operation->number, descriptor, (long)start, shape->length, offset, operation->flags);
    }
    int error = result < 0 ? errno : 0;
    long position = descriptor >= 0 ? lseek(descriptor, 0, SEEK_CUR) : -1;
    if (strcmp(kind->name, "/proc/self/mem") == 0 && position > 1 << 20) position = result;
    uint64_t hash = hash_bytes(arena, 4 * ROOM);
    if (kind->unsteady) hash = 0;
    bool unsteady_length = strcmp(kind->name, "/proc/self/stat") == 0 && result > 1;
    printf("%s %s %s: %ld errno %d position %ld bytes %016" PRIx64 "\n", kind->name, operation->name,
           shape->name, unsteady_length ? 1 : result, error, unsteady_length ? 0 : position, hash);
    if (strcmp(kind->name, "signalfd") == 0) {
        // Take the signal if the call has not.
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        struct timespec none = {0, 0};
        while (sigtimedwait(&set, NULL, &none) > 0)
            ;
    }
    if (descriptor >= 0) close(descriptor);
    for (int at = 0; at < 2; at++)
        if (descriptors_of_kind[at] >= 0) close(descriptors_of_kind[at]);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    way = strcmp(argv[1], "libc") == 0 ? LIBC : strcmp(argv[1], "syscall") == 0 ? SYSCALL : INLINE;
    arena = mmap(NULL, 8 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(arena != MAP_FAILED);
    CHECK(munmap(arena + 4 * ROOM, 2 * ROOM) == 0);
    CHECK(mprotect(arena + 6 * ROOM, 2 * ROOM, PROT_READ) == 0);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (size_t operation = 0; operation < sizeof operations / sizeof *operations; operation++)
            for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
                if (kind < ON_DISK && operations[operation].flags == RWF_NOWAIT) continue;
                // Closing an inotify descriptor takes the kernel 10 ms.
                if (strcmp(kinds[kind].name, "inotify") == 0 && operation > 2) continue;
                // Now and then the file is cold again, so that the waiting path is taken too.
                if (kind < ON_DISK && shape % 3 == 0) make_cold("file.bin");
                one(&kinds[kind], &operations[operation], &shapes[shape]);
            }
}
