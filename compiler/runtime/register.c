/* What the program, and our own parts, say of memory: it is out of core from now on, or no more.
 *
 * Beside the table of regions (regions.c) that concerns the helper, which is started with the first one, the
 * flag that compiled code tests, and reads that are still to be made.
 */
#include "internal.h"

int register_range(uint64_t start, uint64_t bytes, int descriptor, uint64_t offset, enum region_kind kind) {
  int done = region_add(start, bytes, descriptor, offset, kind);
  if (done) return done;
  limits_memory(); /* found out here, and not in a loop, which may be a signal handler's */
  helper_get();
  arm_again();
  return 0;
}

/* Reads are dropped without the table's lock: that may wait. */
int register_end(uint64_t start) {
  uint64_t end;
  int done = region_remove(start, &end);
  if (!done) errands_drop_reads(start, end);
  return done;
}

EXPORTED int runahead_ooc_register(void *address, size_t bytes) {
  return register_range((uint64_t)address, bytes, -1, 0, REGION_NAMED);
}

EXPORTED int runahead_ooc_register_file(void *address, size_t bytes, int descriptor,
                                        uint64_t offset) {
  return register_range((uint64_t)address, bytes, descriptor, offset, REGION_NAMED);
}

EXPORTED int runahead_ooc_register_nameless(void *address, size_t bytes, int descriptor, uint64_t offset) {
  return register_range((uint64_t)address, bytes, descriptor, offset, REGION_NAMELESS);
}

EXPORTED int runahead_ooc_register_arrays(void *address, size_t bytes, int descriptor) {
  return register_range((uint64_t)address, bytes, descriptor, 0, REGION_ARRAYS);
}

EXPORTED int runahead_ooc_unregister(void *address) { return register_end((uint64_t)address); }
