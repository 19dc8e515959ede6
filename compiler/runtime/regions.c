/* Regions: which parts of the address space may be on disk.
 *
 * A table of pointers to records that never move and never go away; a slot is
 * taken and given up with one atomic store. Registration is rare and takes a
 * lock; looking up takes none.
 */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Far more than programs have arrays; a linear search stays within two pages. */
#define SLOTS 1024

static struct region *_Atomic slot[SLOTS];
static _Atomic unsigned used; /* slots from 0 that were ever taken */
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;

unsigned region_slots(void) { return atomic_load_explicit(&used, memory_order_acquire); }

bool regions_ever(void) { return region_slots() > 0; }

struct region *region_number(unsigned index) {
  return atomic_load_explicit(&slot[index], memory_order_acquire);
}

static bool holds(struct region *region, uint64_t address) {
  return address >= region->start && address < region->end &&
         atomic_load_explicit(&region->live, RELAXED);
}

struct region *region_at(uint64_t address, struct region *hint) {
  if (hint && holds(hint, address)) return hint;
  for (unsigned i = 0, n = region_slots(); i < n; i++) {
    struct region *region = region_number(i);
    if (region && holds(region, address)) return region;
  }
  return NULL;
}

void region_gap(uint64_t address, uint64_t *start, uint64_t *end) {
  *start = 0;
  *end = UINT64_MAX;
  for (unsigned i = 0, n = region_slots(); i < n; i++) {
    struct region *region = region_number(i);
    if (!region) continue;
    if (region->end <= address && region->end > *start) *start = region->end;
    if (region->start > address && region->start < *end) *end = region->start;
  }
}

uint64_t region_total_bytes(void) {
  uint64_t total = 0;
  for (unsigned i = 0, n = region_slots(); i < n; i++) {
    struct region *region = region_number(i);
    if (region) total += region->end - region->start;
  }
  return total;
}

/* A descriptor of our own, out of the way of those that the program counts on: the lowest
 * numbers are given out in order. */
static void own(struct region *region, int descriptor) {
  enum { OUT_OF_THE_WAY = 200 };
  struct stat status;
  int saved = errno;
  region->descriptor = -1;
  if (descriptor >= 0 && fstat(descriptor, &status) == 0) {
    region->device = status.st_dev;
    region->file = status.st_ino;
    region->descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
  }
  errno = saved;
}

/* A program may close descriptors that it did not open (close_range, as daemons do), and the
 * number may be that of another file by now. */
bool region_has_file(const struct region *region) {
  struct stat status;
  int saved = errno;
  bool has = region->descriptor >= 0 && fstat(region->descriptor, &status) == 0 &&
             status.st_dev == region->device && status.st_ino == region->file;
  errno = saved;
  return has;
}

static struct region *new_region(uint64_t start, uint64_t end) {
  struct region *region = calloc(1, sizeof *region);
  if (!region) return NULL;
  size_t bytes = (((end - start) >> PAGE_SHIFT) + 63) / 64 * 8;
  /* From mmap: zero pages cost nothing until a bit is set in them. */
  char *bits = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bits == MAP_FAILED) {
    free(region);
    return NULL;
  }
  region->start = start;
  region->end = end;
  region->window = limits_read_ahead(start);
  region->recent[0] = (_Atomic uint64_t *)bits;
  region->recent[1] = (_Atomic uint64_t *)(bits + bytes);
  atomic_store_explicit(&region->advice, MADV_NORMAL, RELAXED);
  atomic_store_explicit(&region->live, true, RELAXED);
  return region;
}

int region_add(uint64_t start, uint64_t bytes, int descriptor, uint64_t offset, enum region_kind kind) {
  uint64_t end = (start + bytes) & ~(PAGE_BYTES - 1), given = start;
  start = (start + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
  if (bytes == 0 || end <= start) {
    errno = EINVAL;
    return -1;
  }
  struct region *region = new_region(start, end);
  if (!region) {
    errno = ENOMEM;
    return -1;
  }
  own(region, descriptor);
  region->offset = offset + (start - given);
  region->nameless = kind != REGION_NAMED;
  region->several = kind == REGION_ARRAYS;
  pthread_mutex_lock(&table);
  unsigned i = 0;
  while (i < SLOTS && region_number(i)) i++;
  if (i < SLOTS) {
    atomic_store_explicit(&slot[i], region, memory_order_release);
    if (i >= region_slots()) atomic_store_explicit(&used, i + 1, memory_order_release);
  }
  pthread_mutex_unlock(&table);
  if (i == SLOTS) {
    munmap((void *)region->recent[0], 2 * ((((end - start) >> PAGE_SHIFT) + 63) / 64 * 8));
    if (region_has_file(region)) close(region->descriptor);
    free(region);
    errno = ENOSPC;
    return -1;
  }
  return 0;
}

/* In a forked child: who held the lock is the parent's. Each slot is whole at any time. */
void region_forget_lock(void) { pthread_mutex_init(&table, NULL); }

int region_remove(uint64_t start, uint64_t *end) {
  start = (start + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
  int found = -1;
  pthread_mutex_lock(&table);
  for (unsigned i = 0; i < region_slots() && found; i++) {
    struct region *region = region_number(i);
    if (!region || region->start != start) continue;
    atomic_store_explicit(&region->live, false, RELAXED);
    atomic_store_explicit(&slot[i], NULL, memory_order_release);
    /* Who has just looked whose the number is starts the writing of some other file at worst. */
    if (region_has_file(region)) close(region->descriptor);
    /* Others may still look at the bits: give the memory back, keep the range. */
    size_t bytes = (((region->end - region->start) >> PAGE_SHIFT) + 63) / 64 * 8;
    madvise((void *)(((uintptr_t)region->recent[0] + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1)),
            (2 * bytes) & ~(PAGE_BYTES - 1), MADV_DONTNEED);
    *end = region->end;
    found = 0;
  }
  pthread_mutex_unlock(&table);
  if (found) errno = ENOENT;
  return found;
}
