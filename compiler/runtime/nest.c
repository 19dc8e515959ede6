/* Loop nests at run time: enter and step, and where in its nest the program is.
 *
 * A nest is walked in *units*: as many iterations of one level as touch about a
 * block of pages. The level is the outermost whose single iteration touches no
 * more than a block: chosen at run time (shape.c), since bounds and strides are known then. Units
 * are numbered through the whole nest, across the ends of inner loops, so that
 * prefetching runs on into the next iteration of the outer ones. At each step the
 * references are prefetched up to their distance ahead of the present unit. What is decided on the
 * way stands in plan.c, what the kernel is told in tell.c; here the two are called in turn.
 *
 * A stream (a short inner loop entered again and again) is one long line of units
 * counted from its first entry; while its entries go on where the last one ended,
 * prefetching runs past the end of each.
 *
 * Nests live in a small pool for each thread: a site gets the one that it had last, else
 * one in turn is taken: there is no leave call, so a loop may be left in any way. A
 * nest taken away under a loop only makes that loop's hints go astray.
 *
 * Rules:
 *  - Counters, values and what `previous` points to come from the program: a nest is used only if it lies in
 *    this thread's pool, and all that follows are hints.
 *  - Nothing here waits or allocates, but for the pool itself: a loop may be a signal handler's.
 */
#define _GNU_SOURCE
#include "nest.h"
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

/* A thread's nests at once: prefetching loops inside functions inside loops. */
#define NESTS 16

static const struct runahead_nest idle = {0, 0, RUNAHEAD_MAX_LEVELS, 0};
static __thread struct nest *pool;
static __thread unsigned next_in_pool;
/* This thread is in enter or step. A signal's handler may have nests of its own: it must not
 * take away one that is being worked on. (Left by longjmp, the thread goes on unassisted.) */
static __thread volatile sig_atomic_t inside;

/* From mmap and never given back: a late reader must find memory there. A function that
 * is called again and again in a loop would use up the pool, hence the site's last. */
static struct nest *take_nest(const struct runahead_site *site) {
  if (!pool) {
    void *memory = mmap(NULL, NESTS * sizeof(struct nest), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); /* never the heap's */
    if (memory == MAP_FAILED) return NULL;
    pool = memory;
  }
  for (unsigned i = 0; i < NESTS; i++)
    if (pool[i].site == site) return &pool[i];
  return &pool[next_in_pool++ % NESTS];
}

static bool mine(const struct runahead_nest *front) {
  const struct nest *nest = (const struct nest *)front;
  return pool && nest >= pool && nest < pool + NESTS;
}

/* Has the page that was asked for to be there at this unit arrived? */
static void check_sample(struct nest *nest, int64_t unit) {
  struct sample *sample = &nest->sample[(uint64_t)unit % SAMPLES];
  if (sample->unit != unit || !sample->address) return;
  unsigned char present = 1;
  int saved = errno;
  if (mincore((void *)sample->address, PAGE_BYTES, &present) == 0)
    adapt_late(nest->site, nest->following, !(present & 1));
  errno = saved;
  sample->address = 0;
}

/* Goes over to units of another size. Positions are kept, rounded down to a unit. */
static void change_unit(struct nest *nest) {
  int64_t old = nest->unit_iterations, old_in_level = nest->units_in_level;
  plan_room(nest);
  shape_set_unit(nest);
  if (nest->unit_iterations > old / 2 && nest->unit_iterations < old * 2) {
    nest->unit_iterations = old;
    nest->units_in_level = old_in_level;
  }
  for (unsigned i = 0; i <= nest->references; i++) {
    int64_t *unit = i < nest->references ? &nest->reference[i].issued : &nest->present;
    int64_t iterations = *unit % old_in_level * old;
    *unit = *unit / old_in_level * nest->units_in_level + iterations / nest->unit_iterations;
    if (i < nest->references) {
      nest->reference[i].confirmed = -1;
      nest->reference[i].probe_at = 0;
    }
  }
  nest->released = nest->present;
  plan_units(nest);
  keep_choose(nest);
  tell_advice(nest);
}

