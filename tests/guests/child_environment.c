// trap: a changed environment reaches children with additions or in another order
// data: cold.bin 4M
// run: kept
// run: cleared
// run: changed
// run: own-preload
#include "guest.h"

extern char **environ;

int main(int argc, char **argv) {
    CHECK(argc == 2);
    printf("hash %016" PRIx64 ", preload unknown to the program: see below\n", wander("cold.bin", 50));
    if (strcmp(argv[1], "cleared") == 0) clearenv();
    if (strcmp(argv[1], "changed") == 0) {
        setenv("GUEST", "1", 1), putenv("ANOTHER=two words"), unsetenv("HOME");
    }
    if (strcmp(argv[1], "own-preload") == 0) setenv("LD_PRELOAD", "libm.so.6", 1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        // Only LD_PRELOAD and names that begin with RUNAHEAD may differ.
        execl("/bin/sh", "sh", "-c",
              "tr '\\0' '\\n' < /proc/$$/environ | grep -v -e ^LD_PRELOAD= -e ^RUNAHEAD; echo; tr '\\0' '\\n' < /proc/$$/environ | grep -c libm.so.6",
              (char *)NULL);
        _exit(126);
    }
    printf("exit %d\n", exit_status_of(child));
}
