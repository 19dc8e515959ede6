/* Requests to the kernel: one madvise a range, or many ranges a call; what is to be written.
 *
 * A page that has to be read costs 8 us to submit, a system call 0.1: 95,000 random
 * pages took 0.87 s by madvise, 0.99 by process_madvise with 64 ranges a call, and the
 * gather kernel 0.99-1.11 by either; the disk's own limit, by any method and with up to
 * 128 threads, is 0.83. So madvise, which needs no descriptor in the program, is the
 * rule. process_madvise on ourselves (Linux 5.10; without privilege on oneself since
 * 5.18) is there on request.
 *
 * A range that is no longer mapped makes either fail with an error that nobody minds;
 * the rest of a vector is sent again behind it.
 */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

enum backend { UNDECIDED, VECTOR, SINGLE, NONE };
static _Atomic int backend = UNDECIDED;
static _Atomic int self_descriptor = -1;
static _Atomic int self_pid;

/* A descriptor for this process. Made anew after a fork: the inherited one names
 * the parent. Close-on-exec, as pidfd_open makes it. */
static int self(void) {
  int pid = getpid();
  int descriptor = atomic_load_explicit(&self_descriptor, memory_order_acquire);
  if (descriptor >= 0 && atomic_load_explicit(&self_pid, RELAXED) == pid) return descriptor;
  int fresh = (int)syscall(SYS_pidfd_open, pid, 0);
  if (fresh < 0) return -1;
  atomic_store_explicit(&self_pid, pid, RELAXED);
  atomic_store_explicit(&self_descriptor, fresh, memory_order_release);
  return fresh;
}

static int choose(void) {
  const char *name = getenv("RUNAHEAD_OOC_BACKEND");
  if (name && !strcmp(name, "none")) return NONE;
  if (name && !strcmp(name, "process_madvise") && self() >= 0) return VECTOR;
  return SINGLE;
}

static void send_single(const struct iovec *range, unsigned ranges) {
  for (unsigned i = 0; i < ranges; i++)
    madvise(range[i].iov_base, range[i].iov_len, MADV_WILLNEED);
  count(COUNT_CALLS, ranges);
}

static void send_vector(const struct iovec *range, unsigned ranges) {
  while (ranges) {
    long done = syscall(SYS_process_madvise, self(), range, (size_t)ranges, MADV_WILLNEED, 0);
    count(COUNT_CALLS, 1);
    if (done < 0) {
      if (errno == EPERM || errno == ENOSYS || errno == EBADF || errno == EINVAL) {
        atomic_store_explicit(&backend, SINGLE, RELAXED);
        send_single(range, ranges);
        return;
      }
      done = 0; /* the first range is not mapped */
    }
    unsigned i = 0;
    while (i < ranges && (size_t)done >= range[i].iov_len) done -= (long)range[i++].iov_len;
    if (i == ranges) return;
    range += i + 1; /* this one failed: pass over it */
    ranges -= i + 1;
  }
}

/* --- what is in memory already -------------------------------------------- */

/* Behind a run that somebody else has read (the kernel's read-ahead, as a rule) more of
 * the same is looked for, so that it is dropped without a call. */
#define LOOK_ON_PAGES 1024

static uint64_t count_present(const unsigned char *present, uint64_t pages) {
  uint64_t there = 0;
  for (uint64_t p = 0; p < pages; p++) there += present[p] & 1;
  return there;
}

static void look_on(uint64_t start) {
  unsigned char present[LOOK_ON_PAGES];
  struct region *region = region_at(start, NULL);
  if (!region) return;
  uint64_t pages = (region->end - start) >> PAGE_SHIFT;
  if (pages > LOOK_ON_PAGES) pages = LOOK_ON_PAGES;
  if (mincore((void *)start, pages << PAGE_SHIFT, present)) return;
  uint64_t there = 0;
  while (there < pages && present[there] & 1) there++;
  if (there) filter_note(region, start, start + (there << PAGE_SHIFT));
}

/* Takes runs that are in memory out of the batch; of single pages a sample is looked at,
 * for what the filter learns from it. */
static void look(struct batch *batch) {
  static _Atomic unsigned turn;
  bool sample = atomic_fetch_add_explicit(&turn, 1, RELAXED) % 8 == 0;
  unsigned char present[LONGEST_REQUEST / PAGE_BYTES];
  uint64_t looked = 0, known = 0;
  unsigned kept = 0, single = 0;
  for (unsigned i = 0; i < batch->used; i++) {
    struct iovec range = batch->range[i];
    uint64_t pages = range.iov_len >> PAGE_SHIFT;
    bool run = pages >= RUN_PAGES;
    if ((run || (sample && single++ % 16 == 0)) &&
        mincore(range.iov_base, range.iov_len, present) == 0) {
      uint64_t there = count_present(present, pages);
      looked += pages;
      known += there;
      if (run && there == pages) {
        count(COUNT_RUNS, pages);
        batch->pages -= pages;
        look_on((uint64_t)range.iov_base + range.iov_len);
        continue;
      }
      count(COUNT_LOOKED, pages);
      count(COUNT_THERE, there);
    }
    batch->range[kept++] = range;
  }
  batch->used = kept;
  filter_saw_sent(looked, known);
}

