// trap: more is asked for ahead of reads in order, while descriptors, files and positions change under them
// build: -O2 -pthread
// run: read4
// run: read64
// run: odd
// run: readv
// run: pread
// run: sendfile
// run: merge
// run: shared
// run: forked
// run: gaps
// run: head
// run: direct
// run: advised
// run: calls
// run: reopened
// run: truncated
// run: grown
// run: holes
// run: ends
// data: long.bin 24M
// data: other.bin 24M
// modes: cold warm
#include "guest.h"
#include <pthread.h>
#include <sys/sendfile.h>

enum { MB = 1 << 20 };

static const char *name = "long.bin";
static char *block;

// Reads on from the descriptor's position, up to `most` bytes of it.
static uint64_t reads(int file, size_t length, off_t most) {
    uint64_t sum = 0;
    off_t all = 0;
    for (ssize_t got; all < most && (got = read(file, block, length)) != 0; all += got) {
        CHECK(got > 0);
        sum = sum * 31 + hash_bytes(block, (size_t)got);
    }
    return sum + (uint64_t)lseek(file, 0, SEEK_CUR);
}

static uint64_t preads(int file, off_t from, off_t to, size_t length, off_t step) {
    uint64_t sum = 0;
    for (off_t at = from; at < to; at += step) {
        ssize_t got = pread(file, block, length, at);
        CHECK(got >= 0);
        sum = sum * 31 + hash_bytes(block, (size_t)got);
    }
    return sum;
}

static uint64_t vectors(int file) {
    uint64_t sum = 0;
    struct iovec parts[3] = {{block, 1000}, {block + 1000, 30000}, {block + 31000, 1768}};
    for (ssize_t got; (got = readv(file, parts, 3)) != 0;) {
        CHECK(got > 0);
        sum = sum * 31 + hash_bytes(block, (size_t)got);
    }
    return sum;
}

// Both files side by side, as a merge does.
static uint64_t merges(int file, off_t size) {
    int other = open("other.bin", O_RDONLY);
    if (other < 0) other = open(name, O_RDONLY);
    uint64_t sum = 0;
    for (off_t at = 0; at < size; at += 65536) {
        CHECK(pread(file, block, 65536, at) == 65536);
        sum = sum * 31 + hash_bytes(block, 65536);
        CHECK(pread(other, block, 65536, at) == 65536);
        sum = sum * 31 + hash_bytes(block, 65536);
    }
    close(other);
    return sum;
}

struct half {
    int file;
    off_t from, to;
    uint64_t sum;
};

static void *half(void *argument) {
    struct half *half = argument;
    char *own = malloc(65536);
    for (off_t at = half->from; at < half->to; at += 65536) {
        ssize_t got = pread(half->file, own, 65536, at);
        CHECK(got == 65536);
        half->sum = half->sum * 31 + hash_bytes(own, 65536);
    }
    free(own);
    return NULL;
}

// One descriptor, by two threads, each its half.
static uint64_t halves(int file, off_t size) {
    struct half parts[2] = {{file, 0, size / 2, 0}, {file, size / 2, size, 0}};
    pthread_t threads[2];
    for (int at = 0; at < 2; at++) CHECK(pthread_create(&threads[at], NULL, half, &parts[at]) == 0);
    for (int at = 0; at < 2; at++) pthread_join(threads[at], NULL);
    return parts[0].sum * 31 + parts[1].sum;
}

// A parent and its child read from one position, one after the other.
static uint64_t forks(int file) {
    uint64_t sum = reads(file, 32768, 6 * MB);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf("child %016" PRIx64 "\n", reads(file, 32768, 6 * MB));
        fflush(stdout);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return sum * 31 + reads(file, 32768, 1L << 40);
}

// Calls between the reads that are none.
static uint64_t with_calls(int file) {
    uint64_t sum = 0;
    struct stat status;
    for (ssize_t got; (got = read(file, block, 32768)) != 0;) {
        CHECK(got > 0 && fstat(file, &status) == 0 && lseek(file, 0, SEEK_CUR) > 0);
        int null = open("/dev/null", O_WRONLY);
        CHECK(write(null, block, 1) == 1 && close(null) == 0);
        sum = sum * 31 + hash_bytes(block, (size_t)got);
    }
    return sum;
}

// In the middle of it the number is another file's, a pipe's, a directory's, nobody's.
static uint64_t with_others(int file) {
    uint64_t sum = reads(file, 32768, 6 * MB);
    off_t at = lseek(file, 0, SEEK_CUR);
    int other = open("other.bin", O_RDONLY);
    if (other >= 0) {
        CHECK(dup2(other, file) == file && lseek(file, at, SEEK_SET) == at);
        sum = sum * 31 + reads(file, 32768, 6 * MB);
        close(other);
    }
    int ends[2];
    CHECK(pipe(ends) == 0 && dup2(ends[0], file) == file);
    CHECK(write(ends[1], "words", 5) == 5 && read(file, block, 32768) == 5);
    close(ends[0]), close(ends[1]);
    int folder = open(".", O_RDONLY);
    CHECK(dup2(folder, file) == file && read(file, block, 32768) == -1 && errno == EISDIR);
    close(folder), close(file);
    CHECK(read(file, block, 32768) == -1 && errno == EBADF);
    int again = open(name, O_RDONLY);
    CHECK(again >= 0 && lseek(again, at, SEEK_SET) == at);
    return sum * 31 + reads(again, 32768, 1L << 40);
}

