/* The filter: most pages that compiled code asks for are in memory already.
 *
 * Two bit vectors a region. A page that was prefetched, or found in memory, is
 * set in the newer one; a page set in either is believed to be in memory. When a
 * certain number of pages has come in (the *turn*), the older vector is cleared and
 * becomes the newer: so a belief lasts for one to two turns.
 *
 * How long pages really stay depends on what else uses the memory, so it is learned:
 * samples of the pages that were dropped here and of those that were sent show which
 * way the beliefs are wrong. A page dropped though it is gone costs a stall, one sent
 * though it is there a fraction of a microsecond, hence the uneven bars. Runs of pages are
 * looked at once more before their use, whatever is believed (prefetch_confirm).
 *
 * What a look finds in memory is believed in, but is no arrival: it drives nothing out. (Counted
 * as arrivals, what looks had found made beliefs expire five times too early in FT: 38% of its
 * needless requests cost a call.)
 */
#include "internal.h"
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

static _Atomic uint64_t arrived; /* pages since the last turn */
static _Atomic uint64_t counted; /* pages since the last look at what the process read */
static _Atomic uint64_t turn;    /* pages; 0: not yet chosen */
static pthread_mutex_t turning = PTHREAD_MUTEX_INITIALIZER;

/* Samples since the last look. */
static _Atomic uint64_t dropped, dropped_gone, sent, sent_there;
#define ENOUGH_SAMPLES 256

static uint64_t present_turn(void) {
  uint64_t pages = atomic_load_explicit(&turn, RELAXED);
  /* A belief of a quarter to half a memory is outlived by an LRU list of it all. */
  return pages ? pages : limits_memory() / PAGE_BYTES / 4 + 64;
}

static void learn(void) {
  uint64_t d = atomic_load_explicit(&dropped, RELAXED), s = atomic_load_explicit(&sent, RELAXED);
  if (d + s < ENOUGH_SAMPLES) return;
  uint64_t pages = present_turn(), memory = limits_memory() / PAGE_BYTES;
  uint64_t gone = atomic_exchange_explicit(&dropped_gone, 0, RELAXED);
  uint64_t there = atomic_exchange_explicit(&sent_there, 0, RELAXED);
  atomic_store_explicit(&dropped, 0, RELAXED);
  atomic_store_explicit(&sent, 0, RELAXED);
  if (gone > 4 && gone * 50 > d) /* more than 2% of what is dropped, and no chance */
    pages -= pages / 5;
  else if (there * 20 > s || (d >= ENOUGH_SAMPLES / 2 && gone * 200 < d))
    pages += pages / 4; /* more than 5% of what is sent, or hardly any that is dropped is gone */
  if (pages < memory / 16 + 64) pages = memory / 16 + 64;
  if (pages > memory + 64) pages = memory + 64;
  atomic_store_explicit(&turn, pages, RELAXED);
}

void filter_saw_dropped(bool there) {
  atomic_fetch_add_explicit(&dropped, 1, RELAXED);
  if (!there) atomic_fetch_add_explicit(&dropped_gone, 1, RELAXED);
  learn();
}

void filter_saw_sent(uint64_t looked, uint64_t there) {
  atomic_fetch_add_explicit(&sent, looked, RELAXED);
  atomic_fetch_add_explicit(&sent_there, there, RELAXED);
}

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

/* What the process has read that nobody told us of: faults, and the kernel's read-ahead.
 * Without it a wrong belief is for ever: the page is not asked for, so none arrives, so
 * nothing expires (CG in 13 MB: 5% of its pages covered). */
void filter_age_by_reads(void) {
  static _Atomic uint64_t before;
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  uint64_t now = (uint64_t)usage.ru_inblock / (PAGE_BYTES / 512);
  uint64_t last = atomic_exchange_explicit(&before, now, RELAXED);
  uint64_t known = atomic_exchange_explicit(&counted, 0, RELAXED);
  if (now > last && now - last > known) {
    filter_age(now - last - known);
    atomic_store_explicit(&counted, 0, RELAXED);
  }
}

void filter_age(uint64_t pages) {
  atomic_fetch_add_explicit(&counted, pages, RELAXED);
  uint64_t total = atomic_fetch_add_explicit(&arrived, pages, RELAXED) + pages;
  if (total < present_turn()) return;
  if (pthread_mutex_trylock(&turning)) return;
  atomic_store_explicit(&arrived, 0, RELAXED);
  turn_all();
  pthread_mutex_unlock(&turning);
}

