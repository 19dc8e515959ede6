// Calls that are not inlined are prefetched for by the loop around them, and results stay what
// they are. Each row is too small a nest for the called function's own loop to prefetch for: of
// the nests that are entered one fills the array and four have calls.
// RUN: %plaincc -O2 -I%runtime %s %build/librunahead_ooc.a -lpthread -o %t.plain
// RUN: %cc -O2 -I%runtime %s -o %t
// RUN: %t.plain > %t.1
// RUN: env RUNAHEAD_OOC_MEMORY=4000000 RUNAHEAD_OOC_STATS=1 %t > %t.2 2> %t.statistics
// RUN: cmp %t.1 %t.2
// RUN: FileCheck %s < %t.statistics
// CHECK: nests entered 5,
// CHECK: pages asked for {{[1-9][0-9][0-9][0-9][0-9]}},
#include "runahead_ooc.h"
#include <stdio.h>

enum { ROWS = 4096, WIDTH = 500 };

__attribute__((noinline)) static double row(const double *a, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum = sum * 0.75 + a[i];
  return sum;
}

__attribute__((noinline)) static void scale(double *a, long n, double by) {
  for (long i = 0; i < n; i++) a[i] *= by;
}

__attribute__((noinline)) static double get(const double *a, long i) { return a[i * 3] + a[i * 3 + 1]; }

int main(int argc, char **argv) {
  (void)argv;
  long width = WIDTH - 1 + argc;
  double *a = runahead_ooc_alloc(sizeof(double) * ROWS * WIDTH, 0), sum = 0;
  int *which = runahead_ooc_alloc(sizeof(int) * ROWS, 0);
  if (!a || !which) return 1;
  for (long i = 0; i < ROWS * WIDTH; i++) a[i] = (double)(i % 1000);
  for (long i = 0; i < ROWS; i++) sum += row(a + i * width, width);
  printf("%a\n", sum);
  for (long i = ROWS; i-- > 0;) scale(a + i * width, width, 1.0 / (double)(i + 1));
  for (long i = 0; i < ROWS * WIDTH / 3 - 1; i++) sum += get(a, i);
  printf("%a\n", sum);
  for (long i = 0; i < ROWS; i++) which[i] = (int)(i * 977 % ROWS);
  for (long i = 0; i < ROWS; i++) sum += row(a + which[i] * width, width);
  printf("%a\n", sum);
  return 0;
}
