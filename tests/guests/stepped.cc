// trap: a signal at any instruction of a call that passes through Runahead, and what its handler does there
// build: {here}/call_sites.so -Wl,-rpath,{here} -pthread -Wl,-z,now -fnon-call-exceptions
// library: sites.c
// library: call_sites.c
// data: cold.bin 1M
// run: {here}/sites.so stall quiet
// run: {here}/sites.so stall reads
// run: {here}/sites.so read forks
// run: {here}/sites.so map throws
// run: {here}/sites.so stat jumps
// run: {here}/sites.so library cancels
// run: {here}/sites.so cancellable throws
// run: {here}/sites.so exit exits
//
// Run without more words it sends the signal to itself before each call. The stepper (src/bin/stepper.rs) lets
// it come at each instruction of ours in turn: it stops the guest at begin_call and end_call, and tells
// it by `control` what it has done. Then a last word, of any kind, stands behind the others.
#include "call_sites.h"
#include "guest.h"
#include <pthread.h>
#include <setjmp.h>
#include <ucontext.h>

static struct control {
    volatile int go, stop, sent, handled, wrong, traced;
} *control;

extern "C" {
// The stepper makes breakpoints of their first bytes.
// They change nothing but the flags, and what the call puts on the stack.
__attribute__((noinline, used)) void begin_call(void) { __asm__ volatile("nop\n nop" : : : "memory"); }
__attribute__((noinline, used)) void end_call(void) { __asm__ volatile("nop\n nop" : : : "memory"); }
}

static unsigned char patterns[16][16];

// ---- What is called ----------------------------------------------------------------------------

enum { SIZE = 1 << 20 };
static unsigned char *copy, block[8192];
static int file, other, folder, library;
static const char *path, *mode;
static bool is(const char *name) { return strcmp(path, name) == 0; }
static bool does(const char *name) { return strcmp(mode, name) == 0; }
static stack_t alternate;
static struct stat status;
static struct iovec pieces[2] = {{block, 512}, {block + 512, 1024}};
static volatile bool in_child;

static void wrong(const char *what, long how) {
    __atomic_fetch_add(&control->wrong, 1, __ATOMIC_RELAXED);
    int saved = errno;
    dprintf(2, "%s %s: %s: %lx\n", path, mode, what, how);
    errno = saved;
}

static void evict(int descriptor) { posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED); }

struct call {
    long (*site)(const struct asked *, struct seen *);
    long arguments[6], place, length;
    // The result; what comes into `block`, from `place`, is as long. -1: anything that is no error.
    long expected;
};

static struct call prepare(int round) {
    long place = (long)round * 7919 % 250 * 4096 + 100;
    memset(block, 0, sizeof block);
    bool cold = !is("calm") && !is("hit");
    if (cold)
        evict(file);
    else
        CHECK(pread(other, block + 4096, 4096, place) == 4096);
    if (is("read") || is("readv")) CHECK(lseek(file, place, SEEK_SET) == place);
    if (is("read")) return {site_read, {file, (long)block, 2000}, place, 2000, 2000};
    if (is("readv")) return {site_readv, {file, (long)pieces, 2}, place, 1536, 1536};
    if (is("stat")) return {site_stat, {AT_FDCWD, (long)"cold.bin", (long)&status}, 0, 0, 0};
    if (is("getdents")) {
        CHECK(lseek(folder, 0, SEEK_SET) == 0);
        return {site_getdents, {folder, (long)block, sizeof block}, 0, 0, -1};
    }
    if (is("map"))
        return {site_mmap, {0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, library, 4096}, 0, 0, -1};
    if (is("close")) {
        int again = open("cold.bin", O_RDONLY);
        CHECK(again >= 0 && pread(again, block, 100, place) == 100);
        return {site_close, {again}, 0, 0, 0};
    }
    if (is("sigaltstack"))
        return {site_sigaltstack, {does("alternate-in-use") ? 0 : (long)&alternate, 0}, 0, 0, 0};
    if (is("exit")) return {site_exit, {0}, 0, 0, 0};
    return {site_pread, {file, (long)block, 4096, place}, place, 4096, 4096};
}