uint64_t filter_take(struct region *region, uint64_t *from, uint64_t end, uint64_t *start) {
  if (*from >= end) return 0;
  uint64_t page = (*from - region->start) >> PAGE_SHIFT, last = (end - 1 - region->start) >> PAGE_SHIFT;
  _Atomic uint64_t *newer = region->recent[atomic_load_explicit(&region->turn, RELAXED) & 1];
  _Atomic uint64_t *older = region->recent[!(atomic_load_explicit(&region->turn, RELAXED) & 1)];
  for (; page <= last; page = (page / 64 + 1) * 64) {
    uint64_t w = page / 64, mask = ~(uint64_t)0 << (page % 64);
    if (w == last / 64) mask &= ~(uint64_t)0 >> (63 - last % 64);
    uint64_t missing = mask & ~(atomic_load_explicit(&newer[w], RELAXED) |
                                atomic_load_explicit(&older[w], RELAXED));
    if (!missing) continue;
    unsigned at = __builtin_ctzll(missing);
    uint64_t run = missing >> at;
    unsigned length = ~run ? (unsigned)__builtin_ctzll(~run) : 64;
    uint64_t taken = (length < 64 ? ((uint64_t)1 << length) - 1 : ~(uint64_t)0) << at;
    atomic_fetch_or_explicit(&newer[w], taken, RELAXED);
    *start = region->start + ((w * 64 + at) << PAGE_SHIFT);
    *from = *start + ((uint64_t)length << PAGE_SHIFT);
    return (uint64_t)length << PAGE_SHIFT;
  }
  *from = end;
  return 0;
}

uint64_t filter_believe(struct region *region, uint64_t start, uint64_t end) {
  uint64_t first = (start - region->start) >> PAGE_SHIFT;
  uint64_t last = (end - 1 - region->start) >> PAGE_SHIFT, fresh = 0;
  _Atomic uint64_t *newer = region->recent[atomic_load_explicit(&region->turn, RELAXED) & 1];
  _Atomic uint64_t *older = region->recent[!(atomic_load_explicit(&region->turn, RELAXED) & 1)];
  for (uint64_t w = first / 64; w <= last / 64; w++) {
    uint64_t mask = ~(uint64_t)0;
    if (w == first / 64) mask &= ~(uint64_t)0 << (first % 64);
    if (w == last / 64) mask &= ~(uint64_t)0 >> (63 - last % 64);
    uint64_t missing = mask & ~atomic_load_explicit(&newer[w], RELAXED);
    if (!missing) continue;
    atomic_fetch_or_explicit(&newer[w], missing, RELAXED);
    fresh += (uint64_t)__builtin_popcountll(missing & ~atomic_load_explicit(&older[w], RELAXED));
  }
  return fresh;
}

void filter_note(struct region *region, uint64_t start, uint64_t end) {
  uint64_t fresh = filter_believe(region, start, end);
  if (fresh) filter_age(fresh);
}

bool filter_believes(struct region *region, uint64_t address) {
  uint64_t page = (address - region->start) >> PAGE_SHIFT;
  uint64_t word = atomic_load_explicit(&region->recent[0][page / 64], RELAXED) |
                  atomic_load_explicit(&region->recent[1][page / 64], RELAXED);
  return word >> (page % 64) & 1;
}

bool filter_is_old(struct region *region, uint64_t address) {
  uint64_t page = (address - region->start) >> PAGE_SHIFT;
  _Atomic uint64_t *newer = region->recent[atomic_load_explicit(&region->turn, RELAXED) & 1];
  return !(atomic_load_explicit(&newer[page / 64], RELAXED) >> (page % 64) & 1);
}

/* Are all of these pages believed in freshly, or not at all? */
static bool none_old(struct region *region, uint64_t first, uint64_t last) {
  unsigned newer = atomic_load_explicit(&region->turn, RELAXED) & 1;
  for (uint64_t w = first / 64; w <= last / 64; w++) {
    uint64_t mask = ~(uint64_t)0;
    if (w == first / 64) mask &= ~(uint64_t)0 << (first % 64);
    if (w == last / 64) mask &= ~(uint64_t)0 >> (63 - last % 64);
    if (mask & atomic_load_explicit(&region->recent[!newer][w], RELAXED) &
        ~atomic_load_explicit(&region->recent[newer][w], RELAXED))
      return false;
  }
  return true;
}

