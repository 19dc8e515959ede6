/* SP (APPSP): implicit time steps, factored by direction; each factor is made diagonal
 * in the five values by its eigenvectors, which leaves scalar systems with five diagonals. */
#include "common.h"
#define N BY_CLASS(12, 36, 64, 102)
#include "factored.h"

#define STEPS STEPS_OR(BY_CLASS(100, 400, 400, 400))
#define DT BY_CLASS(0.015, 0.0015, 0.0015, 0.001)
#define ROOT_HALF 0.70710678118654752440

static double sound[CELLS];

static void sound_speed(void) {
  for (long c = 0; c < CELLS; c++)
    sound[c] = sqrt(C1 * C2 * inverse[c] * (u[c][4] - speed_energy[c]));
}

/* For all inner points, with the name of the point. */
#define INNER(c)                                              \
  for (long k_ = 1; k_ < N - 1; k_++)                         \
    for (long j_ = 1; j_ < N - 1; j_++)                       \
      for (long c = AT(1, j_, k_), end_ = c + N - 2; c < end_; c++)

/* To the eigenvectors of the first direction. */
static void into_first(void) {
  INNER(c) {
    double *r = rhs[c], a = sound[c], inv = inverse[c];
    double x = velocity[0][c], y = velocity[1][c], z = velocity[2][c];
    double r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3], r4 = r[4];
    double t1 = C2 / (a * a) * (kinetic[c] * r0 - x * r1 - y * r2 - z * r3 + r4);
    double t2 = ROOT_HALF * inv * (x * r0 - r1), t3 = ROOT_HALF * inv * a * t1;
    r[0] = r0 - t1;
    r[1] = -inv * (z * r0 - r3);
    r[2] = inv * (y * r0 - r2);
    r[3] = -t2 + t3;
    r[4] = t2 + t3;
  }
}

/* From those of the first direction to those of the second, */
static void first_to_second(void) {
  INNER(c) {
    double *r = rhs[c], r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3], r4 = r[4];
    double t1 = ROOT_HALF * r2, t2 = 0.5 * (r3 + r4);
    r[0] = -r1;
    r[1] = r0;
    r[2] = ROOT_HALF * (r3 - r4);
    r[3] = -t1 + t2;
    r[4] = t1 + t2;
  }
}

/* from those to the third's, */
static void second_to_third(void) {
  INNER(c) {
    double *r = rhs[c], r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3], r4 = r[4];
    double t1 = ROOT_HALF * r0, t2 = 0.5 * (r3 + r4);
    r[0] = ROOT_HALF * (r3 - r4);
    r[1] = -r2;
    r[2] = r1;
    r[3] = -t1 + t2;
    r[4] = t1 + t2;
  }
}

/* and back. */
static void from_third(void) {
  INNER(c) {
    double *r = rhs[c], r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3], r4 = r[4];
    double x = velocity[0][c], y = velocity[1][c], z = velocity[2][c], a = sound[c];
    double density = u[c][0], scaled = ROOT_HALF * density;
    double t1 = scaled / a * (r3 + r4), t2 = r2 + t1, t3 = scaled * (r3 - r4);
    r[0] = t2;
    r[1] = -density * r1 + x * t2;
    r[2] = density * r0 + y * t2;
    r[3] = z * t2 + t3;
    r[4] = density * (-x * r1 + y * r0) + kinetic[c] * t2 + a * a / C2 * t1 + z * t3;
  }
}

/* Eliminates two rows below row i, for the values first..last of the right-hand side. */
INLINE void eliminate(double (*d)[5], long i, long start, long s, int first, int last) {
  double pivot = 1 / d[i][2];
  d[i][3] *= pivot;
  d[i][4] *= pivot;
  double below = d[i + 1][1];
  d[i + 1][2] -= below * d[i][3];
  d[i + 1][3] -= below * d[i][4];
  double *r = rhs[start + i * s], *r1 = rhs[start + (i + 1) * s];
  for (int m = first; m <= last; m++) {
    r[m] *= pivot;
    r1[m] -= below * r[m];
  }
  if (i + 2 >= N) return;
  double second = d[i + 2][0];
  d[i + 2][1] -= second * d[i][3];
  d[i + 2][2] -= second * d[i][4];
  double *r2 = rhs[start + (i + 2) * s];
  for (int m = first; m <= last; m++) r2[m] -= second * r[m];
}

