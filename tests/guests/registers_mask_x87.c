// trap: a read changes an AVX-512 mask register, the x87 stack, or a control word
// build: -mavx512f -mavx512bw
// needs: flag avx512bw
// data: cold.bin 4M
#include "registers.h"

int main(void) {
    static char block[4096];
    int descriptor = open("cold.bin", O_RDONLY);
    long changed = 0;
    for (long step = 0; step < 400; step++) {
        uint64_t masks[7], masks_after[7];
        for (int at = 0; at < 7; at++) masks[at] = 0x1111111111111111u * (unsigned)(at + 1) + (unsigned)step;
        // Round down, flush to zero, all exceptions masked; x87: single precision, round up.
        uint32_t vector_control = 0x1f80 | 0x2000 | 0x8000, vector_control_after;
        uint16_t control = 0x0a7f & ~0x300, control_after, status_after;
        double pushed[5] = {1.5, -2.25, 1e300, 0.125, (double)step}, popped[5];
        long result;
        register long place __asm__("r10") = step * 7919 % 1000 * 4096;
        __asm__ volatile(
            "kmovq 0(%[masks]), %%k1\n kmovq 8(%[masks]), %%k2\n kmovq 16(%[masks]), %%k3\n"
            "kmovq 24(%[masks]), %%k4\n kmovq 32(%[masks]), %%k5\n kmovq 40(%[masks]), %%k6\n"
            "kmovq 48(%[masks]), %%k7\n"
            "fldl 0(%[pushed])\n fldl 8(%[pushed])\n fldl 16(%[pushed])\n fldl 24(%[pushed])\n"
            "fldl 32(%[pushed])\n"
            "fldcw %[control]\n ldmxcsr %[vector_control]\n"
            "syscall\n"
            "stmxcsr %[vector_control_after]\n fnstcw %[control_after]\n fnstsw %[status_after]\n"
            "fstpl 32(%[popped])\n fstpl 24(%[popped])\n fstpl 16(%[popped])\n fstpl 8(%[popped])\n"
            "fstpl 0(%[popped])\n"
            "kmovq %%k1, 0(%[masks_after])\n kmovq %%k2, 8(%[masks_after])\n"
            "kmovq %%k3, 16(%[masks_after])\n kmovq %%k4, 24(%[masks_after])\n"
            "kmovq %%k5, 32(%[masks_after])\n kmovq %%k6, 40(%[masks_after])\n"
            "kmovq %%k7, 48(%[masks_after])\n"
            : "=&a"(result), [vector_control_after] "=m"(vector_control_after),
              [control_after] "=m"(control_after), [status_after] "=m"(status_after)
            : "0"(SYS_pread64), "D"((long)descriptor), "S"(block), "d"(sizeof block), "r"(place),
              [masks] "r"(masks), [masks_after] "r"(masks_after), [pushed] "r"(pushed),
              [popped] "r"(popped), [control] "m"(control), [vector_control] "m"(vector_control)
            : "rcx", "r11", "memory", "k1", "k2", "k3", "k4", "k5", "k6", "k7");
        uint32_t usual_vector_control = 0x1f80;
        uint16_t usual_control = 0x037f;
        __asm__ volatile("ldmxcsr %0\n fldcw %1" : : "m"(usual_vector_control), "m"(usual_control));
        CHECK(result == sizeof block);
        if (memcmp(masks, masks_after, sizeof masks)) changed++, printf("masks changed\n");
        if (memcmp(pushed, popped, sizeof pushed)) changed++, printf("x87 stack changed\n");
        if (vector_control != vector_control_after) changed++, printf("mxcsr changed\n");
        if (control != control_after) changed++, printf("x87 control changed\n");
        // Five values on the stack: its top is at register 3.
        if ((status_after >> 11 & 7) != 3) changed++, printf("x87 top changed\n");
    }
    printf("%ld changed\n", changed);
    CHECK(changed == 0);
}
