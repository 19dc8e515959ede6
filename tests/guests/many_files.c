// trap: a program that reads many files for long: what our processes hold grows with each
// data: many/{300} 16K
// timeout: 90
#include "guest.h"
#include <dirent.h>

struct held {
    long descriptors, kilobytes, processes;
};

static long count_descriptors(int process) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", process);
    DIR *folder = opendir(path);
    long count = 0;
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

static long number_in(const char *text, const char *name) {
    const char *line = text ? strstr(text, name) : NULL;
    return line ? atol(line + strlen(name)) : 0;
}

// What the process that Runahead names in the environment holds, and its children.
static struct held look(void) {
    struct held held = {0, 0, 0};
    const char *session = getenv("RUNAHEAD_SESSION");
    int host = session ? atoi(session) : 0;
    if (host == 0) return held;
    DIR *all = opendir("/proc");
    CHECK(all);
    for (struct dirent *entry; (entry = readdir(all));) {
        int process = atoi(entry->d_name);
        char path[64];
        if (process <= 0) continue;
        snprintf(path, sizeof path, "/proc/%d/status", process);
        const char *status = slurp(path);
        if (process != host && number_in(status, "\nPPid:") != host) continue;
        held.kilobytes += number_in(status, "\nRssAnon:");
        held.descriptors += count_descriptors(process);
        held.processes++;
    }
    closedir(all);
    return held;
}

static uint64_t once(void) {
    static char block[16384];
    char path[32];
    uint64_t sum = 0;
    for (int at = 0; at < 300; at++) {
        snprintf(path, sizeof path, "many/%d", at);
        int file = open(path, O_RDONLY);
        CHECK(file >= 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
        close(file);
    }
    for (int at = 0; at < 300; at++) {
        struct stat status;
        snprintf(path, sizeof path, "many/%d", at);
        CHECK(stat(path, &status) == 0);
        int file = open(path, O_RDONLY);
        ssize_t got;
        while ((got = read(file, block, 4096)) > 0) sum = sum * 31 + hash_bytes(block, (size_t)got);
        if (at % 50 == 0) {
            volatile char *mapped = mmap(NULL, 16384, PROT_READ, MAP_PRIVATE, file, 0);
            sum += (uint64_t)mapped[5000];
            munmap((void *)mapped, 16384);
        }
        close(file);
    }
    return sum;
}

static struct held most(int rounds, uint64_t *sum) {
    struct held most = {0, 0, 0};
    for (int round = 0; round < rounds; round++) {
        *sum = once();
        struct held now = look();
        if (now.descriptors > most.descriptors) most.descriptors = now.descriptors;
        if (now.kilobytes > most.kilobytes) most.kilobytes = now.kilobytes;
        if (now.processes > most.processes) most.processes = now.processes;
    }
    return most;
}

int main(void) {
    uint64_t sum;
    bool is_helped = getenv("RUNAHEAD_SESSION") != NULL;
    struct held first = most(15, &sum);
    most(30, &sum);
    struct held last = most(15, &sum);
    printf("sum %016" PRIx64 "\n", sum);
    // What they hold at most in a quarter of the time differs by what the moment wants.
    printf("more descriptors: %d, more memory: %d\n", last.descriptors > first.descriptors + 40,
           last.kilobytes > first.kilobytes + 4096);
    if (is_helped) CHECK(first.processes > 0);
}
