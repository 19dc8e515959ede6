/* Requests to the kernel: one madvise a range, or many ranges a call; what is to be written.
 *
 * A page that has to be read costs 8 us to submit, a system call 0.1: 95,000 random
 * pages took 0.87 s by madvise, 0.99 by process_madvise with 64 ranges a call, and the
 * gather kernel 0.99-1.11 by either; the disk's own limit, by any method and with up to
 * 128 threads, is 0.83. So madvise, which needs no descriptor in the program, is the
 * rule. process_madvise on ourselves (Linux 5.10; without privilege on oneself since
 * 5.18) is there on request.
 *
 * A range that is no longer mapped makes either fail with an error that nobody minds;
 * the rest of a vector is sent again behind it.
 *
 * Long runs of pages, and writes after one that waited, are handed over to the helper (errands.c), where
 * there is one and it has room.
 */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

enum backend { UNDECIDED, VECTOR, SINGLE, NONE };
static _Atomic int backend = UNDECIDED;
static _Atomic int self_descriptor = -1;
static _Atomic int self_pid;

/* A descriptor for this process. Made anew after a fork: the inherited one names
 * the parent. Close-on-exec, as pidfd_open makes it. */
static int self(void) {
  int pid = getpid();
  int descriptor = atomic_load_explicit(&self_descriptor, memory_order_acquire);
  if (descriptor >= 0 && atomic_load_explicit(&self_pid, RELAXED) == pid) return descriptor;
  int fresh = (int)syscall(SYS_pidfd_open, pid, 0);
  if (fresh < 0) return -1;
  atomic_store_explicit(&self_pid, pid, RELAXED);
  atomic_store_explicit(&self_descriptor, fresh, memory_order_release);
  return fresh;
}

static int choose(void) {
  const char *name = getenv("RUNAHEAD_OOC_BACKEND");
  if (name && !strcmp(name, "none")) return NONE;
  if (name && !strcmp(name, "process_madvise") && self() >= 0) return VECTOR;
  return SINGLE;
}

static bool hand_over(enum errand errand, const struct region *region, uint64_t start, uint64_t end,
                      const _Atomic uint64_t *reached) {
  return errands_helped() && errands_hand_over(errand, region, start, end, reached);
}

/* A run that is worth handing over: longer than what is asked for at once where windows are narrow. */
#define WORTH_A_CALL (NARROW_REQUEST + PAGE_BYTES)

/* A region may have gone since the batch was begun, by another thread's hand. */
static void send_single(const struct iovec *range, unsigned ranges) {
  struct region *region = NULL;
  for (unsigned i = 0; i < ranges; i++) {
    uint64_t start = (uint64_t)range[i].iov_base, end = start + range[i].iov_len;
    region = region_at(start, region);
    if (!region) continue;
    bool handed_over = end - start >= WORTH_A_CALL && hand_over(ERRAND_READ, region, start, end, NULL);
    if (!handed_over) errands_read(start, end);
  }
}

/* Leaves out what belongs to a region that has gone: its addresses may be another mapping's by now. */
static unsigned still_there(struct iovec *range, unsigned ranges) {
  struct region *region = NULL;
  unsigned kept = 0;
  for (unsigned i = 0; i < ranges; i++)
    if ((region = region_at((uint64_t)range[i].iov_base, region))) range[kept++] = range[i];
  return kept;
}

static void send_vector(struct iovec *range, unsigned ranges) {
  while ((ranges = still_there(range, ranges))) {
    long done = syscall(SYS_process_madvise, self(), range, (size_t)ranges, MADV_WILLNEED, 0);
    count(COUNT_CALLS, 1);
    if (done < 0) {
      if (errno == EPERM || errno == ENOSYS || errno == EBADF || errno == EINVAL) {
        atomic_store_explicit(&backend, SINGLE, RELAXED);
        send_single(range, ranges);
        return;
      }
      done = 0; /* the first range is not mapped */
    }
    unsigned i = 0;
    while (i < ranges && (size_t)done >= range[i].iov_len) done -= (long)range[i++].iov_len;
    if (i == ranges) return;
    range += i + 1; /* this one failed: pass over it */
    ranges -= i + 1;
  }
}

/* --- what is in memory already -------------------------------------------- */

/* Behind a run that somebody else has read (the kernel's read-ahead, as a rule) more of
 * the same is looked for, so that it is dropped without a call: in this batch and in later ones. As far as a sixteenth
 * of memory, within these bounds: beyond it may be gone again before it is asked for. (A run is up to 512
 * pages: of MG's unnecessary requests at half of its data 4.0% became a call with 1024 pages always, 2.5% with
 * 3952; FT's, of 2560, 9 and 6.) */