/* Brings prefetching up to date with the program being at the present unit. */
static void advance(struct nest *nest) {
  tell_wanted(nest, nest->present);
  if (nest->indirect && plan_judge(nest)) change_unit(nest);
}

/* All that changes while the nest is gone through, as it is at its beginning. */
static void prepare(struct nest *nest) {
  nest->indirect = false;
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    r->issued = 0;
    r->confirmed = -1;
    r->seen = r->found = 0;
    r->calm = 0;
    r->probe_at = 0;
    if (r->region && r->shape->flags & RUNAHEAD_INDIRECT) nest->indirect = true;
  }
  nest->batch.used = 0;
  nest->batch.pages = 0;
  nest->present = 0;
  nest->released = 0;
  nest->since = nest->looked = limits_now();
  nest->waiting = adapt_waiting();
  nest->faults = 0;
  plan_behind(nest);
  plan_units(nest);
  keep_choose(nest);
}

/* Finds the regions of what this nest prefetches; an indirect reference lives if its index can be read. */
static bool find_regions(struct nest *nest) {
  bool any = false;
  struct region *last = NULL;
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (shape_left_to_called(nest, r)) {
      r->region = NULL;
    } else if (r->shape->flags & RUNAHEAD_INDIRECT) {
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
    at = shape_read(&now, r->shape, nest->levels, at);
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

/* The program has gone through so many units since the last time. */
static void passed(struct nest *nest, int64_t unit, int64_t units, uint64_t now) {
  struct waiting waiting = adapt_waiting();
  struct waiting met = {waiting.waits - nest->waiting.waits, waiting.faults - nest->waiting.faults};
  uint64_t bytes = nest->sequential_bytes * (uint64_t)units;
  if (units > 0 && bytes && plan_is_tight(nest)) {
    if (adapt_tight_passed(nest->site, nest->room, bytes, met)) tell_driven_out(nest, unit);
  } else if (units > 0 && bytes) {
    if (adapt_prefetch_sequential(nest->site)) adapt_driven_out(nest->site, bytes, met.faults);
    adapt_measured(nest->site, bytes, now - nest->since, met.waits);
  }
  nest->since = now;
  nest->waiting = waiting;
  nest->faults = met.faults;
}

/* The program may start again at an earlier place (the next product with the same matrix);
 * what was prefetched from there on is long gone. */
static void go_back(struct nest *nest, int64_t unit) {
  if (unit >= nest->present) return;
  nest->released = unit;
  for (unsigned i = 0; i < nest->references; i++) {
    nest->reference[i].issued = unit;
    nest->reference[i].confirmed = -1;
  }
  keep_choose(nest);
}

/* The program is at `unit`, having gone through so many since the last time, and will not come back before `behind`. */
#define NOTHING_BEHIND INT64_MIN
static void arrive(struct nest *nest, int64_t unit, int64_t units, int64_t behind) {
  if (unit != nest->present) {
    go_back(nest, unit);
    check_sample(nest, unit);
    uint64_t now = limits_now();
    passed(nest, unit, units, now);
    if (behind > nest->released) tell_behind(nest, behind, now);
    nest->present = unit;
    arm_shut_off(now);
    filter_age_by_reads();
    if (plan_probe(nest, unit)) change_unit(nest);
  }
  advance(nest);
  set_window(nest, nest->present);
}

/* Re-entry of a stream. NULL when it has to start afresh. */
static struct runahead_nest *go_on(struct nest *nest, struct runahead_site *site,
                                   const int64_t *value) {
  if (nest->site != site || nest->references == 0) return NULL;
  int64_t moved = continued(nest, value);
  uint64_t score = site_get(site, SITE_RUN_ON);
  int64_t start = moved / nest->unit_iterations, unit = start;
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
  arrive(nest, unit, unit > nest->present ? unit - nest->present : 0, start);
  return &nest->front;
}

/* Where the next of a site's values is read from. */
struct cursor {
  const int64_t *given, *known;
  const int16_t *small;
};

static int64_t next_value(const struct runahead_site *site, uint64_t i, struct cursor *at) {
  switch (site->form[i / 4] >> (i % 4 * 2) & 3) {
    case RUNAHEAD_GIVEN: return *at->given++;
    case RUNAHEAD_SMALL: return *at->small++;
    case RUNAHEAD_KNOWN: return *at->known++;
    default: return 0;
  }
}

/* All of a site's values in order, those from the tables and those given. */
static void unpack(const struct runahead_site *site, const int64_t *given, int64_t *value) {
  struct cursor at = {given, site->known, site->small};
  for (uint64_t i = 0; i < site->values && i < RUNAHEAD_MAX_VALUES; i++)
    value[i] = next_value(site, i, &at);
}

/* Of all levels together, as far as they are known; they come first of a site's values. */
static uint64_t iterations_of(const struct runahead_site *site, const int64_t *given) {
  struct cursor at = {given, site->known, site->small};
  uint64_t all = 1;
  for (unsigned i = 0; i < site->levels; i++) {
    int64_t trip = next_value(site, i, &at);
    if (trip > 1 && all < (uint64_t)FAR) all *= trip < FAR ? (uint64_t)trip : (uint64_t)FAR;
  }
  return all;
}

/* What is known of a reference's look-ups holds until its table is another one: learnt anew at each
 * entry, a sort's counts were followed for an eighth of its keys each time. */
static void read_values(struct nest *nest, bool again, const int64_t *at) {
  for (unsigned i = 0; i < nest->levels; i++) {
    int64_t trip = *at++;
    nest->trip[i] = trip < 0 ? RUNAHEAD_UNKNOWN : trip > FAR ? FAR : trip;
  }
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    int64_t before = r->address;
    at = shape_read(r, &nest->site->reference[i], nest->levels, at);
    if (again && r->address == before) continue;
    r->share = 1;
    r->quiet = false;
    r->lowest = INT64_MAX;
    r->highest = INT64_MIN;
  }
}

/* The first unit of a site with these values. */
static struct runahead_nest *begin(struct nest *nest, struct runahead_site *site, const int64_t *value) {
  bool again = nest->site == site, stream = site->flags & RUNAHEAD_STREAM;
  nest->site = site;
  nest->levels = site->levels;
  nest->references = site->references;
  nest->origin = 0;
  nest->front = (struct runahead_nest){0, 0, RUNAHEAD_MAX_LEVELS, 0};
  read_values(nest, again, value);
  if (!find_regions(nest)) {
    count(COUNT_DECLINED, 1);
    return stream ? idle_stream(nest) : (struct runahead_nest *)&idle;
  }
  nest->run_on = stream && site_get(site, SITE_RUN_ON) < 4;
  plan_enter(nest);
  shape_find_leaders(nest);
  if (!shape_choose_level(nest)) {
    count(COUNT_DECLINED, 1);
    return (struct runahead_nest *)&idle;
  }
  count(COUNT_ENTERED, 1);
  prepare(nest);
  arm_shut_off(nest->since);
  advance(nest);
  tell_advice(nest); /* now that the first look-ups are known */
  set_window(nest, nest->present);
  bool several = nest->trip[nest->level] == RUNAHEAD_UNKNOWN ||
                 nest->trip[nest->level] > nest->unit_iterations || nest->level > 0;
  nest->front.level = several ? nest->level : RUNAHEAD_MAX_LEVELS;
  return &nest->front;
}

static struct runahead_nest *enter(struct runahead_site *site, const int64_t *given,
                                   struct runahead_nest *previous) {
  if (site->abi != RUNAHEAD_ABI) return (struct runahead_nest *)&idle;
  bool stream = site->flags & RUNAHEAD_STREAM;
  if (!stream && adapt_skip(site, iterations_of(site, given))) {
    tell_leaving(NULL);
    count(COUNT_DECLINED, 1);
    return (struct runahead_nest *)&idle;
  }
  int64_t value[RUNAHEAD_MAX_VALUES];
  unpack(site, given, value);
  struct nest *last = stream && previous && mine(previous) ? (struct nest *)previous : NULL;
  struct runahead_nest *gone_on = last ? go_on(last, site, value) : NULL;
  if (gone_on) return gone_on;
  struct nest *nest = last ? last : take_nest(site);
  return nest ? begin(nest, site, value) : (struct runahead_nest *)&idle;
}

EXPORTED struct runahead_nest *runahead_ooc_enter(struct runahead_site *site, const int64_t *given,
                                                  struct runahead_nest *previous) {
  if (inside) return (struct runahead_nest *)&idle;
  inside = 1;
  struct runahead_nest *nest = enter(site, given, previous);
  inside = 0;
  return nest;
}

/* Are these the last `units` of all, as far as the number of iterations is known? */
static bool are_last(const struct nest *nest, const int64_t *counter, int64_t units) {
  for (unsigned i = 0; i < nest->level; i++)
    if (nest->trip[i] == RUNAHEAD_UNKNOWN || counter[i] < nest->trip[i] - 1) return false;
  return nest->trip[nest->level] != RUNAHEAD_UNKNOWN && !(nest->site->flags & RUNAHEAD_STREAM) &&
         counter[nest->level] >= nest->trip[nest->level] - units * nest->unit_iterations;
}

/* Where all is left to the kernel there is only to be seen how it does: after so many units. (A step costs
 * 5 us, reading its data 160: 3% of a product's time in a tenth of its memory.) */
#define SELDOM 8
static int64_t units_until_next(const struct nest *nest) {
  if (nest->site->flags & RUNAHEAD_STREAM) return 1;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (r->region && (r->quiet || !plan_left_to_kernel(nest, r))) return 1;
  }
  return SELDOM;
}

