// trap: what is copied between descriptors, or what is made for it, is not what it is alone
// glibc: the names of errors (strerrorname_np)
// build: -pthread
// data: many/{60} 9K
// data: cold.bin 2M
// run: range
// run: range-offsets
// run: send
// run: send-offset
// run: splice
// run: splice-offset
// run: write
// run: mapped
// run: errors
// run: names
// run: nameless
// run: positions
// run: threads
// run: full
#include "guest.h"
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/xattr.h>

enum { FILES = 60, SIZE = 9 * 1024 };
static const char *how;

static void show(const char *what, long result) {
    printf("%s: %ld%s%s\n", what, result, result < 0 ? ", " : "", result < 0 ? strerrorname_np(errno) : "");
    errno = 0;
}
#define SHOW(call) show(#call, (long)(call))

static uint64_t hash_of(const char *path) {
    static unsigned char bytes[3 << 20];
    int file = open(path, O_RDONLY);
    if (file < 0) return 0;
    ssize_t got, length = 0;
    while ((got = read(file, bytes + length, sizeof bytes - (size_t)length)) > 0) length += got;
    close(file);
    return hash_bytes(bytes, (size_t)length);
}

static void describe(const char *path) {
    struct stat status;
    if (lstat(path, &status) != 0) {
        printf("%s: %s\n", path, strerrorname_np(errno));
        errno = 0;
        return;
    }
    printf("%s: mode %o, %ld links, %ld bytes, hash %016" PRIx64 "\n", path, status.st_mode, (long)status.st_nlink,
           S_ISDIR(status.st_mode) ? 0L : (long)status.st_size, S_ISREG(status.st_mode) ? hash_of(path) : 0);
}

// All of the file, in pieces of so many bytes, by the way of copying that was asked for.
static long copy(int from, int to, size_t piece) {
    static char buffer[1 << 16];
    long all = 0;
    off_t here = 0, there = 0;
    int ends[2] = {-1, -1};
    if (strncmp(how, "splice", 6) == 0) CHECK(pipe(ends) == 0);
    for (;;) {
        ssize_t got = -1;
        if (strcmp(how, "range") == 0) got = copy_file_range(from, NULL, to, NULL, piece, 0);
        if (strcmp(how, "range-offsets") == 0) got = copy_file_range(from, &here, to, &there, piece, 0);
        if (strcmp(how, "send") == 0) got = sendfile(to, from, NULL, piece);
        if (strcmp(how, "send-offset") == 0) got = sendfile(to, from, &here, piece);
        if (strncmp(how, "splice", 6) == 0) {
            got = splice(from, strcmp(how, "splice") == 0 ? NULL : &here, ends[1], NULL, piece, 0);
            for (ssize_t left = got; left > 0;) {
                ssize_t out = splice(ends[0], NULL, to, NULL, (size_t)left, 0);
                CHECK(out > 0);
                left -= out;
            }
        }
        if (strcmp(how, "write") == 0) {
            got = read(from, buffer, piece < sizeof buffer ? piece : sizeof buffer);
            if (got > 0) CHECK(write(to, buffer, (size_t)got) == got);
        }
        if (strcmp(how, "mapped") == 0) {
            struct stat status;
            CHECK(fstat(from, &status) == 0);
            void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, from, 0);
            CHECK(bytes != MAP_FAILED && pwrite(to, bytes, (size_t)status.st_size, 0) == status.st_size);
            munmap(bytes, (size_t)status.st_size);
            all = status.st_size;
            break;
        }
        if (got < 0) show("copied", got);
        if (got <= 0) break;
        all += got;
    }
    if (ends[0] >= 0) close(ends[0]), close(ends[1]);
    return all;
}

