// trap: a program watches who opens a file that it has executed, whose code is known to nobody: Runahead's host looks at it.
// In the second run it is left alone, and what it executes is not.
// run:
// run: alone
#include "guest.h"
#include <sys/inotify.h>

// A program of its own each time, as its name, size and times are others': ourselves, with some bytes behind.
static void copy(const char *name, int bytes) {
    static char some[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY), to = open(name, O_CREAT | O_WRONLY, 0700);
    CHECK(from >= 0 && to >= 0);
    for (ssize_t got; (got = read(from, some, sizeof some)) > 0;) CHECK(write(to, some, (size_t)got) == got);
    CHECK(write(to, some, (size_t)bytes) == bytes && close(from) == 0 && close(to) == 0);
}

static void execute(const char *name) {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        unsetenv("RUNAHEAD");
        execl(name, name, "executed", NULL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "executed") == 0) return 0;
    if (count > 1 && getenv("RUNAHEAD") == NULL) {
        CHECK(setenv("RUNAHEAD", "off", 1) == 0);
        execv("/proc/self/exe", arguments);
        return 1;
    }
    CHECK(mkdir("programs", 0700) == 0);
    for (int number = 0; number < 8; number++) {
        char name[32];
        snprintf(name, sizeof name, "programs/%d", number);
        copy(name, 100 + number);
    }
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), opened = 0, closed = 0;
    CHECK(watch >= 0 && inotify_add_watch(watch, "programs", IN_OPEN | IN_ACCESS | IN_CLOSE_NOWRITE) > 0);
    for (int number = 0; number < 8; number++) {
        char name[32];
        snprintf(name, sizeof name, "programs/%d", number);
        execute(name);
    }
    static char events[1 << 16] __attribute__((aligned(16)));
    for (ssize_t got; (got = read(watch, events, sizeof events)) > 0;) {
        for (char *at = events; at < events + got;) {
            struct inotify_event *event = (void *)at;
            opened += (event->mask & IN_OPEN) != 0, closed += (event->mask & IN_CLOSE_NOWRITE) != 0;
            at += sizeof *event + event->len;
        }
    }
    printf("opened %d times, closed %d times\n", opened, closed);
    return 0;
}
