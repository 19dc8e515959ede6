// trap: a stray process keeps a lock, or is reported as its holder
// data: cold.bin 4M
#include "guest.h"
#include <sys/file.h>

int main(void) {
    int held = open("cold.bin", O_RDWR), other = open("cold.bin", O_RDWR);
    CHECK(flock(held, LOCK_EX) == 0);
    // The speculator comes to be while the lock is held.
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 150));
    CHECK(flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
    close(held);
    // Released with the last descriptor of the description; a copy elsewhere would keep it.
    for (int round = 0; round < 50; round++) {
        CHECK(flock(other, LOCK_EX | LOCK_NB) == 0);
        close(other);
        other = open("cold.bin", O_RDWR);
        make_cold("cold.bin");
        stride("cold.bin", 10);
    }
    // Locks of a process: gone as soon as any descriptor of the file is closed by it, and nobody
    // else's close may release them.
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(other, F_SETLK, &whole) == 0);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    make_cold("cold.bin");
    char block[4096];
    for (int step = 0; step < 100; step++) CHECK(pread(other, block, 4096, step * 37 % 1000 * 4096L) == 4096);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        CHECK(fcntl(other, F_GETLK, &asked) == 0);
        printf("locked: %d, by the parent: %d\n", asked.l_type == F_WRLCK, asked.l_pid == getppid());
        fflush(stdout);
        CHECK(write(pipes[1], "?", 1) == 1);
        pause_ms(30);
        for (int round = 0; round < 100; round++) {
            if (fcntl(other, F_SETLK, &asked) == 0) _exit(0);
            asked = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
            pause_ms(5);
        }
        _exit(1);
    }
    char asked;
    CHECK(read(pipes[0], &asked, 1) == 1);
    close(open("cold.bin", O_RDONLY));
    printf("child gets the lock: %d\n", exit_status_of(child) == 0);
    // Open file description locks.
    int first = open("cold.bin", O_RDWR), second = open("cold.bin", O_RDWR);
    struct flock description = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 100};
    CHECK(fcntl(first, F_OFD_SETLK, &description) == 0);
    wander("cold.bin", 50);
    close(first);
    description.l_pid = 0;
    printf("after close: %d\n", fcntl(second, F_OFD_SETLK, &description));
}
