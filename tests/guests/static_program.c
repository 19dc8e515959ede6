// trap: a statically linked program, into which no agent can be preloaded
// build: -static
// data: cold.bin 4M
#include "guest.h"

int main(void) {
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 200));
    execl("/usr/bin/cksum", "cksum", "cold.bin", (char *)NULL);
}
