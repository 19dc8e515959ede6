// trap: a child of vfork that goes elsewhere cannot take the agent out of its parent's environment, and its loader complains
// needs: root
// needs: header linux/landlock.h
// data: cold.bin 4M
// run: root
// run: landlock
// run: user-namespace
#include "guest.h"
#include <linux/landlock.h>
#include <sched.h>
#include <sys/prctl.h>

extern char **environ;

static void copy(const char *from, const char *to) {
    static char block[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    CHECK(in >= 0 && out >= 0);
    for (ssize_t got; (got = read(in, block, sizeof block)) > 0;) CHECK(write(out, block, (size_t)got) == got);
    CHECK(close(in) == 0 && close(out) == 0);
}

// A root with one program in it.
static void make_root(void) {
    CHECK(mkdir("inside", 0755) == 0 && mkdir("inside/lib64", 0755) == 0);
    copy("/bin/cat", "inside/cat");
    copy("/lib64/ld-linux-x86-64.so.2", "inside/lib64/ld-linux-x86-64.so.2");
    copy("/lib/x86_64-linux-gnu/libc.so.6", "inside/lib64/libc.so.6");
    int text = open("inside/text", O_WRONLY | O_CREAT, 0644);
    CHECK(write(text, "inside\n", 7) == 7 && close(text) == 0);
}

// Which files may be read and executed: those of the system, and here. Not the agent's.
static int ruleset(void) {
    struct landlock_ruleset_attr what = {.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_EXECUTE};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &what, sizeof what, 0);
    if (rules < 0) return -1;
    const char *open_to[] = {"/usr", "/etc", "."};
    for (int at = 0; at < 3; at++) {
        struct landlock_path_beneath_attr beneath = {what.handled_access_fs, open(open_to[at], O_RDONLY | O_DIRECTORY)};
        CHECK(syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) == 0);
        CHECK(close(beneath.parent_fd) == 0);
    }
    return rules;
}

// Volatile: the child's writes are the parent's.
static volatile int rules = -1;

static int spawn(const char *where, int is_failing) {
    pid_t child = vfork();
    if (child == 0) {
        const char *path = "/usr/bin/cat", *text = "text";
        if (strcmp(where, "root") == 0) {
            if (chroot("inside") != 0 || chdir("/") != 0) _exit(90);
            path = "/cat";
        } else if (strcmp(where, "landlock") == 0) {
            if (syscall(SYS_landlock_restrict_self, rules, 0) != 0) _exit(91);
        } else if (syscall(SYS_unshare, CLONE_NEWUSER) != 0)
            _exit(92);
        // It comes back, and the registers are as they were.
        if (is_failing && (execl("/nowhere", "nowhere", (char *)NULL) != -1 || errno != ENOENT)) _exit(93);
        execle(path, "cat", text, (char *)NULL, environ);
        _exit(94);
    }
    return exit_status_of(child);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    setbuf(stdout, NULL);
    make_root();
    copy("inside/text", "text");
    if (strcmp(argv[1], "landlock") == 0 && (rules = ruleset()) < 0) {
        printf("no landlock here\n");
        return 0;
    }
    // Before it is attached, and after; more often than there are places for such.
    for (int round = 0; round < 2; round++) {
        for (int time = 0; time < 12; time++) printf("%d\n", spawn(argv[1], time % 3 == 2));
        make_cold("cold.bin");
        printf("hash %016" PRIx64 "\n", wander("cold.bin", 200));
    }
    // The parent is where it was.
    pid_t child = fork();
    if (child == 0) execl("/usr/bin/cksum", "cksum", "cold.bin", (char *)NULL);
    printf("%d\n", exit_status_of(child));
    // By itself, with the right to do so without giving up others first.
    if (rules >= 0) {
        CHECK(syscall(SYS_landlock_restrict_self, rules, 0) == 0);
        execl("/usr/bin/cat", "cat", "text", (char *)NULL);
        return 1;
    }
}
