// trap: some sequence of operations on some mixture of descriptors reads other bytes than it does alone
// glibc: preadv2
// build: -lutil
// run: 1 plain
// run: 2 signals
// modes: cold
// timeout: 120
//
// The arguments are a seed and a setting. From the seed follows a sequence of operations: descriptors of
// every kind are opened, duplicated, moved, read in every way with good and bad memory, files are written,
// grown, cut, made cold. Each operation's result, errno, bytes and position are printed. The harness adds
// runs with seeds of its own, and names the seed of one that differs.
#include "kinds.h"
#include <sys/mount.h>

enum { PAGE = 4096, ROOM = 48 * PAGE, OPEN_MOST = 10, STEPS = 3000 };

static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state * 0x2545f4914f6cdd1du) >> 11;
}

static long below(long limit) { return (long)(next() % (uint64_t)limit); }
static bool one_in(long count) { return below(count) == 0; }

// What is read into: memory, then a hole, then memory that may only be read.
static unsigned char *arena;

struct open_one {
    const char *name;
    int descriptor, partners[2];
    // What it reads is not the same in two runs alone.
    bool unsteady;
    // Its file's size follows from the operations alone.
    bool writable;
};
static struct open_one open_ones[OPEN_MOST];

static void close_one(struct open_one *one) {
    if (one->descriptor > 2) close(one->descriptor);
    for (int at = 0; at < 2; at++)
        if (one->partners[at] >= 0) close(one->partners[at]);
    *one = (struct open_one){.descriptor = -1, .partners = {-1, -1}};
}

// Files of this test beside those of `kinds`: with contents, as large as the buffer and smaller.
static const struct own {
    const char *name, *path;
    int flags;
} own[] = {
    {"cold", "file.bin", O_RDONLY},          {"cold-again", "file.bin", O_RDONLY | O_CLOEXEC},
    {"changing", "change.bin", O_RDWR},      {"changing-append", "change.bin", O_RDWR | O_APPEND},
    {"changing-read", "change.bin", O_RDONLY}, {"direct", "file.bin", O_RDONLY | O_DIRECT},
    {"changing-direct", "change.bin", O_RDWR | O_DIRECT},
    {"far", "far.bin", O_RDONLY},            {"far-write", "far.bin", O_RDWR},
    {"page", "page.bin", O_RDONLY},          {"less", "less.bin", O_RDONLY},
    {"more", "more.bin", O_RDONLY},          {"one", "one.bin", O_RDONLY},
    {"own-process", "/proc/self/comm", O_RDONLY}, {"limits", "/proc/self/limits", O_RDONLY},
    {"sys-empty", "/sys/kernel/notes", O_RDONLY},
};

static void make_file(const char *path, size_t length, unsigned seed) {
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(descriptor >= 0);
    static unsigned char block[PAGE];
    for (size_t at = 0; at < length; at += sizeof block) {
        for (size_t byte = 0; byte < sizeof block; byte++) {
            seed = seed * 1103515245 + 12345;
            block[byte] = (unsigned char)(seed >> 16);
        }
        size_t part = length - at < sizeof block ? length - at : sizeof block;
        CHECK(write(descriptor, block, part) == (ssize_t)part);
    }
    close(descriptor);
    make_cold(path);
}

static void make_files(void) {
    make_file("file.bin", 40 * PAGE + 123, 1);
    make_file("change.bin", 20 * PAGE, 2);
    make_file("page.bin", PAGE, 3);
    make_file("less.bin", PAGE - 1, 4);
    make_file("more.bin", PAGE + 1, 5);
    make_file("one.bin", 1, 6);
    make_file("far.bin", 3 * PAGE, 7);
    // Islands beyond 2 and 4 GiB.
    int descriptor = open("far.bin", O_WRONLY);
    const off_t places[] = {(1L << 31) - 2, 1L << 32, (1L << 32) + PAGE - 1};
    for (int at = 0; at < 3; at++) CHECK(pwrite(descriptor, "an island", 9, places[at]) == 9);
    close(descriptor);
    make_cold("far.bin");
}

