/* What a nest decides: what memory holds for it, who reads its runs of pages, how far ahead,
 * which look-ups are followed, and what is given up behind it.
 *
 * *Room* is what memory has beside the tables that look-ups stay in; where these leave less than
 * half of it the nest is *tight*, and what goes past them is read late and given up at once. *Windows* are what the
 * kernel's read-ahead brings at once: runs of pages are left to it where its windows are wide and memory
 * holds several, and nobody changes what they bring. What is *given up* is what the nest will not
 * touch again and what would be gone anyhow before the next comes by.
 *
 * Rules:
 *  - Nothing here tells the kernel anything: tell.c does that, and asks here.
 *  - What outlasts a nest is in its site's words and in the regions' (tables, changed entries), which other
 *    threads may change at the same time: hints.
 *  - Order: plan_enter when regions are known, then the unit is chosen (shape.c), then plan_behind and plan_units;
 *    the latter again for each new size of a unit.
 */
#include "nest.h"

/* --- windows ------------------------------------------------------------- */

/* Where memory holds only a few of the kernel's windows, those of a nest's several arrays
 * drive each other out: CG in 13 MB, windows of 8 MB, took 1 s or 25 s as chance would have
 * it. There the kernel is told to read nothing that it is not asked for, and all prefetching
 * is ours. */
bool plan_windows_fit(const struct region *region) {
  return region->window <= limits_memory() / 8;
}

/* A fast disk: the kernel's windows are wide, and fit. */
bool plan_on_fast_disk(const struct nest *nest) {
  for (unsigned i = 0; i < nest->references; i++) {
    const struct region *region = nest->reference[i].region;
    if (region && (region->window <= NARROW_WINDOW || !plan_windows_fit(region))) return false;
  }
  return true;
}

/* --- tables and the room beside them ------------------------------------- */

/* A table that memory can hold: the kernel keeps it, as long as we do not read through it and
 * its index arrays at every miss. */
static bool fits(const struct reference *r) {
  return r->highest > r->lowest &&
         (double)r->highest - (double)r->lowest <= (double)limits_memory() * 0.9;
}

/* Look-ups all over more than memory holds, as far as they are known. A smaller table is soon
 * there whole, and soonest in the kernel's windows. */
bool plan_is_scattered(const struct reference *r) {
  return !r->quiet && r->highest > r->lowest && !fits(r);
}

/* The tables of a nest concern those that come between its entries as well: a sort zeroes its counts
 * and sums them up, and what these loops gave up as passed, and wrote, counting had to wait for.
 * Nests that look nothing up for so long have nothing to do with it. */
#define KEPT_ENTRIES 16
static void keep_tables(struct nest *nest) {
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (!r->region || !(r->shape->flags & RUNAHEAD_INDIRECT) || !fits(r)) continue;
    atomic_store_explicit(&r->region->table_bytes, (uint64_t)(r->highest - r->lowest), RELAXED);
    atomic_store_explicit(&r->region->table_start, (uint64_t)r->lowest, RELAXED);
    atomic_store_explicit(&r->region->table_end, (uint64_t)r->highest, RELAXED);
    atomic_store_explicit(&r->region->table_entries, KEPT_ENTRIES, RELAXED);
  }
}

static bool has_table(const struct region *region) {
  return atomic_load_explicit(&region->table_entries, RELAXED) > 0;
}

/* Does the reference go through a table that is to be kept? Its neighbour, which may share a page
 * with it, does not. */
bool plan_is_kept(const struct nest *nest, const struct reference *r) {
  if (!has_table(r->region)) return false;
  double start = (double)(uint64_t)(r->address + r->shape->low), end = start + shape_footprint(nest, r);
  double first = (double)atomic_load_explicit(&r->region->table_start, RELAXED);
  double last = (double)atomic_load_explicit(&r->region->table_end, RELAXED);
  return (end < last ? end : last) - (start > first ? start : first) > (double)PAGE_BYTES;
}