static void make(const struct call &call) {
    struct seen seen;
    long result;
    static int not_cancelled = 0x70;
    if (is("library")) {
        begin_call();
        result = pread(file, block, 4096, call.place);
    } else if (is("cancellable")) {
        begin_call();
        result = site_cancellable(&not_cancelled, SYS_pread64, file, (long)block, 4096, call.place, 0x55, 0x66);
    } else {
        struct asked asked = {{}, patterns, begin_call};
        memcpy(asked.arguments, call.arguments, sizeof asked.arguments);
        result = call.site(&asked, &seen);
    }
    if (call.expected >= 0 ? result != call.expected : result < 0 && result > -4096)
        wrong("result", result);
    if (call.length > 0 && memcmp(block, copy + call.place, (size_t)call.length) != 0) wrong("data", call.place);
    if (is("stat") && status.st_size != SIZE) wrong("size", status.st_size);
    if (is("map")) CHECK(munmap((void *)result, 4096) == 0);
    if (is("library") || is("cancellable")) return;
    static const uint64_t general[6] = {0x1111, 0x2222, 0x3333, 0x4444, 0x5555, 0x6666};
    if (memcmp(general, seen.general, sizeof general) != 0) wrong("registers", (long)seen.general[0]);
    if (memcmp(patterns, seen.vector, sizeof patterns) != 0) wrong("vector registers", 0);
    for (int at = 0; at < ZONE; at += 8)
        if (memcmp(&general[0], seen.zone + at, 8) != 0) wrong("red zone", at);
    if (!(seen.flags & 0x400)) wrong("direction flag", (long)seen.flags);
    // A handler's frame goes below, unless it has a stack of its own.
    if (does("alternate") && seen.below != 0) wrong("words below the stack", (long)seen.below);
}

// ---- What the handler does ---------------------------------------------------------------------

static sigjmp_buf back;
static pid_t going_on;
static long read_place;

static void read_some() {
    static __thread unsigned char own[4096];
    for (int round = 0; round < 3; round++) {
        long place = 4096L * ((control->handled * 31 + round * 17) % 250);
        if (round == 1) evict(other);
        if (pread(other, own, sizeof own, place) != sizeof own || memcmp(own, copy + place, sizeof own) != 0)
            wrong("a handler's read", place);
    }
}

__attribute__((noinline)) static void go_deep() {
    volatile char much[64 << 10];
    for (size_t at = 0; at < sizeof much; at += 512) much[at] = 1;
}

static void second(int) { read_some(); }

static void handler(int) {
    int saved = errno;
    __atomic_fetch_add(&control->handled, 1, __ATOMIC_RELAXED);
    if (does("reads") || does("alternate-in-use") || does("alternate")) read_some();
    if (does("deep")) go_deep(), read_some();
    if (does("nested")) raise(SIGUSR2), read_some();
    if (does("forks")) {
        pid_t child = fork();
        if (child == 0) {
            in_child = true;
            int before = control->wrong;
            read_some();
            _exit(control->wrong != before);
        }
        if (exit_status_of(child) != 0) wrong("a handler's child", child);
    }
    if (does("goes-on")) {
        going_on = fork();
        in_child = going_on == 0;
        // Its position is its own: the parent reads at the same time.
        if (in_child) {
            CHECK(close(file) == 0 && open("cold.bin", O_RDONLY) == file);
            CHECK(lseek(file, read_place, SEEK_SET) == read_place);
        }
    }
    if (does("throws")) throw 7;
    if (does("jumps")) siglongjmp(back, 1);
    if (does("cancels")) pthread_cancel(pthread_self());
    if (does("exits")) _exit(42);
    errno = saved;
}

// ---- Rounds --------------------------------------------------------------------------------------

static void send() {
    if (control->traced) return;
    control->sent = 1;
    syscall(SYS_tgkill, getpid(), (int)syscall(SYS_gettid), SIGUSR1);
}

static void begun(const struct call &call) {
    send();
    make(call);
}

static volatile int unwound;
struct Guard {
    ~Guard() { unwound = unwound + 1; }
};

__attribute__((noinline)) static void guarded(const struct call &call) {
    Guard guard;
    begun(call);
}

static void *in_thread(void *argument) {
    int old;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    guarded(*(struct call *)argument);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old);
    // Who has been called off in the middle of what must not be left goes here.
    pthread_testcancel();
    return NULL;
}

