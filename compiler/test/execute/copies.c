// Long copies through the run-time layer do what memcpy and memset do, at any length and
// alignment, from and to out-of-core memory and past its ends.
// RUN: %plaincc -O1 -I%runtime %s %build/librunahead_ooc.a -lpthread -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=4000000 RUNAHEAD_OOC_STATS=1 %t 2>&1 | FileCheck %s
// CHECK: all equal
// CHECK: nests entered {{[1-9][0-9]*}}
// CHECK: told to be written {{[1-9][0-9]*}}
#include "runahead_abi.h"
#include "runahead_ooc.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 12 << 20 };

int main(void) {
  char *out = runahead_ooc_alloc(ROOM, 0), *from = runahead_ooc_alloc(ROOM, 0);
  char *wanted = calloc(1, ROOM);
  if (!out || !from || !wanted) return 1;
  for (size_t i = 0; i < ROOM; i++) from[i] = (char)(i * 2654435761u >> 13);
  const size_t length[] = {0, 1, 4095, 1 << 20, (1 << 20) + 1, (5 << 20) - 7, ROOM - 64};
  int different = 0;
  for (size_t i = 0; i < sizeof length / sizeof *length; i++) {
    size_t n = length[i], shift = i * 9;
    memcpy(wanted + shift, from + 5, n);
    runahead_ooc_copy(out + shift, from + 5, n);
    different += memcmp(wanted, out, ROOM) != 0;
    runahead_ooc_set(out + shift, 0x100 + (int)i, n / 2);
    memset(wanted + shift, (int)i, n / 2);
    different += memcmp(wanted, out, ROOM) != 0;
  }
  /* Plain memory too. */
  char *plain = malloc(ROOM);
  runahead_ooc_copy(plain, out, ROOM);
  different += memcmp(plain, wanted, ROOM) != 0;
  puts(different ? "different" : "all equal");
  fflush(stdout);
  return different;
}
