// A stream, such as a sparse matrix's rows, gives up what it has passed once it has come through
// half of memory, though each of its entries is short, and nothing that is still to come.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -lm -Wl,--wrap=limits_pressed,--wrap=limits_now,--wrap=submit_release -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=16777216 %t %t.data
#include "../../runtime/nest.h"
#include <stdio.h>

struct runahead_nest *runahead_ooc_enter(struct runahead_site *, const int64_t *, struct runahead_nest *);
int64_t runahead_ooc_step(struct runahead_nest *, int64_t, int64_t, int64_t, int64_t);

enum { BYTES = 64 << 20, MEMORY = 16 << 20 };
static int wrong;
#define IS(what)                                 \
  do {                                           \
    if (!(what)) printf("not so: %s\n", #what), wrong = 1; \
  } while (0)

static uint64_t now, position, given_up, ahead;

/* Memory is full, and a look at it is never too soon. */
bool __wrap_limits_pressed(uint64_t room) { return room > 0; }
uint64_t __wrap_limits_now(void) { return now += 2000000; }
void __wrap_submit_release(uint64_t start, uint64_t bytes, bool at_once) {
  (void)at_once;
  given_up += bytes;
  ahead += start + bytes > position;
}

/* Goes through the data in rows. */
static void go(struct runahead_site *site, char *data, int64_t row) {
  struct runahead_nest *nest = NULL;
  given_up = ahead = 0;
  for (int64_t at = 0; at + row <= BYTES; at += row) {
    const int64_t value[] = {row / 8, (int64_t)data + at, 8};
    position = (uint64_t)(data + at);
    nest = runahead_ooc_enter(site, value, nest);
    if (nest->level != 0) continue;
    for (int64_t i = 0; i < row / 8;) {
      position = (uint64_t)(data + at + i * 8);
      i = runahead_ooc_step(nest, i, 0, 0, 0);
    }
  }
}

static const struct runahead_reference reference[1] = {{.high = 8}};
static const uint8_t all_given[RUNAHEAD_MAX_VALUES]; /* RUNAHEAD_GIVEN is 0 */
#define SITE                                                                                        \
  {.abi = RUNAHEAD_ABI, .levels = 1, .references = 1, .flags = RUNAHEAD_STREAM, .where = "streams", \
   .reference = reference, .form = all_given, .values = 3}

int main(int argc, char **argv) {
  if (argc < 2) return 1;
  static struct runahead_site rows = SITE, blocks = SITE;
  char *data = runahead_ooc_map(argv[1], BYTES, RUNAHEAD_OOC_CREATE);
  if (!data) return 1;
  site_set(&rows, SITE_FIRST, OURS_FIRST);
  site_set(&rows, SITE_PHASE, 6); /* CHOSE_OURS */
  site_set(&blocks, SITE_FIRST, OURS_FIRST);
  site_set(&blocks, SITE_PHASE, 6);
  go(&rows, data, 1024);
  IS(given_up > BYTES / 2 && given_up <= BYTES - MEMORY / 4);
  IS(ahead == 0);
  go(&blocks, data, 4 << 20);
  IS(given_up > BYTES / 2 && given_up <= BYTES - MEMORY / 4);
  IS(ahead == 0);
  return wrong;
}