#define LEAST_VIEW_PAGES 1024
#define VIEW_PAGES 4096

/* What was where at the last look behind a run. A thread's, and not on its stack: a loop may be a signal handler's,
 * whose own stack is 8 KB as a rule, and within one of our calls no other is made (nest.c). */
static __thread struct view {
  uint64_t start, pages;
  unsigned char present[VIEW_PAGES];
} view;

static uint64_t count_present(const unsigned char *present, uint64_t pages) {
  uint64_t there = 0;
  for (uint64_t p = 0; p < pages; p++) there += present[p] & 1;
  return there;
}

static uint64_t view_pages(void) {
  uint64_t pages = limits_memory() / PAGE_BYTES / 16;
  return pages < LEAST_VIEW_PAGES ? LEAST_VIEW_PAGES : pages < VIEW_PAGES ? pages : VIEW_PAGES;
}

/* All that is there is believed in, behind gaps as well: in SP, which goes through its planes in
 * three directions, two thirds of it are. */
static void look_on(uint64_t start) {
  struct region *region = region_at(start, NULL);
  view.pages = 0;
  if (!region) return;
  uint64_t pages = (region->end - start) >> PAGE_SHIFT;
  if (pages > view_pages()) pages = view_pages();
  if (mincore((void *)start, pages << PAGE_SHIFT, view.present)) return;
  view.start = start;
  view.pages = pages;
  for (uint64_t first = 0, end; first < pages; first = end + 1) {
    for (end = first; end < pages && view.present[end] & 1;) end++;
    if (end > first) filter_believe(region, start + (first << PAGE_SHIFT), start + (end << PAGE_SHIFT));
  }
}

static bool in_view(struct iovec range) {
  uint64_t first = ((uint64_t)range.iov_base - view.start) >> PAGE_SHIFT;
  uint64_t pages = range.iov_len >> PAGE_SHIFT;
  return first < view.pages && pages <= view.pages - first &&
         count_present(view.present + first, pages) == pages;
}

/* Of the pages that were looked at one by one or in runs: how many, and how many were there. */
struct findings {
  uint64_t looked, there;
};

/* Is the whole run in memory? Single pages are looked at for the findings' sake only. */
static bool is_there(struct iovec range, struct findings *findings) {
  unsigned char present[LONGEST_REQUEST / PAGE_BYTES]; /* of a batch no range is longer */
  if (mincore(range.iov_base, range.iov_len, present)) return false;
  uint64_t pages = range.iov_len >> PAGE_SHIFT, there = count_present(present, pages);
  findings->looked += pages;
  findings->there += there;
  bool dropped = pages >= RUN_PAGES && there == pages;
  count(dropped ? COUNT_RUNS : COUNT_LOOKED, pages);
  if (!dropped) count(COUNT_THERE, there);
  return dropped;
}

/* Of a file of ours what was never written is nowhere to be fetched from: the program's first touch makes it. A loop
 * that fills a new array would ask for all of it. Where so many looks in a row found something, only each so
 * manieth range is looked at. */
#define WRITTEN_LOOKS 16
#define RARELY 64
static bool was_never_written(struct iovec range, struct region **hint) {
  struct region *region = region_at((uint64_t)range.iov_base, *hint);
  *hint = region;
  if (!region || !region->nameless) return false;
  unsigned looks = atomic_load_explicit(&region->written_looks, RELAXED);
  if (looks >= WRITTEN_LOOKS && looks % RARELY) {
    atomic_store_explicit(&region->written_looks, looks + 1, RELAXED);
    return false;
  }
  if (!region_has_file(region)) return false;
  off_t start = (off_t)(region->offset + ((uint64_t)range.iov_base - region->start));
  off_t data = lseek(region->descriptor, start, SEEK_DATA);
  bool never = data < 0 ? errno == ENXIO : data >= start + (off_t)range.iov_len;
  atomic_store_explicit(&region->written_looks, never ? 0 : looks + 1, RELAXED);
  if (never) count(COUNT_RUNS, range.iov_len >> PAGE_SHIFT);
  return never;
}

/* Takes runs that are in memory out of the batch; of single pages a sample is looked at,
 * for what the filter learns from it. */
