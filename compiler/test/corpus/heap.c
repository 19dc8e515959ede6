/* malloc for programs of the corpus: blocks from 4 KB on lie in a region, so that the program's
 * own heap is what the pass prefetches. Everything smaller, and what is asked for while the
 * region is made, stays with the C library. */
#define _GNU_SOURCE
#include "runahead_ooc.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

void *__libc_malloc(size_t);
void *__libc_memalign(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);

#define ROOM ((size_t)2 << 30)
#define SMALLEST ((size_t)4096)
#define HEAD 64 /* before each block: its class */

static char *base, *next;
static void *unused[64];
static atomic_flag taken = ATOMIC_FLAG_INIT;
static _Thread_local int inside;

static unsigned class_of(size_t bytes) { return 64 - (unsigned)__builtin_clzll(bytes + HEAD - 1); }

static void *take(size_t bytes) {
  if (bytes < SMALLEST || bytes > ROOM / 4 || inside) return NULL;
  inside = 1;
  while (atomic_flag_test_and_set(&taken)) {
  }
  if (!base) base = next = runahead_ooc_alloc(ROOM, NULL);
  unsigned class = class_of(bytes);
  char *block = NULL;
  if (base && unused[class]) {
    block = unused[class];
    memcpy(&unused[class], block, sizeof(void *));
  } else if (base && (size_t)(base + ROOM - next) >= (size_t)1 << class) {
    block = next + HEAD;
    block[-1] = (char)class;
    next += (size_t)1 << class;
  }
  atomic_flag_clear(&taken);
  inside = 0;
  return block;
}

static int ours(void *block) {
  return base && (char *)block >= base && (char *)block < base + ROOM;
}

void *malloc(size_t bytes) {
  void *block = take(bytes);
  return block ? block : __libc_malloc(bytes);
}

void free(void *block) {
  if (!ours(block)) {
    __libc_free(block);
    return;
  }
  unsigned class = (unsigned char)((char *)block)[-1];
  while (atomic_flag_test_and_set(&taken)) {
  }
  memcpy(block, &unused[class], sizeof(void *));
  unused[class] = block;
  atomic_flag_clear(&taken);
}

void *calloc(size_t n, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  void *block = malloc(bytes);
  return block ? memset(block, 0, bytes) : NULL;
}

void *realloc(void *old, size_t bytes) {
  if (!old) return malloc(bytes);
  if (!ours(old)) return __libc_realloc(old, bytes);
  size_t had = ((size_t)1 << ((unsigned char *)old)[-1]) - HEAD;
  if (bytes && bytes <= had) return old;
  void *block = bytes ? malloc(bytes) : NULL;
  if (block) memcpy(block, old, had < bytes ? had : bytes);
  if (block || !bytes) free(old);
  return block;
}

void *memalign(size_t alignment, size_t bytes) {
  void *block = alignment <= HEAD ? take(bytes) : NULL;
  return block ? block : __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **block, size_t alignment, size_t bytes) {
  *block = memalign(alignment, bytes);
  return *block ? 0 : ENOMEM;
}
