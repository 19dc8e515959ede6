/* What a nest touches: the dimensions of each reference, the level whose iterations
 * are about a block, whether a reference is one run of pages, and whether its
 * pages will be wanted again. Nothing here looks at memory or calls the kernel.
 */
#include "nest.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a unit should touch: enough that a call costs nothing beside it. */
#define BLOCK_BYTES (256 * 1024)
/* Nests that touch less than this are over before a prefetch arrives. (The eager build is for
 * tests: every nest counts.) */
#ifndef RUNAHEAD_EAGER
#define SMALLEST_NEST (64 * 1024)
#else
#define SMALLEST_NEST 1
#endif

const int64_t *shape_read(struct reference *r, const struct runahead_reference *shape,
                                     unsigned levels, const int64_t *value) {
  r->shape = shape;
  r->address = *value++;
  for (unsigned i = 0; i < levels; i++) r->stride[i] = *value++;
  for (unsigned i = 0; i < shape->boxes; i++) {
    r->box[i].stride = *value++;
    r->box[i].count = *value++;
  }
  if (shape->flags & RUNAHEAD_INDIRECT) {
    r->scale = *value++;
    r->add = *value++;
  }
  return value;
}

const struct reference *shape_index(const struct nest *nest, const struct reference *r) {
  return &nest->reference[r->shape->index < nest->references ? r->shape->index : 0];
}

/* An inner loop of unknown length: as far as one step of the loop around it. */
int64_t shape_count(int64_t count, int64_t stride, int64_t outer) {
  if (count > 0) return count;
  if (count != RUNAHEAD_UNKNOWN) return 1;
  int64_t inner = llabs(stride), out = llabs(outer);
  return inner && out > inner ? out / inner : 1;
}

/* The dimensions of one iteration of `level`: deeper levels and boxes. */
unsigned shape_below(const struct nest *nest, const struct reference *r,
                                 unsigned level, struct dimension *out) {
  unsigned n = 0;
  int64_t outer = r->stride[level];
  for (unsigned i = level + 1; i < nest->levels; i++) {
    out[n++] = (struct dimension){r->stride[i], shape_count(nest->trip[i], r->stride[i], outer)};
    if (r->stride[i]) outer = r->stride[i];
  }
  for (unsigned i = 0; i < r->shape->boxes; i++)
    out[n++] = (struct dimension){r->box[i].stride,
                                  shape_count(r->box[i].count, r->box[i].stride, outer)};
  return n;
}

/* A called function that goes through more than a block by itself prefetches for itself (its
 * loops are a nest that is large enough), and by whole calls it would be asked for too much at
 * once: a call may touch more than memory holds. */
bool shape_left_to_called(const struct nest *nest, const struct reference *r) {
  if (!(r->shape->flags & RUNAHEAD_CALLED)) return false;
  struct dimension d[MAX_DIMENSIONS];
  unsigned n = shape_below(nest, r, nest->levels - 1, d);
  bool solid;
  return walk_bytes(r->shape->low, r->shape->high, d, n, &solid) > BLOCK_BYTES;
}

/* Of a run of `bytes` that moves on by `stride` and leaves no page out: what an iteration brings in on
 * average. That is the stride, be it more than the bytes (SP's differences near a wall: 120 bytes in each 2560,
 * taken for 120); and the first iteration brings all of the run: FT's lines along y are 256 pages, 16
 * bytes of each, and the next line the next 16. (Taken for 16 bytes an iteration, 36 MB of them were asked
 * for at once in 32 MB of memory, and the program read each page itself.) */
static double on_average(double bytes, double stride, int64_t trip) {
  bool once = bytes > stride && trip > 0 && trip < FAR;
  return once ? stride + (bytes - stride) / (double)trip : stride;
}

/* Bytes that one more iteration of `level` brings in. */
static double bytes_per_iteration(const struct nest *nest, const struct reference *r,
                                  unsigned level) {
  struct dimension d[MAX_DIMENSIONS];
  if (r->led) return 0;
  unsigned n = shape_below(nest, r, level, d);
  bool solid;
  double bytes = walk_bytes(r->shape->low, r->shape->high, d, n, &solid);
  if (r->shape->flags & RUNAHEAD_INDIRECT) {
    const struct reference *index = shape_index(nest, r);
    double times = r->quiet ? 0 : r->share * (bytes < (double)PAGE_BYTES ? (double)PAGE_BYTES : bytes);
    for (unsigned i = level + 1; i < nest->levels; i++)
      if (index->stride[i] && nest->trip[i] > 1) times *= (double)nest->trip[i];
    return times;
  }
  double stride = (double)llabs(r->stride[level]);
  if (solid && stride < bytes + PAGE_BYTES) return on_average(bytes, stride, nest->trip[level]) + 0.001;
  if (solid) return bytes < PAGE_BYTES ? PAGE_BYTES : bytes;
  return bytes;
}

