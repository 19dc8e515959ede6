// trap: under a tight limit Runahead fails the program, or takes what the program was to get
// data: cold.bin 4M
// run: address-space
// run: tight
// run: descriptors
// run: processes
// run: stack
// run: file-size
// run: locked
// run: data
// run: processor
#include "guest.h"
#include <sys/resource.h>

static void limit(int which, rlim_t value) {
    struct rlimit both = {value, value};
    CHECK(setrlimit(which, &both) == 0);
}

// Pieces of 256 KB until there are no more.
static long memory_to_be_had(void) {
    long pieces = 0;
    while (mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) pieces++;
    return pieces;
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    const char *how = argv[1];
    if (argc == 3 && strcmp(how, "tight") == 0) {
        printf("all but a little of 24 MB is ours: %d\n", memory_to_be_had() >= 82);
        return 0;
    }
    if (argc == 3) {
        printf("again, hash %016" PRIx64 "\n", wander("cold.bin", 100));
        return 0;
    }
    setbuf(stdout, NULL);
    if (strcmp(how, "address-space") == 0) {
        limit(RLIMIT_AS, 64 << 20);
        printf("hash %016" PRIx64 "\n", wander("cold.bin", 200));
        // Some megabytes of the agent's own are not held against it; a tenth of the limit would be.
        printf("most of it is ours: %d\n", memory_to_be_had() > 64 * 4 / 2);
        make_cold("cold.bin");
        printf("and nothing is left: hash %016" PRIx64 "\n", wander("cold.bin", 200));
        return 0;
    }
    if (strcmp(how, "tight") == 0) {
        // For the next program, as suites do it that have found out how little a tool needs.
        limit(RLIMIT_AS, 24 << 20);
        execl("/proc/self/exe", argv[0], how, "again", NULL);
        return 1;
    }
    if (strcmp(how, "descriptors") == 0) {
        // Three are open, and one more is needed to read.
        limit(RLIMIT_NOFILE, 4);
        printf("hash %016" PRIx64 "\n", wander("cold.bin", 200));
        int last = open("cold.bin", O_RDONLY);
        errno = 0;
        int none = open("cold.bin", O_RDONLY);
        printf("last %d, then %d, errno %d\n", last, none, errno);
        limit(RLIMIT_NOFILE, 3);
        char block[4096];
        for (int step = 0; step < 200; step++) CHECK(pread(last, block, sizeof block, step * 37 % 1000 * 4096L) == 4096);
        printf("hash %016" PRIx64 "\n", hash_bytes(block, sizeof block));
        return 0;
    }
    if (strcmp(how, "processes") == 0) {
        // Of no effect on root, who does this as somebody else.
        if (getuid() == 0) CHECK(setgid(65533) == 0 && setuid(65533) == 0);
        limit(RLIMIT_NPROC, 1);
        printf("hash %016" PRIx64 "\n", wander("cold.bin", 200));
        errno = 0;
        pid_t child = fork();
        if (child == 0) _exit(0);
        printf("fork: %d, errno %d\n", child > 0, errno);
        return 0;
    }
    if (strcmp(how, "stack") == 0) limit(RLIMIT_STACK, 96 << 10);
    if (strcmp(how, "file-size") == 0) {
        limit(RLIMIT_FSIZE, 10000);
        signal(SIGXFSZ, SIG_IGN);
        int out = open("out.bin", O_CREAT | O_WRONLY, 0600);
        static char block[20000];
        errno = 0;
        ssize_t first = write(out, block, sizeof block), second = write(out, block, sizeof block);
        printf("wrote %zd, %zd, errno %d\n", first, second, errno);
    }
    if (strcmp(how, "locked") == 0) limit(RLIMIT_MEMLOCK, 0);
    if (strcmp(how, "data") == 0) limit(RLIMIT_DATA, 8 << 20);
    if (strcmp(how, "processor") == 0) limit(RLIMIT_CPU, 5);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 200));
    make_cold("cold.bin");
    // And a program that starts under the limit.
    fflush(stdout);
    execl("/proc/self/exe", argv[0], how, "again", (char *)NULL);
    printf("errno %d\n", errno);
}
