// A system call preserves every register but rax, rcx and r11, all of the vector and x87 state, and
// the arithmetic flags. This is the frame around the read; the guests say which state they look at.
#ifndef REGISTERS_H
#define REGISTERS_H
#include "guest.h"

struct general {
    uint64_t rbx, rcx_ignored, rdx, rsi, rdi, rbp, r8, r9, r10, r12, r13, r14, r15;
};

// Reads with given values in all registers and stores what they are afterwards. `way` is 0 for the
// syscall instruction in the program itself, else the address of a libc wrapper cannot be used,
// since a function may clobber the caller-saved registers.
extern long read_with_registers(long descriptor, void *buffer, long length, long place,
                                struct general *before_and_after, uint64_t *flags);
__asm__(
    ".text\n.globl read_with_registers\n.type read_with_registers,@function\n"
    "read_with_registers:\n"
    "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "push %r8\n push %r9\n"
    "mov %r8, %rax\n"                       // the general registers' values
    "mov %rcx, %r10\n"                      // place
    "mov 0(%rax), %rbx\n mov 40(%rax), %rbp\n mov 48(%rax), %r8\n mov 56(%rax), %r9\n"
    "mov 72(%rax), %r12\n mov 80(%rax), %r13\n mov 88(%rax), %r14\n mov 96(%rax), %r15\n"
    "mov (%rsp), %rax\n pushq (%rax)\n popfq\n" // the flags
    "mov $17, %eax\n"                       // pread64
    "syscall\n"
    "pushfq\n pop %rcx\n"
    "push %rax\n"
    "mov 8(%rsp), %rax\n mov %rcx, (%rax)\n" // r9 pushed last: the flags' place
    "mov 16(%rsp), %rax\n"                  // r8: the general registers' place
    "mov %rbx, 0(%rax)\n mov %rdx, 16(%rax)\n mov %rsi, 24(%rax)\n mov %rdi, 32(%rax)\n"
    "mov %rbp, 40(%rax)\n mov %r8, 48(%rax)\n mov %r9, 56(%rax)\n mov %r10, 64(%rax)\n"
    "mov %r12, 72(%rax)\n mov %r13, 80(%rax)\n mov %r14, 88(%rax)\n mov %r15, 96(%rax)\n"
    "pop %rax\n"
    "pop %r9\n pop %r8\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
    "cld\n ret\n"
    ".size read_with_registers,.-read_with_registers\n");

#endif
