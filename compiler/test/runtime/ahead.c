// How far ahead of itself a program is read for, what is written behind it, and who reads first.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -Wl,--wrap=errands_helped,--wrap=madvise,--wrap=sync_file_range -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=16777216 %t %t.data
#define _GNU_SOURCE
#include "../../runtime/nest.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEGABYTE = 1 << 20, MEMORY = 16 };
static int wrong;
static uint64_t asked;
static _Atomic uint64_t written;
#define IS(what)                                 \
  do {                                           \
    if (!(what)) printf("not so: %s\n", #what), wrong = 1; \
  } while (0)

/* Nobody to hand requests over to: they are made at once. */
bool __wrap_errands_helped(void) { return false; }
int __real_madvise(void *, size_t, int);
int __wrap_madvise(void *start, size_t bytes, int advice) {
  if (advice == MADV_WILLNEED) asked += bytes;
  return __real_madvise(start, bytes, advice);
}
int __wrap_sync_file_range(int descriptor, off_t start, off_t bytes, unsigned flags) {
  (void)descriptor, (void)start, (void)flags;
  written += (uint64_t)bytes;
  return 0;
}

static const uint8_t all_given[RUNAHEAD_MAX_VALUES]; /* RUNAHEAD_GIVEN is 0 */

/* Goes through the first planes of many, of a megabyte each or so. */
static void planes(struct runahead_site *site, const int64_t *value) {
  asked = 0;
  struct runahead_nest *nest = runahead_ooc_enter(site, value, NULL);
  IS(asked >= MEGABYTE);
  for (int64_t plane = 0; plane < 4; plane++)
    for (int64_t at = 0; at < value[1];)
      at = nest->level == 1 ? runahead_ooc_step(nest, plane, at, 0, 0)
                            : (runahead_ooc_step(nest, plane, 0, 0, 0), value[1]);
  IS(asked <= (4 + MEMORY / 2) * MEGABYTE);
}

/* Planes of 256 lines of a page each, gone through across the lines: 16 bytes of each at a time. */
static void across_lines(char *p) {
  static struct runahead_reference reference = {.boxes = 1, .high = 16};
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 2, .references = 1, .where = "across",
                                      .reference = &reference, .form = all_given, .values = 7};
  const int64_t value[] = {64, 256, (int64_t)p, MEGABYTE, 16, 4096, 256};
  planes(&site, value);
}

/* 64 bytes at the beginning of each line. */
static void beginnings(char *p) {
  static struct runahead_reference reference = {.high = 64};
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 2, .references = 1, .where = "beginnings",
                                      .reference = &reference, .form = all_given, .values = 5};
  const int64_t value[] = {64, 256, (int64_t)p + 64 * MEGABYTE, MEGABYTE, 4096};
  planes(&site, value);
}

/* Changes so many megabytes, from the first to the last. */
static uint64_t written_behind(char *p, int64_t megabytes) {
  static struct runahead_reference reference = {.flags = RUNAHEAD_WRITES, .high = 4096};
  static struct runahead_site sites[3], *site = sites;
  *site = (struct runahead_site){.abi = RUNAHEAD_ABI, .levels = 1, .references = 1, .where = "changes",
                                 .reference = &reference, .form = all_given, .values = 3};
  int64_t pages = megabytes << 8;
  const int64_t value[] = {pages, (int64_t)p, 4096};
  written = 0;
  struct runahead_nest *nest = runahead_ooc_enter(site++, value, NULL);
  for (int64_t at = 0; at < pages;) {
    int64_t next = runahead_ooc_step(nest, at, 0, 0, 0);
    for (; at < next && at < pages; at++) p[at << 12] = 1;
  }
  return written;
}

/* Are runs read by us first, of which so many bytes of each 4096 read are changed? */
static bool ours_first(char *p, int64_t changed) {
  static struct runahead_reference reference[2] = {{.high = 4096}, {.flags = RUNAHEAD_WRITES}};
  static struct runahead_site sites[32], *next = sites;
  struct runahead_site *site = next++;
  *site = (struct runahead_site){.abi = RUNAHEAD_ABI, .levels = 1, .references = 2, .where = "first",
                                 .reference = reference, .form = all_given, .values = 5};
  reference[1].high = changed;
  const int64_t value[] = {4096, (int64_t)p, 4096, (int64_t)p + 32 * MEGABYTE, changed};
  runahead_ooc_enter(site, value, NULL);
  return adapt_prefetch_sequential(site);
}

