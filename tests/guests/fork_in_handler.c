// trap: a handler that comes while the agent works makes a child, which reads on
// data: cold.bin 1M
// data: other.bin 1M
// run: fork
// run: fork-and-go-on
// run: fork-and-stall
// run: vfork
// run: spawn
// timeout: 90
#include "guest.h"
#include <spawn.h>

enum { CHILDREN = 60 };
static const char *how;
static volatile sig_atomic_t made, is_child, failed;
static pid_t children[CHILDREN];
static int file, other;
extern char **environ;

static void make_child(void) {
    pid_t child;
    if (strcmp(how, "vfork") == 0) {
        child = vfork();
        if (child == 0) _exit(0);
    } else if (strcmp(how, "spawn") == 0) {
        char *words[] = {"true", NULL};
        if (posix_spawn(&child, "/bin/true", NULL, NULL, words, environ) != 0) child = -1;
    } else {
        child = fork();
    }
    if (child == 0) {
        is_child = 1;
        char block[512];
        if (strcmp(how, "fork-and-go-on") != 0) {
            uint64_t state = 1;
            int rounds = strcmp(how, "fork") == 0 ? 20 : 200;
            if (rounds == 200) posix_fadvise(other, 0, 0, POSIX_FADV_DONTNEED);
            for (int round = 0; round < rounds; round++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                if (pread(other, block, sizeof block, (off_t)((state >> 33) % 2000 * 512)) != sizeof block)
                    _exit(7);
            }
            _exit(0);
        }
        return;
    }
    if (child < 0)
        failed++;
    else
        children[made] = child;
    made++;
}

static void on_alarm(int number) {
    (void)number;
    if (is_child || made >= CHILDREN) return;
    int saved = errno;
    make_child();
    errno = saved;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    how = argv[1];
    file = open("cold.bin", O_RDONLY);
    other = open("other.bin", O_RDONLY);
    CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) == 0);
    CHECK(posix_fadvise(other, 0, 0, POSIX_FADV_RANDOM) == 0);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 1500}, {0, 1500}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    uint64_t state = 1;
    char block[4096];
    for (int after = 0; made < CHILDREN && after < 5;) {
        CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
        for (int step = 0; step < 256 && made < CHILDREN && after < 5; step++) {
            state = state * 6364136223846793005u + 1;
            CHECK(lseek(file, (off_t)((state >> 33) % 256 * 4096), SEEK_SET) >= 0 || is_child);
            ssize_t got = read(file, block, sizeof block);
            // A child moves the position that it shares with its parent.
            CHECK(got == sizeof block || got == 0);
            CHECK(pread(file, block, 64, (off_t)((state >> 40) % 256 * 4096)) == 64);
            after += is_child;
        }
    }
    if (is_child) _exit(0);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    int bad = 0;
    for (int at = 0; at < made; at++) bad += children[at] > 0 && exit_status_of(children[at]) != 0;
    printf("children %d, not made %d, that did not end well %d\n", (int)made, (int)failed, bad);
}
