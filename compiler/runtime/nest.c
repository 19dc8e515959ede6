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
 * Nests live in a small pool for each thread: a site gets the one that it had last, else
 * one in turn is taken: there is no leave call, so a loop may be left in any way. A
 * nest taken away under a loop only makes that loop's hints go astray.
 */
#define _GNU_SOURCE
#include "nest.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What one call may cost, in ranges and index values: some milliseconds, far above
 * what a sensible nest needs. */
#define MOST_WORK (1 << 17)
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
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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

/* Where memory holds only a few of the kernel's windows, those of a nest's several arrays
 * drive each other out: CG in 13 MB, windows of 8 MB, took 1 s or 25 s as chance would have
 * it. There the kernel is told to read nothing that it is not asked for, and all prefetching
 * is ours. */
static bool windows_fit(const struct region *region) {
  return region->window <= limits_memory() / 8;
}

/* A fast disk: the kernel's windows are wide, and fit. */
static bool on_fast_disk(const struct nest *nest) {
  for (unsigned i = 0; i < nest->references; i++) {
    const struct region *region = nest->reference[i].region;
    if (region && (region->window <= NARROW_WINDOW || !windows_fit(region))) return false;
  }
  return true;
}

/* Does a nest go through so much that what it has passed is gone before the next comes by, or is to go?
 * More than half of memory: what else the program has also wants room, and where the disk is
 * slow waiting for a write costs more than writing in vain (SP at half of its data on 1 ms: 3.4 to 3.7 s, and 4.7
 * to 5.3 where it had to be seven eighths). On a fast disk it pays nowhere: what is written early is changed
 * again, and each page's first change after a write is a fault, the write an interrupt, marking what is to go
 * another (MG at half of its data: 2.9 to 3.3 s with both, 2.5 to 2.9 with neither, and the program's processor
 * time 3.8 and 2.9; FT 2.1 and 1.8). */
static bool drives_itself_out(const struct nest *nest) {
  return !on_fast_disk(nest) && shape_nest_footprint(nest) >= (double)(limits_memory() / 2);
}

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

/* A table that memory can hold: the kernel keeps it, as long as we do not read through it and
 * its index arrays at every miss. */
static bool fits(const struct reference *r) {
  return r->highest > r->lowest &&
         (double)r->highest - (double)r->lowest <= (double)limits_memory() * 0.9;
}

/* Look-ups all over more than memory holds, as far as they are known. A smaller table is soon
 * there whole, and soonest in the kernel's windows. */
