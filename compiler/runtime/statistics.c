/* Counters of what was done; what they tell is report.c's. */
#include "internal.h"

static _Atomic uint64_t counter[COUNTERS];

void count(enum counter which, uint64_t by) {
  atomic_fetch_add_explicit(&counter[which], by, RELAXED);
}

uint64_t count_of(enum counter which) { return atomic_load_explicit(&counter[which], RELAXED); }
