/* BT (APPBT): implicit time steps, factored by direction, each factor block tridiagonal
 * with blocks of 5 by 5. */
#include "common.h"
#define N BY_CLASS(12, 24, 64, 102)
#include "factored.h"

#define STEPS STEPS_OR(BY_CLASS(60, 200, 200, 200))
#define DT BY_CLASS(0.01, 0.0008, 0.0008, 0.0003)

typedef double block[5][5];

/* b -= a c */
INLINE void subtract_product(block a, block c, block b) {
  for (int m = 0; m < 5; m++)
    for (int l = 0; l < 5; l++)
      for (int n = 0; n < 5; n++) b[m][l] -= a[m][n] * c[n][l];
}

/* Solves b (c, r) for both in place, without pivots: the blocks are near a multiple of one. */
INLINE void solve_block(block b, block c, double *r) {
  for (int p = 0; p < 5; p++) {
    double pivot = 1 / b[p][p];
    for (int l = p + 1; l < 5; l++) b[p][l] *= pivot;
    for (int l = 0; l < 5; l++) c[p][l] *= pivot;
    r[p] *= pivot;
    for (int m = 0; m < 5; m++) {
      if (m == p) continue;
      double factor = b[m][p];
      for (int l = p + 1; l < 5; l++) b[m][l] -= factor * b[p][l];
      for (int l = 0; l < 5; l++) c[m][l] -= factor * c[p][l];
      r[m] -= factor * r[p];
    }
  }
}

INLINE void solve_line(int direction, long start) {
  const long s = step_of(direction);
  static block flux[N], viscous[N], upper[N];
  for (long i = 0; i < N; i++) {
    flux_jacobian(direction, start + i * s, flux[i]);
    viscous_jacobian(direction, start + i * s, viscous[i]);
  }
  const double t1 = DT * T1, t2 = DT * T2, diffusion = t1 * DIFFUSION(direction);
  for (int m = 0; m < 5; m++)
    for (int l = 0; l < 5; l++) upper[0][m][l] = 0;
  for (long i = 1; i < N - 1; i++) {
    block lower, middle;
    for (int m = 0; m < 5; m++)
      for (int l = 0; l < 5; l++) {
        double one = m == l;
        lower[m][l] = -t2 * flux[i - 1][m][l] - t1 * viscous[i - 1][m][l] - diffusion * one;
        middle[m][l] = one + 2 * t1 * viscous[i][m][l] + 2 * diffusion * one;
        upper[i][m][l] = t2 * flux[i + 1][m][l] - t1 * viscous[i + 1][m][l] - diffusion * one;
      }
    double *here = rhs[start + i * s], *before = rhs[start + (i - 1) * s];
    for (int m = 0; m < 5; m++)
      for (int n = 0; n < 5; n++) here[m] -= lower[m][n] * before[n];
    subtract_product(lower, upper[i - 1], middle);
    solve_block(middle, upper[i], here);
  }
  for (long i = N - 3; i >= 1; i--) {
    double *here = rhs[start + i * s], *behind = rhs[start + (i + 1) * s];
    for (int m = 0; m < 5; m++)
      for (int n = 0; n < 5; n++) here[m] -= upper[i][m][n] * behind[n];
  }
}

static void time_step(void) {
  right_hand_side();
  scale_right_hand_side(DT);
  solve_lines(0);
  solve_lines(1);
  solve_lines(2);
  correct(1);
}

static const double wanted_residual[4][5] = {
    {1.7034283709541311e-01, 1.2975252070034097e-02, 3.2527926989486055e-02,
     2.6436421275166801e-02, 1.9211784131744430e-01},
    {1.125590409344e+02, 1.180007595731e+01, 2.710329767846e+01, 2.469174937669e+01,
     2.638427874317e+02},
    {1.0806346714637264e+02, 1.1319730901220813e+01, 2.5974354511582465e+01,
     2.3665622544678910e+01, 2.5278963211748344e+02},
    {1.4233597229287254e+03, 9.9330522590150238e+01, 3.5646025644535285e+02,
     3.2485447959084092e+02, 3.2707541254659363e+03}};
static const double wanted_error[4][5] = {
    {4.9976913345811579e-04, 4.5195666782961927e-05, 7.3973765172921357e-05,
     7.3821238632439731e-05, 8.9269630987491446e-04},
    {4.419655736008, 4.638531260002e-01, 1.011551749967, 9.235878729944e-01, 1.018045837718e+01},
    {4.2348416040525025, 4.4390282496995698e-01, 9.6692480136345650e-01, 8.8302063039765474e-01,
     9.7379901770829278},
    {5.2969847140936856e+01, 4.4632896115670668, 1.3122573342210174e+01, 1.2006925323559144e+01,
     1.2459576151035986e+02}};

int main(void) { return run("BT", STEPS, wanted_residual, wanted_error); }