static double bytes_at(const struct nest *nest, unsigned level) {
  double sum = 0;
  for (unsigned i = 0; i < nest->references; i++)
    if (nest->reference[i].region) sum += bytes_per_iteration(nest, &nest->reference[i], level);
  return sum;
}

static double iterations(int64_t trip) { return trip == RUNAHEAD_UNKNOWN ? (double)FAR : (double)trip; }

/* The outermost level whose single iteration touches no more than a block. Where there is
 * none, the outermost that touches not much more than the least: going on inwards then
 * only cuts the same pages finer (FT's lines along z: 128 pages for a whole plane of them,
 * and the same 128 for each line of it). */
static unsigned best_level(const struct nest *nest, double *bytes) {
  double at[RUNAHEAD_MAX_LEVELS], least = 0;
  for (unsigned i = 0; i < nest->levels; i++) {
    at[i] = bytes_at(nest, i);
    if (i == 0 || at[i] < least) least = at[i];
  }
  unsigned level = 0;
  while (level + 1 < nest->levels && at[level] > BLOCK_BYTES && at[level] > 2 * least) level++;
  *bytes = at[level];
  return level;
}

/* Chooses level and unit. False: too small to be worth it. */
bool shape_choose_level(struct nest *nest) {
  if (nest->levels == 0 || nest->levels > RUNAHEAD_MAX_LEVELS) return false;
  double bytes;
  unsigned level = best_level(nest, &bytes);
  if (!(nest->site->flags & RUNAHEAD_STREAM) &&
      bytes_at(nest, 0) * iterations(nest->trip[0]) < SMALLEST_NEST)
    return false;
  if (nest->trip[level] == 0) return false;
  nest->level = level;
  shape_set_unit(nest);
  return true;
}

/* The unit at the level that was chosen. */
void shape_set_unit(struct nest *nest) {
  double bytes = bytes_at(nest, nest->level);
  double block = BLOCK_BYTES < nest->room / 16 ? BLOCK_BYTES : (double)nest->room / 16;
  double fit = block / (bytes > 1 ? bytes : 1);
  int64_t unit = fit < 1 ? 1 : fit > (double)FAR ? FAR : (int64_t)fit;
  bool stream = nest->site->flags & RUNAHEAD_STREAM;
  int64_t trip = nest->trip[nest->level];
  if (!stream && trip != RUNAHEAD_UNKNOWN && unit > trip) unit = trip;
  nest->unit_iterations = unit;
  nest->units_in_level =
      stream || trip == RUNAHEAD_UNKNOWN ? FAR : (trip + unit - 1) / unit;
  nest->unit_bytes = bytes * (double)unit < 1 ? 1 : bytes * (double)unit; /* divided by */
}

/* Whether successive units of a reference are one ascending run of pages. */
bool shape_sequential(const struct nest *nest, const struct reference *r) {
  struct dimension d[MAX_DIMENSIONS + 1];
  if (r->shape->flags & RUNAHEAD_INDIRECT) return false;
  unsigned n = shape_below(nest, r, nest->level, d);
  d[n++] = (struct dimension){r->stride[nest->level], nest->unit_iterations};
  for (unsigned i = 0; i < n; i++)
    if (d[i].stride < 0) return false;
  bool solid;
  double bytes = walk_bytes(r->shape->low, r->shape->high, d, n, &solid);
  double advance = (double)r->stride[nest->level] * (double)nest->unit_iterations;
  return solid && advance > 0 && advance <= bytes + PAGE_BYTES;
}

/* Whether a unit leaves out most of the pages between its first and its last. */
bool shape_sparse(const struct nest *nest, const struct reference *r) {
  struct dimension d[MAX_DIMENSIONS + 1];
  if (r->shape->flags & RUNAHEAD_INDIRECT) return true;
  unsigned n = shape_below(nest, r, nest->level, d);
  d[n++] = (struct dimension){r->stride[nest->level], nest->unit_iterations};
  bool solid;
  double touched = walk_bytes(r->shape->low, r->shape->high, d, n, &solid);
  double span = (double)(r->shape->high - r->shape->low);
  for (unsigned i = 0; i < n; i++) span += (double)llabs(d[i].stride) * (double)(d[i].count - 1);
  return !solid && touched * 4 < span;
}

/* Bytes between the first and the last that a reference touches in the nest's levels. */
double shape_footprint(const struct nest *nest, const struct reference *r) {
  double footprint = 1;
  for (unsigned i = 0; i < nest->levels; i++)
    if (footprint < 1e18) footprint += (double)llabs(r->stride[i]) * iterations(nest->trip[i]);
  return footprint;
}

static bool same_strides(const struct nest *nest, const struct reference *a,
                         const struct reference *b) {
  return !memcmp(a->stride, b->stride, nest->levels * sizeof a->stride[0]) &&
         a->shape->boxes == b->shape->boxes &&
         !memcmp(a->box, b->box, a->shape->boxes * sizeof a->box[0]);
}

