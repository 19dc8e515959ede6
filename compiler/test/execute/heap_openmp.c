// Threads that go through heap arrays of four times of memory at once.
// REQUIRES: memory-cgroup, openmp
// RUN: %plaincc -O2 -fopenmp %s -o %t.plain
// RUN: %cc -O2 -fopenmp --runahead-heap %s -o %t.ours
// RUN: %t.plain > %t.expected
// RUN: not %limited 32 %t.plain
// RUN: env OMP_NUM_THREADS=3 RUNAHEAD_OOC_STATS=1 %limited 32 %t.ours > %t.out 2> %t.err
// RUN: diff %t.expected %t.out
// RUN: FileCheck %s < %t.err
// CHECK-DAG: nests entered {{[1-9]}}
// CHECK-DAG: prefetched {{[1-9][0-9]*}} in
// CHECK-DAG: heap: out of core {{[1-9]}}
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#define N 8000000L

int main(void) {
  uint64_t *a = malloc(N * 8), *b = aligned_alloc(4096, N * 8), sum = 0;
#pragma omp parallel for
  for (long i = 0; i < N; i++) a[i] = (uint64_t)i * 0x9e3779b97f4a7c15u;
#pragma omp parallel for
  for (long i = 0; i < N; i++) b[N - 1 - i] = a[i] >> 7;
#pragma omp parallel for reduction(+ : sum)
  for (long i = 0; i < 300000; i++) sum += b[a[i] % N] ^ (uint64_t)i;
  /* Each thread's own. */
#pragma omp parallel for reduction(+ : sum)
  for (long part = 0; part < 6; part++) {
    uint64_t *own = calloc(1000000, 8);
    for (long i = 0; i < 1000000; i++) own[i] += a[part * 1000000 + i];
    for (long i = 0; i < 1000000; i += 1000) sum += own[i];
    free(own);
  }
  printf("%016lx\n", (unsigned long)sum);
  free(a), free(b);
  return 0;
}