INLINE void solve_five(double (*d)[5], long start, long s, int first, int last) {
  for (long i = 0; i < N - 1; i++) eliminate(d, i, start, s, first, last);
  for (int m = first; m <= last; m++) {
    rhs[start + (N - 1) * s][m] /= d[N - 1][2];
    rhs[start + (N - 2) * s][m] -= d[N - 2][3] * rhs[start + (N - 1) * s][m];
  }
  for (long i = N - 3; i >= 0; i--)
    for (int m = first; m <= last; m++)
      rhs[start + i * s][m] -= d[i][3] * rhs[start + (i + 1) * s][m] +
                               d[i][4] * rhs[start + (i + 2) * s][m];
}

INLINE void solve_line(int direction, long start) {
  const long s = step_of(direction);
  static double slow[N][5], plus[N][5], minus[N][5], radius[N];
  const double *own = velocity[direction];
  const double t1 = DT * T1, t2 = DT * T2, fourth = DT * DISSIPATION;
  const double diffusion = DIFFUSION(direction);
  for (long i = 0; i < N; i++) {
    double viscous = C34 * inverse[start + i * s];
    double most = fmax(diffusion + CON43 * viscous, diffusion + C1 * C1 * viscous);
    radius[i] = fmax(most, fmax(diffusion + viscous, diffusion));
  }
  for (int l = 0; l < 5; l++) slow[0][l] = slow[N - 1][l] = l == 2;
  for (long i = 1; i < N - 1; i++) {
    long c = start + i * s;
    slow[i][0] = 0;
    slow[i][1] = -t2 * own[c - s] - t1 * radius[i - 1];
    slow[i][2] = 1 + 2 * t1 * radius[i];
    slow[i][3] = t2 * own[c + s] - t1 * radius[i + 1];
    slow[i][4] = 0;
  }
  for (long i = 1; i < N - 1; i++) {
    if (i > 2) slow[i][0] += fourth;
    if (i > 1) slow[i][1] -= 4 * fourth;
    slow[i][2] += (i == 1 || i == N - 2 ? 5 : 6) * fourth;
    if (i < N - 2) slow[i][3] -= 4 * fourth;
    if (i < N - 3) slow[i][4] += fourth;
  }
  for (long i = 0; i < N; i++)
    for (int l = 0; l < 5; l++) plus[i][l] = minus[i][l] = slow[i][l];
  for (long i = 1; i < N - 1; i++) {
    long c = start + i * s;
    plus[i][1] -= t2 * sound[c - s];
    plus[i][3] += t2 * sound[c + s];
    minus[i][1] += t2 * sound[c - s];
    minus[i][3] -= t2 * sound[c + s];
  }
  solve_five(slow, start, s, 0, 2);
  solve_five(plus, start, s, 3, 3);
  solve_five(minus, start, s, 4, 4);
}

static void time_step(void) {
  right_hand_side();
  sound_speed();
  scale_right_hand_side(DT);
  into_first();
  solve_lines(0);
  first_to_second();
  solve_lines(1);
  second_to_third();
  solve_lines(2);
  from_third();
  correct(1);
}

static const double wanted_residual[4][5] = {
    {2.7470315451339479e-02, 1.0360746705285417e-02, 1.6235745065095532e-02,
     1.5840557224455615e-02, 3.4849040609362460e-02},
    {1.893253733584e-03, 1.717075447775e-04, 2.778153350936e-04, 2.887475409984e-04,
     3.143611161242e-03},
    {2.4799822399300195, 1.1276337964368832, 1.5028977888770491, 1.4217816211695179,
     2.1292113035138280},
    {6.903293579998e+01, 3.095134488084e+01, 4.103336647017e+01, 3.864769009604e+01,
     5.643482272596e+01}};
static const double wanted_error[4][5] = {
    {2.7289258557377227e-05, 1.0364446640837285e-05, 1.6154798287166471e-05,
     1.5750704994480102e-05, 3.4177666183390531e-05},
    {7.542088599534e-05, 6.512852253086e-06, 1.049092285688e-05, 1.128838671535e-05,
     1.212845639773e-04},
    {1.0900140297820550e-04, 3.7343951769282091e-05, 5.0092785406541633e-05,
     4.7671093939528255e-05, 1.3621613399213001e-04},
    {9.810006190188e-03, 1.022827905670e-03, 1.720597911692e-03, 1.694479428231e-03,
     1.847456263981e-02}};

int main(void) { return run("SP", STEPS, wanted_residual, wanted_error); }
