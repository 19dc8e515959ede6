// Loops beyond the paper's: each of these is found.
// RUN: %plaincc -O2 -g1 -fopenmp -fpass-plugin=%plugin -Rpass=runahead -c %s -o %t.o 2>&1 | FileCheck %s
// Several exits: one by the data, one by the count.
double two_exits(const double *p, long n, double stop) {
  double s = 0;
  // CHECK: lifted.c:[[#@LINE + 1]]:{{[0-9]+}}: remark: prefetch inserted for 1 groups {{.*}} over 1 loop levels
  for (long i = 0; i < n; i++) {
    if (p[i] > stop) return s;
    s += p[i];
  }
  return -s;
}
// No count at all.
long find(const double *p, double what) {
  long i = 0;
  // CHECK: lifted.c:[[#@LINE + 1]]:{{[0-9]+}}: remark: prefetch inserted for 1 groups {{.*}} over 1 loop levels
  while (p[i] != what) i++;
  return i;
}
// Out of both levels of a nest at once.
long exits_of_a_nest(const double *p, long rows, long n, double stop) {
  // CHECK: lifted.c:[[#@LINE + 1]]:{{[0-9]+}}: remark: prefetch inserted for 1 groups {{.*}} over 2 loop levels
  for (long j = 0; j < rows; j++)
    for (long i = 0; i < n; i++)
      if (p[j * n + i] > stop) return j;
  return -1;
}
// The reference lies in a function.
static double at(const double *p, long i) { return p[i] * p[i]; }
double by_function(const double *p, long n) {
  double s = 0;
  // CHECK: lifted.c:[[#@LINE + 1]]:{{[0-9]+}}: remark: prefetch inserted for 1 groups {{.*}} over 1 loop levels
  for (long i = 0; i < n; i++) s += at(p, i);
  return s;
}
// The loop lies in a function of OpenMP's.
void threads(double *restrict p, long n) {
// CHECK: lifted.c:[[#@LINE + 1]]:{{[0-9]+}}: remark: prefetch inserted for 1 groups {{.*}} over 1 loop levels
#pragma omp parallel for
  for (long i = 0; i < n; i++) p[i] = 2.0 * p[i];
}
