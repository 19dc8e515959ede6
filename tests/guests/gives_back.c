// trap: something of Runahead's still holds what the program has just given back: space, or a file system
// needs: root
// needs: command mkfs.ext4
// needs: command unshare
// needs: file /dev/loop-control
// around: unshare --mount --propagation private
// run: space
// run: nameless
// run: replaced
// run: umount
// run: child
// run: exec
// run: left
// run: stopped
// timeout: 120
#include "guest.h"
#include <dirent.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

enum { MEGABYTE = 1 << 20, LARGE = 24 * MEGABYTE, FILES = 150, ROUNDS = 5 };

static void run(const char *command) {
    int status = system(command);
    if (status != 0) dprintf(2, "%s: %d\n", command, status);
    CHECK(status == 0);
}

// Nothing of it is in any cache, so that reads wait.
static void mount_disk(void) {
    make_cold("disk.img");
    run("mount -o loop disk.img disk");
}

// A file system of 40 MB.
static void make_disk(void) {
    CHECK(mkdir("disk", 0755) == 0);
    run("truncate -s 40M disk.img && mkfs.ext4 -q -F -m 0 disk.img");
    mount_disk();
}

static void fill(const char *path, int bytes) {
    static char block[MEGABYTE];
    for (size_t at = 0; at < sizeof block; at++) block[at] = (char)(at * 7 + at / 251);
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    CHECK(file >= 0);
    for (int left = bytes; left > 0; left -= MEGABYTE) {
        int part = left < MEGABYTE ? left : MEGABYTE;
        CHECK(write(file, block, (size_t)part) == part);
    }
    CHECK(close(file) == 0);
    make_cold(path);
}

static void remove_disk(void) { CHECK(umount("disk") == 0 && rmdir("disk") == 0 && unlink("disk.img") == 0); }

static bool has_room(void) {
    struct statvfs status;
    CHECK(statvfs("disk", &status) == 0);
    return status.f_bfree * status.f_bsize > LARGE;
}

// Cold places of the file, which can be computed ahead.
static uint64_t read_places(int file, uint64_t seed) {
    uint64_t sum = 0;
    CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) == 0);
    for (int step = 0; step < 200; step++) {
        uint64_t block[512];
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        CHECK(pread(file, block, sizeof block, (off_t)((seed >> 20) % (LARGE / 4096) * 4096)) == sizeof block);
        sum += block[seed % 512];
    }
    return sum;
}

static void space(const char *kind) {
    for (int round = 0; round < ROUNDS; round++) {
        fill("disk/large", LARGE);
        int file = open("disk/large", O_RDONLY | O_CLOEXEC);
        CHECK(file >= 0);
        bool nameless = strcmp(kind, "nameless") == 0;
        if (nameless) CHECK(unlink("disk/large") == 0);
        uint64_t sum = read_places(file, (uint64_t)round);
        CHECK(close(file) == 0);
        if (strcmp(kind, "replaced") == 0) {
            fill("disk/small", 4096);
            CHECK(rename("disk/small", "disk/large") == 0);
        } else if (!nameless)
            CHECK(unlink("disk/large") == 0);
        printf("round %d: sum %" PRIu64 ", the space is %s\n", round, sum, has_room() ? "back" : "not back");
        fflush(stdout);
    }
}

static void read_files(bool close_them) {
    for (int number = 0; number < FILES; number++) {
        char path[32], block[3000];
        snprintf(path, sizeof path, "disk/file%d", number);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(file >= 0);
        while (read(file, block, sizeof block) > 0)
            ;
        if (close_them) CHECK(close(file) == 0);
    }
}

// Whether a link of /proc leads to the disk.
static bool is_on_disk(const char *link) {
    static char here[4096], there[4096];
    CHECK(getcwd(here, sizeof here - 6) != NULL);
    strcat(here, "/disk/");
    ssize_t length = readlink(link, there, sizeof there - 1);
    there[length > 0 ? length : 0] = 0;
    return strncmp(there, here, strlen(here)) == 0;
}

// Whether it is one that runs ahead.
static bool is_speculator(pid_t id) {
    char path[64], name[16] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", id);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t length = read(file, name, sizeof name - 1);
    CHECK(close(file) == 0);
    return length > 0 && strncmp(name, "runahead-specul", 15) == 0;
}

// Stops whoever runs ahead and has something open there, as if all others went first.
static void stop_others(void) {
    DIR *processes = opendir("/proc");
    CHECK(processes != NULL);
    for (struct dirent *process; (process = readdir(processes)) != NULL;) {
        pid_t id = atoi(process->d_name);
        char path[300];
        snprintf(path, sizeof path, "/proc/%d/fd", id);
        DIR *open = id > 0 && is_speculator(id) ? opendir(path) : NULL;
        for (struct dirent *file; open != NULL && (file = readdir(open)) != NULL;) {
            snprintf(path, sizeof path, "/proc/%d/fd/%.20s", id, file->d_name);
            if (is_on_disk(path)) CHECK(kill(id, SIGSTOP) == 0 || errno == ESRCH);
        }
        if (open != NULL) CHECK(closedir(open) == 0);
    }
    CHECK(closedir(processes) == 0);
}

static void unmount(const char *kind, int round) {
    int failed;
    if (strcmp(kind, "child") == 0)
        failed = system("umount disk") != 0 ? EBUSY : 0;
    else
        failed = umount("disk") != 0 ? errno : 0;
    printf("round %d: unmounted, %s\n", round, failed == EBUSY ? "busy" : failed ? "failed" : "at once");
    fflush(stdout);
    if (failed) CHECK(umount2("disk", MNT_DETACH) == 0);
    mount_disk();
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    const char *kind = argv[1];
    if (argc == 3) {
        unmount(kind, 0);
        remove_disk();
        return 0;
    }
    make_disk();
    if (strcmp(kind, "space") == 0 || strcmp(kind, "nameless") == 0 || strcmp(kind, "replaced") == 0) {
        space(kind);
        remove_disk();
        return 0;
    }
    for (int number = 0; number < FILES; number++) {
        char path[32];
        snprintf(path, sizeof path, "disk/file%d", number);
        fill(path, 20000);
    }
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(umount("disk") == 0);
        mount_disk();
        bool is_left = strcmp(kind, "left") == 0, executes = is_left || strcmp(kind, "exec") == 0;
        bool keeps = executes || strcmp(kind, "stopped") == 0;
        read_files(!keeps);
        if (is_left) {
            // Nobody asks for what is given back from then on.
            stop_others();
            CHECK(setenv("RUNAHEAD", "off", 1) == 0);
        }
        if (executes) {
            // All of them are open, until that.
            execl("/proc/self/exe", argv[0], kind, "after", NULL);
            CHECK(!"exec came back");
        }
        if (strcmp(kind, "stopped") == 0) {
            stop_others();
            CHECK(syscall(SYS_close_range, 3, ~0u, 0) == 0);
        }
        unmount(kind, round);
    }
    remove_disk();
}
