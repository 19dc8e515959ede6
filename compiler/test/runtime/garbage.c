// The two calls take anything: random sites, bounds, strides and addresses, regions
// that come, go and are unmapped meanwhile, from several threads. No fault, and no
// call that does not come back.
// RUN: %plaincc -O1 -g -I%runtime %s %parts -lpthread -o %t
// RUN: %t 1 && %t 2
#include "runahead_abi.h"
#include "runahead_ooc.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct runahead_nest *runahead_ooc_enter(struct runahead_site *, const int64_t *,
                                         struct runahead_nest *);
int64_t runahead_ooc_step(struct runahead_nest *, int64_t, int64_t, int64_t, int64_t);

static uint64_t seed;
static char *common;
#define COMMON (64 << 20)

static uint64_t next(uint64_t *s) {
  *s ^= *s << 13;
  *s ^= *s >> 7;
  return *s ^= *s << 17;
}

static int64_t number(uint64_t *s) {
  switch (next(s) % 8) {
  case 0: return (int64_t)next(s);
  case 1: return -1;
  case 2: return 0;
  case 3: return (int64_t)(next(s) % 100);
  case 4: return INT64_MAX;
  case 5: return INT64_MIN;
  case 6: return (int64_t)(next(s) % 100000) - 50000;
  default: return (int64_t)((uint64_t)common + next(s) % (COMMON + 8192));
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *calls(void *argument) {
  uint64_t s = seed * 77 + (uint64_t)argument + 1;
  struct runahead_nest *previous = NULL;
  double end = now() + 4;
  long rounds = 0;
  while (now() < end) {
    struct runahead_reference reference[RUNAHEAD_MAX_REFERENCES];
    struct runahead_site *site = calloc(1, sizeof *site);
    int64_t value[RUNAHEAD_MAX_VALUES], known[RUNAHEAD_MAX_VALUES];
    int16_t small[RUNAHEAD_MAX_VALUES];
    uint8_t form[(RUNAHEAD_MAX_VALUES + 3) / 4];
    site->abi = RUNAHEAD_ABI;
    site->levels = (uint8_t)(1 + next(&s) % RUNAHEAD_MAX_LEVELS);
    site->references = (uint8_t)(next(&s) % (RUNAHEAD_MAX_REFERENCES + 1));
    site->flags = (uint16_t)(next(&s) % 2);
    site->reference = reference;
    for (unsigned i = 0; i < site->references; i++) {
      reference[i].flags = (uint8_t)(i ? next(&s) % 32 : 0);
      reference[i].boxes = (uint8_t)(next(&s) % (RUNAHEAD_MAX_BOXES + 1));
      reference[i].index_bytes = (uint8_t)(1u << next(&s) % 4);
      reference[i].index = (uint8_t)(next(&s) % (i ? i : 1));
      reference[i].index_offset = (int32_t)(next(&s) % 64);
      reference[i].low = -(int32_t)(next(&s) % 4096);
      reference[i].high = 1 + (int32_t)(next(&s) % 4096);
    }
    for (unsigned i = 0; i < RUNAHEAD_MAX_VALUES; i++) {
      value[i] = number(&s);
      known[i] = number(&s);
      small[i] = (int16_t)next(&s);
    }
    for (unsigned i = 0; i < sizeof form; i++) form[i] = (uint8_t)next(&s);
    site->known = known;
    site->small = small;
    site->form = form;
    site->values = RUNAHEAD_MAX_VALUES;
    struct runahead_nest *nest = runahead_ooc_enter(site, value, previous);
    for (unsigned i = 0; i < next(&s) % 4; i++)
      runahead_ooc_step(nest, number(&s), number(&s), number(&s), number(&s));
    previous = next(&s) % 2 ? nest : NULL;
    rounds++; /* the sites are leaked: nests go on pointing to them, as to statics */
  }
  return (void *)rounds;
}

static void *regions(void *unused) {
  uint64_t s = seed;
  double end = now() + 4;
  while (now() < end) {
    size_t bytes = 4096 * (1 + next(&s) % 5000);
    char *p = runahead_ooc_alloc(bytes, NULL);
    if (!p) continue;
    p[0] = 1;
    if (next(&s) % 2) munmap(p, bytes); /* behind our back */
    else runahead_ooc_unmap(p, bytes);
    if (next(&s) % 2) runahead_ooc_unregister(p);
    madvise(common + 4096 * (next(&s) % 1000), 4096 * 64, MADV_DONTNEED);
  }
  return unused;
}

int main(int argc, char **argv) {
  seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 2654435761u : 1;
  common = mmap(NULL, COMMON, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  runahead_ooc_register(common, COMMON);
  runahead_ooc_register(common + 12345, COMMON / 2);
  /* A region over nothing at all. */
  runahead_ooc_register((void *)0x10000, 1 << 20);
  pthread_t thread[3], other;
  for (uintptr_t i = 0; i < 3; i++) pthread_create(&thread[i], NULL, calls, (void *)i);
  pthread_create(&other, NULL, regions, NULL);
  long rounds = 0;
  for (int i = 0; i < 3; i++) {
    void *r;
    pthread_join(thread[i], &r);
    rounds += (long)r;
  }
  pthread_join(other, NULL);
  printf("%ld rounds\n", rounds);
  return rounds < 100; /* each must come back in a bounded time */
}
