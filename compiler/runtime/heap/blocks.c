/* Blocks: made, given up, made longer and shorter, and kept for the next. */
#define _GNU_SOURCE
#include "heap.h"
#include <errno.h>
#include <string.h>

/* Of what is freed so much is kept for the next that asks for about as much: a program that allocates and frees in a
 * loop would make and empty a piece of the file each time, which takes milliseconds. */
#define KEPT_BLOCKS 8
#define KEPT_BYTES ((uint64_t)16 << 20)
/* Descriptors that regions may have for writing early. The others are written by the kernel alone. */
#define MAX_WITH_FILE 64

struct seen seen;
static uint64_t kept[KEPT_BLOCKS]; /* their offsets, the oldest first */
static unsigned kept_blocks;
static unsigned with_file;

void blocks_count_bytes(uint64_t more, uint64_t less) {
  seen.now_bytes += more - less;
  if (seen.now_bytes > seen.most_bytes) seen.most_bytes = seen.now_bytes;
}

static struct block *at_offset(uint64_t offset) { return &block[arena_first_behind(offset)]; }

static void no_longer_kept(unsigned index) {
  at_offset(kept[index])->kept = false;
  memmove(&kept[index], &kept[index + 1], (kept_blocks - index - 1) * sizeof *kept);
  kept_blocks--;
}

/* Of the right size, and as good as new but for what it holds; or NULL. */
static struct block *take_kept(uint64_t alignment, uint64_t bytes) {
  for (unsigned i = 0; i < kept_blocks; i++) {
    struct block *b = at_offset(kept[i]);
    bool fits_well = b->bytes >= bytes && b->bytes - bytes <= bytes / 4;
    if (!fits_well || b->is_private || (uint64_t)(arena + b->offset) % alignment) continue;
    no_longer_kept(i);
    return b;
  }
  return NULL;
}

/* Keeps a block that is freed, or says which goes in its place: that itself, or the oldest. */
static struct block *keep(struct block *freed) {
  uint64_t most = limits_memory() / 32, held = 0;
  if (most > KEPT_BYTES) most = KEPT_BYTES;
  if (freed->is_private || freed->bytes > most / 4) return freed;
  for (unsigned i = 0; i < kept_blocks; i++) held += at_offset(kept[i])->bytes;
  struct block *goes = NULL;
  if (kept_blocks == KEPT_BLOCKS || held + freed->bytes > most) {
    goes = at_offset(kept[0]);
    no_longer_kept(0);
  }
  freed->kept = true;
  kept[kept_blocks++] = freed->offset;
  return goes;
}

static int descriptor_for_region(struct block *b) {
  if (b->is_private || b->file != file.number || !file_is_there()) return -1;
  if (!b->with_file && with_file >= MAX_WITH_FILE) return -1;
  with_file += !b->with_file;
  b->with_file = true;
  return file.descriptor;
}

/* Without the lock: the run-time layer allocates. Where it fails, speed is lost and nothing else. */
void blocks_tell(struct range range) {
  while (range.start < range.end) {
    unsigned i = arena_first_behind(range.start);
    if (i == blocks || block[i].offset >= range.end) return;
    struct block *b = &block[i];
    char *start = arena + b->offset;
    uint64_t bytes = b->bytes;
    range.start = b->offset + bytes;
    if (b->told || b->foreign || b->going || b->lost || b->kept) continue;
    b->told = true;
    int descriptor = descriptor_for_region(b);
    heap_unlock();
    if (descriptor >= 0)
      runahead_ooc_register_nameless(start, bytes, descriptor, arena_offset(start));
    else
      runahead_ooc_register(start, bytes);
    heap_lock();
  }
}

void blocks_tell_no_more(struct range range) {
  unsigned i = arena_first_behind(range.start);
  bool told = false;
  for (unsigned j = i; j < blocks && block[j].offset < range.end; j++) {
    told |= block[j].told;
    with_file -= block[j].with_file;
    block[j].told = block[j].with_file = false;
  }
  if (!told) return;
  heap_unlock();
  runahead_ooc_unregister(arena + range.start);
  heap_lock();
}

