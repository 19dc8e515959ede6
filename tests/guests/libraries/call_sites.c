// System calls by instructions of their own, around which registers, red zone and what lies below it hold
// patterns. A library, since it lies where libraries lie: unwinding works from each instruction there.
#include "../call_sites.h"

#define ALL(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)
#define TEXT(x) #x
#define LOAD(n) "movups 16*" TEXT(n) "(%rax), %xmm" TEXT(n) "\n"
#define STORE(n) "movups %xmm" TEXT(n) ", 56+16*" TEXT(n) "(%rcx)\n"
#define FILL(n) "mov %rbx, -8-8*" TEXT(n) "(%rsp)\n"
#define COPY(n) "mov -8-8*" TEXT(n) "(%rsp), %rdx\n mov %rdx, 312+8*" TEXT(n) "(%rcx)\n"
#define PUSH(r) "push %" r "\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %" r ", 0\n"
#define POP(r) "pop %" r "\n .cfi_adjust_cfa_offset -8\n .cfi_restore %" r "\n"

#define SITE(name, number)                                                                      \
    __asm__(".text\n.type " #name ",@function\n.globl " #name "\n" #name ":\n.cfi_startproc\n"  \
            PUSH("rbx") PUSH("rbp") PUSH("r12") PUSH("r13") PUSH("r14") PUSH("r15")             \
            "push %rsi\n .cfi_adjust_cfa_offset 8\n"                                            \
            "mov 48(%rdi), %rax\n"                                                              \
            ALL(LOAD)                                                                           \
            "mov $0x1111, %rbx\n mov $0x2222, %rbp\n mov $0x3333, %r12\n mov $0x4444, %r13\n"   \
            "mov $0x5555, %r14\n mov $0x6666, %r15\n"                                           \
            ALL(FILL)                                                                           \
            "mov %rdi, %rax\n mov $-4096-128, %rcx\n"                                           \
            "1: mov %rbx, (%rsp,%rcx)\n add $8, %rcx\n cmp $-128, %rcx\n jne 1b\n"              \
            "call *56(%rax)\n mov %rbx, -8(%rsp)\n"                                             \
            "mov 8(%rax), %rsi\n mov 16(%rax), %rdx\n mov 24(%rax), %r10\n"                     \
            "mov 32(%rax), %r8\n mov 40(%rax), %r9\n mov (%rax), %rdi\n std\n"                  \
            "mov $" #number ", %eax\n syscall\n"                                                \
            "mov (%rsp), %rcx\n mov %rbx, (%rcx)\n mov %rbp, 8(%rcx)\n mov %r12, 16(%rcx)\n"    \
            "mov %r13, 24(%rcx)\n mov %r14, 32(%rcx)\n mov %r15, 40(%rcx)\n"                    \
            ALL(STORE) ALL(COPY)                                                                \
            "xor %esi, %esi\n mov $-4096-128, %rdx\n"                                           \
            "1: cmp %rbx, (%rsp,%rdx)\n je 2f\n inc %rsi\n"                                     \
            "2: add $8, %rdx\n cmp $-128, %rdx\n jne 1b\n mov %rsi, 440(%rcx)\n"                \
            "xor %esi, %esi\n pushfq\n pop 48(%rcx)\n cld\n"                                    \
            "pop %rsi\n .cfi_adjust_cfa_offset -8\n"                                            \
            POP("r15") POP("r14") POP("r13") POP("r12") POP("rbp") POP("rbx")                   \
            "ret\n.cfi_endproc\n.size " #name ",.-" #name "\n")

SITE(site_read, 0);
SITE(site_close, 3);
SITE(site_mmap, 9);
SITE(site_pread, 17);
SITE(site_readv, 19);
SITE(site_sigaltstack, 131);
SITE(site_getdents, 217);
SITE(site_exit, 231);
SITE(site_stat, 262);

// As glibc makes all calls that may be cancelled, from 2.41 on: the thread's state, the number, six arguments. Such a place is
// believed in the C library only; by a name that its part for threads once had, this is taken for it.
int __pthread_initialize_minimal;
__asm__(".text\n.type site_is_cancelled,@function\nsite_is_cancelled:\n.cfi_startproc\n"
        "ud2\n.cfi_endproc\n.size site_is_cancelled,.-site_is_cancelled\n"
        ".type site_cancellable,@function\n.globl site_cancellable\nsite_cancellable:\n.cfi_startproc\n"
        "mov (%rdi), %eax\n testb $8, (%rdi)\n .byte 0x0f, 0x85\n .long site_is_cancelled-.-4\n"
        "mov %rdi, %r11\n mov %rsi, %rax\n mov %rdx, %rdi\n mov %rcx, %rsi\n mov %r8, %rdx\n"
        "mov %r9, %r10\n mov 8(%rsp), %r8\n mov 16(%rsp), %r9\n mov %r11, 8(%rsp)\n syscall\n"
        "ret\n.cfi_endproc\n.size site_cancellable,.-site_cancellable\n.nops 16\n"
        ".type site_behind,@function\nsite_behind:\n.cfi_startproc\nud2\n.cfi_endproc\n.size site_behind,.-site_behind\n");
