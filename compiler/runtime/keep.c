/* What of data larger than memory stays for the next time that it is gone through: its beginning.
 *
 * The kernel keeps what was used last. Of data that is gone through from end to end again and again that is
 * always the part that comes last the next time too, so that each time all of it is read. So what a nest only
 * reads, in one run, is thrown out at once behind the program from a certain place on, and before that place is left
 * in memory. As memory then never fills, nothing has to be looked for to be thrown out: beside tables that
 * look-ups change that is worth more than the reading. (By its source the kernel that finds changed pages only
 * where it looks starts writing everything, and then each first change of a page is a fault again. The
 * counts of BUK, 8 of 64 MB, were written up to a hundred times in ten passes, in some runs and not
 * in others, alone as well: figures in docs/compiler.md.)
 *
 * What the kernel reads then is touched a little ahead of the program by the helper.
 *
 * Rules:
 *  - Pieces are as large as the largest that the kernel keeps a file in, and begin where those do: half of
 *    one has to be split first, which costs as much as was to be won (a product took 0.39 s instead of 0.31 with
 *    ranges that began anywhere; 2 MB that are one piece are thrown out in 15 us).
 *  - Only where the kernel's windows are wide and fit (plan_on_fast_disk): elsewhere what is behind is marked (plan.c), and beside
 *    tables that take most of memory it is thrown out from the beginning (tell.c).
 *  - Only where all else that the nest touches is small or stays in memory: what is changed is not thrown out.
 *  - Only what the program does not come back to in this nest, and only once memory has no more room than for what is
 *    on its way: pages that somebody else had read are counted as theirs, and take nothing of ours.
 */
#define _GNU_SOURCE
#include "nest.h"
#include <errno.h>
#include <sys/mman.h>

#define PIECE LONGEST_REQUEST
/* The program may still be at the end of the last unit, and what it has just left may be mapped around. */
#define LAG PIECE
/* Less than this is not worth a call for all the rest. */
#define LEAST_KEPT(memory) ((memory) / 8)
/* Rows that overlap begin a little before the end of the one before: as long as what is thrown out is further back. */
#define BACK (LAG / 2)

/* Is all that the reference touches one run, gone through in order? */
static bool is_one_run(const struct nest *nest, const struct reference *r) {
  struct dimension d[MAX_DIMENSIONS];
  unsigned n = 0;
  double inside = 0; /* from the first place to the last of one iteration */
  for (unsigned i = nest->levels; i-- > 0;) {
    int64_t trip = nest->trip[i];
    if (trip == RUNAHEAD_UNKNOWN) return false;
    if (trip <= 1) continue;
    if (r->stride[i] < 0 || inside - (double)r->stride[i] > (double)BACK) return false;
    inside += (double)r->stride[i] * (double)(trip - 1);
    d[n++] = (struct dimension){r->stride[i], trip};
  }
  bool solid;
  walk_bytes(r->shape->low, r->shape->high, d, n, &solid);
  return solid && r->shape->boxes == 0;
}

/* Tables stay, and the room is what is left beside them. */
static bool stays(const struct nest *nest, const struct reference *r) {
  return r->quiet || plan_is_kept(nest, r);
}

static bool is_passed(const struct nest *nest, const struct reference *r) {
  return r->sequential && !r->led && !(r->shape->flags & RUNAHEAD_WRITES) && shape_releases(nest, r) &&
         !shape_shares(nest, r) && is_one_run(nest, r);
}

/* What is on its way at most, of so many references that are passed. The kernel's: of each a window in use, two that
 * are touched ahead, and the one that is read meanwhile; or the last around the first place that is not there. Ours
 * is of all together. */
static double under_way(const struct nest *nest, double windows) {
  return windows > 0 ? 4 * windows : 2 * (double)adapt_run_distance(nest->site);
}

/* Bytes of memory that may be kept of what is passed; 0: the rule is not for this nest. */
static double room_to_keep(const struct nest *nest, double passed) {
  double memory = (double)limits_memory(), left = (double)nest->room - BESIDE(memory);
  if (passed <= left) return 0;
  double kept = left - (double)nest->coming;
  return kept < LEAST_KEPT(memory) ? 0 : kept;
}