/* Is `a` where `b` comes some iterations of the outermost loop that moves them later, near
 * enough for its pages to be still there? */
static bool leads(const struct nest *nest, const struct reference *a, struct reference *b) {
  unsigned level = 0;
  while (level < nest->levels && b->stride[level] == 0) level++;
  if (level == nest->levels) return false;
  int64_t stride = b->stride[level], ahead = a->address - b->address;
  int64_t iterations_ = (int64_t)((double)ahead / (double)stride + 0.5);
  if (iterations_ < 0 || (double)iterations_ > iterations(nest->trip[level])) return false;
  if (fabs((double)ahead - (double)iterations_ * (double)stride) > (double)PAGE_BYTES) return false;
  if (fabs((double)ahead) > (double)limits_memory() / 16) return false;
  /* At the same place: the first of them. */
  if (iterations_ == 0 && (a > b || a->shape->high - a->shape->low < b->shape->high - b->shape->low))
    return false;
  b->led = true;
  b->led_level = level;
  b->led_from = iterations_;
  return true;
}

/* The planes of a stencil: what the leading reference has brought need not be asked for
 * again, nor counted, for those behind it. */
void shape_find_leaders(struct nest *nest) {
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    r->led = false;
    if (!r->region || r->shape->flags & RUNAHEAD_INDIRECT) continue;
    for (unsigned j = 0; j < nest->references && !r->led; j++) {
      const struct reference *other = &nest->reference[j];
      if (other != r && other->region == r->region && !(other->shape->flags & RUNAHEAD_INDIRECT) &&
          same_strides(nest, r, other))
        leads(nest, other, r);
    }
  }
}

/* Bytes that the nest touches in all, look-ups and what is led left out. */
double shape_nest_footprint(const struct nest *nest) {
  double sum = 0;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (r->region && !r->led && !(r->shape->flags & RUNAHEAD_INDIRECT)) sum += shape_footprint(nest, r);
  }
  return sum;
}

/* Trailing reference of its group, never touched again in the nest? */
bool shape_releases(const struct nest *nest, const struct reference *r) {
  if (r->shape->flags & (RUNAHEAD_INDIRECT | RUNAHEAD_CONDITIONAL)) return false;
  bool stream = nest->site->flags & RUNAHEAD_STREAM; /* goes on past its entry's end */
  double footprint = stream ? (double)FAR : shape_footprint(nest, r);
  int64_t direction = 0;
  for (unsigned i = 0; i < nest->levels; i++) {
    if (nest->trip[i] > 1 && r->stride[i] == 0) return false; /* used again */
    if (!direction) direction = r->stride[i];
  }
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *other = &nest->reference[i];
    if (other == r || !other->region || !same_strides(nest, r, other)) continue;
    int64_t behind = direction > 0 ? r->address - other->address : other->address - r->address;
    if (behind > 0 && (double)behind < footprint) return false;
  }
  return true;
}

/* The addresses of all its iterations, or as far as its look-ups have led. */
static void find_ends(const struct nest *nest, const struct reference *r, double *first, double *end) {
  bool indirect = r->shape->flags & RUNAHEAD_INDIRECT;
  *first = (double)(indirect ? r->lowest : r->address) + (double)r->shape->low;
  *end = (double)(indirect ? r->highest : r->address) + (double)r->shape->high;
  struct dimension d[MAX_DIMENSIONS];
  unsigned n = 0;
  for (unsigned i = 0; i < nest->levels && !indirect; i++)
    d[n++] = (struct dimension){r->stride[i], nest->trip[i] == RUNAHEAD_UNKNOWN ? FAR : nest->trip[i]};
  int64_t outer = nest->levels ? r->stride[nest->levels - 1] : 0;
  for (unsigned i = 0; i < r->shape->boxes; i++)
    d[n++] = (struct dimension){r->box[i].stride, shape_count(r->box[i].count, r->box[i].stride, outer)};
  for (unsigned i = 0; i < n; i++)
    if (d[i].count > 1) *(d[i].stride < 0 ? first : end) += (double)d[i].stride * (double)(d[i].count - 1);
}

/* Is another reference, which goes its own way, at some of the same places? Those with the same strides are told
 * from each other by where they are (shape_releases). */
bool shape_shares(const struct nest *nest, const struct reference *r) {
  double first, end, others_first, others_end;
  find_ends(nest, r, &first, &end);
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *other = &nest->reference[i];
    if (other == r || other->region != r->region) continue;
    if (!(other->shape->flags & RUNAHEAD_INDIRECT) && same_strides(nest, r, other)) continue;
    find_ends(nest, other, &others_first, &others_end);
    if (first < others_end && others_first < end) return true;
  }
  return false;
}
