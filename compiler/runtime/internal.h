/* The run-time layer's own parts and who uses whom; nobody uses what stands above it (test/runtime/circles.test):
 *
 *   static_arrays, heap, map -> register   what is out of core
 *   copy -> nest                           long copies as nests of one loop
 *   nest -> tell -> keep -> plan           from a loop's position to what is decided, and said of it,
 *   plan -> prefetch -> shape -> walk      to pages,
 *   walk -> submit -> errands, filter      and on to the kernel
 *   register -> helper -> arm -> errands   the thread of ours, and whether compiled code is to ask at all
 *   nest, plan, submit -> adapt            how far ahead, and who reads
 *   errands, filter, report -> regions -> limits
 *   all but limits -> statistics
 *
 * Rules:
 *  - The program's memory is never dereferenced: index values are read with
 *    process_vm_writev, which fails where a load would fault.
 *  - Region records are never freed or reused, so a reader that holds one while
 *    another thread unregisters it sees stale facts, not freed memory.
 *  - Shared words are relaxed atomics: they are statistics and hints, and no
 *    decision that matters for correctness is made here.
 *  - Numbers from the program (strides, counts, addresses) may be anything; all
 *    arithmetic on them wraps (-fwrapv) and every loop over them has a bound of
 *    its own.
 */
#ifndef RUNAHEAD_INTERNAL_H
#define RUNAHEAD_INTERNAL_H

#include "runahead_abi.h"
#include "runahead_ooc.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#define PAGE_SHIFT 12
#define PAGE_BYTES ((uint64_t)1 << PAGE_SHIFT)
#define EXPORTED __attribute__((visibility("default")))
#define RELAXED memory_order_relaxed

/* --- regions.c ----------------------------------------------------------- */

struct region {
  uint64_t start, end;             /* page-aligned; immutable */
  _Atomic bool live;               /* false once unregistered */
  uint64_t window;                 /* bytes that the kernel reads around a fault; immutable */
  int descriptor;                  /* of the file behind it, our own; -1: not known */
  uint64_t device, file;           /* which file that is */
  uint64_t offset;                 /* in that file, of the region's start; immutable */
  bool several;                    /* arrays, side by side; immutable */
  _Atomic bool huge;               /* it is read in pieces of 2 MB (tell.c) */
  bool nameless;                   /* the file is ours alone: nobody minds where its position is; immutable */
  _Atomic unsigned written_looks;  /* how many looks in a row found that what is asked for was written (submit.c) */
  _Atomic unsigned advice;         /* what the kernel was told last, and who is telling it (tell.c) */
  _Atomic unsigned changed_entries; /* for so many more nests it is one that nests change */
  /* Tables that look-ups stay in, as far as memory can hold them: */
  _Atomic uint64_t table_bytes;
  _Atomic uint64_t table_start, table_end; /* between these addresses */
  _Atomic unsigned table_entries;          /* for so many more nests they are to be kept */
  _Atomic unsigned turn;           /* which of the two bit vectors is the newer */
  _Atomic uint64_t *recent[2];     /* a bit per page: believed to be in memory */
};

/* The live region that holds the address, or NULL. `hint` may be NULL. */
struct region *region_at(uint64_t address, struct region *hint);
/* The unregistered range around an address outside all regions. */
void region_gap(uint64_t address, uint64_t *start, uint64_t *end);
struct region *region_number(unsigned index); /* NULL: free slot */
unsigned region_slots(void);
bool regions_ever(void); /* was there one? */
uint64_t region_total_bytes(void);
/* The table's part of registering (register.c). The descriptor (or -1) is duplicated; `offset` is that of `start` in
 * its file. */
enum region_kind { REGION_NAMED, REGION_NAMELESS, REGION_ARRAYS /* nameless as well */ };
int region_add(uint64_t start, uint64_t bytes, int descriptor, uint64_t offset, enum region_kind kind);
int region_remove(uint64_t start, uint64_t *end);
void region_forget_lock(void); /* in a forked child */
/* Does our descriptor still lead to the region's file? */
bool region_has_file(const struct region *region);

/* --- register.c ---------------------------------------------------------- */

