// A signal handler may copy much, wherever it interrupts: in the run-time layer its copy is a
// plain one, and on no copy's way memory is allocated or a thread started.
// RUN: %plaincc -O1 -I%runtime %s %build/librunahead_ooc.a -lpthread -Wl,--wrap=adapt_waits,--wrap=malloc,--wrap=pthread_create -o %t
// RUN: env RUNAHEAD_OOC_STATS=1 %t 2>&1 | FileCheck %s
// CHECK: interrupted, all equal, allocated 0
// CHECK: nests entered 1, declined 0
#include "../../runtime/internal.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = 4 << 20 };
static char *out, *from, other[BYTES];
static volatile int copies, handled, allocated;

/* Asked within enter and step. */
uint64_t __real_adapt_waits(void);
uint64_t __wrap_adapt_waits(void) {
  if (copies && handled < 3) raise(SIGUSR1);
  return __real_adapt_waits();
}
void *__real_malloc(size_t);
void *__wrap_malloc(size_t bytes) {
  allocated += copies;
  return __real_malloc(bytes);
}
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with) {
  allocated += copies;
  return __real_pthread_create(thread, how, run, with);
}

static void handler(int signal_) {
  (void)signal_;
  handled++;
  runahead_ooc_copy(other, from, BYTES);
}

int main(void) {
  out = runahead_ooc_alloc(BYTES, 0), from = runahead_ooc_alloc(BYTES, 0);
  if (!out || !from) return 1;
  for (size_t i = 0; i < BYTES; i++) from[i] = (char)(i * 2654435761u >> 13);
  signal(SIGUSR1, handler);
  copies = 1;
  runahead_ooc_copy(out, from, BYTES);
  copies = 0;
  int same = !memcmp(out, from, BYTES) && !memcmp(other, from, BYTES);
  printf("%sinterrupted, %s, allocated %d\n", handled ? "" : "not ", same ? "all equal" : "different",
         allocated);
  fflush(stdout);
  return 0;
}
