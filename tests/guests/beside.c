// trap: files beside those that the program reads are opened on a guess
// run: plain
// run: watched
// run: watched-by-another
// data: cold.bin 1M
#include "guest.h"
#include <sys/inotify.h>

// Modules, each of which tells which one is next: nothing can run ahead of them. The program reads half of them; beside
// them stands a pipe, of which nobody may become the reader.
enum { MODULES = 80, READ = 40, BYTES = 6000, NEXT = 99 };

static void name_of(char name[32], int number) { snprintf(name, 32, "modules/%02d.module", number); }

static void make(void) {
    char name[32];
    CHECK(mkdir("modules", 0700) == 0 && mkfifo("modules/pipe.module", 0600) == 0);
    CHECK(symlink("nowhere", "modules/link.module") == 0);
    for (int number = 0; number < MODULES; number++) {
        unsigned char text[BYTES];
        for (int at = 0; at < BYTES; at++) text[at] = (unsigned char)(at * 31 + number);
        // 29 and 80 have no common divisor: every module's turn comes once.
        text[NEXT] = (unsigned char)((number + 29) % MODULES);
        name_of(name, number);
        int file = open(name, O_CREAT | O_WRONLY, 0600);
        CHECK(file >= 0 && write(file, text, BYTES) == BYTES && close(file) == 0);
    }
    for (int number = 0; number < MODULES; number++) {
        name_of(name, number);
        make_cold(name);
    }
}

// What was opened, and how often. (Of another process's files speculation may open those that it opens as well.)
static int show(int watch, bool counts) {
    static char events[65536];
    int opened[MODULES] = {0}, foreign = 0;
    pause_ms(50);
    for (ssize_t got; (got = read(watch, events, sizeof events)) > 0;)
        for (ssize_t at = 0; at < got;) {
            struct inotify_event event;
            memcpy(&event, events + at, sizeof event);
            const char *name = events + at + sizeof event;
            bool module = event.len > 0 && name[0] >= '0' && name[0] <= '9';
            if (module && event.mask & IN_OPEN) opened[atoi(name)]++;
            foreign += !module && event.len > 0 && strcmp(name, "pipe.module") != 0;
            at += (ssize_t)(sizeof event + event.len);
        }
    for (int module = 0; module < MODULES; module++) printf("%d", counts ? opened[module] : opened[module] > 0);
    printf(", others %d\n", foreign);
    fflush(stdout);
    return 0;
}

int main(int count, char **arguments) {
    bool watched = count > 1 && strncmp(arguments[1], "watched", 7) == 0;
    bool by_another = count > 1 && strcmp(arguments[1], "watched-by-another") == 0;
    bool reads = count > 1 && strcmp(arguments[1], "reads") == 0;
    if (!reads) make();
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), pipes_read = 0, number = 0;
    CHECK(watch >= 0 && (watched || close(watch) == 0));
    if (watched) CHECK(inotify_add_watch(watch, "modules", IN_OPEN | IN_ACCESS) >= 0);
    // The parent watches, another program of the same run reads.
    pid_t reader = by_another ? fork() : -1;
    if (reader == 0) {
        execl("/proc/self/exe", arguments[0], "reads", NULL);
        _exit(9);
    }
    CHECK(reader > 0 || !by_another);
    if (by_another) return exit_status_of(reader) + show(watch, false);
    uint64_t hash = 0;
    for (int step = 0; step < READ; step++) {
        char name[32];
        unsigned char text[BYTES];
        name_of(name, number);
        int file = open(name, O_RDONLY);
        CHECK(file >= 0 && read(file, text, BYTES) == BYTES && close(file) == 0);
        hash = hash * 31 + hash_bytes(text, BYTES);
        number = text[NEXT];
        int writer = open("modules/pipe.module", O_WRONLY | O_NONBLOCK);
        pipes_read += writer >= 0;
        if (writer >= 0) close(writer);
        // Time in which others do what they do.
        if (step % 8 == 0) pause_ms(5);
    }
    printf("hash %" PRIx64 ", readers of the pipe: %d\n", hash, pipes_read);
    describe_onlookers();
    if (!watched) return 0;
    return show(watch, true);
}