/* A region from now on, and no more; what the public calls come to. */
int register_range(uint64_t start, uint64_t bytes, int descriptor, uint64_t offset, enum region_kind kind);
int register_end(uint64_t start);
/* As runahead_ooc_register_file, of a file of ours that has no name. For our own parts, a preloaded heap among them. */
int runahead_ooc_register_nameless(void *address, size_t bytes, int descriptor, uint64_t offset);
/* The same, of several arrays side by side. */
int runahead_ooc_register_arrays(void *address, size_t bytes, int descriptor);

/* --- submit.c ------------------------------------------------------------ */

#define BATCH_RANGES 256
/* Asking about a run of pages costs 0.4 us and some 10 ns a page, a needless request
 * 0.15 us a page: a run is asked about, single pages are not. */
#define RUN_PAGES 8
/* The kernel silently truncates requests that are longer than its own read-ahead, which is 128 KB on
 * most disks; pieces of 2 MB are what it makes of longer ones. */
#define NARROW_REQUEST ((uint64_t)128 * 1024)
#define LONGEST_REQUEST ((uint64_t)2 * 1024 * 1024)
uint64_t submit_longest(const struct region *region);

struct batch {
  unsigned used;
  uint64_t pages;
  struct iovec range[BATCH_RANGES];
};

void batch_add(struct batch *batch, const struct region *region, uint64_t start, uint64_t bytes);
void batch_flush(struct batch *batch);
/* Adds what is not believed to be in memory of [start, end); `first`: the first address of it, or 0. */
void batch_want(struct batch *batch, struct region *region, uint64_t start, uint64_t end, uint64_t *first);
/* Looks at all of the pages; what is missing is added. */
void batch_confirm(struct batch *batch, struct region *region, uint64_t start, uint64_t end);
/* Gives pages up: first to be taken when memory is short, or out at once. */
void submit_release(uint64_t start, uint64_t bytes, bool at_once);
/* Starts the writing of what was changed there, so that memory can be had back without
 * waiting for it. */
void submit_write(const struct region *region, uint64_t start, uint64_t end);
/* Has the helper touch what the program has not reached yet when it comes to it. False: it has no room now. */
bool submit_touch(const struct region *region, uint64_t start, uint64_t end, const _Atomic uint64_t *reached);

/* --- errands.c ----------------------------------------------------------- */

/* What the helper does for loops, the most urgent first. */
enum errand { ERRAND_READ, ERRAND_WRITE, ERRAND_TOUCH, ERRAND_KINDS };

bool errands_helped(void); /* is there a helper? */
bool errands_set_helped(bool now); /* what was so before */
/* To a helper that is there. False: it has no room. For a region that has gone there is nothing to do. */
bool errands_hand_over(enum errand errand, const struct region *region, uint64_t start, uint64_t end,
                       const _Atomic uint64_t *reached);
/* The same by whoever calls. */
void errands_read(uint64_t start, uint64_t end);
void errands_write(const struct region *region, uint64_t start, uint64_t end);
/* The helper's part: makes the reads, writes and touches that are handed over to it within so many nanoseconds. */
void errands_do(uint64_t nanoseconds);
/* Before a region's memory goes: reads in [start, end) that were handed over and are still to be made are
 * dropped, and one under way is waited for, a second at most. From `live` being false on none is handed
 * over. Not async-signal-safe. */
void errands_drop_reads(uint64_t start, uint64_t end);
void errands_forget(void); /* in a forked child: those are the parent's */

/* --- filter.c ------------------------------------------------------------ */

/* The next run in [*from, end) that is not believed to be in memory: its bytes, and where it starts. It is
 * believed in from now on. 0: there is none. `*from` is where to go on. */
uint64_t filter_take(struct region *region, uint64_t *from, uint64_t end, uint64_t *start);
/* The program has been at [start, end): it is in memory now, whoever read it. */
void filter_note(struct region *region, uint64_t start, uint64_t end);
/* A look has found them in memory, where they may have been for long. How many were not believed
 * in so far? */
uint64_t filter_believe(struct region *region, uint64_t start, uint64_t end);
/* The same by a look at each page: the next run that is missing. */
uint64_t filter_find_missing(struct region *region, uint64_t *from, uint64_t end, uint64_t *start);
/* Looks at those of the pages that are believed in for a turn or longer; where many such beliefs
 * in a row were `right`, at a sample. */
