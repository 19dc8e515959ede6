// trap: a stopped and continued program; the speculator's fate meanwhile
// data: cold.bin 4M
#include "guest.h"

int main(void) {
    uint64_t sum = 0;
    for (int round = 0; round < 6; round++) {
        make_cold("cold.bin");
        sum = sum * 31 + wander("cold.bin", 50);
        raise(round % 2 ? SIGTSTP : SIGSTOP);
        sum = sum * 31 + stride("cold.bin", 50);
    }
    printf("sum %016" PRIx64 "\n", sum);
}
