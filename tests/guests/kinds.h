// Every kind of descriptor that can be made without another program, and the read-type calls in three
// ways: through libc's functions, through its syscall(), and as an instruction of the guest's own.
#ifndef KINDS_H
#define KINDS_H

#include "guest.h"
#include <poll.h>
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <termios.h>

#ifndef RWF_HIPRI
#define RWF_HIPRI 1
#endif

enum way { LIBC, SYSCALL, INLINE } way;

static int descriptors_of_kind[2];  // the other end, if any

static long call(long number, long a, long b, long c, long d, long e) {
    errno = 0;
    if (way == INLINE) {
        // A number that stands in the code: of a program with an instruction that may be any call Runahead stays away.
        // (preadv and preadv2 take the offset in two halves; the high one is zero on 64 bits.)
        long result = -ENOSYS;
        switch (number) {
        case SYS_read: result = raw6(SYS_read, a, b, c, d, e, 0); break;
        case SYS_pread64: result = raw6(SYS_pread64, a, b, c, d, e, 0); break;
        case SYS_readv: result = raw6(SYS_readv, a, b, c, d, e, 0); break;
        case SYS_preadv: result = raw6(SYS_preadv, a, b, c, d, 0, 0); break;
        case SYS_preadv2: result = raw6(SYS_preadv2, a, b, c, d, 0, e); break;
        }
        if (result < 0 && result > -4096) return errno = (int)-result, -1;
        return result;
    }
    if (way == SYSCALL) {
        if (number == SYS_preadv2) return syscall(number, a, b, c, d, 0L, e);
        if (number == SYS_preadv) return syscall(number, a, b, c, d, 0L);
        return syscall(number, a, b, c, d);
    }
    switch (number) {
    case SYS_read: return read((int)a, (void *)b, (size_t)c);
    case SYS_pread64: return pread((int)a, (void *)b, (size_t)c, d);
    case SYS_readv: return readv((int)a, (void *)b, (int)c);
    case SYS_preadv: return preadv((int)a, (void *)b, (int)c, d);
    case SYS_preadv2: return preadv2((int)a, (void *)b, (int)c, d, (int)e);
    }
    abort();
}

static int filled_pipe(int flags) {
    int ends[2];
    CHECK(pipe2(ends, flags) == 0);
    CHECK(write(ends[1], "0123456789", 10) == 10);
    close(ends[1]);
    return ends[0];
}

static void wait_for_bytes(int terminal, int bytes) {
    int there = 0;
    for (int look = 0; look < 20000 && there < bytes; look++) {
        CHECK(ioctl(terminal, FIONREAD, &there) == 0);
        if (there < bytes) usleep(100);
    }
    CHECK(there == bytes);
}

static int terminal_with_a_line(bool raw) {
    int master, slave;
    CHECK(openpty(&master, &slave, NULL, NULL, NULL) == 0);
    if (raw) {
        struct termios mode;
        CHECK(tcgetattr(slave, &mode) == 0);
        cfmakeraw(&mode);
        CHECK(tcsetattr(slave, TCSANOW, &mode) == 0);
    }
    CHECK(write(master, "a line\nmore\n", 12) == 12);
    descriptors_of_kind[0] = master;
    // Lines travel from one end to the other, and their echo back (each newline as two characters), in the kernel's own
    // time, and in pieces.
    wait_for_bytes(slave, 12);
    if (!raw) wait_for_bytes(master, 14);
    CHECK(fcntl(slave, F_SETFL, O_NONBLOCK) == 0);
    return slave;
}

static int with_contents(int descriptor) {
    char block[5000];
    for (size_t at = 0; at < sizeof block; at++) block[at] = (char)(at * 7 + at / 256);
    CHECK(descriptor >= 0 && write(descriptor, block, sizeof block) == sizeof block);
    CHECK(lseek(descriptor, 0, SEEK_SET) == 0);
    return descriptor;
}

static int sparse_file(void) {
    int descriptor = open("sparse.bin", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(ftruncate(descriptor, 1 << 20) == 0);
    CHECK(pwrite(descriptor, "island", 6, 8190) == 6);
    return descriptor;
}

static int waiting_signal(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    union sigval value = {.sival_int = 42};
    CHECK(sigqueue(getpid(), SIGUSR1, value) == 0);
    return signalfd(-1, &set, SFD_NONBLOCK);
}

static int elapsed_timer(void) {
    int descriptor = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
    CHECK(timerfd_settime(descriptor, 0, &soon, NULL) == 0);
    struct pollfd elapsed = {descriptor, POLLIN, 0};
    CHECK(poll(&elapsed, 1, 2000) == 1);
    return descriptor;
}

static int watched(void) {
    int descriptor = inotify_init1(IN_NONBLOCK);
    int watch = inotify_add_watch(descriptor, ".", IN_CREATE);
    CHECK(watch >= 0);
    int made = open("created.tmp", O_CREAT | O_RDWR, 0600);
    close(made);
    unlink("created.tmp");
    return descriptor;
}

static int fifo(void) {
    unlink("fifo");
    CHECK(mkfifo("fifo", 0600) == 0);
    int reader = open("fifo", O_RDONLY | O_NONBLOCK);
    int writer = open("fifo", O_WRONLY);
    CHECK(reader >= 0 && write(writer, "through a fifo", 14) == 14);
    close(writer);
    CHECK(fcntl(reader, F_SETFL, 0) == 0);
    return reader;
}

static int sockets(int type) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, type, 0, ends) == 0);
    CHECK(write(ends[1], "first message", 13) == 13);
    if (type == SOCK_STREAM)
        close(ends[1]);
    else
        descriptors_of_kind[0] = ends[1];
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    return ends[0];
}

