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
 * Rules:
 *  - Pieces are as large as the largest that the kernel keeps a file in, and begin where those do: half of
 *    one has to be split first, which costs as much as was to be won (a product took 0.39 s instead of 0.31 with
 *    ranges that began anywhere; 2 MB that are one piece are thrown out in 15 us).
 *  - Only where the kernel's windows are wide and fit (plan_on_fast_disk): elsewhere what is behind is marked (plan.c), and beside
 *    tables that take most of memory it is thrown out from the beginning (tell.c).
 *  - Only where all else that the nest touches is small or stays in memory: what is changed is not thrown out.
 */
#define _GNU_SOURCE
#include "nest.h"
#include <errno.h>
#include <sys/mman.h>

#define PIECE LONGEST_REQUEST
/* The program may still be at the end of the last unit, and what it has just left may be mapped around. */
#define LAG PIECE
/* Beside it the program has its code, its stack and small arrays. */
#define BESIDE(memory) ((memory) / 16)
/* Less than this is not worth a call for all the rest. */
#define LEAST_KEPT(memory) ((memory) / 8)

/* Is all that the reference touches one run, gone through in order? */
static bool is_one_run(const struct nest *nest, const struct reference *r) {
  struct dimension d[MAX_DIMENSIONS];
  unsigned n = 0;
  for (unsigned i = 0; i < nest->levels; i++) {
    if (r->stride[i] < 0 || nest->trip[i] == RUNAHEAD_UNKNOWN) return false;
    if (i > 0 && r->stride[i] > r->stride[i - 1]) return false;
    d[n++] = (struct dimension){r->stride[i], nest->trip[i]};
  }
  bool solid;
  walk_bytes(r->shape->low, r->shape->high, d, n, &solid);
  return solid && r->shape->boxes == 0;
}

static bool is_passed(const struct nest *nest, const struct reference *r) {
  return r->sequential && !r->led && !(r->shape->flags & RUNAHEAD_WRITES) && shape_releases(nest, r) &&
         is_one_run(nest, r);
}

/* What is on its way at most. The kernel's: a window in use, the next one, and one that is being read around the
 * first place that is not there. */
static double under_way(const struct nest *nest, const struct reference *r) {
  return plan_left_to_kernel(nest, r) ? 3 * (double)r->region->window : 2 * (double)adapt_run_distance(nest->site);
}

/* Bytes of memory that may be kept of what is passed; 0: the rule is not for this nest. */
static double room_to_keep(const struct nest *nest, double passed, double coming) {
  double memory = (double)limits_memory(), left = (double)nest->room - BESIDE(memory);
  if (passed <= left) return 0;
  double kept = left - coming - LAG;
  return kept < LEAST_KEPT(memory) ? 0 : kept;
}

void keep_choose(struct nest *nest) {
  double passed = 0, coming = 0;
  for (unsigned i = 0; i < nest->references; i++) nest->reference[i].thrown_out = 0;
  if (nest->site->flags & RUNAHEAD_STREAM || plan_is_tight(nest) || !plan_on_fast_disk(nest)) return;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (!r->region || r->quiet) continue;
    if (r->shape->flags & RUNAHEAD_INDIRECT) return;
    bool all = is_passed(nest, r);
    if (all) passed += shape_footprint(nest, r);
    if (all && under_way(nest, r) > coming) coming = under_way(nest, r);
    if (!all && shape_footprint(nest, r) > BESIDE((double)limits_memory())) return;
  }
  double kept = room_to_keep(nest, passed, coming);
  for (unsigned i = 0; i < nest->references && kept > 0; i++) {
    struct reference *r = &nest->reference[i];
    if (!r->region || r->quiet || !is_passed(nest, r)) continue;
    uint64_t start = (uint64_t)(r->address + r->shape->low);
    r->thrown_out = start + (uint64_t)(kept * (shape_footprint(nest, r) / passed));
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

void keep_beginning(struct nest *nest, int64_t unit) {
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (!r->thrown_out) continue;
    uint64_t at = prefetch_place(nest, r, unit);
    if (at < r->region->start + LAG || at > r->region->end) continue;
    uint64_t from = piece_at(r->region, r->thrown_out), until = piece_at(r->region, at - LAG);
    if (from < r->region->start || until <= from) continue;
    filter_forget(r->region, from, until);
    submit_release(from, until - from, true);
    r->thrown_out = until;
  }
}
