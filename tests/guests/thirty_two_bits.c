// trap: a 32-bit program, whose loader cannot load a 64-bit agent
// glibc: another word size
// needs: multilib
// build: -m32
// data: cold.bin 4M
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    static char block[4096];
    unsigned sum = 0;
    int file = open("cold.bin", O_RDONLY);
    while (read(file, block, sizeof block) > 0)
        for (unsigned at = 0; at < sizeof block; at++) sum = sum * 31 + (unsigned char)block[at];
    printf("%x\n", sum);
    fflush(stdout);
    execl("/usr/bin/cksum", "cksum", "cold.bin", (char *)NULL);
}
