// trap: functions of the C library that are written over at their beginning by a jump of 14 bytes, while a copy of what stood there is called
// build: -O2
// loaded: a static program's functions have no names
// glibc: musl's functions are not written over by anybody who was met
// data: cold.bin 4M
// run: 14
// run: 13
// run: 14 children
// run: 14 advice
#include "guest.h"
#include <dirent.h>
#include <dlfcn.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/sendfile.h>

// One function: what stood at its beginning, where its copy is, and how often that was called.
struct hook {
    const char *name;
    unsigned char *function, *entry;
    unsigned char before[16];
    uint64_t *count;
};

static struct hook hooks[] = {
    {.name = "rename"},      {.name = "renameat"},  {.name = "renameat2"}, {.name = "unlink"},
    {.name = "unlinkat"},    {.name = "rmdir"},     {.name = "chroot"},    {.name = "umount2"},
    {.name = "pivot_root"},  {.name = "dup2"},      {.name = "dup3"},      {.name = "close_range"},
    {.name = "munmap"},      {.name = "mprotect"},  {.name = "madvise"},   {.name = "posix_madvise"},
    {.name = "mmap"},        {.name = "statx"},     {.name = "fstatat"},   {.name = "sendfile"},
    {.name = "read"},        {.name = "readv"},     {.name = "pread"},     {.name = "preadv"},
    {.name = "close"},       {.name = "splice"},    {.name = "brk"},       {.name = "copy_file_range"},
    {.name = "getdents64"},  {.name = "setns"},     {.name = "unshare"},   {.name = "inotify_add_watch"},
    {.name = "setfsuid"},    {.name = "setfsgid"},  {.name = "capset"},    {.name = "prctl"},
    {.name = "fanotify_mark"}, {.name = "open"},    {.name = "openat"},    {.name = "stat"},
};
enum { HOOKS = sizeof hooks / sizeof *hooks, ROOM = 256 };

static unsigned char *put(unsigned char *to, const void *bytes, size_t length) {
    return (unsigned char *)memcpy(to, bytes, length) + length;
}

// jmp [rip]; the address
static unsigned char *put_jump(unsigned char *to, const unsigned char *target) {
    uint64_t address = (uint64_t)target;
    return put(put(to, "\xff\x25\0\0\0\0", 6), &address, sizeof address);
}

static int32_t distance_at(const unsigned char *place) {
    int32_t distance;
    memcpy(&distance, place, sizeof distance);
    return distance;
}

// Copies instructions of the function until `length` bytes of it are copied, to where they do the same. NULL:
// one is not known.
static unsigned char *copy(unsigned char *to, const unsigned char *from, size_t length) {
    const unsigned char *at = from;
    while (at < from + length) {
        const unsigned char *code = at;
        bool wide = (*code & 0xf0) == 0x40;
        size_t prefix = wide, bytes = 0, operand = 0;
        code += prefix;
        if (code[0] == 0xe9) return put_jump(to, code + 5 + distance_at(code + 1));
        if (code[0] == 0xeb) return put_jump(to, code + 2 + (signed char)code[1]);
        if (code[0] == 0xc3) return put(to, code, 1);
        bool near = code[0] == 0x0f && (code[1] & 0xf0) == 0x80;
        if ((code[0] & 0xf0) == 0x70 || near) {
            unsigned char over[2] = {(unsigned char)(0x70 | ((near ? code[1] : code[0]) & 0xf)) ^ 1, 14};
            at = code + (near ? 6 : 2);
            to = put_jump(put(to, over, 2), at + (near ? distance_at(code + 2) : (signed char)code[1]));
            continue;
        }
        if (memcmp(code, "\xf3\x0f\x1e\xfa", 4) == 0) bytes = 4;                // endbr64
        else if (code[0] == 0xb8 || code[0] == 0x3d) bytes = 5;                 // mov, cmp
        else if (code[0] == 0x0f && code[1] == 0x05) bytes = 2;                 // syscall
        else if (code[0] == 0xf7 && code[1] == 0xd8) bytes = 2;                 // neg
        else if (strchr("\x89\x8b\x31\x85\x39", code[0]) && code[1] >= 0xc0) bytes = 2;
        else if (code[0] == 0x0f && (code[1] & 0xf0) == 0x40 && code[2] >= 0xc0) bytes = 3; // cmov
        else if (code[0] == 0x8b && (code[1] & 0xc7) == 5) bytes = 6, operand = 2;
        else if (code[0] == 0x83 && code[1] >= 0xc0) bytes = 3;                 // cmp
        else if (code[0] == 0xf7 && code[1] >= 0xc0 && code[1] < 0xc8) bytes = 6; // test
        else if (memcmp(code, "\x64\x8b\x04\x25", 4) == 0) bytes = 8;          // mov of the thread's own
        else if (code[0] == 0x80 && code[1] == 0x3d) bytes = 7, operand = 2;
        else return NULL;
        unsigned char *copied = to;
        to = put(to, at, prefix + bytes);
        if (operand != 0) {
            int64_t distance = distance_at(code + operand) + (at - copied);
            int32_t near_distance = (int32_t)distance;
            CHECK(near_distance == distance);
            put(copied + prefix + operand, &near_distance, sizeof near_distance);
        }
        at = code + bytes;
    }
    return put_jump(to, at);
}

