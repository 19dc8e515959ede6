// trap: a read changes a register or a flag that a system call preserves
// data: cold.bin 4M
// run: general
// run: flags
#include "registers.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    bool flags_only = strcmp(argv[1], "flags") == 0;
    static char block[4096];
    int descriptor = open("cold.bin", O_RDONLY);
    long changed = 0;
    for (long step = 0; step < 600; step++) {
        struct general values;
        uint64_t *words = (uint64_t *)&values;
        for (size_t at = 0; at < sizeof values / 8; at++)
            words[at] = 0x0101010101010101u * (at + 1) ^ (uint64_t)step << 32;
        struct general before = values;
        // Carry, parity, adjust, zero, sign and overflow in all combinations; and the direction flag.
        uint64_t wanted = 0x202 | ((uint64_t)step & 1) | (step & 2) << 1 | (step & 4) << 2 |
                          (step & 8) << 3 | (step & 16) << 3 | (step & 32) << 6;
        uint64_t flags = wanted;
        // Backwards, as some string code runs; a handler must not be confused by it.
        if (step % 7 == 3) flags = wanted |= 0x400;
        long place = step * 7919 % 1000 * 4096, result;
        result = read_with_registers(descriptor, block, sizeof block, place, &values, &flags);
        CHECK(result == sizeof block);
        if (flags_only) {
            if ((flags & 0xcd5) != (wanted & 0xcd5)) {
                if (!changed++) printf("flags %" PRIx64 " became %" PRIx64 "\n", wanted, flags);
            }
            continue;
        }
#define SAME(name, value)                                                                       \
    if (values.name != (uint64_t)(value)) changed++, printf("step %ld: " #name " changed\n", step)
        SAME(rbx, before.rbx);
        SAME(rbp, before.rbp);
        SAME(r8, before.r8);
        SAME(r9, before.r9);
        SAME(r12, before.r12);
        SAME(r13, before.r13);
        SAME(r14, before.r14);
        SAME(r15, before.r15);
        SAME(rdi, descriptor);
        SAME(rsi, block);
        SAME(rdx, sizeof block);
        SAME(r10, place);
    }
    printf("%ld changed\n", changed);
    CHECK(changed == 0);
}
