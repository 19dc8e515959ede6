/* How far ahead, whether an entry is worth it, and who reads sequential data.
 *
 * Distance: bytes ahead for a site. It starts at a depth that keeps a fast disk
 * busy and grows by half whenever a prefetched page is looked at when it is due
 * and has not arrived; at most an eighth of memory.
 *
 * Sequential references: the kernel's read-ahead is hard to beat on a fast disk
 * and loses on a slow one, so the site measures: some megabytes each way, then
 * the faster; the kernel's where there is no clear difference. Where the kernel takes hardly longer
 * than our requests alone would (QUICK), our way is not tried. Where nests change what they go
 * through and windows are wide (OURS_ALWAYS), nothing is measured: we read.
 */
#define _GNU_SOURCE
#include "internal.h"
#include <sys/resource.h>

#define MEGABYTE ((uint64_t)1 << 20)

/* --- distance ------------------------------------------------------------ */

/* 128 pages outstanding is where random reads stop gaining on NVMe and on a 1 ms
 * device alike; runs of pages want several of the disk's longest requests. */
#define FIRST_DISTANCE_INDIRECT (128 * PAGE_BYTES)
#define FIRST_DISTANCE_BLOCKS (8 * 1024 * 1024)

static uint64_t within_memory(uint64_t distance) {
  uint64_t most = limits_memory() / 8;
  return distance < most ? distance : most;
}

uint64_t adapt_distance(struct runahead_site *site, bool indirect) {
  uint64_t distance = site_get(site, SITE_DISTANCE);
  return within_memory(distance ? distance : indirect ? FIRST_DISTANCE_INDIRECT : FIRST_DISTANCE_BLOCKS);
}

uint64_t adapt_run_distance(struct runahead_site *site) {
  uint64_t distance = site_get(site, SITE_DISTANCE), most = site_get(site, SITE_RUN_MOST);
  if (distance < FIRST_DISTANCE_BLOCKS) distance = FIRST_DISTANCE_BLOCKS;
  return within_memory(most && distance > most ? most : distance);
}

/* A major fault is a page that nobody has asked for or that is gone again; what comes too late is only
 * waited for. More than one in eight tells that memory does not hold the distance. */
#define LEAST_RUN ((uint64_t)256 * 1024)
void adapt_driven_out(struct runahead_site *site, uint64_t bytes, uint64_t faults) {
  if (bytes < MEGABYTE / 4 || faults <= bytes / PAGE_BYTES / 8) return;
  uint64_t distance = adapt_run_distance(site), less = distance - distance / 4;
  site_set(site, SITE_RUN_MOST, less < LEAST_RUN ? LEAST_RUN : less);
}

/* Beside tables that take most of memory. What is prefetched there and comes too late is waited
 * for; what was driven out before its use has to be read by the program itself. One tells from the
 * other: the first is a wait, the second a major fault. So the distance grows while the program
 * waits and does not fault, and where it faults for more than one page in eight it goes back, and
 * comes there again only by a thousandth at a time. (A sort by hand, 2 MB of counts in 3.4 MB of
 * memory, 1 ms: 256 KB ahead 2.8 s, 384 KB 1.5, 512 KB 0.9, 640 KB 0.7 or 11, alone 2.3 to 2.9;
 * not stored.) What is seen tells of a distance only after twice as much has been passed. */
#define LEAST_TIGHT ((uint64_t)64 * 1024)
uint64_t adapt_tight_distance(struct runahead_site *site, uint64_t room) {
  uint64_t distance = site_get(site, SITE_TIGHT);
  return distance && distance < room / 2 ? distance : room / 4;
}

/* The first pages of a nest nobody has asked for in time. */
void adapt_tight_begins(struct runahead_site *site, uint64_t room) {
  site_set(site, SITE_TIGHT_HOLD, 2 * adapt_tight_distance(site, room));
}

bool adapt_tight_passed(struct runahead_site *site, uint64_t room, uint64_t bytes, struct waiting met) {
  uint64_t hold = site_get(site, SITE_TIGHT_HOLD);
  site_set(site, SITE_TIGHT_HOLD, hold > bytes ? hold - bytes : 0);
  if (hold > bytes) return false;
  uint64_t distance = adapt_tight_distance(site, room), most = site_get(site, SITE_TIGHT_MOST);
  if (!most || most > room / 2) most = room / 2;
  bool driven_out = met.faults > bytes / PAGE_BYTES / 8;
  if (!driven_out && (met.faults || !met.waits)) return false;
  if (driven_out) {
    most = distance - distance / 8;
    distance -= distance / 4;
  } else {
    distance += distance / 16;
    if (distance > most) most += most / 1024;
  }
  if (distance > most) distance = most;
  site_set(site, SITE_TIGHT_MOST, most);
  site_set(site, SITE_TIGHT, distance < LEAST_TIGHT ? LEAST_TIGHT : distance);
  adapt_tight_begins(site, room);
  return driven_out;
}