static void open_something(struct open_one *one) {
    close_one(one);
    long own_count = sizeof own / sizeof *own, kind_count = sizeof kinds / sizeof *kinds;
    if (!one_in(3)) {
        const struct own *file = &own[below(own_count)];
        one->name = file->name;
        one->descriptor = open(file->path, file->flags);
        one->writable = (file->flags & O_ACCMODE) == O_RDWR;
        return;
    }
    const struct kind *kind = &kinds[below(kind_count)];
    // Closing an inotify descriptor takes the kernel 10 ms; the rest differ from run to run.
    static const char *const left_out[] = {"inotify", "signalfd", "/proc/self/mem", "/proc/self/stat"};
    for (int at = 0; at < 4; at++)
        if (strcmp(kind->name, left_out[at]) == 0) return;
    one->name = kind->name;
    one->unsteady = kind->unsteady;
    one->descriptor = open_kind(kind->name);
    memcpy(one->partners, descriptors_of_kind, sizeof one->partners);
    // Nothing here may wait for ever, other ends included.
    for (int descriptor = 3; descriptor < 64; descriptor++) {
        int flags = fcntl(descriptor, F_GETFL);
        if (flags >= 0 && !(flags & (O_PATH | O_NONBLOCK))) fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
    }
}

static size_t some_length(bool device) {
    static const size_t lengths[] = {0, 1, 7, 511, 512, 513, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 5 * PAGE,
                                     ROOM - PAGE, 16 * PAGE + 5,
                                     // Asked for, never given: more than there is, than fits, than is allowed.
                                     ROOM * 4, (size_t)1 << 31, ((size_t)1 << 32) + 5, LONG_MAX, (size_t)-1};
    // A device gives as much as one asks for, up to a place that depends on signals.
    return lengths[below(device ? 8 : sizeof lengths / sizeof *lengths)];
}

static long some_offset(void) {
    static const long offsets[] = {0, 1, 511, 512, PAGE - 1, PAGE, PAGE + 1, 20 * PAGE, 20 * PAGE - 1,
                                   40 * PAGE + 122, 40 * PAGE + 123, 40 * PAGE + 124, 1L << 31, (1L << 31) - 5,
                                   1L << 32, (1L << 32) - 1, (1L << 40), -1, -2, LONG_MIN, LONG_MAX, LONG_MAX - PAGE};
    long count = sizeof offsets / sizeof *offsets;
    return one_in(2) ? below(80) * (PAGE / 2) + below(3) : offsets[below(count)];
}

static unsigned char *some_place(void) {
    switch (below(12)) {
    case 0: return NULL;
    case 1: return arena + ROOM + PAGE;               // a hole
    case 2: return arena + ROOM - PAGE;               // a page, then the hole
    case 3: return arena + ROOM - 1;
    case 4: return arena + 2 * ROOM;                  // may only be read
    case 5: return (unsigned char *)0xffff888000000000;
    case 6: return arena + 1 + below(PAGE);           // odd
    case 7: return arena + ROOM - below(3 * PAGE);
    default: return arena + below(4) * PAGE;
    }
}

static long read_somehow(struct open_one *one, char *described, size_t room) {
    bool device = strncmp(one->name, "/dev/", 5) == 0;
    long offset = some_offset();
    way = (enum way)below(3);
    static const long numbers[] = {SYS_read, SYS_read, SYS_pread64, SYS_pread64, SYS_readv, SYS_preadv, SYS_preadv2};
    long number = numbers[below(7)];
    if (number == SYS_read || number == SYS_pread64) {
        size_t length = some_length(device);
        unsigned char *place = some_place();
        snprintf(described, room, "%s %zu at %ld", number == SYS_read ? "read" : "pread", length, offset);
        return call(number, one->descriptor, (long)place, (long)length, offset, 0);
    }
    static struct iovec pieces[16];
    long count = below(12);
    bool whole = one_in(3);  // pieces one behind the other; else anywhere, one over the other
    unsigned char *place = some_place();
    size_t sum = 0;
    for (long at = 0; at < count; at++) {
        size_t length = one_in(4) ? 0 : some_length(device);
        // A sum beyond what is mapped ends in the hole; beyond SSIZE_MAX it is refused.
        if (!one_in(12) && length > PAGE * 5) length = PAGE;
        pieces[at] = (struct iovec){whole ? place + sum : some_place(), length};
        sum += length;
    }
    long flags = number == SYS_preadv2 && one_in(6) ? 1L << 30 : 0;
    // preadv2 takes -1 for the descriptor's own position.
    if (number == SYS_preadv2 && one_in(3)) offset = -1;
    if (one_in(40)) count = -1;
    void *array = one_in(40) ? (void *)(arena + ROOM + 8) : (void *)pieces;
    snprintf(described, room, "call %ld of %ld pieces, %zu at %ld", number, count, sum, offset);
    return call(number, one->descriptor, (long)array, count, offset, flags);
}