static int64_t step(struct runahead_nest *front, int64_t c0, int64_t c1, int64_t c2, int64_t c3) {
  struct nest *nest = (struct nest *)front;
  if (!arm_is_set() || !mine(front) || nest->references == 0 || nest->unit_iterations <= 0)
    return INT64_MAX;
  const int64_t counter[RUNAHEAD_MAX_LEVELS] = {c0, c1, c2, c3};
  int64_t outer = nest->level > 0 ? c0 : 0;
  for (unsigned i = 1; i < nest->level; i++)
    outer = outer * (nest->trip[i] > 0 ? nest->trip[i] : 1) + counter[i];
  int64_t k = counter[nest->level] + nest->origin;
  int64_t unit = outer * nest->units_in_level + k / nest->unit_iterations;
  count(COUNT_STEPS, 1);
  bool forward = unit > nest->present && unit <= nest->present + SELDOM;
  arrive(nest, unit, forward ? unit - nest->present : 0, forward ? unit : NOTHING_BEHIND);
  int64_t units = units_until_next(nest);
  if (are_last(nest, counter, units)) tell_leaving(nest);
  return (k / nest->unit_iterations + units) * nest->unit_iterations - nest->origin;
}

/* The program is about to run the iteration with these counters. Returns the
 * iteration of the nest's level before which it wants to be called again. */
EXPORTED int64_t runahead_ooc_step(struct runahead_nest *front, int64_t c0, int64_t c1, int64_t c2,
                                   int64_t c3) {
  if (inside) return INT64_MAX;
  inside = 1;
  int64_t next = step(front, c0, c1, c2, c3);
  inside = 0;
  return next;
}
