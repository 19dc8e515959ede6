/* From units of iterations to pages: affine boxes, and pages that are found through
 * index values, which are read ahead of the program and never trusted. A unit's number gives the
 * counters of the loops (unit_start), these an address for each reference, and from there on a walk goes through
 * ranges (walk.c). Every walk has a budget: counts and index values may be anything.
 */
#include "nest.h"
#include <string.h>

/* What holds index values is a thread's and not on its stack, as in walk.c: a loop may be a signal handler's, whose
 * own stack is 8 KB as a rule, and within one of our calls no other is made (nest.c). */
#define INDEX_ROOM 512

/* The iterations of `group` units: counters of the levels, and how many at `level`, not
 * past its end. */
static int64_t unit_start(const struct nest *nest, int64_t unit, int64_t group,
                          int64_t *counter) {
  int64_t rest = unit / nest->units_in_level, in_level = unit % nest->units_in_level;
  for (unsigned i = nest->level; i-- > 1;) {
    int64_t trip = nest->trip[i] > 0 ? nest->trip[i] : 1;
    counter[i] = rest % trip;
    rest /= trip;
  }
  if (nest->level > 0) counter[0] = rest;
  counter[nest->level] = in_level * nest->unit_iterations;
  int64_t count = nest->unit_iterations * group, trip = nest->trip[nest->level];
  bool bounded = !nest->run_on && trip != RUNAHEAD_UNKNOWN;
  if (bounded && counter[nest->level] - nest->origin + count > trip)
    count = trip + nest->origin - counter[nest->level];
  if (nest->level > 0 && nest->trip[0] != RUNAHEAD_UNKNOWN && counter[0] >= nest->trip[0]) return 0;
  return count;
}

/* Has another reference been there already? */
static bool is_led(const struct nest *nest, const struct reference *r, const int64_t *counter) {
  return r->led && r->led_level <= nest->level && counter[r->led_level] >= r->led_from;
}

static int64_t address_at(const struct nest *nest, const struct reference *r,
                          const int64_t *counter) {
  int64_t address = r->address;
  for (unsigned i = 0; i <= nest->level; i++) address += counter[i] * r->stride[i];
  return address;
}

uint64_t prefetch_place(const struct nest *nest, const struct reference *r, int64_t unit) {
  int64_t counter[RUNAHEAD_MAX_LEVELS] = {0};
  unit_start(nest, unit, 1, counter);
  return (uint64_t)(address_at(nest, r, counter) + r->shape->low);
}

static void want_affine(const struct nest *nest, const struct reference *r,
                        const int64_t *counter, int64_t iterations_, struct walk *walk) {
  struct dimension d[MAX_DIMENSIONS + 1];
  unsigned n = shape_below(nest, r, nest->level, d);
  d[n++] = (struct dimension){r->stride[nest->level], iterations_};
  walk_box(walk, address_at(nest, r, counter), r->shape->low, r->shape->high, d, n);
}

/* Of a[b[c[i]]] the addresses of c, b and a, or by how much a loop moves them; of a[c[i]] there is no b. */
struct places {
  int64_t direct, middle, own;
};

/* The look-ups of some iterations: where they begin, the loops over the index values, and what is touched
 * at each place that they lead to. */
struct lookups {
  const struct reference *middle; /* b, or NULL */
  struct places first;
  struct {
    struct places stride;
    int64_t times;
  } loop[RUNAHEAD_MAX_LEVELS]; /* outermost first; one at least */
  struct dimension box[MAX_DIMENSIONS];
  unsigned loops, boxes;
};

static bool is_signed(const struct reference *r) { return r->shape->flags & RUNAHEAD_SIGNED; }

/* `part` index values for r, of the loop that moves by `stride`. Returns how many
 * were looked at; `good` tells which are known. */
