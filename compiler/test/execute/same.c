// Nests of many shapes over out-of-core memory, compiled plainly and with the pass,
// print the same. The environment makes the run-time layer work hard: little memory,
// so that every nest counts as out of core.
// RUN: %plaincc -O2 -I%runtime %s %build/librunahead_ooc.a -lpthread -o %t.plain
// RUN: %cc -O2 -I%runtime %s -o %t.ooc
// RUN: %plaincc -O2 -march=native -I%runtime %s %build/librunahead_ooc.a -lpthread -o %t.plain.v
// RUN: %cc -O2 -march=native -I%runtime %s -o %t.ooc.v
// RUN: env RUNAHEAD_OOC_MEMORY=4000000 %t.plain > %t.1
// RUN: env RUNAHEAD_OOC_MEMORY=4000000 RUNAHEAD_OOC_STATS=1 %t.ooc > %t.2 2> %t.stats
// RUN: %t.plain.v > %t.3
// RUN: env RUNAHEAD_OOC_MEMORY=4000000 %t.ooc.v > %t.4
// RUN: diff %t.1 %t.2
// RUN: diff %t.3 %t.4
// RUN: FileCheck %s < %t.stats
// CHECK: nests entered {{[1-9][0-9]*}}
#include "runahead_ooc.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define N 300000L
static double *a, *b;
static int *index_;
static long *row;

static void show(const char *what, double v) {
  uint64_t bits;
  memcpy(&bits, &v, 8);
  printf("%s %016lx\n", what, (unsigned long)bits);
}

__attribute__((noinline)) double down(const double *p, long n) {
  double s = 0;
  for (long i = n - 1; i >= 0; i--) s = s * 0.5 + p[i];
  return s;
}
__attribute__((noinline)) double two_exits(const double *p, long n, double stop) {
  double s = 0;
  for (long i = 0; i < n; i++) {
    if (p[i] > stop) return s;
    s += p[i];
  }
  return -s;
}
__attribute__((noinline)) long find(const double *p, double what) {
  long i = 0;
  while (p[i] != what) i++;
  return i;
}
__attribute__((noinline)) double offset(const double *p, const int *x, long n) {
  double s = 0;
  for (long i = 0; i + 3 < n; i++) s += p[x[i] + 3] - p[x[i + 1]];
  return s;
}
__attribute__((noinline)) void scatter(double *p, const int *x, long n) {
  for (long i = 0; i < n; i++) p[x[i]] += 0.25 * (double)i;
}
__attribute__((noinline)) double rows(const double *p, const int *x, const long *r, long n) {
  double s = 0;
  for (long i = 0; i < n; i++) {
    double t = 0;
    for (long j = r[i]; j < r[i + 1]; j++) t += p[x[j]] * p[j];
    s += t;
  }
  return s;
}
__attribute__((noinline)) double triangle(const double *p, long n) {
  double s = 0;
  for (long i = 0; i < n; i++)
    for (long j = 0; j <= i; j++) s += p[i * n + j] * (double)(j + 1);
  return s;
}
__attribute__((noinline)) double transpose(double *q, const double *p, long n) {
  for (long i = 0; i < n; i++)
    for (long j = 0; j < n; j++) q[j * n + i] = p[i * n + j];
  return q[n * n / 2 + 3];
}
__attribute__((noinline)) double cube(double *q, const double *p, long n) {
  for (long k = 1; k < n - 1; k++)
    for (long j = 1; j < n - 1; j++)
      for (long i = 1; i < n - 1; i++)
        q[(k * n + j) * n + i] = p[(k * n + j) * n + i] - p[((k - 1) * n + j) * n + i] +
                                 p[(k * n + j + 1) * n + i - 1];
  double s = 0;
  for (long i = 0; i < n * n * n; i++) s += q[i];
  return s;
}
__attribute__((noinline)) double strided(const double *p, long n, long step, int times) {
  double s = 0;
  for (int t = 0; t < times; t++)
    for (long i = t; i < n; i += step) s += p[i];
  return s;
}
__attribute__((noinline)) double narrow(const double *p, unsigned n, unsigned step) {
  double s = 0;
  for (unsigned i = 0; i < n; i += step) s += p[i];
  return s;
}
__attribute__((noinline)) double embedding(const double *p, const int *x, long n) {
  double s = 0;
  for (long i = 0; i < n; i++)
    for (int j = 0; j < 64; j++) s += p[(long)(x[i] % 4000) * 64 + j];
  return s;
}
__attribute__((noinline)) double twice(const double *p, const int *x, const int *y, long n) {
  double s = 0;
  for (long i = 0; i < n; i++) s += p[x[y[i]]];
  return s;
}
__attribute__((noinline)) void sort(double *q, int *rank, const int *key, long n) {
  for (long i = 0; i < n; i++) q[--rank[key[i]]] = (double)key[i];
}
static double *table[500];
__attribute__((noinline)) double pointers(double **t, long n, long m) {
  double s = 0;
  for (long i = 0; i < n; i++)
    for (long j = 0; j < m; j++) s += t[i][j];
  return s;
}

int main(void) {
  a = runahead_ooc_alloc(N * 8, NULL);
  b = runahead_ooc_alloc(N * 8, NULL);
  index_ = runahead_ooc_alloc(N * 4, NULL);
  row = runahead_ooc_alloc((N + 1) * 8, NULL);
  if (!a || !b || !index_ || !row) return 1;
  uint64_t s = 88172645463325252u;
  long at = 0;
  for (long i = 0; i < N; i++) {
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    a[i] = (double)(s >> 40) / 1024;
    index_[i] = (int)(s % (N - 3));
    row[i] = at < N ? at : N;
    at += (long)(s >> 20) % 30;
  }
  row[N] = N;
  a[N - 5] = 123456789.5;
  memset(table, 0, sizeof table);
  for (int i = 0; i < 500; i++) table[i] = a + (i * 7919) % (N - 500);
  show("down", down(a, N));
  show("two exits", two_exits(a, N, 1e8));
  show("early", two_exits(a, N, 10000));
  show("find", (double)find(a, 123456789.5));
  show("offset", offset(a, index_, N));
  show("rows", rows(a, index_, row, N));
  show("triangle", triangle(a, 540));
  show("transpose", transpose(b, a, 540));
  show("cube", cube(b, a, 66));
  show("strided", strided(a, N, 700, 700));
  show("narrow", narrow(a, N, 3));
  show("embedding", embedding(a, index_, 4000));
  show("pointers", pointers(table, 500, 500));
  show("twice", twice(a, index_, index_, N));
  static int rank[N];
  for (long i = 0; i < N; i++) rank[index_[i]]++;
  for (long i = 1; i < N; i++) rank[i] += rank[i - 1];
  sort(b, rank, index_, N);
  show("sort", down(b, N));
  scatter(b, index_, N);
  show("scatter", down(b, N));
  return 0;
}
