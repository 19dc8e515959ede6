// trap: a program watches who opens a file that it has executed, whose code is known to nobody: Runahead's host looks at it.
// In the second run it is left alone, and what it executes is not. In the third one beside it watches, which
// is left alone.
// run:
// run: alone
// run: beside
#include "guest.h"
#include <sys/inotify.h>
#include <sys/socket.h>

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

static void execute_all(void) {
    for (int number = 0; number < 8; number++) {
        char name[32];
        snprintf(name, sizeof name, "programs/%d", number);
        execute(name);
    }
}

static int begin_to_watch(void) {
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    CHECK(watch >= 0 && inotify_add_watch(watch, "programs", IN_OPEN | IN_ACCESS | IN_CLOSE_NOWRITE) > 0);
    return watch;
}

static void tell(int watch) {
    static char events[1 << 16] __attribute__((aligned(16)));
    int opened = 0, closed = 0;
    for (ssize_t got; (got = read(watch, events, sizeof events)) > 0;) {
        for (char *at = events; at < events + got;) {
            struct inotify_event *event = (void *)at;
            opened += (event->mask & IN_OPEN) != 0, closed += (event->mask & IN_CLOSE_NOWRITE) != 0;
            at += sizeof *event + event->len;
        }
    }
    printf("opened %d times, closed %d times\n", opened, closed);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    char byte = 0;
    if (strcmp(what, "executed") == 0) return 0;
    if (strcmp(what, "watches") == 0) {
        // Its input is a socket at whose other end somebody waits until it watches, and says when it is over.
        int watch = begin_to_watch();
        CHECK(write(0, &byte, 1) == 1 && read(0, &byte, 1) == 1);
        tell(watch);
        return 0;
    }
    if (strcmp(what, "alone") == 0) {
        CHECK(setenv("RUNAHEAD", "off", 1) == 0);
        execl("/proc/self/exe", arguments[0], "left", NULL);
        return 1;
    }
    CHECK(mkdir("programs", 0700) == 0);
    for (int number = 0; number < 8; number++) {
        char name[32];
        snprintf(name, sizeof name, "programs/%d", number);
        copy(name, 100 + number);
    }
    if (strcmp(what, "beside") == 0) {
        int ends[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        pid_t watcher = fork();
        CHECK(watcher >= 0);
        if (watcher == 0) {
            CHECK(dup2(ends[1], 0) == 0 && setenv("RUNAHEAD", "off", 1) == 0);
            execl("/proc/self/exe", arguments[0], "watches", NULL);
            _exit(1);
        }
        int status;
        CHECK(read(ends[0], &byte, 1) == 1);
        execute_all();
        CHECK(write(ends[0], &byte, 1) == 1 && waitpid(watcher, &status, 0) == watcher && status == 0);
        return 0;
    }
    int watch = begin_to_watch();
    execute_all();
    tell(watch);
    return 0;
}
