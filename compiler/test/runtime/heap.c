// The heap out of core is malloc's in all that programs can tell: what is asserted here holds alone as well.
// RUN: %plaincc -O1 -fno-builtin -DPLAIN %s -lpthread -o %t.plain
// RUN: %t.plain
// RUN: %cc -O2 -fno-builtin --runahead-heap %s -o %t
// RUN: env RUNAHEAD_OOC_HEAP=64K RUNAHEAD_OOC_STATS=1 %t 2> %t.err
// RUN: FileCheck --check-prefix=ALL %s < %t.err
// RUN: env RUNAHEAD_OOC_MEMORY=4M RUNAHEAD_OOC_STATS=1 %t 2> %t.err2
// RUN: FileCheck --check-prefix=SOME %s < %t.err2
// RUN: env RUNAHEAD_OOC_HEAP=0 RUNAHEAD_OOC_STATS=1 %t 2> %t.err3
// RUN: FileCheck --check-prefix=NONE %s < %t.err3
// RUN: env LD_PRELOAD=%build/librunahead_heap.so RUNAHEAD_OOC_HEAP=64K RUNAHEAD_OOC_STATS=1 %t.plain 2> %t.err4
// RUN: FileCheck --check-prefix=ALL %s < %t.err4
// ALL: heap: out of core {{[1-9][0-9]+}} blocks {{.*}} no room on disk 0 of 0 MB; made private by 0 forks
// SOME: heap: out of core {{[1-9][0-9]*}} blocks {{.*}} because they fit {{[1-9]}}
// NONE: heap: out of core 0 blocks
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int wrong;
#define IS(what)                                                                 \
  do {                                                                           \
    if (!(what)) printf("not so at %d: %s\n", __LINE__, #what), wrong = 1;       \
  } while (0)
#define MB ((size_t)1 << 20)

static int zeros(const char *p, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (p[i]) return 0;
  return 1;
}

static void fill(char *p, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; i++) p[i] = (char)(i * 31 + i / 4096 + seed);
}

static int filled(const char *p, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; i++)
    if (p[i] != (char)(i * 31 + i / 4096 + seed)) return 0;
  return 1;
}

static void kinds(void) {
  /* What was there before is not seen in new zeros. */
  for (int round = 0; round < 3; round++) {
    char *a = malloc(3 * MB), *b = calloc(3, MB);
    IS(a && b && (uintptr_t)a % 16 == 0);
    IS(zeros(b, 3 * MB));
    memset(a, 1, 3 * MB);
    memset(b, 2, 3 * MB);
    IS(malloc_usable_size(a) >= 3 * MB);
    memset(a, 3, malloc_usable_size(a));
    free(a);
    free(b);
  }
  IS(calloc((size_t)1 << 40, (size_t)1 << 40) == NULL && errno == ENOMEM);
  errno = 0;
  IS(malloc(PTRDIFF_MAX) == NULL && errno == ENOMEM);
  errno = 0;
  IS(reallocarray(NULL, (size_t)1 << 40, (size_t)1 << 40) == NULL && errno == ENOMEM);
  errno = 77;
  void *p = malloc(MB);
  free(p);
  IS(errno == 77);
  free(NULL);
  for (size_t alignment = 8; alignment <= 4 * MB; alignment *= 8) {
    void *a = NULL;
    IS(posix_memalign(&a, alignment, MB) == 0 && (uintptr_t)a % alignment == 0);
    void *b = aligned_alloc(alignment, 2 * MB), *c = memalign(alignment, MB + 1);
    IS((uintptr_t)b % alignment == 0 && (uintptr_t)c % alignment == 0 && a && b && c);
    fill(a, MB, 1), fill(b, 2 * MB, 2), fill(c, MB + 1, 3);
    IS(filled(a, MB, 1) && filled(b, 2 * MB, 2) && filled(c, MB + 1, 3));
    b = realloc(b, 5 * MB);
    IS(filled(b, 2 * MB, 2));
    free(a), free(b), free(c);
  }
  void *no = &no;
  IS(posix_memalign(&no, 24, MB) == EINVAL && no == &no);
  IS(posix_memalign(&no, 2, MB) == EINVAL && no == &no);
  void *v = valloc(MB + 5), *w = pvalloc(MB + 5);
  IS((uintptr_t)v % 4096 == 0 && (uintptr_t)w % 4096 == 0 && malloc_usable_size(w) >= MB + 4096 - 16);
  free(v), free(w);
}