static void look(struct batch *batch) {
  static _Atomic unsigned turn;
  bool sample = atomic_fetch_add_explicit(&turn, 1, RELAXED) % 8 == 0;
  struct findings findings = {0, 0};
  view.start = view.pages = 0;
  unsigned kept = 0, single = 0;
  struct region *region = NULL;
  for (unsigned i = 0; i < batch->used; i++) {
    struct iovec range = batch->range[i];
    bool asked = range.iov_len >> PAGE_SHIFT >= RUN_PAGES || (sample && single++ % 16 == 0);
    bool there = in_view(range) || was_never_written(range, &region);
    if (!there && asked && is_there(range, &findings)) {
      there = true;
      look_on((uint64_t)range.iov_base + range.iov_len);
    }
    if (there)
      batch->pages -= range.iov_len >> PAGE_SHIFT;
    else
      batch->range[kept++] = range;
  }
  batch->used = kept;
  filter_saw_sent(findings.looked, findings.there);
}

void batch_flush(struct batch *batch) {
  if (!batch->used) return;
  int saved = errno;
  look(batch);
  int how = atomic_load_explicit(&backend, RELAXED);
  if (how == UNDECIDED) atomic_store_explicit(&backend, how = choose(), RELAXED);
  if (how == VECTOR) send_vector(batch->range, batch->used);
  if (how == SINGLE) send_single(batch->range, batch->used);
  count(COUNT_SENT, batch->pages);
  filter_age(batch->pages);
  batch->used = 0;
  batch->pages = 0;
  errno = saved;
}

uint64_t submit_longest(const struct region *region) {
  uint64_t longest = limits_memory() / 64; /* several references ask for one each */
  if (longest > region->window) longest = region->window;
  longest &= ~(PAGE_BYTES - 1);
  return longest < NARROW_REQUEST ? NARROW_REQUEST : longest < LONGEST_REQUEST ? longest : LONGEST_REQUEST;
}

void batch_add(struct batch *batch, const struct region *region, uint64_t start, uint64_t bytes) {
  uint64_t longest = submit_longest(region);
  batch->pages += bytes >> PAGE_SHIFT;
  while (bytes) {
    if (batch->used) {
      struct iovec *last = &batch->range[batch->used - 1];
      bool same = (uint64_t)last->iov_base >= region->start; /* and not its neighbour's */
      if (same && (uint64_t)last->iov_base + last->iov_len == start && last->iov_len + bytes <= longest) {
        last->iov_len += bytes;
        return;
      }
    }
    if (batch->used == BATCH_RANGES) batch_flush(batch);
    uint64_t part = bytes < longest ? bytes : longest;
    batch->range[batch->used++] = (struct iovec){(void *)start, part};
    start += part;
    bytes -= part;
  }
}

void batch_want(struct batch *batch, struct region *region, uint64_t start, uint64_t end, uint64_t *first) {
  uint64_t from, bytes;
  *first = 0;
  while ((bytes = filter_take(region, &start, end, &from))) {
    batch_add(batch, region, from, bytes);
    if (!*first) *first = from;
  }
}

void batch_confirm(struct batch *batch, struct region *region, uint64_t start, uint64_t end) {
  uint64_t from, bytes;
  while ((bytes = filter_find_missing(region, &start, end, &from))) batch_add(batch, region, from, bytes);
}

void submit_release(uint64_t start, uint64_t bytes, bool at_once) {
  int saved = errno;
  madvise((void *)start, bytes, at_once ? MADV_PAGEOUT : MADV_COLD);
  count(COUNT_RELEASED, bytes >> PAGE_SHIFT);
  errno = saved;
}

/* --- touching ---------------------------------------------------------------- */

bool submit_touch(const struct region *region, uint64_t start, uint64_t end, const _Atomic uint64_t *reached) {
  return hand_over(ERRAND_TOUCH, region, start, end, reached);
}

/* --- writing --------------------------------------------------------------- */

/* Writes that the helper gets after one that waited (errands.c). */
#define AFTER_A_WAIT 128
void submit_write(const struct region *region, uint64_t start, uint64_t end) {
  static _Atomic unsigned by_helper; /* writes still to be handed over */
  if (region->descriptor < 0) return;
  int saved = errno;
  unsigned left = atomic_load_explicit(&by_helper, RELAXED);
  if (left) atomic_store_explicit(&by_helper, left - 1, RELAXED);
  if (left && errands_helped()) {
    hand_over(ERRAND_WRITE, region, start, end, NULL);
  } else {
    uint64_t waits = adapt_waiting().waits;
    errands_write(region, start, end);
    if (adapt_waiting().waits != waits) atomic_store_explicit(&by_helper, AFTER_A_WAIT, RELAXED);
  }
  errno = saved;
}