/* NULL: it is for memory, or for memory for want of anything better. Between heap_enter and heap_leave. */
static struct block *take(uint64_t alignment, uint64_t bytes, uint64_t given_back, bool mapped, bool *used) {
  if (settings.mode == HEAP_WHEN_SHORT && fits_in_memory(bytes, given_back)) {
    seen.fitted++;
    seen.fitted_bytes += bytes;
    return NULL;
  }
  struct block *made = mapped ? NULL : take_kept(alignment, bytes);
  *used = made;
  if (!made && !(made = arena_make(alignment, bytes))) {
    seen.refused++;
    seen.refused_bytes += bytes;
    heap_tell_stays(errno);
    return NULL;
  }
  made->mapped = mapped;
  seen.made++;
  seen.made_bytes += made->bytes;
  blocks_count_bytes(made->bytes, 0);
  return made;
}

static void *allocate(uint64_t alignment, uint64_t asked, uint64_t given_back, bool mapped, bool *used) {
  if (heap_inside || settings.mode == HEAP_OFF || asked > PTRDIFF_MAX - PAGE_BYTES) return NULL;
  int saved = errno;
  char *start = NULL;
  heap_enter();
  settings_read();
  settings_choose_smallest();
  if (settings.mode != HEAP_OFF && !settings.unusable && asked >= settings.smallest) {
    if (alignment < PAGE_BYTES) alignment = PAGE_BYTES;
    struct block *made = take(alignment, whole_pages(asked), given_back, mapped, used);
    if (made) {
      start = arena + made->offset;
      blocks_tell((struct range){made->offset, made->offset + made->bytes});
    }
  }
  heap_leave();
  errno = saved;
  return start;
}

void *blocks_allocate(uint64_t alignment, uint64_t asked, uint64_t given_back, bool zeros) {
  bool used = false;
  void *start = allocate(alignment, asked, given_back, false, &used);
  if (start && used && zeros) memset(start, 0, asked);
  return start;
}

void *blocks_map(uint64_t bytes) {
  bool used;
  return allocate(0, bytes, 0, true, &used);
}

/* Between heap_enter and heap_leave. */
static void give_back(struct block *goes) {
  goes->going = true;
  struct block going = *goes;
  blocks_tell_no_more((struct range){going.offset, going.offset + going.bytes});
  heap_unlock();
  bool emptied = arena_empty(going.offset, going.bytes, going.is_private);
  heap_lock();
  goes = at_offset(going.offset);
  if (emptied)
    arena_erase(goes);
  else
    goes->lost = true;
}

bool blocks_give_up(void *address) {
  if (!arena_holds(address)) return false;
  int saved = errno;
  heap_enter();
  struct block *found = arena_find(address), *goes = NULL;
  if (found) {
    blocks_count_bytes(0, found->bytes);
    goes = keep(found);
  }
  if (goes) give_back(goes);
  heap_leave();
  errno = saved;
  return found;
}

uint64_t blocks_size(const void *address) {
  if (!arena_holds(address)) return 0;
  heap_lock();
  struct block *found = arena_find(address);
  uint64_t bytes = found ? found->bytes : 0;
  heap_unlock();
  return bytes;
}

/* The tail is no longer mapped. Where the file could not be emptied there it stays out of use. */
static void shorten(struct block *found, uint64_t bytes) {
  uint64_t tail = found->offset + bytes, less = found->bytes - bytes;
  bool emptied = arena_empty(tail, less, found->is_private);
  found->bytes = bytes;
  blocks_count_bytes(0, less);
  if (!emptied && blocks < MAX_BLOCKS)
    arena_insert((unsigned)(found - block) + 1, (struct block){.offset = tail, .bytes = less, .lost = true});
}

bool blocks_resize(char *address, uint64_t bytes) {
  int saved = errno;
  heap_enter();
  struct block *found = arena_find(address);
  uint64_t had = found->bytes;
  bool done = bytes <= had || arena_grow(found, bytes);
  if (bytes > had) blocks_count_bytes(found->bytes - had, 0);
  if (bytes < had && had - bytes > had / 8) shorten(found, bytes);
  if (found->bytes != had) {
    struct range range = {found->offset, found->offset + found->bytes};
    blocks_tell_no_more(range);
    blocks_tell(range);
  }
  heap_leave();
  errno = saved;
  return done;
}
