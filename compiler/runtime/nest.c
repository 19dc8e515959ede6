/* Loop nests at run time: enter and step.
 *
 * A nest is walked in *units*: as many iterations of one level as touch about a
 * block of pages. The level is the outermost whose single iteration touches no
 * more than a block: chosen here, since bounds and strides are known here. Units
 * are numbered through the whole nest, across the ends of inner loops, so that
 * prefetching runs on into the next iteration of the outer ones. At each step the
 * references are prefetched up to their distance ahead of the present unit.
 *
 * A stream (a short inner loop entered again and again) is one long line of units
 * counted from its first entry; while its entries go on where the last one ended,
 * prefetching runs past the end of each.
 *
 * Nests live in a small pool for each thread, the least recently entered is taken
 * for a new one: there is no leave call, so a loop may be left in any way. A nest
 * taken away under a loop only makes that loop's hints go astray.
 */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What a unit should touch: enough that a call costs nothing beside it. */
#define BLOCK_BYTES (256 * 1024)
/* Nests that touch less than this are over before a prefetch arrives. */
#define SMALLEST_NEST (64 * 1024)
/* What one call may cost, in ranges and index values: some milliseconds, far above
 * what a sensible nest needs. */
#define MOST_WORK (1 << 17)
#define SAMPLES 256
#define NESTS 16
#define INDEX_ROOM 512
#define FAR ((int64_t)1 << 40)

struct reference {
  const struct runahead_reference *shape;
  int64_t address, stride[RUNAHEAD_MAX_LEVELS];
  struct dimension box[RUNAHEAD_MAX_BOXES];
  int64_t scale, add;
  struct region *region; /* NULL: not out of core, leave alone */
  int64_t issued;        /* units before this one have been prefetched */
  bool sequential, releases;
};

struct sample {
  int64_t unit;
  uint64_t address;
};

struct nest {
  struct runahead_nest front; /* must be first: compiled code reads it */
  struct runahead_site *site;
  unsigned levels, level, references;
  int64_t trip[RUNAHEAD_MAX_LEVELS];
  int64_t unit_iterations, units_in_level;
  int64_t origin;      /* streams: iterations between the first entry and this one */
  bool run_on, indirect;
  double unit_bytes;   /* of all references, indirect ones a page each */
  uint64_t sequential_bytes; /* a unit's, of sequential references */
  int64_t present;     /* unit */
  uint64_t since;      /* when it began */
  struct region *advised;
  struct sample sample[SAMPLES];
  struct batch batch;
  struct reference reference[RUNAHEAD_MAX_REFERENCES];
};

static const struct runahead_nest idle = {0, 0, RUNAHEAD_MAX_LEVELS, 0};
static __thread struct nest *pool;
static __thread unsigned next_in_pool;