// As tools do it: the target is made, copied to, looked at and described.
static void copy_tree(void) {
    umask(027);
    CHECK(mkdir("out", 0777) == 0);
    for (int number = 0; number < FILES; number++) {
        char source[32], target[64], directory[32];
        snprintf(directory, sizeof directory, "out/%d", number / 10);
        if (number % 10 == 0) SHOW(mkdir(directory, 0777));
        snprintf(source, sizeof source, "many/%d", number);
        snprintf(target, sizeof target, "%s/f%d", directory, number);
        struct stat before, after, named;
        int from = open(source, O_RDONLY | O_CLOEXEC);
        CHECK(from >= 0 && fstat(from, &before) == 0);
        int to = open(target, O_WRONLY | O_CREAT | (number % 2 ? O_EXCL : O_TRUNC), 0666);
        CHECK(to >= 0 && fstat(to, &after) == 0 && after.st_size == 0 && after.st_dev == before.st_dev);
        CHECK(after.st_mode == (S_IFREG | 0640) && after.st_uid == geteuid() && after.st_nlink == 1);
        long copied = copy(from, to, number % 3 ? 1 << 20 : 4000);
        CHECK(copied == before.st_size);
        if (strcmp(how, "range-offsets") != 0 && strcmp(how, "mapped") != 0)
            CHECK(lseek(to, 0, SEEK_CUR) == copied && lseek(to, 0, SEEK_END) == copied);
        struct timespec times[2] = {before.st_atim, before.st_mtim};
        CHECK(futimens(to, times) == 0 && fchmod(to, 0604) == 0);
        CHECK(fstat(to, &after) == 0 && after.st_size == copied && after.st_mode == (S_IFREG | 0604));
        CHECK(after.st_mtime == before.st_mtime);
        CHECK(close(to) == 0 && close(from) == 0);
        CHECK(stat(target, &named) == 0 && named.st_ino == after.st_ino && named.st_size == copied);
        CHECK(access(target, R_OK) == 0);
    }
    for (int number = 0; number < FILES; number++) {
        char target[32];
        snprintf(target, sizeof target, "out/%d/f%d", number / 10, number);
        describe(target);
    }
}

static void errors(void) {
    int from = open("cold.bin", O_RDONLY), to = open("to", O_RDWR | O_CREAT | O_TRUNC, 0600);
    int appends = open("appends", O_WRONLY | O_CREAT | O_APPEND, 0600), directory = open(".", O_RDONLY);
    int writes = open("writes", O_WRONLY | O_CREAT, 0600), ends[2];
    off_t far = 1L << 40, negative = -1, here = 5000;
    CHECK(pipe(ends) == 0);
    for (int round = 0; round < 3; round++) {
        SHOW(pread(from, &(char[512]){0}, 512, round * 500000L));
        SHOW(copy_file_range(from, &far, to, NULL, 100, 0));
        SHOW(copy_file_range(from, NULL, to, NULL, SIZE_MAX, 0));
        SHOW(copy_file_range(from, &negative, to, NULL, 100, 0));
        SHOW(copy_file_range(from, (off_t *)8, to, NULL, 100, 0));
        SHOW(copy_file_range(from, NULL, to, NULL, 100, 1));
        SHOW(copy_file_range(from, NULL, to, NULL, 0, 0));
        SHOW(copy_file_range(from, NULL, appends, NULL, 100, 0));
        SHOW(copy_file_range(from, NULL, ends[1], NULL, 100, 0));
        SHOW(copy_file_range(from, NULL, directory, NULL, 100, 0));
        SHOW(copy_file_range(directory, NULL, to, NULL, 100, 0));
        SHOW(copy_file_range(writes, NULL, to, NULL, 100, 0));
        SHOW(copy_file_range(from, NULL, from, NULL, 100, 0));
        SHOW(copy_file_range(-1, NULL, to, NULL, 100, 0));
        SHOW(copy_file_range(from, &here, to, NULL, 1L << 40, 0) > 100000);
        SHOW(copy_file_range(to, &(off_t){0}, to, &(off_t){100}, 1000, 0));
        SHOW(copy_file_range(to, &(off_t){0}, to, &(off_t){2000}, 1000, 0));
        SHOW(here);
        SHOW(sendfile(appends, from, NULL, 100));
        SHOW(sendfile(to, directory, NULL, 100));
        SHOW(sendfile(directory, from, NULL, 100));
        SHOW(sendfile(to, from, &far, 100));
        SHOW(sendfile(to, from, &negative, 100));
        SHOW(sendfile(to, from, (off_t *)8, 100));
        SHOW(sendfile(to, ends[0], NULL, 100));
        SHOW(sendfile(to, 99, NULL, 100));
        SHOW(sendfile(ends[1], from, NULL, 100));
        SHOW(splice(from, NULL, to, NULL, 100, 0));
        SHOW(splice(from, NULL, ends[1], &here, 100, 0));
        SHOW(splice(ends[0], NULL, to, NULL, 1000, SPLICE_F_NONBLOCK));
        SHOW(splice(ends[0], NULL, to, NULL, 1000, SPLICE_F_NONBLOCK));
        SHOW(lseek(from, 0, SEEK_CUR));
        SHOW(lseek(to, 0, SEEK_CUR));
        here = 5000;
    }
    SHOW(lseek(from, 10000, SEEK_DATA));
    SHOW(lseek(from, 10000, SEEK_HOLE));
    SHOW(lseek(from, 0, SEEK_CUR));
    describe("to"), describe("appends");
}

