// trap: Runahead uses the program's heap or moves its break
// glibc: a heap that is in one piece
// data: cold.bin 4M
#include "guest.h"

// Distances from the break at the start, not addresses, since those are random.
int main(void) {
    char *start = sbrk(0);
    // The kernel says where the heap began: right behind the program's data, plus a random gap. The
    // loader itself does not use the break, so it must not have moved before main.
    char *line = slurp("/proc/self/stat");
    CHECK(line);
    unsigned long start_brk = 0;
    char *field = strrchr(line, ')');
    CHECK(field);
    // Field 47 is start_brk (0 without the right to see it); the text after ')' starts at field 3.
    int number = 2;
    for (char *word = strtok(field, " "); word; word = strtok(NULL, " "), number++)
        if (number == 47) start_brk = strtoul(word, NULL, 10);
    CHECK(start_brk != 0);
    printf("break moved before main by %ld\n", (long)((unsigned long)start - start_brk));
    uint64_t hash = wander("cold.bin", 200);
    printf("break moved by reading: %ld, hash %016" PRIx64 "\n", (long)((char *)sbrk(0) - start), hash);
    // Small pieces come one behind the other from a fresh heap; anybody else's allocation shows.
    char *pieces[100];
    for (int at = 0; at < 100; at++) pieces[at] = malloc(40);
    for (int at = 1; at < 100; at++) printf("%ld ", (long)(pieces[at] - pieces[at - 1]));
    printf("\nbreak now %ld beyond the start\n", (long)((char *)sbrk(0) - start));
}
