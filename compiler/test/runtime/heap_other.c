// A program with an allocator of its own keeps it, whole, and is told.
// RUN: %plaincc -O1 -fno-builtin %s -o %t
// RUN: env LD_PRELOAD=%build/librunahead_heap.so RUNAHEAD_OOC_HEAP=64K RUNAHEAD_OOC_STATS=1 %t 2>&1 | FileCheck %s
// CHECK: runahead: heap blocks stay where they are: the program has an allocator of its own.
// CHECK: heap: out of core 0 blocks
#include <stddef.h>
#include <stdlib.h>
static char room[8 << 20] __attribute__((aligned(4096)));
static size_t used;
void *malloc(size_t bytes) {
  void *p = room + used;
  used += (bytes + 15) & ~(size_t)15;
  return used <= sizeof room ? p : NULL;
}
void free(void *p) {
  if (p && ((char *)p < room || (char *)p >= room + sizeof room)) abort();
}
void *calloc(size_t n, size_t bytes) { return malloc(n * bytes); }
void *realloc(void *old, size_t bytes) {
  (void)old;
  return malloc(bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
  used = (used + alignment - 1) & ~(alignment - 1);
  return malloc(bytes);
}
int main(void) {
  char *p = malloc(1 << 20), *q = aligned_alloc(4096, 1 << 20), *r = NULL;
  p[5] = q[5] = 1;
  free(p);
  free(q);
  /* Of the C library, as it does not have this one: not freed, as nobody could. */
  return posix_memalign((void **)&r, 4096, 1 << 20) != 0;
}
