// trap: cancelling a thread in a read unwinds through Runahead's frames and misses C++ destructors
// build: -pthread
// data: cold.bin 4M
#include "guest.h"
#include <pthread.h>
#include <stdexcept>

static int destroyed, ends[2];
static volatile int ready;

struct Guard {
    ~Guard() { destroyed++; }
};

static ssize_t deeper(int depth) {
    Guard guard;
    if (depth > 0) return deeper(depth - 1) + 1;
    char text[16];
    ready = 1;
    return read(ends[0], text, sizeof text);
}

static void *reader(void *) {
    Guard guard;
    try {
        deeper(5);
    } catch (std::exception &) {
        CHECK(!"no exception of the library's comes here");
    } catch (...) {
        Guard inner;
        throw;
    }
    return NULL;
}

int main() {
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
    CHECK(pipe(ends) == 0);
    for (int round = 0; round < 10; round++) {
        pthread_t thread;
        void *result;
        destroyed = ready = 0;
        CHECK(pthread_create(&thread, NULL, reader, NULL) == 0);
        while (!ready) pause_ms(1);
        pause_ms(3);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        printf("cancelled %d, destroyed %d\n", result == PTHREAD_CANCELED, destroyed);
    }
    // An exception thrown and caught after reads, too: unwind tables must be as they were.
    try {
        stride("cold.bin", 50);
        throw std::runtime_error("thrown");
    } catch (std::runtime_error &error) {
        printf("caught: %s\n", error.what());
    }
}
