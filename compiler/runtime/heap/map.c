/* Large private anonymous mappings of the program's own, out of core where they would not fit into memory.
 *
 * Taken are those that ask for memory and nothing else: private, anonymous, readable and writable, anywhere.
 * They are blocks of which munmap may take any part. What else may happen to them:
 *
 *  - A part over which something is mapped (MAP_FIXED) is the program's from then on: foreign, known here only so that
 *    nobody else is put there.
 *  - What is to be moved as it is (MREMAP_FIXED, MREMAP_DONTUNMAP, parts with other protection) is copied into memory
 *    where it lies, and then the kernel's to move.
 *
 * Calls in the middle of our own go to the kernel: they are the run-time layer's.
 */
#define _GNU_SOURCE
#include "heap.h"
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>

static const struct range nothing;
static bool is_nothing(struct range range) { return range.start >= range.end; }

/* Each cut makes a block more, at either end of the range, and what the program maps there may be one. */
static bool is_room_in_table(void) {
  if (blocks + 3 <= MAX_BLOCKS) return true;
  errno = ENOMEM;
  return false;
}

/* With the lock held: the first block in the range that is somebody's. */
static struct block *first_in(struct range range) {
  for (unsigned i = arena_first_behind(range.start); i < blocks && block[i].offset < range.end; i++)
    if (!block[i].going && !block[i].kept && !block[i].lost) return &block[i];
  return NULL;
}

/* Nothing is mapped in the range afterwards, and the addresses are ours, or kept for what the program maps there.
 * False: there is no room in the table. */
static bool clear(struct range range, bool for_program) {
  heap_enter();
  bool room = is_room_in_table();
  struct block *b;
  while (room && (b = first_in(range))) {
    struct range whole = {b->offset, b->offset + b->bytes};
    uint64_t start = whole.start > range.start ? whole.start : range.start;
    uint64_t end = whole.end < range.end ? whole.end : range.end;
    bool is_private = b->is_private;
    if (!b->foreign) blocks_count_bytes(0, end - start);
    arena_cut(start);
    arena_cut(end);
    block[arena_first_behind(start)].going = true;
    blocks_tell_no_more(whole);
    heap_unlock();
    bool emptied = arena_empty(start, end - start, is_private);
    heap_lock();
    b = &block[arena_first_behind(start)];
    if (emptied)
      arena_erase(b);
    else
      b->lost = true;
    blocks_tell(whole);
  }
  if (room && for_program) arena_place_foreign(range);
  heap_leave();
  return room;
}

int heap_munmap(void *address, size_t asked) {
  uint64_t at = (uint64_t)address, bytes = whole_pages(asked);
  struct range range = at % PAGE_BYTES || bytes < asked ? nothing : arena_part(at, bytes);
  if (is_nothing(range) || heap_inside) return raw_unmap(address, asked);
  int saved = errno;
  if (!clear(range, false)) return -1;
  errno = saved;
  uint64_t first = (uint64_t)arena + range.start, end = (uint64_t)arena + range.end;
  if (at < first && raw_unmap(address, first - at)) return -1;
  return at + bytes > end ? raw_unmap((void *)end, at + bytes - end) : 0;
}

static bool is_plain_memory(const void *address, int protection, int flags, off_t offset) {
  return !address && protection == (PROT_READ | PROT_WRITE) && flags == (MAP_PRIVATE | MAP_ANONYMOUS) &&
         offset % (off_t)PAGE_BYTES == 0;
}

void *heap_mmap(void *address, size_t asked, int protection, int flags, int descriptor, off_t offset) {
  void *got;
  if (asked >= settings.smallest && !heap_inside && next_ready() &&
      is_plain_memory(address, protection, flags, offset) && (got = blocks_map(asked)))
    return got;
  bool over = flags & MAP_FIXED && !(flags & MAP_FIXED_NOREPLACE) && !heap_inside;
  struct range range = over ? arena_part((uint64_t)address, whole_pages(asked)) : nothing;
  if (is_nothing(range)) return raw_map(address, asked, protection, flags, descriptor, offset);
  /* What cannot be mapped leaves what is there as it is. */
  void *trial = raw_map(NULL, asked, protection, flags & ~(MAP_FIXED | MAP_POPULATE | MAP_LOCKED), descriptor, offset);
  if (trial == MAP_FAILED) return trial;
  raw_unmap(trial, asked);
  return clear(range, true) ? raw_map(address, asked, protection, flags, descriptor, offset) : MAP_FAILED;
}
/* --- mremap -------------------------------------------------------------------------- */

/* With the lock held: the mapping that the range lies in. */
static struct block *holder(struct range range) {
  unsigned i = arena_first_behind(range.start);
  if (i == blocks || block[i].offset > range.start || block[i].offset + block[i].bytes < range.end) return NULL;
  return block[i].mapped && !block[i].going && !block[i].lost ? &block[i] : NULL;
}

