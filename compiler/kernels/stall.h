/* How long a stretch of a program took, and how much of that it stood still: neither on a
 * processor nor waiting for one. That is its stall for the disk; there is nothing else here
 * to wait for. One thread, one stretch at a time.
 *
 * With STALL_PAUSE set the program stops itself before the stretch, until it is told to go on:
 * whoever measures lowers its memory then, so that making the data is not part of it. */
#ifndef STALL_H
#define STALL_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double busy_at_begin, stalled;

static inline double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds on a processor or in the queue for one. */
static inline double busy(void) {
  unsigned long long running = 0, queued = 0;
  FILE *f = fopen("/proc/thread-self/schedstat", "r");
  if (!f || fscanf(f, "%llu %llu", &running, &queued) != 2) running = queued = 0;
  if (f) fclose(f);
  return 1e-9 * (double)(running + queued);
}

static inline double begin(void) {
  if (getenv("STALL_PAUSE")) raise(SIGSTOP);
  busy_at_begin = busy();
  return seconds();
}

static inline double end(double start) {
  double time = seconds() - start;
  stalled = time - (busy() - busy_at_begin);
  if (stalled < 0) stalled = 0;
  return time;
}
#endif
