// trap: a seccomp filter that comes by a way which nobody watches, and forbids what only we do
// build: -pthread
// data: cold.bin 4M
// run: unseen kill
// run: unseen trap
// run: unseen seccomp
// run: computed kill
// run: computed trap
// run: computed errno
// run: computed seccomp
// run: constant kill
// run: library kill
// run: together kill
// run: together unseen
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>

// What a careful reader of files allows itself.
static const int allowed[] = {SYS_read,  SYS_pread64, SYS_write, SYS_exit,         SYS_exit_group,
                              SYS_lseek, SYS_close,   SYS_futex, SYS_rt_sigreturn, SYS_madvise};

static void filter(struct sock_fprog *program, uint32_t otherwise) {
    static struct sock_filter steps[40];
    int count = sizeof allowed / sizeof *allowed, at = 0;
    steps[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int index = 0; index < count; index++)
        steps[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[index],
                                                   (unsigned char)(count - index), 0);
    steps[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
    steps[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    program->len = (unsigned short)at;
    program->filter = steps;
}

// Which call it is stands in memory: nobody who reads the code knows.
__attribute__((noinline)) static long computed(volatile long *number, long a, long b, long c) {
    return raw6(*number, a, b, c, 0, 0, 0);
}

static long constant_prctl(long a, long b, long c) {
    long result;
    __asm__ volatile("xor %%r10d, %%r10d\n xor %%r8d, %%r8d\n mov $157, %%eax\n syscall"
                     : "=a"(result)
                     : "D"(a), "S"(b), "d"(c)
                     : "rcx", "r8", "r10", "r11", "memory");
    return result;
}

static volatile int stop;
static uint64_t sums[2];

static uint64_t reads(int file, int rounds) {
    static __thread char block[4096];
    uint64_t sum = 0;
    for (int step = 0; step < rounds; step++) {
        ssize_t got = pread(file, block, sizeof block, step * 37 % 1000 * 4096L);
        if (got != sizeof block) {
            write(2, "short\n", 6);
            syscall(SYS_exit_group, 1);
        }
        sum = sum * 31 + hash_bytes(block, sizeof block);
    }
    return sum;
}

static void *reader(void *argument) {
    int which = *(int *)argument, file = open("cold.bin", O_RDONLY);
    do
        sums[which] = reads(file, 500);
    while (!stop);
    // A thread's end needs calls that are not allowed: the process ends it.
    static volatile int never;
    while (!never) __builtin_ia32_pause();
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    const char *how = argv[1], *what = argv[2];
    int file = open("cold.bin", O_RDONLY);
    CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) == 0);
    dprintf(1, "hash %016" PRIx64 "\n", wander("cold.bin", 100));
    uint32_t otherwise = SECCOMP_RET_KILL_PROCESS;
    if (strcmp(what, "trap") == 0) otherwise = SECCOMP_RET_TRAP;
    if (strcmp(what, "errno") == 0) otherwise = SECCOMP_RET_ERRNO | ENOSYS;
    struct sock_fprog program;
    filter(&program, otherwise);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    pthread_t threads[2];
    static int numbers[2] = {0, 1};
    volatile long prctl_number = SYS_prctl, seccomp_number = SYS_seccomp;
    bool together = strcmp(how, "together") == 0;
    if (together) {
        for (int at = 0; at < 2; at++) CHECK(pthread_create(&threads[at], NULL, reader, &numbers[at]) == 0);
        pause_ms(20);
    }
    make_cold("cold.bin");
    long put;
    if (together)
        put = strcmp(what, "kill") == 0
                  ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program)
                  : unseen5(&seccomp_number, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
                            (long)&program, 0, 0);
    else if (strcmp(how, "library") == 0)
        put = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    else if (strcmp(how, "constant") == 0)
        put = constant_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program);
    else if (strcmp(how, "unseen") == 0 && strcmp(what, "seccomp") == 0)
        put = unseen5(&seccomp_number, SECCOMP_SET_MODE_FILTER, 0, (long)&program, 0, 0);
    else if (strcmp(how, "unseen") == 0)
        put = unseen5(&prctl_number, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0, 0);
    else if (strcmp(what, "seccomp") == 0)
        put = computed(&seccomp_number, SECCOMP_SET_MODE_FILTER, 0, (long)&program);
    else
        put = computed(&prctl_number, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program);
    uint64_t sum = reads(file, 1000);
    stop = 1;
    if (together) {
        // What they have read can be seen.
        while (sums[0] == 0 || sums[1] == 0) __builtin_ia32_pause();
    }
    char text[200];
    int length = snprintf(text, sizeof text, "filter %ld, sum %016" PRIx64 ", threads %d\n", put, sum,
                          !together || sums[0] == sums[1]);
    write(1, text, (size_t)length);
    syscall(SYS_exit_group, 0);
}