/* From mmap and never given back: a late reader must find memory there. */
static struct nest *take_nest(void) {
  if (!pool) {
    void *memory = mmap(NULL, NESTS * sizeof(struct nest), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    pool = memory;
  }
  return &pool[next_in_pool++ % NESTS];
}

static bool mine(const struct runahead_nest *front) {
  const struct nest *nest = (const struct nest *)front;
  return pool && nest >= pool && nest < pool + NESTS;
}

/* --- what the nest touches ------------------------------------------------ */

static const int64_t *read_reference(struct reference *r, const struct runahead_reference *shape,
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

static const struct reference *index_of(const struct nest *nest, const struct reference *r) {
  return &nest->reference[r->shape->index < nest->references ? r->shape->index : 0];
}

/* An inner loop of unknown length: as far as one step of the loop around it. */
static int64_t known_count(int64_t count, int64_t stride, int64_t outer) {
  if (count > 0) return count;
  if (count != RUNAHEAD_UNKNOWN) return 1;
  int64_t inner = llabs(stride), out = llabs(outer);
  return inner && out > inner ? out / inner : 1;
}

/* The dimensions of one iteration of `level`: deeper levels and boxes. */
static unsigned dimensions_below(const struct nest *nest, const struct reference *r,
                                 unsigned level, struct dimension *out) {
  unsigned n = 0;
  int64_t outer = r->stride[level];
  for (unsigned i = level + 1; i < nest->levels; i++) {
    out[n++] = (struct dimension){r->stride[i], known_count(nest->trip[i], r->stride[i], outer)};
    if (r->stride[i]) outer = r->stride[i];
  }
  for (unsigned i = 0; i < r->shape->boxes; i++)
    out[n++] = (struct dimension){r->box[i].stride,
                                  known_count(r->box[i].count, r->box[i].stride, outer)};
  return n;
}

/* Bytes that one more iteration of `level` brings in. */
static double bytes_per_iteration(const struct nest *nest, const struct reference *r,
                                  unsigned level) {
  struct dimension d[MAX_DIMENSIONS];
  unsigned n = dimensions_below(nest, r, level, d);
  bool solid;
  double bytes = walk_bytes(r->shape->low, r->shape->high, d, n, &solid);
  if (r->shape->flags & RUNAHEAD_INDIRECT) {
    const struct reference *index = index_of(nest, r);
    double times = bytes < (double)PAGE_BYTES ? (double)PAGE_BYTES : bytes;
    for (unsigned i = level + 1; i < nest->levels; i++)
      if (index->stride[i] && nest->trip[i] > 1) times *= (double)nest->trip[i];
    return times;
  }
  double stride = (double)llabs(r->stride[level]);
  if (solid) return stride < bytes + PAGE_BYTES ? (stride < bytes ? stride : bytes) + 0.001
                                                : (bytes < PAGE_BYTES ? PAGE_BYTES : bytes);
  return bytes;
}

static double bytes_at(const struct nest *nest, unsigned level) {
  double sum = 0;
  for (unsigned i = 0; i < nest->references; i++)
    if (nest->reference[i].region) sum += bytes_per_iteration(nest, &nest->reference[i], level);
  return sum;
}

static double iterations(int64_t trip) { return trip == RUNAHEAD_UNKNOWN ? (double)FAR : (double)trip; }

/* Chooses level and unit. False: too small to be worth it. */
static bool choose_level(struct nest *nest) {
  unsigned level = 0;
  double bytes = bytes_at(nest, 0);
  if (!(nest->site->flags & RUNAHEAD_STREAM) && bytes * iterations(nest->trip[0]) < SMALLEST_NEST)
    return false;
  while (bytes > BLOCK_BYTES && level + 1 < nest->levels) bytes = bytes_at(nest, ++level);
  double fit = BLOCK_BYTES / (bytes > 1 ? bytes : 1);
  int64_t unit = fit < 1 ? 1 : fit > (double)FAR ? FAR : (int64_t)fit;
  bool stream = nest->site->flags & RUNAHEAD_STREAM;
  int64_t trip = nest->trip[level];
  if (trip == 0) return false;
  if (!stream && trip != RUNAHEAD_UNKNOWN && unit > trip) unit = trip;
  nest->level = level;
  nest->unit_iterations = unit;
  nest->units_in_level =
      stream || trip == RUNAHEAD_UNKNOWN ? FAR : (trip + unit - 1) / unit;
  nest->unit_bytes = bytes * (double)unit;
  return true;
}

/* Whether successive units of a reference are one ascending run of pages. */
static bool is_sequential(const struct nest *nest, const struct reference *r) {
  struct dimension d[MAX_DIMENSIONS + 1];
  if (r->shape->flags & RUNAHEAD_INDIRECT) return false;
  unsigned n = dimensions_below(nest, r, nest->level, d);
  d[n++] = (struct dimension){r->stride[nest->level], nest->unit_iterations};
  for (unsigned i = 0; i < n; i++)
    if (d[i].stride < 0) return false;
  bool solid;
  double bytes = walk_bytes(r->shape->low, r->shape->high, d, n, &solid);
  double advance = (double)r->stride[nest->level] * (double)nest->unit_iterations;
  return solid && advance > 0 && advance <= bytes + PAGE_BYTES && bytes >= PAGE_BYTES;
}

static bool same_strides(const struct nest *nest, const struct reference *a,
                         const struct reference *b) {
  return !memcmp(a->stride, b->stride, nest->levels * sizeof a->stride[0]) &&
         a->shape->boxes == b->shape->boxes &&
         !memcmp(a->box, b->box, a->shape->boxes * sizeof a->box[0]);
}

/* Trailing reference of its group, never touched again in the nest? */
static bool may_release(const struct nest *nest, const struct reference *r) {
  if (r->shape->flags & (RUNAHEAD_INDIRECT | RUNAHEAD_CONDITIONAL)) return false;
  double footprint = 1;
  int64_t direction = 0;
  for (unsigned i = 0; i < nest->levels; i++) {
    if (nest->trip[i] > 1 && r->stride[i] == 0) return false; /* used again */
    if (!direction) direction = r->stride[i];
    if (footprint < 1e18) footprint += (double)llabs(r->stride[i]) * iterations(nest->trip[i]);
  }
  /* What fits into memory may be wanted by the next nest. */
  if (footprint < (double)limits_memory() / 2) return false;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *other = &nest->reference[i];
    if (other == r || !other->region || !same_strides(nest, r, other)) continue;
    int64_t behind = direction > 0 ? r->address - other->address : other->address - r->address;
    if (behind > 0 && (double)behind < footprint) return false;
  }
  return true;
}

/* --- from units to pages -------------------------------------------------- */

/* The iterations of a unit: counters of the levels, and how many at `level`. */
static int64_t unit_start(const struct nest *nest, int64_t unit, int64_t *counter) {
  int64_t rest = unit / nest->units_in_level, in_level = unit % nest->units_in_level;
  for (unsigned i = nest->level; i-- > 1;) {
    int64_t trip = nest->trip[i] > 0 ? nest->trip[i] : 1;
    counter[i] = rest % trip;
    rest /= trip;
  }
  if (nest->level > 0) counter[0] = rest;
  counter[nest->level] = in_level * nest->unit_iterations;
  int64_t count = nest->unit_iterations, trip = nest->trip[nest->level];
  bool bounded = !nest->run_on && trip != RUNAHEAD_UNKNOWN;
  if (bounded && counter[nest->level] - nest->origin + count > trip)
    count = trip + nest->origin - counter[nest->level];
  if (nest->level > 0 && nest->trip[0] != RUNAHEAD_UNKNOWN && counter[0] >= nest->trip[0]) return 0;
  return count;
}

static int64_t address_at(const struct nest *nest, const struct reference *r,
                          const int64_t *counter) {
  int64_t address = r->address;
  for (unsigned i = 0; i <= nest->level; i++) address += counter[i] * r->stride[i];
  return address;
}

static void want_affine(const struct nest *nest, const struct reference *r,
                        const int64_t *counter, int64_t iterations_, struct walk *walk) {
  struct dimension d[MAX_DIMENSIONS + 1];
  unsigned n = dimensions_below(nest, r, nest->level, d);
  d[n++] = (struct dimension){r->stride[nest->level], iterations_};
  walk_box(walk, address_at(nest, r, counter), r->shape->low, r->shape->high, d, n);
}

/* Where index values come from: an affine reference, and for a[b[c[i]]] one more
 * that is found through it. */
struct index_source {
  const struct reference *direct; /* c */
  const struct reference *middle; /* b, or NULL */
  int64_t middle_address, middle_stride;
};

static bool is_signed(const struct reference *r) { return r->shape->flags & RUNAHEAD_SIGNED; }

/* Index values for r, `part` of them from the direct address on. Returns how many
 * were looked at; `good` tells which are known. */
static unsigned read_index(const struct reference *r, const struct index_source *source,
                           uint64_t from, int64_t stride, int64_t done, unsigned part,
                           int64_t *value, bool *good) {
  const struct reference *middle = source->middle;
  const struct reference *reader = middle ? middle : r;
  unsigned got = walk_read(from + (uint64_t)(done * stride), stride, part,
                           reader->shape->index_bytes, is_signed(reader), value);
  if (!middle) {
    memset(good, true, got);
    return got;
  }
  uint64_t address[INDEX_ROOM];
  for (unsigned i = 0; i < got; i++)
    address[i] = (uint64_t)(source->middle_address + (done + i) * source->middle_stride +
                            middle->scale * (value[i] + middle->add) + r->shape->index_offset);
  walk_gather(address, got, r->shape->index_bytes, is_signed(r), value, good);
  return got;
}

/* The pages of a[b[i]] for a run of `many` index values. */
static void want_run(const struct reference *r, const struct index_source *source,
                     uint64_t index_address, int64_t index_stride, int64_t many, int64_t address,
                     int64_t own_stride, const struct dimension *box, unsigned boxes,
                     struct walk *walk) {
  int64_t value[INDEX_ROOM];
  bool good[INDEX_ROOM];
  if (r->shape->index_bytes == 0 || r->shape->index_bytes > 8) return;
  for (int64_t done = 0; done < many && walk_pay(walk, 1);) {
    unsigned part = many - done < INDEX_ROOM ? (unsigned)(many - done) : INDEX_ROOM;
    unsigned got = read_index(r, source, index_address, index_stride, done, part, value, good);
    for (unsigned i = 0; i < got && walk_pay(walk, 1); i++) {
      if (!good[i]) continue;
      int64_t at = address + (done + i) * own_stride + r->scale * (value[i] + r->add);
      if (boxes) {
        walk_box(walk, at, r->shape->low, r->shape->high, box, boxes);
      } else {
        walk_range(walk, (uint64_t)(at + r->shape->low), (uint64_t)(r->shape->high - r->shape->low));
      }
    }
    if (got < part) return;
    done += part;
  }
}

static void want_indirect(const struct nest *nest, const struct reference *r,
                          const int64_t *counter, int64_t iterations_, struct walk *walk) {
  struct index_source source = {.direct = index_of(nest, r)};
  const struct reference *reader = r;
  if (source.direct->shape->flags & RUNAHEAD_INDIRECT) {
    source.middle = reader = source.direct;
    source.direct = index_of(nest, source.middle);
    source.middle_address = address_at(nest, source.middle, counter);
    if (source.direct->shape->flags & RUNAHEAD_INDIRECT) return; /* longer than we follow */
  }
  const struct reference *index = source.direct;
  int64_t at = address_at(nest, index, counter) + reader->shape->index_offset;
  int64_t address = address_at(nest, r, counter);
  struct dimension box[MAX_DIMENSIONS], loop[RUNAHEAD_MAX_LEVELS];
  int64_t own[RUNAHEAD_MAX_LEVELS], middle[RUNAHEAD_MAX_LEVELS];
  unsigned boxes = 0, loops = 0;
  for (unsigned i = nest->level; i < nest->levels; i++) {
    int64_t times = i == nest->level ? iterations_ : nest->trip[i];
    if (times <= 1 && i != nest->level) continue;
    if (index->stride[i]) {
      own[loops] = r->stride[i];
      middle[loops] = source.middle ? source.middle->stride[i] : 0;
      loop[loops++] = (struct dimension){index->stride[i], times};
    } else if (r->stride[i]) {
      box[boxes++] = (struct dimension){r->stride[i], times};
    }
  }
  for (unsigned i = 0; i < r->shape->boxes; i++) {
    int64_t outer = nest->levels ? r->stride[nest->levels - 1] : 0;
    box[boxes++] = (struct dimension){r->box[i].stride,
                                      known_count(r->box[i].count, r->box[i].stride, outer)};
  }
  if (loops == 0) {
    want_run(r, &source, (uint64_t)at, 0, 1, address, 0, box, boxes, walk);
    return;
  }
  /* All loops over the index but the innermost, as an odometer. */
  int64_t turn[RUNAHEAD_MAX_LEVELS] = {0}, middle_base = source.middle_address;
  for (;;) {
    int64_t index_at = at, own_at = address;
    source.middle_address = middle_base;
    for (unsigned i = 0; i + 1 < loops; i++) {
      index_at += turn[i] * loop[i].stride;
      own_at += turn[i] * own[i];
      source.middle_address += turn[i] * middle[i];
    }
    source.middle_stride = middle[loops - 1];
    want_run(r, &source, (uint64_t)index_at, loop[loops - 1].stride, loop[loops - 1].count, own_at,
             own[loops - 1], box, boxes, walk);
    unsigned i = loops - 1;
    while (i > 0 && ++turn[i - 1] >= loop[i - 1].count) turn[--i] = 0;
    if (i == 0 || !walk->budget) return;
  }
}

/* Prefetches a reference up to (not including) unit `until`. */
static void want_until(struct nest *nest, struct reference *r, int64_t until, uint64_t *budget,
                       uint64_t *wanted, uint64_t *sent) {
  for (; r->issued < until && *budget; r->issued++) {
    int64_t counter[RUNAHEAD_MAX_LEVELS] = {0};
    int64_t many = unit_start(nest, r->issued, counter);
    if (many <= 0) continue;
    struct walk walk = {.batch = &nest->batch, .region = r->region, .budget = *budget};
    if (r->shape->flags & RUNAHEAD_INDIRECT)
      want_indirect(nest, r, counter, many, &walk);
    else
      want_affine(nest, r, counter, many, &walk);
    if (walk.sample) {
      nest->sample[(uint64_t)r->issued % SAMPLES] = (struct sample){r->issued, walk.sample};
    }
    *budget = walk.budget;
    *wanted += walk.wanted;
    *sent += walk.sent;
  }
  if (r->issued < until) r->issued = until;
}

static void release_unit(struct nest *nest, const struct reference *r, int64_t unit) {
  int64_t counter[RUNAHEAD_MAX_LEVELS] = {0};
  int64_t many = unit_start(nest, unit, counter);
  struct dimension d[MAX_DIMENSIONS + 1];
  unsigned n = dimensions_below(nest, r, nest->level, d);
  d[n++] = (struct dimension){r->stride[nest->level], many};
  bool solid;
  double bytes = walk_bytes(r->shape->low, r->shape->high, d, n, &solid);
  if (!solid || many <= 0) return;
  uint64_t start = (uint64_t)(address_at(nest, r, counter) + r->shape->low);
  uint64_t end = (start + (uint64_t)bytes) & ~(PAGE_BYTES - 1);
  start &= ~(PAGE_BYTES - 1);
  if (start < r->region->start || end > r->region->end || end <= start) return;
  filter_forget(r->region, start, end);
  submit_release(start, end - start, false);
}

/* --- the two calls -------------------------------------------------------- */

static void check_sample(struct nest *nest, int64_t unit) {
  struct sample *sample = &nest->sample[(uint64_t)unit % SAMPLES];
  if (sample->unit != unit || !sample->address) return;
  unsigned char present = 1;
  int saved = errno;
  if (mincore((void *)sample->address, PAGE_BYTES, &present) == 0)
    adapt_late(nest->site, nest->indirect, !(present & 1));
  errno = saved;
  sample->address = 0;
}

/* How many references, one through the other, wait for this one's values. */
static int64_t depth(const struct nest *nest, const struct reference *r) {
  if (!(r->shape->flags & RUNAHEAD_INDEX)) return 0;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *user = &nest->reference[i];
    if (user->shape->flags & RUNAHEAD_INDIRECT && user->shape->flags & RUNAHEAD_INDEX &&
        index_of(nest, user) == r)
      return 2;
  }
  return 1;
}