/* Two threads at once may count as one: it is not to fall below zero, which would be for ever. */
static void count_down(_Atomic unsigned *left) {
  unsigned now = atomic_load_explicit(left, RELAXED);
  if (now) atomic_store_explicit(left, now - 1, RELAXED);
}

/* One more nest has been entered. */
static void let_tables_go(const struct nest *nest) {
  const struct region *before = NULL;
  for (unsigned i = 0; i < nest->references; i++) {
    struct region *region = nest->reference[i].region;
    if (region && region != before) count_down(&region->table_entries);
    if (region) before = region;
  }
}

/* What tables that look-ups stay in take up of memory is not there for what is only passed
 * through: an eighth of 3.4 MB ahead of the keys, beside 2 MB of counts, drove the counts out. */
static double taken_by_tables(const struct nest *nest) {
  double own = 0, kept = 0;
  const struct region *before = NULL;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (!r->region) continue;
    if (r->shape->flags & RUNAHEAD_INDIRECT && fits(r)) own += (double)r->highest - (double)r->lowest;
    if (r->region != before && has_table(r->region))
      kept += (double)atomic_load_explicit(&r->region->table_bytes, RELAXED);
    before = r->region;
  }
  return own > 0 ? own : kept;
}

void plan_room(struct nest *nest) {
  uint64_t memory = limits_memory();
  double left = (double)memory - taken_by_tables(nest);
  nest->room = left < (double)memory / 16 ? memory / 16 : (uint64_t)left;
}

/* Where tables take most of memory (the counts of a sort in a tenth of its data: 2 of 3.4 MB) what
 * goes past them must not drive them out. The kernel cannot tell the two apart: pages that are
 * gone through once were used as well, and in large pieces several times over. And following the
 * indices that lead to the tables would drive them out too. So what goes past is read by us, a
 * measured way ahead (adapt_tight_distance), under an advice by which its use does not count
 * (tell_advice), and is given up at once behind (tell_behind), while the tables are left alone. IS of
 * class A in a tenth, 1 ms: alone 2.4 to 3.4 s, ours 1.2 to 1.8 (not stored); left to the kernel 2.8
 * to 4.5. */
bool plan_is_tight(const struct nest *nest) { return nest->room < limits_memory() / 2; }

void plan_enter(struct nest *nest) {
  keep_tables(nest);
  let_tables_go(nest);
  plan_room(nest);
}

/* --- who reads runs of pages ---------------------------------------------- */

/* Are runs of pages read by us, and not left to the kernel? */
static bool reads_runs(const struct nest *nest) {
  return nest->ours || nest->following || plan_is_tight(nest) || adapt_prefetch_sequential(nest->site);
}

bool plan_left_to_kernel(const struct nest *nest, const struct reference *r) {
  return r->sequential && !reads_runs(nest);
}

static bool is_changed(const struct region *region) {
  return atomic_load_explicit(&region->changed_entries, RELAXED) > 0;
}

/* The nest has been entered, or its units are new: what it changes is a changed region for the next nests, what it only goes through is
 * so for one nest less. An array may be filled once and read ever after: the pieces that were changed have
 * left memory by then. A few results beside what is read do not count. */
#define CHANGED_ENTRIES 16
static void keep_changed(const struct nest *nest) {
  uint64_t written = 0;
  const struct region *before = NULL;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (!r->region) continue;
    if (r->region != before) count_down(&r->region->changed_entries);
    if (r->sequential && r->shape->flags & RUNAHEAD_WRITES) written += (uint64_t)r->run_bytes;
    before = r->region;
  }
  if (written < nest->sequential_bytes / 4) return;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (r->region && r->sequential && r->shape->flags & RUNAHEAD_WRITES)
      atomic_store_explicit(&r->region->changed_entries, CHANGED_ENTRIES, RELAXED);
  }
}

/* Is all that the nest brings in a few long streams that it only reads, so few that their windows fit, the one in
 * use and the next? */
