// trap: a program whose system calls come to itself (syscall user dispatch) gets our calls too
// needs: kernel 5.11
// data: cold.bin 4M
// run: library
// run: constant
// run: computed
// run: unseen
#include "guest.h"
#include <sys/prctl.h>
#include <ucontext.h>

#define PR_SET_SYSCALL_USER_DISPATCH 59
#define INSIDE __attribute__((section("inside"), noinline, used))
extern char __start_inside[], __stop_inside[];

static volatile char selector; // 0: calls pass, 1: they come to the handler
static volatile long counts[512], strangers;
static char *own_start, *own_end;

// What makes the calls, and what returns from the handler, lies where calls pass in any case.
INSIDE static long inside_call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return number;
}

__asm__(".pushsection inside,\"ax\"\n.globl inside_return\n.hidden inside_return\n"
        "inside_return: mov $15, %eax\n syscall\n.popsection\n");
extern void inside_return(void);

INSIDE static void on_call(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    long call = registers[REG_RAX];
    if (call >= 0 && call < 512) counts[call]++;
    char *from = (char *)registers[REG_RIP];
    if (from < own_start || from >= own_end) strangers++;
    registers[REG_RAX] = inside_call(call, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                                     registers[REG_R10], registers[REG_R8], registers[REG_R9]);
}

// Sites that whoever reads the code can tell the call of.
__attribute__((noinline)) static long pread_site(int file, void *buffer, long length, long place) {
    long result;
    register long r10 __asm__("r10") = place;
    __asm__ volatile("mov $17, %%eax\n syscall"
                     : "=a"(result)
                     : "D"(file), "S"(buffer), "d"(length), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

__attribute__((noinline)) static long read_site(int file, void *buffer, long length) {
    long result;
    __asm__ volatile("xor %%eax, %%eax\n syscall"
                     : "=a"(result)
                     : "D"(file), "S"(buffer), "d"(length)
                     : "rcx", "r11", "memory");
    return result;
}

extern char __executable_start, etext;

int main(int argc, char **argv) {
    CHECK(argc == 2);
    own_start = &__executable_start, own_end = &etext;
    int file = open("cold.bin", O_RDONLY);
    CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) == 0);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
    make_cold("cold.bin");
    struct {
        void (*handler)(int, siginfo_t *, void *);
        unsigned long flags;
        void (*restorer)(void);
        unsigned long mask;
    } action = {on_call, SA_SIGINFO | SA_NODEFER | 0x04000000 /* SA_RESTORER */, inside_return, 0};
    CHECK(raw6(SYS_rt_sigaction, SIGSYS, (long)&action, 0, 8, 0, 0) == 0);
    volatile long number = SYS_prctl;
    long start = (long)__start_inside, length = __stop_inside - __start_inside, put;
    if (strcmp(argv[1], "library") == 0)
        put = prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, start, length, &selector);
    else if (strcmp(argv[1], "constant") == 0)
        put = raw6(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, 1, start, length, (long)&selector, 0);
    else if (strcmp(argv[1], "unseen") == 0)
        put = unseen5(&number, PR_SET_SYSCALL_USER_DISPATCH, 1, start, length, (long)&selector);
    else
        put = raw6(number, PR_SET_SYSCALL_USER_DISPATCH, 1, start, length, (long)&selector, 0);
    CHECK(put == 0);
    static char block[4096];
    uint64_t sum = 0;
    int wrong = 0;
    for (int step = 0; step < 400; step++) {
        long place = step * 37 % 1000 * 4096L;
        selector = 1;
        long got = pread_site(file, block, sizeof block, place);
        long more = read_site(file, block, 64);
        // Libc's instruction lies outside of what passes, too.
        ssize_t third = pread(file, block, 2048, place);
        selector = 0;
        wrong += got != sizeof block || more != 64 || third != 2048;
        sum = sum * 31 + hash_bytes(block, sizeof block);
        // And libc's while all calls pass.
        wrong += pread(file, block, 512, place) != 512;
        sum = sum * 31 + hash_bytes(block, 512);
    }
    long all = 0;
    for (int at = 0; at < 512; at++) all += counts[at];
    printf("wrong %d, sum %016" PRIx64 ", preads %ld, reads %ld, all %ld, from libraries %ld\n", wrong,
           sum, counts[SYS_pread64], counts[SYS_read], all, strangers);
}
