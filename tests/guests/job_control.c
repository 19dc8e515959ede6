// trap: job control on a terminal: foreground groups, background reads, ^C, hang-up
// terminal:
// stdin: keys first line\nsecond line\n
// data: cold.bin 4M
#include "guest.h"
#include <termios.h>

static volatile sig_atomic_t interrupted;
static void on_interrupt(int number) { (void)number, interrupted++; }

int main(void) {
    char line[100];
    printf("terminal %d, foreground %d\n", isatty(0), tcgetpgrp(0) == getpgrp());
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
    ssize_t got = read(0, line, sizeof line);
    printf("read %.*s", (int)got, line);
    fflush(stdout);
    // A background job that reads the terminal is stopped by SIGTTIN.
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        wander("cold.bin", 30);
        got = read(0, line, sizeof line);
        printf("child read %.*s", (int)got, line);
        fflush(stdout);
        _exit(3);
    }
    setpgid(child, child);
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child);
    printf("stopped %d by SIGTTIN %d\n", WIFSTOPPED(status), WSTOPSIG(status) == SIGTTIN);
    fflush(stdout);
    signal(SIGTTOU, SIG_IGN);
    CHECK(tcsetpgrp(0, child) == 0);
    kill(-child, SIGCONT);
    printf("child: %d\n", exit_status_of(child));
    CHECK(tcsetpgrp(0, getpgrp()) == 0);
    struct sigaction action = {.sa_handler = on_interrupt};
    CHECK(sigaction(SIGINT, &action, NULL) == 0);
    kill(0, SIGINT);
    for (int round = 0; round < 100 && !interrupted; round++) pause_ms(1);
    printf("interrupted %d times, hash %016" PRIx64 "\n", (int)interrupted, wander("cold.bin", 100));
    struct termios mode;
    CHECK(tcgetattr(0, &mode) == 0);
    printf("modes %x %x %x\n", mode.c_iflag, mode.c_oflag, mode.c_lflag);
    printf("foreground %d, session %d\n", tcgetpgrp(0) == getpgrp(), tcgetsid(0) == getsid(0));
}
