// trap: names are looked up in the program's stead: by many threads at once, and into the memory that holds the name
// build: -pthread
// run: apart . 40
// run: over . 40
// run: crowd . 400
// run: long . 400
// run: between . 400
#include "guest.h"

#include <pthread.h>

// Looks up "d0/x", "d1/x" and so on in a folder. `apart`: one after the other. `over`: the same, with the name where the kernel
// writes the size. `crowd`: the first few by one thread, the others by many. `long`: the first one, so often, through links that
// have the kernel walk for some hundred microseconds without waiting for anything. `between`: the same, with
// some sleep before each.
enum { THREADS = 8, ALONE = 24 };

static int count, next = ALONE, found[THREADS];
static long long bytes[THREADS];

static void look_up(int number, bool over, int thread) {
    char apart[16];
    struct stat status;
    char *name = over ? (char *)&status.st_size : apart;
    snprintf(name, sizeof apart, "d%d/x", number);
    if (fstatat(AT_FDCWD, name, &status, 0) != 0) return;
    found[thread]++;
    bytes[thread] += status.st_size;
}

static void *look_up_all(void *thread) {
    for (int number; (number = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < count;)
        look_up(number, false, (int)(intptr_t)thread);
    return NULL;
}

static void look_up_long(bool sleeps) {
    char link[1000], *end = link;
    for (; end + 2 < link + sizeof link; end += 2) memcpy(end, "./", 2);
    *end = 0;
    unlink("long");
    CHECK(symlink(link, "long") == 0);
    // The kernel follows forty in all, and walks twice where somebody changes names meanwhile.
    char path[100] = "";
    for (int links = 0; links < 13; links++) strcat(path, "long/");
    strcat(path, "d0/x");
    // Who has given its processor away once can be seen not to do so again.
    usleep(1000);
    for (int time = 0; time < count; time++) {
        struct stat status;
        if (sleeps) usleep(50);
        if (stat(path, &status) == 0) found[0]++, bytes[0] += status.st_size;
    }
    CHECK(unlink("long") == 0);
}

int main(int arguments, char **argument) {
    CHECK(arguments == 4 && chdir(argument[2]) == 0);
    count = atoi(argument[3]);
    bool over = strcmp(argument[1], "over") == 0, crowd = strcmp(argument[1], "crowd") == 0;
    bool sleeps = strcmp(argument[1], "between") == 0;
    if (sleeps || strcmp(argument[1], "long") == 0) {
        look_up_long(sleeps);
        count = 0;
    }
    for (int number = 0; number < (crowd ? ALONE : count); number++) look_up(number, over, 0);
    pthread_t threads[THREADS];
    for (int thread = 0; crowd && thread < THREADS; thread++)
        CHECK(pthread_create(&threads[thread], NULL, look_up_all, (void *)(intptr_t)thread) == 0);
    for (int thread = 0; crowd && thread < THREADS; thread++) CHECK(pthread_join(threads[thread], NULL) == 0);
    for (int thread = 1; thread < THREADS; thread++) found[0] += found[thread], bytes[0] += bytes[thread];
    printf("%d names, %lld bytes\n", found[0], bytes[0]);
}
