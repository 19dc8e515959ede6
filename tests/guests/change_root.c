// trap: after chroot the same names are other files, and Runahead's own files are out of sight
// needs: root
// data: cold.bin 4M
#include "guest.h"

int main(void) {
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 100));
    CHECK(mkdir("inside", 0755) == 0);
    FILE *out = fopen("inside/cold.bin", "w");
    for (int at = 0; at < 1 << 18; at++) fprintf(out, "%08d\n", at);
    CHECK(fclose(out) == 0);
    make_cold("inside/cold.bin");
    CHECK(chroot("inside") == 0 && chdir("/") == 0);
    printf("hash %016" PRIx64 "\n", wander("/cold.bin", 200));
    printf("no more: %d %d\n", open("/proc/self/maps", O_RDONLY), access("/usr", F_OK));
    pid_t child = fork();
    if (child == 0) {
        make_cold("/cold.bin");
        dprintf(1, "child %016" PRIx64 "\n", wander("/cold.bin", 50));
        execl("/bin/true", "true", (char *)NULL);
        _exit(errno == ENOENT ? 3 : 4);
    }
    printf("child: %d\n", exit_status_of(child));
}