// Changes a file, or a descriptor.
static long change_something(struct open_one *one, char *described, size_t room) {
    long place = below(30 * PAGE), length = below(3 * PAGE);
    // A direct write that does not fit the device's blocks fails with some of it written, or nothing: it depends on
    // where in memory its pages happen to lie.
    bool direct = strstr(one->name, "direct") != NULL;
    if (direct) place -= place % PAGE, length -= length % PAGE;
    switch (below(9)) {
    case 0:
        snprintf(described, room, "write %ld", length);
        return one->writable ? write(one->descriptor, arena, (size_t)length) : -2;
    case 1:
        snprintf(described, room, "pwrite %ld at %ld", length, place);
        return one->writable ? pwrite(one->descriptor, arena + (direct ? PAGE : 512), (size_t)length, place) : -2;
    case 2:
        snprintf(described, room, "truncate to %ld", place);
        return one->writable ? ftruncate(one->descriptor, place) : -2;
    case 3:
        snprintf(described, room, "hole at %ld", place);
        return one->writable ? fallocate(one->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place, PAGE) : -2;
    case 4: {
        // Another process cuts or lengthens the file while we have it open.
        snprintf(described, room, "child truncates to %ld", place);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) _exit(truncate("change.bin", place) == 0 ? 0 : 1);
        return exit_status_of(child);
    }
    case 5: {
        // A child moves the position that we share.
        snprintf(described, room, "child reads %ld", length);
        fflush(stdout);
        pid_t child = fork();
        static char block[3 * PAGE];
        if (child == 0) _exit(read(one->descriptor, block, (size_t)length) < 0 ? errno : 0);
        return exit_status_of(child);
    }
    case 6: {
        struct open_one *other = &open_ones[below(OPEN_MOST)];
        snprintf(described, room, "dup over %s", other->name ? other->name : "nothing");
        if (other == one || one->descriptor < 0 || one->descriptor > 1000) return -2;
        int copy = dup(one->descriptor);
        if (copy < 0) return -1;
        close_one(other);
        *other = *one;
        other->partners[0] = other->partners[1] = -1;
        other->descriptor = copy;
        return 0;
    }
    case 7:
        snprintf(described, room, "cold");
        if (one_in(2)) make_cold("file.bin");
        else make_cold("change.bin");
        return 0;
    default: {
        long offset = some_offset();
        int whence = (int)below(6);
        snprintf(described, room, "seek %ld from %d", offset, whence);
        if (strncmp(one->name, "/proc", 5) == 0 || strcmp(one->name, "limits") == 0) return -2;
        // Where blocks are allocated and not written, data is what happens to be cached, and a hole what is not.
        bool changes = strncmp(one->name, "changing", 8) == 0 || strncmp(one->name, "far", 3) == 0;
        if (whence >= SEEK_DATA && changes) return -2;
        return lseek(one->descriptor, offset, whence);
    }
    }
}

// Signals come all the time.
static bool ticking;

// Preparing a descriptor (a terminal's contents, a socket's) must not be interrupted half-way.
static void open_undisturbed(struct open_one *one) {
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    CHECK(sigprocmask(SIG_BLOCK, &alarm, NULL) == 0);
    open_something(one);
    CHECK(sigprocmask(SIG_UNBLOCK, &alarm, NULL) == 0);
}

