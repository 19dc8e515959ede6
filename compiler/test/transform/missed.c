// Remarks say for each reference that is left out, why.
// RUN: %plaincc -O2 -g1 -fpass-plugin=%plugin -Rpass=runahead -Rpass-missed=runahead -c %s -o %t.o 2>&1 | FileCheck %s
struct node { struct node *next; long value; };
long list(struct node *p) {
  long sum = 0;
  for (; p; p = p->next) sum += p->value;
  // CHECK: missed.c:[[@LINE-1]]:{{.*}} remark: no prefetch for this reference: the base address changes in a way that cannot be predicted
  return sum;
}
long hash(const long *a, long n) {
  long sum = 0, x = 1;
  for (long i = 0; i < n; i++) {
    x = x * 6364136223846793005 + 1442695040888963407;
    sum += a[(unsigned long)x >> 40];
    // CHECK: missed.c:[[@LINE-1]]:{{.*}} remark: no prefetch for this reference: the address
  }
  return sum;
}
long small(const long *a) {
  long sum = 0;
  for (long i = 0; i < 1000; i++) sum += a[i] ^ sum << 1;
  // CHECK: missed.c:[[@LINE-1]]:{{.*}} remark: no prefetch: the nest touches less than 65536 bytes
  return sum;
}
// A function of this file that every call hands a short line; one that a call hands a long
// one, and one whose lines nobody knows, are another matter.
#define ALONG(name)                                                     \
  __attribute__((noinline)) static void name(double *x, long n) {       \
    for (long i = 0; i < n; i++) x[i] = x[i] * x[i] + 1;                \
    for (long half = 1; half < n; half *= 2)                            \
      for (long i = 0; i < n - half; i++) x[i] += x[i + half] / x[i];   \
  }
ALONG(shortly) // CHECK-NOT: missed.c:[[@LINE]]:1: remark: prefetch inserted
// CHECK: missed.c:[[@LINE-1]]:1: remark: no prefetch for this reference: each call is handed a short piece of memory
ALONG(longly) // CHECK: missed.c:[[@LINE]]:1: remark: prefetch inserted
ALONG(unknown) // CHECK: missed.c:[[@LINE]]:1: remark: prefetch inserted
void lines(double *a, long n) {
  for (long i = 0; i < 1000; i++) {
    shortly(a + i * 256, 256);
    shortly(a + i * 512, 512);
    longly(a + i * 512, 512);
    unknown(a + i * 512, n);
  }
  longly(a, 1 << 20);
}
static double table[512];
double look_up(long n, long step) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum += table[i * step] / n;
  // CHECK: missed.c:[[@LINE-1]]:{{.*}} remark: no prefetch for this reference: the array is small
  table[n] = sum;
  return sum;
}
