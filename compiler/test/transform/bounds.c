// A bound that a store in the loop may reach is not known before it: that it is an int says nothing,
// and the run-time layer is told that nobody knows (-1). Otherwise it looks 2^31 indices up.
// RUN: %plaincc -O2 -fno-discard-value-names -fpass-plugin=%plugin -S -emit-llvm %s -o - | FileCheck %s
// RUN: %plaincc -O2 -fpass-plugin=%plugin -DSTEP=4 -S -emit-llvm %s -o - | FileCheck %s
// RUN: %plaincc -O2 -fpass-plugin=%plugin -DCOUNTER=unsigned -S -emit-llvm %s -o - | FileCheck %s
// CHECK: @runahead.small{{.*}} [i16 -1,
// CHECK-NOT: @runahead.known{{.*}} i64
// CHECK: call ptr @runahead_ooc_enter
#ifndef STEP
#define STEP 1
#endif
#ifndef COUNTER
#define COUNTER int
#endif
void samples(COUNTER *count, int **value, int *index, long n) {
  for (long i = 0; i < n; i++)
    for (COUNTER j = 0; j < *count; j += STEP) (*value[index[j]])++;
}