void filter_check_old(struct region *region, uint64_t start, uint64_t end, uint64_t *right);
/* Believed to be in memory? For a turn or longer? */
bool filter_believes(struct region *region, uint64_t address);
bool filter_is_old(struct region *region, uint64_t address);
/* From now on they are believed in as if for long: they were given up, and may still be there. */
void filter_doubt(struct region *region, uint64_t start, uint64_t end);
void filter_forget(struct region *region, uint64_t start, uint64_t end);
/* What samples showed: is a page that was dropped in memory; of `looked` pages that
 * were sent, how many were there already? */
void filter_saw_dropped(bool there);
void filter_saw_sent(uint64_t looked, uint64_t there);
/* Counts pages that entered memory; old beliefs expire with them. */
void filter_age(uint64_t pages);
void filter_age_by_reads(void);

/* --- limits.c ------------------------------------------------------------ */

uint64_t limits_read_ahead(uint64_t address); /* bytes that the kernel reads around a fault there */
uint64_t limits_memory(void);      /* bytes that this process may keep in memory */
bool limits_pressed(uint64_t room); /* less than so much of memory is free; costs microseconds */
uint64_t limits_now(void);         /* nanoseconds, monotonic */
/* "64M" as bytes. False: it is no size, or larger than numbers are. */
bool size_read(const char *text, uint64_t *bytes);
void size_complain(const char *name, const char *value, const char *instead);

/* --- walk.c -------------------------------------------------------------- */

struct dimension {
  int64_t stride, count;
};

#define MAX_DIMENSIONS (RUNAHEAD_MAX_LEVELS + RUNAHEAD_MAX_BOXES)

struct walk {
  struct batch *batch;      /* NULL: the program has been there, just note it */
  bool doubt;               /* old beliefs are looked at before they are relied on */
  bool confirmed_later;     /*   but for runs of pages */
  uint64_t right;           /* how many of them in a row were right */
  bool confirm;             /* runs of pages are looked at, believed in or not */
  unsigned looks;           /* probing: pages that may still be looked at; nothing is sent */
  struct region *region;    /* of the last range; a hint */
  uint64_t sample;          /* some address that was sent to the kernel, or 0 */
  uint64_t wanted, sent;    /* pages */
  int64_t lowest, highest;  /* where look-ups led to */
  uint64_t budget;          /* work left before the walk gives up */
};

/* Takes from the budget; false when it is used up. */
bool walk_pay(struct walk *walk, uint64_t cost);

void walk_range(struct walk *walk, uint64_t start, uint64_t bytes);
/* All of [address + low, address + high) over the box of dimensions. */
void walk_box(struct walk *walk, int64_t address, int64_t low, int64_t high,
              const struct dimension *dimension, unsigned count);
/* Bytes of the pages that a box touches; *solid tells whether they are one run. */
double walk_bytes(int64_t low, int64_t high, const struct dimension *dimension, unsigned count,
                  bool *solid);
/* Index values: reads `count` values of `bytes` each, `stride` apart, into `out`
 * as 64-bit numbers. Returns how many could be read. */
unsigned walk_read(uint64_t address, int64_t stride, unsigned count, unsigned bytes,
                   bool is_signed, int64_t *out);

/* The same from any places; `good` tells which could be read. */
void walk_gather(const uint64_t *address, unsigned count, unsigned bytes, bool is_signed,
                 int64_t *out, bool *good);

/* 128 KB is what most disks have; 8 MB is more than our distance. */
#define NARROW_WINDOW (512 * 1024)

/* --- adapt.c ------------------------------------------------------------- */

/* Words of runahead_site.memory. */
enum site_word {
  SITE_SKIP,        /* entries still to be passed over */
  SITE_QUIET,       /* how many entries in a row found all in memory */
  SITE_DISTANCE,    /* bytes ahead; 0: not yet chosen */
  SITE_RUN_ON,      /* biased score: streams that went on as foretold */
  SITE_PHASE,       /* of the comparison with the kernel's own read-ahead */
  SITE_PHASE_BYTES, SITE_PHASE_TIME, SITE_PHASE_WAITS,
  SITE_FIRST,       /* who reads runs of pages (enum first_reader) */
  SITE_KERNEL_PACE, /* nanoseconds a megabyte when it was measured */
  SITE_WANTED, SITE_SENT, /* pages since the last judgement, */
  SITE_SIZE,              /*   the most iterations of an entry, and how many entries */
  SITE_ENTRIES,
  SITE_SKIP_SIZE,         /* entries much larger than this are not passed over */
  SITE_RIGHT,             /* how many old beliefs in a row were right */
  SITE_TIGHT,             /* beside tables that take most of memory: bytes ahead; 0: not yet chosen, */
  SITE_TIGHT_MOST,        /*   and how far it may grow, */
  SITE_TIGHT_HOLD,        /*   and bytes until what is seen tells of the present distance */
  SITE_RUN_MOST,          /* runs of pages: further ahead than so many bytes they were driven out; 0: not seen */
  SITE_WORDS
};

