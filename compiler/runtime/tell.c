/* What the kernel is told of a nest: advice for its regions, what to read ahead of the program, and what to
 * write and to give up behind it. What that is to be has been decided (plan.c); from units to pages it
 * goes by prefetch.c.
 *
 * Rules:
 *  - Advice is said of a whole region, and once: the region remembers what was said last. Where it was said
 *    of a part (beside tables), or by two threads at once, that is not known any more.
 *  - Advice outlives the nest: who leaves says what is to hold afterwards (tell_leaving).
 *  - All calls keep errno: they are made in the middle of the program.
 */
#define _GNU_SOURCE
#include "nest.h"
#include <errno.h>
#include <sys/mman.h>

/* What one call may cost, in ranges and index values: some milliseconds, far above
 * what a sensible nest needs. */
#define MOST_WORK (1 << 17)

/* --- advice ---------------------------------------------------------------- */

/* What is remembered must be what the kernel heard last, and two threads may speak of a region at once: while
 * anybody speaks nothing is known, and where two did it is not afterwards either (whose words came last?). Whoever
 * comes next says it again. No lock: a signal's handler may come between, and may never come back (longjmp);
 * from then on all is said again each time, which costs a system call. The word: the advice, and how many speak. */
#define SPEAKER ((unsigned)256)
enum { BEING_SAID = 254, NOT_KNOWN = 255 }; /* beside the kernel's numbers, which are small */

static void begin_to_say(struct region *region) {
  unsigned before = atomic_load_explicit(&region->advice, RELAXED), now;
  do {
    now = before / SPEAKER ? NOT_KNOWN : BEING_SAID;
    now += (before / SPEAKER + 1) * SPEAKER;
  } while (!atomic_compare_exchange_weak(&region->advice, &before, now));
}

static void has_been_said(struct region *region, unsigned advice) {
  unsigned before = atomic_load_explicit(&region->advice, RELAXED), now;
  do {
    now = before - SPEAKER;
    if (before == SPEAKER + BEING_SAID) now = advice;
  } while (!atomic_compare_exchange_weak(&region->advice, &before, now));
}

static void say(struct region *region, int advice) {
  if (atomic_load_explicit(&region->advice, RELAXED) == (unsigned)advice) return;
  int saved = errno;
  begin_to_say(region);
  madvise((void *)region->start, region->end - region->start, advice);
  has_been_said(region, (unsigned)advice);
  errno = saved;
}

/* Said of one reference's pages only, so that of the region nothing is known afterwards. */
static void say_of_range(const struct nest *nest, const struct reference *r, int advice) {
  uint64_t start = (uint64_t)(r->address + r->shape->low), end = start + (uint64_t)shape_footprint(nest, r);
  start = (start + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
  end &= ~(PAGE_BYTES - 1);
  if (start < r->region->start || end > r->region->end || start >= end) return;
  int saved = errno;
  begin_to_say(r->region);
  madvise((void *)start, end - start, advice);
  has_been_said(r->region, NOT_KNOWN);
  errno = saved;
}

/* Large pieces from the first fault on, where the kernel and its file system have them (MADV_HUGEPAGE of a
 * file's mapping: by its source each miss brings two pieces of 2 MB, whatever else is advised, and a fault
 * maps a whole one, for writing as well). Where its windows are twice as wide by themselves that is no more
 * than it reads otherwise, and it stays so until a nest has only single pages of the region to do with. A
 * piece that is changed is written whole. */
#define HUGE_WINDOWS (2 * LONGEST_REQUEST)
static void say_pieces(struct region *region, bool huge) {
  if (atomic_exchange_explicit(&region->huge, huge, RELAXED) == huge) return;
  int saved = errno;
  madvise((void *)region->start, region->end - region->start, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  errno = saved;
}

/* Does memory hold what the nest's streams have under way in pieces? */
static bool pieces_fit(const struct nest *nest) {
  uint64_t pieces = 0;
  for (unsigned i = 0; i < nest->references; i++)
    if (nest->reference[i].region && !nest->reference[i].led) pieces += 4 * LONGEST_REQUEST;
  return pieces <= limits_memory() / 4;
}

/* What each region of a nest that goes through its arrays once is best under: "sequential" for what it
 * changes as well. (STREAM in half of its memory: a third of the processor's time and of the faults that
 * "normal" took.) */
static void advise_streams(const struct nest *nest) {
  bool huge = pieces_fit(nest);
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (!r->region || r->led) continue;
    say(r->region, keep_is_there(r) ? MADV_NORMAL : MADV_SEQUENTIAL);
    if (huge && r->region->window >= HUGE_WINDOWS) say_pieces(r->region, true);
  }
}

/* Random pages of a mapping under normal advice cost a whole read-ahead window
 * for each one missed; a pass over more than memory leaves nothing behind that is worth
 * keeping. Both are said only where all references of this nest to the region agree:
 * under "sequential" pages that other nests want again leave early, under "random" each
 * missed one is a read of its own (MG: a quarter of the filter's beliefs were wrong). A
 * region with several users has pages that a trailing one touches again (stencils). And
 * what is written is better off under "normal": there one fault maps all of a large piece
 * of the page cache, under "sequential" a page (a stencil: 9,000 faults or 200,000). So is what has its beginning in
 * memory (keep.c): behind it the kernel begins with a whole window under "normal", with small pieces under
 * "sequential" (the second pass over 256 MB, of which 96 are kept: 0.08 s and 0.19).
 *
 * While indices are followed all prefetching is ours, runs of pages included, and a look-up
 * that was missed must not bring 31 others: a sparse matrix in a tenth of its memory read 7 GB
 * for its 0.6 so. */
static void advise_regions(struct nest *nest) {
  if (plan_streams_past_memory(nest)) {
    advise_streams(nest);
    return;
  }
  for (unsigned i = 0; i < nest->references; i++) {
    struct region *region = nest->reference[i].region;
    if (!region) continue;
    unsigned users = 0;
    bool once = true, sparse = true, followed = false;
    for (unsigned j = 0; j < nest->references; j++) {
      const struct reference *r = &nest->reference[j];
      if (r->region != region) continue;
      users++;
      once &= r->sequential && !(r->shape->flags & RUNAHEAD_WRITES) && !keep_is_there(r) &&
              shape_footprint(nest, r) > (double)limits_memory();
      if (r->shape->flags & RUNAHEAD_INDIRECT) {
        followed |= plan_is_scattered(r);
        sparse &= plan_is_scattered(r);
      } else {
        sparse &= !r->sequential && shape_sparse(nest, r);
      }
    }
    int want = MADV_NORMAL;
    if (followed || sparse || nest->ours)
      want = MADV_RANDOM;
    else if (once && users == 1)
      want = MADV_SEQUENTIAL;
    say(region, want);
    if (want == MADV_RANDOM) say_pieces(region, false);
  }
}

/* Under "random" the kernel does not count a use of a page as a reason to keep it, nor reads more
 * than it is asked for: what goes past tables is better off so, the tables themselves are not. */
void tell_advice(struct nest *nest) {
  advise_regions(nest);
  if (!plan_is_tight(nest) || nest->site->flags & RUNAHEAD_STREAM) return;
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if (r->region && plan_windows_fit(r->region) && r->sequential && !plan_is_kept(nest, r) &&
        shape_footprint(nest, r) > (double)nest->room)
      say_of_range(nest, r, MADV_RANDOM);
  }
}

