/* What MADV_DONTNEED and MADV_FREE mean for a block: zeros, as of the C library's memory, and not what the file has. */
#define _GNU_SOURCE
#include "heap.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* Of a private mapping of the file: memory instead, protected as it was. */
static bool replace(const struct segment *s) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return raw_map(arena + s->start, s->end - s->start, s->protection, flags, -1, 0) != MAP_FAILED;
}

static bool overwrite(const struct segment *s) {
  uint64_t bytes = s->end - s->start;
  bool writable = s->protection & PROT_WRITE;
  if (!writable && mprotect(arena + s->start, bytes, PROT_READ | PROT_WRITE)) return false;
  memset(arena + s->start, 0, bytes);
  return writable || mprotect(arena + s->start, bytes, s->protection) == 0;
}

/* What was promised stays so. */
static bool forget(uint64_t start, uint64_t end, const struct block *b) {
  if (!b->is_private && b->file == file.number && file_is_there() && file_zero(start, end - start)) return true;
  unsigned n;
  struct segment whole = {.start = start, .end = end, .protection = PROT_READ | PROT_WRITE};
  const struct segment *s = segments_in(start, end, &n);
  if (!s) s = &whole, n = 1;
  for (unsigned i = 0; i < n; i++)
    if (!(b->is_private ? replace(&s[i]) : overwrite(&s[i]))) return false;
  return true;
}

/* As far as it is blocks of ours: the rest of the range is the kernel's. */
static int forget_all(uint64_t start, uint64_t end, int advice) {
  int error = 0;
  for (unsigned i = arena_first_behind(start); start < end; i++) {
    uint64_t from = i < blocks && block[i].offset < end ? block[i].offset : end;
    if (from > start) error = ENOMEM; /* nothing is mapped there */
    if (from >= end) break;
    if (from < start) from = start;
    uint64_t until = block[i].offset + block[i].bytes < end ? block[i].offset + block[i].bytes : end;
    const struct block *b = &block[i];
    if (b->going || b->kept || b->lost)
      error = ENOMEM;
    else if (b->foreign)
      error = raw_advise(arena + from, until - from, advice) ? errno : error;
    else if (advice == MADV_DONTNEED && !forget(from, until, b))
      error = errno;
    start = until;
  }
  return error;
}

int heap_madvise(void *start, size_t asked, int advice) {
  uint64_t bytes = whole_pages(asked);
  bool forgets = advice == MADV_DONTNEED || advice == MADV_FREE;
  struct range range = forgets ? arena_part((uint64_t)start, bytes) : (struct range){0, 0};
  if (range.start == range.end || bytes != range.end - range.start || (uint64_t)start % PAGE_BYTES || heap_inside)
    return raw_advise(start, asked, advice);
  int saved = errno;
  heap_lock();
  int error = forget_all(range.start, range.end, advice);
  heap_unlock();
  errno = error ? error : saved;
  return error ? -1 : 0;
}

EXPORTED int madvise(void *, size_t, int) __attribute__((alias("heap_madvise")));
