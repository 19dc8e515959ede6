// Remarks say for each reference that is left out, why.
// RUN: %plaincc -O2 -g1 -fpass-plugin=%plugin -Rpass-missed=runahead -c %s -o %t.o 2>&1 | FileCheck %s
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
