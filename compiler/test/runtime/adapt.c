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

/* Of a program whose nests are all left to the kernel first, and go slowly so, our way has a sixteenth at most, however
 * many nests there are; and where it is the slower one they are the kernel's again. */
static void trials_are_a_part_of_the_program(void) {
  static struct runahead_site sites[8];
  uint64_t all = 0, ours = 0;
  bool within = true;
  for (int round = 0; round < 1000; round++)
    for (int n = 0; n < 8; n++) {
      bool is_ours = adapt_prefetch_sequential(&sites[n]);
      adapt_measured(&sites[n], 1 << 20, is_ours ? 6000000 : 3000000, 1);
      all++;
      ours += is_ours;
      within &= ours * 16 <= all;
    }
  IS(within);
  IS(ours >= 40);
}

/* What was read ahead and is gone again shortens the way, whatever else would make it longer; what was waited for does
 * not. */
static void what_is_driven_out_is_read_later(void) {
  struct runahead_site site = {0};
  uint64_t before = adapt_run_distance(&site), least;
  adapt_driven_out(&site, 1 << 20, 20);
  IS(adapt_run_distance(&site) == before);
  adapt_driven_out(&site, 1 << 20, 40);
  IS(adapt_run_distance(&site) == before - before / 4);
  for (int i = 0; i < 10; i++) adapt_late(&site, false, true);
  IS(adapt_run_distance(&site) == before - before / 4);
  for (int i = 0; i < 100; i++) adapt_driven_out(&site, 1 << 20, 256);
  least = adapt_run_distance(&site);
  IS(least >= 128 << 10 && least <= 1 << 20);
}

int main(void) {
  trials_are_a_part_of_the_program();
  what_is_driven_out_is_read_later();
  small_entries_say_nothing_of_large_ones();
  entries_of_a_megabyte_are_not_passed_over();
  IS(ours_after(0));
  IS(!ours_after(4));
  IS(!tried_where_kernel_takes(600000));
  IS(tried_where_kernel_takes(3000000));
  IS(always_ours());
  return wrong;
}
