// Which entries of a nest are passed over, and when the kernel's reading is tried out.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -o %t
// RUN: %t
#include "../../runtime/internal.h"
#include <stdio.h>

static int wrong;
#define IS(what)                                 \
  do {                                           \
    if (!(what)) printf("not so: %s\n", #what), wrong = 1; \
  } while (0)

/* As an entry does that asked for so many pages and found all of them in memory. */
static void quiet_entry(struct runahead_site *site, uint64_t iterations, uint64_t pages) {
  if (!adapt_skip(site, iterations)) site_set(site, SITE_WANTED, site_get(site, SITE_WANTED) + pages);
}

static void small_entries_say_nothing_of_large_ones(void) {
  static struct runahead_site site;
  for (int i = 0; i < 200; i++) quiet_entry(&site, 1000, 100);
  for (int i = 0; i < 70 && !adapt_skip(&site, 1000); i++) quiet_entry(&site, 1000, 100);
  IS(site_get(&site, SITE_SKIP) > 0);
  IS(!adapt_skip(&site, 100000));
}

/* What was in memory while data was made there may be gone the next time. */
static void entries_of_a_megabyte_are_not_passed_over(void) {
  static struct runahead_site site;
  for (int i = 0; i < 200; i++) {
    quiet_entry(&site, 1000, 300);
    IS(site_get(&site, SITE_SKIP) == 0);
  }
}

/* Ours from the start where windows are narrow; a trial only after waits. */
static bool ours_after(uint64_t waits_a_megabyte) {
  struct runahead_site site = {0};
  site_set(&site, SITE_FIRST, OURS_FIRST);
  IS(adapt_prefetch_sequential(&site));
  for (int i = 0; i < 600; i++) adapt_measured(&site, 1 << 20, 1000000, waits_a_megabyte);
  return adapt_prefetch_sequential(&site);
}

/* The kernel first where windows are wide; no trial of our way where it is quick. */
static bool tried_where_kernel_takes(uint64_t nanoseconds_a_megabyte) {
  struct runahead_site site = {0};
  bool tried = adapt_prefetch_sequential(&site);
  IS(!tried);
  for (int i = 0; i < 200; i++) {
    adapt_measured(&site, 1 << 20, nanoseconds_a_megabyte, 1);
    tried |= adapt_prefetch_sequential(&site);
  }
  return tried;
}

/* What nests change is never tried with the kernel, and our pace is not taken for its. */
static bool always_ours(void) {
  struct runahead_site site = {0};
  site_set(&site, SITE_FIRST, OURS_ALWAYS);
  bool ours = true;
  for (int i = 0; i < 600; i++) {
    adapt_measured(&site, 1 << 20, 1000000, 4);
    ours &= adapt_prefetch_sequential(&site);
  }
  IS(site_get(&site, SITE_KERNEL_PACE) == 0);
  site_set(&site, SITE_FIRST, OURS_FIRST); /* no longer changed */
  return ours && adapt_prefetch_sequential(&site);
}

int main(void) {
  small_entries_say_nothing_of_large_ones();
  entries_of_a_megabyte_are_not_passed_over();
  IS(ours_after(0));
  IS(!ours_after(4));
  IS(!tried_where_kernel_takes(600000));
  IS(tried_where_kernel_takes(3000000));
  IS(always_ours());
  return wrong;
}
