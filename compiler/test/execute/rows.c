// Rows both of whose ends move with the loop around them: as many pages are asked for as the
// rows have, not all from the first row's start to the last one's end.
// RUN: %cc -O2 -I%runtime %s -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=4000000 RUNAHEAD_OOC_STATS=1 %t 2>&1 | FileCheck %s
// CHECK: pages asked for {{[1-9][0-9]?[0-9]?}},
#include "runahead_ooc.h"

double *a;

__attribute__((noinline)) static void rows(double *restrict at, long n) {
  for (long k = 1; k < 62; k++)
    for (long c = k * 4096, end = c + n; c < end; c++) at[c] += 3;
}

int main(int argc, char **argv) {
  (void)argv;
  a = runahead_ooc_alloc(sizeof(double) * 64 * 4096, 0);
  if (!a) return 1;
  for (int i = 0; i < 2; i++) rows(a, 511 + argc);
  return 0;
}
