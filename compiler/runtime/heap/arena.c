/* One range of addresses in which all blocks lie, each at the place in the file that it has in the range: whether a
 * pointer is ours is two comparisons, and a block grows where it is. The blocks are kept sorted.
 */
#define _GNU_SOURCE
#include "heap.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Room in the arena behind a block, in sizes of it: so often may it double where it is. */
#define ROOM_TO_GROW 3

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread sigset_t not_blocked;
__thread bool heap_inside;
struct block block[MAX_BLOCKS];
unsigned blocks;
char *_Atomic arena;

void heap_lock(void) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_mutex_lock(&lock);
  not_blocked = before;
}

void heap_unlock(void) {
  sigset_t before = not_blocked;
  pthread_mutex_unlock(&lock);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void heap_lock_is_new(void) {
  pthread_mutex_init(&lock, NULL);
  pthread_sigmask(SIG_SETMASK, &not_blocked, NULL);
}

void heap_enter(void) {
  heap_lock();
  heap_inside = true;
}

void heap_leave(void) {
  heap_inside = false;
  heap_unlock();
}

static bool reserve(void *at, uint64_t bytes, int fixed) {
  void *got = raw_map(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  if (got != MAP_FAILED && !fixed) arena = got;
  return got != MAP_FAILED;
}

bool arena_reserve(uint64_t offset, uint64_t bytes) { return reserve(arena + offset, bytes, MAP_FIXED); }

bool arena_reserve_hole(uint64_t offset, uint64_t bytes) {
  return reserve(arena + offset, bytes, MAP_FIXED_NOREPLACE);
}

static bool open_arena(void) {
  struct rlimit limit;
  if (arena) return true;
  /* Whoever limits the addresses of a program counts on what it maps. */
  bool free_to = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
  if (free_to && reserve(NULL, ARENA_BYTES, 0)) return true;
  settings.cause = "the program's addresses are limited (ulimit -v), or used up";
  errno = ENOMEM;
  settings.unusable = true;
  return false;
}

bool arena_holds(const void *address) {
  const char *base = atomic_load_explicit(&arena, RELAXED);
  return base && (const char *)address >= base && (const char *)address < base + ARENA_BYTES;
}

struct range arena_part(uint64_t address, uint64_t bytes) {
  uint64_t base = (uint64_t)atomic_load_explicit(&arena, RELAXED), end = address + bytes, last = base + ARENA_BYTES;
  if (!base || end < address || end <= base || address >= last) return (struct range){0, 0};
  return (struct range){(address > base ? address : base) - base, (end < last ? end : last) - base};
}

unsigned arena_first_behind(uint64_t offset) {
  unsigned low = 0, high = blocks;
  while (low < high) {
    unsigned middle = (low + high) / 2;
    if (block[middle].offset + block[middle].bytes > offset)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static uint64_t gap_end(unsigned index) { return index < blocks ? block[index].offset : ARENA_BYTES; }

struct block *arena_find(const void *address) {
  if (!arena_holds(address)) return NULL;
  unsigned i = arena_first_behind(arena_offset(address));
  if (i == blocks || block[i].offset != arena_offset(address)) return NULL;
  return block[i].going || block[i].lost || block[i].kept || block[i].mapped ? NULL : &block[i];
}

/* Where in the arena, and before which block. */
static bool find_room(uint64_t alignment, uint64_t bytes, uint64_t room, unsigned *index, uint64_t *offset) {
  uint64_t base = (uint64_t)atomic_load_explicit(&arena, RELAXED), begin = 0;
  for (unsigned i = 0; i <= blocks; i++) {
    uint64_t start = ((base + begin + alignment - 1) & ~(alignment - 1)) - base, end = gap_end(i);
    if (start < end && room <= end - start && bytes <= end - start) {
      *index = i;
      *offset = start;
      return true;
    }
    /* So that each may grow: those that are there as well. */
    if (i < blocks) begin = block[i].offset + block[i].bytes + (room > bytes ? ROOM_TO_GROW * block[i].bytes : 0);
  }
  return false;
}

void arena_insert(unsigned i, struct block made) {
  memmove(&block[i + 1], &block[i], (blocks - i) * sizeof *block);
  blocks++;
  block[i] = made;
}

void arena_erase(struct block *gone) {
  unsigned i = (unsigned)(gone - block);
  memmove(&block[i], &block[i + 1], (blocks - i - 1) * sizeof *block);
  blocks--;
}

bool arena_empty(uint64_t offset, uint64_t bytes, bool is_private) {
  char *start = arena + offset;
  bool emptied = is_private || raw_advise(start, bytes, MADV_REMOVE) == 0;
  /* Not of what is locked in memory, or may not be written to. */
  if (!emptied && munlock(start, bytes) == 0 && mprotect(start, bytes, PROT_READ | PROT_WRITE) == 0)
    emptied = raw_advise(start, bytes, MADV_REMOVE) == 0;
  return reserve(start, bytes, MAP_FIXED) && emptied;
}

void arena_cut(uint64_t offset) {
  unsigned i = arena_first_behind(offset);
  if (i == blocks || block[i].offset >= offset) return;
  struct block behind = block[i];
  behind.offset = offset;
  behind.bytes -= offset - block[i].offset;
  behind.with_file = false;
  block[i].bytes = offset - block[i].offset;
  arena_insert(i + 1, behind);
}

void arena_place_foreign(struct range range) {
  for (unsigned i = arena_first_behind(range.start); range.start < range.end; i++) {
    uint64_t end = gap_end(i) < range.end ? gap_end(i) : range.end;
    struct block made = {.offset = range.start, .bytes = end - range.start};
    made.mapped = made.foreign = made.is_private = true;
    if (end > range.start) arena_insert(i++, made);
    if (i == blocks) return;
    range.start = block[i].offset + block[i].bytes;
  }
}

/* The kernel's read-ahead is kept with the open file: blocks that are gone through side by side want one each. (Three
 * streams through one took twice as long.) */
static bool map_there(uint64_t offset, uint64_t bytes) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", file.descriptor);
  int own = open(name, O_RDWR | O_CLOEXEC);
  if (!file_is_ours(own)) {
    if (own >= 0) close(own);
    own = -1;
  }
  void *got = raw_map(arena + offset, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      own < 0 ? file.descriptor : own, (off_t)offset);
  int saved = errno;
  if (own >= 0) close(own);
  errno = saved;
  return got != MAP_FAILED;
}

/* Both, or neither. */
static bool back_with_file(uint64_t offset, uint64_t bytes) {
  if (!file_promise(offset, bytes)) return false;
  if (map_there(offset, bytes)) return true;
  int saved = errno;
  file_punch(offset, bytes);
  reserve(arena + offset, bytes, MAP_FIXED);
  errno = saved;
  return false;
}

struct block *arena_make(uint64_t alignment, uint64_t bytes) {
  uint64_t room, offset;
  unsigned i;
  if (blocks == MAX_BLOCKS) {
    settings.cause = "there are more of them than can be kept in mind";
    errno = ENOSPC;
    return NULL;
  }
  if (!open_arena() || !file_open()) return NULL;
  if (__builtin_mul_overflow(bytes, (uint64_t)ROOM_TO_GROW + 1, &room)) room = bytes;
  if (!find_room(alignment, bytes, room, &i, &offset) && !find_room(alignment, bytes, bytes, &i, &offset)) {
    errno = ENOMEM;
    return NULL;
  }
  if (!back_with_file(offset, bytes)) return NULL;
  arena_insert(i, (struct block){.offset = offset, .bytes = bytes, .file = file.number});
  return &block[i];
}

bool arena_grow_to(struct block *found, uint64_t bytes) {
  uint64_t end = found->offset + found->bytes, most = gap_end((unsigned)(found - block) + 1);
  if (found->is_private || found->file != file.number || !file_is_there()) return false;
  if (most < found->offset + bytes || !back_with_file(end, bytes - found->bytes)) return false;
  found->bytes = bytes;
  return true;
}

/* A block that is made longer again and again is made longer by an eighth at least. */
bool arena_grow(struct block *found, uint64_t bytes) {
  uint64_t more = found->bytes + whole_pages(found->bytes / 8);
  return (more > bytes && arena_grow_to(found, more)) || arena_grow_to(found, bytes);
}
