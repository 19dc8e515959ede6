// trap: calls that may be cancelled, made at one place with up to six arguments, beside another thread that waits in one
// build: -pthread -O2
// release: trixie libc6
// data: cold.bin 16M
// run: arguments
// run: reads
// run: registers
#include "guest.h"
#include <pthread.h>
#include <sys/socket.h>
#ifndef __GLIBC__
#define preadv2(file, pieces, count, at, flags) preadv(file, pieces, count, at)
#endif

static int ends[2];

static void *waiter(void *argument) {
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
    return argument;
}

// Calls with four, five and six arguments, two of them on the stack of whoever makes the call.
static uint64_t arguments(int file) {
    int sockets[2], pipes[2];
    uint64_t sum = 0;
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0 && pipe(pipes) == 0);
    for (int round = 0; round < 300; round++) {
        char block[4096], letter[64];
        off_t place = (off_t)(round * 7919 % 4096) * 4096;
        CHECK(pread(file, block, sizeof block, place) == sizeof block);
        sum = sum * 31 + hash_bytes(block, sizeof block);
        CHECK(sendto(sockets[0], block, sizeof letter, 0, NULL, 0) == sizeof letter);
        struct sockaddr_storage from;
        socklen_t length = sizeof from;
        CHECK(recvfrom(sockets[1], letter, sizeof letter, MSG_TRUNC, (struct sockaddr *)&from, &length) == sizeof letter);
        CHECK(memcmp(letter, block, sizeof letter) == 0);
        loff_t at = place + 64;
        CHECK(splice(file, &at, pipes[1], NULL, 512, SPLICE_F_MOVE) == 512 && at == place + 576);
        struct iovec pieces[2] = {{letter, 32}, {letter + 32, 32}};
        CHECK(readv(pipes[0], pieces, 2) == 64 && memcmp(letter, block + 64, 64) == 0);
        char rest[448];
        CHECK(read(pipes[0], rest, sizeof rest) == sizeof rest);
        struct iovec one = {letter, 64};
        CHECK(preadv2(file, &one, 1, place + 128, 0) == 64 && memcmp(letter, block + 128, 64) == 0);
        int again = open("cold.bin", O_RDONLY);
        CHECK(again >= 0 && fcntl(again, F_GETFD) == 0 && close(again) == 0);
    }
    return sum;
}

static uint64_t reads(int file) {
    uint64_t sum = 0;
    char block[4096];
    for (int step = 0; step < 2000; step++) {
        CHECK(pread(file, block, sizeof block, (off_t)(step * 1543 % 4096) * 4096) == sizeof block);
        sum = sum * 31 + hash_bytes(block, sizeof block);
    }
    return sum;
}

// What a function must keep, it keeps; and what the kernel says of an error comes through.
static uint64_t registers(int file) {
    char *volatile nowhere = (char *)8;
    uint64_t sum = 0;
    for (long step = 0; step < 600; step++) {
        char block[512];
        register long kept1 __asm__("rbx") = step * 3;
        register long kept2 __asm__("r12") = step * 5;
        register long kept3 __asm__("r13") = step * 7;
        register long kept4 __asm__("r14") = step * 11;
        __asm__ volatile("" : "+r"(kept1), "+r"(kept2), "+r"(kept3), "+r"(kept4));
        ssize_t got = pread(file, block, sizeof block, step * 1543 % 32768 * 512);
        __asm__ volatile("" : "+r"(kept1), "+r"(kept2), "+r"(kept3), "+r"(kept4));
        CHECK(got == sizeof block);
        CHECK(kept1 == step * 3 && kept2 == step * 5 && kept3 == step * 7 && kept4 == step * 11);
        CHECK(pread(-1, block, sizeof block, 0) == -1 && errno == EBADF);
        CHECK(pread(file, block, sizeof block, -1) == -1 && errno == EINVAL);
        CHECK(pread(file, nowhere, sizeof block, 0) == -1 && errno == EFAULT);
        sum = sum * 31 + hash_bytes(block, sizeof block);
    }
    return sum;
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && pipe(ends) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waiter, NULL) == 0);
    int file = open("cold.bin", O_RDONLY);
    CHECK(file >= 0);
    uint64_t sum = strcmp(argv[1], "arguments") == 0   ? arguments(file)
                   : strcmp(argv[1], "registers") == 0 ? registers(file)
                                                       : reads(file);
    printf("%016" PRIx64 "\n", sum);
    CHECK(write(ends[1], "", 1) == 1 && pthread_join(thread, NULL) == 0);
}
