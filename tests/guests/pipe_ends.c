// trap: a stray process holds a pipe's or socket's end: no end of file, no EPIPE
// data: cold.bin 4M
#include "guest.h"
#include <poll.h>
#include <sys/socket.h>

static long elapsed_ms(struct timespec since) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - since.tv_sec) * 1000 + (now.tv_nsec - since.tv_nsec) / 1000000;
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    // Made before the speculator is: it must have let go of them; and made after.
    int early[2], early_socket[2];
    CHECK(pipe(early) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, early_socket) == 0);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 150));
    for (int round = 0; round < 20; round++) {
        int *ends = early, fresh[2];
        if (round > 0) {
            CHECK(pipe(fresh) == 0);
            ends = fresh;
        }
        make_cold("cold.bin");
        stride("cold.bin", 15);
        close(ends[1]);
        struct timespec start;
        clock_gettime(CLOCK_MONOTONIC, &start);
        struct pollfd wait = {ends[0], POLLIN, 0};
        int ready = poll(&wait, 1, 1500);
        char byte;
        printf("hung up: %d, read: ", ready == 1 && (wait.revents & POLLHUP));
        fflush(stdout);
        if (ready == 1) printf("%zd, at once: %d\n", read(ends[0], &byte, 1), elapsed_ms(start) < 200);
        close(ends[0]);
        CHECK(ready == 1);
    }
    int ends[2];
    CHECK(pipe(ends) == 0);
    stride("cold.bin", 30);
    close(ends[0]);
    errno = 0;
    printf("write: %zd", write(ends[1], "x", 1));
    printf(", errno %d\n", errno);
    close(early_socket[1]);
    char byte;
    printf("socket: %zd\n", read(early_socket[0], &byte, 1));
    // A FIFO's other end, and a listening socket whose name must become free.
    CHECK(mkfifo("fifo", 0600) == 0);
    int reader = open("fifo", O_RDONLY | O_NONBLOCK);
    wander("cold.bin", 50);
    close(reader);
    errno = 0;
    printf("nobody reads the fifo: %d", open("fifo", O_WRONLY | O_NONBLOCK));
    printf(", errno %d\n", errno);
}
