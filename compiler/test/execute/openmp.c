// Loops that OpenMP has put into functions of their own, run by several threads at
// once: prefetched, and the same results as plain ones.
// REQUIRES: openmp
// RUN: %plaincc -O2 -fopenmp -I%runtime %s %build/librunahead_ooc.a -lpthread -o %t.plain
// RUN: %cc -O2 -fopenmp -Rpass=runahead -I%runtime %s -o %t.ooc 2> %t.remarks
// RUN: FileCheck --check-prefix=REMARK %s < %t.remarks
// RUN: env OMP_NUM_THREADS=3 RUNAHEAD_OOC_MEMORY=4000000 %t.plain > %t.1
// RUN: env OMP_NUM_THREADS=3 RUNAHEAD_OOC_MEMORY=4000000 RUNAHEAD_OOC_STATS=1 %t.ooc > %t.2 2> %t.stats
// RUN: diff %t.1 %t.2
// RUN: FileCheck %s < %t.2
// RUN: FileCheck --check-prefix=STATS %s < %t.stats
// Each of the three threads enters the first, the second and the last loop once, and
// the chunks of the third 14 times: 23 in all, of which some are passed over once their
// site has been found to have all it wants.
// CHECK: threads 3
// STATS: nests entered {{(23, declined 0|22, declined 1|21, declined 2|20, declined 3|19, declined 4|18, declined 5|17, declined 6|16, declined 7|15, declined 8|14, declined 9)}};
#include "runahead_ooc.h"
#include <omp.h>
#include <stdint.h>
#include <stdio.h>

#define N 2000000L
#define SIDE 1400L

static uint64_t mix(uint64_t x) { return (x ^ x >> 29) * 0xbf58476d1ce4e5b9u; }

int main(void) {
  uint64_t *a = runahead_ooc_alloc(N * 8, NULL), *b = runahead_ooc_alloc(N * 8, NULL);
  uint32_t *index = runahead_ooc_alloc(N * 4, NULL);
  if (!a || !b || !index) return 1;
  int threads = 0;
#pragma omp parallel
#pragma omp single
  threads = omp_get_num_threads();
  printf("threads %d\n", threads);

// REMARK-DAG: openmp.c:[[@LINE+1]]:{{.*}}prefetch inserted
#pragma omp parallel for schedule(static)
  for (long i = 0; i < N; i++) {
    a[i] = mix((uint64_t)i);
    index[i] = (uint32_t)(mix(a[i]) % N);
  }
  uint64_t sum = 0;
// REMARK-DAG: openmp.c:[[@LINE+1]]:{{.*}}prefetch inserted for {{.*}} (1 indirect
#pragma omp parallel for schedule(static) reduction(+ : sum)
  for (long i = 0; i < N; i++) sum += a[index[i]];
  printf("gather %016lx\n", (unsigned long)sum);

// Chunks handed out as threads come for them: each is a loop of its own.
// REMARK-DAG: openmp.c:[[@LINE+1]]:{{.*}}prefetch inserted
#pragma omp parallel for schedule(dynamic, 100)
  for (long i = 0; i < SIDE; i++)
    for (long j = 0; j < SIDE; j++) b[j * SIDE + i] = a[i * SIDE + j] + (uint64_t)j;

  sum = 0;
#pragma omp parallel for simd reduction(+ : sum)
  for (long i = 0; i < SIDE * SIDE; i++) sum += b[i] ^ (uint64_t)i;
  printf("transpose %016lx\n", (unsigned long)sum);
  return 0;
}
