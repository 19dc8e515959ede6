// What a look at memory tells is used for more than the pages that it was for, and is not taken
// for pages that have come in. Of the stack, which may be a signal handler's, it takes little.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -Wl,--wrap=mincore,--wrap=madvise -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=16777216 %t %t.data
// RUN: env RUNAHEAD_OOC_MEMORY=268435456 %t %t.data wide
#include "../../runtime/internal.h"
#include "own_stack.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGES = 4096, TURN = (16 << 20) / 4096 / 4 + 64 };
static int wrong, looks, requests;
#define IS(what)                                 \
  do {                                           \
    if (!(what)) printf("not so: %s\n", #what), wrong = 1; \
  } while (0)

/* A page that has gone, whatever the kernel says: asked to, it does not give up one page of a large piece. */
static uint64_t gone;
int __real_mincore(void *, size_t, unsigned char *);
int __wrap_mincore(void *start, size_t bytes, unsigned char *present) {
  looks++;
  int failed = __real_mincore(start, bytes, present);
  if (gone - (uint64_t)start < bytes) present[(gone - (uint64_t)start) >> PAGE_SHIFT] = 0;
  return failed;
}
int __real_madvise(void *, size_t, int);
int __wrap_madvise(void *start, size_t bytes, int advice) {
  requests++;
  return __real_madvise(start, bytes, advice);
}

static uint64_t at(struct region *region, uint64_t page) { return region->start + page * PAGE_BYTES; }

static void believe(struct region *region, uint64_t first, uint64_t pages) {
  filter_believe(region, at(region, first), at(region, first + pages));
}

/* Passes whole turns, so that what was believed is old, or forgotten. */
static void turns(int many) {
  for (int i = 0; i < many; i++) filter_age(2 * PAGES);
}

static void found_is_not_arrived(struct region *region) {
  believe(region, 0, 1);
  believe(region, 1000, TURN + 100);
  IS(!filter_is_old(region, at(region, 0)));
  turns(2);
  believe(region, 0, 1);
  filter_note(region, at(region, 1000), at(region, 1100 + TURN));
  IS(filter_is_old(region, at(region, 0)));
}

/* A batch of 16 MB that is all in memory: a look at a run, one at what is behind it, and so on. */
static void one_look_serves_many_runs(struct region *region, int most_looks) {
  struct batch batch = {0};
  looks = requests = 0;
  region->window = 128 << 10;
  batch_add(&batch, region, region->start, PAGES * PAGE_BYTES);
  IS(batch.used == 128);
  batch_flush(&batch);
  IS(requests == 0);
  IS(looks <= most_looks);
}

/* The same on a stack of its own, for which nothing has to be linked any more: by how much of it is not as before. */
static struct region *looked_at;
static void on_own_stack(void) { one_look_serves_many_runs(looked_at, PAGES); }
static void looks_take_little_stack(struct region *region) {
  enum { BATCH = sizeof(struct batch), LITTLE = 2 << 10 };
  looked_at = region;
  unsigned taken = stack_taken(on_own_stack);
  IS(taken > BATCH && taken < BATCH + LITTLE);
}

/* Single pages, as a walk along a column wants them. */
static void right_beliefs_are_trusted(struct region *region) {
  turns(2);
  for (uint64_t page = 0; page < 2000; page += 10) believe(region, page, 1);
  turns(1);
  uint64_t right = 0;
  looks = 0;
  for (uint64_t page = 0; page < 2000; page += 10)
    filter_check_old(region, at(region, page), at(region, page + 1), &right);
  IS(looks >= 32 && looks <= 50);
  /* One that is gone brings the looks back. */
  right = 7;
  gone = at(region, 2000);
  believe(region, 2000, 1);
  turns(1);
  filter_check_old(region, at(region, 2000), at(region, 2001), &right);
  IS(right == 0 && !filter_believes(region, at(region, 2000)));
  gone = 0;
}

static void confirming_renews(struct region *region) {
  struct batch batch = {0};
  turns(2);
  believe(region, 0, 64);
  turns(1);
  IS(filter_is_old(region, at(region, 5)));
  batch_confirm(&batch, region, at(region, 0), at(region, 64));
  IS(!filter_is_old(region, at(region, 5)) && batch.pages == 0);
}

int main(int argc, char **argv) {
  if (argc < 2) return 1;
  char *p = runahead_ooc_map(argv[1], PAGES * PAGE_BYTES, RUNAHEAD_OOC_CREATE);
  if (!p) return 1;
  memset(p, 1, PAGES * PAGE_BYTES);
  if (msync(p, PAGES * PAGE_BYTES, MS_SYNC)) return 1;
  struct region *region = region_at((uint64_t)p, NULL);
  if (argc > 2) { /* much memory: one look at a run, and one at all the rest */
    one_look_serves_many_runs(region, 2);
    looks_take_little_stack(region);
    return wrong;
  }
  found_is_not_arrived(region);
  one_look_serves_many_runs(region, 10);
  right_beliefs_are_trusted(region);
  confirming_renews(region);
  return wrong;
}