static inline uint64_t site_get(struct runahead_site *site, enum site_word word) {
  return __atomic_load_n(&site->memory[word], __ATOMIC_RELAXED);
}
static inline void site_set(struct runahead_site *site, enum site_word word, uint64_t value) {
  __atomic_store_n(&site->memory[word], value, __ATOMIC_RELAXED);
}

enum first_reader {
  KERNEL_FIRST, /* the kernel, until we show that we are the faster, */
  OURS_FIRST,   /* we, until the kernel shows that it is, */
  OURS_ALWAYS   /* we; the kernel is not tried */
};

bool adapt_skip(struct runahead_site *site, uint64_t iterations);
uint64_t adapt_distance(struct runahead_site *site, bool indirect);
/* The same for runs of pages beside references that are found through indices. */
uint64_t adapt_run_distance(struct runahead_site *site);
/* Of what we have read ahead in so many bytes the program had to read so many pages itself: they had been driven out. */
void adapt_driven_out(struct runahead_site *site, uint64_t bytes, uint64_t faults);
void adapt_late(struct runahead_site *site, bool indirect, bool late);
/* Sequential references: prefetch them ourselves, or leave them to the kernel? */
bool adapt_prefetch_sequential(struct runahead_site *site);
/* What a stretch of sequential data took, and how often the thread stood still for it. */
void adapt_measured(struct runahead_site *site, uint64_t bytes, uint64_t nanoseconds, uint64_t waits);
/* Of this thread so far: how often it stood still, and pages that it had to read itself. */
struct waiting {
  uint64_t waits, faults;
};
struct waiting adapt_waiting(void);
/* Bytes ahead beside tables that take most of memory. */
uint64_t adapt_tight_distance(struct runahead_site *site, uint64_t room);
void adapt_tight_begins(struct runahead_site *site, uint64_t room);
/* What the program met in so many bytes. True: it was too far ahead, and now is less. */
bool adapt_tight_passed(struct runahead_site *site, uint64_t room, uint64_t bytes, struct waiting met);

/* --- arm.c --------------------------------------------------------------- */

bool arm_is_set(void);
bool arm_switched_on(void); /* by the environment */
/* Looks now and then whether all regions are in memory, and disarms if so. */
void arm_shut_off(uint64_t now);
void arm_again(void);

/* --- helper.c ------------------------------------------------------------ */

/* Starts the thread of ours that watches and does errands, if there is none. Allocates memory. */
void helper_get(void);

/* --- statistics.c -------------------------------------------------------- */

enum counter {
  COUNT_ENTERED, COUNT_DECLINED, COUNT_STEPS,
  COUNT_WANTED,    /* pages asked for by compiled code */
  COUNT_SENT,      /* pages that passed the filter */
  COUNT_CALLS,     /* system calls for prefetch */
  COUNT_DROPPED_LOOKED, COUNT_DROPPED_GONE, /* samples of dropped pages; not in memory */
  COUNT_RUNS,      /* pages of runs that were found in memory by one look each */
  COUNT_CONFIRMED, COUNT_MISSED, /* pages looked at shortly before their use; missing then */
  COUNT_LOOKED, COUNT_THERE, /* samples: pages looked at when sent; those in memory already */
  COUNT_CHECKED, COUNT_LATE, /* samples: prefetched pages looked at when due */
  COUNT_RELEASED,  /* pages given up */
  COUNT_WRITTEN,   /* pages that were told to be written, changed or not */
  COUNT_DISARMED, COUNT_REARMED, COUNT_RESTARTS,
  COUNTERS
};
void count(enum counter which, uint64_t by);
uint64_t count_of(enum counter which);

#endif
