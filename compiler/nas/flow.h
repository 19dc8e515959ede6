/* What BT, SP and LU share: the synthetic Navier-Stokes problem of the specification
 * (section 3 of NAS report RNR-94-007) on a cube of N points a side.
 *
 * Five values a point: density, three momenta, energy. The right-hand side is
 *   L(u) - L(exact)
 * where L has convection, viscosity and a fourth-order dissipation, so that the exact
 * solution (a polynomial) is what the iterations go to. The three directions differ in
 * which momentum is their own and in one constant; each function that is written for
 * `direction` is inlined three times with it a constant.
 *
 * The includer defines N (points a side), before including this. */
#ifndef NAS_FLOW_H
#define NAS_FLOW_H

#include "common.h"

#define CELLS ((long)N * N * N)
#define AT(i, j, k) (((long)(k) * N + (j)) * N + (i))
#define H (1.0 / (N - 1)) /* between two points */

#define C1 1.4
#define C2 0.4
#define C34 0.1   /* c3 c4 */
#define C1345 0.196
#define CON43 (4.0 / 3)
#define DISSIPATION 0.25
/* Second differences, central differences, viscosity. */
#define T1 (1 / (H * H))
#define T2 (1 / (2 * H))
#define VISCOUS (C34 * T1)
/* Artificial diffusion of a direction. */
#define DIFFUSION(direction) ((direction) == 2 ? 1.0 : 0.75)

#define INLINE static inline __attribute__((always_inline))

static double u[CELLS][5], rhs[CELLS][5], forcing[CELLS][5];
static double velocity[3][CELLS], inverse[CELLS], kinetic[CELLS], speed_energy[CELLS];

/* From one point to the next along a direction. */
INLINE long step_of(int direction) { return direction == 0 ? 1 : direction == 1 ? N : (long)N * N; }

static const double exact_coefficient[5][13] = {
    {2, 0, 0, 4, 5, 3, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3},
    {1, 0, 0, 0, 1, 2, 3, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5},
    {2, 2, 0, 0, 0, 2, 3, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4},
    {2, 2, 0, 0, 0, 2, 3, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3},
    {5, 4, 3, 2, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2}};

static void exact_solution(double x, double y, double z, double *out) {
  for (int m = 0; m < 5; m++) {
    const double *c = exact_coefficient[m];
    out[m] = c[0] + x * (c[1] + x * (c[4] + x * (c[7] + x * c[10]))) +
             y * (c[2] + y * (c[5] + y * (c[8] + y * c[11]))) +
             z * (c[3] + z * (c[6] + z * (c[9] + z * c[12])));
  }
}

/* Velocities and energies of all points; speed_energy is the momenta's share. */
static void derive(void) {
  for (long c = 0; c < CELLS; c++) {
    double inv = 1 / u[c][0];
    inverse[c] = inv;
    velocity[0][c] = u[c][1] * inv;
    velocity[1][c] = u[c][2] * inv;
    velocity[2][c] = u[c][3] * inv;
    speed_energy[c] = 0.5 * (u[c][1] * u[c][1] + u[c][2] * u[c][2] + u[c][3] * u[c][3]) * inv;
    kinetic[c] = speed_energy[c] * inv;
  }
}

/* Adds the differences of one direction. */
INLINE void add_fluxes(int direction) {
  const long s = step_of(direction);
  const double diffusion = DIFFUSION(direction) * T1;
  const double *own = velocity[direction];
  for (long k = 1; k < N - 1; k++)
    for (long j = 1; j < N - 1; j++)
      for (long i = 1; i < N - 1; i++) {
        long c = AT(i, j, k), p = c + s, m = c - s;
        rhs[c][0] += diffusion * (u[p][0] - 2 * u[c][0] + u[m][0]) -
                     T2 * (u[p][1 + direction] - u[m][1 + direction]);
        for (int q = 0; q < 3; q++) {
          const double *w = velocity[q];
          double carried = u[p][1 + q] * own[p] - u[m][1 + q] * own[m];
          if (q == direction)
            carried += (u[p][4] - speed_energy[p] - u[m][4] + speed_energy[m]) * C2;
          rhs[c][1 + q] += diffusion * (u[p][1 + q] - 2 * u[c][1 + q] + u[m][1 + q]) +
                           VISCOUS * (q == direction ? CON43 : 1) * (w[p] - 2 * w[c] + w[m]) -
                           T2 * carried;
        }
        rhs[c][4] += diffusion * (u[p][4] - 2 * u[c][4] + u[m][4]) +
                     VISCOUS * (1 - C1 * C1) * (kinetic[p] - 2 * kinetic[c] + kinetic[m]) +
                     VISCOUS / 6 * (own[p] * own[p] - 2 * own[c] * own[c] + own[m] * own[m]) +
                     VISCOUS * C1 * C1 *
                         (u[p][4] * inverse[p] - 2 * u[c][4] * inverse[c] + u[m][4] * inverse[m]) -
                     T2 * ((C1 * u[p][4] - C2 * speed_energy[p]) * own[p] -
                           (C1 * u[m][4] - C2 * speed_energy[m]) * own[m]);
      }
}