static void step(int number) {
    struct open_one *one = &open_ones[below(OPEN_MOST)];
    if (one->name == NULL || one_in(25)) {
        open_undisturbed(one);
        printf("%d open %s: %d\n", number, one->name ? one->name : "nothing", one->descriptor >= 0);
        return;
    }
    char described[160];
    errno = 0;
    bool reads = !one_in(4);
    if (reads) memset(arena, 0xa5, ROOM);
    long result = reads ? read_somehow(one, described, sizeof described)
                        : change_something(one, described, sizeof described);
    int error = result == -1 ? errno : 0;
    // A direct read into bad memory at a bad place is refused for the one or the other, alone too: it depends on
    // where in memory the pages before the bad one happen to lie.
    if (error == EINVAL && strstr(one->name, "direct")) error = EFAULT;
    long position = one->descriptor >= 0 ? lseek(one->descriptor, 0, SEEK_CUR) : -1;
    // A direct read that fails half-way has left some of it in memory, or not; one into pieces that lie over each
    // other leaves there what the disk brought last. And these devices look for signals after each page. All of
    // that alone, too.
    bool interrupted = ticking && result >= PAGE && strncmp(one->name, "/dev/", 5) == 0;
    if (interrupted) result = PAGE;
    bool undefined = interrupted || one->unsteady || (strstr(one->name, "direct") && (result < 0 || strstr(described, "pieces")));
    uint64_t hash = undefined ? 0 : hash_bytes(arena, ROOM);
    printf("%d %s: %s = %ld errno %d position %ld bytes %016" PRIx64 "\n", number, one->name, described, result,
           error, position, hash);
    if (undefined) memset(arena, 0xa5, ROOM);
}

static volatile sig_atomic_t ticks;
static void on_tick(int number) { (void)number, ticks++; }

// Signals all the time, with SA_RESTART and without: a read of a file notices nothing of them.
static void start_ticking(void) {
    ticking = true;
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = state & 1 ? SA_RESTART : 0};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 300}, {0, 300}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
}

// Every read is to be looked at, not a sample: the flag is 4 in the third field of the session's address.
static void watch_always(char **argv) {
    char *session = getenv("RUNAHEAD_SESSION");
    if (!session) return;
    unsigned host, descriptor, flags, filters;
    int rest = 0;
    if (sscanf(session, "%u:%u:%u:%u:%n", &host, &descriptor, &flags, &filters, &rest) != 4 || flags & 4) return;
    static char changed[4096];
    snprintf(changed, sizeof changed, "%u:%u:%u:%u:%s", host, descriptor, flags | 4, filters, session + rest);
    setenv("RUNAHEAD_SESSION", changed, 1);
    static char program[4096];
    CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    execv(program, argv);
    CHECK(false);
}

// Another file system in the place of the working directory.
static void mount_here(const char *setting) {
    if (strcmp(setting, "overlay") == 0) {
        static const char *const folders[] = {"lower", "upper", "space", "merged"};
        for (int at = 0; at < 4; at++) CHECK(mkdir(folders[at], 0700) == 0);
        CHECK(mount("none", "merged", "overlay", 0, "lowerdir=lower,upperdir=upper,workdir=space") == 0);
        CHECK(chdir("merged") == 0);
    }
    if (strcmp(setting, "tmpfs") == 0) {
        CHECK(mkdir("memory", 0700) == 0 && mount("none", "memory", "tmpfs", 0, "size=8M") == 0);
        CHECK(chdir("memory") == 0);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    watch_always(argv);
    state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
    arena = mmap(NULL, 3 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(arena != MAP_FAILED);
    CHECK(munmap(arena + ROOM, ROOM) == 0);
    CHECK(mprotect(arena + 2 * ROOM, ROOM, PROT_READ) == 0);
    mount_here(argv[2]);
    make_files();
    if (strcmp(argv[2], "signals") == 0) start_ticking();
    for (int at = 0; at < OPEN_MOST; at++) close_one(&open_ones[at]);
    for (int number = 0; number < STEPS; number++) step(number);
}