static unsigned read_index(const struct reference *r, const struct reference *middle,
                           const struct places *from, const struct places *stride, int64_t done,
                           unsigned part, int64_t *value, bool *good) {
  const struct reference *reader = middle ? middle : r;
  unsigned got = walk_read((uint64_t)(from->direct + done * stride->direct), stride->direct, part,
                           reader->shape->index_bytes, is_signed(reader), value);
  if (!middle) {
    memset(good, true, got);
    return got;
  }
  static __thread uint64_t address[INDEX_ROOM];
  for (unsigned i = 0; i < got; i++)
    address[i] = (uint64_t)(from->middle + (done + i) * stride->middle +
                            middle->scale * (value[i] + middle->add) + r->shape->index_offset);
  walk_gather(address, got, r->shape->index_bytes, is_signed(r), value, good);
  return got;
}

/* What a value that cannot be read costs beside one that can: it ends a call of the kernel's. */
#define UNREADABLE 64

/* The innermost of the loops, from these places on. */
static void want_run(const struct reference *r, const struct lookups *lookups,
                     const struct places *from, struct walk *walk) {
  const struct places *stride = &lookups->loop[lookups->loops - 1].stride;
  int64_t many = lookups->loop[lookups->loops - 1].times;
  static __thread int64_t value[INDEX_ROOM];
  static __thread bool good[INDEX_ROOM];
  if (r->shape->index_bytes == 0 || r->shape->index_bytes > 8) return;
  for (int64_t done = 0; done < many && walk_pay(walk, 1);) {
    unsigned part = many - done < INDEX_ROOM ? (unsigned)(many - done) : INDEX_ROOM;
    unsigned got = read_index(r, lookups->middle, from, stride, done, part, value, good);
    for (unsigned i = 0; i < got && walk_pay(walk, 1); i++) {
      if (!good[i]) {
        walk_pay(walk, UNREADABLE);
        continue;
      }
      int64_t at = from->own + (done + i) * stride->own + r->scale * (value[i] + r->add);
      if (at < walk->lowest) walk->lowest = at;
      if (at > walk->highest) walk->highest = at;
      if (lookups->boxes) {
        walk_box(walk, at, r->shape->low, r->shape->high, lookups->box, lookups->boxes);
      } else {
        walk_range(walk, (uint64_t)(at + r->shape->low), (uint64_t)(r->shape->high - r->shape->low));
      }
    }
    if (got < part) return;
    done += part;
  }
}

/* False: a longer chain of indices than we follow. */
static bool find_lookups(const struct nest *nest, const struct reference *r, const int64_t *counter,
                         int64_t iterations_, struct lookups *out) {
  const struct reference *direct = shape_index(nest, r), *reader = r;
  *out = (struct lookups){.first.own = address_at(nest, r, counter)};
  if (direct->shape->flags & RUNAHEAD_INDIRECT) {
    out->middle = reader = direct;
    direct = shape_index(nest, direct);
    out->first.middle = address_at(nest, out->middle, counter);
    if (direct->shape->flags & RUNAHEAD_INDIRECT) return false;
  }
  out->first.direct = address_at(nest, direct, counter) + reader->shape->index_offset;
  for (unsigned i = nest->level; i < nest->levels; i++) {
    int64_t times = i == nest->level ? iterations_ : nest->trip[i];
    if (times <= 1 && i != nest->level) continue;
    if (direct->stride[i]) {
      out->loop[out->loops].stride = (struct places){
          direct->stride[i], out->middle ? out->middle->stride[i] : 0, r->stride[i]};
      out->loop[out->loops++].times = times;
    } else if (r->stride[i]) {
      out->box[out->boxes++] = (struct dimension){r->stride[i], times};
    }
  }
  if (out->loops == 0) out->loop[out->loops++].times = 1;
  for (unsigned i = 0; i < r->shape->boxes; i++) {
    int64_t outer = nest->levels ? r->stride[nest->levels - 1] : 0;
    out->box[out->boxes++] = (struct dimension){
        r->box[i].stride, shape_count(r->box[i].count, r->box[i].stride, outer)};
  }
  return true;
}