static void protect(unsigned char *place, int protection) {
    uintptr_t page = (uintptr_t)place & ~(uintptr_t)4095;
    CHECK(raw6(SYS_mprotect, (long)page, 8192, protection, 0, 0, 0) == 0);
}

// Memory for the copies, near the library, so that what names its data by distance still can.
static unsigned char *near_room(size_t bytes) {
    uintptr_t library = (uintptr_t)dlsym(RTLD_DEFAULT, "rename") & ~(uintptr_t)4095;
    for (uintptr_t far = 64 << 20; far < (uintptr_t)1 << 30; far += 1 << 20) {
        long place = raw6(SYS_mmap, (long)(library - far), (long)bytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (place == (long)(library - far)) return (unsigned char *)place;
        if (place > 0) CHECK(raw6(SYS_munmap, place, (long)bytes, 0, 0, 0, 0) == 0);
    }
    CHECK(!"room near the library");
    return NULL;
}

static void hook_all(size_t length) {
    unsigned char *room = near_room(HOOKS * ROOM);
    for (struct hook *hook = hooks; hook < hooks + HOOKS; hook++, room += ROOM) {
        hook->function = dlsym(RTLD_DEFAULT, hook->name);
        if (hook->function == NULL) continue;
        hook->count = (uint64_t *)room;
        hook->entry = room + sizeof *hook->count;
        const int32_t back = -(int32_t)(sizeof *hook->count + 7);
        unsigned char *code = put(put(hook->entry, "\x48\xff\x05", 3), &back, sizeof back); // inc [count]
        if (copy(code, hook->function, length) == NULL) {
            hook->function = NULL;
            continue;
        }
        memcpy(hook->before, hook->function, length);
    }
    for (struct hook *hook = hooks; hook < hooks + HOOKS; hook++) {
        if (hook->function == NULL) continue;
        protect(hook->function, PROT_READ | PROT_WRITE | PROT_EXEC);
        if (length == 14) {
            put_jump(hook->function, hook->entry);
        } else {
            uint64_t address = (uint64_t)hook->entry; // mov r11, address; jmp r11
            put(put(put(hook->function, "\x49\xbb", 2), &address, sizeof address), "\x41\xff\xe3", 3);
        }
        protect(hook->function, PROT_READ | PROT_EXEC);
    }
}

static void unhook_all(size_t length) {
    for (struct hook *hook = hooks; hook < hooks + HOOKS; hook++) {
        if (hook->function == NULL) continue;
        protect(hook->function, PROT_READ | PROT_WRITE | PROT_EXEC);
        memcpy(hook->function, hook->before, length);
        protect(hook->function, PROT_READ | PROT_EXEC);
    }
}

#define SHOW(call)                                                          \
    do {                                                                    \
        errno = 0;                                                          \
        long shown = (long)(call);                                          \
        printf("%s: %ld, errno %d\n", #call, shown, errno);                 \
    } while (0)

static void *volatile nowhere = (void *)8;

static void read_all(void) {
    static char block[8192];
    int file = open("cold.bin", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    uint64_t sum = 0;
    for (int round = 0; round < 120; round++) {
        struct iovec piece = {block, sizeof block / 2};
        CHECK(read(file, block, sizeof block) == sizeof block);
        sum = sum * 31 + hash_bytes(block, sizeof block);
        CHECK(readv(file, &piece, 1) == sizeof block / 2);
        sum = sum * 31 + hash_bytes(block, sizeof block);
        CHECK(pread(file, block, 512, round * 7919 % 8000 * 512) == 512);
        sum = sum * 31 + hash_bytes(block, 512);
        CHECK(preadv(file, &piece, 1, round * 104729 % 900 * 4096) == sizeof block / 2);
        sum = sum * 31 + hash_bytes(block, sizeof block);
    }
    printf("read: %" PRIx64 "\n", sum);
    SHOW(read(file, nowhere, 16));
    SHOW(read(-1, block, 16));
    SHOW(pread(file, block, 16, -1));
    SHOW(close(file));
    SHOW(close(file));
}

static void names(void) {
    struct stat status;
    struct statx more;
    char room[4096];
    SHOW(open("made", O_CREAT | O_WRONLY | O_CLOEXEC, 0600) >= 0);
    SHOW(rename("made", "moved"));
    SHOW(rename("made", "moved"));
    SHOW(renameat(AT_FDCWD, "moved", AT_FDCWD, "made"));
    SHOW(renameat2(AT_FDCWD, "made", AT_FDCWD, "moved", 0));
    SHOW(stat("moved", &status));
    SHOW(stat("made", &status));
    SHOW(fstatat(AT_FDCWD, "moved", &status, 0));
    SHOW(fstatat(AT_FDCWD, "made", &status, AT_SYMLINK_NOFOLLOW));
    SHOW(statx(AT_FDCWD, "moved", 0, STATX_BASIC_STATS, &more));
    SHOW(statx(AT_FDCWD, "made", 0, STATX_BASIC_STATS, &more));
    SHOW(unlink("moved"));
    SHOW(unlink("moved"));
    SHOW(unlinkat(AT_FDCWD, "moved", 0));
    SHOW(mkdir("folder", 0700));
    int folder = open("folder", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    SHOW(getdents64(folder, room, sizeof room) > 0);
    SHOW(getdents64(-1, room, sizeof room));
    SHOW(rmdir("folder"));
    SHOW(rmdir("folder"));
    SHOW(getdents64(folder, room, sizeof room));
    SHOW(close(folder));
    SHOW(umount2("missing", 0) == -1);
    SHOW(inotify_add_watch(-1, ".", IN_CREATE));
}

static void memory(void) {
    char *place = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    SHOW(mprotect(place, 4096, PROT_READ));
    SHOW(madvise(place + 4096, 4096, MADV_DONTNEED));
    SHOW(madvise(place + 1, 4096, MADV_DONTNEED));
    SHOW(posix_madvise(place + 4096, 4096, POSIX_MADV_WILLNEED));
    SHOW(posix_madvise(place + 1, 4096, POSIX_MADV_WILLNEED));
    SHOW(mprotect(place + 1, 4096, PROT_READ));
    SHOW(munmap(place, 16384));
    SHOW(munmap(place + 1, 16384));
    SHOW(sbrk(1 << 20) != (void *)-1);
    SHOW(sbrk(-(1 << 20)) != (void *)-1);
}

static void descriptors(void) {
    int ends[2];
    loff_t at = 4096;
    CHECK(pipe(ends) == 0);
    int file = open("cold.bin", O_RDONLY | O_CLOEXEC);
    int target = open("target", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    SHOW(sendfile(target, file, &at, 8192));
    SHOW(sendfile(target, -1, &at, 8192));
    SHOW(splice(file, &at, ends[1], NULL, 4096, 0));
    SHOW(splice(-1, &at, ends[1], NULL, 4096, 0));
    SHOW(copy_file_range(file, &at, target, NULL, 4096, 0));
    SHOW(copy_file_range(-1, &at, target, NULL, 4096, 0));
    SHOW(dup2(file, 50));
    SHOW(dup2(-1, 50));
    SHOW(dup3(file, 51, O_CLOEXEC));
    SHOW(dup3(file, file, 0));
    SHOW(close_range(50, 51, 0));
    SHOW(close_range(51, 50, 0));
    SHOW(read(50, &at, 1));
    SHOW(close(file) | close(target) | close(ends[0]) | close(ends[1]));
}

static void rights(void) {
    SHOW(setfsuid((uid_t)-1) == (int)geteuid());
    SHOW(setfsgid((gid_t)-1) == (int)getegid());
    SHOW(setns(-1, 0));
    SHOW(unshare(-1));
    SHOW(chroot("missing"));
    SHOW(raw6(SYS_getpid, 0, 0, 0, 0, 0, 0) == getpid());
}

static void all(void) {
    read_all();
    names();
    memory();
    descriptors();
}

// Does something to all memory that there is, Runahead's as well, that changes nothing.
static void advise(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    uintptr_t start, end;
    while (fscanf(maps, "%" SCNxPTR "-%" SCNxPTR "%*[^\n]", &start, &end) == 2) {
        if (start < (uintptr_t)1 << 47) madvise((void *)start, end - start, MADV_NORMAL);
    }
    fclose(maps);
}

int main(int argc, char **argv) {
    size_t length = (size_t)atoi(argv[1]);
    setvbuf(stdout, NULL, _IONBF, 0);
    wander("cold.bin", 50);
    hook_all(length);
    all();
    if (argc > 2 && strcmp(argv[2], "advice") == 0) {
        advise();
        all();
    } else if (argc > 2) {
        for (int child = 0; child < 3; child++) {
            pid_t pid = fork();
            CHECK(pid >= 0);
            if (pid == 0) {
                all();
                rights();
                _exit(7);
            }
            int status;
            CHECK(waitpid(pid, &status, 0) == pid);
            printf("child: %d\n", status);
        }
    }
    rights();
    all();
    unhook_all(length);
    all();
    int counted = 0;
    for (struct hook *hook = hooks; hook < hooks + HOOKS; hook++) {
        if (hook->function == NULL) printf("%s: left alone\n", hook->name);
        else counted += *hook->count != 0;
    }
    printf("%d hooks were called\n", counted);
    return 0;
}