/* What is read a page ahead of where it is changed is changed, too (a relaxation in place). */
static bool changes_behind(char *p) {
  static struct runahead_reference reference[2] = {{.high = 4096}, {.flags = RUNAHEAD_WRITES, .high = 4096}};
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 1, .references = 2, .where = "behind",
                                      .reference = reference, .form = all_given, .values = 5};
  const int64_t value[] = {4096, (int64_t)p + 4096, 4096, (int64_t)p, 4096};
  IS(((const struct nest *)runahead_ooc_enter(&site, value, NULL))->reference[1].led);
  return adapt_prefetch_sequential(&site);
}

/* One or two streams of 32 MB each, read from end to end: is all reading ours? Steps are few where it is not. */
static bool all_ours(char *first, char *second) {
  static struct runahead_reference reference[2] = {{.high = 4096}, {.high = 4096}};
  static struct runahead_site sites[5], *next = sites;
  struct runahead_site *site = next++;
  uint8_t streams = second ? 2 : 1;
  *site = (struct runahead_site){.abi = RUNAHEAD_ABI, .levels = 1, .references = streams,
                                 .where = "streams", .reference = reference, .form = all_given,
                                 .values = 1 + 2 * streams};
  const int64_t value[] = {8192, (int64_t)first, 4096, (int64_t)second, 4096};
  struct runahead_nest *front = runahead_ooc_enter(site, value, NULL);
  bool ours = ((const struct nest *)front)->ours;
  int64_t unit = ((const struct nest *)front)->unit_iterations, steps = 0;
  for (int64_t at = 0; at < value[0]; steps++) at = runahead_ooc_step(front, at, 0, 0, 0);
  IS(ours ? steps >= value[0] / unit : steps <= value[0] / unit / 8 + 2);
  return ours;
}

int main(int argc, char **argv) {
  if (argc < 2) return 1;
  unlink(argv[1]); /* nothing of an earlier run is to be in memory */
  char *p = runahead_ooc_map(argv[1], 128 * MEGABYTE, RUNAHEAD_OOC_CREATE);
  if (!p) return 1;
  across_lines(p);
  beginnings(p);
  struct region *region = region_at((uint64_t)p, NULL);
  region->window = MEGABYTE;
  /* On a fast disk nothing is written early, on a slow one what is gone before the next nest comes by. */
  IS(written_behind(p, 4 * MEMORY) == 0);
  region->window = 128 << 10;
  IS(written_behind(p, MEMORY / 4) == 0);
  IS(written_behind(p + 4 * MEMORY * MEGABYTE, 4 * MEMORY) > 0); /* not yet touched, or it is over at once */
  /* In a region of several arrays that nests change, what others only read is read by us as well. */
  region->several = true;
  region->window = MEGABYTE;
  region->changed_entries = 0;
  IS(!ours_first(p, 8));
  IS(region->changed_entries == 0);
  IS(ours_first(p, 4096));
  IS(region->changed_entries > 0);
  IS(ours_first(p, 8));
  /* But not for ever, where nobody changes it any more. */
  for (int n = 0; n < 20; n++) ours_first(p, 8);
  IS(!ours_first(p, 8));
  region->window = 128 << 10;
  region->changed_entries = 0;
  IS(ours_first(p, 8));
  region->window = MEGABYTE;
  region->changed_entries = 0;
  IS(changes_behind(p));
  region->changed_entries = 0;
  region->several = false;
  /* Memory holds the two windows of one stream, but not those of two. */
  region->window = 4 * MEGABYTE;
  char *q = runahead_ooc_alloc(32 * MEGABYTE, NULL); /* where another thread may be */
  struct region *other = region_at((uint64_t)q, NULL);
  if (!other) return 1;
  other->window = 4 * MEGABYTE;
  /* What a nest left to the kernel, its end leaves so: the kernel may read on. And elsewhere it changes nothing. */
  IS(!all_ours(p, NULL));
  IS(region->advice != MADV_RANDOM && other->advice == MADV_NORMAL);
  IS(all_ours(p, p + 64 * MEGABYTE));
  IS(region->advice == MADV_RANDOM && other->advice == MADV_NORMAL);
  /* It would show there: what a nest goes through it is said of, and where windows fit any nest's end takes it back. */
  IS(all_ours(p, q));
  IS(other->advice == MADV_RANDOM);
  IS(!all_ours(p, NULL));
  IS(region->advice != MADV_RANDOM && other->advice == MADV_RANDOM);
  other->window = 128 << 10;
  IS(!all_ours(p, NULL));
  IS(other->advice == MADV_NORMAL);
  return wrong;
}
