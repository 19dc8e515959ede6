// A program whose main thread ends by pthread_exit ends, though a thread of ours writes and watches.
// What the thread wrote is counted.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -Wl,--wrap=adapt_waiting,--wrap=pthread_mutex_trylock -o %t
// RUN: env RUNAHEAD_OOC_STATS=1 timeout -s KILL 20 %t 2>&1 | FileCheck %s
// CHECK: threads 2
// CHECK: told to be written 12{{$}}
// CHECK: disarmed 1 times
#define _GNU_SOURCE
#include "../../runtime/internal.h"
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* As if each write had waited: the next ones are the helper's. */
struct waiting __wrap_adapt_waiting(void) {
  static uint64_t waits;
  return (struct waiting){waits++, 0};
}

/* Where the helper holds the lock, a write is left to the kernel; here it is waited for. */
int __wrap_pthread_mutex_trylock(pthread_mutex_t *lock) { return pthread_mutex_lock(lock); }

int main(void) {
  size_t bytes = 1 << 20;
  char *p = runahead_ooc_alloc(bytes, 0);
  if (!p) return 1;
  for (size_t i = 0; i < bytes; i++) p[i] = 1;
  const struct region *region = region_at((uint64_t)p, NULL);
  for (int i = 0; i < 4; i++)
    submit_write(region, (uint64_t)p + i * 3 * PAGE_BYTES, (uint64_t)p + (i + 1) * 3 * PAGE_BYTES);
  arm_shut_off(limits_now());
  struct stat tasks;
  stat("/proc/self/task", &tasks);
  printf("threads %d\n", (int)tasks.st_nlink - 2);
  fflush(stdout);
  pthread_exit(NULL);
}
