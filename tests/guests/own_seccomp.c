// trap: a program with its own seccomp filter dies of a system call that it never made
// data: cold.bin 4M
// run: filter
// run: filter-early
// run: strict
// run: errno-filter
// run: vfork
// run: nowhere
#include "guest.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define ALLOW(name)                                                                             \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static bool is_nowhere;

static void install(uint32_t otherwise) {
    // What a careful reader of files allows itself: no preadv2, no futex, no openat2, no mmap.
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read), ALLOW(pread64), ALLOW(lseek), ALLOW(write), ALLOW(exit), ALLOW(exit_group), ALLOW(rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, otherwise),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    // (Who has set that is left alone for it.)
    CHECK((is_nowhere && geteuid() == 0) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    struct sock_fprog *given = &program;
    // Where memory may be at address 0, that is no question whether there are filters.
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (is_nowhere && mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, -1, 0) == NULL) {
        given = NULL;
        __asm__("" : "+r"(given));
        memcpy(given, &program, sizeof program);
    }
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, given) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    is_nowhere = strcmp(argv[1], "nowhere") == 0;
    int file = open("cold.bin", O_RDONLY);
    static char block[4096], text[200];
    if (strcmp(argv[1], "filter-early") != 0) {
        // With a speculator already at work.
        dprintf(1, "hash %016" PRIx64 "\n", wander("cold.bin", 100));
        make_cold("cold.bin");
    }
    if (strcmp(argv[1], "vfork") == 0) {
        // The filter is the child's, the memory is its parent's.
        pid_t child = vfork();
        if (child == 0) {
            install(SECCOMP_RET_KILL_PROCESS);
            int whole = 0;
            for (int step = 0; step < 300; step++)
                whole += pread(file, block, sizeof block, step * 37 % 1000 * 4096L) == sizeof block;
            _exit(whole == 300);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        printf("child %x hash %016" PRIx64 "\n", status, wander("cold.bin", 100));
        return 0;
    }
    if (strcmp(argv[1], "strict") == 0)
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    else
        install(strcmp(argv[1], "errno-filter") == 0 ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS);
    uint64_t sum = 0;
    for (int step = 0; step < 300; step++) {
        ssize_t got = strcmp(argv[1], "strict") == 0 ? read(file, block, sizeof block)
                                                     : pread(file, block, sizeof block, step * 37 % 1000 * 4096L);
        if (got != sizeof block) {
            write(2, "short\n", 6);
            syscall(SYS_exit, 1);
        }
        sum = sum * 31 + hash_bytes(block, sizeof block);
    }
    int length = snprintf(text, sizeof text, "sum %016" PRIx64 "\n", sum);
    write(1, text, (size_t)length);
    // Strict mode knows exit alone.
    syscall(SYS_exit, 0);
}