// It becomes shorter, then longer, than what has been asked for.
static uint64_t while_it_changes(bool grows) {
    int file = open(name, O_RDWR);
    CHECK(file >= 0);
    uint64_t sum = reads(file, 32768, 6 * MB);
    off_t at = lseek(file, 0, SEEK_CUR);
    CHECK(ftruncate(file, grows ? at + 64 * MB : at + 5000) == 0);
    sum = sum * 31 + reads(file, 32768, 1L << 40);
    CHECK(read(file, block, 32768) == 0);
    CHECK(ftruncate(file, at + 8 * MB) == 0 && lseek(file, at, SEEK_SET) == at);
    sum = sum * 31 + reads(file, 32768, 1L << 40);
    close(file);
    return sum;
}

// A file that is holes but for a page in each megabyte.
static uint64_t holes(void) {
    int file = open("holes", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    for (off_t at = 0; at < 64; at++) CHECK(pwrite(file, "a page", 6, at * MB + 5000) == 6);
    CHECK(fsync(file) == 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
    uint64_t sum = reads(file, 32768, 1L << 40);
    close(file);
    CHECK(unlink("holes") == 0);
    return sum;
}

// Places as far up as there are any, and lengths that are none.
static uint64_t ends(int file, off_t size) {
    uint64_t sum = preads(file, 0, 4 * MB, 65536, 65536);
    off_t last = INT64_MAX;
    sum = sum * 31 + preads(file, size - 100, size + 200000, 65536, 4096);
    for (int back = 0; back < 4; back++) {
        ssize_t got = pread(file, block, 65536, last - back * 65536);
        sum = sum * 31 + (uint64_t)got * 7 + (uint64_t)(got < 0 ? errno : 0);
    }
    CHECK(pread(file, block, 65536, -1) == -1 && errno == EINVAL);
    CHECK(pread(file, block, 0, 5 * MB) == 0);
    void *volatile nowhere = (void *)16;
    CHECK(pread(file, nowhere, 65536, 5 * MB) == -1 && errno == EFAULT);
    return sum * 31 + preads(file, 4 * MB, size, 65536, 65536);
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    const char *way = argv[1];
    if (argc > 2) name = argv[2];
    CHECK(posix_memalign((void **)&block, 4096, MB) == 0);
    bool is_direct = strcmp(way, "direct") == 0;
    int file = open(name, is_direct ? O_RDONLY | O_DIRECT : O_RDONLY);
    // (Some file systems have none.)
    if (file < 0 && is_direct && errno == EINVAL) file = open(name, O_RDONLY);
    CHECK(file >= 0);
    struct stat status;
    CHECK(fstat(file, &status) == 0);
    off_t size = status.st_size;
    uint64_t sum = 0;
    errno = 77;
    if (strcmp(way, "read4") == 0)
        sum = reads(file, 4096, size);
    else if (strcmp(way, "read64") == 0 || is_direct)
        sum = reads(file, 65536, size);
    else if (strcmp(way, "odd") == 0)
        sum = reads(file, 16321, size);
    else if (strcmp(way, "readv") == 0)
        sum = vectors(file);
    else if (strcmp(way, "pread") == 0)
        sum = preads(file, 0, size, 65536, 65536);
    else if (strcmp(way, "gaps") == 0)
        sum = preads(file, 0, size, 16384, 65536);
    else if (strcmp(way, "head") == 0)
        sum = reads(file, 32768, 3 * MB);
    else if (strcmp(way, "calls") == 0)
        sum = with_calls(file);
    else if (strcmp(way, "merge") == 0)
        sum = merges(file, size);
    else if (strcmp(way, "shared") == 0)
        sum = halves(file, size);
    else if (strcmp(way, "forked") == 0)
        sum = forks(file);
    else if (strcmp(way, "reopened") == 0)
        sum = with_others(file);
    else if (strcmp(way, "truncated") == 0 || strcmp(way, "grown") == 0)
        sum = while_it_changes(way[0] == 'g');
    else if (strcmp(way, "holes") == 0)
        sum = holes();
    else if (strcmp(way, "ends") == 0)
        sum = ends(file, size);
    else if (strcmp(way, "advised") == 0) {
        CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) == 0);
        sum = reads(file, 65536, size);
    } else if (strcmp(way, "sendfile") == 0) {
        int null = open("/dev/null", O_WRONLY);
        for (ssize_t got; (got = sendfile(null, file, NULL, 65536)) != 0;) {
            CHECK(got > 0);
            sum += (uint64_t)got;
        }
    } else
        CHECK(!"a way");
    int error = errno;
    printf("%s: %016" PRIx64 ", errno %d, at %lld\n", way, sum, error, (long long)lseek(file, 0, SEEK_CUR));
    return 0;
}