/* As it was, protection included, but in memory; and the program's. */
static bool into_memory(struct range range) {
  heap_enter();
  struct block *b = holder(range);
  bool done = b && is_room_in_table() && (b->foreign || segments_copy_into_memory(range.start, range.end));
  if (!b) errno = EFAULT;
  if (done) {
    struct range whole = {b->offset, b->offset + b->bytes};
    if (!b->foreign) blocks_count_bytes(0, range.end - range.start);
    if (!b->is_private && b->file == file.number && file_is_there())
      file_punch(range.start, range.end - range.start);
    arena_cut(range.start);
    arena_cut(range.end);
    b = &block[arena_first_behind(range.start)];
    b->foreign = b->is_private = true;
    blocks_tell_no_more(whole);
    blocks_tell(whole);
  }
  heap_leave();
  return done;
}

/* Where it is; the block has to end there. */
static bool make_longer(struct range range, uint64_t bytes) {
  heap_enter();
  struct block *b = holder(range);
  bool last = b && !b->foreign && b->offset + b->bytes == range.end;
  bool done = last && arena_grow_to(b, range.start + bytes - b->offset);
  if (done) {
    struct range whole = {b->offset, b->offset + b->bytes};
    blocks_count_bytes(bytes - (range.end - range.start), 0);
    blocks_tell_no_more(whole);
    blocks_tell(whole);
  }
  heap_leave();
  return done;
}

static bool is_plain(struct range range) {
  heap_lock();
  struct block *b = holder(range);
  bool is = b && !b->foreign && segments_are_plain(range.start, range.end);
  heap_unlock();
  return is;
}

static void *grow_or_move(struct range range, uint64_t bytes, int flags) {
  void *old = arena + range.start;
  if (make_longer(range, bytes)) return old;
  if (!(flags & MREMAP_MAYMOVE)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  void *fresh = heap_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return fresh;
  heap_inside = true;
  runahead_ooc_copy(fresh, old, range.end - range.start);
  heap_inside = false;
  if (clear(range, false)) return fresh;
  heap_munmap(fresh, bytes);
  return MAP_FAILED;
}

/* What the kernel moved away leaves a hole: ours again, unless somebody has been put there meanwhile. */
static void close_hole(struct range range) {
  heap_lock();
  struct block *b = &block[arena_first_behind(range.start)];
  if (arena_reserve_hole(range.start, range.end - range.start))
    arena_erase(b);
  else
    b->lost = true;
  heap_unlock();
}

static void *move_as_it_is(struct range from, uint64_t bytes, int flags, void *to, struct range target) {
  uint64_t had = from.end - from.start;
  void *old = arena + from.start;
  if (from.start < target.end && target.start < from.end) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  if (!into_memory(from) || (!is_nothing(target) && !clear(target, true))) return MAP_FAILED;
  void *got = raw_remap(old, had, bytes, flags, to);
  if (got != MAP_FAILED && got != old && !(flags & MREMAP_DONTUNMAP)) close_hole(from);
  return got;
}

static void *move_ours(struct range from, uint64_t bytes, int flags, void *to, struct range target) {
  uint64_t had = from.end - from.start;
  bool anywhere = !(flags & (MREMAP_FIXED | MREMAP_DONTUNMAP));
  if (anywhere && bytes <= had) {
    struct range tail = {from.start + bytes, from.end};
    return is_nothing(tail) || clear(tail, false) ? arena + from.start : MAP_FAILED;
  }
  return anywhere && is_plain(from) ? grow_or_move(from, bytes, flags) : move_as_it_is(from, bytes, flags, to, target);
}

void *heap_mremap(void *old, size_t old_asked, size_t asked, int flags, void *to) {
  uint64_t bytes = whole_pages(asked), had = whole_pages(old_asked);
  bool sound = (uint64_t)old % PAGE_BYTES == 0 && (uint64_t)to % PAGE_BYTES == 0 && asked && bytes >= asked &&
               had >= old_asked && !heap_inside;
  if (!sound) return raw_remap(old, old_asked, asked, flags, to);
  if (!had && arena_holds(old)) { /* of shared mappings it would be a second view */
    errno = EINVAL;
    return MAP_FAILED;
  }
  struct range from = arena_part((uint64_t)old, had), target = nothing;
  if (flags & MREMAP_FIXED) target = arena_part((uint64_t)to, bytes);
  if (!is_nothing(from) && from.end - from.start != had) {
    errno = EFAULT;
    return MAP_FAILED;
  }
  if (!is_nothing(from)) return move_ours(from, bytes, flags, to, target);
  if (!is_nothing(target) && !clear(target, true)) return MAP_FAILED;
  return raw_remap(old, old_asked, asked, flags, to);
}

/* --- what programs call ----------------------------------------------------------------- */

EXPORTED void *mmap(void *, size_t, int, int, int, off_t) __attribute__((alias("heap_mmap")));
_Static_assert(sizeof(off_t) == 8, "mmap64 is mmap only where off_t has 64 bits");
EXPORTED void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("heap_mmap")));
EXPORTED int munmap(void *, size_t) __attribute__((alias("heap_munmap")));

EXPORTED void *mremap(void *old, size_t old_asked, size_t asked, int flags, ...) {
  va_list more;
  va_start(more, flags);
  void *to = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) ? va_arg(more, void *) : NULL;
  va_end(more);
  return heap_mremap(old, old_asked, asked, flags, to);
}