// Between any two of these something cold is read, so that each of them is run into ahead.
static int cold_files;
static void read_cold(void) {
    char path[32], bytes[SIZE];
    snprintf(path, sizeof path, "many/%d", cold_files++ % FILES);
    int file = open(path, O_RDONLY);
    CHECK(file >= 0 && read(file, bytes, sizeof bytes) == SIZE);
    close(file);
}

static void make(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
}

static void names(void) {
    struct stat status;
    make("old", "what was there"), make("victim", "away");
    CHECK(mkdir("full", 0755) == 0);
    make("full/inside", "x");
    CHECK(symlink("old", "link") == 0 && symlink("nowhere", "dangling") == 0);
    for (int round = 0; round < 4; round++) {
        read_cold();
        SHOW(close(open("old", O_WRONLY | O_CREAT | O_TRUNC, 0600)));
        SHOW(stat("old", &status) ? -1 : status.st_size);
        SHOW(open("old", O_WRONLY | O_CREAT | O_EXCL, 0600));
        read_cold();
        SHOW(unlink("old"));
        SHOW(unlink("old"));
        SHOW(access("old", F_OK));
        SHOW(close(open("old", O_WRONLY | O_CREAT | O_EXCL, 0640)));
        read_cold();
        make("new", "newer");
        SHOW(rename("new", "old"));
        SHOW(stat("new", &status));
        SHOW(stat("old", &status) ? -1 : status.st_size);
        SHOW(rename("missing", "old"));
        SHOW(rename("full", "old"));
        SHOW(rename("old", "full"));
        read_cold();
        SHOW(mkdir("a", 0755)), SHOW(mkdir("a/b", 0755)), SHOW(mkdir("a/b/c", 0755)), SHOW(mkdir("a/b", 0755));
        make("a/b/c/file", "deep");
        SHOW(mkdir("a/b/c/file/d", 0755));
        SHOW(mkdir("a/missing/d", 0755));
        SHOW(open("a/b/c", O_WRONLY | O_CREAT, 0600));
        SHOW(open("a/b/new/", O_WRONLY | O_CREAT, 0600));
        SHOW(rmdir("a/b/c"));
        SHOW(stat("a/b/c/../c/./file", &status) ? -1 : status.st_size);
        read_cold();
        SHOW(rename("a/b", "a/moved"));
        SHOW(stat("a/moved/c/file", &status) ? -1 : status.st_size);
        SHOW(stat("a/b/c/file", &status));
        SHOW(unlink("a/moved/c/file")), SHOW(rmdir("a/moved/c")), SHOW(rmdir("a/moved")), SHOW(rmdir("a"));
        read_cold();
        SHOW(open("link", O_WRONLY | O_CREAT | O_EXCL, 0600));
        SHOW(open("link", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
        SHOW(close(open("link", O_WRONLY | O_CREAT | O_TRUNC, 0600)));
        SHOW(open("dangling", O_WRONLY | O_CREAT | O_EXCL, 0600));
        SHOW(close(open("dangling", O_WRONLY | O_CREAT, 0600)));
        SHOW(unlink("nowhere"));
        read_cold();
        SHOW(link("old", "other")), SHOW(stat("old", &status) ? -1 : (long)status.st_nlink);
        SHOW(link("old", "other")), SHOW(unlink("other")), SHOW(symlink("x", "made")), SHOW(symlink("x", "made"));
        SHOW(lstat("made", &status) ? -1 : (long)status.st_size), SHOW(unlink("made"));
        read_cold();
        SHOW(chmod("old", 0604)), SHOW(stat("old", &status) ? -1 : (long)status.st_mode), SHOW(chown("old", -1, -1));
        SHOW(chmod("old", 0644)), SHOW(chmod("missing", 0644));
        SHOW(utimensat(AT_FDCWD, "old", (struct timespec[]){{1, 2}, {3, 4}}, 0));
        SHOW(getxattr("old", "user.none", NULL, 0)), SHOW(removexattr("missing", "user.none"));
        SHOW(setxattr("missing", "user.none", "x", 1, 0));
        int file = open("old", O_RDWR | O_CREAT | O_TRUNC, 0600);
        char bytes[10] = "123456789";
        SHOW(write(file, bytes, 10)), SHOW(pread(file, bytes, 10, 10)), SHOW(pread(file, bytes, 4, 2)), SHOW(bytes[0]);
        SHOW(ftruncate(file, 4)), SHOW(fstat(file, &status) ? -1 : status.st_size), SHOW(close(file));
        read_cold();
        SHOW(unlink("full")), SHOW(rmdir("full")), SHOW(rmdir("missing")), SHOW(unlink("missing/x")), SHOW(unlink("."));
        SHOW(mkdir("full", 0755)), SHOW(mkdir(".", 0755)), SHOW(rmdir("."));
        make("old", "what was there");
    }
    describe("old"), describe("link"), describe("full"), describe("victim");
}

static void nameless(void) {
    for (int round = 0; round < 20; round++) {
        read_cold();
        int file = open(".", O_TMPFILE | O_RDWR, 0600), from = open("cold.bin", O_RDONLY);
        struct stat status;
        if (file < 0) {
            show("nameless", file);
            return;
        }
        CHECK(from >= 0 && fstat(file, &status) == 0 && status.st_nlink == 0 && status.st_size == 0);
        off_t place = round * 50000L;
        SHOW(copy_file_range(from, &place, file, NULL, 10000, 0));
        char path[64], bytes[64];
        SHOW(pread(file, bytes, sizeof bytes, 9000)), SHOW((long)(hash_bytes(bytes, sizeof bytes) % 1000000));
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        if (round % 5 == 0) SHOW(linkat(AT_FDCWD, path, AT_FDCWD, round ? "kept" : "first", AT_SYMLINK_FOLLOW));
        SHOW(close(file)), SHOW(close(from));
    }
    describe("first"), describe("kept");
}

// Descriptors that share a position, in this process and with a child.
static void positions(void) {
    int from = open("cold.bin", O_RDONLY), same = dup(from), to = open("to", O_RDWR | O_CREAT, 0600);
    for (int round = 0; round < 60; round++) {
        SHOW(copy_file_range(round % 2 ? from : same, NULL, to, NULL, 3001, 0));
        SHOW(sendfile(to, round % 3 ? from : same, NULL, 2003));
        if (round % 10 == 5) {
            pid_t child = fork();
            if (child == 0) _exit(sendfile(to, from, NULL, 1009) == 1009 ? 0 : 1);
            SHOW(exit_status_of(child));
        }
        if (round % 7 == 0) SHOW(lseek(same, round * 30000L, SEEK_SET));
        SHOW(lseek(from, 0, SEEK_CUR)), SHOW(lseek(to, 0, SEEK_CUR));
    }
    describe("to");
}

enum { THREADS = 4, PIECE = 4096, PIECES = (2 << 20) / PIECE };
static int shared_source, moving_target;

// Each thread copies its own pieces by offset; another one takes all of them at the position that they share.
static void *by_offset(void *argument) {
    int to = *(int *)argument;
    for (off_t place = to % THREADS * PIECE; place < PIECES * PIECE; place += THREADS * PIECE) {
        off_t from = place, there = place;
        CHECK(copy_file_range(shared_source, &from, to, &there, PIECE, 0) == PIECE && from == place + PIECE);
        from = place;
        CHECK(lseek(to, place, SEEK_SET) == place && sendfile(to, shared_source, &from, PIECE) == PIECE);
    }
    return NULL;
}

static void *by_position(void *argument) {
    (void)argument;
    for (int piece = 0; piece < PIECES; piece++) CHECK(sendfile(moving_target, shared_source, NULL, PIECE) == PIECE);
    return NULL;
}

static void threads(void) {
    int targets[THREADS];
    shared_source = open("cold.bin", O_RDONLY), moving_target = open("all", O_WRONLY | O_CREAT, 0600);
    pthread_t ids[THREADS], mover;
    CHECK(pthread_create(&mover, NULL, by_position, NULL) == 0);
    for (int at = 0; at < THREADS; at++) {
        char path[8] = {'t', (char)('0' + at)};
        targets[at] = open(path, O_WRONLY | O_CREAT, 0600);
        CHECK(targets[at] >= 0 && pthread_create(&ids[at], NULL, by_offset, &targets[at]) == 0);
    }
    for (int at = 0; at < THREADS; at++) CHECK(pthread_join(ids[at], NULL) == 0);
    CHECK(pthread_join(mover, NULL) == 0);
    printf("position %ld\n", (long)lseek(shared_source, 0, SEEK_CUR));
    describe("all"), describe("cold.bin"), describe("t0"), describe("t1"), describe("t2"), describe("t3");
}

// Where nothing fits any more (here by the process's own limit) a copy ends early, as it does alone.
static void full(void) {
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit { unsigned long soft, hard; } limit = {6000, 6000};
    CHECK(syscall(SYS_prlimit64, 0, 1, &limit, NULL) == 0);
    for (int number = 0; number < FILES; number++) {
        char source[32];
        snprintf(source, sizeof source, "many/%d", number);
        int from = open(source, O_RDONLY), to = open("to", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        CHECK(from >= 0 && to >= 0);
        SHOW(copy_file_range(from, NULL, to, NULL, SIZE, 0));
        SHOW(copy_file_range(from, NULL, to, NULL, SIZE, 0));
        SHOW(sendfile(to, from, NULL, SIZE));
        SHOW(lseek(from, 0, SEEK_CUR)), SHOW(lseek(to, 0, SEEK_CUR));
        close(from), close(to);
    }
    describe("to");
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    how = argv[1];
    static const struct { const char *name; void (*run)(void); } kinds[] = {
        {"errors", errors}, {"names", names}, {"nameless", nameless}, {"positions", positions}, {"threads", threads}, {"full", full},
    };
    for (size_t at = 0; at < sizeof kinds / sizeof *kinds; at++)
        if (strcmp(how, kinds[at].name) == 0) {
            kinds[at].run();
            return 0;
        }
    copy_tree();
}
