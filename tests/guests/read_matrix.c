// trap: a read-type call on some kind of descriptor gives another result, errno, position or bytes
// build: -lutil
// data: file.bin 20000
// run: libc
// run: syscall
// run: inline
// timeout: 120
#include "guest.h"
#include <poll.h>
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <termios.h>

#ifndef RWF_HIPRI
#define RWF_HIPRI 1
#endif

enum way { LIBC, SYSCALL, INLINE } way;
enum { FILE_SIZE = 20000, ROOM = 1 << 15 };

// What the operations write into: two readable and writable pages, then a hole, then one read-only
// page, all with a pattern that shows which bytes were written.
static unsigned char *arena;

static int descriptors_of_kind[2];  // the other end, if any

static long call(long number, long a, long b, long c, long d, long e) {
    errno = 0;
    if (way == INLINE) {
        // preadv and preadv2 take the offset in two halves; the high one is zero on 64 bits.
        long result = raw6(number, a, b, c, d, number == SYS_preadv || number == SYS_preadv2 ? 0 : e,
                           number == SYS_preadv2 ? e : 0);
        if (result < 0 && result > -4096) return errno = (int)-result, -1;
        return result;
    }
    if (way == SYSCALL) {
        if (number == SYS_preadv2) return syscall(number, a, b, c, d, 0L, e);
        if (number == SYS_preadv) return syscall(number, a, b, c, d, 0L);
        return syscall(number, a, b, c, d);
    }
    switch (number) {
    case SYS_read: return read((int)a, (void *)b, (size_t)c);
    case SYS_pread64: return pread((int)a, (void *)b, (size_t)c, d);
    case SYS_readv: return readv((int)a, (void *)b, (int)c);
    case SYS_preadv: return preadv((int)a, (void *)b, (int)c, d);
    case SYS_preadv2: return preadv2((int)a, (void *)b, (int)c, d, (int)e);
    }
    abort();
}

static int filled_pipe(int flags) {
    int ends[2];
    CHECK(pipe2(ends, flags) == 0);
    CHECK(write(ends[1], "0123456789", 10) == 10);
    close(ends[1]);
    return ends[0];
}

static int terminal_with_a_line(bool raw) {
    int master, slave;
    CHECK(openpty(&master, &slave, NULL, NULL, NULL) == 0);
    if (raw) {
        struct termios mode;
        CHECK(tcgetattr(slave, &mode) == 0);
        cfmakeraw(&mode);
        CHECK(tcsetattr(slave, TCSANOW, &mode) == 0);
    }
    CHECK(write(master, "a line\nmore\n", 12) == 12);
    descriptors_of_kind[0] = master;
    // A line travels from one end to the other, and its echo back, in the kernel's own time.
    struct pollfd both[2] = {{slave, POLLIN, 0}, {master, POLLIN, 0}};
    CHECK(poll(&both[0], 1, 2000) == 1 && (raw || poll(&both[1], 1, 2000) == 1));
    CHECK(fcntl(slave, F_SETFL, O_NONBLOCK) == 0);
    return slave;
}

static int with_contents(int descriptor) {
    char block[5000];
    for (size_t at = 0; at < sizeof block; at++) block[at] = (char)(at * 7 + at / 256);
    CHECK(descriptor >= 0 && write(descriptor, block, sizeof block) == sizeof block);
    CHECK(lseek(descriptor, 0, SEEK_SET) == 0);
    return descriptor;
}

static int sparse_file(void) {
    int descriptor = open("sparse.bin", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(ftruncate(descriptor, 1 << 20) == 0);
    CHECK(pwrite(descriptor, "island", 6, 8190) == 6);
    return descriptor;
}

static int waiting_signal(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    union sigval value = {.sival_int = 42};
    CHECK(sigqueue(getpid(), SIGUSR1, value) == 0);
    return signalfd(-1, &set, SFD_NONBLOCK);
}

static int elapsed_timer(void) {
    int descriptor = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
    CHECK(timerfd_settime(descriptor, 0, &soon, NULL) == 0);
    struct pollfd elapsed = {descriptor, POLLIN, 0};
    CHECK(poll(&elapsed, 1, 2000) == 1);
    return descriptor;
}

static int watched(void) {
    int descriptor = inotify_init1(IN_NONBLOCK);
    int watch = inotify_add_watch(descriptor, ".", IN_CREATE);
    CHECK(watch >= 0);
    int made = open("created.tmp", O_CREAT | O_RDWR, 0600);
    close(made);
    unlink("created.tmp");
    return descriptor;
}

static int fifo(void) {
    unlink("fifo");
    CHECK(mkfifo("fifo", 0600) == 0);
    int reader = open("fifo", O_RDONLY | O_NONBLOCK);
    int writer = open("fifo", O_WRONLY);
    CHECK(reader >= 0 && write(writer, "through a fifo", 14) == 14);
    close(writer);
    CHECK(fcntl(reader, F_SETFL, 0) == 0);
    return reader;
}

static int sockets(int type) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, type, 0, ends) == 0);
    CHECK(write(ends[1], "first message", 13) == 13);
    if (type == SOCK_STREAM)
        close(ends[1]);
    else
        descriptors_of_kind[0] = ends[1];
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    return ends[0];
}

static int empty_pipe(void) {
    int ends[2];
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    descriptors_of_kind[0] = ends[1];
    return ends[0];
}

