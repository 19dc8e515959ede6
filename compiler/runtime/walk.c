/* From a box of iterations to ranges of pages. */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

bool walk_pay(struct walk *walk, uint64_t cost) {
  walk->budget -= cost < walk->budget ? cost : walk->budget;
  return walk->budget > 0;
}

/* Of the ranges that are dropped on an old belief, one in 256 is looked at. What was
 * asked for a moment ago may still be on its way, and is rightly dropped. */
static void look_at_dropped(struct region *region, uint64_t address) {
  static __thread unsigned turn;
  if (!filter_is_old(region, address) || ++turn % 256) return;
  unsigned char present = 1;
  int saved = errno;
  if (mincore((void *)(address & ~(PAGE_BYTES - 1)), PAGE_BYTES, &present) == 0) {
    count(COUNT_DROPPED_LOOKED, 1);
    count(COUNT_DROPPED_GONE, !(present & 1));
    filter_saw_dropped(present & 1);
  }
  errno = saved;
}

/* Probing: is the page in memory, or believed to be? In doubt beliefs count for nothing. */
static void look_for(struct walk *walk, uint64_t address) {
  if (!walk->doubt && filter_believes(walk->region, address)) return;
  uint64_t page = address & ~(PAGE_BYTES - 1);
  unsigned char present = 0;
  int saved = errno;
  if (mincore((void *)page, PAGE_BYTES, &present) == 0 && present & 1) {
    filter_note(walk->region, page, page + PAGE_BYTES);
  } else {
    filter_forget(walk->region, page, page + PAGE_BYTES);
    walk->sent++;
  }
  errno = saved;
  if (--walk->looks == 0) walk->budget = 0;
}

void walk_range(struct walk *walk, uint64_t start, uint64_t bytes) {
  uint64_t end = start + bytes;
  if (!walk_pay(walk, 1)) return;
  struct region *region = region_at(start, walk->region);
  if (!region && bytes > 1) region = region_at(end - 1, walk->region);
  if (!region || end < start) return;
  walk->region = region;
  if (start < region->start) start = region->start;
  if (end > region->end) end = region->end;
  uint64_t pages = ((end - 1) >> PAGE_SHIFT) - (start >> PAGE_SHIFT) + 1;
  walk_pay(walk, pages / 64);
  if (walk->looks) {
    look_for(walk, start);
    return;
  }
  if (!walk->batch) {
    filter_note(region, start, end);
    return;
  }
  if (walk->confirm) {
    if (pages >= RUN_PAGES) batch_confirm(walk->batch, region, start, end);
    return;
  }
  if (walk->doubt && !(walk->confirmed_later && pages >= RUN_PAGES)) filter_check_old(region, start, end, &walk->right);
  uint64_t before = walk->batch->pages, sample;
  batch_want(walk->batch, region, start, end, &sample);
  walk->wanted += pages;
  if (sample) {
    walk->sample = sample;
    walk->sent += walk->batch->pages > before ? walk->batch->pages - before : 1;
  } else {
    look_at_dropped(region, start);
  }
}

/* Sorts by stride, makes strides positive, drops what does not move. */
static unsigned arrange(int64_t *address, const struct dimension *in, unsigned count,
                        struct dimension *out) {
  unsigned kept = 0;
  for (unsigned i = 0; i < count; i++) {
    struct dimension d = in[i];
    if (d.stride == 0 || d.count <= 1) continue;
    if (d.stride < 0) {
      *address += d.stride * (d.count - 1);
      d.stride = -d.stride;
    }
    unsigned at = kept++;
    for (; at > 0 && out[at - 1].stride > d.stride; at--) out[at] = out[at - 1];
    out[at] = d;
  }
  return kept;
}

/* Dimensions whose steps leave no page out become part of the extent. */
static unsigned join(struct dimension *d, unsigned count, int64_t *extent) {
  unsigned first = 0;
  while (first < count && d[first].stride <= *extent + (int64_t)PAGE_BYTES) {
    *extent += d[first].stride * (d[first].count - 1);
    first++;
  }
  return first;
}

static void visit(struct walk *walk, int64_t address, int64_t extent,
                  const struct dimension *d, unsigned count) {
  if (count == 0) {
    walk_range(walk, (uint64_t)address, (uint64_t)extent);
    return;
  }
  const struct dimension *outer = &d[count - 1];
  for (int64_t i = 0; i < outer->count && walk->budget > 0; i++)
    visit(walk, address + i * outer->stride, extent, d, count - 1);
}