static bool scattered(const struct reference *r) {
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
static bool is_kept(const struct nest *nest, const struct reference *r) {
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

static void find_room(struct nest *nest) {
  uint64_t memory = limits_memory();
  double left = (double)memory - taken_by_tables(nest);
  nest->room = left < (double)memory / 16 ? memory / 16 : (uint64_t)left;
}

/* Where tables take most of memory (the counts of a sort in a tenth of its data: 2 of 3.4 MB) what
 * goes past them must not drive them out. The kernel cannot tell the two apart: pages that are
 * gone through once were used as well, and in large pieces several times over. And following the
 * indices that lead to the tables would drive them out too. So what goes past is read by us, a
 * measured way ahead (adapt_tight_distance), under an advice by which its use does not count
 * (advise), and is given up at once behind (look_behind), while the tables are left alone. IS of
 * class A in a tenth, 1 ms: alone 2.4 to 3.4 s, ours 1.2 to 1.8 (not stored); left to the kernel 2.8
 * to 4.5. */
static bool is_tight(const struct nest *nest) { return nest->room < limits_memory() / 2; }

/* How far ahead what goes past tables is read. */
static int64_t tight_units(const struct nest *nest) {
  return (int64_t)((double)adapt_tight_distance(nest->site, nest->room) / nest->unit_bytes);
}

/* Are runs of pages read by us, and not left to the kernel? */
static bool reads_runs(const struct nest *nest) {
  return nest->ours || nest->following || is_tight(nest) || adapt_prefetch_sequential(nest->site);
}

static bool left_to_kernel(const struct nest *nest, const struct reference *r) {
  return r->sequential && !reads_runs(nest);
}

static void tell(struct region *region, int advice) {
  if (atomic_load_explicit(&region->advice, RELAXED) == advice ||
      atomic_exchange_explicit(&region->advice, advice, RELAXED) == advice)
    return;
  int saved = errno;
  madvise((void *)region->start, region->end - region->start, advice);
  errno = saved;
}

/* Said of one reference's pages only, so that of the region nothing is known afterwards. */
#define MIXED_ADVICE (-1)
static void tell_of_range(const struct nest *nest, const struct reference *r, int advice) {
  uint64_t start = (uint64_t)(r->address + r->shape->low), end = start + (uint64_t)shape_footprint(nest, r);
  start = (start + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
  end &= ~(PAGE_BYTES - 1);
  if (start < r->region->start || end > r->region->end || start >= end) return;
  int saved = errno;
  atomic_store_explicit(&r->region->advice, MIXED_ADVICE, RELAXED);
  madvise((void *)start, end - start, advice);
  errno = saved;
}

/* Random pages of a mapping under normal advice cost a whole read-ahead window
 * for each one missed; a pass over more than memory leaves nothing behind that is worth
 * keeping. Both are said only where all references of this nest to the region agree:
 * under "sequential" pages that other nests want again leave early, under "random" each
 * missed one is a read of its own (MG: a quarter of the filter's beliefs were wrong). A
 * region with several users has pages that a trailing one touches again (stencils). And
 * what is written is better off under "normal": there one fault maps all of a large piece
 * of the page cache, under "sequential" a page (a stencil: 9,000 faults or 200,000).
 *
 * While indices are followed all prefetching is ours, runs of pages included, and a look-up
 * that was missed must not bring 31 others: a sparse matrix in a tenth of its memory read 7 GB
 * for its 0.6 so. */
static void advise_regions(struct nest *nest) {
  for (unsigned i = 0; i < nest->references; i++) {
    struct region *region = nest->reference[i].region;
    if (!region) continue;
    unsigned users = 0;
    bool once = true, sparse = true, followed = false;
    for (unsigned j = 0; j < nest->references; j++) {
      const struct reference *r = &nest->reference[j];
      if (r->region != region) continue;
      users++;
      once &= r->sequential && !(r->shape->flags & RUNAHEAD_WRITES) &&
              shape_footprint(nest, r) > (double)limits_memory();
      if (r->shape->flags & RUNAHEAD_INDIRECT) {
        followed |= scattered(r);
        sparse &= scattered(r);
      } else {
        sparse &= !r->sequential && shape_sparse(nest, r);
      }
    }
    int want = MADV_NORMAL;
    if (followed || sparse || nest->ours)
      want = MADV_RANDOM;
    else if (once && users == 1)
      want = MADV_SEQUENTIAL;
    tell(region, want);
  }
}

/* Under "random" the kernel does not count a use of a page as a reason to keep it, nor reads more
 * than it is asked for: what goes past tables is better off so, the tables themselves are not. */
static void advise(struct nest *nest) {
  advise_regions(nest);
  if (!is_tight(nest) || nest->site->flags & RUNAHEAD_STREAM) return;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (r->region && windows_fit(r->region) && r->sequential && !is_kept(nest, r) &&
        shape_footprint(nest, r) > (double)nest->room)
      tell_of_range(nest, r, MADV_RANDOM);
  }
}

static bool is_changed(const struct region *region) {
  return atomic_load_explicit(&region->changed_entries, RELAXED) > 0;
}

/* The nest has been entered: what it changes is a changed region for the next nests, what it only goes through is
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

/* Who reads runs of pages first. Where the kernel's windows are narrow we do: it seldom has read far
 * enough. Where they are wide it does, and in large pieces, which cost a tenth of what ours cost, of a page each
 * (256 MB in a tenth of memory: 0.05 s of the processor, 0.2 ours; the disk takes 0.15). Pieces that are
 * changed are another matter: the first change of each page of a piece costs as much as the whole
 * piece does (two fifths of MG's processor time; it waited for 0.7 to 1.3 of 3.2 to 3.9 s,
 * with us first for 0.2 to 0.5 of 2.8 to 3.2; FT 0.5 of 2.1 to 2.5, with us first 0.1 of 1.7). A piece stays one for
 * as long as it stays in memory, so of what nests change the kernel reads nothing, not to try it either. */
static void look_at_windows(struct nest *nest) {
  bool narrow = true, wide = true, fit = true;
  uint64_t changed = 0;
  for (unsigned i = 0; i < nest->references; i++) {
    struct region *region = nest->reference[i].region;
    if (!region) continue;
    fit &= windows_fit(region);
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
  nest->ours = !fit && !only_streams(nest);
  bool changes = changed && changed >= nest->sequential_bytes / 4; /* not a product's few results */
  keep_changed(nest);
  site_set(nest->site, SITE_FIRST, changes && wide ? OURS_ALWAYS : narrow || changes ? OURS_FIRST : KERNEL_FIRST);
}

/* What one nest had no use for, the next code may live on, and not all code is ours: at the
 * last unit of a nest, and for one that is passed over (NULL). (BUK in a tenth: its counts, zeroed by
 * memset, came back a page at a time, and 4 s became 17.) Where windows do not fit, the kernel is to read by
 * itself no more than before: what a nest of ours went through stays "random". Of other nests' regions
 * nothing is known here: the kernel may be reading one of them at this moment, and nobody else. */
static void leave_to_kernel(const struct nest *nest) {
  for (unsigned i = 0, n = region_slots(); i < n; i++) {
    struct region *region = region_number(i);
    if (region && windows_fit(region)) tell(region, MADV_NORMAL);
  }
  if (!nest || !nest->ours) return;
  for (unsigned i = 0; i < nest->references; i++) {
    struct region *region = nest->reference[i].region;
    if (region && !windows_fit(region)) tell(region, MADV_RANDOM);
  }
}

/* Goes over to units of another size. Positions are kept, rounded down to a unit. */
static void change_unit(struct nest *nest) {
  int64_t old = nest->unit_iterations, old_in_level = nest->units_in_level;
  find_room(nest);
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
  if (is_tight(nest)) adapt_tight_begins(nest->site, nest->room);
  measure(nest);
  look_at_windows(nest);
  advise(nest);
}

/* A look-up counts for as much as it has brought in: where an index array mostly leads to
 * pages that are in memory (the counts of a sort, a matrix with its entries near the
 * diagonal), units are longer, and what else the nest touches goes out in blocks and not a
 * page at a time (BUK, 64 MB of keys in 64 MB: 4.4 s in units of 64 keys, 1.3 without the
 * pass). Where nearly all are there following them costs more than it gives: 10 ns for
 * each of the sort's 4 ns, so only a sample of each unit is looked at. */
static void judge_indirect(struct nest *nest) {
  bool changed = false;
  find_room(nest);
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (!(r->shape->flags & RUNAHEAD_INDIRECT) || !r->region || r->seen < 4096) continue;
    double share = (double)r->found / (double)r->seen;
    r->quiet = share < (fits(r) ? is_tight(nest) ? 1 : LEAST_SHARE_FITTING : LEAST_SHARE);
    r->share = r->quiet ? LEAST_SHARE : share;
    r->seen = r->found = 0;
    changed = true;
  }
  if (!changed) return;
  keep_tables(nest);
  change_unit(nest);
}

/* Do a quiet reference's look-ups still lead to memory? A table that stays there is probed ever more
 * rarely (BUK, 128 MB of keys in 64 MB: 105,000 looks at a page, 20 in each unit, and none missing),
 * and at once where the program has to read pages itself. */
static void probe_quiet(struct nest *nest, int64_t unit) {
  enum { CALMEST = 4, FAULTS = 4 };
  bool changed = false, faulting = nest->faults >= FAULTS;
  if (is_tight(nest)) return;
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
  if (changed) change_unit(nest);
}

/* Prefetches a reference as far ahead as it is to be with the program at `unit`. */
static void bring_up(struct nest *nest, struct reference *r, int64_t unit, int64_t ahead,
                     uint64_t *budget, uint64_t *wanted, uint64_t *sent) {
  if (r->issued < unit) r->issued = unit;
  /* Index values have to be there when they are read: a distance earlier for
   * each reference that is found through them. */
  int64_t until = unit + (1 + depth(nest, r)) * ahead + 1;
  if (r->sequential && is_tight(nest)) {
    until = unit + tight_units(nest) + 1;
  } else if (r->sequential && nest->sequential_bytes) {
    /* Runs of pages go out in bursts: few, long requests, however little of them there
     * is in a unit; but not so early that what else is read until then drives them out. */
    int64_t run = (int64_t)(adapt_run_distance(nest->site) / nest->sequential_bytes);
    int64_t lasting = (int64_t)((double)(nest->room / 4) / nest->unit_bytes);
    if (run > lasting) run = lasting;
    if (until < unit + run) until = unit + run;
    if (r->issued > unit && until - r->issued < (until - unit) / 4) return;
  }
  uint64_t wanted_before = *wanted, sent_before = *sent;
  prefetch_until(nest, r, until, budget, wanted, sent);
  r->seen += *wanted - wanted_before;
  r->found += *sent - sent_before;
}

/* Half the distance is early enough to ask again. In blocks of units: a look costs the more
 * the fewer pages it is for. */
static void confirm(struct nest *nest, struct reference *r, int64_t unit, int64_t ahead,
                    uint64_t *budget) {
  int64_t until = unit + 1 + ahead / 2;
  /* At first all has just been sent. */
  if (r->confirmed < unit + 1) r->confirmed = r->confirmed < 0 ? until : unit + 1;
  if (until - r->confirmed < (until - unit) / 2) return;
  prefetch_confirm(nest, r, until, budget);
}

/* Brings prefetching up to date with the program being at `unit`. */
static void advance(struct nest *nest, int64_t unit) {
  uint64_t distance = adapt_distance(nest->site, nest->following);
  if (distance > nest->room / 8) distance = nest->room / 8;
  int64_t ahead = (int64_t)((double)distance / nest->unit_bytes) + 1;
  if (ahead >= SAMPLES / 2) ahead = SAMPLES / 2 - 1;
  nest->confirming = ahead >= 4;
  uint64_t wanted = 0, sent = 0, budget = MOST_WORK;
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (!r->region || r->quiet) continue;
    if (left_to_kernel(nest, r)) {
      prefetch_note(nest, r, unit);
      continue;
    }
    bring_up(nest, r, unit, ahead, &budget, &wanted, &sent);
    if (nest->confirming && !(r->shape->flags & RUNAHEAD_INDIRECT)) confirm(nest, r, unit, ahead, &budget);
  }
  batch_flush(&nest->batch);
  count(COUNT_WANTED, wanted);
  site_set(nest->site, SITE_WANTED, site_get(nest->site, SITE_WANTED) + wanted);
  site_set(nest->site, SITE_SENT, site_get(nest->site, SITE_SENT) + sent);
  if (nest->indirect) judge_indirect(nest);
}

/* What is given up, and written, once it is passed: nothing of a nest whose data stays. */
static void choose_passed(struct nest *nest, bool long_enough) {
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    bool passed_for_good = long_enough && r->region && !is_kept(nest, r);
    r->releases = passed_for_good && shape_releases(nest, r);
    /* Where look-ups have written is not known afterwards. */
    r->writes = passed_for_good && r->shape->flags & RUNAHEAD_WRITES &&
                !(r->shape->flags & RUNAHEAD_INDIRECT);
  }
}

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
  nest->gone_through = false;
  choose_passed(nest, drives_itself_out(nest));
  measure(nest);
  nest->batch.used = 0;
  nest->batch.pages = 0;
  nest->present = 0;
  nest->released = 0;
  nest->since = nest->looked = limits_now();
  nest->waiting = adapt_waiting();
  nest->faults = 0;
  if (is_tight(nest)) adapt_tight_begins(nest->site, nest->room);
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