static void want_indirect(const struct nest *nest, const struct reference *r,
                          const int64_t *counter, int64_t iterations_, struct walk *walk) {
  struct lookups lookups;
  if (!find_lookups(nest, r, counter, iterations_, &lookups)) return;
  /* All loops but the innermost, as an odometer. */
  int64_t turn[RUNAHEAD_MAX_LEVELS] = {0};
  const unsigned innermost = lookups.loops - 1;
  for (;;) {
    struct places at = lookups.first;
    for (unsigned i = 0; i < innermost; i++) {
      at.direct += turn[i] * lookups.loop[i].stride.direct;
      at.middle += turn[i] * lookups.loop[i].stride.middle;
      at.own += turn[i] * lookups.loop[i].stride.own;
    }
    want_run(r, &lookups, &at, walk);
    unsigned i = innermost;
    while (i > 0 && ++turn[i - 1] >= lookups.loop[i - 1].times) turn[--i] = 0;
    if (i == 0 || !walk->budget) return;
  }
}

/* Units to be asked for at once. One iteration of a line solver goes through a hundred
 * rows, the next through the same ones a few bytes further: asked for one by one these
 * are the same pages a hundred times (SP: 33 million of them in two steps). */
#define SMALLEST_ADVANCE 1024
static int64_t group_of(const struct nest *nest, const struct reference *r) {
  if (r->shape->flags & RUNAHEAD_INDIRECT) return 1;
  int64_t longest = (int64_t)submit_longest(r->region);
  if (r->sequential) return r->run_bytes < longest ? longest / r->run_bytes : 1;
  int64_t stride = r->stride[nest->level] < 0 ? -r->stride[nest->level] : r->stride[nest->level];
  if (stride < 0 || stride >= SMALLEST_ADVANCE || nest->unit_iterations >= SMALLEST_ADVANCE)
    return 1;
  int64_t advance = stride * nest->unit_iterations;
  return advance >= SMALLEST_ADVANCE ? 1 : SMALLEST_ADVANCE / (advance ? advance : 1);
}

/* Prefetches a reference up to (not including) unit `until`. */
void prefetch_until(struct nest *nest, struct reference *r, int64_t until, uint64_t *budget,
                       uint64_t *wanted, uint64_t *sent) {
  int64_t group = group_of(nest, r);
  while (r->issued < until && *budget) {
    int64_t counter[RUNAHEAD_MAX_LEVELS] = {0}, unit = r->issued;
    int64_t many = unit_start(nest, unit, group, counter);
    if (many <= 0) break; /* behind the nest's end, and so is all that follows */
    r->issued += (many - 1) / nest->unit_iterations + 1;
    if (is_led(nest, r, counter)) continue;
    /* A wrong belief is a wait, and a look once a turn is cheap beside it. (A sparse matrix at
     * 1 ms: 6000 faults, half of them in the array that it goes through from end to end; LU, 4
     * steps: 3.3 s instead of 4.2.) Runs that will be looked at before their use need none. */
    struct walk walk = {.batch = &nest->batch, .region = r->region, .budget = *budget,
                        .doubt = true,
                        .confirmed_later = nest->confirming && !(r->shape->flags & RUNAHEAD_INDIRECT),
                        .right = site_get(nest->site, SITE_RIGHT),
                        .lowest = r->lowest, .highest = r->highest};
    if (r->shape->flags & RUNAHEAD_INDIRECT)
      want_indirect(nest, r, counter, many, &walk);
    else
      want_affine(nest, r, counter, many, &walk);
    /* A run of pages may be further ahead than there is room for samples. */
    if (walk.sample && unit - nest->present < SAMPLES) {
      nest->sample[(uint64_t)unit % SAMPLES] = (struct sample){unit, walk.sample};
    }
    site_set(nest->site, SITE_RIGHT, walk.right);
    r->lowest = walk.lowest;
    r->highest = walk.highest;
    *budget = walk.budget;
    *wanted += walk.wanted;
    *sent += walk.sent;
  }
  if (r->issued < until) r->issued = until;
}

