// trap: a program is asked, before the data of its files are read (FAN_PRE_ACCESS), by whoever reads them: by Runahead as well
// needs: root
// data: many/{200} 12K
// run:
// run: executes
#include "guest.h"
#include <poll.h>
#include <sys/fanotify.h>
#ifndef FAN_PRE_ACCESS
#define FAN_PRE_ACCESS 0x00100000
#endif

static uint64_t sum;
static void add(int file) {
    static unsigned char data[16384];
    char name[32];
    snprintf(name, sizeof name, "many/%d", file);
    int fd = open(name, O_RDONLY);
    ssize_t got = read(fd, data, sizeof data);
    CHECK(fd >= 0 && got >= 0 && close(fd) == 0);
    for (ssize_t at = 0; at < got; at++) sum = sum * 31 + data[at];
}

static void add_rest(int to) {
    for (int file = 50; file < 200; file++) add(file);
    CHECK(write(to, &sum, sizeof sum) == sizeof sum);
    _exit(0);
}

int main(int count, char **arguments) {
    if (count > 2) add_rest(atoi(arguments[2]));
    // It has waited before it watches, so it is run ahead of already.
    for (int file = 0; file < 50; file++) add(file);
    int watch = fanotify_init(FAN_CLASS_PRE_CONTENT | FAN_NONBLOCK | FAN_CLOEXEC, O_RDONLY);
    // (Before Linux 6.14, or without the right to, nobody is asked.)
    uint64_t mask = FAN_PRE_ACCESS | FAN_EVENT_ON_CHILD;
    int is_watching = watch >= 0 && fanotify_mark(watch, FAN_MARK_ADD, mask, AT_FDCWD, "many") == 0;
    int done[2];
    CHECK(pipe(done) == 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (count == 1) add_rest(done[1]);
        char to[12];
        sprintf(to, "%d", done[1]);
        execl("/proc/self/exe", "reader", "reads", to, NULL);
        _exit(1);
    }
    int own = 0, others = 0;
    struct pollfd waits[2] = {{watch, POLLIN, 0}, {done[0], POLLIN, 0}};
    while (!(waits[1].revents & POLLIN)) {
        CHECK(poll(waits, 2, -1) > 0);
        static char events[8192] __attribute__((aligned(16)));
        ssize_t got = is_watching && (waits[0].revents & POLLIN) ? read(watch, events, sizeof events) : 0;
        struct fanotify_event_metadata *event = (void *)events;
        for (; FAN_EVENT_OK(event, got); event = FAN_EVENT_NEXT(event, got)) {
            struct fanotify_response answer = {event->fd, FAN_ALLOW};
            CHECK(write(watch, &answer, sizeof answer) == sizeof answer && close(event->fd) == 0);
            if (event->pid == child) own++;
            else others++;
        }
    }
    CHECK(read(done[0], &sum, sizeof sum) == sizeof sum);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    printf("watching %d, asked for itself %d times, for others %d times, sum %016" PRIx64 "\n", is_watching, own,
           others, sum);
}