void keep_choose(struct nest *nest) {
  double passed = 0, windows = 0, lags = 0;
  for (unsigned i = 0; i < nest->references; i++) nest->reference[i].thrown_out = 0;
  if (nest->site->flags & RUNAHEAD_STREAM || plan_is_tight(nest) || !plan_on_fast_disk(nest)) return;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (!r->region || stays(nest, r)) continue;
    if (r->shape->flags & RUNAHEAD_INDIRECT) return;
    bool all = is_passed(nest, r);
    if (!all && shape_footprint(nest, r) > BESIDE((double)limits_memory())) return;
    if (!all) continue;
    passed += shape_footprint(nest, r);
    lags += (double)LAG;
    if (plan_left_to_kernel(nest, r)) windows += (double)r->region->window;
  }
  nest->coming = (uint64_t)(under_way(nest, windows) + lags);
  double kept = room_to_keep(nest, passed);
  for (unsigned i = 0; i < nest->references && kept > 0; i++) {
    struct reference *r = &nest->reference[i];
    if (!r->region || stays(nest, r) || !is_passed(nest, r)) continue;
    uint64_t start = (uint64_t)(r->address + r->shape->low);
    r->thrown_out = start + (uint64_t)(kept * (shape_footprint(nest, r) / passed));
    r->asked = r->touched = 0;
    atomic_store_explicit(&r->reached, UINT64_MAX, RELAXED); /* what was handed over for another nest lapses */
  }
}

bool keep_is_there(const struct reference *r) {
  unsigned char present = 0;
  int saved = errno;
  uint64_t last = (r->thrown_out - 1) & ~(PAGE_BYTES - 1);
  if (r->thrown_out && mincore((void *)last, PAGE_BYTES, &present)) present = 0;
  errno = saved;
  return present & 1;
}

/* The last place up to here where a piece of the file begins. */
static uint64_t piece_at(const struct region *region, uint64_t address) {
  uint64_t in_file = address - region->start + region->offset, back = in_file % PIECE;
  return address - region->start < back ? region->start : address - back;
}

/* Where what the reference goes through ends, within its region. */
static uint64_t end_of(const struct nest *nest, const struct reference *r) {
  uint64_t end = (uint64_t)(r->address + r->shape->low) + (uint64_t)shape_footprint(nest, r);
  end = (end + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
  return end < r->region->end ? end : r->region->end;
}

/* The helper touches what the kernel reads for the program, two windows ahead of it: it is the helper who then waits
 * for the disk and has the next window read, and the program finds its pages mapped. (A product, 256 MB at half, on
 * a disk of 1.3 GB/s: 0.27 s, without 0.30, alone 0.41; one window ahead 0.29, three 0.27. The sum 0.15, without 0.18,
 * alone 0.18. Medians of eleven.) Only where what has been passed is thrown out: where memory fills, the
 * two are in each other's way looking for room. */
#define WINDOWS_AHEAD 2
void keep_ahead(struct nest *nest, int64_t unit) {
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (!r->thrown_out || !plan_left_to_kernel(nest, r)) continue;
    uint64_t at = prefetch_place(nest, r, unit), end = end_of(nest, r);
    if (at < r->region->start || at >= end) continue;
    atomic_store_explicit(&r->reached, at & ~(PAGE_BYTES - 1), RELAXED);
    if (r->touched < at) r->touched = piece_at(r->region, at) + PIECE;
    uint64_t far = at + WINDOWS_AHEAD * r->region->window, until = far < end ? piece_at(r->region, far) : end;
    while (r->touched < until) {
      uint64_t next = until - r->touched < PIECE ? until : r->touched + PIECE;
      if (!submit_touch(r->region, r->touched, next, &r->reached)) break;
      r->touched = next;
    }
  }
}

void keep_beginning(struct nest *nest, int64_t unit) {
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (!r->thrown_out) continue;
    uint64_t at = prefetch_place(nest, r, unit);
    if (at < r->region->start + LAG || at > r->region->end) continue;
    /* Rounded up: before the reference's own beginning there may be another array, in use. */
    uint64_t from = piece_at(r->region, r->thrown_out + PIECE - 1), until = piece_at(r->region, at - LAG);
    if (from < r->region->start || until <= from || until <= r->asked) continue;
    r->asked = until;
    if (!limits_pressed(BESIDE(limits_memory()) + nest->coming)) continue;
    filter_forget(r->region, from, until);
    submit_release(from, until - from, true);
    r->thrown_out = until;
  }
}
