// trap: a program to which orphans come back finds a child that it has not started, and waits for it for ever
// data: cold.bin 4M
// around: {here}/reaper become
// run: waits
// run: orphans
// run: executes
#include "guest.h"
#include <sys/prctl.h>

static void nobody(const char *when) {
    int status = -1;
    siginfo_t info;
    memset(&info, 0, sizeof info);
    errno = 0;
    pid_t found = waitpid(-1, &status, WNOHANG);
    printf("%s: without waiting %d, %s\n", when, found, strerror(errno));
    errno = 0;
    int asked = waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG);
    printf("%s: waitid %d, %s\n", when, asked, strerror(errno));
    errno = 0;
    found = waitpid(0, &status, WNOHANG);
    printf("%s: of the group %d, %s\n", when, found, strerror(errno));
    int count = 0;
    while (wait(NULL) > 0) count++;
    printf("%s: waited for %d, %s\n", when, count, strerror(errno));
}

static volatile sig_atomic_t told;
static void tell(int signal) { (void)signal, told++; }

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    if (strcmp(argv[1], "become") == 0) {
        // The first process of a pid namespace is one without this.
        if (getpid() != 1) CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
        execvp(argv[2], argv + 2);
        return 127;
    }
    setbuf(stdout, NULL);
    signal(SIGCHLD, tell);
    nobody("at the start");
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 200));
    nobody("after reads");
    if (strcmp(argv[1], "orphans") == 0) {
        // Orphans of its own come back.
        for (int step = 0; step < 3; step++) {
            pid_t child = fork();
            if (child == 0) {
                if (fork() == 0) {
                    make_cold("cold.bin");
                    uint64_t hash = wander("cold.bin", 100);
                    _exit(hash % 7 + 1);
                }
                _exit(0);
            }
        }
        int count = 0, status, sum = 0;
        while (wait(&status) > 0) count++, sum += WEXITSTATUS(status);
        printf("%d came, %d\n", count, sum);
        nobody("after orphans");
    }
    if (strcmp(argv[1], "executes") == 0) {
        make_cold("cold.bin");
        execl("/proc/self/exe", argv[0], "waits", (char *)NULL);
    }
    signal(SIGCHLD, SIG_IGN);
    make_cold("cold.bin");
    printf("hash %016" PRIx64 "\n", stride("cold.bin", 200));
    nobody("with the signal ignored");
    printf("told %d\n", strcmp(argv[1], "orphans") == 0 ? told > 0 : told);
}
