// An object without the run-time library does not link, and the message says what is missing.
// RUN: %plaincc -O2 -fpass-plugin=%plugin -c %s -o %t.o
// RUN: not %plaincc %t.o -o %t.exe 2>&1 | FileCheck %s
// CHECK: undefined reference to `runahead_ooc_3_is_missing__link_with_lrunahead_ooc'
#include <stdlib.h>
int main(int argc, char **argv) {
  long n = argc > 1 ? atol(argv[1]) : 10;
  double *a = malloc((size_t)n * 8), sum = 0;
  for (long i = 0; i < n; i++) a[i] = (double)i;
  for (long i = 0; i < n; i++) sum += a[i] * sum;
  return sum > 1;
}
