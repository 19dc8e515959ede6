// Where many ranges go to the kernel at once, those of a region that has gone meanwhile are left out: its addresses
// may be another mapping's. What comes after a range that fails is looked at again.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -lm -Wl,--wrap=syscall -o %t
// RUN: env RUNAHEAD_OOC_BACKEND=process_madvise %t
#define _GNU_SOURCE
#include "../../runtime/internal.h"
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MEGABYTE = 1 << 20 };
static int wrong;
#define IS(what) \
  if (!(what)) printf("not so: %s\n", #what), wrong = 1

static char *unmapped_meanwhile;
static unsigned calls;
static struct iovec asked[8];
static unsigned ranges;
long __wrap_syscall(long number, long a, const struct iovec *range, size_t many) {
  if (number != SYS_process_madvise) return 0; /* the descriptor of ourselves */
  (void)a;
  calls++;
  for (size_t i = 0; i < many && ranges < 8; i++) asked[ranges++] = range[i];
  if (unmapped_meanwhile) {
    runahead_ooc_unregister(unmapped_meanwhile);
    unmapped_meanwhile = NULL;
    errno = ENOMEM;
    return -1;
  }
  return (long)many * MEGABYTE;
}

static struct region *region_with(char *start) {
  IS(runahead_ooc_register(start, MEGABYTE) == 0);
  struct region *region = region_at((uint64_t)start, NULL);
  region->window = 8 * MEGABYTE;
  calls = ranges = 0;
  return region;
}

int main(void) {
  char *p = mmap(NULL, 3 * MEGABYTE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct region *first = region_with(p), *second = region_with(p + MEGABYTE), *third = region_with(p + 2 * MEGABYTE);
  struct batch batch = {0};
  batch_add(&batch, first, first->start, MEGABYTE);
  batch_add(&batch, second, second->start, MEGABYTE);
  IS(runahead_ooc_unregister(p) == 0);
  batch_flush(&batch);
  IS(calls == 1 && ranges == 1 && asked[0].iov_base == p + MEGABYTE);

  first = region_with(p);
  batch_add(&batch, first, first->start, MEGABYTE);
  IS(runahead_ooc_unregister(p) == 0);
  batch_flush(&batch);
  IS(calls == 0);

  /* The first range fails, and the last one's region goes at that moment. */
  calls = ranges = 0;
  batch_add(&batch, second, second->start, MEGABYTE);
  batch_add(&batch, third, third->start, MEGABYTE);
  unmapped_meanwhile = p + 2 * MEGABYTE;
  batch_flush(&batch);
  IS(calls == 1);
  return wrong;
}