void batch_flush(struct batch *batch) {
  if (!batch->used) return;
  int saved = errno;
  look(batch);
  int how = atomic_load_explicit(&backend, RELAXED);
  if (how == UNDECIDED) atomic_store_explicit(&backend, how = choose(), RELAXED);
  if (how == VECTOR) send_vector(batch->range, batch->used);
  if (how == SINGLE) send_single(batch->range, batch->used);
  count(COUNT_SENT, batch->pages);
  filter_age(batch->pages);
  batch->used = 0;
  batch->pages = 0;
  errno = saved;
}

void batch_add(struct batch *batch, uint64_t start, uint64_t bytes) {
  batch->pages += bytes >> PAGE_SHIFT;
  while (bytes) {
    if (batch->used) {
      struct iovec *last = &batch->range[batch->used - 1];
      if ((uint64_t)last->iov_base + last->iov_len == start &&
          last->iov_len + bytes <= LONGEST_REQUEST) {
        last->iov_len += bytes;
        return;
      }
    }
    if (batch->used == BATCH_RANGES) batch_flush(batch);
    uint64_t part = bytes < LONGEST_REQUEST ? bytes : LONGEST_REQUEST;
    batch->range[batch->used++] = (struct iovec){(void *)start, part};
    start += part;
    bytes -= part;
  }
}

void submit_release(uint64_t start, uint64_t bytes, bool anonymous) {
  int saved = errno;
  madvise((void *)start, bytes, anonymous ? MADV_PAGEOUT : MADV_COLD);
  count(COUNT_RELEASED, bytes >> PAGE_SHIFT);
  errno = saved;
}

/* --- writing --------------------------------------------------------------- */

/* Starting a write waits while the disk's queue is full: MG on the machine's own disk stood still
 * for 0.5 s, a fifth of it for that, and for 0.19 to 0.26 with a thread of ours that does it. But
 * a page that is written by another processor's thread costs an interrupt on this one (a sixth of
 * LU's processor time on a disk where nothing waits): so the thread gets the next writes after
 * one that waited. What it has no room for is left to the kernel, and so is all of it in a forked
 * child, which has no such thread. */
#define AFTER_A_WAIT 128
#define WRITES 64
static struct {
  int descriptor;
  uint64_t at, bytes;
} queue[WRITES];
static unsigned queued, next_write;
static bool writing; /* the thread exists */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;

static void *write_queued(void *unused) {
  pthread_mutex_lock(&queue_lock);
  for (;;) {
    while (!queued) pthread_cond_wait(&more, &queue_lock);
    unsigned i = next_write++ % WRITES;
    int descriptor = queue[i].descriptor;
    uint64_t at = queue[i].at, bytes = queue[i].bytes;
    queued--;
    pthread_mutex_unlock(&queue_lock);
    sync_file_range(descriptor, (off_t)at, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
    pthread_mutex_lock(&queue_lock);
  }
  return unused;
}

static bool hand_over(int descriptor, uint64_t at, uint64_t bytes) {
  if (pthread_mutex_trylock(&queue_lock)) return false;
  if (!writing) writing = adapt_thread(write_queued);
  bool room = writing && queued < WRITES;
  if (room) {
    unsigned i = (next_write + queued++) % WRITES;
    queue[i].descriptor = descriptor;
    queue[i].at = at;
    queue[i].bytes = bytes;
    pthread_cond_signal(&more);
  }
  pthread_mutex_unlock(&queue_lock);
  return room;
}

void submit_write(const struct region *region, uint64_t start, uint64_t end) {
  static _Atomic unsigned by_thread; /* writes still to be handed over */
  if (region->descriptor < 0) return;
  int saved = errno;
  uint64_t at = region->offset + (start - region->start), pages = (end - start) >> PAGE_SHIFT;
  unsigned left = atomic_load_explicit(&by_thread, RELAXED);
  if (left) {
    atomic_store_explicit(&by_thread, left - 1, RELAXED);
    if (hand_over(region->descriptor, at, end - start)) count(COUNT_WRITTEN, pages);
  } else {
    uint64_t waits = adapt_waits();
    sync_file_range(region->descriptor, (off_t)at, (off_t)(end - start), SYNC_FILE_RANGE_WRITE);
    count(COUNT_WRITTEN, pages);
    if (adapt_waits() != waits) atomic_store_explicit(&by_thread, AFTER_A_WAIT, RELAXED);
  }
  errno = saved;
}
