// trap: a seccomp filter that a C++ program's own code installs, which is not rewritten as it could not be unwound there
// needs: root
// data: cold.bin 4M
// run: later
// run: early
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdexcept>

#define ALLOW(name)                                                                             \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static long install() {
    static struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(pread64), ALLOW(write), ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    static struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    long result;
    __asm__ volatile("mov $317, %%eax\n syscall" // seccomp
                     : "=a"(result)
                     : "D"((long)SECCOMP_SET_MODE_FILTER), "S"(0L), "d"(&program)
                     : "rcx", "r11", "memory");
    return result;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int caught = 0;
    try {
        if (argc == 2) throw std::runtime_error(argv[1]);
    } catch (const std::exception &) {
        caught = 1;
    }
    CHECK(caught == 1);
    int file = open("cold.bin", O_RDONLY);
    CHECK(file >= 0);
    uint64_t sum = 0;
    if (strcmp(argv[1], "later") == 0) {
        sum = wander("cold.bin", 100);
        make_cold("cold.bin");
    }
    CHECK(install() == 0);
    static char block[4096];
    for (int step = 0; step < 300; step++) {
        CHECK(pread(file, block, sizeof block, step * 37 % 1000 * 4096L) == sizeof block);
        sum = sum * 31 + hash_bytes(block, sizeof block);
    }
    char text[64];
    int length = snprintf(text, sizeof text, "hash %016" PRIx64 "\n", sum);
    CHECK(write(1, text, (size_t)length) == length);
    _exit(0);
}
