// trap: parent and child read one open file description: the position is theirs together
// data: cold.bin 4M
// run: fork
// run: vfork
// run: dup
#include "guest.h"

// Runs the given piece of work in a child, by the way that is asked for.
int main(int argc, char **argv) {
    CHECK(argc >= 2);
    char block[1000];
    if (argc == 4 && strcmp(argv[1], "child") == 0) {
        int file = atoi(argv[2]);
        for (int at = 0; at < atoi(argv[3]); at++) CHECK(read(file, block, sizeof block) == sizeof block);
        printf("%016" PRIx64 "\n", hash_bytes(block, sizeof block));
        return 0;
    }
    int file = open("cold.bin", O_RDONLY);
    for (int round = 0; round < 20; round++) {
        make_cold("cold.bin");
        CHECK(read(file, block, sizeof block) == sizeof block);
        printf("%016" PRIx64 " ", hash_bytes(block, sizeof block));
        fflush(stdout);
        pid_t child;
        if (strcmp(argv[1], "fork") == 0) {
            child = fork();
            if (child == 0) {
                for (int at = 0; at < 7; at++) CHECK(read(file, block, sizeof block) == sizeof block);
                _exit(0);
            }
        } else if (strcmp(argv[1], "vfork") == 0) {
            char number[16];
            sprintf(number, "%d", file);
            child = vfork();
            if (child == 0) {
                // Reading in a vfork child is what no manual allows and some programs do.
                char text[100];
                raw6(SYS_read, file, (long)text, sizeof text, 0, 0, 0);
                execl("/proc/self/exe", argv[0], "child", number, "5", (char *)NULL);
                _exit(126);
            }
        } else {
            int copy = dup(file);
            CHECK(pread(copy, block, sizeof block, 12345) == sizeof block);
            CHECK(read(copy, block, sizeof block) == sizeof block);
            close(copy);
            child = 0;
        }
        if (child) CHECK(exit_status_of(child) == 0);
        printf("position %ld\n", (long)lseek(file, 0, SEEK_CUR));
    }
    CHECK(read(file, block, sizeof block) == sizeof block);
    printf("%016" PRIx64 "\n", hash_bytes(block, sizeof block));
}
