// A signal handler may copy much, and run any loop, wherever it interrupts: in the run-time layer
// its copy is a plain one and its loop is not assisted, and on the way of neither memory is
// allocated or a thread started, though its regions turn out to be in memory.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -Wl,--wrap=adapt_waiting,--wrap=malloc,--wrap=pthread_create -o %t
// RUN: env RUNAHEAD_OOC_STATS=1 %t 2>&1 | FileCheck %s
// CHECK: interrupted, all equal, allocated 0
// CHECK: nests entered 2, declined 0
// CHECK: told to be written {{[1-9][0-9]*}}
// CHECK: disarmed {{[1-9]}} times
#include "../../runtime/internal.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = 4 << 20 };
static char *out, *from, other[BYTES];
static volatile int copies, handled, allocated;

/* Asked within enter and step, and before and after a write, which so seems to have waited. */
struct waiting __wrap_adapt_waiting(void) {
  static uint64_t waits;
  if (copies && handled < 3) raise(SIGUSR1);
  return (struct waiting){waits++, 0};
}
void *__real_malloc(size_t);
void *__wrap_malloc(size_t bytes) {
  allocated += copies;
  return __real_malloc(bytes);
}
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with) {
  allocated += copies;
  return __real_pthread_create(thread, how, run, with);
}

static void handler(int signal_) {
  (void)signal_;
  handled++;
  runahead_ooc_copy(other, from, BYTES);
}

/* As compiled code goes through 4 MB; the writes are one that waits and those that the helper
 * gets then. */
static void loop(int signal_) {
  static const struct runahead_reference reference[1] = {{.flags = RUNAHEAD_WRITES, .high = 4096}};
  static const uint8_t all_given[RUNAHEAD_MAX_VALUES]; /* RUNAHEAD_GIVEN is 0 */
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 1, .references = 1, .where = "handler",
                                      .reference = reference, .form = all_given, .values = 3};
  const int64_t value[] = {BYTES / 4096, (int64_t)out, 4096};
  (void)signal_;
  handled++;
  struct runahead_nest *nest = runahead_ooc_enter(&site, value, NULL);
  for (int64_t i = 0; i < BYTES / 4096; i++) i = runahead_ooc_step(nest, i, 0, 0, 0) - 1;
  const struct region *region = region_at((uint64_t)out, NULL);
  for (int i = 0; i < 8; i++)
    submit_write(region, (uint64_t)out + i * PAGE_BYTES, (uint64_t)out + (i + 1) * PAGE_BYTES);
}

int main(void) {
  out = runahead_ooc_alloc(BYTES, 0), from = runahead_ooc_alloc(BYTES, 0);
  if (!out || !from) return 1;
  for (size_t i = 0; i < BYTES; i++) from[i] = (char)(i * 2654435761u >> 13);
  signal(SIGUSR1, handler);
  signal(SIGUSR2, loop);
  copies = 1;
  runahead_ooc_copy(out, from, BYTES);
  raise(SIGUSR2);
  copies = 0;
  int same = !memcmp(out, from, BYTES) && !memcmp(other, from, BYTES);
  printf("%sinterrupted, %s, allocated %d\n", handled ? "" : "not ", same ? "all equal" : "different",
         allocated);
  fflush(stdout);
  return 0;
}
