// Arrays that a nest goes through once are the kernel's to read where its windows are wide, changed or not, and in large
// pieces; what else a region is wanted for, and what is narrow, is as before.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -lm -Wl,--wrap=madvise -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=128M %t
#include "../../runtime/nest.h"
#include <stdio.h>
#include <sys/mman.h>

static const int64_t MEGABYTE = 1 << 20;
static int wrong;
#define IS(what) \
  if (!(what)) printf("not so at %d: %s\n", __LINE__, #what), wrong = 1

/* The last word for each of two regions, and for its pieces. */
static char *first, *second;
static int order[2], pieces[2];
int __wrap_madvise(void *start, size_t bytes, int advice) {
  (void)bytes;
  unsigned which = (char *)start == second;
  if (advice == MADV_HUGEPAGE || advice == MADV_NOHUGEPAGE)
    pieces[which] = advice;
  else if (advice == MADV_NORMAL || advice == MADV_SEQUENTIAL || advice == MADV_RANDOM)
    order[which] = advice;
  return 0;
}

static const uint8_t all_given[RUNAHEAD_MAX_VALUES]; /* RUNAHEAD_GIVEN is 0 */
static struct runahead_site *site_with(unsigned levels, unsigned references, const struct runahead_reference *reference) {
  static struct runahead_site sites[64], *next = sites;
  struct runahead_site *site = next++;
  *site = (struct runahead_site){.abi = RUNAHEAD_ABI, .levels = (uint8_t)levels, .references = (uint8_t)references,
                                 .where = "dense", .reference = reference, .form = all_given,
                                 .values = levels + references * (1 + levels)};
  return site;
}

/* b[i] = a[i] for 96 MB each. Is it ours to read? */
static bool copy_is_ours(char *to, char *from) {
  static const struct runahead_reference reference[2] = {{.high = 4096}, {.flags = RUNAHEAD_WRITES, .high = 4096}};
  struct runahead_site *site = site_with(1, 2, reference);
  const int64_t value[] = {96 << 8, (int64_t)from, 4096, (int64_t)to, 4096};
  order[0] = order[1] = pieces[0] = pieces[1] = 0;
  runahead_ooc_enter(site, value, NULL);
  return adapt_prefetch_sequential(site);
}

/* A column of rows that are far apart. */
static void column(char *from) {
  static const struct runahead_reference reference = {.high = 8};
  const int64_t value[] = {96 << 4, (int64_t)from, 65536};
  runahead_ooc_enter(site_with(1, 1, &reference), value, NULL);
}

/* A few lines of a stencil: what one reference has brought the next two find there. */
static bool stencil_is_ours(char *to, char *from) {
  static const struct runahead_reference reference[4] = {
      {.high = 4096}, {.high = 4096}, {.high = 4096}, {.flags = RUNAHEAD_WRITES, .high = 4096}};
  struct runahead_site *site = site_with(1, 4, reference);
  const int64_t value[] = {90 << 8, (int64_t)from, 4096, (int64_t)from + 4096, 4096, (int64_t)from + 8192, 4096,
                           (int64_t)to, 4096};
  order[0] = order[1] = pieces[0] = pieces[1] = 0;
  runahead_ooc_enter(site, value, NULL);
  return adapt_prefetch_sequential(site);
}

/* Two arrays in one region. */
static bool halves_are_ours(char *p) { return copy_is_ours(p, p + 96 * MEGABYTE); }

static void set_window(uint64_t bytes) {
  region_at((uint64_t)first, NULL)->window = bytes;
  region_at((uint64_t)second, NULL)->window = bytes;
}

int main(void) {
  first = runahead_ooc_alloc(192 * MEGABYTE, NULL);
  second = runahead_ooc_alloc(192 * MEGABYTE, NULL);
  if (!first || !second) return 1;
  set_window(8 * MEGABYTE);
  for (int again = 0; again < 3; again++) { /* what has just been changed is no exception */
    IS(!copy_is_ours(first, second));
    IS(order[0] == (again ? 0 : MADV_SEQUENTIAL) && order[1] == order[0]); /* said once */
    IS(pieces[0] == (again ? 0 : MADV_HUGEPAGE) && pieces[1] == pieces[0]);
  }
  column(second);
  IS(order[1] == MADV_RANDOM && pieces[1] == MADV_NOHUGEPAGE && pieces[0] == 0);
  IS(!stencil_is_ours(second, first));
  IS(order[1] == MADV_SEQUENTIAL && pieces[1] == MADV_HUGEPAGE);
  /* A nest's end takes back what was said of the order, and not of the pieces. */
  tell_leaving(NULL);
  IS(order[0] == MADV_NORMAL && order[1] == MADV_NORMAL && pieces[0] == 0 && pieces[1] == MADV_HUGEPAGE);
  /* Two long arrays in one region: others may go through them otherwise. */
  IS(halves_are_ours(first));
  IS(pieces[0] == 0 && order[0] == 0);
  region_at((uint64_t)first, NULL)->several = true;
  IS(copy_is_ours(first, second));
  region_at((uint64_t)first, NULL)->several = false;
  /* The kernel would read less by itself than two pieces. */
  column(first);
  column(second);
  set_window(2 * MEGABYTE);
  IS(!copy_is_ours(first, second));
  IS(order[0] == MADV_SEQUENTIAL && pieces[0] == 0);
  /* Narrow windows, and windows that memory does not hold: ours. */
  set_window(128 << 10);
  IS(copy_is_ours(first, second));
  IS(pieces[0] == 0);
  set_window(64 * MEGABYTE);
  IS(((copy_is_ours(first, second)), order[0] == MADV_RANDOM));
  return wrong;
}
