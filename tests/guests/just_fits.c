// trap: arguments for which there is just room have none beside the variables that name the agent
// run: many
// run: few
#include "guest.h"
#include <sys/resource.h>

enum { ARGUMENTS = 40 };

// What this program was started with, without what Runahead has put there and what a shell says of its
// command.
static char *own[256];

static int executes(char **arguments, int by_vfork) {
    pid_t child = by_vfork ? vfork() : fork();
    if (child == 0) {
        execve("/proc/self/exe", arguments, environ);
        _exit(errno == E2BIG ? 8 : 9);
    }
    return exit_status_of(child);
}

int main(int argc, char **argv) {
    if (argc > 2) return 7;
    CHECK(argc == 2);
    int count = strcmp(argv[1], "many") == 0 ? ARGUMENTS : 3;
    // Fewer arguments than many are too long only where there is little room for the stack.
    struct rlimit stack;
    CHECK(getrlimit(RLIMIT_STACK, &stack) == 0);
    stack.rlim_cur = count == 3 ? 256 << 10 : 1 << 20;
    CHECK(setrlimit(RLIMIT_STACK, &stack) == 0);
    // Runahead's two come first, if they are there; the program adds two of its own of any length.
    int kept = 0;
    for (char **entry = environ; *entry && kept < 255; entry++)
        if (strncmp(*entry, "RUNAHEAD_SESSION=", 17) == 0 || strncmp(*entry, "LD_PRELOAD=", 11) == 0) own[kept++] = *entry;
    own[kept++] = "OWN=1";
    environ = own;
    for (int by_vfork = 0; by_vfork < 2; by_vfork++) {
        char *arguments[ARGUMENTS + 1] = {"just_fits", NULL};
        static char text[ARGUMENTS][1 << 17];
        int least = 1, most = (1 << 17) - 1;
        while (least < most) {
            int middle = (least + most + 1) / 2;
            for (int at = 1; at < count; at++) {
                // The last one decides to the byte.
                memset(text[at], 'a', (size_t)middle);
                text[at][middle] = 0;
                arguments[at] = text[at];
            }
            arguments[count] = NULL;
            int status = executes(arguments, by_vfork);
            CHECK(status == 7 || status == 8);
            if (status == 7) least = middle;
            else most = middle - 1;
        }
        // And to the byte, by the first argument.
        for (int at = 1; at < count; at++) text[at][least] = 0;
        int more = 0;
        static char first[1 << 12];
        for (int bytes = 1; bytes < ARGUMENTS + 64; bytes++) {
            memset(first, 'b', (size_t)bytes);
            first[bytes] = 0;
            arguments[0] = first;
            int status = executes(arguments, by_vfork);
            CHECK(status == 7 || status == 8);
            if (status == 7) more = bytes;
        }
        printf("%d bytes each fit, and %d\n", least, more);
    }
}
