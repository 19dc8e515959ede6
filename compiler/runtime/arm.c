/* The flag that compiled code tests before each nest.
 *
 * It is set with each region. When everything registered can stay in memory and is there, it is cleared;
 * the helper watches for major faults and sets it again (helper.c). Where there is no helper it stays set.
 */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Read by compiled code before each nest. */
extern _Atomic uint8_t runahead_armed __asm__(RUNAHEAD_ARMED_SYMBOL);
EXPORTED _Atomic uint8_t runahead_armed;

bool arm_is_set(void) { return atomic_load_explicit(&runahead_armed, RELAXED); }

/* Fraction of registered pages that must be in memory to call it in core. */
#define IN_CORE(resident, pages) ((resident) >= (pages) - (pages) / 50)
static _Atomic uint64_t next_look;
static _Atomic uint64_t look_interval;

bool arm_switched_on(void) {
  const char *off = getenv("RUNAHEAD_OOC");
  return !off || off[0] != '0';
}

static bool all_in_memory(void) {
  enum { CHUNK = 1024 };
  unsigned char present[CHUNK]; /* not allocated: a nest may be one in a signal handler */
  uint64_t pages = 0, resident = 0;
  for (unsigned i = 0, n = region_slots(); i < n; i++) {
    struct region *region = region_number(i);
    if (!region) continue;
    for (uint64_t at = region->start; at < region->end; at += (uint64_t)CHUNK << PAGE_SHIFT) {
      uint64_t part = (region->end - at) >> PAGE_SHIFT;
      if (part > CHUNK) part = CHUNK;
      pages += part;
      if (mincore((void *)at, part << PAGE_SHIFT, present)) continue;
      for (uint64_t p = 0; p < part; p++) resident += present[p] & 1;
    }
  }
  return IN_CORE(resident, pages);
}

/* Only what the helper can arm again is disarmed. */
void arm_shut_off(uint64_t now) {
  if (now < atomic_load_explicit(&next_look, RELAXED)) return;
  uint64_t interval = atomic_load_explicit(&look_interval, RELAXED);
  atomic_store_explicit(&next_look, now + interval, RELAXED);
  if (!errands_helped() || region_total_bytes() > limits_memory() / 4 * 3) return;
  if (interval < 1000000000) atomic_store_explicit(&look_interval, 2 * interval, RELAXED);
  int saved = errno;
  if (all_in_memory()) {
    count(COUNT_DISARMED, 1);
    atomic_store_explicit(&runahead_armed, 0, RELAXED);
  }
  errno = saved;
}

void arm_again(void) {
  if (!arm_switched_on()) return;
  atomic_store_explicit(&look_interval, 5000000, RELAXED);
  atomic_store_explicit(&next_look, 0, RELAXED);
  atomic_store_explicit(&runahead_armed, 1, RELAXED);
}
