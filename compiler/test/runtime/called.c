// What a called function touches is prefetched for by the nest around the call as long as one call
// touches no more than a block; beyond that the function's own loop does it, and by whole calls it
// would be more at once than memory may hold.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=4000000 %t
#include "../../runtime/internal.h"
#include <stdio.h>
#include <string.h>

enum { BYTES = 16 << 20 };

/* Is a nest entered that calls for rows, one after the other, of so many pages? */
static int entered(uint8_t flags, int64_t base, int64_t row_pages) {
  static struct {
    struct runahead_site site;
    struct runahead_reference row;
    int64_t value[5];
  } sites[4], *now = sites;
  static const uint8_t given[2]; /* RUNAHEAD_GIVEN is 0 */
  int64_t row_bytes = row_pages * (int64_t)PAGE_BYTES;
  const int64_t value[] = {BYTES / row_bytes, base, row_bytes, 8, row_bytes / 8};
  memcpy(now->value, value, sizeof value);
  now->row = (struct runahead_reference){.flags = flags, .boxes = 1, .high = 8};
  now->site = (struct runahead_site){.abi = RUNAHEAD_ABI, .levels = 1, .references = 1,
                                     .where = "rows", .reference = &now->row,
                                     .form = given, .values = 5};
  return runahead_ooc_enter(&now++->site, value, NULL)->level == 0;
}

int main(void) {
  int64_t base = (int64_t)runahead_ooc_alloc(BYTES, 0);
  if (!base) return 1;
  int wrong = 0;
#define IS(what) \
  if (!(what)) printf("not so: %s\n", #what), wrong = 1
  IS(entered(RUNAHEAD_CALLED, base, 1));
  IS(entered(RUNAHEAD_CALLED, base, 64));
  IS(!entered(RUNAHEAD_CALLED, base, 65));
  /* A loop of the nest's own. */
  IS(entered(0, base, 65));
  return wrong;
}
