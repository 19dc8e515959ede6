// trap: the speculator does for real what the program will only do later
// build: -pthread
// data: cold.bin 4M
// run: fifo
// run: create
// run: unlink
// run: write
// run: copies
// run: kill
// run: pipe
// run: connect
// run: mapping
// run: device
// run: exit
// run: exec
// run: sleep
#include "guest.h"
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/un.h>

// The program reads cold blocks, each of which is a chance to run ahead, then does one thing with an
// effect. A witness, its child, watches all the while and must see nothing before `now` is set.
static struct stage {
    volatile int now, early, ready, done;
} *stage;
static const char *how;
static int ends[2], listener;
static volatile sig_atomic_t struck;
static void on_signal(int number) { (void)number, struck++; }
static struct sockaddr_un address = {AF_UNIX, "witness.socket"};
static volatile char *mapped;

static bool visible(void) {
    if (strcmp(how, "fifo") == 0) {
        // A reader at the other end, even for an instant, lets a writer in.
        int writer = open("fifo", O_WRONLY | O_NONBLOCK);
        if (writer < 0) return false;
        close(writer);
        return true;
    }
    struct stat status;
    if (strcmp(how, "create") == 0) return stat("created", &status) == 0;
    if (strcmp(how, "unlink") == 0) return stat("victim", &status) != 0;
    if (strcmp(how, "copies") == 0) {
        bool made = false;
        for (const char *const *name = (const char *const[]){"copied", "sent", "folder", "link", "again", "moved", NULL}; *name; name++)
            made |= lstat(*name, &status) == 0;
        if (made || lstat("victim", &status) != 0 || lstat("other", &status) != 0) return true;
        return stat("log", &status) != 0 || status.st_size != 3 || status.st_mode != (S_IFREG | 0600) || status.st_nlink != 1 || status.st_mtime == 1;
    }
    if (strcmp(how, "write") == 0) return stat("log", &status) != 0 || status.st_size != 0;
    if (strcmp(how, "kill") == 0) return struck > 0;
    if (strcmp(how, "pipe") == 0 || strcmp(how, "exit") == 0 || strcmp(how, "exec") == 0) {
        char byte;
        return read(ends[0], &byte, 1) >= 0;
    }
    if (strcmp(how, "connect") == 0) return accept(listener, NULL, NULL) >= 0;
    if (strcmp(how, "mapping") == 0) return *mapped != 0;
    return false;
}

static int witness(void) {
    signal(SIGUSR1, on_signal);
    stage->ready = 1;
    while (!stage->done) {
        bool before = !stage->now;
        // The flag is looked at again after the look: what is seen in between belongs to neither.
        if (visible() && before && !stage->now) stage->early++;
        struct timespec rest = {0, 20000};
        nanosleep(&rest, NULL);
    }
    return stage->early ? 9 : 0;
}

static void act(pid_t child) {
    if (strcmp(how, "fifo") == 0) close(open("fifo", O_RDONLY | O_NONBLOCK));
    if (strcmp(how, "create") == 0) close(open("created", O_CREAT | O_EXCL | O_WRONLY, 0600)), mkdir("made", 0700), symlink("x", "linked");
    if (strcmp(how, "unlink") == 0) unlink("victim"), rename("other", "renamed");
    if (strcmp(how, "write") == 0) {
        int log = open("log", O_WRONLY | O_APPEND);
        CHECK(write(log, "x", 1) == 1 && fchmod(log, 0640) == 0 && ftruncate(log, 100) == 0);
        close(log);
    }
    if (strcmp(how, "copies") == 0) {
        int from = open("cold.bin", O_RDONLY), to = open("copied", O_CREAT | O_EXCL | O_WRONLY, 0600);
        int log = open("log", O_WRONLY), emptied = open("log", O_CREAT | O_TRUNC | O_WRONLY, 0600), nameless = open(".", O_TMPFILE | O_RDWR, 0600);
        copy_file_range(from, NULL, to, NULL, 10000, 0);
        copy_file_range(from, NULL, log, NULL, 5000, 0);
        copy_file_range(from, NULL, emptied, NULL, 5000, 0);
        copy_file_range(from, NULL, nameless, NULL, 5000, 0);
        sendfile(creat("sent", 0600), from, NULL, 5000);
        splice(from, NULL, ends[1], NULL, 1, 0);
        mkdir("folder", 0700), symlink("x", "link"), link("log", "again"), rename("other", "moved"), unlink("victim");
        fchmod(log, 0644), chmod("log", 0640), fchown(log, 12, 12), chown("log", 13, 13), truncate("log", 1);
        utimensat(AT_FDCWD, "log", (struct timespec[]){{1, 0}, {1, 0}}, 0), futimens(log, (struct timespec[]){{1, 0}, {1, 0}});
        rmdir("folder"), ftruncate(log, 0), close(log), close(to), close(from), close(emptied), close(nameless);
    }
    if (strcmp(how, "kill") == 0) kill(child, SIGUSR1);
    if (strcmp(how, "pipe") == 0) CHECK(write(ends[1], "x", 1) == 1);
    if (strcmp(how, "connect") == 0) {
        int client = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
        close(client);
    }
    if (strcmp(how, "mapping") == 0) *mapped = 1;
    if (strcmp(how, "device") == 0) {
        // Opening this makes a new pseudo-terminal each time; their number is the kernel's next.
        int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY);
        CHECK(terminal >= 0);
        close(terminal);
    }
    if (strcmp(how, "sleep") == 0) pause_ms(30);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    how = argv[1];
    stage = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(mkfifo("fifo", 0600) == 0);
    close(open("victim", O_CREAT | O_WRONLY, 0600)), close(open("log", O_CREAT | O_WRONLY, 0600));
    close(open("other", O_CREAT | O_WRONLY, 0600));
    if (strcmp(how, "copies") == 0) {
        int log = open("log", O_WRONLY);
        CHECK(write(log, "abc", 3) == 3 && close(log) == 0);
    }
    int file = open("mapped", O_CREAT | O_RDWR, 0600);
    CHECK(ftruncate(file, 4096) == 0);
    mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 5) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        _exit(witness());
    }
    while (!stage->ready) pause_ms(1);
    uint64_t sum = 0;
    for (int round = 0; round < 10; round++) {
        // `round` decides what comes after the reads, and a speculator that takes the data for what
        // they are not takes the other way.
        make_cold("cold.bin");
        sum = sum * 31 + stride("cold.bin", 40) + wander("cold.bin", 40);
        int cold = open("cold.bin", O_RDONLY);
        uint64_t block[512];
        for (int step = 0; step < 40; step++) {
            CHECK(pread(cold, block, sizeof block, (step * 37 + round) % 1000 * 4096L) == sizeof block);
            // Never true of the real data; a page of zeros that stands for data not yet here says yes.
            if (block[0] == 0 && block[100] == 0) act(child);
        }
        close(cold);
    }
    stage->now = 1;
    act(child);
    stage->done = 1;
    printf("sum %016" PRIx64 ", seen early: %d, witness: %d\n", sum, stage->early, exit_status_of(child));
    fflush(stdout);
    CHECK(stage->early == 0);
    if (strcmp(how, "exec") == 0) execl("/bin/echo", "echo", "in another program", (char *)NULL);
    if (strcmp(how, "exit") == 0) exit(0);
}
