// trap: a program that gives up its privileges, or changes its root or directory, between reads
// data: cold.bin 4M
// run: setuid
// run: chdir
// run: fchdir
// run: umask
// run: not-dumpable
#include "guest.h"
#include <sys/prctl.h>

int main(int argc, char **argv) {
    CHECK(argc == 2);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
    make_cold("cold.bin");
    int file = open("cold.bin", O_RDONLY);
    char block[4096];
    if (strcmp(argv[1], "setuid") == 0) {
        chmod("cold.bin", 0600);
        errno = 0;
        int result = setresgid(65534, 65534, 65534);
        int second = setresuid(65534, 65534, 65534);
        printf("set: %d %d, users %d %d\n", result, second, getuid(), geteuid());
        printf("back: %d\n", getuid() == 65534 ? setuid(0) : -1);
        // What is open stays open; opening again is another matter.
        for (int step = 0; step < 100; step++) CHECK(pread(file, block, sizeof block, step * 37 % 1000 * 4096L) == 4096);
        printf("hash %016" PRIx64 ", open again: %d\n", hash_bytes(block, sizeof block), open("cold.bin", O_RDONLY) >= 0);
        printf("dumpable %d\n", prctl(PR_GET_DUMPABLE));
    } else if (strcmp(argv[1], "umask") == 0) {
        for (int mask = 0; mask < 0777; mask += 33) {
            umask((mode_t)mask);
            char name[32];
            snprintf(name, sizeof name, "made-%o", mask);
            close(open(name, O_CREAT | O_RDWR, 0777));
            stride("cold.bin", 20);
        }
    } else if (strcmp(argv[1], "not-dumpable") == 0) {
        CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
        printf("hash %016" PRIx64 ", dumpable %d\n", wander("cold.bin", 100), prctl(PR_GET_DUMPABLE));
    } else {
        // The same names in other directories are other files.
        for (int at = 0; at < 20; at++) {
            char name[32], text[64];
            snprintf(name, sizeof name, "folder-%d", at);
            CHECK(mkdir(name, 0755) == 0);
            snprintf(name, sizeof name, "folder-%d/name", at);
            FILE *out = fopen(name, "w");
            fprintf(out, "in folder %d", at);
            fclose(out);
            make_cold(name);
            snprintf(text, sizeof text, "folder-%d", at);
            int folder = open(text, O_RDONLY | O_DIRECTORY);
            CHECK((strcmp(argv[1], "chdir") == 0 ? chdir(text) : fchdir(folder)) == 0);
            int inside = open("name", O_RDONLY);
            ssize_t got = read(inside, text, sizeof text);
            printf("%.*s; up: %d\n", (int)got, text, access("../cold.bin", R_OK));
            close(inside), close(folder);
            CHECK(chdir("..") == 0);
            make_cold("cold.bin");
            printf("%016" PRIx64 "\n", wander("cold.bin", 10));
        }
    }
}
