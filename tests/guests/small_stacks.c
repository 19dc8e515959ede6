// trap: a stack of 512 to 2048 bytes that ends in other objects: what runs in a call has no room there
// build: -Wl,-z,now -fno-stack-protector
// data: cold.bin 16M
// data: large.bin 9M
// run: 512
// run: 1024
// run: 2048
#include "guest.h"
#include <dirent.h>
#include <sys/prctl.h>

// The guard is what somebody else keeps below the stack. It is larger than what anybody takes.
enum { GUARD = 64 << 10, LARGEST = 2048, PATTERN = 0x5a };
static struct {
    unsigned char guard[GUARD];
    unsigned char stack[LARGEST];
} room __attribute__((aligned(64)));

static int file, folder, large;
static int at;
static long failed;
static char block[4096], other[4096];

// Runs `action` with the stack pointer at the end of `size` bytes; nothing else of C's is there.
static void run_on(size_t size, void (*action)(void)) {
    unsigned char *top = room.stack + size;
    __asm__ volatile("mov %%rsp, %%rbx\n mov %0, %%rsp\n call *%1\n mov %%rbx, %%rsp\n"
                     :
                     : "r"((uintptr_t)top & ~(uintptr_t)15), "r"(action)
                     : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}

static long place(void) { return at * 7919 % 4000 * 4096L; }

static void do_read(void) { failed += read(file, block, 64) != 64; }
static void do_pread(void) { failed += pread(file, block, 100, place()) != 100; }
static struct iovec pieces[2] = {{block, 64}, {other, 64}};
static void do_readv(void) { failed += readv(file, pieces, 2) != 128; }
static void do_preadv(void) { failed += preadv(file, pieces, 2, place()) != 128; }
static struct stat status;
static void do_stat(void) { failed += stat("cold.bin", &status) != 0; }
static void do_absent(void) { failed += stat("absent/absent", &status) == 0; }
static void do_list(void) { failed += getdents64(folder, (void *)block, sizeof block) < 0; }
static void do_map(void) {
    void *made = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    failed += made == MAP_FAILED || munmap(made, 65536) != 0;
}
static void do_map_large(void) {
    void *made = mmap(NULL, 9 << 20, PROT_READ, MAP_PRIVATE, large, 0);
    failed += made == MAP_FAILED || munmap(made, 9 << 20) != 0;
}
static int library;
static void do_map_code(void) {
    void *made = mmap(NULL, 65536, PROT_READ | PROT_EXEC, MAP_PRIVATE, library, 0);
    failed += made == MAP_FAILED || munmap(made, 65536) != 0;
}
static void do_close(void) {
    int again = open("cold.bin", O_RDONLY);
    failed += again < 0 || read(again, block, 64) != 64 || close(again) != 0;
}
static stack_t none = {.ss_flags = SS_DISABLE};
static void do_alternate(void) { failed += sigaltstack(&none, NULL) != 0; }
#ifdef __GLIBC__
static void do_heap(void) { failed += sbrk(4096) == (void *)-1; }
#else // moves no break
static void do_heap(void) { failed += sbrk(0) == (void *)-1; }
#endif
static void do_name(void) { failed += prctl(PR_GET_DUMPABLE) < 0; }

static const struct {
    const char *name;
    void (*action)(void);
} kinds[] = {{"read", do_read},           {"pread", do_pread},   {"readv", do_readv},
             {"preadv", do_preadv},       {"stat", do_stat},     {"stat of nothing", do_absent},
             {"getdents", do_list},       {"mmap", do_map},      {"mmap of a file", do_map_large},
             {"mmap of code", do_map_code}, {"close", do_close}, {"sigaltstack", do_alternate},
             {"brk", do_heap},            {"prctl", do_name}};

int main(int argc, char **argv) {
    CHECK(argc == 2);
    size_t size = (size_t)atoi(argv[1]), all = 0;
    file = open("cold.bin", O_RDONLY);
    folder = open(".", O_RDONLY | O_DIRECTORY);
    large = open("large.bin", O_RDONLY);
    library = open("/proc/self/exe", O_RDONLY);
    CHECK(file >= 0 && folder >= 0 && large >= 0 && library >= 0);
    CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) == 0);
    for (int round = 0; round < 3; round++) {
        for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
            memset(&room, PATTERN, sizeof room);
            failed = 0;
            // Cold, so that some of it waits; then what was just read, so that some does not.
            make_cold("cold.bin");
            for (int step = 0; step < 140; step++) {
                at = round * 977 + (int)kind * 131 + step % 70;
                CHECK(lseek(file, place(), SEEK_SET) >= 0);
                if (step % 10 == 0) CHECK(lseek(folder, 0, SEEK_SET) == 0);
                run_on(size, kinds[kind].action);
            }
            size_t changed = 0;
            for (size_t byte = 0; byte < GUARD; byte++) changed += room.guard[byte] != PATTERN;
            if (changed > 0 || failed > 0)
                dprintf(1, "%s: %zu bytes below the stack changed, %ld calls failed\n", kinds[kind].name, changed,
                       failed);
            all += changed + (size_t)failed;
        }
    }
    dprintf(1, "%zu bytes, overwritten below the stack: %zu\n", size, all);
    CHECK(all == 0);
}
