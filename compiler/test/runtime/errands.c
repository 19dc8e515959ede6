// Long runs of pages are read by the helper, short ones by whoever wants them; while the helper is at a
// write, which may take long, nobody waits for it. A run is asked for in pieces as long as the kernel
// takes them. What is to be touched is where the program has not been yet. Once a region is gone nothing is
// read there, by whomever it was wanted.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -lm -Wl,--wrap=madvise,--wrap=sync_file_range,--wrap=adapt_waiting,--wrap=errands_helped -o %t
// RUN: %t %t.data
#define _GNU_SOURCE
#include "../../runtime/internal.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { MEGABYTE = 1 << 20, BYTES = 64 << 20 };
/* Milliseconds: on a machine whose disk was kept busy the helper had not begun after five seconds. */
enum { PATIENCE = 60000 };
static int wrong;
#define IS(what)                                 \
  do {                                           \
    if (!(what)) printf("not so: %s\n", #what), wrong = 1; \
  } while (0)

static __thread bool me;
static _Atomic unsigned mine, others;
static _Atomic uint64_t longest;
static _Atomic bool at_a_write, stay_there, at_a_read, stay_until_left, leaving;

int __real_madvise(void *, size_t, int);
static _Atomic uint64_t touched_from, touched_bytes;
int __wrap_madvise(void *start, size_t bytes, int advice) {
  if (advice == MADV_POPULATE_READ) {
    IS(!me);
    touched_from = (uint64_t)start;
    touched_bytes += bytes;
    return 0;
  }
  if (advice != MADV_WILLNEED) return __real_madvise(start, bytes, advice);
  if (bytes > longest) longest = bytes;
  if (me) {
    mine++;
    return 0;
  }
  others++;
  if (stay_until_left) {
    at_a_read = true;
    while (!leaving) usleep(1000);
    usleep(100000); /* as the disk does: the region is being removed by now */
    at_a_read = false;
  }
  return 0;
}
int __wrap_sync_file_range(int descriptor, off_t start, off_t bytes, unsigned flags) {
  (void)descriptor, (void)start, (void)bytes, (void)flags;
  if (me) return 0;
  for (at_a_write = true; stay_there;) usleep(1000);
  return 0;
}
/* Every write waits, so that the next ones are handed over. */
struct waiting __wrap_adapt_waiting(void) {
  static uint64_t waits;
  return (struct waiting){++waits, 0};
}

/* Asked just before anything is handed over: another thread may unmap at that moment. */
static void *unmapped_meanwhile;
bool __real_errands_helped(void);
bool __wrap_errands_helped(void) {
  if (unmapped_meanwhile) runahead_ooc_unregister(unmapped_meanwhile);
  unmapped_meanwhile = NULL;
  return __real_errands_helped();
}

static void want(struct region *region, uint64_t first, uint64_t bytes) {
  struct batch batch = {0};
  mine = others = 0;
  longest = 0;
  batch_add(&batch, region, region->start + first, bytes);
  batch_flush(&batch);
}

static struct region *region_with(char *start, size_t bytes) {
  IS(runahead_ooc_register(start, bytes) == 0);
  struct region *region = region_at((uint64_t)start, NULL);
  region->window = 8 * MEGABYTE;
  mine = others = 0;
  longest = 0;
  return region;
}

static void settle(unsigned calls) {
  for (int tries = 0; tries < PATIENCE && others + mine < calls; tries++) usleep(1000);
}

static void touch(struct region *region, uint64_t first, uint64_t bytes, const _Atomic uint64_t *reached) {
  for (int tries = 0; tries < PATIENCE; tries++) { /* the helper may be about to take one up */
    if (submit_touch(region, region->start + first, region->start + first + bytes, reached)) return;
    usleep(1000);
  }
  IS(false);
}

/* Of the first nothing is left, of the second half. */
static void only_what_comes_is_touched(struct region *region) {
  const _Atomic uint64_t reached = region->start + 3 * MEGABYTE;
  touch(region, 0, 2 * MEGABYTE, &reached);
  touch(region, 2 * MEGABYTE, 2 * MEGABYTE, &reached);
  for (int tries = 0; tries < PATIENCE && touched_bytes < MEGABYTE; tries++) usleep(1000);
  IS(touched_bytes == MEGABYTE && touched_from == region->start + 3 * MEGABYTE);
}

/* What is under way is waited for, the rest is not read any more. */
static void nothing_is_read_once_it_is_gone(struct region *region) {
  stay_until_left = true;
  for (int tries = 0; tries < PATIENCE && !at_a_read; tries++) {
    want(region, 0, 16 * MEGABYTE);
    usleep(1000);
  }
  IS(at_a_read);
  unsigned begun = others;
  const _Atomic uint64_t reached = 0;
  touched_bytes = 0;
  touch(region, 0, 2 * MEGABYTE, &reached);
  leaving = true;
  IS(runahead_ooc_unregister((void *)region->start) == 0);
  IS(!at_a_read);
  unsigned made = others;
  IS(made <= begun + 2); /* of eight */
  stay_until_left = false;
  usleep(200000);
  IS(others == made && !touched_bytes);
}

/* Another thread may have had requests for it in its batch at that time, or been about to hand one over: they
 * come to nothing. */
static void nothing_is_wanted_once_it_is_gone(char *p, bool at_the_last_moment) {
  struct batch batch = {0};
  struct region *region = region_with(p, BYTES);
  batch_add(&batch, region, region->start, 2 * MEGABYTE);
  if (at_the_last_moment)
    unmapped_meanwhile = p;
  else
    IS(runahead_ooc_unregister(p) == 0);
  batch_flush(&batch);
  IS(!region_at((uint64_t)p, NULL));
  usleep(100000);
  IS(others == 0 && mine == 0);
}

/* What adjoins it is no reason to read it. */
static void its_neighbour_is_read(char *p) {
  struct batch batch = {0};
  struct region *first = region_with(p, MEGABYTE), *second = region_with(p + MEGABYTE, MEGABYTE);
  batch_add(&batch, first, first->end - MEGABYTE / 2, MEGABYTE / 2);
  batch_add(&batch, second, second->start, MEGABYTE / 2);
  IS(runahead_ooc_unregister(p + MEGABYTE) == 0);
  batch_flush(&batch);
  settle(1);
  usleep(100000);
  IS(others + mine == 1 && longest == MEGABYTE / 2);
  IS(runahead_ooc_unregister(p) == 0);
}

int main(int argc, char **argv) {
  if (argc < 2) return 1;
  me = true;
  unlink(argv[1]); /* nothing of an earlier run is to be in memory */
  char *p = runahead_ooc_map(argv[1], BYTES, RUNAHEAD_OOC_CREATE);
  struct region *region = p ? region_at((uint64_t)p, NULL) : NULL;
  if (!region) return 1;
  region->window = 8 * MEGABYTE;
  want(region, 0, 16 * MEGABYTE);
  settle(8);
  /* Those that come while the helper takes one up are not handed over. */
  IS(others + mine == 8 && others > 0 && longest == 2 * MEGABYTE);
  region->window = 128 << 10;
  want(region, 0, 2 * MEGABYTE);
  IS(others == 0 && mine == 16 && longest == 128 << 10);
  want(region, 0, PAGE_BYTES);
  IS(others == 0 && mine == 1);

  region->window = 8 * MEGABYTE;
  stay_there = true;
  submit_write(region, region->start, region->start + PAGE_BYTES); /* waits, */
  submit_write(region, region->start, region->start + PAGE_BYTES); /* so this one is the helper's */
  for (int tries = 0; tries < PATIENCE && !at_a_write; tries++) usleep(1000);
  want(region, 0, MEGABYTE);
  IS(others == 0 && mine == 1);
  stay_there = false;
  only_what_comes_is_touched(region);
  nothing_is_read_once_it_is_gone(region);
  nothing_is_wanted_once_it_is_gone(p, false);
  nothing_is_wanted_once_it_is_gone(p, true);
  its_neighbour_is_read(p);
  return wrong;
}