static void sizes(void) {
  /* Up and down through all sizes; a neighbour that is in the way half of the times. */
  for (int neighbour = 0; neighbour < 2; neighbour++) {
    char *p = malloc(100), *others[64];
    int n = 0;
    fill(p, 100, 5);
    size_t had = 100;
    for (size_t bytes = 150; bytes < 40 * MB; bytes += bytes / 2) {
      p = realloc(p, bytes);
      IS(p && filled(p, had, 5));
      fill(p, bytes, 5);
      had = bytes;
      if (neighbour && n < 64) memset(others[n++] = malloc(bytes), 7, bytes);
    }
    for (size_t bytes = had; bytes > 100; bytes -= bytes / 3) {
      p = realloc(p, bytes);
      IS(p && filled(p, bytes, 5));
    }
    p = realloc(p, 3 * MB);
    IS(filled(p, 100, 5));
    IS(realloc(p, PTRDIFF_MAX) == NULL && errno == ENOMEM && filled(p, 100, 5));
    IS(realloc(p, 0) == NULL);
    while (n--) free(others[n]);
  }
  /* By small steps. */
  char *p = NULL;
  for (size_t bytes = 0; bytes < 8 * MB; bytes += 4096) {
    p = realloc(p, bytes + 4096);
    memset(p + bytes, (int)(bytes >> 12), 4096);
  }
  for (size_t at = 0; at < 8 * MB; at++) IS(p[at] == (char)(at >> 12));
  free(p);
  /* What is cut off and comes back is anything, but the rest is what it was, and a fresh zero is one. */
  p = malloc(16 * MB);
  memset(p, 9, 16 * MB);
  p = realloc(p, MB);
  char *z = calloc(20, MB);
  IS(zeros(z, 20 * MB));
  p = realloc(p, 16 * MB);
  IS(p[MB - 1] == 9);
  free(z), free(p);
}

static void advised(void) {
  /* As a shared file it would keep what it held. */
  char *p = malloc(40 * MB);
  fill(p, 40 * MB, 1);
  char *inner = (char *)(((uintptr_t)p + 2 * MB) & ~(uintptr_t)4095);
  IS(madvise(inner, MB, MADV_DONTNEED) == 0 && zeros(inner, MB) && inner[-1] == (char)((inner - 1 - p) * 31 + (inner - 1 - p) / 4096 + 1));
  fill(inner, MB, 2);
  IS(madvise(inner, MB, MADV_FREE) == 0);
  IS(mlock(p, 4096) == 0 && mprotect(inner, MB, PROT_READ) == 0);
  const char *how = getenv("RUNAHEAD_OOC_HEAP");
  if (!how || how[0] == '0') mprotect(inner, MB, PROT_READ | PROT_WRITE); /* the C library writes there again */
  free(p);
  p = calloc(40, MB);
  IS(zeros(p, 40 * MB));
  memset(p, 1, 40 * MB);
  free(p);
}

static void *thread(void *number) {
  unsigned seed = (unsigned)(uintptr_t)number;
  char *held[16] = {0};
  size_t size[16];
  for (unsigned i = 0, x = seed * 7919 + 1; i < 400; i++) {
    x = x * 1664525 + 1013904223;
    unsigned slot = x >> 28;
    if (held[slot]) IS(filled(held[slot], size[slot], seed + slot));
    if (held[slot] && x & 64) {
      free(held[slot]);
      held[slot] = NULL;
      continue;
    }
    size_t had = held[slot] ? size[slot] : 0;
    size[slot] = (x >> 8) % (MB / 2) + 1;
    held[slot] = realloc(held[slot], size[slot]);
    IS(held[slot] && filled(held[slot], had < size[slot] ? had : size[slot], seed + slot));
    fill(held[slot], size[slot], seed + slot);
  }
  for (int i = 0; i < 16; i++) free(held[i]);
  return NULL;
}

static long memory_kb(const char *name) {
  char line[256];
  long kb = -1;
  FILE *f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f))
    if (!strncmp(line, name, strlen(name))) kb = atol(line + strlen(name));
  if (f) fclose(f);
  return kb;
}

int main(void) {
  kinds();
  sizes();
  advised();
  pthread_t threads[4];
  for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, thread, (void *)i);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  /* What is freed is given back. */
  long before = memory_kb("VmRSS:");
  for (int i = 0; i < 50; i++) {
    char *p = malloc(20 * MB);
    memset(p, 1, 20 * MB);
    free(p);
  }
  IS(memory_kb("VmRSS:") < before + 30000);
  /* So is the disk, also what was locked or could not be written to (40 MB);
   * 16 MB may be kept for the next block. */
  struct stat status;
  for (int i = 200; i < 300; i++) IS(fstat(i, &status) || status.st_blocks < 50000);
  /* The lowest numbers are the program's. */
  int low = open("/dev/null", O_RDONLY);
  IS(low == 3);
  return wrong;
}
