/* The filter: most pages that compiled code asks for are in memory already.
 *
 * Two bit vectors a region. A page that was prefetched, or found in memory, is
 * set in the newer one; a page set in either is believed to be in memory. When
 * as many pages have come in as make up a quarter of the memory, the older vector
 * is cleared and becomes the newer: so a belief lasts for a quarter to a half of
 * the memory's worth of new pages, which an LRU list of all memory outlives.
 */
#include "internal.h"
#include <pthread.h>

static _Atomic uint64_t arrived; /* pages since the last turn */
static pthread_mutex_t turning = PTHREAD_MUTEX_INITIALIZER;

static void turn_all(void) {
  for (unsigned i = 0, n = region_slots(); i < n; i++) {
    struct region *region = region_number(i);
    if (!region) continue;
    unsigned next = !atomic_load_explicit(&region->turn, RELAXED);
    uint64_t words = (((region->end - region->start) >> PAGE_SHIFT) + 63) / 64;
    for (uint64_t w = 0; w < words; w++)
      /* Reading first keeps untouched pages of the vector from being made. */
      if (atomic_load_explicit(&region->recent[next][w], RELAXED))
        atomic_store_explicit(&region->recent[next][w], 0, RELAXED);
    atomic_store_explicit(&region->turn, next, RELAXED);
  }
}

void filter_age(uint64_t pages) {
  uint64_t total = atomic_fetch_add_explicit(&arrived, pages, RELAXED) + pages;
  if (total < limits_memory() / PAGE_BYTES / 4 + 1024) return;
  if (pthread_mutex_trylock(&turning)) return;
  atomic_store_explicit(&arrived, 0, RELAXED);
  turn_all();
  pthread_mutex_unlock(&turning);
}

uint64_t filter_want(struct region *region, uint64_t start, uint64_t end, struct batch *batch) {
  uint64_t first = (start - region->start) >> PAGE_SHIFT;
  uint64_t last = (end - 1 - region->start) >> PAGE_SHIFT;
  _Atomic uint64_t *newer = region->recent[atomic_load_explicit(&region->turn, RELAXED) & 1];
  _Atomic uint64_t *older = region->recent[!(atomic_load_explicit(&region->turn, RELAXED) & 1)];
  uint64_t sample = 0;
  for (uint64_t w = first / 64; w <= last / 64; w++) {
    uint64_t mask = ~(uint64_t)0;
    if (w == first / 64) mask &= ~(uint64_t)0 << (first % 64);
    if (w == last / 64) mask &= ~(uint64_t)0 >> (63 - last % 64);
    uint64_t missing = mask & ~(atomic_load_explicit(&newer[w], RELAXED) |
                                atomic_load_explicit(&older[w], RELAXED));
    if (!missing) continue;
    atomic_fetch_or_explicit(&newer[w], missing, RELAXED);
    while (missing) {
      unsigned from = __builtin_ctzll(missing);
      uint64_t run = missing >> from;
      unsigned length = ~run ? (unsigned)__builtin_ctzll(~run) : 64;
      uint64_t address = region->start + ((w * 64 + from) << PAGE_SHIFT);
      batch_add(batch, address, (uint64_t)length << PAGE_SHIFT);
      if (!sample) sample = address;
      if (from + length >= 64) break;
      missing &= ~(uint64_t)0 << (from + length);
    }
  }
  return sample;
}

void filter_forget(struct region *region, uint64_t start, uint64_t end) {
  for (uint64_t page = (start - region->start) >> PAGE_SHIFT;
       page < (end - region->start) >> PAGE_SHIFT; page++) {
    uint64_t keep = ~((uint64_t)1 << (page % 64));
    atomic_fetch_and_explicit(&region->recent[0][page / 64], keep, RELAXED);
    atomic_fetch_and_explicit(&region->recent[1][page / 64], keep, RELAXED);
  }
}
