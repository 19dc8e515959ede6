// A program that nobody has told what is out of core says so under RUNAHEAD_OOC_STATS, once, and of data that no disk
// was read for it does not say that it was prefetched in time. The compiler says where an array comes from memory.
// RUN: %cc -O2 -Rpass=runahead %s -o %t 2> %t.remarks
// RUN: FileCheck --check-prefix=REMARK %s < %t.remarks
// RUN: env RUNAHEAD_OOC_STATS=1 %t 2>&1 | FileCheck --check-prefix=NONE %s
// RUN: %t 2>&1 | count 0
// RUN: %cc -O2 --runahead-heap -Rpass=runahead %s -o %t.heap 2> %t.remarks2
// RUN: FileCheck --check-prefix=HEAP %s < %t.remarks2
// RUN: env RUNAHEAD_OOC_STATS=1 RUNAHEAD_OOC_HEAP=1M %t.heap 2>&1 | FileCheck --check-prefix=MEMORY %s
// RUN: %cc -O2 -c %s -o %t.o && env RUNAHEAD_OOC_MEMORY=64M RUNAHEAD_OOC_STATS=1 %t.heap 2>&1 | FileCheck --check-prefix=SIZE %s
// RUN: not %cc -O2 --runahead-heep %s 2>&1 | FileCheck --check-prefix=WORD %s
// RUN: not %cc -O2 --runahead-heap -static %s -o %t.static 2>&1 | FileCheck --check-prefix=STATIC %s
// NONE: runahead: no region was there, so nothing could be prefetched. Link with --runahead-heap
// NONE-NOT: no region was there
// NONE: prefetched and in time 0 (0.0%)
// MEMORY-NOT: no region was there
// MEMORY: nests entered {{[1-9]}}
// MEMORY: prefetched and in time {{.}} (
// SIZE: memory limit 64 MB
// WORD: --runahead-heep is not known
// STATIC: --runahead-heap does not go with -static
#include <runahead_ooc.h>
#include <stdio.h>
#include <stdlib.h>
static double fixed[2000000];
int main(void) {
  long n = 2000000;
  double *a = malloc((size_t)n * 8);
  if (!a) return 1;
  // REMARK-DAG: no_region.c:[[@LINE+2]]:{{.*}} an array here is of malloc: it is in a region only if the program is linked with --runahead-heap
  // REMARK-DAG: no_region.c:[[@LINE+1]]:{{.*}} fixed is a static array: it is in a region only if the program is linked with --runahead-static
  for (long i = 0; i < n; i++) a[i] = (double)i * 0.5 + fixed[n - 1 - i];
  double sum = 0;
  for (long i = 0; i < n; i++) sum = sum * 0.99 + a[(i * 7919) % n];
  fixed[(long)sum % n] = 1;
  // HEAP-NOT: of malloc
  // HEAP: fixed is a static array
  free(a);
  return sum < 0;
}