/* Too far ahead: what is due next and has been driven out is asked for again. */
static void come_back(struct nest *nest, int64_t unit) {
  uint64_t budget = MOST_WORK;
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (!r->region || !r->sequential) continue;
    r->confirmed = unit;
    prefetch_confirm(nest, r, unit + tight_units(nest) + 1, &budget);
  }
}

/* The program has gone through so many units since the last time. */
static void passed(struct nest *nest, int64_t unit, int64_t units, uint64_t now) {
  struct waiting waiting = adapt_waiting();
  struct waiting met = {waiting.waits - nest->waiting.waits, waiting.faults - nest->waiting.faults};
  uint64_t bytes = nest->sequential_bytes * (uint64_t)units;
  if (units > 0 && bytes && is_tight(nest)) {
    if (adapt_tight_passed(nest->site, nest->room, bytes, met)) come_back(nest, unit);
  } else if (units > 0 && bytes) {
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
}

/* What is known of a reference's look-ups holds until its table is another one: learnt anew at each
 * entry, a sort's counts were followed for an eighth of its keys each time. */
static void read_references(struct nest *nest, bool again, const int64_t *at) {
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

/* Is there anything to give up or to write behind the program? What the kernel reads by itself it keeps
 * in large pieces, and drops and writes by itself. */
static bool leaves_anything(const struct nest *nest) {
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if ((r->writes || r->releases) && !left_to_kernel(nest, r)) return true;
  }
  return false;
}

/* How long a stream is, only its way shows: its entries are as short as a matrix's rows. (CG in a
 * tenth on 1 ms, where nothing was given up: 8 to 16 s, and 1.4 to 6 so.) */
static void look_at_way(struct nest *nest, int64_t unit) {
  if (!(nest->site->flags & RUNAHEAD_STREAM) || nest->gone_through ||
      (double)unit * (double)nest->sequential_bytes < (double)limits_memory() / 2)
    return;
  nest->gone_through = true;
  choose_passed(nest, !on_fast_disk(nest));
}

/* What the program has passed: pages that it changed are written now and those that it will
 * not touch again are marked as the first to go. Left alone, the kernel (by its source) throws out
 * what has been prefetched and not yet touched before anything that was, and clean pages before
 * changed ones, which it first has to write.
 *
 * Looking how full memory is costs some microseconds: after a sixteenth of memory or 16 units,
 * and a millisecond.
 *
 * Beside tables it is full, and what has gone past is thrown out at once: what is only marked, the
 * kernel comes to together with changed counts, which it does not write there but waits for
 * (0.4 to 0.9 of 2 s were waits in its search for pages to throw out). */
static void look_behind(struct nest *nest, int64_t unit, uint64_t now) {
  enum { UNITS = 16, NANOSECONDS = 1000000 };
  int64_t lasting = (int64_t)((double)nest->room / 16 / nest->unit_bytes) + 1;
  bool soon = unit - nest->released < (lasting < UNITS ? lasting : UNITS) || now - nest->looked < NANOSECONDS;
  if (soon && !is_tight(nest)) return;
  nest->looked = now;
  look_at_way(nest, unit);
  if (leaves_anything(nest) && (is_tight(nest) || limits_pressed()))
    for (unsigned i = 0; i < nest->references; i++) {
      const struct reference *r = &nest->reference[i];
      if ((r->releases || r->writes) && !left_to_kernel(nest, r))
        prefetch_behind(nest, r, nest->released, unit, is_tight(nest));
    }
  nest->released = unit;
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
  if (unit != nest->present) {
    go_back(nest, unit);
    check_sample(nest, unit);
    uint64_t now = limits_now();
    passed(nest, unit, unit > nest->present ? unit - nest->present : 0, now);
    if (start > nest->released) look_behind(nest, start, now);
    nest->present = unit;
    adapt_shut_off(now);
    filter_age_by_reads();
    probe_quiet(nest, unit);
  }
  advance(nest, nest->present);
  set_window(nest, nest->present);
  return &nest->front;
}

/* All of a site's values in order, those from the table and those given. */
static void unpack(const struct runahead_site *site, const int64_t *given, int64_t *value) {
  for (uint64_t i = 0; i < site->values && i < RUNAHEAD_MAX_VALUES; i++)
    value[i] = site->given[i / 64] >> (i % 64) & 1 ? *given++ : site->known[i];
}

/* Of all levels together, as far as they are known; they come first of a site's values. */
static uint64_t iterations_of(const struct runahead_site *site, const int64_t *given) {
  uint64_t all = 1;
  for (unsigned i = 0; i < site->levels; i++) {
    int64_t trip = site->given[0] >> i & 1 ? *given++ : site->known[i];
    if (trip > 1 && all < (uint64_t)FAR) all *= trip < FAR ? (uint64_t)trip : (uint64_t)FAR;
  }
  return all;
}

static struct runahead_nest *enter(struct runahead_site *site, const int64_t *given,
                                   struct runahead_nest *previous) {
  if (site->abi != RUNAHEAD_ABI) return (struct runahead_nest *)&idle;
  bool stream = site->flags & RUNAHEAD_STREAM;
  int64_t value[RUNAHEAD_MAX_VALUES];
  if (!stream && adapt_skip(site, iterations_of(site, given))) {
    leave_to_kernel(NULL);
    count(COUNT_DECLINED, 1);
    return (struct runahead_nest *)&idle;
  }
  unpack(site, given, value);
  if (stream && previous && mine(previous)) {
    struct runahead_nest *again = go_on((struct nest *)previous, site, value);
    if (again) return again;
  }
  struct nest *nest = stream && previous && mine(previous) ? (struct nest *)previous : take_nest(site);
  if (!nest) return (struct runahead_nest *)&idle;
  bool again = nest->site == site;
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
  read_references(nest, again, at);
  if (!find_regions(nest)) {
    count(COUNT_DECLINED, 1);
    return stream ? idle_stream(nest) : (struct runahead_nest *)&idle;
  }
  nest->run_on = stream && site_get(site, SITE_RUN_ON) < 4;
  keep_tables(nest);
  let_tables_go(nest);
  find_room(nest);
  shape_find_leaders(nest);
  if (!shape_choose_level(nest)) {
    count(COUNT_DECLINED, 1);
    return (struct runahead_nest *)&idle;
  }
  count(COUNT_ENTERED, 1);
  prepare(nest);
  look_at_windows(nest);
  adapt_shut_off(nest->since);
  advance(nest, 0);
  advise(nest); /* now that the first look-ups are known */
  set_window(nest, nest->present);
  bool several = nest->trip[nest->level] == RUNAHEAD_UNKNOWN ||
                 nest->trip[nest->level] > nest->unit_iterations || nest->level > 0;
  nest->front.level = several ? nest->level : RUNAHEAD_MAX_LEVELS;
  return &nest->front;
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
    if (r->region && (r->quiet || !left_to_kernel(nest, r))) return 1;
  }
  return SELDOM;
}

