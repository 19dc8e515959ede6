// With debug information variables are linked to their stores (assignment tracking), in the copy
// that is kept of a function as in the function: each has links of its own.
// RUN: %plaincc -O2 -g -c %s -o %t.o -fpass-plugin=%plugin -Rpass=runahead -Rpass-missed=runahead 2>&1 | FileCheck %s
// CHECK-NOT: did not verify
// CHECK: prefetch inserted
void use(int *);
double sum(const double *a, long n, const int *w) {
  double s = 0;
  for (long i = 0; i < n; i++) {
    int pair[2] = {w[i], 1};
    use(pair);
    s += a[i] * pair[0];
  }
  return s;
}