static bool only_streams(const struct nest *nest) {
  uint64_t windows = 0;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (!r->region) continue;
    if (!r->sequential || r->shape->flags & RUNAHEAD_WRITES) return false;
    if (is_changed(r->region)) return false;
    if (shape_footprint(nest, r) <= (double)limits_memory()) return false;
    if (!r->led) windows += 2 * r->region->window;
  }
  return windows <= limits_memory() / 4 * 3;
}

static bool is_small(double bytes) { return bytes <= BESIDE((double)limits_memory()); }

/* Is it an array, or the like, that the nest goes through, and not something beside? What a stream goes
 * through its entries together tell. */
static bool is_long(const struct nest *nest, const struct reference *r) {
  return nest->site->flags & RUNAHEAD_STREAM ? r->sequential : !is_small(shape_footprint(nest, r));
}

/* Is one always near the other, in loops of its own inside the one that moves both? */
static bool goes_with(const struct reference *r, const struct reference *other) {
  double apart = (double)(r->address + r->shape->low) - (double)(other->address + other->shape->low);
  return other->led || (other->sequential && other->run_bytes == r->run_bytes && is_small(apart < 0 ? -apart : apart));
}

/* Does the nest go through each of its arrays once, from one end to the other? Then the kernel's own read-
 * ahead is as good as can be, as long as its windows are wide and memory holds them: it brings large pieces,
 * which are mapped, written and given up as one, where ours are single pages. What a row of a stencil has
 * brought the next finds there. Of regions that hold several arrays nothing is said here: advice is for a
 * region, and others go through it otherwise. */
static bool only_goes_through(const struct nest *nest) {
  uint64_t windows = 0;
  if (nest->site->flags & RUNAHEAD_STREAM && !nest->run_on) return false;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (!r->region || r->led) continue;
    if (r->region->several || r->region->window <= NARROW_WINDOW || r->shape->flags & RUNAHEAD_INDIRECT) return false;
    if (!is_long(nest, r)) continue;
    if (!r->sequential) return false;
    for (unsigned j = 0; j < i; j++) {
      const struct reference *other = &nest->reference[j];
      if (other->region == r->region && is_long(nest, other) && !goes_with(r, other)) return false;
    }
    windows += 2 * r->region->window;
  }
  return windows && windows <= limits_memory() / 4 * 3 && !plan_is_tight(nest);
}

bool plan_streams_past_memory(const struct nest *nest) {
  uint64_t memory = limits_memory();
  return nest->streams && (shape_nest_footprint(nest) > (double)(memory / 2) || region_total_bytes() > memory);
}

/* Who reads runs of pages first. Where the kernel's windows are narrow we do: it seldom has read far enough.
 * Where they are wide it does, and in large pieces, which cost a tenth of what ours cost, of a page each
 * (256 MB in a tenth of memory: 0.05 s of the processor, 0.2 ours; the disk takes 0.15). Pieces that are
 * changed are another matter: the first change of each page of a piece costs as much as the whole piece does
 * (two fifths of MG's processor time; it waited for 0.7 to 1.3 of 3.2 to 3.9 s, with us first for 0.2 to 0.5
 * of 2.8 to 3.2; FT 0.5 of 2.1 to 2.5, with us first 0.1 of 1.7). A piece stays one for as long as it stays
 * in memory, so of what nests change the kernel reads nothing, not to try it either, but for arrays that are
 * gone through once and mapped in pieces (only_goes_through). */