static void call_once(const struct call &call) {
    if (does("throws")) {
        unwound = 0;
        try {
            guarded(call);
        } catch (int what) {
            if (what != 7) wrong("what was thrown", what);
        }
        if (unwound != 1) wrong("destructors", unwound);
    } else if (does("jumps")) {
        if (sigsetjmp(back, 1) == 0) begun(call);
    } else if (does("cancels")) {
        pthread_t thread;
        void *result;
        unwound = 0;
        CHECK(pthread_create(&thread, NULL, in_thread, (void *)&call) == 0);
        CHECK(pthread_join(thread, &result) == 0);
        if (unwound != 1) wrong("destructors", unwound);
        if (control->sent && result != PTHREAD_CANCELED) wrong("not cancelled", 0);
    } else {
        begun(call);
    }
}

static void round_of(int round) {
    struct call call = prepare(round);
    read_place = call.place;
    control->sent = control->handled = 0;
    going_on = 0;
    // Who leaves for good, or jumps out, does it in a child of its own: the agent bears so many of those.
    if (is("exit") || does("exits") || does("throws") || does("jumps") || does("cancels")) {
        pid_t child = fork();
        if (child == 0) {
            call_once(call);
            _exit(0);
        }
        int got = exit_status_of(child), wanted = does("exits") && control->sent ? 42 : 0;
        if (got != wanted) wrong("a child's end", got);
    } else {
        call_once(call);
    }
    if (in_child) _exit(control->wrong != 0);
    end_call();
    if (control->handled != control->sent) wrong("handled", control->handled);
    if (going_on != 0 && exit_status_of(going_on) != 0) wrong("the child that went on", going_on);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int number = 1; number < 32; number++)
        if (sigismember(&mask, number) == 1 && !(does("alternate-in-use") && number == SIGHUP))
            wrong("blocked", number);
    if (round % 16 == 0) {
        CHECK(pread(file, block, 4096, 8192) == 4096);
        if (memcmp(block, copy + 8192, 4096) != 0) wrong("a read afterwards", round);
    }
}

static void rounds(int) {
    for (int round = 1; control->traced ? !control->stop : round <= 60; round++) round_of(round);
}

int main(int argc, char **argv) {
    CHECK(argc >= 4);
    path = argv[2], mode = argv[3];
    control = (struct control *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    file = open("cold.bin", O_RDONLY), other = open("cold.bin", O_RDONLY);
    folder = open(".", O_RDONLY | O_DIRECTORY), library = open(argv[1], O_RDONLY);
    CHECK(file >= 0 && other >= 0 && folder >= 0 && library >= 0);
    copy = (unsigned char *)malloc(SIZE);
    CHECK(pread(other, copy, SIZE, 0) == SIZE);
    CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) == 0);
    CHECK(posix_fadvise(other, 0, 0, POSIX_FADV_RANDOM) == 0);
    for (int at = 0; at < 256; at++) patterns[at / 16][at % 16] = (unsigned char)(at * 7 + 1);
    alternate.ss_size = 256 << 10;
    alternate.ss_sp = malloc(alternate.ss_size);
    CHECK(sigaltstack(&alternate, NULL) == 0);
    bool on_stack = does("alternate") || does("alternate-in-use");
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = (on_stack ? SA_ONSTACK : 0) | (does("throws") || does("cancels") ? SA_NODEFER : 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    action.sa_handler = second, action.sa_flags = 0;
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    // A speculator shall be there.
    uint64_t state = 1;
    if (!is("calm"))
        for (int step = 0; step < 100; step++) {
            if (step % 50 == 0) evict(file);
            state = state * 6364136223846793005u + 1442695040888963407u;
            CHECK(pread(file, block, 512, (off_t)((state >> 33) % 2000 * 512)) == 512);
        }
    if (argc > 4) {
        control->traced = 1;
        dprintf(1, "ready %lx %lx %lx\n", (long)control, (long)begin_call, (long)end_call);
        while (!control->go) pause_ms(1);
    }
    if (does("alternate-in-use")) {
        // All of it in a handler: the stack that handlers are to have is in use.
        action.sa_handler = rounds, action.sa_flags = SA_ONSTACK;
        CHECK(sigaction(SIGHUP, &action, NULL) == 0);
        raise(SIGHUP);
    } else {
        rounds(0);
    }
    dprintf(1, "wrong %d, hash %016" PRIx64 "\n", control->wrong, hash_bytes(copy, SIZE));
    CHECK(control->wrong == 0);
}
