// trap: threads that stall at the same time, hand work to each other, wait for each other, come and go, or are cancelled
// build: -pthread
// data: cold.bin 16M
// run: 2
// run: 4
// run: 64
// run: computing
// run: sleeper
// run: forks
// run: pool
// run: churn
// run: cancelled
// run: children
#include "guest.h"
#include <pthread.h>
#include <stdatomic.h>

enum { PAGES = 4096, BLOCK = 4096, JOBS = 2000 };

static int file;
static uint64_t sums[JOBS];

static uint64_t block_at(uint64_t page) {
    char block[BLOCK];
    CHECK(pread(file, block, sizeof block, (off_t)(page % PAGES * BLOCK)) == sizeof block);
    return hash_bytes(block, sizeof block);
}

// Places that do not depend on the data; a thread's own.
static uint64_t read_places(uint64_t seed, int count) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1, sum = 0;
    for (int step = 0; step < count; step++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum = sum * 31 + block_at(state >> 33);
    }
    return sum;
}

static int each;

static void *worker(void *argument) {
    long which = (long)argument;
    sums[which] = read_places((uint64_t)which + 1, each);
    return NULL;
}

// Threads that do something else for four stalls of a cloud disk between two reads, or nothing.
static void *computes(void *argument) {
    long which = (long)argument;
    uint64_t sum = 0;
    for (int step = 0; step < each; step++) {
        pause_ms(4);
        sum = sum * 31 + block_at((uint64_t)(which * each + step) * 1543);
    }
    sums[which] = sum;
    return NULL;
}

// Children of vfork share our memory and read, in the place of threads that are run ahead of. Every fourth
// reads until it is killed, wherever it is.
static _Atomic pid_t victims[4];
static _Atomic int forking;

static uint64_t child_reads(long which, uint64_t first, bool is_victim) {
    volatile uint64_t read = 0;
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
        if (is_victim) victims[which] = getpid();
        read = block_at(first);
        for (uint64_t page = first; is_victim; page += 769) block_at(page);
        _exit(3);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return (uint64_t)status + (is_victim ? 0 : read);
}

static void *forks(void *argument) {
    long which = (long)argument;
    uint64_t sum = 0;
    for (int round = 0; round < 40; round++) {
        uint64_t first = (uint64_t)(which * 40 + round) * 1543;
        sum = sum * 31 + block_at(first);
        sum = sum * 31 + child_reads(which, first + 700, round % 4 == 3);
    }
    sums[which] = sum;
    forking--;
    return NULL;
}

static void kill_victims(void) {
    while (forking > 0) {
        pause_ms(3);
        for (int at = 0; at < 4; at++) {
            pid_t victim = atomic_exchange(&victims[at], 0);
            if (victim != 0) CHECK(kill(victim, SIGKILL) == 0);
        }
    }
}

static void *(*work)(void *) = worker;

static void several(int count) {
    pthread_t threads[64];
    for (long at = 0; at < count; at++) CHECK(pthread_create(&threads[at], NULL, work, (void *)at) == 0);
    if (work == forks) kill_victims();
    for (int at = 0; at < count; at++) CHECK(pthread_join(threads[at], NULL) == 0);
}

// A queue of places, taken by whoever is free; the results are put in order.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static int queued, taken, finished;

static void *serve(void *argument) {
    pthread_mutex_lock(&lock);
    for (;;) {
        while (taken == queued && queued < JOBS) pthread_cond_wait(&filled, &lock);
        if (taken == JOBS) break;
        int job = taken++;
        pthread_mutex_unlock(&lock);
        uint64_t sum = block_at((uint64_t)job * 1543);
        pthread_mutex_lock(&lock);
        sums[job] = sum;
        finished++;
        pthread_cond_signal(&done);
    }
    pthread_mutex_unlock(&lock);
    return argument;
}

static void pool(void) {
    pthread_t threads[4];
    for (int at = 0; at < 4; at++) CHECK(pthread_create(&threads[at], NULL, serve, NULL) == 0);
    pthread_mutex_lock(&lock);
    while (queued < JOBS) {
        while (queued - finished >= 64) pthread_cond_wait(&done, &lock);
        queued++;
        pthread_cond_broadcast(&filled);
    }
    pthread_mutex_unlock(&lock);
    for (int at = 0; at < 4; at++) CHECK(pthread_join(threads[at], NULL) == 0);
}

static void *one_block(void *argument) {
    long which = (long)argument;
    sums[which] = block_at((uint64_t)which * 7919);
    return NULL;
}

// Threads that read once and end, many one after the other and some at a time.
static void churn(void) {
    for (long first = 0; first < JOBS; first += 8) {
        pthread_t threads[8];
        for (long at = 0; at < 8; at++)
            CHECK(pthread_create(&threads[at], NULL, one_block, (void *)(first + at)) == 0);
        for (int at = 0; at < 8; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    }
}

static void *reads_on(void *argument) {
    uint64_t sum = 0;
    for (uint64_t step = 0;; step++) sum += read_places(step + (uint64_t)argument, 20);
    return (void *)sum;
}

// Threads end in the middle of what is foretold for them; others take their places.
static void cancelled(void) {
    for (int round = 0; round < 10; round++) {
        make_cold("cold.bin");
        pthread_t threads[3], other;
        for (long at = 0; at < 3; at++) CHECK(pthread_create(&threads[at], NULL, reads_on, (void *)at) == 0);
        CHECK(pthread_create(&other, NULL, worker, (void *)(long)round) == 0);
        pause_ms(5);
        for (int at = 0; at < 3; at++) {
            void *how;
            CHECK(pthread_cancel(threads[at]) == 0 && pthread_join(threads[at], &how) == 0);
            CHECK(how == PTHREAD_CANCELED);
        }
        CHECK(pthread_join(other, NULL) == 0);
    }
}

// Children of a process several threads of which are run ahead of are run ahead of themselves.
static void children(void) {
    pthread_t threads[3];
    for (long at = 0; at < 3; at++) CHECK(pthread_create(&threads[at], NULL, worker, (void *)at) == 0);
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            uint64_t sum = read_places((uint64_t)round + 100, 60);
            _exit((int)(sum % 200));
        }
        sums[100 + round] = (uint64_t)exit_status_of(child);
    }
    for (int at = 0; at < 3; at++) CHECK(pthread_join(threads[at], NULL) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    file = open("cold.bin", O_RDONLY);
    CHECK(file >= 0);
    const char *how = argv[1];
    int count = atoi(how);
    each = count ? 1600 / count : 300;
    if (count) {
        several(count);
    } else if (strcmp(how, "computing") == 0) {
        each = 100;
        work = computes;
        several(8);
    } else if (strcmp(how, "forks") == 0) {
        work = forks;
        forking = 4;
        several(4);
    } else if (strcmp(how, "sleeper") == 0) {
        // The main thread is run ahead of, and then sleeps for as long as the other one reads.
        each = 1500;
        sums[1] = read_places(99, 100);
        several(1);
    } else if (strcmp(how, "pool") == 0) {
        pool();
    } else if (strcmp(how, "churn") == 0) {
        churn();
    } else if (strcmp(how, "cancelled") == 0) {
        cancelled();
    } else {
        children();
    }
    printf("%016" PRIx64 "\n", hash_bytes(sums, sizeof sums));
}
