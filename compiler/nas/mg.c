/* MG (MGRID): V-cycles on a cube with periodic sides, for the Poisson equation. */
#include "common.h"

#define LOG BY_CLASS(5, 7, 8, 8)
#define CYCLES STEPS_OR(BY_CLASS(4, 4, 4, 20))
#define SIDE ((1L << LOG) + 2)
/* All grids one behind the other: each is an eighth of the last, and its sides. */
#define ROOM (SIDE * SIDE * SIDE * 8 / 7 + 64 * SIDE * SIDE)

static double u[ROOM], v[SIDE * SIDE * SIDE], r[ROOM];
static long side[LOG + 1], place[LOG + 1];

static const double a[4] = {-8.0 / 3, 0, 1.0 / 6, 1.0 / 12};
static const double c_small[4] = {-3.0 / 8, 1.0 / 32, -1.0 / 64, 0};
static const double c_large[4] = {-3.0 / 17, 1.0 / 33, -1.0 / 61, 0};

#define AT(i, j, k) (((k) * n + (j)) * n + (i))

/* Copies the sides so that the grid goes on at the other end. */
static void wrap(double *g, long n) {
  for (long k = 1; k < n - 1; k++) {
    for (long j = 1; j < n - 1; j++) {
      g[AT(0, j, k)] = g[AT(n - 2, j, k)];
      g[AT(n - 1, j, k)] = g[AT(1, j, k)];
    }
    for (long i = 0; i < n; i++) {
      g[AT(i, 0, k)] = g[AT(i, n - 2, k)];
      g[AT(i, n - 1, k)] = g[AT(i, 1, k)];
    }
  }
  for (long j = 0; j < n; j++)
    for (long i = 0; i < n; i++) {
      g[AT(i, j, 0)] = g[AT(i, j, n - 2)];
      g[AT(i, j, n - 1)] = g[AT(i, j, 1)];
    }
}

/* out = rhs - A in */
static void residual(const double *in, const double *rhs, double *out, long n) {
  double u1[SIDE], u2[SIDE];
  for (long k = 1; k < n - 1; k++)
    for (long j = 1; j < n - 1; j++) {
      for (long i = 0; i < n; i++) {
        u1[i] = in[AT(i, j - 1, k)] + in[AT(i, j + 1, k)] + in[AT(i, j, k - 1)] + in[AT(i, j, k + 1)];
        u2[i] = in[AT(i, j - 1, k - 1)] + in[AT(i, j + 1, k - 1)] + in[AT(i, j - 1, k + 1)] +
                in[AT(i, j + 1, k + 1)];
      }
      for (long i = 1; i < n - 1; i++)
        out[AT(i, j, k)] = rhs[AT(i, j, k)] - a[0] * in[AT(i, j, k)] -
                           a[2] * (u2[i] + u1[i - 1] + u1[i + 1]) - a[3] * (u2[i - 1] + u2[i + 1]);
    }
  wrap(out, n);
}

/* to += C from */
static void smooth(const double *from, double *to, const double *c, long n) {
  double r1[SIDE], r2[SIDE];
  for (long k = 1; k < n - 1; k++)
    for (long j = 1; j < n - 1; j++) {
      for (long i = 0; i < n; i++) {
        r1[i] = from[AT(i, j - 1, k)] + from[AT(i, j + 1, k)] + from[AT(i, j, k - 1)] +
                from[AT(i, j, k + 1)];
        r2[i] = from[AT(i, j - 1, k - 1)] + from[AT(i, j + 1, k - 1)] + from[AT(i, j - 1, k + 1)] +
                from[AT(i, j + 1, k + 1)];
      }
      for (long i = 1; i < n - 1; i++)
        to[AT(i, j, k)] += c[0] * from[AT(i, j, k)] +
                           c[1] * (from[AT(i - 1, j, k)] + from[AT(i + 1, j, k)] + r1[i]) +
                           c[2] * (r2[i] + r1[i - 1] + r1[i + 1]);
    }
  wrap(to, n);
}

/* Full weighting to the next coarser grid. */
static void restrict_grid(const double *fine, long n, double *coarse, long m) {
  double x1[SIDE], y1[SIDE];
  for (long k = 1; k < m - 1; k++)
    for (long j = 1; j < m - 1; j++) {
      long fk = 2 * k, fj = 2 * j; /* the fine point that the coarse one lies on */
      for (long i = 1; i < m; i++) {
        long fi = 2 * i - 1;
        x1[i] = fine[AT(fi, fj - 1, fk)] + fine[AT(fi, fj + 1, fk)] + fine[AT(fi, fj, fk - 1)] +
                fine[AT(fi, fj, fk + 1)];
        y1[i] = fine[AT(fi, fj - 1, fk - 1)] + fine[AT(fi, fj - 1, fk + 1)] +
                fine[AT(fi, fj + 1, fk - 1)] + fine[AT(fi, fj + 1, fk + 1)];
      }
      for (long i = 1; i < m - 1; i++) {
        long fi = 2 * i;
        double y2 = fine[AT(fi, fj - 1, fk - 1)] + fine[AT(fi, fj - 1, fk + 1)] +
                    fine[AT(fi, fj + 1, fk - 1)] + fine[AT(fi, fj + 1, fk + 1)];
        double x2 = fine[AT(fi, fj - 1, fk)] + fine[AT(fi, fj + 1, fk)] + fine[AT(fi, fj, fk - 1)] +
                    fine[AT(fi, fj, fk + 1)];
        coarse[(k * m + j) * m + i] =
            0.5 * fine[AT(fi, fj, fk)] +
            0.25 * (fine[AT(fi - 1, fj, fk)] + fine[AT(fi + 1, fj, fk)] + x2) +
            0.125 * (x1[i] + x1[i + 1] + y2) + 0.0625 * (y1[i] + y1[i + 1]);
      }
    }
  wrap(coarse, m);
}

