// Copies that are long, or of unknown length, go through the run-time layer; short ones,
// volatile ones and those that may overlap stay.
// RUN: %plaincc -O2 -fpass-plugin=%plugin -S -emit-llvm %s -o - | FileCheck %s
// RUN: %plaincc -O2 -g1 -fpass-plugin=%plugin -Rpass=runahead -c %s -o %t.o 2>&1 | FileCheck --check-prefix=REMARK %s
// REMARK: copies.c:{{.*}}: remark: a copy goes through the run-time layer
#include <string.h>

// CHECK-LABEL: define {{.*}}@as_a_loop(
// CHECK: call void @runahead_ooc_copy(
double from[1 << 18], to[1 << 18];
void as_a_loop(void) {
  for (long i = 0; i < 1 << 18; i++) to[i] = from[i];
}
// CHECK-LABEL: define {{.*}}@unknown(
// CHECK: call void @runahead_ooc_copy(
void unknown(char *a, const char *b, unsigned long n) { memcpy(a, b, n); }
// CHECK-LABEL: define {{.*}}@set(
// CHECK: call void @runahead_ooc_set(
void set(char *a, int byte, unsigned long n) { memset(a, byte, n); }
// CHECK-LABEL: define {{.*}}@shortly(
// CHECK: call void @llvm.memcpy
// CHECK-NOT: runahead_ooc_copy
void shortly(char *a, const char *b) { memcpy(a, b, 100000); }
// CHECK-LABEL: define {{.*}}@overlapping(
// CHECK: call void @llvm.memmove
// CHECK-NOT: runahead_ooc_copy
void overlapping(char *a, const char *b, unsigned long n) { memmove(a, b, n); }
// CHECK-LABEL: define {{.*}}@end(
void end(void) {}
