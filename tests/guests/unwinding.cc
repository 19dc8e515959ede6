// trap: unwinding that starts at any instruction of a read: destructors are skipped, exceptions end
// trap: the program, a profiler does not come as far as main
// build: -pthread -fnon-call-exceptions -fasynchronous-unwind-tables
// data: cold.bin 4M
// run: deferred
// run: asynchronous
// run: exception
// run: exception-alternate-stack
// run: profiler
#include "guest.h"
#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <ucontext.h>

static volatile int destroyed, started;
static int file;

struct Guard {
    ~Guard() { destroyed = destroyed + 1; }
};

// No clean-up of its own, and nothing of C++ that must not throw: whoever is cancelled or thrown out at
// any instruction of it unwinds past.
__attribute__((noinline)) static void read_on(long rounds, const struct itimerval *alarm) {
    static __thread char block[4096];
    uint64_t state = 1;
    if (alarm) setitimer(ITIMER_REAL, alarm, NULL);
    started = 1;
    for (long round = 0; round < rounds; round++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        long place = (long)((state >> 30) % 1000 * 4096);
        if (raw6(SYS_pread64, file, (long)block, 1, place, 0, 0) < 0) break;
        if (pread(file, block, 1, place) < 0) break;
        if (lseek(file, place, SEEK_SET) < 0 || read(file, block, 1) < 0) break;
    }
}

__attribute__((noinline)) static void guarded(long rounds, const struct itimerval *alarm) {
    Guard guard;
    read_on(rounds, alarm);
}

static bool asynchronous;

static void *reader(void *) {
    int old;
    if (asynchronous) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    guarded(LONG_MAX, NULL);
    return NULL;
}

static void cancels() {
    int not_cancelled = 0, skipped = 0;
    for (int round = 0; round < 800; round++) {
        pthread_t thread;
        void *result;
        started = 0;
        int before = destroyed;
        if (round % 100 == 0) make_cold("cold.bin");
        CHECK(pthread_create(&thread, NULL, reader, NULL) == 0);
        while (!started) sched_yield();
        struct timespec rest = {0, round * 7919 % 200 * 1000};
        nanosleep(&rest, NULL);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        not_cancelled += result != PTHREAD_CANCELED;
        skipped += destroyed != before + 1;
    }
    printf("not cancelled %d, destructors skipped %d\n", not_cancelled, skipped);
}

static void throw_out(int) { throw 7; }

static void exceptions(int flags) {
    stack_t alternate = {};
    alternate.ss_size = 1 << 16;
    alternate.ss_sp = malloc(alternate.ss_size);
    CHECK(sigaltstack(&alternate, NULL) == 0);
    struct sigaction action = {};
    action.sa_handler = throw_out;
    action.sa_flags = SA_NODEFER | flags;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    int caught = 0;
    for (int round = 0; round < 800; round++) {
        if (round % 100 == 0) make_cold("cold.bin");
        struct itimerval soon = {{0, 0}, {0, 60 + round * 7919 % 200}};
        try {
            guarded(LONG_MAX, &soon);
        } catch (int what) {
            caught += what == 7;
        }
    }
    sigset_t mask;
    CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0);
    int blocked = 0;
    for (int number = 1; number < 65; number++) blocked += sigismember(&mask, number) == 1;
    printf("caught %d, signals blocked %d\n", caught, blocked);
}

static void *in_main;
static volatile int samples, lost, inside;

static void sample(int) {
    // What sets the timer is in main, and not behind it.
    if (!inside) return;
    void *frames[64];
    int count = backtrace(frames, 64);
    bool reaches = false;
    for (int index = 0; index < count; index++) reaches |= frames[index] == in_main;
    samples = samples + 1;
    if (!reaches) lost = lost + 1;
}

__attribute__((noinline)) static void profiled() {
    in_main = __builtin_return_address(0);
    inside = 1;
    for (int round = 0; round < 20; round++) {
        make_cold("cold.bin");
        guarded(1000, NULL);
    }
    inside = 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    wander("cold.bin", 100);
    file = open("cold.bin", O_RDONLY);
    // Loads the library that unwinds, which takes memory: not in a handler.
    void *warm[4];
    backtrace(warm, 4);
    asynchronous = strcmp(argv[1], "asynchronous") == 0;
    if (strcmp(argv[1], "profiler") == 0) {
        struct sigaction action = {};
        action.sa_handler = sample;
        action.sa_flags = SA_RESTART;
        CHECK(sigaction(SIGALRM, &action, NULL) == 0);
        struct itimerval often = {{0, 150}, {0, 150}}, never = {};
        CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
        profiled();
        CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
        printf("some samples: %d, that do not reach main: %d\n", samples > 20, lost);
    } else if (strncmp(argv[1], "exception", 9) == 0) {
        exceptions(strcmp(argv[1], "exception") == 0 ? 0 : SA_ONSTACK);
    } else {
        cancels();
    }
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 50));
}