/* Brings prefetching up to date with the program being at `unit`. */
static void advance(struct nest *nest, int64_t unit) {
  bool ours = adapt_prefetch_sequential(nest->site);
  int64_t ahead = (int64_t)((double)adapt_distance(nest->site, nest->indirect) / nest->unit_bytes) + 1;
  if (ahead >= SAMPLES / 2) ahead = SAMPLES / 2 - 1;
  uint64_t wanted = 0, sent = 0, budget = MOST_WORK;
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (!r->region) continue;
    if (r->issued < unit) r->issued = unit;
    if (r->sequential && !ours) continue;
    /* Index values have to be there when they are read: a distance earlier for
     * each reference that is found through them. */
    int64_t until = unit + (1 + depth(nest, r)) * ahead + 1;
    /* Runs of pages go out in bursts: few, long requests. */
    if (r->sequential && r->issued > unit && until - r->issued < ahead / 4) continue;
    want_until(nest, r, until, &budget, &wanted, &sent);
  }
  batch_flush(&nest->batch);
  count(COUNT_WANTED, wanted);
  site_set(nest->site, SITE_WANTED, site_get(nest->site, SITE_WANTED) + wanted);
  site_set(nest->site, SITE_SENT, site_get(nest->site, SITE_SENT) + sent);
}

