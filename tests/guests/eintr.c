// trap: a signal during a blocking read restarts it, or ends it, other than it does alone
// data: cold.bin 4M
// run: plain
// run: restart
// run: stopped
#include "guest.h"
#include <sys/socket.h>

static volatile sig_atomic_t handled;
static void on_signal(int number) { (void)number, handled++; }

int main(int argc, char **argv) {
    CHECK(argc == 2);
    bool restart = strcmp(argv[1], "restart") == 0, stopped = strcmp(argv[1], "stopped") == 0;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = restart ? SA_RESTART : 0};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
    static const char *const kinds[] = {"pipe", "socket", "socket with a time limit"};
    for (int kind = 0; kind < 3; kind++) {
        int ends[2];
        if (kind == 0)
            CHECK(pipe(ends) == 0);
        else
            CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        if (kind == 2) {
            // With a time limit the kernel never restarts, SA_RESTART or not.
            struct timeval limit = {0, 400000};
            CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
        }
        fflush(stdout);
        pid_t parent = getpid(), child = fork();
        if (child == 0) {
            close(ends[0]);
            pause_ms(60);
            if (stopped) {
                kill(parent, SIGSTOP);
                pause_ms(60);
                kill(parent, SIGCONT);
            } else
                kill(parent, SIGUSR1);
            pause_ms(60);
            write(ends[1], "late", 4);
            pause_ms(20);
            _exit(0);
        }
        close(ends[1]);
        char text[8] = "";
        int before = handled;
        ssize_t got = read(ends[0], text, sizeof text);
        int error = got < 0 ? errno : 0;
        printf("%s: read gave %zd, errno %d, '%.4s', handled %d\n", kinds[kind], got, error, text, handled - before);
        // Once more, with readv, so that what was left or comes now is seen too.
        struct iovec vector = {text, sizeof text};
        do
            got = readv(ends[0], &vector, 1);
        while (got < 0 && errno == EINTR);
        printf("%s: readv gave %zd\n", kinds[kind], got);
        close(ends[0]);
        printf("child: %d\n", exit_status_of(child));
    }
}