void adapt_late(struct runahead_site *site, bool indirect, bool late) {
  count(COUNT_CHECKED, 1);
  if (!late) return;
  count(COUNT_LATE, 1);
  uint64_t distance = adapt_distance(site, indirect);
  if (distance < limits_memory() / 8) site_set(site, SITE_DISTANCE, distance + distance / 2);
}

/* --- entries that are not worth it --------------------------------------- */

/* The entries of a multigrid's loops are tiny and in memory but for one, which is not: an
 * entry is passed over only while it is not much larger than those that were judged. (MG: the
 * finest grid, eight times the next, was left to the kernel since the coarse ones had needed
 * nothing, and half of its waits were that.)
 *
 * An entry that asks for a megabyte is never passed over: entering costs nothing beside it,
 * and one that needed nothing, while data was made in memory, says nothing of the next. (LU,
 * 4 steps: 1.4 of its 6.4 s were nests that had been passed over.) */
#define MUCH_LARGER 4
#define LARGE_ENTRY (((uint64_t)1 << 20) / PAGE_BYTES)
bool adapt_skip(struct runahead_site *site, uint64_t iterations) {
  uint64_t skip = site_get(site, SITE_SKIP);
  if (skip && iterations / MUCH_LARGER < site_get(site, SITE_SKIP_SIZE)) {
    site_set(site, SITE_SKIP, skip - 1);
    return true;
  }
  uint64_t wanted = site_get(site, SITE_WANTED), sent = site_get(site, SITE_SENT);
  if (wanted >= 256) { /* else too little seen to judge */
    /* Less than one page in 256 had to be fetched since the last look. */
    if (sent * 256 < wanted && wanted / LARGE_ENTRY < site_get(site, SITE_ENTRIES)) {
      uint64_t quiet = site_get(site, SITE_QUIET);
      if (quiet < 6) site_set(site, SITE_QUIET, quiet + 1);
      site_set(site, SITE_SKIP, (uint64_t)1 << quiet);
      site_set(site, SITE_SKIP_SIZE, site_get(site, SITE_SIZE));
    } else {
      site_set(site, SITE_QUIET, 0);
    }
    site_set(site, SITE_WANTED, 0);
    site_set(site, SITE_SENT, 0);
    site_set(site, SITE_SIZE, 0);
    site_set(site, SITE_ENTRIES, 0);
  }
  site_set(site, SITE_ENTRIES, site_get(site, SITE_ENTRIES) + 1);
  if (iterations > site_get(site, SITE_SIZE)) site_set(site, SITE_SIZE, iterations);
  return false;
}

/* --- sequential references ----------------------------------------------- */

/* Phases: the kernel reads, warming up; measured; we read, warming up; measured;
 * then the choice, kept for many times as long. */
enum phase { FRESH, KERNEL_WARM, KERNEL_MEASURED, OURS_WARM, OURS_MEASURED, CHOSE_KERNEL, CHOSE_OURS };

/* The trial of our way may cost twice the time for its 40 MB: a few percent of what a
 * choice is kept for. Before each is measured the other has to be over: the kernel has
 * a window of read-ahead, or two, in memory, and we had a distance. A trial of 16 MB in all
 * measured what had been read before it, and took our way for the faster (a stencil: 1.7 s
 * for the kernel's 1.3). */
static uint64_t phase_bytes(uint64_t phase) {
  switch (phase) {
  case KERNEL_WARM: return 96 * MEGABYTE;
  /* Read-ahead windows may be 8 MB: a measurement over one of them is chance. */
  case KERNEL_MEASURED: return 40 * MEGABYTE;
  case OURS_WARM: return 24 * MEGABYTE;
  case OURS_MEASURED: return 16 * MEGABYTE;
  case CHOSE_OURS: return 64 * MEGABYTE;
  default: return 2048 * MEGABYTE;
  }
}

/* Where the kernel's windows are narrow we are nearly always the faster (LU at 1 ms, 4 steps:
 * alone 11.6 s, ours from the start 5.3, with a trial after every 64 MB 6.8). */
#define UNTRIED_BYTES (512 * MEGABYTE)

/* Where the disk is so slow that the kernel's windows take long (128 KB in 1 ms), there is
 * no need to see much of it. */
static bool phase_over(struct runahead_site *site, uint64_t phase, uint64_t bytes,
                       uint64_t nanoseconds) {
  enum { LONG_ENOUGH = 100000000 };
  if (phase == CHOSE_OURS && !site_get(site, SITE_KERNEL_PACE)) return bytes >= UNTRIED_BYTES;
  if (phase <= KERNEL_MEASURED && bytes >= 8 * MEGABYTE && nanoseconds >= LONG_ENOUGH) return true;
  return bytes >= phase_bytes(phase);
}

