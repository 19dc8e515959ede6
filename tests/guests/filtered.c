// trap: a filter of system calls that was there before Runahead ends the program, or Runahead, for a call of Runahead's
// data: cold.bin 4M
// around: {here}/filtered kill preadv2,cachestat,process_vm_readv,remap_file_pages
// run: reads
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static long number_of(const char *name) {
    static const struct { const char *name; long number; } known[] = {
        {"preadv2", SYS_preadv2}, {"cachestat", 451}, {"process_vm_readv", SYS_process_vm_readv},
        {"remap_file_pages", SYS_remap_file_pages}};
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (strcmp(known[at].name, name) == 0) return known[at].number;
    return atol(name);
}

// filtered kill|trap|errno CALL[,CALL...] COMMAND...: allows every call but these.
static void become(char **arguments) {
    uint32_t action = strcmp(arguments[0], "kill") == 0   ? SECCOMP_RET_KILL_PROCESS
                      : strcmp(arguments[0], "trap") == 0 ? SECCOMP_RET_TRAP
                                                          : SECCOMP_RET_ERRNO | EPERM;
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    for (char *name = strtok(arguments[1], ","); name; name = strtok(NULL, ",")) {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number_of(name), 0, 1),
            BPF_STMT(BPF_RET | BPF_K, action),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    }
    execvp(arguments[2], arguments + 2);
    _exit(126);
}

int main(int argc, char **argv) {
    if (argc > 3) become(argv + 1);
    printf("hash %016" PRIx64 "\n", wander("cold.bin", 200));
    make_cold("cold.bin");
    printf("hash %016" PRIx64 "\n", stride("cold.bin", 200));
}
