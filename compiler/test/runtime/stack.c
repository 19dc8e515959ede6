// A loop may be a signal handler's, whose own stack is 8 KB as a rule, of which the kernel takes up to 3 for what it
// saves: what is done for a loop leaves most of the rest, be its pages in runs or found through indices.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -lm -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=33554432 %t
#include "../../runtime/nest.h"
#include "own_stack.h"
#include <stdio.h>

enum { BYTES = 64 << 20, INDICES = 8 << 20, MOST = 5 << 10 };
static const uint8_t all_given[RUNAHEAD_MAX_VALUES]; /* RUNAHEAD_GIVEN is 0 */
static const struct runahead_reference run[] = {{.high = 4096}},
    lookups[] = {{.flags = RUNAHEAD_INDEX, .high = 4},
                 {.flags = RUNAHEAD_INDIRECT, .index = 0, .index_bytes = 4, .high = 8}};
static struct runahead_site runs = {.abi = RUNAHEAD_ABI, .levels = 1, .references = 1, .where = "runs",
                                    .reference = run, .form = all_given, .values = 3};
static struct runahead_site looks_up = {.abi = RUNAHEAD_ABI, .levels = 1, .references = 2, .where = "looks up",
                                        .reference = lookups, .form = all_given, .values = 7};
static struct runahead_site *site;
static const int64_t *value;

static void loop(void) {
  struct runahead_nest *nest = runahead_ooc_enter(site, value, NULL);
  for (int64_t i = 0; i < value[0]; i++) i = runahead_ooc_step(nest, i, 0, 0, 0) - 1;
}

static unsigned stack_of_loop(struct runahead_site *its_site, const int64_t *its_value) {
  site = its_site;
  value = its_value;
  return stack_taken(loop);
}

int main(void) {
  char *p = runahead_ooc_alloc(BYTES, 0);
  struct region *region = p ? region_at((uint64_t)p, NULL) : NULL;
  if (!region) return 1;
  region->window = 128 << 10;
  for (int64_t i = 0; i < INDICES / 4; i++)
    ((int *)p)[i] = (int)((uint64_t)i * 2654435761u % ((BYTES - INDICES) / 8));
  const int64_t of_runs[] = {BYTES / 4096, (int64_t)p, 4096};
  const int64_t of_lookups[] = {INDICES / 4, (int64_t)p, 4, (int64_t)p + INDICES, 0, 8, 0};
  int wrong = 0;
  for (int time = 0; time < 2; time++) { /* the first time functions are linked on the way */
    unsigned by_runs = stack_of_loop(&runs, of_runs), by_lookups = stack_of_loop(&looks_up, of_lookups);
    if (time == 1 && (by_runs > MOST || by_lookups > MOST))
      printf("runs take %u bytes of the stack, look-ups %u\n", by_runs, by_lookups), wrong = 1;
  }
  return wrong;
}