/* fine += trilinear interpolation of coarse */
static void prolong(const double *coarse, long m, double *fine, long n) {
  double z1[SIDE], z2[SIDE], z3[SIDE];
#define COARSE(i, j, k) coarse[((k) * m + (j)) * m + (i)]
  for (long k = 0; k < m - 1; k++)
    for (long j = 0; j < m - 1; j++) {
      for (long i = 0; i < m; i++) {
        z1[i] = COARSE(i, j + 1, k) + COARSE(i, j, k);
        z2[i] = COARSE(i, j, k + 1) + COARSE(i, j, k);
        z3[i] = COARSE(i, j + 1, k + 1) + COARSE(i, j, k + 1) + z1[i];
      }
      for (long i = 0; i < m - 1; i++) {
        fine[AT(2 * i, 2 * j, 2 * k)] += COARSE(i, j, k);
        fine[AT(2 * i + 1, 2 * j, 2 * k)] += 0.5 * (COARSE(i + 1, j, k) + COARSE(i, j, k));
      }
      for (long i = 0; i < m - 1; i++) {
        fine[AT(2 * i, 2 * j + 1, 2 * k)] += 0.5 * z1[i];
        fine[AT(2 * i + 1, 2 * j + 1, 2 * k)] += 0.25 * (z1[i] + z1[i + 1]);
      }
      for (long i = 0; i < m - 1; i++) {
        fine[AT(2 * i, 2 * j, 2 * k + 1)] += 0.5 * z2[i];
        fine[AT(2 * i + 1, 2 * j, 2 * k + 1)] += 0.25 * (z2[i] + z2[i + 1]);
      }
      for (long i = 0; i < m - 1; i++) {
        fine[AT(2 * i, 2 * j + 1, 2 * k + 1)] += 0.25 * z3[i];
        fine[AT(2 * i + 1, 2 * j + 1, 2 * k + 1)] += 0.125 * (z3[i] + z3[i + 1]);
      }
    }
}

static void clear(double *g, long n) {
  for (long i = 0; i < n * n * n; i++) g[i] = 0;
}

static double norm(const double *g, long n) {
  double sum = 0;
  for (long k = 1; k < n - 1; k++)
    for (long j = 1; j < n - 1; j++)
      for (long i = 1; i < n - 1; i++) sum += g[AT(i, j, k)] * g[AT(i, j, k)];
  return sqrt(sum / ((double)(n - 2) * (double)(n - 2) * (double)(n - 2)));
}

/* Plus one where the ten greatest random numbers fall, minus one at the ten least. */
static void charges(double *g, long n) {
  uint64_t x = 314159265;
  clear(g, n);
  double great[10], least[10];
  long at_great[10] = {0}, at_least[10] = {0};
  for (int t = 0; t < 10; t++) great[t] = 0, least[t] = 1;
  for (long k = 1; k < n - 1; k++)
    for (long j = 1; j < n - 1; j++)
      for (long i = 1; i < n - 1; i++) {
        double value = next_uniform(&x);
        if (value > great[0]) {
          int t = 0;
          for (; t < 9 && great[t + 1] < value; t++) great[t] = great[t + 1], at_great[t] = at_great[t + 1];
          great[t] = value, at_great[t] = AT(i, j, k);
        }
        if (value < least[0]) {
          int t = 0;
          for (; t < 9 && least[t + 1] > value; t++) least[t] = least[t + 1], at_least[t] = at_least[t + 1];
          least[t] = value, at_least[t] = AT(i, j, k);
        }
      }
  for (int t = 0; t < 10; t++) g[at_great[t]] = 1, g[at_least[t]] = -1;
  wrap(g, n);
}

static void cycle(const double *c) {
  for (int l = LOG; l > 1; l--) restrict_grid(r + place[l], side[l], r + place[l - 1], side[l - 1]);
  clear(u + place[1], side[1]);
  smooth(r + place[1], u + place[1], c, side[1]);
  for (int l = 2; l <= LOG; l++) {
    double *ul = u + place[l], *rl = r + place[l];
    if (l < LOG) clear(ul, side[l]);
    prolong(u + place[l - 1], side[l - 1], ul, side[l]);
    residual(ul, l < LOG ? rl : v, rl, side[l]);
    smooth(rl, ul, c, side[l]);
  }
}

int main(void) {
  const double wanted = BY_CLASS(0.5307707005734e-4, 0.6467329375339e-5, 0.2433365309069e-5,
                                 0.1800564401355e-5);
  const double *c = CLASS == NAS_B ? c_large : c_small;
  long next = 0;
  for (int l = LOG; l >= 1; l--) {
    side[l] = (1L << l) + 2;
    place[l] = next;
    next += side[l] * side[l] * side[l];
  }
  charges(v, SIDE);
  clear(u, SIDE);
  double start = begin();
  residual(u, v, r, SIDE);
  for (int i = 0; i < CYCLES; i++) {
    cycle(c);
    residual(u, v, r, SIDE);
  }
  double result = norm(r, SIDE), time = end(start);
  show("norm", result);
  return finish("MG", near(result, wanted, 1e-8), time);
}