/* Random pages of a mapping under normal advice cost a whole read-ahead window
 * for each one missed. Said only for ranges that this nest alone seems to use. */
static void advise(struct nest *nest) {
  for (unsigned i = 0; i < nest->references; i++) {
    struct region *region = nest->reference[i].region;
    if (!region) continue;
    bool sequential = false, random = false;
    for (unsigned j = 0; j < nest->references; j++)
      if (nest->reference[j].region == region) {
        if (nest->reference[j].sequential) sequential = true;
        else random = true;
      }
    int want = MADV_NORMAL;
    if (random && !sequential) want = MADV_RANDOM;
    /* A pass over more than memory leaves nothing behind that is worth keeping. */
    if (sequential && !random && region->end - region->start > limits_memory() / 2)
      want = MADV_SEQUENTIAL;
    if (atomic_exchange_explicit(&region->advice, want, RELAXED) == want) continue;
    int saved = errno;
    madvise((void *)region->start, region->end - region->start, want);
    errno = saved;
  }
}

static void prepare(struct nest *nest) {
  nest->indirect = false;
  nest->sequential_bytes = 0;
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    r->issued = 0;
    r->sequential = r->releases = false;
    if (!r->region) continue;
    if (r->shape->flags & RUNAHEAD_INDIRECT) nest->indirect = true;
    r->sequential = is_sequential(nest, r);
    r->releases = may_release(nest, r);
    if (r->sequential)
      nest->sequential_bytes +=
          (uint64_t)(r->stride[nest->level] * nest->unit_iterations);
  }
  for (unsigned i = 0; i < SAMPLES; i++) nest->sample[i].unit = -1;
  nest->batch.used = 0;
  nest->batch.pages = 0;
  nest->present = 0;
  nest->since = limits_now();
}

