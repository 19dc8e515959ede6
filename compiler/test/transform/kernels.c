// The kernels: what is found in them, and that the inner loops that
// vectorise without the pass still do.
// RUN: %plaincc -O2 -g1 -fpass-plugin=%plugin -Rpass=runahead -c %source/kernels/kernels.c -o %t.o 2>&1 | FileCheck %s
// CHECK: kernels.c:6:3: remark: prefetch inserted for 2 groups of references (1 indirect
// CHECK: kernels.c:14:5: remark: prefetch inserted for 3 groups of references (1 indirect, {{.*}} running on past the end of this inner loop
// CHECK: kernels.c:21:3: remark: prefetch inserted for 1 groups {{.*}} over 2 loop levels
// CHECK: kernels.c:42:3: remark: prefetch inserted for 6 groups {{.*}} over 3 loop levels
// RUN: %plaincc -O2 -fno-discard-value-names -fpass-plugin=%plugin -S -emit-llvm %s -o - | FileCheck --check-prefix=VECTOR %s
// VECTOR-LABEL: define {{.*}}@scale(
// both versions, two vectors interleaved in the original, one in the copy
// VECTOR: call i64 @runahead_ooc_step
// VECTOR-COUNT-3: fmul <2 x double>
void scale(double *restrict a, const double *restrict b, long n) {
  for (long i = 0; i < n; i++) a[i] = 3.0 * b[i];
}
