/* The program's heap out of core, without a change of source: linked in or preloaded on request.
 *
 * malloc and its kin, hence operator new, std::vector and ALLOCATE. A large block that would not fit into
 * memory beside what is there comes from a nameless file on disk; everything else is the C library's.
 */
#define _GNU_SOURCE
#include "heap.h"
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

EXPORTED void *malloc(size_t bytes) {
  void *got;
  if (bytes >= settings.smallest && (got = blocks_allocate(0, bytes, 0, false))) return got;
  return next_ready() ? next.malloc(bytes) : next_early_malloc(bytes);
}

EXPORTED void free(void *address) {
  if (arena_holds(address) && blocks_give_up(address)) return;
  if (address && !next_is_early(address) && next_ready()) next.free(address);
}

EXPORTED void *calloc(size_t count, size_t size) {
  size_t bytes;
  void *got;
  if (!__builtin_mul_overflow(count, size, &bytes) && bytes >= settings.smallest &&
      (got = blocks_allocate(0, bytes, 0, true)))
    return got;
  return next_ready() ? next.calloc(count, size) : next_early_malloc(bytes);
}

static size_t usable(void *address) {
  if (next_is_early(address)) return next_early_bytes(address);
  uint64_t bytes = blocks_size(address);
  return bytes ? bytes : next.usable(address);
}

static void *move(void *old, void *fresh, size_t bytes) {
  if (!fresh) return NULL; /* the old one stays as it is */
  size_t had = usable(old);
  heap_inside = true;
  runahead_ooc_copy(fresh, old, had < bytes ? had : bytes);
  heap_inside = false;
  free(old);
  return fresh;
}

EXPORTED void *realloc(void *old, size_t bytes) {
  if (!old) return malloc(bytes);
  if (!next_ready()) return NULL;
  if (next_is_early(old)) return move(old, next.malloc(bytes), bytes);
  uint64_t had = blocks_size(old);
  void *fresh;
  if (!had) {
    /* Only what grows is looked at: to move what is there costs more than it gives back. */
    if (bytes >= settings.smallest && bytes > next.usable(old) &&
        (fresh = blocks_allocate(0, bytes, next.usable(old), false)))
      return move(old, fresh, bytes);
    return next.realloc(old, bytes);
  }
  if (bytes == 0) {
    free(old);
    return NULL;
  }
  if (bytes < settings.smallest && (fresh = next.malloc(bytes))) return move(old, fresh, bytes);
  if (bytes <= PTRDIFF_MAX - PAGE_BYTES && blocks_resize(old, whole_pages(bytes))) return old;
  return move(old, malloc(bytes), bytes);
}

EXPORTED void *reallocarray(void *old, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  return realloc(old, bytes);
}

/* What is no alignment is for the C library to refuse. */
static void *aligned(size_t alignment, size_t bytes) {
  bool is_power = alignment && !(alignment & (alignment - 1));
  if (bytes < settings.smallest || !is_power || alignment > ARENA_BYTES / 4) return NULL;
  return blocks_allocate(alignment, bytes, 0, false);
}

EXPORTED void *memalign(size_t alignment, size_t bytes) {
  void *got = aligned(alignment, bytes);
  if (got || !next_ready()) return got;
  return next.memalign(alignment, bytes);
}

EXPORTED void *aligned_alloc(size_t alignment, size_t bytes) {
  static void *(*real)(size_t, size_t);
  void *got = aligned(alignment, bytes);
  if (got) return got;
  if (!real) real = (void *(*)(size_t, size_t))next_look_up("aligned_alloc");
  return real(alignment, bytes);
}

EXPORTED int posix_memalign(void **out, size_t alignment, size_t bytes) {
  static int (*real)(void **, size_t, size_t);
  void *got = alignment % sizeof(void *) == 0 ? aligned(alignment, bytes) : NULL;
  if (got) {
    *out = got;
    return 0;
  }
  if (!real) real = (int (*)(void **, size_t, size_t))next_look_up("posix_memalign");
  return real(out, alignment, bytes);
}

EXPORTED void *valloc(size_t bytes) { return memalign(PAGE_BYTES, bytes); }
EXPORTED void *pvalloc(size_t bytes) {
  if (bytes > PTRDIFF_MAX - PAGE_BYTES) {
    errno = ENOMEM;
    return NULL;
  }
  return memalign(PAGE_BYTES, bytes ? whole_pages(bytes) : PAGE_BYTES);
}

EXPORTED size_t malloc_usable_size(void *address) { return address && next_ready() ? usable(address) : 0; }

/* --- from the beginning to the end ------------------------------------------------ */

/* A program with an allocator of its own may have only a part of ours in use: a block of one kind must not come to the
 * other's free. */
static bool is_in_use(void) {
  Dl_info here, found;
  void *used = dlsym(RTLD_DEFAULT, "malloc");
  return used && dladdr(used, &found) && dladdr((void *)is_in_use, &here) && found.dli_fbase == here.dli_fbase;
}

/* First of all: handlers of a fork that are registered later run before ours, and may allocate. */
__attribute__((constructor(101))) static void begin(void) {
  next_ready();
  settings_read();
  if (settings.mode != HEAP_OFF && !is_in_use()) {
    heap_tell("runahead: heap blocks stay where they are: the program has an allocator of its own.\n");
    settings.mode = HEAP_OFF;
  }
  if (settings.mode != HEAP_OFF) fork_begin();
}

__attribute__((destructor)) static void at_exit(void) {
  const char *wanted = getenv("RUNAHEAD_OOC_STATS");
  char text[512];
  if (!wanted || strcmp(wanted, "1")) return;
  snprintf(text, sizeof text,
           "runahead: heap: out of core %lu blocks of %lu MB in all, at most %lu MB at once; in memory because they "
           "fit %lu of %lu MB, because there was no room on disk %lu of %lu MB; made private by %lu forks\n",
           seen.made, seen.made_bytes >> 20, seen.most_bytes >> 20, seen.fitted, seen.fitted_bytes >> 20, seen.refused,
           seen.refused_bytes >> 20, seen.forks);
  heap_tell(text);
}