/* Finds the regions; an indirect reference lives if its index can be read. */
static bool find_regions(struct nest *nest) {
  bool any = false;
  struct region *last = NULL;
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (r->shape->flags & RUNAHEAD_INDIRECT) {
      /* Where the values lead is not known; the base is as good a guess as any. */
      r->region = region_at((uint64_t)(r->address + r->shape->low), last);
      for (unsigned s = 0; !r->region && s < region_slots(); s++)
        if (r->shape->index_bytes == 8 && r->scale == 1) r->region = region_number(s);
    } else {
      r->region = region_at((uint64_t)(r->address + r->shape->low), last);
    }
    if (r->region) {
      last = r->region;
      any = true;
    }
  }
  return any;
}

static struct reference *lead(struct nest *nest) {
  for (unsigned i = 0; i < nest->references; i++)
    if (!(nest->reference[i].shape->flags & RUNAHEAD_INDIRECT) && nest->reference[i].stride[0])
      return &nest->reference[i];
  return NULL;
}

static void set_window(struct nest *nest, int64_t unit) {
  struct reference *r = lead(nest);
  if (!(nest->site->flags & RUNAHEAD_STREAM) || !r || r->stride[0] < 0) return;
  nest->front.window_start = (uint64_t)(r->address + unit * nest->unit_iterations * r->stride[0]);
  nest->front.window_bytes = (uint64_t)(nest->unit_iterations * r->stride[0]);
}

