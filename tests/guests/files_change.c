// trap: files that change while they are read ahead: truncated, renamed, replaced, written
// data: cold.bin 4M
// run: truncate
// run: unlink
// run: replace
// run: write-back
// run: shared-mapping
// run: append
// run: tmpfile
// run: holes
#include "guest.h"
#include <sys/sendfile.h>

static uint64_t sum;
static void add(const void *bytes, ssize_t length) {
    sum = sum * 31 + (uint64_t)length + (length > 0 ? hash_bytes(bytes, (size_t)length) : 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    const char *how = argv[1];
    static char block[8192];
    int file = open("cold.bin", O_RDWR);
    for (int step = 0; step < 40; step++) add(block, read(file, block, sizeof block));
    if (strcmp(how, "truncate") == 0) {
        for (off_t length = 3 << 20; length > 0; length -= 300007) {
            CHECK(ftruncate(file, length) == 0);
            // Reads across the new end, and behind it.
            for (int step = -3; step < 3; step++) {
                ssize_t got = pread(file, block, sizeof block, length + step * 4096);
                printf("%zd ", got);
                add(block, got);
            }
            make_cold("cold.bin");
        }
        // A child truncates while the parent reads on: what is read is either there or zero length.
        CHECK(ftruncate(file, 1 << 20) == 0);
        pid_t child = fork();
        if (child == 0) {
            for (int round = 0; round < 200; round++) truncate("cold.bin", 4096 + round % 7 * 100000);
            _exit(0);
        }
        for (int round = 0; round < 400; round++) {
            ssize_t got = pread(file, block, sizeof block, round * 2048);
            CHECK(got >= 0 && got <= (ssize_t)sizeof block);
        }
        CHECK(exit_status_of(child) == 0);
    } else if (strcmp(how, "unlink") == 0) {
        CHECK(unlink("cold.bin") == 0);
        ssize_t got;
        while ((got = read(file, block, sizeof block)) > 0) add(block, got);
        printf("again: %d\n", open("cold.bin", O_RDONLY));
    } else if (strcmp(how, "replace") == 0) {
        for (int round = 0; round < 40; round++) {
            int fresh = open("new.bin", O_CREAT | O_TRUNC | O_RDWR, 0600);
            for (int at = 0; at < 40; at++) {
                memset(block, 'a' + round % 26 + at, sizeof block);
                CHECK(write(fresh, block, sizeof block) == sizeof block);
            }
            close(fresh);
            make_cold("new.bin");
            CHECK(rename("new.bin", "cold.bin") == 0);
            int other = open("cold.bin", O_RDONLY);
            for (int at = 0; at < 41; at++) add(block, pread(other, block, sizeof block, at * 17 % 40 * 8192));
            close(other);
            add(block, read(file, block, sizeof block));
        }
    } else if (strcmp(how, "write-back") == 0) {
        // Written through one descriptor, read at once through another: what was speculated over
        // must not be seen.
        int other = open("cold.bin", O_RDONLY);
        for (int step = 0; step < 600; step++) {
            off_t place = step * 7919 % 1000 * 4096;
            memset(block, step, 3000);
            CHECK(pwrite(file, block, 3000, place + 500) == 3000);
            ssize_t got = pread(other, block, 5000, place);
            for (int at = 500; at < 3500 && got == 5000; at++) CHECK(block[at] == (char)step);
            add(block, got);
            if (step % 100 == 0) make_cold("cold.bin");
        }
    } else if (strcmp(how, "shared-mapping") == 0) {
        char *map = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        CHECK(map != MAP_FAILED);
        for (int step = 0; step < 600; step++) {
            off_t place = step * 7919 % 1000 * 4096;
            memset(map + place, step, 1000);
            add(block, pread(file, block, sizeof block, place));
            CHECK(block[999] == (char)step);
            CHECK(pwrite(file, "written", 7, place + 2000) == 7);
            CHECK(memcmp(map + place + 2000, "written", 7) == 0);
            if (step % 150 == 0) make_cold("cold.bin");
        }
        // The sum of the whole file through the mapping.
        add(map, 4 << 20);
    } else if (strcmp(how, "append") == 0) {
        int log = open("log.txt", O_CREAT | O_APPEND | O_RDWR, 0644);
        for (int step = 0; step < 500; step++) {
            add(block, pread(file, block, 4096, step * 37 % 1000 * 4096L));
            CHECK(dprintf(log, "step %d %016" PRIx64 "\n", step, sum) > 0);
            if (step % 50 == 0) add(block, pread(log, block, 1000, step));
        }
    } else if (strcmp(how, "tmpfile") == 0) {
        int hidden = open(".", O_TMPFILE | O_RDWR, 0640);
        CHECK(hidden >= 0);
        for (int step = 0; step < 100; step++) {
            ssize_t got = pread(file, block, sizeof block, step * 37 % 500 * 8192L);
            CHECK(pwrite(hidden, block, sizeof block, step * 8192L) == got);
        }
        CHECK(fsync(hidden) == 0 && posix_fadvise(hidden, 0, 0, POSIX_FADV_DONTNEED) == 0);
        for (int step = 99; step >= 0; step--) add(block, pread(hidden, block, sizeof block, step * 8192L));
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", hidden);
        CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "shown.bin", AT_SYMLINK_FOLLOW) == 0);
    } else if (strcmp(how, "holes") == 0) {
        int sparse = open("sparse.bin", O_CREAT | O_RDWR, 0600);
        for (long at = 0; at < 50; at++) CHECK(pwrite(sparse, &at, sizeof at, at * 1000003) == sizeof at);
        make_cold("sparse.bin");
        off_t place = 0;
        while ((place = lseek(sparse, place, SEEK_DATA)) >= 0) {
            off_t hole = lseek(sparse, place, SEEK_HOLE);
            CHECK(hole > place && lseek(sparse, place, SEEK_SET) == place);
            add(block, read(sparse, block, sizeof block));
            add(block, pread(sparse, block, sizeof block, hole - 100));
            place = hole;
        }
        // In-kernel copies pass us by and move positions.
        int copy = open("copy.bin", O_CREAT | O_RDWR, 0600);
        off_t from = 100;
        printf("sendfile %zd ", sendfile(copy, file, &from, 100000));
        printf("copy_file_range %zd ", copy_file_range(file, NULL, copy, NULL, 100000, 0));
        printf("position %ld\n", (long)lseek(file, 0, SEEK_CUR));
        add(block, read(file, block, sizeof block));
    } else
        CHECK(!"unknown way");
    struct stat status;
    CHECK(fstat(file, &status) == 0);
    printf("\nsum %016" PRIx64 ", size %ld, position %ld\n", sum, strcmp(how, "truncate") ? (long)status.st_size : 0, (long)lseek(file, 0, SEEK_CUR));
    if (strcmp(how, "truncate") == 0) CHECK(ftruncate(file, 5000) == 0);
}