/* What leaves memory leaves it in the order in which it was used, so beliefs that are wrong come
 * together: after TRUSTED right ones in a row only a sample is looked at, until one is wrong.
 * (FT's lines along z: 30,000 looks at a page each, hardly any of which was gone.) */
static bool trusted(uint64_t *right) {
  enum { TRUSTED = 32, SAMPLE = 32 };
  return *right >= TRUSTED && ++*right % SAMPLE;
}

void filter_check_old(struct region *region, uint64_t start, uint64_t end, uint64_t *right) {
  enum { AT_ONCE = 64 };
  unsigned char present[AT_ONCE];
  start &= ~(PAGE_BYTES - 1);
  int saved = errno;
  for (; start < end; start += AT_ONCE * PAGE_BYTES) {
    uint64_t part = end - start < AT_ONCE * PAGE_BYTES ? end - start : AT_ONCE * PAGE_BYTES;
    uint64_t first = (start - region->start) >> PAGE_SHIFT, last = (start + part - 1 - region->start) >> PAGE_SHIFT;
    if (none_old(region, first, last) || trusted(right) || mincore((void *)start, part, present)) continue;
    for (uint64_t page = first; page <= last; page++) {
      uint64_t address = region->start + (page << PAGE_SHIFT);
      if (!filter_believes(region, address) || !filter_is_old(region, address)) continue;
      filter_saw_dropped(present[page - first] & 1);
      if (present[page - first] & 1) {
        count(COUNT_RUNS, 1);
        filter_believe(region, address, address + PAGE_BYTES);
        ++*right;
      } else {
        *right = 0;
        filter_forget(region, address, address + PAGE_BYTES);
      }
    }
  }
  errno = saved;
}

uint64_t filter_find_missing(struct region *region, uint64_t *from, uint64_t end, uint64_t *start) {
  enum { AT_ONCE = 256 };
  unsigned char present[AT_ONCE];
  uint64_t at = *from & ~(PAGE_BYTES - 1), found = 0;
  end = (end + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
  int saved = errno;
  while (at < end && !found) {
    uint64_t part = end - at < AT_ONCE * PAGE_BYTES ? end - at : AT_ONCE * PAGE_BYTES;
    uint64_t pages = part >> PAGE_SHIFT, p = 0;
    if (mincore((void *)at, part, present)) {
      at += part;
      continue;
    }
    while (p < pages && present[p] & 1) p++;
    if (p) filter_believe(region, at, at + (p << PAGE_SHIFT));
    *start = at + (p << PAGE_SHIFT);
    while (p < pages && !(present[p] & 1)) p++, found += PAGE_BYTES;
    count(COUNT_CONFIRMED, p);
    at += p << PAGE_SHIFT;
  }
  count(COUNT_MISSED, found >> PAGE_SHIFT);
  *from = at;
  errno = saved;
  return found;
}

void filter_doubt(struct region *region, uint64_t start, uint64_t end) {
  unsigned newer = atomic_load_explicit(&region->turn, RELAXED) & 1;
  for (uint64_t page = (start - region->start) >> PAGE_SHIFT;
       page < (end - region->start) >> PAGE_SHIFT; page++) {
    uint64_t bit = (uint64_t)1 << (page % 64);
    uint64_t had = atomic_fetch_and_explicit(&region->recent[newer][page / 64], ~bit, RELAXED);
    if (had & bit) atomic_fetch_or_explicit(&region->recent[!newer][page / 64], bit, RELAXED);
  }
}

void filter_forget(struct region *region, uint64_t start, uint64_t end) {
  for (uint64_t page = (start - region->start) >> PAGE_SHIFT;
       page < (end - region->start) >> PAGE_SHIFT; page++) {
    uint64_t keep = ~((uint64_t)1 << (page % 64));
    atomic_fetch_and_explicit(&region->recent[0][page / 64], keep, RELAXED);
    atomic_fetch_and_explicit(&region->recent[1][page / 64], keep, RELAXED);
  }
}
