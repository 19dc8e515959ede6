// What was prefetched and thrown out again is asked for once more before its use.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=64000000 RUNAHEAD_OOC_STATS=1 %t %t.data 2>&1 | FileCheck %s
// CHECK: there again
// CHECK: looked at once more before their use {{[1-9][0-9]*}}, of which missing {{[1-9][0-9]*}}
#define _GNU_SOURCE
#include "../../runtime/internal.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE = 64 << 10, PIECES = 1024 };

int main(int argc, char **argv) {
  if (argc < 2) return 1;
  size_t bytes = (size_t)PIECE * PIECES;
  char *p = runahead_ooc_map(argv[1], bytes, RUNAHEAD_OOC_CREATE);
  if (!p) return 1;
  int f = open(argv[1], O_RDWR);
  for (size_t i = 0; i < bytes; i += 4096)
    if (pwrite(f, "x", 1, (off_t)i) != 1) return 1;
  fsync(f);
  posix_fadvise(f, 0, 0, POSIX_FADV_DONTNEED);
  static struct runahead_reference reference[1] = {{.high = PIECE}};
  static const uint8_t all_given[RUNAHEAD_MAX_VALUES]; /* RUNAHEAD_GIVEN is 0 */
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 1, .references = 1,
                                      .where = "test", .reference = reference,
                                      .form = all_given, .values = 3};
  /* Read by us, not left to the kernel. */
  region_at((uint64_t)p, NULL)->window = 128 << 10;
  int64_t value[] = {PIECES, (int64_t)p, PIECE};
  struct runahead_nest *nest = runahead_ooc_enter(&site, value, 0);
  site_set(&site, SITE_PHASE, 6); /* CHOSE_OURS */
  int64_t at = 0;
  while (at < 16) at = runahead_ooc_step(nest, at, 0, 0, 0);
  usleep(300000);
  posix_fadvise(f, 0, 0, POSIX_FADV_DONTNEED);
  while (at < 64) at = runahead_ooc_step(nest, at, 0, 0, 0);
  /* On a busy disk they take their time. */
  int there = 0;
  for (int tries = 0; tries < 50 && there < 7; tries++) {
    usleep(100000);
    there = 0;
    for (int i = 90; i < 98; i++) {
      unsigned char present = 0;
      mincore(p + (size_t)i * PIECE, 4096, &present);
      there += present & 1;
    }
  }
  printf(there >= 7 ? "there again\n" : "only %d pieces are there\n", there);
  fflush(stdout);
  return 0;
}
