// How far ahead of itself a program is read for, what is written behind it, and who reads first.
// RUN: %plaincc -O1 -I%runtime %s %build/librunahead_ooc.a -lpthread -Wl,--wrap=madvise,--wrap=sync_file_range -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=16777216 %t %t.data
#define _GNU_SOURCE
#include "../../runtime/internal.h"
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

static const uint64_t all_given[1] = {~(uint64_t)0};

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
                                      .reference = &reference, .given = all_given, .values = 7};
  const int64_t value[] = {64, 256, (int64_t)p, MEGABYTE, 16, 4096, 256};
  planes(&site, value);
}

/* 64 bytes at the beginning of each line. */
static void beginnings(char *p) {
  static struct runahead_reference reference = {.high = 64};
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 2, .references = 1, .where = "beginnings",
                                      .reference = &reference, .given = all_given, .values = 5};
  const int64_t value[] = {64, 256, (int64_t)p + 64 * MEGABYTE, MEGABYTE, 4096};
  planes(&site, value);
}

/* Changes so many megabytes, from the first to the last. */
static uint64_t written_behind(char *p, int64_t megabytes) {
  static struct runahead_reference reference = {.flags = RUNAHEAD_WRITES, .high = 4096};
  static struct runahead_site sites[2], *site = sites;
  *site = (struct runahead_site){.abi = RUNAHEAD_ABI, .levels = 1, .references = 1, .where = "changes",
                                 .reference = &reference, .given = all_given, .values = 3};
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
  static struct runahead_site sites[3], *next = sites;
  struct runahead_site *site = next++;
  *site = (struct runahead_site){.abi = RUNAHEAD_ABI, .levels = 1, .references = 2, .where = "first",
                                 .reference = reference, .given = all_given, .values = 5};
  reference[1].high = changed;
  const int64_t value[] = {4096, (int64_t)p, 4096, (int64_t)p + 32 * MEGABYTE, changed};
  runahead_ooc_enter(site, value, NULL);
  return adapt_prefetch_sequential(site);
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
  /* What stays until the next nest comes by is changed again. */
  IS(written_behind(p, MEMORY / 4 * 3) == 0);
  IS(ours_first(p, 4096));
  IS(!ours_first(p, 8));
  region->window = 128 << 10;
  IS(ours_first(p, 8));
  return wrong;
}
