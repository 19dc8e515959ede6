// The kernels: what is found in them, and that the inner loops that
// vectorise without the pass still do.
// RUN: %plaincc -O2 -g1 -fpass-plugin=%plugin -Rpass=runahead -c %source/kernels/kernels.c -o %t.o 2>&1 | FileCheck %s
// CHECK: kernels.c:6:3: remark: prefetch inserted for 2 groups of references (1 indirect
// CHECK: kernels.c:14:5: remark: prefetch inserted for 3 groups of references (1 indirect, {{.*}} running on past the end of this inner loop
// CHECK: kernels.c:21:3: remark: prefetch inserted for 1 groups {{.*}} over 2 loop levels
// CHECK: kernels.c:42:3: remark: prefetch inserted for 6 groups {{.*}} over 3 loop levels
// RUN: %plaincc -O2 -fno-discard-value-names -fpass-plugin=%plugin -S -emit-llvm %s -o - | FileCheck --check-prefix=VECTOR %s
// A loop by itself is cut into strips in place: two vectors interleaved, as without us.
// VECTOR-LABEL: define {{.*}}@scale(
// VECTOR: call i64 @runahead_ooc_step
// VECTOR-COUNT-2: fmul <2 x double>
// VECTOR-NOT: fmul <2 x double>
// A small nest has a copy, one vector at a time, beside the original.
// VECTOR-LABEL: define {{.*}}@scale_rows(
// VECTOR-COUNT-3: fmul <2 x double>
// VECTOR-NOT: fmul <2 x double>
// VECTOR-LABEL: define {{.*}}@end(
void scale(double *restrict a, const double *restrict b, long n) {
  for (long i = 0; i < n; i++) a[i] = 3.0 * b[i];
}
void scale_rows(double *restrict a, const double *restrict b, long rows, long n, long room) {
  for (long j = 0; j < rows; j++)
    for (long i = 0; i < n; i++) a[j * room + i] = 3.0 * b[j * room + i];
}
void end(void) {}
