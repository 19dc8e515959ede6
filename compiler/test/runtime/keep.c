// Of data larger than memory that a nest only reads, in one run, the beginning stays: what is behind it is thrown out
// once it is passed, in the pieces in which the kernel keeps a file. Nothing is of what fits, of what is changed, where
// the kernel's windows are narrow, and of what is gone through backwards.
// RUN: %plaincc -O1 -I%runtime %s %build/librunahead_ooc.a -lpthread -lm -Wl,--wrap=submit_release,--wrap=madvise -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=33554432 %t
#include "../../runtime/nest.h"
#include <stdio.h>
#include <sys/mman.h>

enum { MB = 1 << 20, BYTES = 64 * MB, PIECE = 2 * MB, LINE = 4096 };
static int wrong;
#define IS(what) \
  if (!(what)) printf("line %d, not so: %s\n", __LINE__, #what), wrong = 1

static uint64_t start, first, last, pieces, at;
static bool in_order, split, sequential;
void __wrap_submit_release(uint64_t from, uint64_t bytes, bool at_once) {
  const struct region *region = region_at(from, NULL);
  if (!at_once) return;
  if (!first) first = last = from;
  in_order &= from == last && from + bytes <= at;
  split |= (from - region->start + region->offset) % PIECE || bytes % PIECE;
  last = from + bytes;
  pieces += bytes / PIECE;
}
int __wrap_madvise(void *from, size_t bytes, int advice) {
  (void)from, (void)bytes;
  sequential |= advice == MADV_SEQUENTIAL;
  return 0;
}

/* Goes once through so many bytes from there on; a site of its own, or what one has learnt would be the next one's. */
static void pass(struct runahead_site *site, int64_t from, int64_t bytes, int64_t stride) {
  const int64_t lines = bytes / LINE, value[] = {lines, from, stride};
  start = (uint64_t)from;
  first = last = pieces = 0;
  in_order = true;
  split = sequential = false;
  struct runahead_nest *nest = runahead_ooc_enter(site, value, NULL);
  for (int64_t line = 0; line < lines;) {
    at = start + (uint64_t)(line * stride);
    line = runahead_ooc_step(nest, line, 0, 0, 0);
  }
}
static const uint64_t all_given = ~(uint64_t)0;
#define SITE(name, kind)                                                                                  \
  static const struct runahead_reference name##_reference = {.flags = kind, .high = LINE};                \
  static struct runahead_site name = {.abi = RUNAHEAD_ABI, .levels = 1, .references = 1, .where = #name, \
                                      .reference = &name##_reference, .given = &all_given, .values = 3}
SITE(reads, 0);
SITE(shifted, 0);
SITE(small, 0);
SITE(backwards, 0);
SITE(narrow, 0);
SITE(writes, RUNAHEAD_WRITES);

int main(void) {
  char *p = runahead_ooc_alloc(BYTES, 0);
  struct region *region = p ? region_at((uint64_t)p, NULL) : NULL;
  if (!region) return 1;
  region->window = 2 * MB;

  for (int time = 0; time < 2; time++) { /* of 32 MB 2 are for other things, 6 for windows, 2 are behind the program */
    pass(&reads, (int64_t)p, BYTES, LINE);
    IS(first == start + 22 * MB && last >= start + BYTES - 8 * MB && last <= start + BYTES - PIECE);
    IS(in_order && !split && pieces == (last - first) / PIECE);
    /* The first time nothing is there, and all is read in order; the second time what is missing begins further on. */
    IS(sequential == (time == 0));
    for (long i = 0; i < 22 * MB; i += LINE) p[i] = 1;
  }
  pass(&small, (int64_t)p, 29 * MB, LINE);
  IS(!pieces);
  pass(&backwards, (int64_t)p + BYTES - LINE, BYTES, -LINE);
  IS(!pieces);
  region->offset = PIECE / 2;
  pass(&shifted, (int64_t)p, BYTES, LINE);
  IS(pieces >= 15 && in_order && !split);
  region->offset = 0;
  region->window = 128 << 10;
  pass(&narrow, (int64_t)p, BYTES, LINE);
  IS(!pieces);
  region->window = 2 * MB;
  pass(&writes, (int64_t)p, BYTES, LINE);
  IS(!pieces);
  return wrong;
}