struct kind {
    const char *name;
    bool unsteady;  // the bytes differ from run to run
};

enum { ON_DISK = 7 };  // the first kinds are the file on disk, opened in its ways
static const struct kind kinds[] = {
    {"regular", 0}, {"regular-rdwr", 0}, {"regular-append", 0}, {"regular-direct", 0},
    {"regular-nonblock", 0}, {"regular-sync", 0}, {"regular-noatime", 0}, {"empty", 0},
    {"write-only", 0}, {"path-only", 0}, {"directory", 0}, {"pipe", 0}, {"pipe-nonblock-empty", 0},
    {"pipe-write-end", 0}, {"pipe-direct", 0}, {"fifo", 0}, {"socket-stream", 0},
    {"socket-datagram", 0}, {"socket-unconnected", 0}, {"terminal", 0}, {"terminal-raw", 0},
    {"terminal-master", 0}, {"eventfd", 0}, {"eventfd-empty", 0}, {"timerfd", 0}, {"signalfd", 1},
    {"epoll", 0}, {"inotify", 1}, {"/dev/null", 0}, {"/dev/zero", 0}, {"/dev/full", 0},
    {"/dev/urandom", 1}, {"/proc/version", 0}, {"/proc/self/cmdline", 0}, {"/proc/sys/kernel/ostype", 0},
    {"/proc/self/stat", 1}, {"/proc/self/mem", 0}, {"/sys/kernel/mm/transparent_hugepage/enabled", 0}, {"memfd", 0}, {"memfd-sealed", 0}, {"tmpfs", 0},
    {"sparse", 0}, {"deleted", 0}, {"closed", 0}, {"minus-one", 0}, {"at-fdcwd", 0}, {"huge-number", 0},
};

static int open_kind(const char *name) {
    descriptors_of_kind[0] = descriptors_of_kind[1] = -1;
#define IS(text) (strcmp(name, text) == 0)
    if (IS("regular")) return open("file.bin", O_RDONLY);
    if (IS("regular-rdwr")) return open("file.bin", O_RDWR);
    if (IS("regular-append")) return open("file.bin", O_RDWR | O_APPEND);
    if (IS("regular-direct")) return open("file.bin", O_RDONLY | O_DIRECT);
    if (IS("regular-nonblock")) return open("file.bin", O_RDONLY | O_NONBLOCK);
    if (IS("regular-sync")) return open("file.bin", O_RDWR | O_SYNC);
    if (IS("regular-noatime")) return open("file.bin", O_RDONLY | O_NOATIME);
    if (IS("empty")) return open("empty.bin", O_RDONLY | O_CREAT, 0600);
    if (IS("write-only")) return open("file.bin", O_WRONLY);
    if (IS("path-only")) return open("file.bin", O_PATH);
    if (IS("directory")) return open(".", O_RDONLY | O_DIRECTORY);
    if (IS("pipe")) return filled_pipe(0);
    if (IS("pipe-nonblock-empty")) return empty_pipe();
    if (IS("pipe-write-end")) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        descriptors_of_kind[0] = ends[0];
        return ends[1];
    }
    if (IS("pipe-direct")) return filled_pipe(O_DIRECT);
    if (IS("fifo")) return fifo();
    if (IS("socket-stream")) return sockets(SOCK_STREAM);
    if (IS("socket-datagram")) return sockets(SOCK_DGRAM);
    if (IS("socket-unconnected")) return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (IS("terminal")) return terminal_with_a_line(false);
    if (IS("terminal-raw")) return terminal_with_a_line(true);
    if (IS("terminal-master")) {
        int slave = terminal_with_a_line(false);
        int master = descriptors_of_kind[0];
        descriptors_of_kind[0] = slave;
        CHECK(fcntl(master, F_SETFL, O_NONBLOCK) == 0);
        return master;
    }
    if (IS("eventfd")) return eventfd(5, EFD_NONBLOCK);
    if (IS("eventfd-empty")) return eventfd(0, EFD_NONBLOCK);
    if (IS("timerfd")) return elapsed_timer();
    if (IS("signalfd")) return waiting_signal();
    if (IS("epoll")) return epoll_create1(0);
    if (IS("inotify")) return watched();
    if (IS("/proc/self/mem")) {
        int descriptor = open(name, O_RDONLY);
        return descriptor;
    }
    if (name[0] == '/') return open(name, O_RDONLY);
    if (IS("memfd")) return with_contents(memfd_create("guest", 0));
    if (IS("memfd-sealed")) {
        int descriptor = with_contents(memfd_create("guest", MFD_ALLOW_SEALING));
        CHECK(fcntl(descriptor, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
        return descriptor;
    }
    if (IS("tmpfs")) {
        int descriptor = with_contents(open("/dev/shm", O_TMPFILE | O_RDWR, 0600));
        return descriptor;
    }
    if (IS("sparse")) return sparse_file();
    if (IS("deleted")) {
        int descriptor = with_contents(open("gone.bin", O_RDWR | O_CREAT | O_TRUNC, 0600));
        CHECK(unlink("gone.bin") == 0);
        return descriptor;
    }
    if (IS("closed")) {
        int descriptor = dup(1);
        close(descriptor);
        return descriptor;
    }
    if (IS("minus-one")) return -1;
    if (IS("at-fdcwd")) return AT_FDCWD;
    if (IS("huge-number")) return INT_MAX;
    abort();
#undef IS
}

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