/* What one nest had no use for, the next code may live on, and not all code is ours: at the
 * last unit of a nest, and for one that is passed over (NULL). (BUK in a tenth: its counts, zeroed by
 * memset, came back a page at a time, and 4 s became 17.) Where windows do not fit, the kernel is to read by
 * itself no more than before: what a nest of ours went through stays "random". Of other nests' regions
 * nothing is known here: the kernel may be reading one of them at this moment, and nobody else. */
void tell_leaving(const struct nest *nest) {
  for (unsigned i = 0, n = region_slots(); i < n; i++) {
    struct region *region = region_number(i);
    if (region && plan_windows_fit(region)) say(region, MADV_NORMAL);
  }
  if (!nest || !nest->ours) return;
  for (unsigned i = 0; i < nest->references; i++) {
    struct region *region = nest->reference[i].region;
    if (!region || plan_windows_fit(region)) continue;
    say(region, MADV_RANDOM);
    say_pieces(region, false);
  }
}

/* --- ahead ------------------------------------------------------------------ */

/* Prefetches a reference as far ahead as it is to be with the program at `unit`. */
static void bring_up(struct nest *nest, struct reference *r, int64_t unit, int64_t ahead,
                     uint64_t *budget, uint64_t *wanted, uint64_t *sent) {
  if (r->issued < unit) r->issued = unit;
  uint64_t wanted_before = *wanted, sent_before = *sent;
  prefetch_until(nest, r, plan_until(nest, r, unit, ahead), budget, wanted, sent);
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

void tell_wanted(struct nest *nest, int64_t unit) {
  int64_t ahead = plan_ahead(nest);
  nest->confirming = ahead >= 4;
  uint64_t wanted = 0, sent = 0, budget = MOST_WORK;
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (!r->region || r->quiet) continue;
    if (plan_left_to_kernel(nest, r)) {
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
}

void tell_driven_out(struct nest *nest, int64_t unit) {
  uint64_t budget = MOST_WORK;
  for (unsigned i = 0; i < nest->references; i++) {
    struct reference *r = &nest->reference[i];
    if (!r->region || !r->sequential) continue;
    r->confirmed = unit;
    prefetch_confirm(nest, r, plan_until(nest, r, unit, 0), &budget);
  }
}

/* --- behind ----------------------------------------------------------------- */

/* Is there anything to give up or to write behind the program? What the kernel reads by itself it keeps
 * in large pieces, and drops and writes by itself. */
static bool leaves_anything(const struct nest *nest) {
  for (unsigned i = 0; i < nest->references; i++) {
    const struct reference *r = &nest->reference[i];
    if ((r->writes || r->releases) && !plan_left_to_kernel(nest, r)) return true;
  }
  return false;
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
void tell_behind(struct nest *nest, int64_t unit, uint64_t now) {
  enum { UNITS = 16, NANOSECONDS = 1000000 };
  keep_ahead(nest, unit);
  keep_beginning(nest, unit);
  int64_t lasting = (int64_t)((double)nest->room / 16 / nest->unit_bytes) + 1;
  bool soon = unit - nest->released < (lasting < UNITS ? lasting : UNITS) || now - nest->looked < NANOSECONDS;
  if (soon && !plan_is_tight(nest)) return;
  nest->looked = now;
  plan_look_at_way(nest, unit);
  if (leaves_anything(nest) && (plan_is_tight(nest) || limits_pressed(limits_memory() / 16)))
    for (unsigned i = 0; i < nest->references; i++) {
      const struct reference *r = &nest->reference[i];
      if ((r->releases || r->writes) && !plan_left_to_kernel(nest, r))
        prefetch_behind(nest, r, nest->released, unit, plan_is_tight(nest));
    }
  nest->released = unit;
}
