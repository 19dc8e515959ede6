// What the pass leaves out, because it costs compile time and gives nothing.
// RUN: %plaincc -O2 -fno-discard-value-names -fpass-plugin=%plugin -S -emit-llvm %s -o - | FileCheck %s

extern double table[4096][512], *rows[];

// The copy of a loop whose length is known at its entry only is not cut into strips; what
// a stream remembers stays out of registers.
// CHECK-LABEL: define {{.*}} @sparse(
// CHECK: store volatile ptr null, ptr %runahead.stream
// CHECK-NOT: runahead.strip
// CHECK: call i64 @runahead_ooc_step
// CHECK-LABEL: define
double sparse(const double *a, const int *column, const double *x, const int *row, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++)
    for (int j = row[i]; j < row[i + 1]; j++) sum += a[j] * x[column[j]];
  return sum;
}

// Rows of one length are.
// CHECK-SAME: @wide(
// CHECK: runahead.strip
// CHECK-LABEL: define
double wide(long n, long width) {
  double sum = 0;
  for (long i = 0; i < n; i++)
    for (long j = 0; j < width; j++) sum += rows[i][j];
  return sum;
}

// An address that the linker knows is in the table.
// CHECK-SAME: @linked(
// CHECK-NOT: store i64
// CHECK: call {{.*}} @runahead_ooc_enter
// CHECK-LABEL: define
void linked(void) {
  for (long i = 0; i < 4095; i++)
    for (long j = 0; j < 512; j++) table[i + 1][j] *= 2;
}

// A nest whose calls stand beside whole inner loops is not copied.
// CHECK-SAME: @outer(
// CHECK: call {{.*}} @runahead_ooc_enter
// CHECK-COUNT-1: call void @work(
// CHECK-NOT: call void @work(
// CHECK-LABEL: define {{.*}} @end(
void work(double *);
void outer(double *a, long n, long m) {
  enum { depth = 200 };
  for (long i = 0; i < n; i++)
    for (long j = 0; j < m; j++) {
      double line[512];
      for (long k = 0; k < depth; k++) line[k] = a[(i * depth + k) * m + j];
      work(line);
      for (long k = 0; k < depth; k++) a[(i * depth + k) * m + j] = line[k];
    }
}
void end(void) {}