/* A stream entered again: how many iterations after its first entry, or -1 when
 * its references have not moved together. */
static int64_t continued(struct nest *nest, const int64_t *value) {
  struct reference *first = lead(nest);
  if (!first) return -1;
  struct reference now;
  const int64_t *at = value + nest->levels;
  int64_t moved = -1;
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    at = read_reference(&now, r->shape, nest->levels, at);
    if (r->shape->flags & RUNAHEAD_INDIRECT || !r->region) continue;
    if (now.stride[0] != r->stride[0]) return -1;
    if (r->stride[0] == 0) continue;
    if (r->stride[0] == -1) return -1; /* the smallest number divided by it traps */
    int64_t difference = now.address - r->address;
    if (difference % r->stride[0]) return -1;
    int64_t iterations_ = difference / r->stride[0];
    if (moved >= 0 && iterations_ != moved) return -1;
    if (iterations_ < 0) return -1;
    moved = iterations_;
  }
  return moved;
}

/* For a stream outside all regions: nothing to do until it comes out of the gap. */
static struct runahead_nest *idle_stream(struct nest *nest) {
  struct reference *r = lead(nest);
  if (!r) return (struct runahead_nest *)&idle;
  uint64_t start, end;
  region_gap((uint64_t)r->address, &start, &end);
  nest->front = (struct runahead_nest){start, end - start, RUNAHEAD_MAX_LEVELS, 0};
  nest->references = 0;
  return &nest->front;
}

