// Arrays of malloc, calloc and realloc, twice and four times of memory, without a change of source: the same results
// as with memory for all, where alone the program is ended.
// REQUIRES: memory-cgroup
// RUN: %plaincc -O2 %s -lm -o %t.plain
// RUN: %cc -O2 --runahead-heap -Rpass=runahead %s -lm -o %t.ours 2> %t.remarks
// RUN: FileCheck --check-prefix=REMARK %s < %t.remarks
// RUN: %t.plain 8 > %t.expected8
// RUN: %t.plain 16 > %t.expected16
// RUN: %t.plain 8 1000 > %t.few
// RUN: not %limited 32 %t.plain 8
// RUN: env RUNAHEAD_OOC_STATS=1 %limited 32 %t.ours 8 > %t.8 2> %t.err8
// RUN: diff %t.expected8 %t.8
// RUN: FileCheck --check-prefix=STATS %s < %t.err8
// RUN: env RUNAHEAD_OOC_STATS=1 %limited 32 %t.ours 16 > %t.16 2> %t.err16
// RUN: diff %t.expected16 %t.16
// RUN: FileCheck --check-prefix=STATS %s < %t.err16
// In memory nothing is on a file, and nothing said.
// RUN: %t.ours 8 > %t.in 2> %t.err
// RUN: diff %t.expected8 %t.in
// RUN: count 0 < %t.err
// Linked without: the library is preloaded, and the program's own run-time layer told.
// RUN: %cc -O2 %s -lm -o %t.without
// RUN: env RUNAHEAD_OOC_STATS=1 LD_PRELOAD=%build/librunahead_heap.so %limited 32 %t.without 8 > %t.pre 2> %t.errp
// RUN: diff %t.expected8 %t.pre
// RUN: FileCheck --check-prefix=STATS %s < %t.errp
// And a program that knows nothing of the pass.
// RUN: env RUNAHEAD_OOC_STATS=1 LD_PRELOAD=%build/librunahead_heap.so %limited 32 %t.plain 8 1000 > %t.pre2 2> %t.errp2
// RUN: diff %t.few %t.pre2
// RUN: FileCheck --check-prefix=MOVED %s < %t.errp2
// REMARK: prefetch inserted for 2 groups of references (1 indirect
// STATS-DAG: runahead: nests entered {{[1-9]}}
// STATS-DAG: pages asked for {{[0-9]+}}, {{.*}} prefetched {{[1-9]}}
// STATS-DAG: heap: out of core {{[1-9]}}
// MOVED: heap: out of core {{[1-9]}}
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static double gather(const double *a, const uint32_t *b, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum += a[b[i]];
  return sum;
}

static double column(const double *a, long rows, long columns) {
  double sum = 0;
  for (long j = 0; j < columns; j += columns / 4)
    for (long i = 0; i < rows; i++) sum = sum * 0.999 + a[i * columns + j];
  return sum;
}

int main(int argc, char **argv) {
  long n = (argc > 1 ? atol(argv[1]) : 1) << 19, lookups = argc > 2 ? atol(argv[2]) : 50000; /* 4 MB of doubles each */
  double *a = malloc((size_t)n * 8), *b = calloc((size_t)n, 8);
  uint32_t *index = NULL;
  if (!a || !b) return 1;
  for (long i = 0; i < n; i++) a[i] = (double)(i % 1000) / 7;
  for (long i = 0; i < n; i++) b[i] += a[n - 1 - i] * 2;
  uint64_t x = 1;
  long room = 0;
  for (long i = 0; i < lookups; i++) {
    if (i == room) index = realloc(index, (size_t)(room = room ? room * 2 : 64) * 4);
    x = x * 6364136223846793005u + 1442695040888963407u;
    index[i] = (uint32_t)((x >> 33) % (uint64_t)n);
  }
  printf("%.17g %.17g\n", gather(a, index, lookups), gather(b, index, lookups));
  printf("%.17g\n", column(b, n / 2048, 2048));
  free(a);
  free(b);
  free(index);
  return 0;
}
