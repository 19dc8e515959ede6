// A sequence that is asked for twice is sent once.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -o %t
// RUN: env RUNAHEAD_OOC_STATS=1 %t %t.data 2>&1 | FileCheck %s
// CHECK: in memory as expected
// CHECK: pages asked for 2048, dropped by the filter 1024 (50.00%), prefetched 1024
#include "../../runtime/internal.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
struct runahead_nest *runahead_ooc_enter(struct runahead_site *, const int64_t *,
                                         struct runahead_nest *);
int64_t runahead_ooc_step(struct runahead_nest *, int64_t, int64_t, int64_t, int64_t);

int main(int argc, char **argv) {
  size_t bytes = 1024 * 4096 * 2;
  char *p = runahead_ooc_map(argc > 1 ? argv[1] : "/tmp/x", bytes, RUNAHEAD_OOC_CREATE);
  if (!p) return 1;
  int f = open(argv[1], O_RDWR);
  for (size_t i = 0; i < bytes; i += 4096) pwrite(f, "x", 1, (off_t)i);
  fsync(f);
  madvise(p, bytes, MADV_RANDOM);
  posix_fadvise(f, 0, 0, POSIX_FADV_DONTNEED);
  /* Every second page, 1024 of them, twice over. */
  static struct runahead_reference reference[1] = {{.high = 8}};
  static const uint8_t all_given[RUNAHEAD_MAX_VALUES]; /* RUNAHEAD_GIVEN is 0 */
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 2, .references = 1,
                                      .where = "test", .reference = reference,
                                      .form = all_given, .values = 5};
  int64_t value[] = {2, 1024, (int64_t)p, 0, 8192};
  struct runahead_nest *nest = runahead_ooc_enter(&site, value, 0);
  for (int64_t j = 0; j < 2; j++)
    for (int64_t i = 0; i < 1024;) i = runahead_ooc_step(nest, j, i, 0, 0);
  usleep(200000);
  unsigned char present[2048];
  mincore(p, bytes, present);
  int there = 0;
  for (int i = 0; i < 2048; i += 2) there += present[i] & 1;
  printf(there > 900 ? "in memory as expected\n" : "only %d pages came\n", there);
  fflush(stdout);
  return 0;
}
