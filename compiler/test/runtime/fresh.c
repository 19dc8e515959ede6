// What was never written is not asked for: filling a new array, larger than memory, makes hardly a request; going
// through it afterwards does.
// RUN: %cc -O2 %s -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=8M RUNAHEAD_OOC_STATS=1 %t fill 2>&1 | FileCheck --check-prefix=FILL %s
// RUN: env RUNAHEAD_OOC_MEMORY=8M RUNAHEAD_OOC_STATS=1 %t more 2>&1 | FileCheck --check-prefix=MORE %s
// FILL: pages asked for {{[0-9][0-9][0-9][0-9]+}}, {{.*}} prefetched {{[0-9][0-9]?[0-9]?}} in
// MORE: prefetched {{[0-9][0-9][0-9][0-9]+}} in
#define _GNU_SOURCE
#include <runahead_ooc.h>
#include <sys/mman.h>
enum { N = 8 << 20 };
int main(int argc, char **argv) {
  double *a = runahead_ooc_alloc((size_t)N * 8, 0), sum = 0;
  if (!a) return 1;
  for (long i = 0; i < N; i++) a[i] = (double)(i & 1);
  if (argv[argc - 1][0] == 'f') return 0;
  msync(a, (size_t)N * 8, MS_SYNC);
  madvise(a, (size_t)N * 8, MADV_PAGEOUT);
  for (int round = 0; round < 3; round++)
    for (long j = 0; j < 512; j += 128)
      for (long i = 0; i < N / 512; i++) sum += a[i * 512 + j];
  return sum != 0;
}
