// Without optimisation nothing is inserted.
// RUN: %plaincc -O0 -fpass-plugin=%plugin -S -emit-llvm %s -o - | FileCheck %s
// CHECK-NOT: runahead_ooc
void scale(double *a, long n) {
  for (long i = 0; i < n; i++) a[i] *= 2;
}
