// trap: a read changes an SSE register
// data: cold.bin 4M
#include "registers.h"

enum { COUNT = 16, WIDTH = 16 };
#define EACH ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"

int main(void) {
    static char block[4096];
    int descriptor = open("cold.bin", O_RDONLY);
    long changed = 0;
    for (long step = 0; step < 400; step++) {
        static unsigned char before[COUNT * WIDTH], after[COUNT * WIDTH];
        for (size_t at = 0; at < sizeof before; at++) before[at] = (unsigned char)(at * 31 + (size_t)step);
        long result;
        register long place __asm__("r10") = step * 7919 % 1000 * 4096;
        __asm__ volatile(EACH "movdqu \\n*16(%6), %%xmm\\n\n.endr\n"
                         "syscall\n"
                         EACH "movdqu %%xmm\\n, \\n*16(%7)\n.endr\n"
                         : "=a"(result)
                         : "0"(SYS_pread64), "D"((long)descriptor), "S"(block), "d"(sizeof block),
                           "r"(place), "r"(before), "r"(after)
                         : "rcx", "r11", "memory",
                           "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                           "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
        CHECK(result == sizeof block);
        for (int at = 0; at < COUNT; at++)
            if (memcmp(before + at * WIDTH, after + at * WIDTH, WIDTH) != 0)
                changed++, printf("step %ld: xmm%d changed\n", step, at);
    }
    printf("%ld changed\n", changed);
    CHECK(changed == 0);
}
