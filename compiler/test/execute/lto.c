// REQUIRES: lto
// Under link-time optimisation of either kind the nests get what they get without it, once.
// RUN: %plaincc -O2 %s -o %t.plain && %t.plain > %t.expected
// RUN: for how in full thin; do \
// RUN:   %cc -O2 -flto=$how -c %s -o %t.o -Rpass=runahead 2> %t.said && FileCheck --check-prefix=SAID %s < %t.said && \
// RUN:   %cc -O2 -flto=$how --runahead-static %t.o -o %t.ours && \
// RUN:   env RUNAHEAD_OOC_MEMORY=2M RUNAHEAD_OOC_STATS=1 %t.ours > %t.got 2> %t.counts && diff %t.expected %t.got && \
// RUN:   FileCheck --check-prefix=COUNTS %s < %t.counts || exit 1; \
// RUN: done
// The last word counts, as it does for the compiler.
// RUN: %cc -O2 -flto=thin -fno-lto -c %s -o %t.o -Rpass=runahead 2>&1 | FileCheck --check-prefix=SAID %s
// SAID-COUNT-2: remark: prefetch inserted for
// SAID-NOT: prefetch inserted
// COUNTS: nests entered {{[1-9]}}
#include <stdio.h>
enum { COUNT = 1 << 20 };
static double a[COUNT];
static unsigned b[COUNT];

static __attribute__((noinline)) double gather(void) {
  double sum = 0;
  for (long i = 0; i < COUNT; i++) sum += a[b[i]];
  return sum;
}

int main(void) {
  for (long i = 0; i < COUNT; i++) {
    a[i] = i * 0.5;
    b[i] = i * 7919 % COUNT;
  }
  printf("%.17g\n", gather());
}
