// trap: one process of a run notices who opens files: what speculation opens for another one is seen, or breaks a lease
// data: many/{300} 4K
// run: lease
// run: lease-again
// run: inotify
// run: fanotify
// needs: root
#include "guest.h"
#include <sys/fanotify.h>
#include <sys/inotify.h>

// Where the reader begins to be looked at, and the file that lets it stop, which speculation cannot know.
enum { BEGIN = 100, STOP = 200, LEASES = 60 };
static const char stop[] = "stop here";

static volatile sig_atomic_t broken;
static void on_break(int number) { (void)number, broken++; }

static const char *path_of(int number) {
    static char path[32];
    snprintf(path, sizeof path, "many/%d", number);
    return path;
}

static char wait_for(int pipe) {
    char byte = 0;
    while (read(pipe, &byte, 1) < 0 && errno == EINTR)
        ;
    return byte;
}

// The files behind the last one that the reader opens.
static void lease(bool again, int begun, int over) {
    int files[LEASES], given = 0, held = 0;
    signal(SIGIO, on_break);
    // One that no reader breaks, before those.
    if (again) CHECK(fcntl(open(path_of(STOP + 1 + LEASES), O_RDONLY), F_SETLEASE, F_RDLCK) == 0);
    for (int number = 0; number < LEASES; number++) {
        CHECK((files[number] = open(path_of(STOP + 1 + number), O_RDONLY)) >= 0);
        given += fcntl(files[number], F_SETLEASE, F_WRLCK) == 0;
    }
    CHECK(write(begun, "b", 1) == 1);
    wait_for(over);
    for (int number = 0; number < LEASES; number++) held += fcntl(files[number], F_GETLEASE) == F_WRLCK;
    printf("leases: given %d, held %d, broken %d\n", given, held, (int)broken);
}

static void watch(const char *how, int begun, int over) {
    static char events[1 << 20] __attribute__((aligned(16)));
    bool all = how[0] == 'f';
    int watch = all ? fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK, O_RDONLY) : inotify_init1(IN_NONBLOCK);
    CHECK(watch >= 0);
    if (all) CHECK(fanotify_mark(watch, FAN_MARK_ADD, FAN_OPEN | FAN_ONDIR | FAN_EVENT_ON_CHILD, AT_FDCWD, "many") == 0);
    else CHECK(inotify_add_watch(watch, "many", IN_OPEN) > 0);
    CHECK(write(begun, "b", 1) == 1);
    wait_for(over);
    int opened = 0, by_others = 0;
    for (ssize_t got; (got = read(watch, events, sizeof events)) > 0;) {
        struct fanotify_event_metadata *one = (void *)events;
        for (; all && FAN_EVENT_OK(one, got); one = FAN_EVENT_NEXT(one, got)) {
            opened++, by_others += one->pid != getppid();
            close(one->fd);
        }
        for (char *at = events; !all && at < events + got;) {
            opened++;
            at += sizeof(struct inotify_event) + ((struct inotify_event *)(void *)at)->len;
        }
    }
    printf("opened: %d, by others %d\n", opened, by_others);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    int begin[2], begun[2];
    CHECK(pipe(begin) == 0 && pipe(begun) == 0);
    int marked = open(path_of(STOP), O_WRONLY);
    CHECK(marked >= 0 && write(marked, stop, sizeof stop) == sizeof stop && close(marked) == 0);
    make_cold(path_of(STOP));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(begin[1]);
        wait_for(begin[0]);
        if (arguments[1][0] == 'l') lease(strcmp(arguments[1], "lease") != 0, begun[1], begin[0]);
        else watch(arguments[1], begun[1], begin[0]);
        fflush(stdout);
        _exit(0);
    }
    close(begin[0]);
    char block[4096];
    uint64_t hash = 0;
    int number = 0;
    do {
        if (number == BEGIN) {
            CHECK(write(begin[1], "b", 1) == 1);
            wait_for(begun[0]);
        }
        int file = open(path_of(number++), O_RDONLY);
        CHECK(file >= 0 && read(file, block, sizeof block) == sizeof block && close(file) == 0);
        hash = hash * 31 + hash_bytes(block, sizeof block);
    } while (memcmp(block, stop, sizeof stop) != 0);
    close(begin[1]);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    printf("read %d files, %016" PRIx64 "\n", number, hash);
}