static int empty_pipe(void) {
    int ends[2];
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    descriptors_of_kind[0] = ends[1];
    return ends[0];
}

struct kind {
    const char *name;
    bool unsteady;  // the bytes differ from run to run
};

enum { ON_DISK = 7 };  // the first kinds are the file on disk, opened in its ways
static const struct kind kinds[] = {
    {"regular", 0}, {"regular-rdwr", 0}, {"regular-append", 0}, {"regular-direct", 0},
    {"regular-nonblock", 0}, {"regular-sync", 0}, {"regular-noatime", 0}, {"empty", 0},
    {"write-only", 0}, {"path-only", 0}, {"directory", 0}, {"pipe", 0}, {"pipe-nonblock-empty", 0},
    {"pipe-write-end", 0}, {"pipe-direct", 0}, {"fifo", 0}, {"socket-stream", 0},
    {"socket-datagram", 0}, {"socket-unconnected", 0}, {"terminal", 0}, {"terminal-raw", 0},
    {"terminal-master", 0}, {"eventfd", 0}, {"eventfd-empty", 0}, {"timerfd", 0}, {"signalfd", 1},
    {"epoll", 0}, {"inotify", 1}, {"/dev/null", 0}, {"/dev/zero", 0}, {"/dev/full", 0},
    {"/dev/urandom", 1}, {"/proc/version", 0}, {"/proc/self/cmdline", 0}, {"/proc/sys/kernel/ostype", 0},
    {"/proc/self/stat", 1}, {"/proc/self/mem", 0}, {"/sys/kernel/mm/transparent_hugepage/enabled", 0}, {"memfd", 0}, {"memfd-sealed", 0}, {"tmpfs", 0},
    {"sparse", 0}, {"deleted", 0}, {"closed", 0}, {"minus-one", 0}, {"at-fdcwd", 0}, {"huge-number", 0},
};

static int open_kind(const char *name) {
    descriptors_of_kind[0] = descriptors_of_kind[1] = -1;
#define IS(text) (strcmp(name, text) == 0)
    if (IS("regular")) return open("file.bin", O_RDONLY);
    if (IS("regular-rdwr")) return open("file.bin", O_RDWR);
    if (IS("regular-append")) return open("file.bin", O_RDWR | O_APPEND);
    if (IS("regular-direct")) return open("file.bin", O_RDONLY | O_DIRECT);
    if (IS("regular-nonblock")) return open("file.bin", O_RDONLY | O_NONBLOCK);
    if (IS("regular-sync")) return open("file.bin", O_RDWR | O_SYNC);
    if (IS("regular-noatime")) return open("file.bin", O_RDONLY | O_NOATIME);
    if (IS("empty")) return open("empty.bin", O_RDONLY | O_CREAT, 0600);
    if (IS("write-only")) return open("file.bin", O_WRONLY);
    if (IS("path-only")) return open("file.bin", O_PATH);
    if (IS("directory")) return open(".", O_RDONLY | O_DIRECTORY);
    if (IS("pipe")) return filled_pipe(0);
    if (IS("pipe-nonblock-empty")) return empty_pipe();
    if (IS("pipe-write-end")) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        descriptors_of_kind[0] = ends[0];
        return ends[1];
    }
    if (IS("pipe-direct")) return filled_pipe(O_DIRECT);
    if (IS("fifo")) return fifo();
    if (IS("socket-stream")) return sockets(SOCK_STREAM);
    if (IS("socket-datagram")) return sockets(SOCK_DGRAM);
    if (IS("socket-unconnected")) return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (IS("terminal")) return terminal_with_a_line(false);
    if (IS("terminal-raw")) return terminal_with_a_line(true);
    if (IS("terminal-master")) {
        int slave = terminal_with_a_line(false);
        int master = descriptors_of_kind[0];
        descriptors_of_kind[0] = slave;
        CHECK(fcntl(master, F_SETFL, O_NONBLOCK) == 0);
        return master;
    }
    if (IS("eventfd")) return eventfd(5, EFD_NONBLOCK);
    if (IS("eventfd-empty")) return eventfd(0, EFD_NONBLOCK);
    if (IS("timerfd")) return elapsed_timer();
    if (IS("signalfd")) return waiting_signal();
    if (IS("epoll")) return epoll_create1(0);
    if (IS("inotify")) return watched();
    if (IS("/proc/self/mem")) {
        int descriptor = open(name, O_RDONLY);
        return descriptor;
    }
    if (name[0] == '/') return open(name, O_RDONLY);
    if (IS("memfd")) return with_contents(memfd_create("guest", 0));
    if (IS("memfd-sealed")) {
        int descriptor = with_contents(memfd_create("guest", MFD_ALLOW_SEALING));
        CHECK(fcntl(descriptor, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
        return descriptor;
    }
    if (IS("tmpfs")) {
        int descriptor = with_contents(open("/dev/shm", O_TMPFILE | O_RDWR, 0600));
        return descriptor;
    }
    if (IS("sparse")) return sparse_file();
    if (IS("deleted")) {
        int descriptor = with_contents(open("gone.bin", O_RDWR | O_CREAT | O_TRUNC, 0600));
        CHECK(unlink("gone.bin") == 0);
        return descriptor;
    }
    if (IS("closed")) {
        // A number that no later open takes again: the lowest free ones go first.
        int descriptor = fcntl(1, F_DUPFD, 300);
        close(descriptor);
        return descriptor;
    }
    if (IS("minus-one")) return -1;
    if (IS("at-fdcwd")) return AT_FDCWD;
    if (IS("huge-number")) return INT_MAX;
    abort();
#undef IS
}

#endif
