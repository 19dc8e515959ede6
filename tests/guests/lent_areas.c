// trap: children that share memory and execute without the agent's variables get another child's, or keep what they were lent
// build: -pthread
// run: beside
// run: threads
// run: twice
#include "guest.h"
#include <pthread.h>
#include <sched.h>

// Where the agent is preloaded it is named where it is not, so that its variables are to be left out.
#define NOWHERE "LD_PRELOAD=/nowhere/librunahead_agent.so"

extern char **environ;
enum { ENTRIES = 300, ROUNDS = 150, THREADS = 20 };

static bool is_preloaded;

// An environment that takes the kernel a while to copy.
static char **list_for(int child) {
    static char padding[2000];
    memset(padding, 'x', sizeof padding - 1);
    char **list = calloc(ENTRIES + 8, sizeof *list);
    int count = 0;
    for (char **entry = environ; *entry != NULL; entry++)
        if (strncmp(*entry, "RUNAHEAD_SESSION", 16) == 0) list[count++] = *entry;
    for (; count < ENTRIES; count++) CHECK(asprintf(&list[count], "CHILD%d_%d=%s", child, count, padding) > 0);
    if (is_preloaded) list[count++] = NOWHERE;
    CHECK(asprintf(&list[count++], "LAST=%d", child) > 0);
    return list;
}

// In the child: how many entries are of another, and whether something is preloaded.
static int look(const char *child) {
    char begin[32], last[32];
    int preloads = 0, strange = 0, own = 0;
    snprintf(begin, sizeof begin, "CHILD%s_", child), snprintf(last, sizeof last, "LAST=%s", child);
    for (char **entry = environ; *entry != NULL; entry++) {
        if (strncmp(*entry, "LD_PRELOAD", 10) == 0) preloads++;
        else if (strncmp(*entry, begin, strlen(begin)) == 0) own++;
        else if (strncmp(*entry, "RUNAHEAD", 8) != 0 && strcmp(*entry, last) != 0) strange++;
    }
    return preloads != 0 ? 3 : strange != 0 || own < ENTRIES - 2 ? 2 : 0;
}

struct Child {
    char number[16];
    char **list;
    char stack[1 << 16];
};

static int execute(void *argument) {
    struct Child *child = argument;
    char *arguments[] = {"lent_areas", "look", child->number, NULL};
    execve("/proc/self/exe", arguments, child->list);
    _exit(99);
}

static struct Child *child_of(int number) {
    struct Child *child = malloc(sizeof *child);
    snprintf(child->number, sizeof child->number, "%d", number);
    child->list = list_for(number);
    return child;
}

static void *vfork_one(void *argument) {
    struct Child *child = argument;
    pid_t pid = clone(execute, child->stack + sizeof child->stack - 64, CLONE_VM | CLONE_VFORK | SIGCHLD, child);
    CHECK(pid > 0);
    return (void *)(intptr_t)exit_status_of(pid);
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    if (strcmp(argv[1], "look") == 0) return look(argv[2]);
    // The loader's complaints are not what is looked at.
    int nothing = open("/dev/null", O_WRONLY);
    CHECK(dup2(nothing, 2) == 2 && close(nothing) == 0);
    is_preloaded = getenv("LD_PRELOAD") != NULL;
    int results[4] = {0};
    if (strcmp(argv[1], "beside") == 0) {
        struct Child *children[2] = {child_of(1), child_of(2)};
        for (int round = 0; round < ROUNDS; round++) {
            pid_t pids[2];
            for (int at = 0; at < 2; at++) {
                char *top = children[at]->stack + sizeof children[at]->stack - 64;
                pids[at] = clone(execute, top, CLONE_VM | SIGCHLD, children[at]);
                CHECK(pids[at] > 0);
            }
            for (int at = 0; at < 2; at++) {
                int status = exit_status_of(pids[at]);
                results[status < 4 ? status : 1]++;
            }
        }
    } else if (strcmp(argv[1], "threads") == 0) {
        for (int at = 0; at < THREADS; at++) {
            pthread_t thread;
            pthread_attr_t attributes;
            void *status, *stack = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            // A stack of its own for each, so that no thread has another's base.
            CHECK(stack != MAP_FAILED && pthread_attr_init(&attributes) == 0);
            CHECK(pthread_attr_setstack(&attributes, stack, 1 << 18) == 0);
            CHECK(pthread_create(&thread, &attributes, vfork_one, child_of(at)) == 0);
            CHECK(pthread_join(thread, &status) == 0);
            results[(intptr_t)status < 4 ? (intptr_t)status : 1]++;
        }
    } else {
        // The loader believes the last one: the first must not come into force.
        char *list[] = {"LD_PRELOAD=/nowhere/other.so", is_preloaded ? NOWHERE : "LD_PRELOAD=", "A=b", NULL};
        int ends[2];
        CHECK(pipe(ends) == 0);
        pid_t pid = vfork();
        if (pid == 0) {
            dup2(ends[1], 2);
            execle("/bin/true", "true", NULL, list);
            _exit(99);
        }
        close(ends[1]);
        char said[512] = "";
        ssize_t got = read(ends[0], said, sizeof said - 1);
        printf("said %zd: %s\n", got, said);
        results[exit_status_of(pid) != 0]++;
    }
    printf("%d in order, %d failed, %d of another, %d preloaded\n", results[0], results[1], results[2], results[3]);
}
