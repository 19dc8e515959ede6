// The part of the stand-in that works inside the program: it breaks the one property named in
// RUNAHEAD_BREAKS. Some are broken by functions that take the place of libc's; those of programs that
// make their system calls themselves by Syscall User Dispatch: every system call of the program
// raises SIGSYS, and the handler makes the call and then does its damage.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static char breaks[64] = "none";
static bool broken(const char *property) { return strcmp(breaks, property) == 0; }

static bool regular(int descriptor) {
    struct stat status;
    int saved = errno;
    bool yes = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    errno = saved;
    return yes;
}

static ssize_t plain_read(int descriptor, void *buffer, size_t length) {
    return syscall(SYS_read, descriptor, buffer, length);
}

static void *plain_mmap(void *at, size_t length, int protection, int flags, int file, off_t place) {
    return (void *)syscall(SYS_mmap, at, length, protection, flags, file, place);
}

// Code without unwind information: a call through it, and a read in it that takes its time.
__asm__(".text\n.type strange_call,@function\nstrange_call: push %rbx\n call *%rcx\n pop %rbx\n ret\n"
        ".size strange_call,.-strange_call\n"
        ".type strange_pread,@function\nstrange_pread: push %rbx\n mov %rcx, %r10\n mov $17, %eax\n syscall\n"
        "mov $300, %ecx\n 1: pause\n dec %ecx\n jnz 1b\n pop %rbx\n ret\n"
        ".size strange_pread,.-strange_pread\n");
extern ssize_t strange_call(int descriptor, void *buffer, size_t length, void *function);
extern ssize_t strange_pread(int descriptor, void *buffer, size_t length, off_t place);

ssize_t read(int descriptor, void *buffer, size_t length) {
    if (broken("torn-position") && regular(descriptor)) {
        // The emulation that everybody thinks of first.
        off_t place = lseek(descriptor, 0, SEEK_CUR);
        ssize_t got = syscall(SYS_pread64, descriptor, buffer, length, place);
        if (got > 0) lseek(descriptor, place + got, SEEK_SET);
        return got;
    }
    // Guesses that somebody can see.
    static bool opened;
    if (broken("opened-beside") && !opened) close(open("modules/79.module", O_RDONLY)), opened = true;
    if (broken("read-beside")) open("modules/pipe.module", O_RDONLY | O_NONBLOCK);
    if (broken("restarted")) {
        ssize_t got;
        do
            got = plain_read(descriptor, buffer, length);
        while (got < 0 && errno == EINTR);
        return got;
    }
    if (broken("fault-code")) {
        ssize_t got = plain_read(descriptor, buffer, length);
        if (got < 0 && errno == EFAULT) errno = EINVAL;
        return got;
    }
    if (broken("seeking")) {
        ssize_t got = plain_read(descriptor, buffer, length);
        if (got > 0 && regular(descriptor)) lseek(descriptor, 1, SEEK_CUR);
        return got;
    }
    if (broken("short-read") && length > 4096 && regular(descriptor)) return plain_read(descriptor, buffer, length / 2);
    // libc's own read is a cancellation point; a bare system call is none.
    if (broken("not-cancelled")) return plain_read(descriptor, buffer, length);
    static ssize_t (*next)(int, void *, size_t);
    if (!next) next = (ssize_t(*)(int, void *, size_t))(uintptr_t)dlsym(RTLD_NEXT, "read");
    if (broken("unwinding")) return strange_call(descriptor, buffer, length, (void *)(uintptr_t)next);
    return next(descriptor, buffer, length);
}

// The program's latest mapping of 64 pages of memory.
static char *latest_memory;

