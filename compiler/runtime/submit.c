/* Requests to the kernel: many ranges a call where it can take them.
 *
 * process_madvise on ourselves takes a vector of ranges (Linux 5.10; without
 * privilege on oneself since 5.18); else one madvise a range. A range that is no
 * longer mapped makes either fail with an error that nobody minds; the rest of
 * the vector is sent again behind it.
 */
#include "internal.h"
#include <errno.h>
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
  if (name && !strcmp(name, "madvise")) return SINGLE;
  return self() >= 0 ? VECTOR : SINGLE;
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

void batch_flush(struct batch *batch) {
  if (!batch->used) return;
  int saved = errno;
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
