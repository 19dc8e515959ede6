/* How far ahead, whether at all, and who reads sequential data.
 *
 * Distance: bytes ahead for a site. It starts at a depth that keeps a fast disk
 * busy and grows by half whenever a prefetched page is looked at when it is due
 * and has not arrived; at most an eighth of memory.
 *
 * Sequential references: the kernel's read-ahead is hard to beat on a fast disk
 * and loses on a slow one, so the site measures: some megabytes each way, then
 * the faster; the kernel's where there is no clear difference.
 *
 * Shut-off: when everything registered can stay in memory and is there, the flag
 * that compiled code tests is cleared. A sleeping thread watches for major faults
 * from then on and sets it again.
 */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

/* Read by compiled code before each nest. */
extern _Atomic uint8_t runahead_armed __asm__(RUNAHEAD_ARMED_SYMBOL);
EXPORTED _Atomic uint8_t runahead_armed;

bool adapt_armed(void) { return atomic_load_explicit(&runahead_armed, RELAXED); }

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
  uint64_t distance = site_get(site, SITE_DISTANCE);
  return within_memory(distance < FIRST_DISTANCE_BLOCKS ? FIRST_DISTANCE_BLOCKS : distance);
}

void adapt_late(struct runahead_site *site, bool indirect, bool late) {
  count(COUNT_CHECKED, 1);
  if (!late) return;
  count(COUNT_LATE, 1);
  uint64_t distance = adapt_distance(site, indirect);
  if (distance < limits_memory() / 8) site_set(site, SITE_DISTANCE, distance + distance / 2);
}

/* --- entries that are not worth it --------------------------------------- */

bool adapt_skip(struct runahead_site *site) {
  uint64_t skip = site_get(site, SITE_SKIP);
  if (skip) {
    site_set(site, SITE_SKIP, skip - 1);
    return true;
  }
  uint64_t wanted = site_get(site, SITE_WANTED), sent = site_get(site, SITE_SENT);
  if (wanted < 256) return false; /* too little seen to judge */
  /* Less than one page in 256 had to be fetched since the last look. */
  if (sent * 256 < wanted) {
    uint64_t quiet = site_get(site, SITE_QUIET);
    if (quiet < 6) site_set(site, SITE_QUIET, quiet + 1);
    site_set(site, SITE_SKIP, (uint64_t)1 << quiet);
  } else {
    site_set(site, SITE_QUIET, 0);
  }
  site_set(site, SITE_WANTED, 0);
  site_set(site, SITE_SENT, 0);
  return false;
}

/* --- sequential references ----------------------------------------------- */

/* Phases: the kernel reads, warming up; measured; we read, warming up; measured;
 * then the choice, kept for many times as long. */
enum phase { KERNEL_WARM, KERNEL_MEASURED, OURS_WARM, OURS_MEASURED, CHOSE_KERNEL, CHOSE_OURS };
#define MEGABYTE ((uint64_t)1 << 20)

/* The trial of our way may cost twice the time for its 16 MB: a few percent of what
 * has gone by before it, and of what a choice is kept for. */
static uint64_t phase_bytes(uint64_t phase) {
  if (phase == KERNEL_WARM) return 96 * MEGABYTE;
  /* Read-ahead windows may be 8 MB: a measurement over one of them is chance. */
  if (phase == KERNEL_MEASURED) return 40 * MEGABYTE;
  return phase >= CHOSE_KERNEL ? 2048 * MEGABYTE : 8 * MEGABYTE;
}

bool adapt_prefetch_sequential(struct runahead_site *site) {
  uint64_t phase = site_get(site, SITE_PHASE);
  return phase == OURS_WARM || phase == OURS_MEASURED || phase == CHOSE_OURS;
}

static uint64_t choose(struct runahead_site *site) {
  double kernel = (double)site_get(site, SITE_KERNEL_TIME) /
                  (double)(site_get(site, SITE_KERNEL_BYTES) | 1);
  double ours = (double)site_get(site, SITE_OURS_TIME) / (double)(site_get(site, SITE_OURS_BYTES) | 1);
  site_set(site, SITE_KERNEL_TIME, 0);
  site_set(site, SITE_KERNEL_BYTES, 0);
  site_set(site, SITE_OURS_TIME, 0);
  site_set(site, SITE_OURS_BYTES, 0);
  return ours < 0.85 * kernel ? CHOSE_OURS : CHOSE_KERNEL;
}