/* A request may have come to nothing: the kernel gives read-ahead up without a word where
 * memory is full of pages that have yet to be written; and what was read may have gone again, or
 * was believed in wrongly. One look at a run costs a microsecond, a page that is missed
 * waits for the disk. */
void prefetch_confirm(struct nest *nest, struct reference *r, int64_t until, uint64_t *budget) {
  if (until > r->issued) until = r->issued;
  int64_t group = group_of(nest, r);
  while (r->confirmed < until && *budget) {
    int64_t counter[RUNAHEAD_MAX_LEVELS] = {0};
    int64_t many = unit_start(nest, r->confirmed, group, counter);
    if (many <= 0) break;
    r->confirmed += (many - 1) / nest->unit_iterations + 1;
    if (is_led(nest, r, counter)) continue;
    struct walk walk = {.batch = &nest->batch, .region = r->region, .budget = *budget, .confirm = true};
    want_affine(nest, r, counter, many, &walk);
    *budget = walk.budget;
  }
  if (r->confirmed < until) r->confirmed = until;
}

void prefetch_note(struct nest *nest, struct reference *r, int64_t until) {
  enum { MOST = 64 }; /* units: after a jump the rest is not worth the time */
  if (r->issued < until - MOST) r->issued = until - MOST;
  for (; r->issued < until; r->issued++) {
    int64_t counter[RUNAHEAD_MAX_LEVELS] = {0};
    int64_t many = unit_start(nest, r->issued, 1, counter);
    struct walk walk = {.region = r->region, .budget = 4096};
    if (many > 0 && !is_led(nest, r, counter)) want_affine(nest, r, counter, many, &walk);
  }
}

uint64_t prefetch_misses(struct nest *nest, struct reference *r, int64_t unit, bool doubt) {
  enum { LOOKED_UP = 256, LOOKS = 32 };
  int64_t counter[RUNAHEAD_MAX_LEVELS] = {0};
  int64_t many = unit_start(nest, unit, 1, counter);
  if (many <= 0) return 0;
  struct walk walk = {.region = r->region, .budget = 4 * LOOKED_UP, .looks = LOOKS, .doubt = doubt};
  want_indirect(nest, r, counter, many < LOOKED_UP ? many : LOOKED_UP, &walk);
  return walk.sent;
}

/* As one range: each piece costs a call, and at its ends the kernel splits the larger
 * pieces in which it keeps a file. */
void prefetch_behind(struct nest *nest, const struct reference *r, int64_t from, int64_t until,
                     bool at_once) {
  if (from < 0) from = 0;
  while (from < until) {
    int64_t counter[RUNAHEAD_MAX_LEVELS] = {0};
    int64_t many = unit_start(nest, from, until - from, counter);
    from += many > 0 ? (many - 1) / nest->unit_iterations + 1 : 1;
    struct dimension d[MAX_DIMENSIONS + 1];
    unsigned n = shape_below(nest, r, nest->level, d);
    d[n++] = (struct dimension){r->stride[nest->level], many};
    bool solid;
    double bytes = walk_bytes(r->shape->low, r->shape->high, d, n, &solid);
    if (!solid || many <= 0) continue;
    uint64_t start = (uint64_t)(address_at(nest, r, counter) + r->shape->low);
    uint64_t end = (start + (uint64_t)bytes) & ~(PAGE_BYTES - 1);
    start &= ~(PAGE_BYTES - 1);
    if (start < r->region->start || end > r->region->end || end <= start) continue;
    if (r->writes) submit_write(r->region, start, end);
    if (!r->releases) continue;
    filter_doubt(r->region, start, end);
    submit_release(start, end - start, at_once && !r->writes);
  }
}