ssize_t pread(int descriptor, void *buffer, size_t length, off_t place) {
    if (broken("unwinding")) return strange_pread(descriptor, buffer, length, place);
    ssize_t got = syscall(SYS_pread64, descriptor, buffer, length, place);
    // Memory of ours that comes when it is wanted, wherever there is room; and what a child has not got.
    if (broken("moved-in") || broken("unforked")) {
        static char *page;
        // More than the hole that the loader leaves where it had its cache.
        enum { OURS = 512 << 10 };
        int own = MAP_PRIVATE | MAP_ANONYMOUS;
        if (!page) {
            page = plain_mmap(NULL, OURS, PROT_READ | PROT_WRITE, own, -1, 0);
            if (broken("unforked")) syscall(SYS_madvise, page, OURS, MADV_DONTFORK);
        }
        ++*page;
    }
    // Signals that wait while it works, and are forgotten.
    if (broken("lost-signal")) {
        sigset_t one, before;
        struct timespec no_time = {0, 0};
        sigemptyset(&one);
        sigaddset(&one, SIGUSR1);
        sigprocmask(SIG_BLOCK, &one, &before);
        got = syscall(SYS_pread64, descriptor, buffer, length, place);
        sigtimedwait(&one, NULL, &no_time);
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    // A descriptor for a moment.
    if (broken("brief-descriptor")) close(open("/dev/null", O_RDONLY));
    if (broken("another-tracer")) prctl(PR_SET_PTRACER, getppid());
    static bool held;
    if (broken("held-descriptors") && !held) {
        // What a clone of the program does that does not let go of what it inherits.
        held = true;
        pid_t child = fork();
        if (child == 0) {
            if (fork() == 0) sleep(4);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    // A call that a program's own filter may not know.
    if (broken("forbidden-call")) syscall(SYS_getpriority, 0, 0);
    if (broken("errno") && got >= 0) errno = EAGAIN;
    if (broken("wrong-bytes") && got > 100) ((char *)buffer)[99] ^= 1;
    if (broken("short-pread") && got > 4096) got = 4096;
    if (broken("heap")) free(malloc(1 << 20)), sbrk(16);
    if (broken("stack-use")) {
        volatile char much[6000];
        memset((void *)much, 1, sizeof much);
    }
    if (broken("signal")) raise(SIGCHLD), raise(SIGIO);
    // What copies the program's memory as it finds it mapped.
    if (broken("memory-reader") && latest_memory) {
        static size_t page;
        char byte;
        struct iovec local = {&byte, 1}, remote = {latest_memory + page++ % 64 * 4096, 1};
        process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    }
    return got;
}

// ---- Mapped files ----------------------------------------------------------------------------

enum { LARGE = 8 << 20 };

// The mapping whose faults the program takes through a handler of ours.
static char *trapped;

// What watches page faults from inside has to take them as signals, and errno with them.
static void on_touch(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)4095);
    if (page < trapped || page >= trapped + LARGE) signal(SIGSEGV, SIG_DFL);
    mprotect(page, 4096, PROT_READ);
    errno = EAGAIN;
}

void *mmap(void *at, size_t length, int protection, int flags, int file, off_t place) {
    bool large = file >= 0 && length >= LARGE;
    // Pages of before, in a mirror that did not notice.
    if (large && broken("stale-mapping") && (flags & MAP_FIXED)) return at;
    if (large && broken("unshared-mapping") && (flags & MAP_SHARED)) flags = (flags & ~MAP_SHARED) | MAP_PRIVATE;
    char *got = plain_mmap(at, length, protection, flags, file, place);
    if (broken("written-code") && got != MAP_FAILED && file >= 0 && (protection & PROT_EXEC)) {
        mprotect(got, length, protection | PROT_WRITE);
        got[length / 2] ^= 1;
        mprotect(got, length, protection);
    }
    if (got != MAP_FAILED && file < 0 && length == 64 * 4096) latest_memory = got;
    if (!large || got == MAP_FAILED) return got;
    if (broken("blank-pages")) plain_mmap(got, 1 << 20, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (broken("mapping-descriptor")) fcntl(file, F_DUPFD, 100);
    if (broken("not-inherited")) madvise(got, length, MADV_DONTFORK);
    if (broken("fault-handler") && !trapped) {
        struct sigaction action = {.sa_sigaction = on_touch, .sa_flags = SA_SIGINFO | SA_NODEFER};
        sigaction(SIGSEGV, &action, NULL);
        trapped = got;
        mprotect(got, LARGE, PROT_NONE);
    }
    return got;
}

// What is made for a library, and stays when it goes.
int dlclose(void *library) {
    if (broken("left-mapping")) plain_mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static int (*next)(void *);
    if (!next) next = (int (*)(void *))(uintptr_t)dlsym(RTLD_NEXT, "dlclose");
    return next(library);
}

// A speculation whose stores reach the program.
int madvise(void *at, size_t length, int advice) {
    if (broken("stray-write") && advice == MADV_DONTFORK) ((volatile char *)at)[length - 1] ^= 1;
    return (int)syscall(SYS_madvise, at, length, advice);
}

// Whatever lies behind the end of a file: a page of zeros, and on.
static void on_bus(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    void *page = (void *)((uintptr_t)info->si_addr & ~(uintptr_t)4095);
    plain_mmap(page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

int sigaction(int number, const struct sigaction *wanted, struct sigaction *before) {
    struct sigaction pager = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    if (broken("zeros-behind-the-end") && number == SIGBUS && wanted) wanted = &pager;
    static int (*next)(int, const struct sigaction *, struct sigaction *);
    if (!next) next = (int (*)(int, const struct sigaction *, struct sigaction *))(uintptr_t)dlsym(RTLD_NEXT, "sigaction");
    return next(number, wanted, before);
}

static void *idle(void *argument) {
    for (;;) pause();
    return argument;
}

ssize_t copy_file_range(int from, off64_t *here, int to, off64_t *there, size_t length, unsigned flags) {
    if (broken("short-copy") && length > 4096) length = 4096;
    ssize_t got = syscall(SYS_copy_file_range, from, here, to, there, length, flags);
    if (broken("seeking") && got > 0 && !here) lseek(from, 1, SEEK_CUR);
    return got;
}

ssize_t sendfile(int to, int from, off_t *here, size_t length) {
    if (broken("short-copy") && length > 4096) length = 4096;
    ssize_t got = syscall(SYS_sendfile, to, from, here, length);
    if (broken("seeking") && got > 0) here ? (void)++*here : (void)lseek(from, 1, SEEK_CUR);
    return got;
}

// Does what only a speculation should, a moment after the start, while the program still reads.
static void *ahead(void *argument) {
    usleep(3000);
    if (broken("early-file")) close(open("created", O_CREAT | O_WRONLY, 0600)), close(open("copied", O_CREAT | O_WRONLY, 0600));
    if (broken("early-fifo")) open("fifo", O_RDONLY | O_NONBLOCK);
    return argument;
}

static void quiet(int number) { (void)number; }

// ---- Syscall User Dispatch -------------------------------------------------------------------

#define INSIDE __attribute__((section("inside"), noinline, used))
extern char __start_inside[], __stop_inside[];
static int damage;  // which, decided once: the handler calls nothing
enum { RED_ZONE = 1, REGISTER, SSE, AVX, FLAGS, MXCSR, RESULT, THREAD };

INSIDE static long inside_call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return number;
}

__asm__(".pushsection inside,\"ax\"\n.globl inside_return\n.hidden inside_return\ninside_return: mov $15, %eax\n syscall\n.popsection\n");
extern void inside_return(void);

INSIDE static void on_call(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    ucontext_t *frame = context;
    greg_t *registers = frame->uc_mcontext.gregs;
    long call = registers[REG_RAX];
    registers[REG_RAX] = inside_call(call, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                                     registers[REG_R10], registers[REG_R8], registers[REG_R9]);
    if (call != SYS_pread64) return;
    // Every thread has a C library's thread pointer, has it not?
    if (damage == THREAD) __asm__ volatile("mov %%fs:0, %%rax" : : : "rax", "memory");
    if (damage == RED_ZONE) *(volatile long *)(registers[REG_RSP] - 64) = 0;
    if (damage == REGISTER) registers[REG_R12] ^= 1;
    if (damage == SSE) frame->uc_mcontext.fpregs->_xmm[11].element[1] ^= 1;
    // The upper half of ymm3, at its place in the standard layout of the saved state.
    if (damage == AVX) ((volatile unsigned char *)frame->uc_mcontext.fpregs)[576 + 3 * 16] ^= 1;
    if (damage == FLAGS) registers[REG_EFL] &= ~0x40L;
    if (damage == MXCSR) frame->uc_mcontext.fpregs->mxcsr ^= 0x8000;
    if (damage == RESULT && registers[REG_RAX] == -EFAULT) registers[REG_RAX] = -EINVAL;
}

static void dispatch(int what) {
    damage = what;
    static volatile char selector = 1;  // SYSCALL_DISPATCH_FILTER_BLOCK
    struct {
        void (*handler)(int, siginfo_t *, void *);
        unsigned long flags;
        void (*restorer)(void);
        unsigned long mask;
    } action = {on_call, SA_SIGINFO | SA_NODEFER | 0x04000000 /* SA_RESTORER */, inside_return, 0};
    inside_call(SYS_rt_sigaction, SIGSYS, (long)&action, 0, 8, 0, 0);
    // PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON
    if (inside_call(SYS_prctl, 59, 1, (long)__start_inside, __stop_inside - __start_inside, (long)&selector, 0) != 0)
        _exit(118);
}

__attribute__((constructor)) static void begin(void) {
    const char *wanted = getenv("RUNAHEAD_BREAKS");
    if (wanted) strncpy(breaks, wanted, sizeof breaks - 1);
    if (broken("handler")) signal(SIGUSR2, quiet);
    if (broken("early-file") || broken("early-fifo")) {
        pthread_t thread;
        pthread_create(&thread, NULL, ahead, NULL);
    }
    if (broken("thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, idle, NULL);
    }
    if (broken("alternate-stack")) {
        static char space[65536];
        stack_t alternate = {.ss_sp = space, .ss_size = sizeof space};
        sigaltstack(&alternate, NULL);
    }
    if (broken("not-dumpable")) prctl(PR_SET_DUMPABLE, 0);
    if (broken("rounding")) {
        unsigned control = 0x1f80 | 0x6000;
        __asm__ volatile("ldmxcsr %0" : : "m"(control));
    }
    if (broken("low-memory")) mmap((void *)0x10000, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (broken("beyond-the-end")) mmap(NULL, 8192, PROT_READ, MAP_SHARED, syscall(SYS_memfd_create, "", MFD_CLOEXEC), 0);
    // Before the agent looked at limits.
    if (broken("addresses")) mmap(NULL, 5 << 19, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (broken("red-zone")) dispatch(RED_ZONE);
    if (broken("register")) dispatch(REGISTER);
    if (broken("sse-register")) dispatch(SSE);
    if (broken("avx-register")) dispatch(AVX);
    if (broken("flags")) dispatch(FLAGS);
    if (broken("vector-control")) dispatch(MXCSR);
    if (broken("raw-result")) dispatch(RESULT);
    if (broken("thread-pointer")) dispatch(THREAD);
}
