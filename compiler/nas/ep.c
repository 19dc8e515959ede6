/* EP (EMBAR): Gaussian pairs by the acceptance-rejection method, tallied by ring.
 * As in the specification's out-of-core reading, a batch of numbers at a time is
 * made in memory and then worked through. */
#include "common.h"

#define PAIRS ((uint64_t)1 << BY_CLASS(24, 25, 28, 30))
#define BATCH ((uint64_t)1 << 16)

static double uniform[2 * BATCH];

int main(void) {
  const double want_x = BY_CLASS(-3.247834652034740e3, -2.863319731645753e3, -4.295875165629892e3,
                                 4.033815542441498e4);
  const double want_y = BY_CLASS(-6.958407078382297e3, -6.320053679109499e3, -1.580732573678431e4,
                                 -2.660669192809235e4);
  double start = begin(), sum_x = 0, sum_y = 0;
  uint64_t ring[10] = {0};
  for (uint64_t batch = 0; batch < PAIRS / BATCH; batch++) {
    uint64_t x = skip_ahead(271828183, 2 * BATCH * batch);
    for (uint64_t i = 0; i < 2 * BATCH; i++) uniform[i] = next_uniform(&x);
    for (uint64_t i = 0; i < BATCH; i++) {
      double u = 2 * uniform[2 * i] - 1, v = 2 * uniform[2 * i + 1] - 1;
      double t = u * u + v * v;
      if (t > 1) continue;
      double factor = sqrt(-2 * log(t) / t), gx = u * factor, gy = v * factor;
      ring[(int)fmax(fabs(gx), fabs(gy))]++;
      sum_x += gx;
      sum_y += gy;
    }
  }
  show("sum x", sum_x);
  show("sum y", sum_y);
  for (int i = 0; i < 10; i++) printf("ring %d %llu\n", i, (unsigned long long)ring[i]);
  return finish("EP", near(sum_x, want_x, 1e-8) && near(sum_y, want_y, 1e-8), end(start));
}