static int64_t step(struct runahead_nest *front, int64_t c0, int64_t c1, int64_t c2, int64_t c3) {
  struct nest *nest = (struct nest *)front;
  if (!adapt_armed() || !mine(front) || nest->references == 0 || nest->unit_iterations <= 0)
    return INT64_MAX;
  const int64_t counter[RUNAHEAD_MAX_LEVELS] = {c0, c1, c2, c3};
  int64_t outer = nest->level > 0 ? c0 : 0;
  for (unsigned i = 1; i < nest->level; i++)
    outer = outer * (nest->trip[i] > 0 ? nest->trip[i] : 1) + counter[i];
  int64_t k = counter[nest->level] + nest->origin;
  int64_t unit = outer * nest->units_in_level + k / nest->unit_iterations;
  count(COUNT_STEPS, 1);
  if (unit != nest->present) {
    uint64_t now = limits_now();
    bool forward = unit > nest->present && unit <= nest->present + SELDOM;
    passed(nest, unit, forward ? unit - nest->present : 0, now);
    go_back(nest, unit);
    check_sample(nest, unit);
    if (forward) look_behind(nest, unit, now);
    nest->present = unit;
    adapt_shut_off(now);
    filter_age_by_reads();
    probe_quiet(nest, unit);
  }
  advance(nest, nest->present);
  set_window(nest, nest->present);
  int64_t units = units_until_next(nest);
  if (are_last(nest, counter, units)) leave_to_kernel(nest);
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
