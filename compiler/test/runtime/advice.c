// What a region remembers of its advice is what the kernel heard last: where two threads speak at once nothing is
// remembered, and it is said again by the next. What was said and is remembered is not said again.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -lm -Wl,--wrap=madvise -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=4194304 %t
#include "../../runtime/nest.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { BYTES = 16 << 20 };
static int wrong;
#define IS(what) \
  if (!(what)) printf("not so: %s\n", #what), wrong = 1

static int last_heard = -1, heard;
static bool another_speaks;
int __wrap_madvise(void *start, size_t bytes, int advice) {
  (void)start, (void)bytes;
  if (advice != MADV_NORMAL && advice != MADV_SEQUENTIAL) return 0;
  if (another_speaks) {
    another_speaks = false;
    tell_leaving(NULL); /* all of another thread's, while our words are on their way */
  }
  last_heard = advice;
  heard++;
  return 0;
}

/* A nest that goes once through more than memory holds. */
static void enter(int64_t base) {
  static const struct runahead_reference reference = {.high = 4096};
  static const uint8_t all_given[RUNAHEAD_MAX_VALUES]; /* RUNAHEAD_GIVEN is 0 */
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 1, .references = 1, .where = "advice",
                                      .reference = &reference, .form = all_given, .values = 3};
  const int64_t value[] = {BYTES / 4096, base, 4096};
  runahead_ooc_enter(&site, value, NULL);
}

int main(void) {
  char *p = runahead_ooc_alloc(BYTES, 0);
  struct region *region = p ? region_at((uint64_t)p, NULL) : NULL;
  if (!region) return 1;
  region->window = 128 << 10;

  enter((int64_t)p);
  IS(last_heard == MADV_SEQUENTIAL && heard == 1);
  enter((int64_t)p);
  IS(heard == 1);
  tell_leaving(NULL);
  IS(last_heard == MADV_NORMAL && heard == 2);

  another_speaks = true;
  enter((int64_t)p);
  IS(last_heard == MADV_SEQUENTIAL && heard == 4);
  tell_leaving(NULL);
  IS(last_heard == MADV_NORMAL && heard == 5);
  tell_leaving(NULL);
  IS(heard == 5);
  return wrong;
}
