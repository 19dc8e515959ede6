// A call that is not inlined counts as what the function touches, with the call's arguments.
// RUN: %plaincc -O2 -fno-discard-value-names -fpass-plugin=%plugin -S -emit-llvm %s -o - | FileCheck %s
// RUN: %plaincc -O2 -g1 -fpass-plugin=%plugin -Rpass=runahead -Rpass-missed=runahead -c %s -o %t.o 2>&1 | FileCheck --check-prefix=REMARK %s
// Loops with calls that are not understood come out as if there were no pass; with those
// that are, this must fail, or it says nothing.
// RUN: %plaincc -O2 -DMISSED_ONLY -S -emit-llvm %s -o %t.plain
// RUN: %plaincc -O2 -DMISSED_ONLY -fpass-plugin=%plugin -S -emit-llvm %s -o %t.ours
// RUN: cmp %t.plain %t.ours
// RUN: %plaincc -O2 -S -emit-llvm %s -o %t.plain
// RUN: %plaincc -O2 -fpass-plugin=%plugin -S -emit-llvm %s -o %t.ours
// RUN: not cmp -s %t.plain %t.ours
#define CALLED __attribute__((noinline)) static

#ifndef MISSED_ONLY
// row comes first in the module, and so does the site of its own loop, which has changed it by the
// time its caller is looked at. There: one reference in a called function (32), with one dimension
// that no loop of the caller has; strides of width and 8 bytes.
// CHECK: @runahead.references = {{.*}} { i8 0, i8 0, i8 0, i8 0, i32 0, i32 0, i32 8 }]
// CHECK: @runahead.references{{.*}} = {{.*}} { i8 32, i8 1, i8 0, i8 0, i32 0, i32 0, i32 8 }]
// CHECK-NEXT: @runahead.form{{.*}} = private {{.*}} [2 x i8] c"@\00"
// CHECK: @runahead.small{{.*}} = private {{.*}} [1 x i16] [i16 8]
__attribute__((noinline)) double row(const double *a, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum += a[i];
  return sum;
}
CALLED double get(const double *a, long i) { return a[i]; }
CALLED void turn(double *a, long n) {
  for (long i = 0; i < n; i++) a[i] = -a[i];
}

// CHECK-LABEL: define {{.*}} @rows(
// CHECK: store i64 %n, ptr %runahead.values
// CHECK: %[[BYTES:.*]] = shl i64 %width, 3
// CHECK: store i64 %[[BYTES]],
// CHECK: store i64 %width,
// CHECK: call {{.*}} @runahead_ooc_enter
// CHECK: call i64 @runahead_ooc_step(
// CHECK: {{^}}for.body:
// CHECK-NOT: runahead_ooc
// CHECK: call {{.*}} @row(
// CHECK-NOT: runahead_ooc
// CHECK: br i1 {{.*}}, label %runahead.strip.end, label %for.body
// CHECK-NOT: runahead_ooc
// CHECK-LABEL: define
double rows(const double *a, long n, long width) {
  double sum = 0;
  // REMARK: calls.c:[[#@LINE + 2]]:{{[0-9]+}}: remark: prefetch inserted for 1 groups of references (0 indirect, {{.*}} over 1 loop levels
  // REMARK: calls.c:[[#@LINE + 1]]:{{[0-9]+}}: remark: prefetch inserted for 1 references inside the called function row
  for (long i = 0; i < n; i++) sum += row(a + i * width, width);
  return sum;
}
// REMARK: calls.c:[[#@LINE + 3]]:{{[0-9]+}}: remark: prefetch inserted for 1 groups of references (0 indirect,
// REMARK: calls.c:[[#@LINE + 2]]:{{[0-9]+}}: remark: prefetch inserted for 2 references inside the called function turn
void turns(double *a, long n, long m, long width) {
  for (long i = 0; i < n; i++) for (long j = 0; j < m; j++) turn(a + (j * n + i) * width, width);
}
// REMARK: calls.c:[[#@LINE + 4]]:{{[0-9]+}}: remark: prefetch inserted for 2 groups of references (1 indirect,
// REMARK: calls.c:[[#@LINE + 3]]:{{[0-9]+}}: remark: prefetch inserted for 1 references inside the called function get
double gather(const double *a, const int *b, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum += get(a, b[i]);
  return sum;
}
// Shorter and shorter: as far as the longest.
// REMARK: calls.c:[[#@LINE + 3]]:{{[0-9]+}}: remark: prefetch inserted for 1 references inside the called function row
double triangle(const double *a, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum += row(a + i * n, n - i);
  return sum;
}
// A call and a reference beside it are one group.
// REMARK: calls.c:[[#@LINE + 4]]:{{[0-9]+}}: remark: prefetch inserted for 1 groups of references (0 indirect,
// REMARK: calls.c:[[#@LINE + 3]]:{{[0-9]+}}: remark: prefetch inserted for 1 references inside the called function get
double beside(const double *a, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum += get(a, i) * a[i + 1];
  return sum;
}
#endif

double elsewhere(const double *a, long i);
__attribute__((weak)) double replaced(const double *a, long i) { return a[i]; }
CALLED double itself(const double *a, long i) { return i ? a[i] + itself(a, i / 2) : 0; }
CALLED double second(double **a, long i) { return a[0][i]; }
CALLED double same(double *a, long i) { return a[1] += (double)i; }
#define MISSED(name, argument)                          \
  double call_##name(argument a, long n) {              \
    double sum = 0;                                     \
    for (long i = 0; i < n; i++) sum += name(a, i);     \
    return sum;                                         \
  }
MISSED(elsewhere, double *) // REMARK: calls.c:[[@LINE]]:{{[0-9]+}}: remark: no prefetch for what this call touches, or for some of it: its body is not known here
MISSED(replaced, double *) // REMARK: calls.c:[[@LINE]]:{{[0-9]+}}: remark: no prefetch {{.*}}: its body is not known here
MISSED(itself, double *) // REMARK: calls.c:[[@LINE]]:{{[0-9]+}}: remark: no prefetch {{.*}}: the function calls itself
MISSED(second, double **) // REMARK: calls.c:[[@LINE]]:{{[0-9]+}}: remark: no prefetch {{.*}}: the address is not made of the function's arguments
MISSED(same, double *) // REMARK: calls.c:[[@LINE]]:{{[0-9]+}}: remark: no prefetch {{.*}}: it touches the same memory at each call