static void choose_first_reader(struct nest *nest) {
  bool narrow = true, wide = true, fit = true;
  uint64_t changed = 0;
  for (unsigned i = 0; i < nest->references; i++) {
    struct region *region = nest->reference[i].region;
    if (!region) continue;
    fit &= plan_windows_fit(region);
    narrow &= region->window <= NARROW_WINDOW;
    wide &= region->window > NARROW_WINDOW;
    /* A table that takes up much of memory is easily driven out: then try the kernel first. */
    const struct reference *r = &nest->reference[i];
    narrow &= !(r->quiet && (double)r->highest - (double)r->lowest > (double)limits_memory() / 4);
    /* What another reference has read before it is changed all the same. */
    bool writes = r->shape->flags & RUNAHEAD_WRITES;
    if (r->sequential && (writes || (!r->led && is_changed(region))))
      changed += (uint64_t)r->run_bytes;
  }
  nest->streams = only_goes_through(nest);
  nest->ours = !fit && !nest->streams && !only_streams(nest);
  bool changes = changed && changed >= nest->sequential_bytes / 4; /* not a product's few results */
  keep_changed(nest);
  changes &= !nest->streams;
  site_set(nest->site, SITE_FIRST, changes && wide ? OURS_ALWAYS : narrow || changes ? OURS_FIRST : KERNEL_FIRST);
}

/* --- units --------------------------------------------------------------------- */

/* Everything that depends on the size of a unit. */
static void measure(struct nest *nest) {
  nest->sequential_bytes = 0;
  nest->following = false;
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    r->sequential = false;
    r->run_bytes = 0;
    if (!r->region) continue;
    if (r->shape->flags & RUNAHEAD_INDIRECT && !r->quiet) nest->following = true;
    r->sequential = shape_sequential(nest, r);
    if (!r->sequential) continue;
    r->run_bytes = r->stride[nest->level] * nest->unit_iterations;
    if (!r->led) nest->sequential_bytes += (uint64_t)r->run_bytes;
  }
  for (unsigned i = 0; i < SAMPLES; i++) nest->sample[i].unit = -1;
}

void plan_units(struct nest *nest) {
  if (plan_is_tight(nest)) adapt_tight_begins(nest->site, nest->room);
  measure(nest);
  choose_first_reader(nest);
}

/* --- how far ahead --------------------------------------------------------- */

/* How many references, one through the other, wait for this one's values. */
static int64_t depth(const struct nest *nest, const struct reference *r) {
  if (!(r->shape->flags & RUNAHEAD_INDEX)) return 0;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *user = &nest->reference[i];
    if (user->shape->flags & RUNAHEAD_INDIRECT && user->shape->flags & RUNAHEAD_INDEX &&
        shape_index(nest, user) == r)
      return 2;
  }
  return 1;
}

/* How far ahead what goes past tables is read. */
static int64_t tight_units(const struct nest *nest) {
  return (int64_t)((double)adapt_tight_distance(nest->site, nest->room) / nest->unit_bytes);
}

int64_t plan_ahead(const struct nest *nest) {
  uint64_t distance = adapt_distance(nest->site, nest->following);
  if (distance > nest->room / 8) distance = nest->room / 8;
  int64_t ahead = (int64_t)((double)distance / nest->unit_bytes) + 1;
  return ahead < SAMPLES / 2 ? ahead : SAMPLES / 2 - 1;
}

int64_t plan_until(const struct nest *nest, const struct reference *r, int64_t unit, int64_t ahead) {
  if (r->sequential && plan_is_tight(nest)) return unit + tight_units(nest) + 1;
  /* Index values have to be there when they are read: a distance earlier for
   * each reference that is found through them. */
  int64_t until = unit + (1 + depth(nest, r)) * ahead + 1;
  if (!r->sequential || !nest->sequential_bytes) return until;
  /* Runs of pages go out in bursts: few, long requests, however little of them there
   * is in a unit; but not so early that what else is read until then drives them out. */
  int64_t run = (int64_t)(adapt_run_distance(nest->site) / nest->sequential_bytes);
  int64_t lasting = (int64_t)((double)(nest->room / 4) / nest->unit_bytes);
  if (run > lasting) run = lasting;
  if (until < unit + run) until = unit + run;
  bool not_yet = r->issued > unit && until - r->issued < (until - unit) / 4;
  return not_yet ? r->issued : until;
}

/* --- look-ups --------------------------------------------------------------- */