static uint64_t present_phase(struct runahead_site *site) {
  uint64_t phase = site_get(site, SITE_PHASE);
  bool ours_first = site_get(site, SITE_FIRST) != KERNEL_FIRST;
  bool untried = phase == CHOSE_OURS && !site_get(site, SITE_KERNEL_PACE);
  if (phase == FRESH || (untried && !ours_first)) {
    phase = ours_first ? CHOSE_OURS : KERNEL_WARM;
    site_set(site, SITE_PHASE, phase);
  }
  return phase;
}

bool adapt_prefetch_sequential(struct runahead_site *site) {
  if (site_get(site, SITE_FIRST) == OURS_ALWAYS) return true;
  uint64_t phase = present_phase(site);
  return phase == OURS_WARM || phase == OURS_MEASURED || phase == CHOSE_OURS;
}

/* Nanoseconds a megabyte, of whole measurements; 0: not known. */
static uint64_t pace(uint64_t nanoseconds, uint64_t bytes) {
  return bytes >= MEGABYTE ? nanoseconds / (bytes / MEGABYTE) : 0;
}

/* A page that is asked for by us costs 2 to 3 us, with the room that has to be found for it: 0.6 ms a megabyte.
 * Where the kernel takes not much more than that, disk and all, there is nothing to gain (the sum of 256 MB at
 * half: 40 MB of trial made it 5% slower). It takes 0.6 to 0.7 on a fast disk, and up to 1.2 beside other work. */
#define QUICK 1500000

/* Of all that the program goes through in runs of pages, where the kernel is the first to read, our way is
 * tried on a sixteenth at most: be it twice as slow, the whole program, the making of its data included,
 * loses a sixteenth. Bytes. */
#define TRIED_AT_MOST 16
static _Atomic uint64_t gone_through, tried;

/* Several nests may be at that at once: a trial is counted when it begins. */
static bool may_try(void) {
  uint64_t cost = phase_bytes(OURS_WARM) + phase_bytes(OURS_MEASURED);
  uint64_t now = atomic_fetch_add_explicit(&tried, cost, RELAXED) + cost;
  if (now <= atomic_load_explicit(&gone_through, RELAXED) / TRIED_AT_MOST) return true;
  atomic_fetch_sub_explicit(&tried, cost, RELAXED);
  return false;
}

/* One measurement may be chance: a program that writes waits for its writing at one time and
 * not at another (the stencil chose either way). So our way has to show that it is the faster
 * one as long as it lasts. */
static uint64_t next_phase(struct runahead_site *site, uint64_t phase, uint64_t took, bool waited) {
  uint64_t kernel = site_get(site, SITE_KERNEL_PACE);
  /* Where we start, the kernel has to be the faster one. */
  uint64_t good = site_get(site, SITE_FIRST) != KERNEL_FIRST ? kernel / 10 * 11 : kernel / 10 * 9;
  switch (phase) {
  case KERNEL_MEASURED:
    site_set(site, SITE_KERNEL_PACE, took);
    if (took < QUICK) return CHOSE_KERNEL;
    return site_get(site, SITE_FIRST) != KERNEL_FIRST || may_try() ? OURS_WARM : KERNEL_WARM;
  case OURS_MEASURED:
    return took < good - kernel / 10 ? CHOSE_OURS : CHOSE_KERNEL;
  case CHOSE_OURS:
    if (site_get(site, SITE_FIRST) != KERNEL_FIRST && !waited) return CHOSE_OURS;
    if (!kernel) return KERNEL_WARM;
    return took < good ? CHOSE_OURS : CHOSE_KERNEL;
  case CHOSE_KERNEL:
    return KERNEL_WARM;
  default:
    return phase + 1;
  }
}

struct waiting adapt_waiting(void) {
  struct rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return (struct waiting){(uint64_t)usage.ru_nvcsw, (uint64_t)usage.ru_majflt};
}

/* Narrow windows make a program wait more often than once a megabyte (of 128 KB: eight times).
 * Where it waits less there is nothing to gain, and a trial of 36 MB is dear: four nests' trials
 * were 1.5 s of MG's 4.
 *
 * Where we always read, a phase of the kernel's would be one of ours, and its pace ours. */
void adapt_measured(struct runahead_site *site, uint64_t bytes, uint64_t nanoseconds, uint64_t waits) {
  if (site_get(site, SITE_FIRST) == OURS_ALWAYS) return;
  uint64_t phase = present_phase(site);
  atomic_fetch_add_explicit(&gone_through, bytes, RELAXED);
  waits += site_get(site, SITE_PHASE_WAITS);
  bytes += site_get(site, SITE_PHASE_BYTES);
  nanoseconds += site_get(site, SITE_PHASE_TIME);
  if (phase_over(site, phase, bytes, nanoseconds)) {
    bool waited = waits > bytes / MEGABYTE;
    site_set(site, SITE_PHASE, next_phase(site, phase, pace(nanoseconds, bytes), waited));
    bytes = nanoseconds = waits = 0;
  }
  site_set(site, SITE_PHASE_BYTES, bytes);
  site_set(site, SITE_PHASE_TIME, nanoseconds);
  site_set(site, SITE_PHASE_WAITS, waits);
}
