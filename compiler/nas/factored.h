/* What BT and SP share beyond flow.h: implicit time steps that are factored by direction,
 * each factor solved line by line of points.
 *
 * The includer defines N before including this, and solve_line and time_step behind it. */
#ifndef NAS_FACTORED_H
#define NAS_FACTORED_H

#include "flow.h"

/* One line of points along a direction, the first of which is `start`. */
INLINE void solve_line(int direction, long start);
static void time_step(void);

INLINE void solve_lines(int direction) {
  const long outer = direction == 2 ? N : (long)N * N, inner = direction == 0 ? N : 1;
  for (long a = 1; a < N - 1; a++)
    for (long b = 1; b < N - 1; b++) solve_line(direction, a * outer + b * inner);
}

static int run(const char *name, int steps, const double wanted_residual[4][5],
               const double wanted_error[4][5]) {
  prepare_forcing();
  initialize();
  double start = begin();
  for (int step = 0; step < steps; step++) time_step();
  double time = end(start), residual[5];
  right_hand_side();
  norms(0, residual);
  return finish(name, check(residual, wanted_residual[CLASS - 1], wanted_error[CLASS - 1]), time);
}
#endif