void walk_box(struct walk *walk, int64_t address, int64_t low, int64_t high,
              const struct dimension *dimension, unsigned count) {
  struct dimension d[MAX_DIMENSIONS];
  int64_t extent = high - low;
  count = arrange(&address, dimension, count, d);
  unsigned first = join(d, count, &extent);
  if (extent <= 0) return;
  visit(walk, address + low, extent, d + first, count - first);
}

double walk_bytes(int64_t low, int64_t high, const struct dimension *dimension, unsigned count,
                  bool *solid) {
  struct dimension d[MAX_DIMENSIONS];
  int64_t address = 0, extent = high - low;
  count = arrange(&address, dimension, count, d);
  unsigned first = join(d, count, &extent);
  *solid = first == count;
  if (*solid) return (double)extent;
  double runs = 1;
  for (unsigned i = first; i < count; i++) runs *= (double)d[i].count;
  return runs * (extent < (int64_t)PAGE_BYTES ? (double)PAGE_BYTES : (double)extent);
}

static int64_t value_at(const unsigned char *p, unsigned bytes, bool is_signed) {
  uint64_t raw = 0;
  memcpy(&raw, p, bytes);
  unsigned unused = 64 - 8 * bytes;
  return is_signed ? (int64_t)(raw << unused) >> unused : (int64_t)raw;
}

/* Copies from places that may not be mapped. Written to ourselves rather than read from
 * ourselves: the kernel pins the far end's pages and counts each time as a use, with the
 * whole large piece of the page cache that the page is part of, while it copies from the
 * near end as a load would. Two uses make a piece active, and so the keys of a sort, which are
 * gone through once, drove its counts out (BUK in a tenth: 0.6 s more a pass, for 256 keys
 * read of each 65,000). */
static ssize_t copy_out(void *to, size_t bytes, const struct iovec *from, unsigned ranges) {
  struct iovec far = {to, bytes};
  return process_vm_writev(getpid(), from, ranges, &far, 1, 0);
}

unsigned walk_read(uint64_t address, int64_t stride, unsigned count_, unsigned bytes,
                   bool is_signed, int64_t *out) {
  enum { ROOM = 16384, GATHER = 256 };
  static __thread unsigned char buffer[ROOM];
  if (count_ == 0 || bytes == 0 || bytes > 8) return 0;
  int saved = errno;
  unsigned done = 0;
  /* Close together: one range and pick. Far apart: a list of single values. */
  bool together = stride >= 0 && stride <= 256;
  while (done < count_) {
    unsigned part = count_ - done;
    static __thread struct iovec there[GATHER];
    unsigned ranges = 1;
    if (together) {
      unsigned most = stride ? (ROOM - 8) / (unsigned)stride : part;
      if (part > most) part = most;
      there[0].iov_base = (void *)(address + (uint64_t)done * (uint64_t)stride);
      there[0].iov_len = (size_t)stride * (part - 1) + bytes;
    } else {
      if (part > GATHER) part = GATHER;
      for (ranges = 0; ranges < part; ranges++)
        there[ranges] = (struct iovec){(void *)(address + (done + ranges) * (uint64_t)stride), bytes};
    }
    ssize_t got = copy_out(buffer, together ? there[0].iov_len : (size_t)part * bytes, there, ranges);
    if (got < (ssize_t)bytes) break;
    size_t step = together ? (size_t)stride : bytes;
    unsigned readable = step ? (unsigned)((size_t)(got - bytes) / step) + 1 : part;
    if (readable > part) readable = part;
    for (unsigned i = 0; i < readable; i++)
      out[done + i] = value_at(buffer + i * step, bytes, is_signed);
    done += readable;
    if (readable < part) break;
  }
  errno = saved;
  return done;
}

void walk_gather(const uint64_t *address, unsigned count_, unsigned bytes, bool is_signed,
                 int64_t *out, bool *good) {
  enum { GATHER = 128 };
  static __thread unsigned char buffer[GATHER * 8];
  int saved = errno;
  for (unsigned done = 0; done < count_;) {
    static __thread struct iovec there[GATHER];
    unsigned part = 0;
    for (; part < GATHER && done + part < count_; part++)
      there[part] = (struct iovec){(void *)address[done + part], bytes};
    ssize_t got = copy_out(buffer, (size_t)part * bytes, there, part);
    unsigned readable = got > 0 ? (unsigned)got / bytes : 0;
    for (unsigned i = 0; i < readable; i++) {
      out[done + i] = value_at(buffer + i * bytes, bytes, is_signed);
      good[done + i] = true;
    }
    done += readable;
    if (readable < part) good[done++] = false; /* this one is not mapped: pass over it */
  }
  errno = saved;
}
