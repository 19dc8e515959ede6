/* CG (CGM): the smallest eigenvalue of a random sparse matrix by inverse power
 * iteration, each step 25 iterations of conjugate gradients. */
#include "common.h"

#define N BY_CLASS(1400, 7000, 14000, 75000)
#define PER_VECTOR BY_CLASS(7, 8, 11, 13)
#define STEPS STEPS_OR(BY_CLASS(15, 15, 15, 75))
#define SHIFT BY_CLASS(10.0, 12.0, 20.0, 60.0)
#define CONDITION 0.1
#define MOST ((long)N * (PER_VECTOR + 1) * (PER_VECTOR + 1))

static double value[MOST], x[N], z[N], p[N], q[N], r[N];
static int column[MOST], row[N + 1];
/* Of the generator. */
static int vector_index[N][PER_VECTOR + 1], vector_length[N], row_end[N];
static double vector_value[N][PER_VECTOR + 1];

/* A sparse vector of distinct random places; its own place gets the value 1/2. */
static void make_vector(int i, uint64_t *seed, int power) {
  int n = 0;
  while (n < PER_VECTOR) {
    double v = next_uniform(seed), where = next_uniform(seed);
    int at = (int)(where * power);
    if (at >= N) continue;
    int known = 0;
    for (int k = 0; k < n; k++) known |= vector_index[i][k] == at;
    if (known) continue;
    vector_index[i][n] = at;
    vector_value[i][n++] = v;
  }
  int own = -1;
  for (int k = 0; k < n; k++)
    if (vector_index[i][k] == i) own = k;
  if (own < 0) {
    own = n++;
    vector_index[i][own] = i;
  }
  vector_value[i][own] = 0.5;
  vector_length[i] = n;
}

/* The sum of the outer products of the vectors, with falling weights. */
static void make_matrix(uint64_t *seed) {
  int power = 1;
  while (power < N) power *= 2;
  for (int i = 0; i < N; i++) make_vector(i, seed, power);
  static int room[N + 1];
  for (int i = 0; i < N; i++)
    for (int k = 0; k < vector_length[i]; k++) room[vector_index[i][k] + 1] += vector_length[i];
  for (int i = 0; i < N; i++) room[i + 1] += room[i];
  for (int i = 0; i < N; i++) row_end[i] = room[i];
  double weight = 1, ratio = pow(CONDITION, 1.0 / N);
  for (int i = 0; i < N; i++, weight *= ratio)
    for (int k = 0; k < vector_length[i]; k++) {
      int j = vector_index[i][k];
      double scale = weight * vector_value[i][k];
      for (int l = 0; l < vector_length[i]; l++) {
        int c = vector_index[i][l];
        double v = vector_value[i][l] * scale;
        if (c == j && j == i) v += CONDITION - SHIFT;
        int at = room[j];
        while (at < row_end[j] && column[at] < c) at++;
        if (at == row_end[j] || column[at] != c) {
          for (int m = row_end[j]++; m > at; m--) {
            column[m] = column[m - 1];
            value[m] = value[m - 1];
          }
          column[at] = c;
          value[at] = 0;
        }
        value[at] += v;
      }
    }
  int next = 0;
  for (int j = 0; j < N; j++) {
    row[j] = next;
    for (int at = room[j]; at < row_end[j]; at++, next++) {
      value[next] = value[at];
      column[next] = column[at];
    }
  }
  row[N] = next;
}

static double dot(const double *a, const double *b) {
  double sum = 0;
  for (int i = 0; i < N; i++) sum += a[i] * b[i];
  return sum;
}

static void multiply(double *out, const double *in) {
  for (int i = 0; i < N; i++) {
    double sum = 0;
    for (int j = row[i]; j < row[i + 1]; j++) sum += value[j] * in[column[j]];
    out[i] = sum;
  }
}

/* Solves A z = x; returns the residual's norm. */
static double solve(void) {
  for (int i = 0; i < N; i++) {
    z[i] = q[i] = 0;
    r[i] = p[i] = x[i];
  }
  double rho = dot(r, r);
  for (int step = 0; step < 25; step++) {
    multiply(q, p);
    double alpha = rho / dot(p, q), before = rho;
    for (int i = 0; i < N; i++) {
      z[i] += alpha * p[i];
      r[i] -= alpha * q[i];
    }
    rho = dot(r, r);
    double beta = rho / before;
    for (int i = 0; i < N; i++) p[i] = r[i] + beta * p[i];
  }
  multiply(r, z);
  double sum = 0;
  for (int i = 0; i < N; i++) sum += (x[i] - r[i]) * (x[i] - r[i]);
  return sqrt(sum);
}

int main(void) {
  const double wanted = BY_CLASS(8.5971775078648, 10.362595087124, 17.130235054029, 22.712745482631);
  uint64_t seed = 314159265;
  next_uniform(&seed);
  make_matrix(&seed);
  for (int i = 0; i < N; i++) x[i] = 1;
  double start = begin(), zeta = 0, residual = 0;
  for (int step = 0; step < STEPS; step++) {
    residual = solve();
    zeta = SHIFT + 1 / dot(x, z);
    double scale = 1 / sqrt(dot(z, z));
    for (int i = 0; i < N; i++) x[i] = scale * z[i];
  }
  double time = end(start);
  show("zeta", zeta);
  show("residual", residual);
  return finish("CG", near(zeta, wanted, 1e-10), time);
}
