/* LU (APPLU): implicit time steps by symmetric successive over-relaxation: a sweep over
 * the lower and one over the upper triangle, a block of 5 by 5 solved at each point. */
#include "common.h"
#define N BY_CLASS(12, 33, 64, 102)
#include "flow.h"

#define STEPS STEPS_OR(BY_CLASS(50, 300, 250, 250))
#define DT BY_CLASS(0.5, 1.5e-3, 2.0, 2.0)
#define OMEGA 1.2

/* out += sign * the block that couples a point to its neighbour c, times rhs[c]. The
 * sign of the flux says on which side the neighbour lies. */
INLINE void couple(int direction, double side, long c, double *out) {
  double flux[5][5], viscous[5][5];
  flux_jacobian(direction, c, flux);
  viscous_jacobian(direction, c, viscous);
  const double *v = rhs[c];
  for (int m = 0; m < 5; m++)
    for (int n = 0; n < 5; n++) {
      double entry = side * DT * T2 * flux[m][n] - DT * T1 * viscous[m][n] -
                     (m == n) * DT * T1 * DIFFUSION(direction);
      out[m] += entry * v[n];
    }
}

/* Solves the diagonal block of a point. */
INLINE void solve_diagonal(long c, double *r) {
  double d[5][5], viscous[5][5];
  for (int m = 0; m < 5; m++)
    for (int n = 0; n < 5; n++)
      d[m][n] = m == n ? 1 + 2 * DT * T1 * (DIFFUSION(0) + DIFFUSION(1) + DIFFUSION(2)) : 0;
  for (int direction = 0; direction < 3; direction++) {
    viscous_jacobian(direction, c, viscous);
    for (int m = 0; m < 5; m++)
      for (int n = 0; n < 5; n++) d[m][n] += 2 * DT * T1 * viscous[m][n];
  }
  for (int p = 0; p < 5; p++)
    for (int m = p + 1; m < 5; m++) {
      double factor = d[m][p] / d[p][p];
      for (int n = p + 1; n < 5; n++) d[m][n] -= factor * d[p][n];
      r[m] -= factor * r[p];
    }
  for (int p = 4; p >= 0; p--) {
    for (int n = p + 1; n < 5; n++) r[p] -= d[p][n] * r[n];
    r[p] /= d[p][p];
  }
}

static void lower_sweep(void) {
  for (long k = 1; k < N - 1; k++)
    for (long j = 1; j < N - 1; j++)
      for (long i = 1; i < N - 1; i++) {
        long c = AT(i, j, k);
        double sum[5] = {0};
        couple(2, -1, AT(i, j, k - 1), sum);
        couple(1, -1, AT(i, j - 1, k), sum);
        couple(0, -1, AT(i - 1, j, k), sum);
        for (int m = 0; m < 5; m++) rhs[c][m] -= OMEGA * sum[m];
        solve_diagonal(c, rhs[c]);
      }
}

static void upper_sweep(void) {
  for (long k = N - 2; k >= 1; k--)
    for (long j = N - 2; j >= 1; j--)
      for (long i = N - 2; i >= 1; i--) {
        long c = AT(i, j, k);
        double sum[5] = {0};
        couple(2, 1, AT(i, j, k + 1), sum);
        couple(1, 1, AT(i, j + 1, k), sum);
        couple(0, 1, AT(i + 1, j, k), sum);
        for (int m = 0; m < 5; m++) sum[m] *= OMEGA;
        solve_diagonal(c, sum);
        for (int m = 0; m < 5; m++) rhs[c][m] -= sum[m];
      }
}

static void time_step(void) {
  scale_right_hand_side(DT);
  lower_sweep();
  upper_sweep();
  correct(1 / (OMEGA * (2 - OMEGA)));
  right_hand_side();
}

/* The pressure at a point. */
static double pressure(long i, long j, long k) {
  const double *q = u[AT(i, j, k)];
  return C2 * (q[4] - 0.5 * (q[1] * q[1] + q[2] * q[2] + q[3] * q[3]) / q[0]);
}

/* The pressure over the walls of a box inside, by the trapezoidal rule. */
static double surface_integral(void) {
  const long i1 = 1, i2 = N - 2, j1 = 1, j2 = N - 3, k1 = 2, k2 = N - 2;
  double sum = 0;
  for (long j = j1; j < j2; j++)
    for (long i = i1; i < i2; i++)
      for (int side = 0; side < 2; side++) {
        long k = side ? k2 : k1;
        sum += pressure(i, j, k) + pressure(i + 1, j, k) + pressure(i, j + 1, k) +
               pressure(i + 1, j + 1, k);
      }
  for (long k = k1; k < k2; k++)
    for (long i = i1; i < i2; i++)
      for (int side = 0; side < 2; side++) {
        long j = side ? j2 : j1;
        sum += pressure(i, j, k) + pressure(i + 1, j, k) + pressure(i, j, k + 1) +
               pressure(i + 1, j, k + 1);
      }
  for (long k = k1; k < k2; k++)
    for (long j = j1; j < j2; j++)
      for (int side = 0; side < 2; side++) {
        long i = side ? i2 : i1;
        sum += pressure(i, j, k) + pressure(i, j + 1, k) + pressure(i, j, k + 1) +
               pressure(i, j + 1, k + 1);
      }
  return 0.25 * sum * H * H;
}

static const double wanted_residual[4][5] = {
    {1.6196343210976702e-02, 2.1976745164821318e-03, 1.5179927653399185e-03,
     1.5029584435994323e-03, 3.4264073155896461e-02},
    {1.236511638192e+01, 1.317228477799, 2.550120713095, 2.326187750252, 2.826799444189e+01},
    {7.7902107606689367e+02, 6.3402765259692870e+01, 1.9499249727292479e+02,
     1.7845301160418537e+02, 1.8384760349464247e+03},
    {3.5532672969982736e+03, 2.6214750795310692e+02, 8.8333721850952190e+02,
     7.7812774739425265e+02, 7.3087969592545314e+03}};
static const double wanted_error[4][5] = {
    {6.4223319957960924e-04, 8.4144342047347926e-05, 5.8588269616485186e-05,
     5.8474222595157350e-05, 1.3103347914111294e-03},
    {4.867877144216e-01, 5.064652880982e-02, 9.281818101960e-02, 8.570126542733e-02,
     1.084277417792},
    {2.9964085685471943e+01, 2.8194576365003349, 7.3473412698774742, 6.7139225687777051,
     7.0715315688392578e+01},
    {1.1401176380212709e+02, 8.1098963655421574, 2.8480597317698308e+01, 2.5905394567832939e+01,
     2.6054907504857413e+02}};
static const double wanted_integral[4] = {7.8418928865937083, 1.161399311023e+01,
                                          2.6030925604886277e+01, 4.7887162703308227e+01};

int main(void) {
  prepare_forcing();
  initialize();
  right_hand_side();
  double start = begin();
  for (int step = 0; step < STEPS; step++) time_step();
  double time = end(start), residual[5], integral = surface_integral();
  norms(0, residual);
  show("integral", integral);
  int verified = check(residual, wanted_residual[CLASS - 1], wanted_error[CLASS - 1]) &&
                 near(integral, wanted_integral[CLASS - 1], 1e-8);
  return finish("LU", verified, time);
}