/* Re-entry of a stream. NULL when it has to start afresh. */
static struct runahead_nest *go_on(struct nest *nest, struct runahead_site *site,
                                   const int64_t *value) {
  if (nest->site != site || nest->references == 0) return NULL;
  int64_t moved = continued(nest, value);
  uint64_t score = site_get(site, SITE_RUN_ON);
  int64_t unit = moved / nest->unit_iterations;
  if (moved < 0 || unit > nest->present + SAMPLES) {
    /* Not where it was foretold: trust run-on less. */
    site_set(site, SITE_RUN_ON, score >= 8 ? 8 : score + 1);
    count(COUNT_RESTARTS, 1);
    return NULL;
  }
  if (score) site_set(site, SITE_RUN_ON, score - 1);
  nest->origin = moved;
  nest->trip[0] = value[0];
  int64_t last = value[0] > 0 ? (moved + value[0] - 1) / nest->unit_iterations : unit;
  /* A long entry is cut into strips; a short one just moves on. */
  nest->front.level = value[0] == RUNAHEAD_UNKNOWN || last > unit + 1 ? 0 : RUNAHEAD_MAX_LEVELS;
  if (nest->front.level) unit = last;
  if (unit != nest->present) {
    check_sample(nest, unit);
    uint64_t now = limits_now();
    if (unit > nest->present && nest->sequential_bytes)
      adapt_measured(site, nest->sequential_bytes * (uint64_t)(unit - nest->present),
                     now - nest->since);
    nest->since = now;
    nest->present = unit;
    adapt_shut_off(now);
  }
  advance(nest, unit);
  set_window(nest, unit);
  return &nest->front;
}

