// trap: AddressSanitizer's run-time ends a program in which another library is loaded ahead of it
// glibc: the sanitizer
// loaded:
// build: -fsanitize=address
// data: cold.bin 4M
#include "guest.h"

int main(void) {
    printf("wander %016" PRIx64 "\n", wander("cold.bin", 100));
    printf("stride %016" PRIx64 "\n", stride("cold.bin", 100));
}