/* Fourth differences over the points first..last of a direction. Weights of zero are not
 * looked up: near the walls there is nothing there. */
INLINE void dissipate(int direction, long first, long last, double m2, double m1, double here,
                      double p1, double p2) {
  const long s = step_of(direction);
  long from[3] = {1, 1, 1}, to[3] = {N - 2, N - 2, N - 2};
  from[direction] = first;
  to[direction] = last;
  for (long k = from[2]; k <= to[2]; k++)
    for (long j = from[1]; j <= to[1]; j++)
      for (long i = from[0]; i <= to[0]; i++) {
        long c = AT(i, j, k);
        for (int m = 0; m < 5; m++) {
          double sum = here * u[c][m];
          if (m2 != 0) sum += m2 * u[c - 2 * s][m];
          if (m1 != 0) sum += m1 * u[c - s][m];
          if (p1 != 0) sum += p1 * u[c + s][m];
          if (p2 != 0) sum += p2 * u[c + 2 * s][m];
          rhs[c][m] -= DISSIPATION * sum;
        }
      }
}

INLINE void along(int direction) {
  add_fluxes(direction);
  dissipate(direction, 1, 1, 0, 0, 5, -4, 1);
  dissipate(direction, 2, 2, 0, -4, 6, -4, 1);
  dissipate(direction, 3, N - 4, 1, -4, 6, -4, 1);
  dissipate(direction, N - 3, N - 3, 1, -4, 6, -4, 0);
  dissipate(direction, N - 2, N - 2, 1, -4, 5, 0, 0);
}

/* rhs = forcing + L(u), zero on the walls */
static void right_hand_side(void) {
  derive();
  for (long c = 0; c < CELLS; c++)
    for (int m = 0; m < 5; m++) rhs[c][m] = forcing[c][m];
  along(0);
  along(1);
  along(2);
}

INLINE void scale_right_hand_side(double by) {
  for (long c = 0; c < CELLS; c++)
    for (int m = 0; m < 5; m++) rhs[c][m] *= by;
}

/* u += by * rhs */
INLINE void correct(double by) {
  for (long c = 0; c < CELLS; c++)
    for (int m = 0; m < 5; m++) u[c][m] += by * rhs[c][m];
}

/* forcing = -L(exact) */
static void prepare_forcing(void) {
  for (long k = 0; k < N; k++)
    for (long j = 0; j < N; j++)
      for (long i = 0; i < N; i++)
        exact_solution((double)i * H, (double)j * H, (double)k * H, u[AT(i, j, k)]);
  for (long c = 0; c < CELLS; c++)
    for (int m = 0; m < 5; m++) forcing[c][m] = 0;
  right_hand_side();
  for (long c = 0; c < CELLS; c++)
    for (int m = 0; m < 5; m++) forcing[c][m] = -rhs[c][m];
}

