/* Which blocks stay in memory: those that would fit beside what the program has there. */
#define _GNU_SOURCE
#include "heap.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The kernel is asked anew what the program has in memory after so many blocks at the latest: small ones are
 * not counted here. */
#define LOOK_AGAIN 64

/* Memory of the program's own, touched or not: what it may change and has for itself. */
static uint64_t own_memory(void) {
  char text[128];
  int descriptor = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  ssize_t got = descriptor < 0 ? -1 : read(descriptor, text, sizeof text - 1);
  if (descriptor >= 0) close(descriptor);
  if (got <= 0) return 0;
  text[got] = 0;
  const char *at = text;
  for (unsigned field = 0; field < 5 && at; field++) at = strchr(at + 1, ' '); /* the sixth: data and stacks */
  return at ? strtoull(at, NULL, 10) * PAGE_BYTES : 0;
}

/* Up to half of memory the program's blocks are left in it: the other half is for everything that is not counted here,
 * and for the part of the rest that is worked on. `given_back`: of a block that makes place for this one. */
bool fits_in_memory(uint64_t bytes, uint64_t given_back) {
  static uint64_t known, looks_saved;
  uint64_t most = limits_memory() / 2;
  if (bytes > most) return false;
  if (known + bytes > most || looks_saved++ == LOOK_AGAIN) {
    uint64_t own = own_memory();
    known = own > given_back ? own - given_back : 0;
    looks_saved = 0;
  }
  if (known + bytes > most) return false;
  known += bytes;
  return true;
}
