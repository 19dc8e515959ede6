// Where the folder is missing, lies in memory or has no room, or the program is limited, it gets what malloc gives,
// is told once, and no store ends in a signal.
// REQUIRES: small-disk
// RUN: %plaincc -O1 -fno-builtin %s -o %t.plain
// RUN: %cc -O2 -fno-builtin --runahead-heap %s -o %t
// RUN: %t.plain > %t.expected
// RUN: env RUNAHEAD_OOC_HEAP=1M RUNAHEAD_OOC_DIR=/nonexistent %t > %t.1 2> %t.err1
// RUN: diff %t.expected %t.1
// RUN: FileCheck --check-prefix=MISSING --implicit-check-not=runahead %s < %t.err1
// MISSING: runahead: heap blocks stay in memory: /nonexistent: No such file or directory. Set RUNAHEAD_OOC_DIR
// RUN: env RUNAHEAD_OOC_HEAP=1M RUNAHEAD_OOC_DIR=/dev/shm %t > %t.2 2> %t.err2
// RUN: diff %t.expected %t.2
// RUN: FileCheck --check-prefix=MEMORY --implicit-check-not=runahead %s < %t.err2
// MEMORY: runahead: heap blocks stay in memory: {{.*}}cannot promise room on a disk
// RUN: (ulimit -v 4000000; env RUNAHEAD_OOC_HEAP=1M %t > %t.3 2> %t.err3)
// RUN: diff %t.expected %t.3
// RUN: FileCheck --check-prefix=ADDRESSES --implicit-check-not=runahead %s < %t.err3
// ADDRESSES: runahead: heap blocks stay in memory: the program's addresses are limited
// RUN: (ulimit -f 20000; env RUNAHEAD_OOC_HEAP=1M %t > %t.4 2> %t.err4)
// RUN: diff %t.expected %t.4
// RUN: FileCheck --check-prefix=LENGTH --implicit-check-not=runahead %s < %t.err4
// LENGTH: runahead: heap blocks stay in memory: {{.*}}: File too large.
// RUN: rm -rf %t.disk && mkdir -p %t.disk && truncate -s 64M %t.image && mke2fs -q -F %t.image
// RUN: unshare -m sh -c 'mount -o loop %t.image %t.disk && RUNAHEAD_OOC_STATS=1 RUNAHEAD_OOC_HEAP=1M RUNAHEAD_OOC_DIR=%t.disk %t' > %t.5 2> %t.err5
// RUN: diff %t.expected %t.5
// RUN: FileCheck --check-prefix=FOREIGN %s < %t.err5
// FOREIGN: runahead: heap blocks stay in memory: {{.*}}: Operation not supported
// RUN: mke2fs -q -F -t ext4 %t.image
// RUN: unshare -m sh -c 'mount -o loop %t.image %t.disk && RUNAHEAD_OOC_STATS=1 RUNAHEAD_OOC_HEAP=1M RUNAHEAD_OOC_DIR=%t.disk %t' > %t.6 2> %t.err6
// RUN: diff %t.expected %t.6
// RUN: FileCheck --check-prefix=FULL %s < %t.err6
// FULL: runahead: heap blocks stay in memory: {{.*}}: No space left on device.
// FULL-NOT: stay in memory
// FULL: heap: out of core {{[1-9]}}
// FULL-SAME: no room on disk {{[1-9]}}
// RUN: env RUNAHEAD_OOC_HEAP=64X RUNAHEAD_OOC_MEMORY=lots %t > %t.7 2> %t.err7
// RUN: diff %t.expected %t.7
// RUN: FileCheck --check-prefix=WRONG %s < %t.err7
// WRONG-DAG: RUNAHEAD_OOC_HEAP=64X is no size
// WRONG-DAG: RUNAHEAD_OOC_MEMORY=lots is no size
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define MB ((size_t)1 << 20)
int main(void) {
  unsigned char *p[12];
  unsigned long sum = 0;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 12; i++) {
      p[i] = malloc(9 * MB);
      if (!p[i]) return 1;
      memset(p[i], i + 1, 9 * MB);
    }
    for (int i = 0; i < 12; i += 2) {
      p[i] = realloc(p[i], 14 * MB);
      if (!p[i]) return 1;
      memset(p[i] + 9 * MB, i + 2, 5 * MB);
    }
    for (int i = 0; i < 12; i++) {
      for (size_t at = 0; at < 9 * MB; at += 100) sum = sum * 31 + p[i][at];
      free(p[i]);
    }
  }
  printf("%lu\n", sum);
  return 0;
}