/* A look-up counts for as much as it has brought in: where an index array mostly leads to
 * pages that are in memory (the counts of a sort, a matrix with its entries near the
 * diagonal), units are longer, and what else the nest touches goes out in blocks and not a
 * page at a time (BUK, 64 MB of keys in 64 MB: 4.4 s in units of 64 keys, 1.3 without the
 * pass). Where nearly all are there following them costs more than it gives: 10 ns for
 * each of the sort's 4 ns, so only a sample of each unit is looked at. */
bool plan_judge(struct nest *nest) {
  bool changed = false;
  plan_room(nest);
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (!(r->shape->flags & RUNAHEAD_INDIRECT) || !r->region || r->seen < 4096) continue;
    double share = (double)r->found / (double)r->seen;
    r->quiet = share < (fits(r) ? plan_is_tight(nest) ? 1 : LEAST_SHARE_FITTING : LEAST_SHARE);
    r->share = r->quiet ? LEAST_SHARE : share;
    r->seen = r->found = 0;
    changed = true;
  }
  if (changed) keep_tables(nest);
  return changed;
}

/* Do a quiet reference's look-ups still lead to memory? A table that stays there is probed ever more
 * rarely (BUK, 128 MB of keys in 64 MB: 105,000 looks at a page, 20 in each unit, and none missing),
 * and at once where the program has to read pages itself. */
bool plan_probe(struct nest *nest, int64_t unit) {
  enum { CALMEST = 4, FAULTS = 4 };
  bool changed = false, faulting = nest->faults >= FAULTS;
  if (plan_is_tight(nest)) return false;
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (!r->quiet || !r->region || (unit < r->probe_at && !faulting)) continue;
    uint64_t misses = prefetch_misses(nest, r, unit, faulting);
    r->calm = misses ? 0 : r->calm < CALMEST ? r->calm + 1 : CALMEST;
    r->probe_at = unit + ((int64_t)1 << r->calm);
    if (misses < (fits(r) ? 8 : 1)) continue;
    r->quiet = false;
    changed = true;
  }
  return changed;
}

/* --- what is given up behind ------------------------------------------------ */

/* Does a nest go through so much that what it has passed is gone before the next comes by, or is to go?
 * More than half of memory: what else the program has also wants room, and where the disk is
 * slow waiting for a write costs more than writing in vain (SP at half of its data on 1 ms: 3.4 to 3.7 s, and 4.7
 * to 5.3 where it had to be seven eighths). On a fast disk it pays nowhere: what is written early is changed
 * again, and each page's first change after a write is a fault, the write an interrupt, marking what is to go
 * another (MG at half of its data: 2.9 to 3.3 s with both, 2.5 to 2.9 with neither, and the program's processor
 * time 3.8 and 2.9; FT 2.1 and 1.8). */
static bool drives_itself_out(const struct nest *nest) {
  return !plan_on_fast_disk(nest) && shape_nest_footprint(nest) >= (double)(limits_memory() / 2);
}

/* What is given up, and written, once it is passed: nothing of a nest whose data stays. */
static void choose_passed(struct nest *nest, bool long_enough) {
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    bool passed_for_good = long_enough && r->region && !plan_is_kept(nest, r);
    r->releases = passed_for_good && shape_releases(nest, r);
    /* Where look-ups have written is not known afterwards. */
    r->writes = passed_for_good && r->shape->flags & RUNAHEAD_WRITES &&
                !(r->shape->flags & RUNAHEAD_INDIRECT);
  }
}

void plan_behind(struct nest *nest) {
  nest->gone_through = false;
  choose_passed(nest, drives_itself_out(nest));
}

/* How long a stream is, only its way shows: its entries are as short as a matrix's rows. (CG in a
 * tenth on 1 ms, where nothing was given up: 8 to 16 s, and 1.4 to 6 so.) */
void plan_look_at_way(struct nest *nest, int64_t unit) {
  if (!(nest->site->flags & RUNAHEAD_STREAM) || nest->gone_through ||
      (double)unit * (double)nest->sequential_bytes < (double)limits_memory() / 2)
    return;
  nest->gone_through = true;
  choose_passed(nest, !plan_on_fast_disk(nest));
}