EXPORTED struct runahead_nest *runahead_ooc_enter(struct runahead_site *site, const int64_t *value,
                                                  struct runahead_nest *previous) {
  bool stream = site->flags & RUNAHEAD_STREAM;
  if (stream && previous && mine(previous)) {
    struct runahead_nest *again = go_on((struct nest *)previous, site, value);
    if (again) return again;
  }
  if (site->abi != RUNAHEAD_ABI || (!stream && adapt_skip(site))) {
    count(COUNT_DECLINED, 1);
    return (struct runahead_nest *)&idle;
  }
  struct nest *nest = stream && previous && mine(previous) ? (struct nest *)previous : take_nest();
  if (!nest) return (struct runahead_nest *)&idle;
  nest->site = site;
  nest->levels = site->levels;
  nest->references = site->references;
  nest->origin = 0;
  nest->front = (struct runahead_nest){0, 0, RUNAHEAD_MAX_LEVELS, 0};
  const int64_t *at = value;
  for (unsigned i = 0; i < nest->levels; i++) {
    int64_t trip = *at++;
    nest->trip[i] = trip < 0 ? RUNAHEAD_UNKNOWN : trip > FAR ? FAR : trip;
  }
  for (unsigned i = 0; i < nest->references; i++)
    at = read_reference(&nest->reference[i], &site->reference[i], nest->levels, at);
  if (!find_regions(nest)) {
    count(COUNT_DECLINED, 1);
    return stream ? idle_stream(nest) : (struct runahead_nest *)&idle;
  }
  nest->run_on = stream && site_get(site, SITE_RUN_ON) < 4;
  if (!choose_level(nest)) {
    count(COUNT_DECLINED, 1);
    return (struct runahead_nest *)&idle;
  }
  count(COUNT_ENTERED, 1);
  prepare(nest);
  advise(nest);
  adapt_shut_off(nest->since);
  advance(nest, 0);
  set_window(nest, 0);
  bool several = nest->trip[nest->level] == RUNAHEAD_UNKNOWN ||
                 nest->trip[nest->level] > nest->unit_iterations || nest->level > 0;
  nest->front.level = several ? nest->level : RUNAHEAD_MAX_LEVELS;
  return &nest->front;
}

/* The program is about to run the iteration with these counters. Returns the
 * iteration of the nest's level before which it wants to be called again. */
EXPORTED int64_t runahead_ooc_step(struct runahead_nest *front, int64_t c0, int64_t c1, int64_t c2,
                                   int64_t c3) {
  struct nest *nest = (struct nest *)front;
  if (!adapt_armed() || !mine(front) || nest->references == 0 || nest->unit_iterations <= 0)
    return INT64_MAX;
  const int64_t counter[RUNAHEAD_MAX_LEVELS] = {c0, c1, c2, c3};
  int64_t outer = nest->level > 0 ? c0 : 0;
  for (unsigned i = 1; i < nest->level; i++)
    outer = outer * (nest->trip[i] > 0 ? nest->trip[i] : 1) + counter[i];
  int64_t k = counter[nest->level] + nest->origin;
  int64_t unit = outer * nest->units_in_level + k / nest->unit_iterations;
  int64_t next = (k / nest->unit_iterations + 1) * nest->unit_iterations - nest->origin;
  count(COUNT_STEPS, 1);
  if (unit != nest->present) {
    uint64_t now = limits_now();
    bool forward = unit == nest->present + 1;
    if (forward && nest->sequential_bytes)
      adapt_measured(nest->site, nest->sequential_bytes, now - nest->since);
    if (!forward)
      /* Elsewhere than expected: what was prefetched from here on is not known. */
      for (unsigned i = 0; i < nest->references; i++)
        if (unit < nest->present) nest->reference[i].issued = unit;
    check_sample(nest, unit);
    nest->since = now;
    if (forward && unit % 16 == 0 && limits_pressed())
      for (unsigned i = 0; i < nest->references; i++)
        if (nest->reference[i].region && nest->reference[i].releases &&
            atomic_load_explicit(&nest->reference[i].region->advice, RELAXED) != MADV_SEQUENTIAL)
          for (int64_t u = unit - 16 > 0 ? unit - 16 : 0; u < unit; u++)
            release_unit(nest, &nest->reference[i], u);
    nest->present = unit;
    adapt_shut_off(now);
  }
  advance(nest, unit);
  set_window(nest, unit);
  return next;
}
