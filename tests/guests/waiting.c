// trap: poll, epoll, non-blocking reads, timers and aio beside stalling reads
// build: -lrt -pthread
// data: cold.bin 4M
#include "guest.h"
#include <aio.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/timerfd.h>

static volatile sig_atomic_t ticks;
static void on_tick(int number) { (void)number, ticks++; }

int main(void) {
    int ends[2], epoll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = ends[0]};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    struct itimerspec often = {{0, 2000000}, {0, 2000000}};
    CHECK(timerfd_settime(timer, 0, &often, NULL) == 0);
    signal(SIGRTMIN, on_tick);
    timer_t posix;
    struct sigevent notify = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    CHECK(timer_create(CLOCK_MONOTONIC, &notify, &posix) == 0 && timer_settime(posix, 0, &often, NULL) == 0);
    uint64_t sum = 0, expirations;
    for (int round = 0; round < 20; round++) {
        make_cold("cold.bin");
        sum = sum * 31 + wander("cold.bin", 15);
        CHECK(write(ends[1], "12345", 5) == 5);
        int count;
        do
            count = epoll_wait(epoll, &event, 1, 1000);
        while (count < 0 && errno == EINTR);
        CHECK(count == 1 && event.data.fd == ends[0]);
        char text[10];
        CHECK(read(ends[0], text, 3) == 3 && read(ends[0], text, 10) == 2 && read(ends[0], text, 1) == -1 && errno == EAGAIN);
        do
            count = (int)read(timer, &expirations, sizeof expirations);
        while (count < 0 && errno == EINTR);
        CHECK(count == 8 && expirations > 0);
    }
    timer_delete(posix);
    printf("sum %016" PRIx64 ", ticked %d\n", sum, ticks > 3);
    static char blocks[16][4096];
    struct aiocb requests[16];
    int file = open("cold.bin", O_RDONLY);
    make_cold("cold.bin");
    memset(requests, 0, sizeof requests);
    for (int at = 0; at < 16; at++) {
        requests[at] = (struct aiocb){.aio_fildes = file, .aio_offset = at * 77777, .aio_buf = blocks[at], .aio_nbytes = 4096};
        CHECK(aio_read(&requests[at]) == 0);
    }
    for (int at = 0; at < 16; at++) {
        const struct aiocb *one[] = {&requests[at]};
        while (aio_error(&requests[at]) == EINPROGRESS) aio_suspend(one, 1, NULL);
        CHECK(aio_return(&requests[at]) == 4096);
        sum = sum * 31 + hash_bytes(blocks[at], 4096);
    }
    printf("sum %016" PRIx64 "\n", sum);
}
