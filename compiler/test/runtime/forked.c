// The helper stays with the parent: a forked child is not disarmed, since nobody would arm it
// again, and writes by itself, until it has a region and a helper of its own.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -o %t
// RUN: timeout -s KILL 20 %t
#define _GNU_SOURCE
#include "../../runtime/internal.h"
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 20 };
static int wrong;
#define IS(what)                                 \
  do {                                           \
    if (!(what)) printf("not so: %s\n", #what), wrong = 1; \
  } while (0)

static int child(void) {
  IS(!errands_helped());
  arm_shut_off(limits_now());
  IS(arm_is_set());
  char *mine = runahead_ooc_alloc(BYTES, 0);
  if (!mine) return 1;
  memset(mine, 1, BYTES);
  IS(errands_helped());
  arm_shut_off(limits_now());
  IS(!arm_is_set());
  fflush(stdout);
  return wrong;
}

int main(void) {
  char *p = runahead_ooc_alloc(BYTES, 0);
  if (!p) return 1;
  memset(p, 1, BYTES);
  IS(errands_helped());
  int pid = fork(), status = 1;
  if (pid == 0) _exit(child());
  waitpid(pid, &status, 0);
  IS(status == 0);
  IS(errands_helped());
  return wrong;
}
