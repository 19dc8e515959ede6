// A region's descriptor that the program has closed, and whose number it uses for a file of its
// own, is neither written to nor closed.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -o %t
// RUN: env RUNAHEAD_OOC_STATS=1 %t 2>&1 | FileCheck %s
// CHECK: still open
// CHECK: told to be written 1{{$}}
#define _GNU_SOURCE
#include "../../runtime/internal.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
  char *p = runahead_ooc_alloc(1 << 20, 0);
  if (!p) return 1;
  struct region *region = region_at((uint64_t)p, NULL);
  submit_write(region, (uint64_t)p, (uint64_t)p + PAGE_BYTES);
  close_range(3, ~0U, 0);
  submit_write(region, (uint64_t)p, (uint64_t)p + PAGE_BYTES);
  int number = region->descriptor;
  if (number < 200 || dup2(STDOUT_FILENO, number) != number) return 1;
  submit_write(region, (uint64_t)p, (uint64_t)p + PAGE_BYTES);
  runahead_ooc_unmap(p, 1 << 20);
  puts(fcntl(number, F_GETFD) >= 0 ? "still open" : "closed");
  fflush(stdout);
  return 0;
}
