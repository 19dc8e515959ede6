/* IS (BUK): ranking of integer keys by counting. */
#include "common.h"

/* nas/sweep.sh sets another number; then the ranks are not those of a class: their sum is
 * shown, for two builds to agree on. */
#ifdef SWEEP_KEYS
#define KEYS (SWEEP_KEYS)
#else
#define KEYS (1L << BY_CLASS(16, 20, 23, 25))
#endif
#define MAX_KEY (1L << BY_CLASS(11, 16, 19, 21))
#define ITERATIONS STEPS_OR(10)
#define TESTS 5

static int key[KEYS], rank_of_value[MAX_KEY], sorted[KEYS];

static void make_keys(void) {
  uint64_t x = 314159265;
  for (long i = 0; i < KEYS; i++) {
    double sum = next_uniform(&x);
    sum += next_uniform(&x);
    sum += next_uniform(&x);
    sum += next_uniform(&x);
    key[i] = (int)((double)(MAX_KEY / 4) * sum);
  }
}

static void rank_keys(void) {
  for (long i = 0; i < MAX_KEY; i++) rank_of_value[i] = 0;
  for (long i = 0; i < KEYS; i++) rank_of_value[key[i]]++;
  for (long i = 1; i < MAX_KEY; i++) rank_of_value[i] += rank_of_value[i - 1];
}

/* The ranks that the specification lists move with the iteration, up or down. */
static int partial_verify(int iteration, const int *value) {
  static const int wanted[4][TESTS] = {{0, 18, 346, 64917, 65463},
                                       {1249, 11698, 1039987, 1043896, 1048018},
                                       {104, 17523, 123928, 8288932, 8388264},
                                       {33422937, 10244, 59149, 33135281, 99}};
  int passed = 0;
  for (int i = 0; i < TESTS; i++) {
    if (value[i] <= 0 || value[i] >= KEYS) continue;
    int up, by = iteration;
    if (CLASS == NAS_S) up = i <= 2;
    else if (CLASS == NAS_W) up = i < 2, by = up ? iteration - 2 : iteration;
    else if (CLASS == NAS_A) up = i <= 2, by = iteration - 1;
    else up = i == 1 || i == 2 || i == 4;
    int rank = rank_of_value[value[i] - 1];
    passed += rank == wanted[CLASS - 1][i] + (up ? by : -by);
  }
  return passed;
}

int main(void) {
  static const int place[4][TESTS] = {{48427, 17148, 23627, 62548, 4431},
                                      {357773, 934767, 875723, 898999, 404505},
                                      {2112377, 662041, 5336171, 3642833, 4250760},
                                      {41869, 812306, 5102857, 18232239, 26860214}};
  int passed = 0;
  make_keys();
  double start = begin();
  for (int iteration = 1; iteration <= ITERATIONS; iteration++) {
    key[iteration] = iteration;
    key[iteration + ITERATIONS] = (int)(MAX_KEY - iteration);
    int value[TESTS];
    for (int i = 0; i < TESTS; i++) value[i] = key[place[CLASS - 1][i] % KEYS];
    rank_keys();
    passed += partial_verify(iteration, value);
  }
  double time = end(start);
#if defined SWEEP_KEYS || defined NAS_STEPS
  /* Not sorted: that is not timed, and takes a read for each key where memory is short. */
  double sum = 0;
  for (long i = 0; i < MAX_KEY; i++) sum += (double)rank_of_value[i] * (double)(1 + i % 7);
  show("ranks", sum);
  return finish("IS", 1, time);
#endif
  for (long i = 0; i < KEYS; i++) sorted[--rank_of_value[key[i]]] = key[i];
  long wrong = 0;
  for (long i = 1; i < KEYS; i++) wrong += sorted[i - 1] > sorted[i];
  printf("ranks %d of %d, out of order %ld\n", passed, TESTS * ITERATIONS, wrong);
  return finish("IS", passed == TESTS * ITERATIONS && wrong == 0, time);
}
