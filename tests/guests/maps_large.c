// trap: where a thread maps a large file its registers and stack are copied, whatever and wherever these are
// build: -O2 -pthread
// run: fails
// run: registers
// run: handlers
// run: threads
// run: vfork
// run: locked
// data: large.bin 9M
// modes: cold warm
#include "guest.h"
#include <pthread.h>
#include <sys/wait.h>

static int file;
enum { LARGE = 9 << 20 };

static void say(const char *what, void *mapped) {
    if (mapped == MAP_FAILED) {
        printf("%s: error %d\n", what, errno);
        return;
    }
    const unsigned char *bytes = mapped;
    printf("%s: %02x %02x\n", what, bytes[0], bytes[LARGE - 1]);
    CHECK(munmap(mapped, LARGE) == 0);
}

static void failing(void) {
    int ends[2], written = open("written", O_WRONLY | O_CREAT, 0600);
    CHECK(pipe(ends) == 0 && written >= 0);
    say("no descriptor", mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE, -1, 0));
    say("a pipe", mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE, ends[0], 0));
    say("only to be written", mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE, written, 0));
    say("written to, read-only", mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    say("within a page", mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE, file, 512));
    say("too much", mmap(NULL, (size_t)1 << 62, PROT_READ, MAP_PRIVATE, file, 0));
    say("neither shared nor private", mmap(NULL, LARGE, PROT_READ, 0, file, 0));
    say("of a folder", mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE, open(".", O_RDONLY), 0));
    say("on its own", mmap((void *)4096, LARGE, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, 0));
    void *there = mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(there != MAP_FAILED);
    say("where something is", mmap(there, LARGE, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, 0));
    void *over = mmap(there, LARGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    CHECK(over == there);
    say("over something", over);
    say("with what is in it", mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0));
    say("nowhere", mmap((void *)-(uintptr_t)4096, LARGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0));
    errno = 77;
    void *well = mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(well != MAP_FAILED && errno == 77 && munmap(well, LARGE) == 0);
}

// The call with each register that it keeps set to something, and the words below the stack pointer in use.
static void with_registers(void) {
    register uint64_t flags __asm__("r10") = MAP_PRIVATE;
    register uint64_t descriptor __asm__("r8") = (uint64_t)file;
    register uint64_t offset __asm__("r9") = 0;
    uint64_t result = SYS_mmap, sum = 0;
    __asm__ volatile(
        "push %%rbp\n push %%rbx\n push %%r12\n push %%r13\n push %%r14\n push %%r15\n"
        "mov $101, %%rbx\n mov $102, %%rbp\n mov $103, %%r12\n"
        "mov $104, %%r13\n mov $105, %%r14\n mov $106, %%r15\n"
        "movq $107, -8(%%rsp)\n movq $108, -120(%%rsp)\n movq %%rbx, %%xmm15\n"
        "syscall\n"
        "movq %%xmm15, %%rcx\n add %%rbx, %%rcx\n imul $3, %%rcx\n add %%rbp, %%rcx\n imul $3, %%rcx\n"
        "add %%r12, %%rcx\n imul $3, %%rcx\n add %%r13, %%rcx\n imul $3, %%rcx\n add %%r14, %%rcx\n"
        "imul $3, %%rcx\n add %%r15, %%rcx\n imul $3, %%rcx\n add -8(%%rsp), %%rcx\n imul $3, %%rcx\n"
        "add -120(%%rsp), %%rcx\n add %%r10, %%rcx\n add %%r8, %%rcx\n add %%r9, %%rcx\n add %%rdi, %%rcx\n"
        "add %%rsi, %%rcx\n add %%rdx, %%rcx\n"
        "pop %%r15\n pop %%r14\n pop %%r13\n pop %%r12\n pop %%rbx\n pop %%rbp\n"
        : "+a"(result), "=&c"(sum), "+r"(flags), "+r"(descriptor), "+r"(offset)
        : "D"(0ul), "S"((uint64_t)LARGE), "d"((uint64_t)PROT_READ)
        : "r11", "xmm15", "memory", "cc");
    printf("registers: %" PRIu64 "\n", sum);
    say("by an instruction of its own", (void *)result);
}

static volatile int handled;
static void handler(int number) {
    void *mapped = mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE, file, 0);
    handled += mapped != MAP_FAILED && munmap(mapped, LARGE) == 0 && number > 0;
}

// Behind the alternate stack there is nothing.
static void in_handlers(void) {
    size_t size = 64 << 10, page = 4096;
    char *stack = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED && munmap(stack + size, page) == 0);
    stack_t alternate = {.ss_sp = stack, .ss_size = size};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    CHECK(sigaltstack(&alternate, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    for (int round = 0; round < 20; round++) CHECK(raise(SIGUSR1) == 0);
    printf("handlers: %d\n", handled);
    stack_t none = {.ss_flags = SS_DISABLE};
    CHECK(sigaltstack(&none, NULL) == 0 && munmap(stack, size) == 0);
}

static void *in_thread(void *sum) {
    for (int round = 0; round < 50; round++) {
        volatile const unsigned char *mapped = mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE, file, 0);
        CHECK(mapped != MAP_FAILED);
        *(uint64_t *)sum = *(uint64_t *)sum * 31 + mapped[round * 65536];
        CHECK(munmap((void *)mapped, LARGE) == 0);
    }
    return sum;
}

static void in_threads(void) {
    pthread_t threads[4];
    uint64_t sums[4] = {0};
    for (int at = 0; at < 4; at++) CHECK(pthread_create(&threads[at], NULL, in_thread, &sums[at]) == 0);
    for (int at = 0; at < 4; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
        printf("thread: %016" PRIx64 "\n", sums[at]);
    }
}

static void in_a_child(void) {
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        void *mapped = mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE, file, 0);
        _exit(mapped != MAP_FAILED && munmap(mapped, LARGE) == 0 ? 3 : 4);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("a child of vfork: %x\n", status);
}

// The first such call is the one that is copied, so each has a run.
int main(int count, char **arguments) {
    CHECK(count == 2);
    const char *way = arguments[1];
    file = open("large.bin", O_RDONLY);
    CHECK(file >= 0);
    if (!strcmp(way, "fails")) failing();
    if (!strcmp(way, "registers")) with_registers();
    if (!strcmp(way, "handlers")) in_handlers();
    if (!strcmp(way, "threads")) in_threads();
    if (!strcmp(way, "vfork")) in_a_child();
    if (!strcmp(way, "locked")) {
        // What is locked is read by the call.
        void *locked = mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE | MAP_LOCKED, file, 0);
        if (locked != MAP_FAILED) CHECK(munmap(locked, LARGE) == 0);
    }
    with_registers();
    in_handlers();
    describe_onlookers();
    return 0;
}