void adapt_measured(struct runahead_site *site, uint64_t bytes, uint64_t nanoseconds) {
  uint64_t phase = site_get(site, SITE_PHASE);
  if (phase == KERNEL_MEASURED) {
    site_set(site, SITE_KERNEL_BYTES, site_get(site, SITE_KERNEL_BYTES) + bytes);
    site_set(site, SITE_KERNEL_TIME, site_get(site, SITE_KERNEL_TIME) + nanoseconds);
  } else if (phase == OURS_MEASURED) {
    site_set(site, SITE_OURS_BYTES, site_get(site, SITE_OURS_BYTES) + bytes);
    site_set(site, SITE_OURS_TIME, site_get(site, SITE_OURS_TIME) + nanoseconds);
  }
  uint64_t total = site_get(site, SITE_PHASE_BYTES) + bytes;
  bool chosen = phase >= CHOSE_KERNEL;
  if (total >= phase_bytes(phase)) {
    total = 0;
    if (phase == OURS_MEASURED)
      phase = choose(site);
    else
      phase = chosen ? KERNEL_WARM : phase + 1;
    site_set(site, SITE_PHASE, phase);
  }
  site_set(site, SITE_PHASE_BYTES, total);
}

/* --- shut-off ------------------------------------------------------------ */

/* Fraction of registered pages that must be in memory to call it in core. */
#define IN_CORE(resident, pages) ((resident) >= (pages) - (pages) / 50)
/* A tick with more major faults than this is a program that reads its disk. */
#define FAULTS_TO_REARM 32
#define WATCH_INTERVAL_NS 200000000

static _Atomic uint64_t next_look;
static _Atomic uint64_t look_interval;
static _Atomic bool watched;

static bool all_in_memory(void) {
  enum { CHUNK = 1 << 16 };
  unsigned char *present = malloc(CHUNK);
  if (!present) return false;
  uint64_t pages = 0, resident = 0;
  for (unsigned i = 0, n = region_slots(); i < n; i++) {
    struct region *region = region_number(i);
    if (!region) continue;
    for (uint64_t at = region->start; at < region->end; at += (uint64_t)CHUNK << PAGE_SHIFT) {
      uint64_t part = (region->end - at) >> PAGE_SHIFT;
      if (part > CHUNK) part = CHUNK;
      pages += part;
      if (mincore((void *)at, part << PAGE_SHIFT, present)) continue;
      for (uint64_t p = 0; p < part; p++) resident += present[p] & 1;
    }
  }
  free(present);
  return IN_CORE(resident, pages);
}

static uint64_t major_faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (uint64_t)usage.ru_majflt;
}

static void *watch(void *unused) {
  uint64_t before = major_faults();
  struct timespec pause = {0, WATCH_INTERVAL_NS};
  for (;;) {
    nanosleep(&pause, NULL);
    uint64_t now = major_faults();
    if (!atomic_load_explicit(&runahead_armed, RELAXED) && region_total_bytes() &&
        now - before > FAULTS_TO_REARM) {
      count(COUNT_REARMED, 1);
      adapt_rearm();
    }
    before = now;
  }
  return unused;
}

static void start_watching(void) {
  if (atomic_exchange(&watched, true)) return;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old); /* the program's signals are not for it */
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 64 * 1024);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, watch, NULL)) atomic_store(&watched, false);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void adapt_shut_off(uint64_t now) {
  if (now < atomic_load_explicit(&next_look, RELAXED)) return;
  uint64_t interval = atomic_load_explicit(&look_interval, RELAXED);
  atomic_store_explicit(&next_look, now + interval, RELAXED);
  if (region_total_bytes() > limits_memory() / 4 * 3) return;
  if (interval < 1000000000) atomic_store_explicit(&look_interval, 2 * interval, RELAXED);
  int saved = errno;
  if (all_in_memory()) {
    start_watching();
    count(COUNT_DISARMED, 1);
    atomic_store_explicit(&runahead_armed, 0, RELAXED);
  }
  errno = saved;
}

void adapt_rearm(void) {
  const char *off = getenv("RUNAHEAD_OOC");
  if (off && off[0] == '0') return;
  atomic_store_explicit(&look_interval, 5000000, RELAXED);
  atomic_store_explicit(&next_look, 0, RELAXED);
  atomic_store_explicit(&runahead_armed, 1, RELAXED);
}
