// How often a loop runs may be what an earlier loop counted, and that loop may be copied after this one: the number is
// the one that comes out of either copy.
// RUN: %plaincc -O2 -fpass-plugin=%plugin -Rpass=runahead -Rpass-missed=runahead -S -emit-llvm %s -o %t.ll 2> %t.remarks
// RUN: FileCheck --check-prefix=REMARK %s < %t.remarks
// RUN: not grep "did not verify" %t.remarks
// REMARK-COUNT-2: prefetch inserted
#include <stddef.h>
#include <stdint.h>
int count_and_use(const uint32_t *histogram, size_t total, size_t *place, uint8_t *depth) {
  size_t length = 0, count = 0, symbols[4] = {0};
  while (total != 0) {
    if (histogram[length]) {
      if (count < 4) symbols[count] = length;
      ++count;
      total -= histogram[length];
    }
    ++length;
  }
  if (count <= 1) return (int)symbols[0];
  for (uint32_t limit = 1;; limit *= 2) {
    size_t n = 0;
    for (size_t l = length; l != 0;) {
      --l;
      if (histogram[l] >= limit) place[n++] = l;
    }
    if (n < 100) break;
  }
  return depth[symbols[1]];
}
