/* What the NAS benchmarks share: the pseudo-random numbers of the specification
 * (x <- 5^13 x mod 2^46), the clock, and how a result is shown.
 *
 * Written from NAS report RNR-94-007. A program prints its figures' bits, so that two
 * builds can be compared exactly, and whether they verify. */
#ifndef NAS_COMMON_H
#define NAS_COMMON_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../kernels/stall.h"

#define NAS_S 1
#define NAS_W 2
#define NAS_A 3
#define NAS_B 4
#ifndef CLASS
#define CLASS NAS_S
#endif
/* One value for each class. */
#define BY_CLASS(s, w, a, b) (CLASS == NAS_S ? (s) : CLASS == NAS_W ? (w) : CLASS == NAS_A ? (a) : (b))

/* Out of core a class takes as many times its data's reading as it has steps; with
 * -DNAS_STEPS=n only n are made, and there is nothing to verify but that two builds
 * agree. */
#ifdef NAS_STEPS
#define STEPS_OR(all) (NAS_STEPS)
#else
#define STEPS_OR(all) (all)
#endif

#define MULTIPLIER 1220703125u /* 5^13 */
#define MASK46 (((uint64_t)1 << 46) - 1)

/* The next number in (0, 1). */
static inline double next_uniform(uint64_t *x) {
  *x = *x * MULTIPLIER & MASK46;
  return (double)*x * 0x1p-46;
}

/* The seed n numbers later. */
static inline uint64_t skip_ahead(uint64_t x, uint64_t n) {
  uint64_t power = MULTIPLIER;
  for (; n; n >>= 1, power = power * power & MASK46)
    if (n & 1) x = x * power & MASK46;
  return x;
}

static inline void show(const char *what, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  printf("%s %.13e %016llx\n", what, value, (unsigned long long)bits);
}

static inline int near(double value, double wanted, double epsilon) {
  return fabs((value - wanted) / wanted) <= epsilon;
}

static inline int finish(const char *name, int verified, double time) {
#ifdef NAS_STEPS
  printf("%s class %c not verified: %d steps only\n", name, "?SWAB"[CLASS], NAS_STEPS);
  verified = 1;
#else
  printf("%s class %c verification %s\n", name, "?SWAB"[CLASS],
         verified ? "successful" : "FAILED");
#endif
  fprintf(stderr, "%s seconds %.3f stalled %.3f\n", name, time, stalled);
  return !verified;
}
#endif