/* The exact solution on the walls, blended between them inside. */
static void initialize(void) {
  for (long k = 0; k < N; k++)
    for (long j = 0; j < N; j++)
      for (long i = 0; i < N; i++) {
        double x = (double)i * H, y = (double)j * H, z = (double)k * H;
        double wall[3][2][5], *out = u[AT(i, j, k)];
        for (int side = 0; side < 2; side++) {
          exact_solution(side, y, z, wall[0][side]);
          exact_solution(x, side, z, wall[1][side]);
          exact_solution(x, y, side, wall[2][side]);
        }
        for (int m = 0; m < 5; m++) {
          double px = x * wall[0][1][m] + (1 - x) * wall[0][0][m];
          double py = y * wall[1][1][m] + (1 - y) * wall[1][0][m];
          double pz = z * wall[2][1][m] + (1 - z) * wall[2][0][m];
          out[m] = px + py + pz - px * py - px * pz - py * pz + px * py * pz;
        }
        int edge = i == 0 || j == 0 || k == 0 || i == N - 1 || j == N - 1 || k == N - 1;
        if (edge) exact_solution(x, y, z, out);
      }
}

/* Jacobian of the convective flux of a direction, at a point. */
INLINE void flux_jacobian(int direction, long c, double f[5][5]) {
  const double *q = u[c];
  double inv = 1 / q[0], inv2 = inv * inv, own = q[1 + direction];
  double ke = 0.5 * (q[1] * q[1] + q[2] * q[2] + q[3] * q[3]) * inv2; /* by mass */
  for (int a = 0; a < 5; a++)
    for (int b = 0; b < 5; b++) f[a][b] = 0;
  f[0][1 + direction] = 1;
  for (int a = 1; a < 4; a++) {
    f[a][0] = -own * q[a] * inv2;
    f[a][1 + direction] += q[a] * inv;
    f[a][a] += own * inv;
  }
  f[1 + direction][0] += C2 * ke;
  for (int b = 1; b < 4; b++) f[1 + direction][b] -= C2 * q[b] * inv;
  f[1 + direction][4] = C2;
  f[4][0] = (C2 * 2 * ke * q[0] - C1 * q[4]) * own * inv2;
  for (int b = 1; b < 4; b++) f[4][b] = -C2 * q[b] * own * inv2;
  f[4][1 + direction] += C1 * q[4] * inv - C2 * ke;
  f[4][4] = C1 * own * inv;
}

/* Jacobian of the viscous flux. */
INLINE void viscous_jacobian(int direction, long c, double v[5][5]) {
  const double *q = u[c];
  double inv = 1 / q[0], inv2 = inv * inv, inv3 = inv2 * inv;
  for (int a = 0; a < 5; a++)
    for (int b = 0; b < 5; b++) v[a][b] = 0;
  v[4][0] = -C1345 * inv2 * q[4];
  for (int a = 1; a < 4; a++) {
    double weight = a == 1 + direction ? CON43 * C34 : C34;
    v[a][0] = -weight * inv2 * q[a];
    v[a][a] = weight * inv;
    v[4][0] -= (weight - C1345) * inv3 * q[a] * q[a];
    v[4][a] = (weight - C1345) * inv2 * q[a];
  }
  v[4][4] = C1345 * inv;
}

/* Root mean squares over the inner points. */
static void norms(int of_error, double *out) {
  for (int m = 0; m < 5; m++) out[m] = 0;
  for (long k = 1; k < N - 1; k++)
    for (long j = 1; j < N - 1; j++)
      for (long i = 1; i < N - 1; i++) {
        double exact[5] = {0};
        long c = AT(i, j, k);
        if (of_error) exact_solution((double)i * H, (double)j * H, (double)k * H, exact);
        for (int m = 0; m < 5; m++) {
          double d = of_error ? u[c][m] - exact[m] : rhs[c][m];
          out[m] += d * d;
        }
      }
  for (int m = 0; m < 5; m++) out[m] = sqrt(out[m] / ((N - 2.0) * (N - 2.0) * (N - 2.0)));
}

/* Shows residual and error, and says whether they are the specification's. */
static int check(const double *residual, const double wanted_residual[5],
                 const double wanted_error[5]) {
  double error[5];
  int verified = 1;
  norms(1, error);
  for (int m = 0; m < 5; m++) {
    show("residual", residual[m]);
    verified &= near(residual[m], wanted_residual[m], 1e-8);
  }
  for (int m = 0; m < 5; m++) {
    show("error", error[m]);
    verified &= near(error[m], wanted_error[m], 1e-8);
  }
  return verified;
}
#endif
